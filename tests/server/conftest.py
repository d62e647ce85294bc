import socket
import threading

import h5py
import numpy as np
import pytest

from sds import _native, _spool_writer
from sds.home import Home
from sds.server.api.application import create_app
from sds.server.operations.jobs import Background
from sds.server.operations.service import Service
from sds.server.settings import Settings
from tests.organizer.sources import settle

EXTENT = (24, 20, 16)


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


@pytest.fixture
def service(home):
    settings = Settings(ingest_interval_s=0.05, lock_wait_s=0.2)
    with Service.open(home, settings) as opened:
        yield opened


def make_source(path):
    cube = np.arange(np.prod(EXTENT), dtype="<f4").reshape(EXTENT)
    with h5py.File(path, "w") as handle:
        handle["cube"] = cube
        handle["cube"].attrs["unit"] = "counts"
    settle(path)
    return path


@pytest.fixture(scope="session")
def source(tmp_path_factory):
    """A file with a contiguous cube, for tests that leave it as it is."""
    return make_source(tmp_path_factory.mktemp("source") / "run.h5")


@pytest.fixture(scope="session")
def wide(tmp_path_factory):
    """A file with a cube large enough for a replica of it to pay."""
    path = tmp_path_factory.mktemp("wide") / "wide.h5"
    with h5py.File(path, "w") as handle:
        handle["cube"] = np.zeros((64, 64, 256), "<f4")
    settle(path)
    return path


@pytest.fixture
def own_source(tmp_path):
    """The same, for tests that change it."""
    return make_source(tmp_path / "own.h5")


@pytest.fixture
def write_spool(home, source):
    """Write the trace of a process that read some planes of the cube, and has ended."""

    def write(n_reads, *, pid=2**22 + 1, start_ns=1_000, name=None, **how):
        home.create()
        writer = _spool_writer.SpoolWriter(
            home.spool,
            pid=pid,
            start_ns=start_ns,
            host=name or socket.gethostname(),
            executable="/usr/bin/python3",
        )
        add_planes(writer, source, n_reads, **how)
        writer.close()

    return write


def add_planes(
    writer,
    source,
    n_reads,
    *,
    axis=2,
    first_ns=1_700_000_000_000_000_000,
    served_by=0,
    left_by=0,
    took_ns=500_000,
    extent=EXTENT,
    **named,
):
    """Add reads of one index of an axis each to an open spool file.

    `named`: its `file` and `path`, where they are not those of the source.
    """
    dataset = writer.add_dataset(
        **{"file": str(source), "path": "/cube"} | named,
        identity=_native.identity(source),
        extent=extent,
        element_bytes=4,
        type_class=1,
        storage=1,
        data_offset_bytes=2048,
        hdf5_version="2.0.0",
    )
    count = [1 if i == axis else n for i, n in enumerate(extent)]
    start = np.zeros((n_reads, len(extent)), dtype=np.int64)
    start[:, axis] = np.arange(n_reads) % extent[axis]
    writer.add_reads(
        dataset,
        start=start,
        stride=[1, 1, 1],
        count=count,
        block=[1, 1, 1],
        start_ns=first_ns + np.arange(n_reads, dtype=np.int64) * 1_000_000,
        elapsed_ns=np.full(n_reads, took_ns, dtype=np.int64),
        n_elements=int(np.prod(count)),
        served_by=served_by + (left_by << 32),
    )


@pytest.fixture
def app(service):
    """The application without its background, which a lifespan would start."""
    return create_app(service, Background(service, threading.Event()))
