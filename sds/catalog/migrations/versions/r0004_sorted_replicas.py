"""Sorted replicas: a layout, and a replica that was built, say by which column rows are sorted."""

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_REPLICA = sa.table(
    "replica",
    sa.column("id", sa.Integer),
    sa.column("layout", sa.Text),
    sa.column("replica", sa.Text),
)
_JOB = sa.table("job", sa.column("id", sa.Integer), sa.column("request", sa.Text))


def upgrade() -> None:
    """Apply: no replica so far is sorted."""
    connection = op.get_bind()
    for row in connection.execute(sa.select(_REPLICA)).all():
        _set(row.id, json.loads(row.layout) | {"sort": None}, _built(row) | {"sort": None})


def downgrade() -> None:
    """Take back: sorted replicas are forgotten, for reads would be redirected to them."""
    connection = op.get_bind()
    for row in connection.execute(sa.select(_REPLICA)).all():
        layout, built = json.loads(row.layout), _built(row)
        if layout.pop("sort", None) is not None:
            connection.execute(_REPLICA.delete().where(_REPLICA.c.id == row.id))
            continue
        built.pop("sort", None)
        _set(row.id, layout, built)
    for row in connection.execute(sa.select(_JOB)).all():
        if json.loads(row.request)["kind"] == "sort":
            connection.execute(_JOB.delete().where(_JOB.c.id == row.id))


def _built(row: sa.Row[Any]) -> dict[str, Any]:
    """Return the description of what was built; empty where nothing was."""
    return {} if row.replica is None else json.loads(row.replica)


def _set(replica_id: int, layout: dict[str, Any], built: dict[str, Any]) -> None:
    # What was never built has no description, with or without the new field.
    described = json.dumps(built) if "path" in built else None
    op.get_bind().execute(
        _REPLICA.update()
        .where(_REPLICA.c.id == replica_id)
        .values(layout=json.dumps(layout), replica=described)
    )
