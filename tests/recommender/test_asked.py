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
from sds.recommender.asked import PlacedRead, operation_of
from sds.recommender.calibration_design import STORED_ORDERS, array_extent, designed_reads
from sds.recommender.cost import features_as_stored
from sds.recommender.simulated import n_requests

SIEVE_BYTES = 1 << 16
OFFSET = 4096


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


@st.composite
def arrays_and_selections(draw):
    extent = tuple(draw(st.lists(st.integers(1, 24), min_size=1, max_size=3)))
    axes = []
    for length in extent:
        block = draw(st.integers(1, length))
        stride = draw(st.integers(block, 2 * length))
        count = draw(st.integers(1, (length - block) // stride + 1))
        start = draw(st.integers(0, length - (count - 1) * stride - block))
        axes.append((start, stride, count, block))
    start, stride, count, block = zip(*axes, strict=True)
    return extent, Hyperslab(start=start, stride=stride, count=count, block=block)


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


def test_others_read_alike_elsewhere_and_always_there():
    extent = (64, 64, 64)
    slab = Hyperslab(start=(0, 5, 0), stride=(1, 1, 1), count=(1, 1, 1), block=(64, 1, 64))
    layout = ContiguousLayout(element_size_bytes=8)
    read = PlacedRead.of(extent, slab, layout, n_processes=4)
    assert read.slabs[0] == slab
    assert {(s.stride, s.count, s.block) for s in read.slabs} == {
        (slab.stride, slab.count, slab.block)
    }
    assert len({s.start for s in read.slabs}) > 2
    for other in read.slabs:
        other.check_within(extent)
    assert read == PlacedRead.of(extent, slab, layout, n_processes=4)


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


def test_each_chunk_is_a_request_of_its_own():
    layout = ChunkedLayout(element_size_bytes=4, chunk_shape=(16, 16), stored_chunk_bytes=700)
    slab = Hyperslab(start=(0, 20), stride=(1, 1), count=(1, 1), block=(64, 4))
    read = PlacedRead.of((64, 64), slab, layout)
    features = features_as_stored(StoredArray(extent=(4, 4), element_size_bytes=700), read.slabs[0])
    operation = operation_of(read, Via.HDF5, features=features)
    assert n_requests(operation) == 4
    assert bytes_asked(operation).sum() == 4 * 700


def test_chunks_that_are_skipped_unevenly_are_refused_in_words():
    layout = ChunkedLayout(element_size_bytes=4, chunk_shape=(4,))
    slab = Hyperslab(start=(0,), stride=(10,), count=(20,), block=(1,))
    with pytest.raises(SimulationLimitError, match="skips chunks unevenly"):
        PlacedRead.of((256,), slab, layout)


def test_a_scalar_is_one_request():
    operation = asked((), Hyperslab(start=(), stride=(), count=(), block=()), Via.ENGINE)
    assert n_requests(operation) == 1
    assert math.prod(operation.extent) == 8
