import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sds.errors import ConfigurationError, LayoutError
from sds.geometry import Box, ReplicaLayout, check_order
from sds.geometry.least_memory import DEFAULT_MEMORY_BYTES, FIXED_BYTES, least_process_bytes
from sds.geometry.replica_layout import Filter
from sds.geometry.storage_layout import MIB
from sds.hdf5.dataset import DatasetDescription, Storage
from sds.hdf5.identity import FileIdentity
from sds.organizer import ReorganizationRequest, Source
from sds.organizer.plans.reorganization_plan import memory_for_elements, plan_transposition
from sds.organizer.plans.slab_shapes import slab_shape
from sds.recommender.candidates.replica_cost import build_command
from tests.sizes import repeated


def source_of(extent, *, element=8, chunks=None, filters=()):
    return Source(
        description=DatasetDescription(
            file=Path("/data/run.h5"),
            path="/d",
            extent=extent,
            dtype=np.dtype(f"V{element}"),
            element_size_bytes=element,
            storage=Storage.CHUNKED if chunks else Storage.CONTIGUOUS,
            data_offset_bytes=None if chunks else 2048,
            chunk_shape=chunks,
            filters=filters,
            stored_bytes=math.prod(extent) * element,
            is_fixed_size=True,
            is_native=True,
            is_null=False,
        ),
        identity=FileIdentity(inode=1, size_bytes=2, mtime_ns=3, ctime_ns=4),
    )


def plan_of(
    extent, order, *, memory=FIXED_BYTES + 4096, to_chunks=None, to_filters=(), region=None,
    **options,
):  # fmt: skip
    request = ReorganizationRequest(
        order=order,
        output=Path("/out/r.h5"),
        memory_bytes=memory,
        chunks=to_chunks,
        filters=to_filters,
        region=region,
    )
    return plan_transposition(source_of(extent, **options), request, organizer="transposer")


@st.composite
def plans(draw):
    rank = draw(st.integers(1, 4))
    extent = tuple(draw(st.integers(1, 8)) for _ in range(rank))
    chunks = tuple(draw(st.integers(1, n)) for n in extent) if draw(st.booleans()) else None
    order = tuple(draw(st.permutations(range(rank))))
    start = tuple(draw(st.integers(0, n - 1)) for n in extent)
    held = tuple(draw(st.integers(1, n - a)) for a, n in zip(start, extent, strict=True))
    region = draw(st.sampled_from([None, Box(start=start, extent=held)]))
    held = extent if region is None else held
    shape = tuple(draw(st.integers(1, held[axis])) for axis in order)
    to_chunks = shape if draw(st.booleans()) else None
    element = draw(st.sampled_from([1, 2, 8, 24]))
    needed = 2 * element * sum(math.prod(shape) for shape in (chunks, to_chunks) if shape)
    unit = max((math.prod(shape) for shape in (chunks, to_chunks) if shape), default=1)
    memory = FIXED_BYTES + needed + 2 * unit * element + draw(st.integers(0, 40_000))
    plan = plan_of(
        extent,
        order,
        memory=memory,
        element=element,
        chunks=chunks,
        to_chunks=to_chunks,
        region=region,
    )
    return plan, memory


@given(plans())
@settings(max_examples=repeated(40, 300))
def test_slabs_tile_the_region_and_fit_the_memory(drawn):
    plan, memory = drawn
    times_read = np.zeros(plan.extent, int)
    times_written = np.zeros(plan.replica_extent, int)
    for slab in plan.slabs():
        times_read[slab.slices] += 1
        target = plan.in_replica(slab)
        times_written[target.slices] += 1
        assert math.prod(slab.shape) <= plan.slab_elements
        if plan.layout.chunk_shape:
            for first, size, chunk, n in zip(
                target.start,
                target.shape,
                plan.layout.chunk_shape,
                plan.replica_extent,
                strict=True,
            ):
                assert first % chunk == 0
                assert size % chunk == 0 or first + size == n
        elif plan.source_chunk_shape:
            for first, size, chunk, begin, n in zip(
                slab.start,
                slab.shape,
                plan.source_chunk_shape,
                plan.region.start,
                plan.region.extent,
                strict=True,
            ):
                assert first % chunk == 0 or first == begin
                assert (first + size) % chunk == 0 or first + size == begin + n
    inside = np.zeros(plan.extent, int)
    box = zip(plan.region.start, plan.region.extent, strict=True)
    inside[tuple(slice(first, first + n) for first, n in box)] = 1
    np.testing.assert_array_equal(times_read, inside)
    assert (times_written == 1).all()
    held = 2 * plan.n_buffers * plan.slab_elements * plan.element_size_bytes
    assert held < plan.memory_bytes <= memory
    if plan.source_chunk_shape or plan.layout.chunk_shape:
        assert plan.n_buffers == 1  # HDF5 has one thread at a time


