"""Reading chunks without HDF5 yields what h5py yields, or leaves the read to it."""

from __future__ import annotations

import ctypes
import logging
import math
import os
import re
from concurrent.futures import ThreadPoolExecutor

import h5py
import hdf5plugin
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import sds
from sds import _native
from sds.client.open_files import find_opened
from sds.errors import FormatError
from sds.geometry import is_basic_index, selection_from_index
from sds.geometry.point_selection import select_points, select_scattered
from sds.hdf5.chunk_index import read_chunk_index
from sds.hdf5.chunk_reader import describe_chunked, find_chunks, read_chunked
from sds.hdf5.codecs import native_filter
from sds.hdf5.dataset import describe_open_dataset
from tests.page_cache import drop_from_page_cache
from tests.sizes import repeated

PIPELINES = {
    "none": {},
    "gzip": {"compression": "gzip", "compression_opts": 1},
    "shuffle+gzip": {"compression": "gzip", "shuffle": True},
    "shuffle+gzip+fletcher32": {"compression": "gzip", "shuffle": True, "fletcher32": True},
    "shuffle": {"shuffle": True},
    "fletcher32": {"fletcher32": True},
    "lzf": {"compression": "lzf", "shuffle": True},
    "lz4": dict(hdf5plugin.LZ4()),
    "lz4 in blocks": dict(hdf5plugin.LZ4(nbytes=64)),
    "zstd": dict(hdf5plugin.Zstd()),
    "bzip2": dict(hdf5plugin.BZip2()),
    "blosc-lz4": dict(hdf5plugin.Blosc(cname="lz4")),
    "blosc-zstd": dict(hdf5plugin.Blosc(cname="zstd", shuffle=hdf5plugin.Blosc.BITSHUFFLE)),
    "blosc-zlib": dict(hdf5plugin.Blosc(cname="zlib", shuffle=hdf5plugin.Blosc.NOSHUFFLE)),
    "bitshuffle": dict(hdf5plugin.Bitshuffle(cname="none")),
    "bitshuffle-lz4": dict(hdf5plugin.Bitshuffle(cname="lz4")),
    "bitshuffle-zstd": dict(hdf5plugin.Bitshuffle(cname="zstd", nelems=16)),
}
TYPES = ("u1", "<i2", ">f4", "<f8", "<c16", "S3", "V7", "bool")
SHAPE, CHUNKS = (13, 9, 22), (4, 5, 8)


def values_of(shape, dtype, seed=1):
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, 7, shape) * 30
    if np.dtype(dtype).kind in "SV":
        return numbers.astype("<i8").view("V8").astype(f"V{np.dtype(dtype).itemsize}").view(dtype)
    return numbers.astype(dtype)


def read_without_hdf5(dataset, selected, shape):
    """Return what is read without HDF5; None where that is left to it."""
    described = describe_open_dataset(dataset, dataset.file.filename)
    source = describe_chunked(dataset, described)
    if source is None:
        return None
    source.missed_s = math.inf  # finding the chunks pays
    assert find_chunks(dataset, source, selected) or source.index is None
    engine = _native.ReadFile(dataset.file.id.get_vfd_handle(), may_map=False)
    filled = np.full(shape, b"\xee" * dataset.dtype.itemsize, f"V{dataset.dtype.itemsize}")
    result = filled.view(dataset.dtype)
    if not read_chunked(engine, source, selected, result):
        return None
    again = np.zeros_like(result)  # from the chunks that the first read left behind
    assert read_chunked(engine, source, selected, again)
    assert again.tobytes() == result.tobytes()
    return result


def read_both(dataset, index):
    """Return what h5py reads, and what is read without HDF5: None where that was left to it."""
    expected = np.asarray(dataset[index])
    selected, shape = (
        selection_from_index(index, dataset.shape)
        if is_basic_index(index)
        else (select_scattered(index, dataset.shape), expected.shape)
    )
    if 0 in shape:
        return expected, expected
    return expected, read_without_hdf5(dataset, selected, shape)


