"""The revision of a catalog: created new, checked at every start, upgraded on demand.

An installed wheel has the migrations beside this module, so that it can upgrade what it finds; a
checkout has them in its top folder, `alembic/`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import inspect, text

from sds.catalog.database import START_ANEW, as_damage
from sds.errors import CatalogError

if TYPE_CHECKING:
    from alembic.config import Config
    from sqlalchemy import Engine

_INSTALLED = Path(__file__).with_name("migrations")
MIGRATIONS = (
    _INSTALLED if (_INSTALLED / "env.py").is_file() else Path(__file__).parents[2] / "alembic"
)
# Stated here so that a start need not load alembic; a test holds it to the newest migration.
HEAD = "0007_predicted_saving"
# Catalogs of before the first release: the last of their revisions can be brought to the first.
_LAST_BEFORE = "0010"
_EARLIER = frozenset(f"{number:04}" for number in range(1, 10))
_FROM_LAST_BEFORE = (
    "DROP TABLE learned_model",
    "DROP TABLE query_recommendation",
    "DELETE FROM recommendation",
    "UPDATE alembic_version SET version_num = '0001_initial'",
)


def alembic_config(url: str) -> Config:
    """Return alembic's configuration for a database, by URL."""
    from alembic.config import Config  # noqa: PLC0415  (slow to import, needed for upgrades alone)

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["url"] = url
    return config


def current_revision(engine: Engine) -> str | None:
    """Return the revision of a database; None where it has no tables of SDS.

    Raises
    ------
    CatalogError
        If it has tables but no revision: something else, or damaged.
    """
    with as_damage():
        tables = set(inspect(engine).get_table_names())
    if "alembic_version" not in tables:
        if tables & {"dataset", "replica", "job"}:
            message = (
                f"database {engine.url.render_as_string()} has tables of SDS but no revision; "
                f"it is damaged: {START_ANEW}"
            )
            raise CatalogError(message)
        return None
    with engine.connect() as connection:
        revision: str | None = connection.execute(
            text("SELECT version_num FROM alembic_version")
        ).scalar()
    return revision


def upgrade(engine: Engine) -> None:
    """Bring a database to the newest revision, creating what is missing.

    Raises
    ------
    CatalogError
        If its revision is not one that this version of SDS knows.
    """
    found = current_revision(engine)
    if found in _EARLIER:
        raise _too_old(engine, found)
    if found == _LAST_BEFORE:
        with engine.begin() as connection:
            for statement in _FROM_LAST_BEFORE:
                connection.execute(text(statement))
    from alembic import command  # noqa: PLC0415
    from alembic.util import CommandError  # noqa: PLC0415

    config = alembic_config(engine.url.render_as_string(hide_password=False))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, "head")
        except CommandError as error:
            message = (
                f"cannot upgrade catalog {engine.url.render_as_string()}: {error}; "
                "install the version of SDS that wrote it, or a newer one"
            )
            raise CatalogError(message) from error


def check_revision(engine: Engine) -> bool:
    """Return whether a database is ready: True at the newest revision, False where it is empty.

    Raises
    ------
    CatalogError
        At any other revision, with the command that fixes it.
    """
    found = current_revision(engine)
    if found is None:
        return False
    if found == HEAD:
        return True
    if found in _EARLIER:
        raise _too_old(engine, found)
    name = engine.url.render_as_string()
    known = {path.stem for path in MIGRATIONS.glob("versions/[0-9]*.py")} | {_LAST_BEFORE}
    if found in known:
        message = (
            f"catalog {name} is of revision {found}, this SDS needs {HEAD}; "
            "stop the server and run: sds-server upgrade"
        )
    else:
        message = (
            f"catalog {name} is of revision {found}, which this SDS (revision {HEAD}) does not "
            "know: a newer SDS wrote it; run: pip install --upgrade sds-hdf5"
        )
    raise CatalogError(message)


def _too_old(engine: Engine, revision: str) -> CatalogError:
    return CatalogError(
        f"catalog {engine.url.render_as_string()} is of revision {revision}, from before the first "
        f"release, which this SDS does not upgrade: {START_ANEW}"
    )
