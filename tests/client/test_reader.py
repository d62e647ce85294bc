from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import sds
from sds.errors import (
    DatasetNotFoundError,
    NotHdf5Error,
    SdsValueError,
    SelectionError,
    UnsupportedError,
)
from tests.redirected import settle
from tests.sizes import repeated

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
    settle(file)  # so that it stays open between reads
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


@settings(max_examples=repeated(40, 300), suppress_health_check=list(HealthCheck))
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


def good_lists(length):
    return st.lists(st.integers(0, length - 1), max_size=5, unique=True).map(sorted)


def any_lists(length):
    return st.one_of(
        good_lists(length),
        st.lists(st.integers(-length, length), max_size=5),
        st.lists(st.booleans(), min_size=length, max_size=length),
        st.lists(st.integers(0, 3), max_size=3).map(lambda places: np.array(places, np.uint8)),
    )


@st.composite
def fancy_indices(draw, lists=any_lists):
    """An index with a list along one axis, some of them such that h5py refuses them."""
    axis = draw(st.integers(0, 2))
    places = draw(lists(SHAPE[axis]))
    parts = [
        draw(st.integers(-n, n - 1) | st.slices(n).filter(lambda s: (s.step or 1) > 0))
        for n in SHAPE
    ]
    parts[axis] = places if draw(st.booleans()) else np.array(places, np.array([*places, 0]).dtype)
    if draw(st.booleans()):
        parts = parts[: axis + 1] if draw(st.booleans()) else [*parts[: axis + 1], ...]
    if axis == 2 and draw(st.booleans()):
        parts = [..., parts[2]]
    return tuple(parts)


def assert_same_as_h5py(store, name, index, **options):
    with h5py.File(store) as handle:
        try:
            expected = handle[name][index]
        except (TypeError, ValueError, IndexError, OSError):
            with pytest.raises((SelectionError, OSError)):
                sds.read(store, name, index, **options)
            return
    assert_same(sds.read(store, name, index, **options), expected)


@settings(max_examples=repeated(40, 400), suppress_health_check=list(HealthCheck))
@given(index=fancy_indices(), name=st.sampled_from(["types/<f8", "types/>i2", "pairs", "chunked"]))
def test_lists_along_an_axis_read_as_with_h5py(store, index, name):
    assert_same_as_h5py(store, name, index)


@settings(max_examples=repeated(50, 150), suppress_health_check=list(HealthCheck))
@given(mask=hnp.arrays(bool, SHAPE), name=st.sampled_from(["types/<i4", "pairs", "chunked"]))
def test_masks_read_as_with_h5py(store, mask, name):
    assert_same_as_h5py(store, name, mask)


@pytest.mark.parametrize("strategy", ["auto", "multiple", "sieve", "list", "pmd"])
@settings(max_examples=repeated(20, 60), suppress_health_check=list(HealthCheck))
@given(index=hnp.basic_indices(SHAPE, allow_newaxis=False) | fancy_indices(good_lists))
def test_every_strategy_reads_the_same(store, strategy, index):
    with h5py.File(store) as handle:
        try:
            expected = handle["types/>f4"][index]
        except (TypeError, ValueError, IndexError, OSError):
            return
    assert_same(sds.read(store, "types/>f4", index, strategy=strategy), expected)


@settings(max_examples=repeated(40, 200), suppress_health_check=list(HealthCheck))
@given(
    rows=st.lists(st.tuples(*(st.integers(-n, n - 1) for n in SHAPE)), max_size=20),
    name=st.sampled_from(["types/<f8", "types/>i2", "pairs", "flags", "chunked"]),
)
def test_points_read_as_numpy_indexes(store, rows, name):
    with h5py.File(store) as handle:
        whole = handle[name][...]
    expected = whole[tuple(np.array(rows, int).reshape(-1, 3).T)]
    assert_same(sds.read(store, name, points=rows), expected)
    out = np.empty_like(expected)
    assert sds.read(store, name, points=np.array(rows, "i4").reshape(-1, 3), out=out) is out
    assert out.tobytes() == expected.tobytes()


def test_points_of_other_datasets(store):
    assert sds.read(store, "fixed", points=[1, 0, 1]).tolist() == [b"de", b"abc", b"de"]
    assert sds.read(store, "text", points=[[1], [0]]).tolist() == [b"bc", b"a"]
    assert sds.read(store, "late", points=[[0, 0, 0]]).tolist() == [3]
    assert sds.read(store, "vectors", points=[[3, 1]]).tolist() == [0]


