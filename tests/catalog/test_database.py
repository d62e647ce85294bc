import sqlite3
import threading

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from sds.catalog.database import open_engine, sqlite_url
from sds.catalog.store import Store
from sds.errors import (
    BusyError,
    CatalogError,
    ConfigurationError,
    InsufficientSpaceError,
)
from sds.mounts import filesystem_of, parse_mounts

MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:40 / /home rw - nfs4 filer:/home rw
31 22 0:41 / /scratch rw - lustre 10.0.0.1@o2ib:/scratch rw
32 31 0:42 / /scratch/local\\040disk rw - xfs /dev/sdb rw
33 22 0:43 / /mnt/s3 rw - fuse.s3fs s3fs rw
34 22 0:44 / /over rw - ext4 /dev/sdc rw
35 34 0:45 / /over rw - nfs filer:/over rw
"""


@pytest.mark.parametrize(
    ("path", "kind", "network"),
    [
        ("/var/sds.db", "ext4", False),
        ("/home/me/sds.db", "nfs4", True),
        ("/homework/sds.db", "ext4", False),
        ("/scratch/a/b/c.db", "lustre", True),
        ("/scratch/local disk/c.db", "xfs", False),
        ("/mnt/s3/sds.db", "fuse.s3fs", True),
        ("/over/sds.db", "nfs", True),
    ],
)
def test_the_deepest_and_last_mount_holds_a_path(tmp_path, path, kind, network):
    from pathlib import Path

    (tmp_path / "mountinfo").write_text(MOUNTS)
    found = filesystem_of(Path(path), tmp_path / "mountinfo")
    assert (found.kind, found.is_network) == (kind, network)


def test_this_machine_s_mounts_can_be_read(tmp_path):
    assert filesystem_of(tmp_path).kind
    assert len(parse_mounts(MOUNTS)) == 7


def test_a_network_file_system_is_refused_with_the_setting_that_helps(tmp_path):
    (tmp_path / "mountinfo").write_text(MOUNTS)
    with pytest.raises(CatalogError, match=r"/home/me/sds\.db.*nfs4.*database_url"):
        open_engine(sqlite_url("/home/me/sds.db"), tmp_path / "mountinfo")


@pytest.mark.parametrize("url", ["nonsense", "postgresql://host/db", "oracle9://x"])
def test_another_database_is_refused_by_name(url):
    with pytest.raises(ConfigurationError, match="database_url"):
        open_engine(url)


def test_the_database_keeps_what_it_commits_and_holds_foreign_keys(store):
    with store.engine.connect() as connection:
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
        assert connection.execute(text("PRAGMA synchronous")).scalar() == 2
        assert connection.execute(text("PRAGMA foreign_keys")).scalar() == 1
    with pytest.raises(IntegrityError), store.writing() as session:
        session.execute(
            text(
                "INSERT INTO dataset (source_file_id, path, extent, element_size_bytes, storage) "
                "VALUES (77, '/d', '[]', 4, 'contiguous')"
            )
        )


def test_writers_that_read_first_wait_for_each_other(store, facts):
    """Two transactions that read, then write: without BEGIN IMMEDIATE one would be refused."""
    store.put_dataset(facts)
    failures = []

    def append():
        try:
            for _ in range(25):
                store.put_dataset(facts)
                store.add_event("test", None, "appended", "to see writers wait")
        except BusyError as error:
            failures.append(error)

    threads = [threading.Thread(target=append) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(store.events(1000)) == 100


def test_a_reader_does_not_wait_for_a_writer(store, facts, tmp_path):
    store.put_dataset(facts)
    other = Store.open(sqlite_url(tmp_path / "sds.db"))
    with store.writing() as session:
        session.execute(text("DELETE FROM dataset"))
        assert len(other.datasets()) == 1
    assert other.datasets() == ()
    other.close()


def test_an_error_takes_the_whole_transaction_back(store, facts):
    def delete_and_fail():
        with store.writing() as session:
            session.execute(text("DELETE FROM dataset"))
            raise sqlite3.OperationalError

    store.put_dataset(facts)
    with pytest.raises(sqlite3.OperationalError):
        delete_and_fail()
    assert len(store.datasets()) == 1


def test_a_full_disk_is_named(store, facts, tmp_path):
    def fill():
        with store.writing() as session:
            n_pages = session.execute(text("PRAGMA page_count")).scalar_one()
            session.execute(text(f"PRAGMA max_page_count = {n_pages}"))
            session.execute(text("CREATE TABLE filler AS SELECT zeroblob(100000)"))

    with pytest.raises(InsufficientSpaceError, match=rf"{tmp_path}/sds.db.*free some space"):
        fill()
    store.put_dataset(facts)
    assert len(store.datasets()) == 1
