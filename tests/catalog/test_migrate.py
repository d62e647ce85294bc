import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

from sds.catalog.database import open_engine, sqlite_url
from sds.catalog.job_queue import JobQueue
from sds.catalog.migrate import HEAD, alembic_config, check_revision, upgrade
from sds.catalog.rows import Base
from sds.catalog.store import Store
from sds.errors import CatalogError
from tests.plots.evidence import calibration

ROOT = Path(__file__).parents[2]
# As SDS wrote it: reads of a dataset that were counted, a replica that serves, advice, a job.
LAST_BEFORE = Path(__file__).with_name("last_before_release.sql")


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


def alembic(*arguments, url=None, directory=ROOT):
    """Run the command that those who write a migration run: where alembic.ini lies."""
    named = () if url is None else ("-x", f"url={url}")
    return subprocess.run(
        [Path(sys.executable).with_name("alembic"), *named, *arguments],
        cwd=directory, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def test_alembic_from_the_checkout_makes_the_catalog_that_sds_makes(engine, url):
    done = alembic("upgrade", "head", url=url)
    assert done.returncode == 0, done.stderr
    assert check_revision(engine) is True
    done = alembic("check", url=url)
    assert done.returncode == 0, done.stdout + done.stderr
    done = alembic("downgrade", "base", url=url)
    assert done.returncode == 0, done.stderr
    assert check_revision(engine) is False


def test_alembic_writes_a_migration_of_what_was_declared(engine, url, tmp_path):
    """In a copy of the checkout's folder, by its template and in a file of the revision's name."""
    upgrade(engine)
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE event"))
    shutil.copy(ROOT / "alembic.ini", tmp_path)
    shutil.copytree(ROOT / "alembic", tmp_path / "alembic")
    done = alembic(
        "revision", "--autogenerate", "--rev-id", "0002_event", url=url, directory=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "alembic" / "versions" / "0002_event.py").is_file()
    done = alembic("upgrade", "head", url=url, directory=tmp_path)
    assert done.returncode == 0, done.stderr
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []


def test_alembic_without_a_database_says_how_to_name_one():
    done = alembic("upgrade", "head")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("name the database: alembic -x url=sqlite:")


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


def test_an_older_revision_is_refused_with_the_command_that_helps(engine, url):
    assert alembic("upgrade", "0001_initial", url=url).returncode == 0
    with pytest.raises(
        CatalogError, match=rf"revision 0001_initial.*needs {HEAD}.*sds-server upgrade"
    ):
        Store.open(url)
    upgrade(engine)
    Store.open(url).close()


@pytest.mark.parametrize("revision", ["0001", "0009"])
def test_a_catalog_of_before_the_first_release_is_refused_with_the_remedy(
    engine, url, tmp_path, revision
):
    upgrade(engine)
    _set_revision(tmp_path, revision)
    remedy = rf"revision {revision}.*move it away and delete SDS_HOME/replicas: .* a new catalog"
    for opening in (lambda: Store.open(url), lambda: upgrade(engine)):
        with pytest.raises(CatalogError, match=remedy):
            opening()


def test_a_catalog_of_the_last_revision_before_the_first_release_is_upgraded(engine, url, tmp_path):
    """With its replicas, which serve on, the reads that were counted, and its calibrations."""
    (tmp_path / "sds.db").write_bytes(b"")
    found = calibration()
    # What was learned beside equations is kept no more.
    lesson = '"lesson":{"heldout":null,"heldout_layouts":null,"refused":"too little"},"repeats":'
    written = found.to_json().replace('"repeats":', lesson)
    assert '"lesson":{' in written
    with closing(sqlite3.connect(tmp_path / "sds.db")) as connection:
        connection.executescript(LAST_BEFORE.read_text())
        connection.execute(
            "INSERT INTO calibration VALUES (1, '/scratch', 1, 1, ?, NULL)", (written,)
        )
        connection.execute("INSERT INTO learned_model VALUES (1, 1, 'hdf5', 'cold', 1, x'00')")
        connection.execute("INSERT INTO query_recommendation VALUES (1, 1, 1, '{}')")
        connection.commit()
    with pytest.raises(CatalogError, match=r"revision 0010.*sds-server upgrade"):
        Store.open(url)
    upgrade(engine)
    with closing(Store.open(url)) as store:
        (replica,) = store.replicas()
        assert replica.layout == replica.replica.layout
        (pattern,) = store.patterns()
        (dataset,) = store.datasets()
        assert (dataset.n_reads, pattern.pattern.n_calls) == (10, 10)
        (record,) = store.calibrations()
        (now,), (then,) = record.calibration.measurements, found.measurements
        assert now == then
        assert store.recommendations() == ()
        (job,) = JobQueue(store).jobs()
        assert job.request.kind == "ingest"


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
