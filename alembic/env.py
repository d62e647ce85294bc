"""Run by alembic: upgrades the database that ``migrate`` or the command line names."""

from typing import Literal

from alembic import context
from sqlalchemy import Connection, create_engine
from sqlalchemy.types import TypeDecorator

from sds.catalog.rows import Base


def _render(kind: str, item: object, _: object) -> str | Literal[False]:
    """Write a column as the type that SQL has: a migration must not change with the code."""
    if kind == "type" and isinstance(item, TypeDecorator):
        return f"sa.{type(item.impl_instance).__name__}()"
    return False


def _run(connection: Connection) -> None:
    # batch: SQLite alters a table by copying it.
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        render_as_batch=True,
        compare_type=True,
        render_item=_render,
        transactional_ddl=True,
    )
    with context.begin_transaction():
        context.run_migrations()


given = context.config.attributes.get("connection")
if given is not None:
    _run(given)
else:
    named = context.get_x_argument(as_dictionary=True).get("url")
    if named is None:
        raise SystemExit("name the database: alembic -x url=sqlite:////path/to/sds.db upgrade head")
    with create_engine(named).begin() as opened:
        _run(opened)
