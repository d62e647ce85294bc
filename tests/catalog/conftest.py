import pytest

from sds.analyzer import stated_pattern
from sds.catalog.database import sqlite_url
from sds.catalog.records import DatasetFacts
from sds.catalog.store import Store
from sds.hdf5.identity import FileIdentity


@pytest.fixture
def store(tmp_path):
    opened = Store.open(sqlite_url(tmp_path / "sds.db"))
    yield opened
    opened.close()


@pytest.fixture
def identity():
    return FileIdentity(inode=2**64 - 1, size_bytes=4096, mtime_ns=1, ctime_ns=2)


@pytest.fixture
def facts(identity):
    return DatasetFacts(
        file="/data/run.h5",
        identity=identity,
        path="/cube",
        extent=(8, 9, 10),
        element_size_bytes=4,
        storage="contiguous",
        data_offset_bytes=2048,
        chunk_shape=None,
    )


@pytest.fixture
def plane(facts):
    return stated_pattern(
        "[:, :, 3]",
        extent=facts.extent,
        element_size_bytes=facts.element_size_bytes,
        n_reads_per_day=5,
    )