def assert_same(dataset, index):
    expected, found = read_both(dataset, index)
    assert found is not None, "left to HDF5"
    assert found.shape == expected.shape
    assert found.tobytes() == expected.astype(found.dtype).tobytes()  # h5py: native scalars


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Every pipeline with every type; one chunk is never written."""
    file = tmp_path_factory.mktemp("chunks") / "every.h5"
    with h5py.File(file, "w", libver="latest", userblock_size=512) as handle:
        for name, filters in PIPELINES.items():
            for dtype in TYPES:
                made = handle.create_dataset(
                    f"{name}/{dtype}", SHAPE, dtype, chunks=CHUNKS, **filters
                )
                made[4:] = values_of((9, *SHAPE[1:]), dtype)
                made[:4, 3:, 5:] = values_of((4, 6, 17), dtype)
                made[:2, :1] = values_of((2, 1, 22), dtype)
    with h5py.File(file) as handle:
        yield handle


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_every_pipeline_and_type_reads_as_with_h5py(store, pipeline):
    indices = (..., (0, 0), np.s_[2:11:3, 4:, ::5], np.s_[:, :, -1], np.s_[5:7, 1:3, 3:20])
    for dtype in TYPES:
        for index in indices:
            assert_same(store[f"{pipeline}/{dtype}"], index)


@settings(max_examples=repeated(50, 150), suppress_health_check=list(HealthCheck))
@given(
    index=hnp.basic_indices(SHAPE, allow_newaxis=False).filter(
        lambda index: all(
            not isinstance(part, slice) or part.step is None or part.step > 0
            for part in (index if isinstance(index, tuple) else (index,))
        )
    ),
    pipeline=st.sampled_from(list(PIPELINES)),
    dtype=st.sampled_from(TYPES),
)
def test_any_selection_reads_as_with_h5py(store, index, pipeline, dtype):
    assert_same(store[f"{pipeline}/{dtype}"], index)


@settings(max_examples=repeated(30, 100), suppress_health_check=list(HealthCheck))
@given(data=st.data(), pipeline=st.sampled_from(list(PIPELINES)), dtype=st.sampled_from(TYPES))
def test_lists_of_indices_read_as_with_h5py(store, data, pipeline, dtype):
    axis = data.draw(st.integers(0, 2))
    indices = data.draw(st.sets(st.integers(0, SHAPE[axis] - 1), min_size=1).map(sorted))
    kind = data.draw(st.sampled_from(["list", "array", "mask"]))
    if kind == "mask":
        indices = np.isin(np.arange(SHAPE[axis]), indices)
    elif kind == "array":
        indices = np.array(indices, data.draw(st.sampled_from(["u1", "i4", "i8"])))
    others = st.one_of(st.just(slice(None)), st.integers(-9, 8), st.just(slice(1, 8, 3)))
    parts = [data.draw(others) for _ in SHAPE]
    parts[axis] = indices
    if data.draw(st.booleans()):
        where = data.draw(st.integers(0, 3))
        whole = data.draw(st.integers(0, 3 - where))
        if not where <= axis < where + whole:
            parts[where : where + whole] = [...]
    assert_same(store[f"{pipeline}/{dtype}"], tuple(parts))


@settings(max_examples=repeated(20, 60), suppress_health_check=list(HealthCheck))
@given(
    chosen=st.sets(st.integers(0, 13 * 9 * 22 - 1), min_size=1),
    pipeline=st.sampled_from(list(PIPELINES)),
    dtype=st.sampled_from(TYPES),
)
def test_masks_read_as_with_h5py(store, chosen, pipeline, dtype):
    mask = np.zeros(SHAPE, bool)
    mask.reshape(-1)[list(chosen)] = True
    assert_same(store[f"{pipeline}/{dtype}"], mask)


@settings(max_examples=repeated(20, 60), suppress_health_check=list(HealthCheck))
@given(
    rows=st.lists(st.tuples(*(st.integers(-n, n - 1) for n in SHAPE)), min_size=1),
    pipeline=st.sampled_from(list(PIPELINES)),
    dtype=st.sampled_from(TYPES),
)
def test_points_in_any_order_read_as_with_numpy(store, rows, pipeline, dtype):
    dataset = store[f"{pipeline}/{dtype}"]
    found = read_without_hdf5(dataset, select_points(rows, SHAPE), (len(rows),))
    assert found.tobytes() == dataset[...][tuple(np.array(rows).T)].tobytes()


def set_chunk_options(plist, options):
    """H5Pset_chunk_opts, which h5py does not wrap."""
    call = ctypes.CDLL(h5py.h5d.__file__).H5Pset_chunk_opts
    call.argtypes = (ctypes.c_int64, ctypes.c_uint)
    assert call(plist.id, options) >= 0


@st.composite
def datasets(draw):
    """How to make a dataset: any rank, index of chunks, fill value, growth and shrinkage."""
    rank = draw(st.integers(1, 4))
    axis = st.integers(1, 9)
    shape = draw(st.lists(axis, min_size=rank, max_size=rank).map(tuple))
    chunks = draw(st.lists(axis, min_size=rank, max_size=rank).map(tuple))
    n_unlimited = draw(st.integers(0, rank))
    return {
        "shape": shape,
        "chunks": chunks,
        "maxshape": (None,) * n_unlimited
        + tuple(max(a, b) for a, b in zip(shape, chunks, strict=True))[n_unlimited:],
        "resized": tuple(
            draw(st.integers(1, 12)) if k < n_unlimited else n for k, n in enumerate(shape)
        ),
        "libver": draw(st.sampled_from(["earliest", "latest"])),
        "userblock": draw(st.sampled_from([0, 512])),
        "pipeline": draw(st.sampled_from(list(PIPELINES))),
        "dtype": draw(st.sampled_from(["u1", ">i2", "<f8"])),
        "fillvalue": draw(st.sampled_from([None, 7])),
        "early": draw(st.booleans()),
        "edges_unfiltered": draw(st.booleans()),
    }


def make_dataset(file, how, box):
    with h5py.File(file, "w", libver=how["libver"], userblock_size=how["userblock"]) as handle:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        if how["early"]:
            plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        plist.set_chunk(how["chunks"])
        if how["edges_unfiltered"] and how["libver"] == "latest":
            set_chunk_options(plist, 2)
        made = handle.create_dataset(
            "x",
            how["shape"],
            how["dtype"],
            chunks=how["chunks"],
            maxshape=how["maxshape"],
            fillvalue=how["fillvalue"],
            dcpl=plist,
            **PIPELINES[how["pipeline"]],
        )
        made[box] = values_of(made.shape, how["dtype"])[box]
        if how["resized"] != how["shape"]:
            made.resize(how["resized"])
            made[..., -1:] = 5


@settings(max_examples=repeated(40, 250), suppress_health_check=list(HealthCheck))
@given(how=datasets(), data=st.data())
def test_any_dataset_reads_as_with_h5py(tmp_path_factory, how, data):
    file = tmp_path_factory.mktemp("any") / "any.h5"
    slices = st.tuples(*(st.integers(0, n).map(lambda at: slice(at, None)) for n in how["shape"]))
    make_dataset(file, how, data.draw(slices))
    with h5py.File(file) as handle:
        parts = [
            data.draw(st.slices(n).filter(lambda part: part.step is None or part.step > 0))
            for n in how["resized"]
        ]
        assert_same(handle["x"], tuple(parts))
        assert_same(handle["x"], ...)


def test_edges_that_were_not_filtered(tmp_path):
    with h5py.File(tmp_path / "edges.h5", "w", libver="latest") as handle:
        for name, filters in PIPELINES.items():
            if not filters:
                continue
            plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            plist.set_chunk((8, 8))
            set_chunk_options(plist, 2)
            made = handle.create_dataset(
                name, (20, 20), "f8", chunks=(8, 8), maxshape=(None, None), dcpl=plist, **filters
            )
            made[...] = values_of((20, 20), "f8")
            made.resize((30, 24))
            made[25:, 3:] = 1
    with h5py.File(tmp_path / "edges.h5") as handle:
        for name in handle:
            assert_same(handle[name], ...)


def test_filters_that_were_left_out(tmp_path):
    """A chunk that a codec would make larger is stored as it is, and its mask says so."""
    with h5py.File(tmp_path / "noise.h5", "w") as handle:
        made = handle.create_dataset(
            "x", (4, 512), "u1", chunks=(1, 512), compression="lzf", shuffle=True, fletcher32=True
        )
        made[0] = np.random.default_rng(1).integers(0, 256, 512)
        made[1] = 3
        made.id.write_direct_chunk((2, 0), bytes(range(256)) * 2, 0b111)
    with h5py.File(tmp_path / "noise.h5") as handle:
        assert read_chunk_index(handle["x"]).skipped.tolist() == [0b010, 0, 0b111, 0]
        assert_same(handle["x"], ...)


def test_values_that_were_never_written(tmp_path):
    with h5py.File(tmp_path / "fill.h5", "w") as handle:
        pair = np.dtype([("a", "i2"), ("b", "f8")])
        for name, dtype, options in (
            ("zero", "f8", {}),
            ("own", "f8", {"fillvalue": 2.5}),
            ("never", "f8", {"fill_time": "never"}),
            ("compound", pair, {}),
        ):
            made = handle.create_dataset(name, (4, 4), dtype, chunks=(2, 2), **options)
            made[:2, :2] = np.ones((2, 2), dtype)
        handle.create_dataset("nothing", (4, 4), "i4", chunks=(2, 2), fillvalue=-1)
    with h5py.File(tmp_path / "fill.h5") as handle:
        for name in ("zero", "own", "nothing"):
            assert_same(handle[name], ...)
        for name in ("never", "compound"):  # HDF5 leaves them undefined, or fills members alone
            assert read_both(handle[name], ...)[1] is None
            assert_same(handle[name], np.s_[:2, :2])


def test_filters_that_only_hdf5_has_are_left_to_it(tmp_path):
    with h5py.File(tmp_path / "other.h5", "w") as handle:
        handle.create_dataset("scale", (40,), "i4", chunks=(8,), scaleoffset=True)
        handle.create_dataset("b2", (40, 40), "i4", chunks=(8, 8), **hdf5plugin.Blosc2())
        for made in handle.values():
            made[...] = 3
    with h5py.File(tmp_path / "other.h5") as handle:
        for name in handle:
            assert read_both(handle[name], ...)[1] is None
            assert np.array_equal(sds.read(tmp_path / "other.h5", name), handle[name][...])


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Several windows and threads; the file has been at rest for long enough to be known again."""
    file = tmp_path_factory.mktemp("large") / "large.h5"
    values = np.round(np.random.default_rng(3).normal(size=(70, 70, 700)), 2)
    with h5py.File(file, "w") as handle:
        for name in ("none", "shuffle+gzip+fletcher32", "blosc-zstd", "bitshuffle-lz4"):
            handle.create_dataset(name, data=values, chunks=(32, 32, 64), **PIPELINES[name])
        long = handle.create_dataset("long", (1 << 22,), "f4", chunks=(1 << 16,), compression="lzf")
        long[...] = np.arange(1 << 22) // 3
    os.utime(file, (1, 1))
    return file