@given(plans())
def test_a_plan_is_json(drawn):
    plan, _ = drawn
    assert json.loads(json.dumps(plan.to_json()))["layout"]["order"] == list(plan.order)


@pytest.mark.parametrize(
    ("extent", "order", "element", "budget"),
    [
        ((256, 256, 4096), (2, 0, 1), 4, 30 << 20),
        ((256, 256, 4096), (2, 1, 0), 8, 30 << 20),
        ((1024, 1024, 65536), (2, 0, 1), 2, 254 << 20),
        ((3650, 721, 1440), (1, 2, 0), 4, 254 << 20),
        ((100_000, 100_000), (1, 0), 8, 254 << 20),
    ],
)
def test_runs_are_long_on_both_sides(extent, order, element, budget):
    shape = slab_shape(extent, order, element, unit=(1,) * len(extent), budget_bytes=budget)

    def run(axes):
        length = element
        for axis in reversed(axes):
            length *= shape[axis]
            if shape[axis] < extent[axis]:
                break
        return length

    assert math.prod(shape) * element <= budget
    assert run(range(len(extent))) >= 4096
    assert run(order) >= 4096


def test_an_order_is_checked():
    assert check_order([1, 0], 2) == (1, 0)
    for bad in ((0,), (0, 0), (1, 2), (-1, 0), (0, 1, 2)):
        with pytest.raises(LayoutError, match="no permutation"):
            check_order(bad, 2)


def test_slab_numbers_end_where_the_slabs_do():
    plan = plan_of((5, 7), (1, 0), element=8, memory=FIXED_BYTES + 200)
    assert plan.n_slabs == len(list(plan.slabs()))
    assert list(plan.slabs(plan.n_slabs - 1)) == [plan.slab(plan.n_slabs - 1)]
    with pytest.raises(IndexError):
        plan.slab(plan.n_slabs)


@pytest.mark.parametrize("chunks", [None, (2, 8, 6)])
@pytest.mark.parametrize("to_chunks", [None, (3, 2, 8)])
def test_the_least_memory_of_a_build_is_just_enough(chunks, to_chunks):
    extent, order = (4, 8, 6), (2, 0, 1)
    layout = ReplicaLayout.whole(extent, order=order, chunk_shape=to_chunks)
    memory = memory_for_elements(least_process_bytes(layout, chunks, 8))
    plan_of(extent, order, memory=memory, chunks=chunks, to_chunks=to_chunks)
    with pytest.raises(ConfigurationError, match=r"allow at least 5M \(149M with all"):
        plan_of(extent, order, memory=memory - 1, chunks=chunks, to_chunks=to_chunks)


@pytest.mark.parametrize("mib", [1, 8, 16, 32, 64, 256])
def test_filtering_in_threads_takes_no_memory_that_a_slab_needs(mib):
    """HDF5 filters where there is no room for it, and the least memory is enough."""
    chunk, to_chunk = (1, mib, 1 << 18), (16, 1, 1 << 13)
    extent, gzip = (16, mib, 1 << 18), (Filter(code=1, name="gzip", options=(4,)),)
    layout = ReplicaLayout.whole(extent, order=(0, 1, 2), chunk_shape=to_chunk)
    least = memory_for_elements(least_process_bytes(layout, chunk, 4))
    options = {"chunks": chunk, "to_chunks": to_chunk, "element": 4}
    filtered = options | {"filters": gzip, "to_filters": gzip}
    for memory in (least, least + (32 << 20), least + (64 << 20), least + (512 << 20)):
        plan = plan_of(extent, (0, 1, 2), memory=memory, **filtered)
        assert plan.memory_bytes <= memory
        assert plan.decode_bytes >= 0
    assert plan.encode_bytes > 0
    assert plan_of(extent, (0, 1, 2), memory=memory, **options).encode_bytes == 0
    needed = re.compile(f"allow at least {-(-least // MIB)}M ")
    with pytest.raises(ConfigurationError, match=needed):
        plan_of(extent, (0, 1, 2), memory=least - 1, **filtered)


def test_a_command_asks_for_the_memory_that_it_needs():
    giant = (360, 361, 720)
    layout = ReplicaLayout.whole(giant, order=(1, 2, 0))
    needed = least_process_bytes(layout, giant, 2)
    command = build_command(layout, giant, "a.h5:/d", memory_bytes=needed)
    assert command == "sds reorganize a.h5:/d --order 1,2,0 --memory 862M"
    few = build_command(layout, giant, "a.h5:/d", memory_bytes=DEFAULT_MEMORY_BYTES)
    assert few == "sds reorganize a.h5:/d --order 1,2,0"
