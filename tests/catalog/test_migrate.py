import json
import sqlite3

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from sds.catalog.engine import open_engine, sqlite_url
from sds.catalog.migrate import HEAD, alembic_config, check_revision, upgrade
from sds.catalog.queue import JobQueue
from sds.catalog.records import DatasetFacts, ReorganizeRequest, SortRequest
from sds.catalog.rows import Base
from sds.catalog.store import Store
from sds.errors import CatalogError
from sds.geometry import Box, SegmentList
from sds.identity import FileIdentity
from sds.organizer.layout import ReplicaLayout, SortOrder


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
    monkeypatch.setattr("sds.catalog.migrate.HEAD", "0011")
    with pytest.raises(CatalogError, match=r"revision 0010.*needs 0011.*sds-server upgrade"):
        Store.open(url)


IDENTITY = '{"inode": 1, "size_bytes": 2, "mtime_ns": 3, "ctime_ns": 4}'
# As the first release stored it.
BUILT = {
    "path": "/home/replicas/a.h5",
    "dataset_path": "/cube",
    "source_path": "/data/run.h5",
    "source_identity": json.loads(IDENTITY),
    "order": [2, 0, 1],
    "extent": [8, 9, 10],
    "element_size_bytes": 4,
    "type_crc32c": 77,
    "data_offset_bytes": 4096,
    "size_bytes": 2880,
    "identity": json.loads(IDENTITY),
    "metadata_crc32c": 5,
    "block_size_bytes": 1048576,
    "created": "2026-11-21T12:00:00+00:00",
    "sds_version": "0.1.0",
    "build_s": 0.5,
    "left_out": [],
}


@pytest.fixture
def of_the_first_release(engine, url, tmp_path):
    """A catalog of revision 0001: a replica that serves, one being built, a request of a job."""
    from alembic import command

    config = alembic_config(url)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
    connection = sqlite3.connect(tmp_path / "sds.db")
    connection.execute("INSERT INTO source_file VALUES (1, '/data/run.h5', ?, 0)", (IDENTITY,))
    connection.execute(
        "INSERT INTO dataset VALUES (1, 1, '/cube', '[16, 9, 10]', 4, 'contiguous', 2048, NULL)"
    )
    row = "INSERT INTO replica VALUES (?, 1, ?, ?, ?, ?, 2880, 10, 11, 'why', ?, ?)"
    connection.execute(
        row, (1, "[2, 0, 1]", "active", BUILT["path"], IDENTITY, 0.75, json.dumps(BUILT))
    )
    connection.execute(row, (2, "[1, 0, 2]", "building", "/b.h5", IDENTITY, None, None))
    request = {"file": "/data/run.h5", "dataset": "/cube", "order": [2, 0, 1]}
    connection.execute(
        "INSERT INTO job VALUES (1, 'queued', ?, 0.0, 0, '', NULL, 0, 10, NULL, NULL)",
        (json.dumps(request | {"kind": "reorganize"}),),
    )
    connection.execute("INSERT INTO spool_file VALUES (1, 'a', '5', 700, 1, 3, 0, 9, '')")
    connection.commit()
    connection.close()
    return engine


def test_a_catalog_of_the_first_release_is_upgraded_with_its_replicas(of_the_first_release, url):
    upgrade(of_the_first_release)
    store = Store.open(url)
    serving, building = store.replicas()
    assert (serving.id, serving.order, serving.storage) == (1, (2, 0, 1), "contiguous")
    assert (serving.chunk_shape, serving.filters) == (None, ())
    assert serving.region == Box.whole((8, 9, 10))
    assert serving.replica.layout == serving.layout
    assert serving.replica.stored_bytes == serving.stored_bytes == 2880
    assert serving.replica.data_offset_bytes == 4096
    assert (building.order, building.replica) == ((1, 0, 2), None)
    assert building.region == Box.whole((16, 9, 10))
    assert serving.verified_ns == 11
    (spool,) = store.spool_records(["a"])
    assert (spool.offset_bytes, spool.size_bytes, spool.complete) == (700, 700, True)
    (job,) = JobQueue(store).jobs()
    assert (job.request.order, job.request.chunks, job.request.region) == ((2, 0, 1), None, None)
    store.close()