def test_large_reads_go_by_threads(large, caplog):
    indices = (..., np.s_[3], np.s_[:, :, 5], np.s_[1:60:7, :, ::9], ([3, 4, 60], 2))
    with h5py.File(large) as handle:
        for name in handle:
            for index in indices if handle[name].ndim == 3 else (..., np.s_[5:-5:2]):
                expected = handle[name][index]
                with caplog.at_level(logging.DEBUG, "sds.hdf5.chunk_reader"):
                    caplog.clear()
                    found = sds.read(large, name, index)
                assert found.tobytes() == expected.tobytes()
                if index is ...:
                    assert "without HDF5" in caplog.text
                    threads = min(2, len(os.sched_getaffinity(0)))
                    assert f"'threads': {threads}" in caplog.text or name == "none"


def test_reads_from_several_threads_at_once(large):
    with h5py.File(large) as handle:
        expected = handle["shuffle+gzip+fletcher32"][:, 3]
    with ThreadPoolExecutor(8) as pool:
        reads = [
            pool.submit(sds.read, large, "shuffle+gzip+fletcher32", np.s_[:, 3]) for _ in range(24)
        ]
        assert all(one.result().tobytes() == expected.tobytes() for one in reads)


def read_whole(handle, n_threads, window_bytes):
    """Read a dataset without HDF5: its bytes, the report, and the sizes of its chunks."""
    dataset = handle["shuffle+gzip+fletcher32"]
    index = read_chunk_index(dataset)
    described = describe_open_dataset(dataset, handle.filename)
    order = np.argsort(index.offset_bytes)
    found = np.zeros(dataset.shape)
    report = _native.read_chunks(
        _native.ReadFile(handle.id.get_vfd_handle()),
        dataset.shape,
        dataset.chunks,
        8,
        [native_filter(step) for step in described.filters],
        False,
        [(0, n, 1, n) for n in dataset.shape],
        dataset.shape,
        None,
        np.stack(np.unravel_index(order, index.grid), axis=1).astype("i8", order="C"),
        index.offset_bytes[order],
        index.size_bytes[order],
        index.skipped[order],
        found.reshape(-1).view("u1").data,
        n_threads,
        window_bytes,
    )
    return found.tobytes(), report, index.size_bytes


