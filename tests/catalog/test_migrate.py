import sqlite3

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from sds.catalog.engine import open_engine, sqlite_url
from sds.catalog.migrate import HEAD, alembic_config, check_revision, upgrade
from sds.catalog.rows import Base
from sds.catalog.store import Store
from sds.errors import CatalogError


@pytest.fixture
def url(tmp_path):
    return sqlite_url(tmp_path / "sds.db")


@pytest.fixture
def engine(url):
    opened = open_engine(url)
    yield opened
    opened.dispose()


def test_the_newest_migration_gives_the_declared_tables(engine):
    upgrade(engine)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []


def test_declared_and_migrated_tables_have_the_same_columns_to_the_letter(engine, tmp_path):
    upgrade(engine)
    declared = open_engine(sqlite_url(tmp_path / "declared.db"))
    Base.metadata.create_all(declared)

    def columns(path):
        with sqlite3.connect(path) as connection:
            tables = [
                name
                for (name,) in connection.execute(
                    "SELECT name FROM sqlite_master WHERE type = 'table'"
                )
                if name != "alembic_version"
            ]
            found = {
                table: (
                    connection.execute(f"PRAGMA table_info({table})").fetchall(),
                    connection.execute(f"PRAGMA foreign_key_list({table})").fetchall(),
                    sorted(row[1:4] for row in connection.execute(f"PRAGMA index_list({table})")),
                )
                for table in tables
            }
        connection.close()
        return found

    assert columns(tmp_path / "sds.db") == columns(tmp_path / "declared.db")
    declared.dispose()


def test_head_is_the_newest_migration():
    assert ScriptDirectory.from_config(alembic_config("sqlite://")).get_current_head() == HEAD


def test_downgrade_takes_everything_back(engine, url):
    from alembic import command

    upgrade(engine)
    config = alembic_config(url)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
    assert check_revision(engine) is False


def test_an_empty_database_is_not_ready_and_a_new_one_is(engine):
    assert check_revision(engine) is False
    upgrade(engine)
    assert check_revision(engine) is True


def _set_revision(tmp_path, revision):
    connection = sqlite3.connect(tmp_path / "sds.db")
    connection.execute("UPDATE alembic_version SET version_num = ?", (revision,))
    connection.commit()
    connection.close()


def test_a_newer_revision_is_refused_with_the_command_that_helps(engine, url, tmp_path):
    upgrade(engine)
    _set_revision(tmp_path, "9999")
    with pytest.raises(CatalogError, match=r"revision 9999.*pip install --upgrade sds-hdf5"):
        Store.open(url)
    with pytest.raises(CatalogError, match="9999"):
        upgrade(engine)


def test_an_older_revision_is_refused_with_the_command_that_helps(engine, url, monkeypatch):
    upgrade(engine)
    monkeypatch.setattr("sds.catalog.migrate.HEAD", "0002")
    with pytest.raises(CatalogError, match=r"revision 0001.*needs 0002.*sds-server upgrade"):
        Store.open(url)


def test_tables_without_a_revision_are_refused(engine, url, tmp_path):
    upgrade(engine)
    connection = sqlite3.connect(tmp_path / "sds.db")
    connection.execute("DROP TABLE alembic_version")
    connection.commit()
    connection.close()
    with pytest.raises(CatalogError, match="no revision"):
        Store.open(url)


def test_a_file_that_is_no_database_is_refused(url, tmp_path):
    (tmp_path / "sds.db").write_bytes(b"this is not a database, but long enough to be one" * 100)
    with pytest.raises(CatalogError, match=r"sds\.db.*not a database.*move it away"):
        Store.open(url)
