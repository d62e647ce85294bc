"""What undoing filters costs."""

import h5py
import numpy as np
import pytest

from sds.hdf5.chunk_extents import decode_seconds_per_byte
from tests.under_connector import native_environment, run_python


@pytest.fixture
def file(tmp_path):
    with h5py.File(tmp_path / "chunks.h5", "w") as handle:
        yield handle


def make(file, name, values, **storage):
    file.create_dataset(name, data=values, chunks=(64, 64, 32), **storage)
    file.flush()
    return file[name]


def test_undoing_filters_takes_longer_than_nothing(file):
    values = np.random.default_rng(3).integers(0, 50, (100, 100, 64)).astype("i4")
    gzip = decode_seconds_per_byte(make(file, "gzip", values, compression="gzip"))
    shuffle = decode_seconds_per_byte(make(file, "shuffle", values, shuffle=True))
    assert 1e-10 < gzip < 1e-6
    assert shuffle < gzip
    assert decode_seconds_per_byte(make(file, "plain", values)) == 0


def test_a_filter_that_is_missing(file):
    make(file, "data", np.zeros((100, 100, 64)), compression="lzf")
    name = file.filename
    file.close()
    program = """
        import sys, h5py
        from sds.hdf5.chunk_extents import decode_seconds_per_byte
        from sds.errors import UnsupportedError
        h5py.h5z.unregister_filter(h5py.h5z.FILTER_LZF)
        with h5py.File(sys.argv[1]) as file:
            try:
                decode_seconds_per_byte(file["data"])
            except UnsupportedError as error:
                print(error)
    """
    result = run_python(program, name, env=native_environment())
    assert result.stdout.startswith("cannot undo the filters of /data: ")


def test_where_nothing_is_decoded(file):
    file["contiguous"] = np.arange(100)
    assert decode_seconds_per_byte(file["contiguous"]) == 0
    empty = file.create_dataset("empty", (100, 100), "f8", chunks=(10, 10), compression="gzip")
    assert decode_seconds_per_byte(empty) == 0