def memory_with(n_threads, sizes, window_bytes):
    """Return what decoding takes at most, two windows included."""
    scratch = 2 * n_threads * (32 * 32 * 64 * 8 + 128)
    return scratch + 2 * max(window_bytes, int(sizes.max())) + 2 * 24 * len(sizes)


def test_windows_of_any_size(large):
    with h5py.File(large) as handle:
        expected = handle["shuffle+gzip+fletcher32"][...].tobytes()
        for window_bytes in (1, 200_000, 1 << 20):
            for n_threads in (1, 2, 5):
                found, report, sizes = read_whole(handle, n_threads, window_bytes)
                assert found == expected
                assert report["threads"] == n_threads
                assert report["chunks"] == len(sizes)
                assert report["memory_bytes"] <= memory_with(n_threads, sizes, window_bytes)


def test_windows_are_short_where_the_device_has_to_be_waited_for(large):
    with h5py.File(large) as handle:
        expected = handle["shuffle+gzip+fletcher32"][...].tobytes()
        _, warm, sizes = read_whole(handle, 2, 0)
        assert 2 * int(sizes.sum()) > warm["memory_bytes"] > int(sizes.sum()) > 4 << 20
        sds.forget()  # pages in a mapping stay
        drop_from_page_cache(large)
        found, cold, _ = read_whole(handle, 2, 0)
        assert found == expected
        assert cold["memory_bytes"] <= memory_with(2, sizes, 2 << 20)


