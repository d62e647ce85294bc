"""What reads ask of the storage: the requests are those that HDF5 and the engine make."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sds.engine import Cache, FileState, plan_selection
from sds.errors import SimulationLimitError
from sds.geometry import ChunkedLayout, ContiguousLayout, Hyperslab
from sds.recommender import StoredArray, Via
from sds.recommender.asked import operation_of
from sds.recommender.calibration_design import STORED_ORDERS, array_extent, designed_reads
from sds.recommender.cost import features_as_stored
from sds.recommender.placed import PlacedRead
from sds.recommender.simulated import n_requests
from sds.simulator import hopper, simulate
from tests.recommender.drawn_reads import arrays_and_selections, chunked_reads, skips_unevenly

SIEVE_BYTES = 1 << 16
OFFSET = 4096
# What chunks ask for does not depend on what else is known of them.
SOME = features_as_stored(StoredArray(extent=(1,), element_size_bytes=1), Hyperslab.all((1,)))


def asked(extent, slab, via, *, size=8, n_processes=1):
    layout = ContiguousLayout(element_size_bytes=size, data_offset_bytes=OFFSET)
    read = PlacedRead.of(extent, slab, layout, n_processes=n_processes)
    array = StoredArray(extent=extent, element_size_bytes=size, data_offset_bytes=OFFSET)
    return operation_of(read, via, features=features_as_stored(array, slab))


def bytes_of(extent, slab, size):
    """Return which bytes of the array a selection has."""
    wanted = np.zeros(extent, dtype=bool)
    axes = [
        (start + stride * np.arange(count)[:, None] + np.arange(block)).ravel()
        for start, stride, count, block in slab.axes()
    ]
    wanted[np.ix_(*axes)] = True
    return np.repeat(wanted.ravel(), size)


def bytes_asked(operation, process=0):
    """Return which bytes of the array the requests of a process bring."""
    start, stride, count, block = operation.slabs[process].tolist()
    slab = Hyperslab(
        start=tuple(start), stride=tuple(stride), count=tuple(count), block=tuple(block)
    )
    slab.check_within(operation.extent)
    return bytes_of(operation.extent, slab, 1)


@settings(max_examples=300, deadline=None)
@given(arrays_and_selections(), st.sampled_from((1, 4)))
def test_the_engine_s_requests_bring_all_that_is_selected(array, size):
    extent, slab = array
    layout = ContiguousLayout(element_size_bytes=size, data_offset_bytes=OFFSET)
    plan = plan_selection(extent, slab, layout, state=FileState(cache=Cache.COLD, may_map=False))
    # No array of these is longer than a request may be, so that none is cut.
    assert math.prod(extent) * size < plan.group_bytes
    try:
        operation = asked(extent, slab, Via.ENGINE, size=size)
    except SimulationLimitError:
        return
    assert plan.requests / 1.25 <= n_requests(operation) <= plan.requests * 1.25
    assert (bytes_asked(operation) >= bytes_of(extent, slab, size)).all()


@pytest.mark.parametrize("space_bytes", [1 << 20, 1 << 24, 1 << 28])
@pytest.mark.parametrize("via", list(Via))
def test_every_read_of_a_calibration_can_be_simulated(space_bytes, via):
    extent = array_extent(space_bytes)
    random = np.random.default_rng(1)
    refused = []
    for read in designed_reads(extent):
        for order in STORED_ORDERS:
            start = tuple(int(random.integers(room)) for room in read.room(extent))
            slab = read.at(start).permuted(order)
            stored = tuple(extent[axis] for axis in order)
            try:
                asked(stored, slab, via, size=4, n_processes=2)
            except SimulationLimitError as error:
                refused.append(f"{read.name}, {order}: {error}")
    assert refused == []


def test_through_hdf5_a_plane_asks_for_buffers():
    """Runs of 8 bytes, 4 KiB apart: a buffer of 64 KiB begins with every sixteenth of them."""
    extent = (1024, 512)
    slab = Hyperslab(start=(0, 3), stride=(1, 1), count=(1024, 1), block=(1, 1))
    operation = asked(extent, slab, Via.HDF5)
    array = StoredArray(extent=extent, element_size_bytes=8, data_offset_bytes=OFFSET)
    expected = features_as_stored(array, slab).sieve_requests
    assert expected == 64
    assert abs(n_requests(operation) - expected) <= 1
    start, stride, _, block = operation.slabs[0, :, -1].tolist()
    assert (start, stride) == (3 * 8, SIEVE_BYTES)
    assert block == SIEVE_BYTES - 1  # a byte keeps it apart from the next


def test_through_hdf5_a_run_longer_than_the_buffer_is_read_by_itself():
    extent = (8, 1 << 15)
    slab = Hyperslab(start=(0, 0), stride=(2, 1), count=(4, 1), block=(1, 1 << 14))
    operation = asked(extent, slab, Via.HDF5)
    assert n_requests(operation) == 4
    assert (bytes_asked(operation) == bytes_of(extent, slab, 8)).all()


def test_a_replica_is_read_in_its_own_order():
    extent = (32, 64, 128)
    slab = Hyperslab(start=(0, 7, 0), stride=(1, 1, 1), count=(32, 1, 128), block=(1, 1, 1))
    layout = ContiguousLayout(element_size_bytes=8, order=(1, 0, 2))
    read = PlacedRead.of(extent, slab, layout)
    assert read.extent == (64, 32, 128)
    features = features_as_stored(
        StoredArray(extent=read.extent, element_size_bytes=8), read.slabs[0]
    )
    operation = operation_of(read, Via.ENGINE, features=features)
    assert n_requests(operation) == 1
    assert bytes_asked(operation).sum() == 32 * 128 * 8


def of_chunks(extent, slab, layout, *, n_processes=1):
    """Return a read of chunks, what it asks for and what the simulator makes of that."""
    read = PlacedRead.of(extent, slab, layout, n_processes=n_processes)
    operation = operation_of(read, Via.HDF5, features=SOME)
    return read, operation, simulate(operation, hopper())


def chunks_touched(slab, layout, read):
    """Return which chunks of the grid hold an element that is selected, one by one."""
    touched = np.zeros(read.extent, dtype=bool)
    stored = slab if layout.order is None else slab.permuted(layout.order)
    axes = [
        (start + stride * np.arange(count)[:, None] + np.arange(block)).ravel() // chunk
        for (start, stride, count, block), chunk in zip(
            stored.axes(), layout.chunk_shape, strict=True
        )
    ]
    touched[np.ix_(*axes)] = True
    return touched.ravel()


@settings(max_examples=300, deadline=None)
@given(chunked_reads(), st.integers(1, 4))
def test_each_chunk_that_is_touched_is_a_request_of_its_own(read, n_processes):
    """A byte of each is left out, without which those that follow each other would be one."""
    extent, slab, layout = read
    if skips_unevenly(slab, layout):
        with pytest.raises(SimulationLimitError, match="skips chunks unevenly"):
            PlacedRead.of(extent, slab, layout, n_processes=n_processes)
        return
    placed, operation, simulated = of_chunks(extent, slab, layout, n_processes=n_processes)
    touched = chunks_touched(slab, layout, placed)
    brought = bytes_asked(operation).reshape(-1, layout.chunk_bytes)
    assert (brought[:, :-1] == touched[:, None]).all()
    assert not brought[:, -1].any()
    assert simulated.requests == n_requests(operation) == n_processes * touched.sum()


def test_chunks_that_follow_each_other_are_no_one_request():
    layout = ChunkedLayout(element_size_bytes=4, chunk_shape=(50, 50, 50))
    slab = Hyperslab(start=(0, 0, 0), stride=(1, 1, 1), count=(1, 300, 200), block=(1, 1, 1))
    for n_processes in (1, 4):
        _, _, simulated = of_chunks((400, 300, 200), slab, layout, n_processes=n_processes)
        assert simulated.requests == 24 * n_processes


def test_filtered_chunks_are_read_as_they_are_stored():
    layout = ChunkedLayout(element_size_bytes=4, chunk_shape=(16, 16), stored_chunk_bytes=700)
    slab = Hyperslab(start=(0, 20), stride=(1, 1), count=(1, 1), block=(64, 4))
    _, operation, simulated = of_chunks((64, 64), slab, layout)
    assert simulated.requests == 4
    assert bytes_asked(operation).sum() == 4 * (700 - 1)


@pytest.mark.parametrize("rank", [1, 31, 32])
def test_pairs_of_chunks_take_an_axis_more_than_hdf5_has(rank):
    ones = (1,) * (rank - 1)
    layout = ChunkedLayout(element_size_bytes=1, chunk_shape=(*ones, 2))
    slab = Hyperslab(start=(*ones, 0), stride=(*ones, 6), count=(*ones, 2), block=(*ones, 4))
    extent = (*(2,) * (rank - 1), 12)
    if rank < 32:
        _, _, simulated = of_chunks(extent, slab, layout)
        assert simulated.requests == 4
        return
    with pytest.raises(SimulationLimitError, match="its chunks take more than 32 axes"):
        of_chunks(extent, slab, layout)


def test_chunks_of_one_byte_are_refused_in_words():
    layout = ChunkedLayout(element_size_bytes=1, chunk_shape=(1,))
    with pytest.raises(SimulationLimitError, match="its chunks are of one byte"):
        of_chunks((9,), Hyperslab.all((9,)), layout)


def test_a_scalar_is_one_request():
    operation = asked((), Hyperslab(start=(), stride=(), count=(), block=()), Via.ENGINE)
    assert n_requests(operation) == 1
    assert math.prod(operation.extent) == 8


@pytest.mark.parametrize("via", list(Via))
@pytest.mark.parametrize("n_processes", [1, 5])
@pytest.mark.parametrize(
    ("extent", "count", "block"),
    [
        ((0,), (0,), (1,)),
        ((4, 0, 6), (1, 0, 1), (4, 1, 6)),
        ((4, 5, 6), (2, 0, 2), (1, 1, 1)),
        ((4, 5, 6), (2, 1, 2), (1, 0, 1)),
        ((0, *(1,) * 31), (0, *(1,) * 31), (1,) * 32),
    ],
)
def test_where_nothing_is_selected_nothing_is_asked_for(extent, count, block, via, n_processes):
    rank = len(extent)
    slab = Hyperslab(start=(0,) * rank, stride=(2,) * rank, count=count, block=block)
    with pytest.raises(SimulationLimitError, match="selects nothing"):
        asked(extent, slab, via, n_processes=n_processes)