@pytest.mark.parametrize(
    ("name", "points", "message"),
    [
        ("types/<i4", [[0, 0]], r"points of shape \(1, 2\).* one row of 3 coordinates"),
        ("types/<i4", [0, 0, 0], r"points of shape \(3,\)"),
        ("types/<i4", [[0, 0, 0], [0, 7, 0]], r"point 1, \(0, 7, 0\), lies outside"),
        ("types/<i4", [[0, -8, 0]], r"point 0, \(0, -8, 0\), lies outside"),
        ("types/<i4", [[0, -5, 0], [4, 6, 5], [0, 0, 6], [9, 9, 9]], r"point 2, \(0, 0, 6\)"),
        (
            "types/<i4",
            np.array([[0, 2**63 + 1, 0]], np.uint64),
            r"point 0, \(0, 9223372036854775809, 0\), lies outside",
        ),
        ("types/<i4", [[0.0, 1.0, 2.0]], "points are of type float64"),
        ("scalar", [[0]], "points of shape"),
        ("empty", [[0, 0, 0]], "lies outside"),
    ],
)
def test_points_that_cannot_be_read_are_named(store, name, points, message):
    for _ in range(2):
        with pytest.raises(SelectionError, match=message):
            sds.read(store, name, points=points)


def test_strategies_that_do_not_apply_are_refused(store):
    for name, index in (("chunked", ...), ("text", ...), ("types/<i4", "not"), ("scalar", ())):
        with pytest.raises((UnsupportedError, SelectionError)):
            sds.read(store, name, index, strategy="list")
    with pytest.raises(UnsupportedError, match="'list' does not apply to this read of /chunked"):
        sds.read(store, "chunked", strategy="list")
    with pytest.raises(SdsValueError, match="'quick'; there are auto, multiple"):
        sds.read(store, "types/<i4", strategy="quick")
    with pytest.raises(SdsValueError, match="not both"):
        sds.read(store, "types/<i4", np.s_[0], points=[[0, 0, 0]])


def test_a_linked_file_is_read_as_with_h5py(store, tmp_path):
    linking = tmp_path / "linking.h5"
    with h5py.File(linking, "w") as handle:
        handle["x"] = h5py.ExternalLink(store, "types/<f8")
        handle["y"] = h5py.SoftLink("/x")
    settle(linking)
    for name in ("x", "y", "x"):
        assert_same_as_h5py(linking, name, np.s_[1:, 2])


def test_single_elements_are_scalars_as_with_h5py(store):
    for name in ("types/>i2", "pairs", "flags"):
        for index in ((1, 2, 3), (1, 2, 3, ...), (-1, -1, -1)):
            for _ in range(2):
                assert_same_as_h5py(store, name, index)


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
        "import sys, sds.geometry, sds.client.reader, sds.explain.explanation, sds.hdf5.dataset;"
        f"print([m for m in {heavy.replace('numpy ', '').split()!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_files_are_closed_behind_errors(tmp_path):
    """A traceback keeps the frames of a read, which must not keep HDF5's handles with it."""
    file = tmp_path / "broken.h5"
    with h5py.File(file, "w") as handle:
        handle.create_dataset("x", data=np.arange(100), chunks=(10,), fletcher32=True)
    with h5py.File(file) as handle:
        offset = handle["x"].id.get_chunk_info(0).byte_offset
    with file.open("r+b") as stream:
        stream.seek(offset)
        stream.write(b"damage")
    with pytest.raises(OSError, match="read") as damaged:
        sds.read(file, "x")
    with pytest.raises(SelectionError) as refused:
        sds.read(file, "x", (0, 0))
    with h5py.File(file, "r+") as handle:
        assert handle["x"][50] == 50
    assert damaged.value is not refused.value


@pytest.mark.parametrize("locking", [None, True, False, "best-effort"])
def test_files_are_read_however_the_program_locks_them(tmp_path, locking):
    """HDF5 refuses to open a file that is open with another choice about locks."""
    path = tmp_path / "locked.h5"
    values = np.arange(48.0).reshape(6, 8)
    with h5py.File(path, "w") as handle:
        handle["plain"] = values
        handle.create_dataset("packed", data=values, chunks=(2, 2), compression="gzip")
    settle(path)
    with h5py.File(path, locking=locking):
        for name in ("plain", "packed"):
            sds.forget()
            for k in range(2):
                np.testing.assert_array_equal(sds.read(path, name, np.s_[:, k]), values[:, k])
        h5py.File(path, locking=locking).close()
    with h5py.File(path, "r+"):  # nothing of it stays open in HDF5
        pass


def test_files_can_be_opened_while_they_are_read(tmp_path):
    file = tmp_path / "busy.h5"
    with h5py.File(file, "w") as handle:
        handle["x"] = np.arange(10, dtype=">f8")  # written just now: opened by each read

    def open_often():
        for _ in range(300):
            with h5py.File(file) as handle:
                assert handle["x"].shape == (10,)

    with ThreadPoolExecutor(2) as pool:
        opening = pool.submit(open_often)
        for _ in range(100):
            sds.read(file, "x")
        opening.result()