def test_a_downgrade_keeps_what_the_first_release_understands(of_the_first_release, url, tmp_path):
    from alembic import command

    upgrade(of_the_first_release)
    store = Store.open(url)
    facts = DatasetFacts(
        file="/data/run.h5",
        identity=FileIdentity(**json.loads(IDENTITY)),
        path="/cube",
        extent=(16, 9, 10),
        element_size_bytes=4,
        storage="contiguous",
        data_offset_bytes=2048,
        chunk_shape=None,
    )
    part = ReplicaLayout(
        order=(2, 0, 1),
        chunk_shape=None,
        filters=(),
        region=Box(start=(0, 0, 0), extent=(1, 9, 10)),
    )
    store.begin_replica(facts, layout=part, path="/part.h5", size_bytes=9)
    store.close()
    config = alembic_config(url)
    with of_the_first_release.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "0001")
    connection = sqlite3.connect(tmp_path / "sds.db")
    rows = connection.execute("SELECT id, axis_order, replica FROM replica ORDER BY id").fetchall()
    connection.close()
    assert [row[:2] for row in rows] == [(1, "[2, 0, 1]"), (2, "[1, 0, 2]")]
    assert json.loads(rows[0][2]) == BUILT


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


def test_a_downgrade_forgets_sorted_replicas_and_nothing_else(of_the_first_release, url, tmp_path):
    """A release that does not know them would redirect reads to them."""
    from alembic import command

    upgrade(of_the_first_release)
    store = Store.open(url)
    facts = DatasetFacts(
        file="/data/run.h5",
        identity=FileIdentity(**json.loads(IDENTITY)),
        path="/particles",
        extent=(100,),
        element_size_bytes=12,
        storage="group",
        data_offset_bytes=None,
        chunk_shape=None,
    )
    layout = ReplicaLayout(
        order=(0,),
        chunk_shape=None,
        filters=(),
        region=Box.whole((100,)),
        sort=SortOrder(key="energy", columns=("energy", "x")),
    )
    made = store.begin_replica(facts, layout=layout, path="/sorted.h5", size_bytes=1600)
    assert store.replica(made.id).layout == layout
    JobQueue(store).submit(SortRequest(file="/data/run.h5", dataset="/particles", key="energy"))
    store.close()
    config = alembic_config(url)
    with of_the_first_release.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "0003")
    connection = sqlite3.connect(tmp_path / "sds.db")
    layouts = connection.execute("SELECT id, layout, replica FROM replica ORDER BY id").fetchall()
    kinds = [json.loads(text)["kind"] for (text,) in connection.execute("SELECT request FROM job")]
    connection.close()
    assert [row[0] for row in layouts] == [1, 2]
    assert not any("sort" in json.loads(text) for row in layouts for text in row[1:] if text)
    assert kinds == ["reorganize"]


def test_a_downgrade_forgets_replicas_of_segments_and_nothing_else(
    of_the_first_release, url, tmp_path
):
    """A release that does not know them would find in them what lies elsewhere."""
    from alembic import command

    upgrade(of_the_first_release)
    store = Store.open(url)
    assert [record.segments for record in store.replicas()] == [None, None]
    facts = DatasetFacts(
        file="/data/run.h5",
        identity=FileIdentity(**json.loads(IDENTITY)),
        path="/cube",
        extent=(16, 9, 10),
        element_size_bytes=4,
        storage="contiguous",
        data_offset_bytes=2048,
        chunk_shape=None,
    )
    segments = SegmentList(tile_shape=(4, 3, 5), tiles=(7, 0, 2), lengths=(2, 1))
    layout = ReplicaLayout(
        order=(2, 0, 1),
        chunk_shape=None,
        filters=(),
        region=segments.around(facts.extent),
        segments=segments,
    )
    made = store.begin_replica(facts, layout=layout, path="/segments.h5", size_bytes=720)
    assert store.replica(made.id).layout == layout
    asked = ReorganizeRequest(
        file="/data/run.h5", dataset="/cube", order=(2, 0, 1), segments=segments
    )
    queued = JobQueue(store).submit(asked)
    assert JobQueue(store).job(queued.id).request == asked
    whole = JobQueue(store).submit(
        ReorganizeRequest(file="/data/run.h5", dataset="/cube", order=(1, 0, 2))
    )
    store.close()
    config = alembic_config(url)
    with of_the_first_release.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "0005")
    connection = sqlite3.connect(tmp_path / "sds.db")
    layouts = connection.execute("SELECT id, layout, replica FROM replica ORDER BY id").fetchall()
    jobs = connection.execute("SELECT id, request FROM job ORDER BY id").fetchall()
    connection.close()
    assert [row[0] for row in layouts] == [1, 2]
    assert not any("segments" in json.loads(text) for row in layouts for text in row[1:] if text)
    assert [job[0] for job in jobs] == [1, whole.id]
    assert not any("segments" in json.loads(text) for _, text in jobs)
    upgrade(of_the_first_release)
    again = Store.open(url)
    assert [record.id for record in again.replicas()] == [1, 2]
    again.close()
