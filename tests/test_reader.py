from __future__ import annotations

import subprocess
import sys

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import sds
from sds.errors import DatasetNotFoundError, NotHdf5Error, SdsValueError, SelectionError

SHAPE = (5, 7, 6)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    file = tmp_path_factory.mktemp("read") / "run.h5"
    rng = np.random.default_rng(7)
    values = rng.integers(-1000, 1000, SHAPE)
    pairs = np.dtype([("a", "<i2"), ("b", ">f8")])
    with h5py.File(file, "w", userblock_size=512) as handle:
        for name in ("<i4", ">i2", "<f8", ">f4", "u1", "<f2", "<c16"):
            handle[f"types/{name}"] = values.astype(name)
        handle["flags"] = values > 0
        handle["pairs"] = np.array(list(zip(values.flat, values.flat, strict=True)), pairs).reshape(
            SHAPE
        )
        handle["opaque"] = np.array([b"abc", b"defg"], dtype="V4")
        handle["fixed"] = np.array([b"abc", b"de"], dtype="S3")
        handle["enum"] = np.array([1, 2], dtype=h5py.enum_dtype({"x": 1, "y": 2}, basetype="i2"))
        handle["vectors"] = np.zeros((4,), dtype=np.dtype(("f4", (3,))))
        handle.create_dataset("text", data=["a", "bc"], dtype=h5py.string_dtype())
        handle.create_dataset("chunked", data=values, chunks=(2, 3, 4), compression="gzip")
        handle.create_dataset("late", SHAPE, "f4", fillvalue=3)
        handle["scalar"] = 2.5
        handle["null"] = h5py.Empty("f4")
        handle["empty"] = np.zeros((3, 0, 2))
    return file


def assert_same(found, expected):
    assert type(found) is type(expected)
    if isinstance(expected, h5py.Empty):
        assert found == expected
        return
    assert np.shape(found) == np.shape(expected)
    assert np.asarray(found).dtype == np.asarray(expected).dtype
    assert np.asarray(found).tobytes() == np.asarray(expected).tobytes()


def names_in(store):
    names = []
    with h5py.File(store) as handle:
        handle.visititems(lambda n, m: names.append(n) if isinstance(m, h5py.Dataset) else None)
    return names


def test_every_type_and_storage_reads_as_with_h5py(store):
    for name in names_in(store):
        for index in (..., (), (..., slice(None)), (0, ...), (slice(1, None, 2),), (-1,)):
            with h5py.File(store) as handle:
                try:
                    expected = handle[name][index]
                except (TypeError, ValueError, IndexError):
                    with pytest.raises(SelectionError):
                        sds.read(store, name, index)
                    continue
            found = sds.read(store, name, index)
            if name == "text":
                assert np.array_equal(found, expected)
            else:
                assert_same(found, expected)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(index=hnp.basic_indices(SHAPE, allow_newaxis=False), data=st.data())
def test_basic_selections_read_as_with_h5py(store, index, data):
    name = data.draw(st.sampled_from(["types/<i4", "types/>i2", "pairs", "flags", "chunked"]))
    with h5py.File(store) as handle:
        try:
            expected = handle[name][index]
        except (TypeError, ValueError, IndexError):
            with pytest.raises(SelectionError):
                sds.read(store, name, index)
            return
    assert_same(sds.read(store, name, index), expected)


def test_text_and_fancy_selections(store):
    with h5py.File(store) as handle:
        dataset = handle["types/<f8"]
        assert_same(sds.read(store, "types/<f8", "[:, 3, ::2]"), dataset[:, 3, ::2])
        assert_same(sds.read(store, "types/<f8", ([0, 2],)), dataset[[0, 2]])
        mask = np.zeros(SHAPE, bool)
        mask[1, 2, 3] = True
        assert_same(sds.read(store, "types/<f8", mask), dataset[mask])
        assert_same(sds.read(store, "pairs", ("a",)), handle["pairs"]["a"])


def test_out_is_filled_or_refused(store):
    with h5py.File(store) as handle:
        expected = handle["types/<i4"][:, 2]
    out = np.zeros(expected.shape, expected.dtype)
    assert sds.read(store, "types/<i4", np.s_[:, 2], out=out) is out
    assert np.array_equal(out, expected)
    with pytest.raises(SdsValueError, match=r"pass np\.empty\(\(5, 6\), 'int32'\)"):
        sds.read(store, "types/<i4", np.s_[:, 2], out=np.zeros((5, 6)))
    with pytest.raises(SdsValueError, match="C-contiguous"):
        sds.read(store, "types/<i4", np.s_[:, 2], out=np.zeros((6, 5), "i4").T)
    assert np.array_equal(sds.read(store, "chunked", ..., out=np.zeros(SHAPE, "i8")).shape, SHAPE)


def test_bytes_that_hdf5_holds_back_are_seen(tmp_path):
    file = tmp_path / "open.h5"
    with h5py.File(file, "w") as handle:
        handle["x"] = np.zeros(100, "i4")
        handle.flush()
        handle["x"][3] = 7
        assert sds.read(file, "x", np.s_[2:5]).tolist() == [0, 7, 0]


def test_bad_input_is_named(store, tmp_path):
    with pytest.raises(SelectionError, match="axis 1: index 9 is out of range"):
        sds.read(store, "types/<i4", np.s_[:, 9])
    with pytest.raises(SelectionError, match="cannot select"):
        sds.read(store, "types/<i4", {"x": 1})
    with pytest.raises(DatasetNotFoundError):
        sds.read(store, "/none")
    (tmp_path / "text").write_text("no HDF5 " * 100)
    with pytest.raises(NotHdf5Error):
        sds.read(tmp_path / "text", "/x")


def test_importing_sds_loads_nothing_heavy():
    heavy = "h5py numpy sqlalchemy fastapi mpi4py statsmodels sklearn matplotlib"
    code = f"import sys, sds; print([m for m in {heavy.split()!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
    code = (
        "import sys, sds.geometry, sds.reader, sds.explain, sds.dataset;"
        f"print([m for m in {heavy.replace('numpy ', '').split()!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