def test_chunks_are_decoded_once_for_small_reads(large, caplog):
    name = "shuffle+gzip+fletcher32"
    with h5py.File(large) as handle:
        expected = handle[name][:3, :2, :300]
    sds.forget()
    with caplog.at_level(logging.DEBUG, "sds.hdf5.chunk_reader"):
        for i in range(3):
            assert sds.read(large, name, np.s_[i, :2, :200]).tobytes() == (
                expected[i, :, :200].tobytes()
            )
        assert len(re.findall("'chunks': 4", caplog.text)) == 1
        assert "'chunks': 0" not in caplog.text
        caplog.clear()
        assert sds.read(large, name, np.s_[0, :2, :300]).tobytes() == expected[0].tobytes()
        assert "'chunks': 1" in caplog.text  # the fifth
        sds.read(large, name)  # too large to be left behind
        source = find_opened(large).chunked[name]
        assert sum(chunk.nbytes for chunk in source.kept.values()) == 5 * 32 * 32 * 64 * 8
        for i in range(0, 70, 5):
            sds.read(large, name, np.s_[i, :, 0:64])
            sds.read(large, name, np.s_[i, :, 400:600])
        assert sum(chunk.nbytes for chunk in source.kept.values()) <= 8 << 20


def test_a_file_that_changes_is_read_anew(tmp_path):
    file = tmp_path / "changing.h5"
    for value in (1, 2):
        with h5py.File(file, "w") as handle:
            for _ in range(value):  # the second time, the chunks lie elsewhere
                handle.create_dataset(f"pad{_}", data=np.zeros(5000))
            handle.create_dataset(
                "x", data=np.full((256, 256), value), chunks=(64, 64), compression="gzip"
            )
        os.utime(file, (value, value))
        assert (sds.read(file, "x") == value).all()


def test_the_index_of_many_chunks_is_read_once_that_pays(tmp_path, caplog):
    file = tmp_path / "many.h5"
    with h5py.File(file, "w", libver="latest") as handle:
        made = handle.create_dataset("x", (20_000, 512), "u1", chunks=(1, 512), compression="lzf")
        made[...] = 1
    os.utime(file, (1, 1))
    with caplog.at_level(logging.DEBUG, "sds.hdf5.chunk_reader"):
        n_reads = 0
        while "without HDF5" not in caplog.text:
            assert sds.read(file, "x", np.s_[:100, 3]).sum() == 100
            n_reads += 1
            assert n_reads < 100
    assert n_reads > 2


def damaged(file, name, change):
    """Change the stored bytes of the first chunk of a dataset."""
    with h5py.File(file) as handle:
        at = handle[name].id.get_chunk_info(0)
    with file.open("r+b") as stream:
        stream.seek(at.byte_offset)
        stored = bytearray(stream.read(at.size))
        change(stored)
        stream.seek(at.byte_offset)
        stream.write(stored)
    os.utime(file, (1, 1))


def test_a_damaged_chunk_raises_what_h5py_raises(tmp_path):
    file = tmp_path / "damaged.h5"
    values = values_of((128, 1024), "f8")
    with h5py.File(file, "w") as handle:
        for name in ("gzip", "shuffle+gzip+fletcher32", "fletcher32"):
            handle.create_dataset(name, data=values, chunks=(16, 1024), **PIPELINES[name])
        names = list(handle)

    def flip(stored):
        stored[len(stored) // 2] ^= 0x55

    for name in names:
        damaged(file, name, flip)
        with h5py.File(file) as handle, pytest.raises(OSError, match="filter") as expected:
            handle[name][...]
        with pytest.raises(OSError, match="filter") as found:
            sds.read(file, name)
        assert str(found.value) == str(expected.value)
        assert np.array_equal(sds.read(file, name, np.s_[16:]), values[16:])


def outcome(read):
    try:
        return read()
    except OSError as error:
        return str(error)


def test_addresses_and_sizes_that_lie_are_left_to_hdf5(tmp_path):
    file = tmp_path / "lying.h5"
    with h5py.File(file, "w", libver="earliest") as handle:
        handle.create_dataset("x", data=values_of((64, 64), "f8"), chunks=(16, 64), shuffle=True)
    with h5py.File(file) as handle:
        at = handle["x"].id.get_chunk_info(1)
    whole = file.read_bytes()
    # The entry of a chunk in a version 1 B-tree: size, filter mask, offsets; then its address.
    address = whole.index(at.byte_offset.to_bytes(8, "little"))
    entry = whole.rindex(at.size.to_bytes(4, "little") + bytes(4), 0, address)
    for where, lie in (
        (address, (len(whole) - 8).to_bytes(8, "little")),
        (address, (1 << 60).to_bytes(8, "little")),
        (entry, (0xFFFFFFF0).to_bytes(4, "little")),
        (entry, (8).to_bytes(4, "little")),
    ):
        file.write_bytes(whole[:where] + lie + whole[where + len(lie) :])
        with h5py.File(file) as handle:
            everything, shape = selection_from_index(..., handle["x"].shape)
            assert read_without_hdf5(handle["x"], everything, shape) is None
        if lie == (8).to_bytes(4, "little"):
            continue  # HDF5 returns memory that it never set
        with h5py.File(file) as handle:
            expected = outcome(lambda handle=handle: handle["x"][...])
        assert np.array_equal(outcome(lambda: sds.read(file, "x")), expected)


@settings(max_examples=repeated(40, 400), suppress_health_check=list(HealthCheck))
@given(
    pipeline=st.sampled_from([name for name, filters in PIPELINES.items() if filters]),
    data=st.data(),
)
def test_made_up_bytes_are_decoded_within_bounds_or_refused(store, pipeline, data):
    dataset = store[f"{pipeline}/<f8"]
    described = describe_open_dataset(dataset, store.filename)
    _, stored = dataset.id.read_direct_chunk((4, 0, 0))
    stored = bytearray(stored)
    capacity = int(np.prod(CHUNKS)) * 8 + data.draw(st.integers(-9, 9))
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.one_of(st.integers(0, 24), st.integers(0, len(stored) - 1)))
        stored[min(at, len(stored) - 1)] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
    del stored[data.draw(st.integers(0, len(stored))) or None :]
    for step in reversed(described.filters):
        try:
            stored = _native.undo_filter(native_filter(step), bytes(stored), capacity)
        except FormatError:
            return
        assert len(stored) <= max(0, capacity)
