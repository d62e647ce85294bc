from __future__ import annotations

import itertools
import math

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from sds.errors import LayoutError, UnsupportedError
from sds.geometry import (
    ChunkedLayout,
    FileStripes,
    Hyperslab,
    IoMode,
    ProcessReads,
    RaidLayout,
    StripeComponent,
    StripeLayout,
    block_features,
    count_chunks,
    extent_features,
    operation_features,
    parse_selection,
)
from sds.hdf5.chunk_extents import chunk_extents
from tests import oracles, strategies
from tests.sizes import repeated

RAID = RaidLayout(unit_bytes=64, data_disks=3, min_request_bytes=128)
STRIPES = StripeLayout(stripe_size_bytes=512, stripe_count=3)
SMALL = StripeLayout(stripe_size_bytes=256, stripe_count=2)
FEATURES = (
    "runs",
    "block_depth",
    "block_gap_count",
    "block_gap_distance",
    "bytes_touched",
    "osts_touched",
    "disks_touched",
)


def bytes_of_chunks(extent, slab, layout):
    """Every file byte of the chunks that a selection touches, found element by element."""
    order = layout.order or tuple(range(len(extent)))
    grid_order = layout.chunk_order or tuple(range(len(extent)))
    stored_extent = [extent[a] for a in order]
    grid = [-(-n // c) for n, c in zip(stored_extent, layout.chunk_shape, strict=True)]
    in_file = [grid[a] for a in grid_order]
    indices = oracles.selected_indices(slab.start, slab.stride, slab.count, slab.block)
    numbers = set()
    for element in itertools.product(*(i.tolist() for i in indices)):
        stored = [element[a] for a in order]
        chunk = [i // c for i, c in zip(stored, layout.chunk_shape, strict=True)]
        numbers.add(int(np.ravel_multi_index([chunk[a] for a in grid_order], in_file)))
    begins = np.array(sorted(numbers), np.int64) * layout.chunk_bytes + layout.data_offset_bytes
    return (begins[:, None] + np.arange(layout.chunk_bytes)).ravel(), len(numbers)


@st.composite
def chunked_cases(draw):
    rank = draw(st.integers(1, 3))
    extent = tuple(draw(st.integers(1, 20)) for _ in range(rank))
    axes = [draw(strategies.axis_slabs(length)) for length in extent]
    start, stride, count, block = zip(*axes, strict=True)
    order = draw(st.none() | st.permutations(range(rank)).map(tuple))
    layout = ChunkedLayout(
        element_size_bytes=draw(st.sampled_from([1, 2, 8])),
        chunk_shape=tuple(draw(st.integers(1, 7)) for _ in range(rank)),
        data_offset_bytes=draw(st.sampled_from([0, 2048, 3001])),
        order=order,
        chunk_order=draw(st.none() | st.permutations(range(rank)).map(tuple)),
        stored_chunk_bytes=draw(st.none() | st.integers(1, 300)),
    )
    return extent, Hyperslab(start=start, stride=stride, count=count, block=block), layout


@settings(max_examples=repeated(40, 400), deadline=None, suppress_health_check=list(HealthCheck))
@given(chunked_cases(), st.booleans())
def test_chunks_touched_equal_a_walk_over_every_element(case, progressive):
    extent, slab, layout = case
    touched, n_chunks = bytes_of_chunks(extent, slab, layout)
    raid = {"unit_bytes": 64, "data_disks": 3, "min_request_bytes": 128}
    stripes = STRIPES
    truth = oracles.features_of_bytes(touched, **raid, stripe_bytes=512, stripe_count=3)
    if progressive:
        components = [(0, 4096, 256, (5, 1)), (4096, 2**62, 512, (0, 5, 2))]
        stripes = FileStripes(
            components=(
                StripeComponent(begin_bytes=0, end_bytes=4096, stripes=SMALL, osts=(5, 1)),
                StripeComponent(begin_bytes=4096, end_bytes=None, stripes=STRIPES, osts=(0, 5, 2)),
            )
        )
        truth = oracles.features_of_bytes(touched, **raid, components=components)
    found = block_features(extent, slab, layout, stripes, RAID)
    assert {name: getattr(found, name) for name in FEATURES} == {n: truth[n] for n in FEATURES}
    assert found.bytes_useful == slab.n_elements * layout.element_size_bytes
    stored = slab if layout.order is None else slab.permuted(layout.order)
    assert count_chunks(stored, layout.chunk_shape) == n_chunks
    reads = list(ProcessReads.decomposed(slab, [2] * slab.rank))
    each = [bytes_of_chunks(extent, read, layout)[0] for read in reads]
    event(f"processes share chunks: {sum(map(len, each)) > len(touched)}")
    together = operation_features(
        extent, ProcessReads.of(reads), layout, stripes, RAID, mode=IoMode.COLLECTIVE,
        n_aggregators=2,
    )  # fmt: skip
    apart = operation_features(extent, ProcessReads.of(reads), layout, stripes, RAID)
    assert together.block_depth == truth["block_depth"]
    assert together.bytes_touched == truth["bytes_touched"]
    assert together.bytes_useful == apart.bytes_useful == found.bytes_useful
    assert apart.runs == sum(len(oracles.runs_of_bytes(one)) for one in each)


@pytest.mark.parametrize(
    "selection", ["[...]", "[3, :, ::5]", "[::7, 4:20, 11]", "[1::2, ::9, :3]"]
)
def test_the_grid_is_that_of_hdf5(tmp_path, selection):
    """Chunks written one after the other, in C order, lie as the pure layout supposes."""
    extent, chunk_shape = (20, 30, 17), (5, 7, 4)
    slab = parse_selection(selection, extent)
    with h5py.File(tmp_path / "chunks.h5", "w", libver="latest") as file:
        dataset = file.create_dataset("d", extent, "f4", chunks=chunk_shape)
        chunk = bytes(math.prod(chunk_shape) * 4)
        for at in itertools.product(
            *(range(0, n, c) for n, c in zip(extent, chunk_shape, strict=True))
        ):
            dataset.id.write_direct_chunk(at, chunk)
        begin = dataset.id.get_chunk_info_by_coord((0, 0, 0)).byte_offset
        offsets, lengths = chunk_extents(dataset, slab)
        after_another = dataset.id.get_chunk_info(1).byte_offset == begin + len(chunk)
    layout = ChunkedLayout(element_size_bytes=4, chunk_shape=chunk_shape, data_offset_bytes=begin)
    found = block_features(extent, slab, layout, STRIPES, RAID)
    stored = extent_features(offsets, lengths, STRIPES, RAID)
    assert after_another
    assert {n: getattr(found, n) for n in FEATURES} == {n: getattr(stored, n) for n in FEATURES}


def test_uneven_steps_over_large_grids():
    """Steps of 1000 over chunks of 64 skip unevenly; that is counted without a walk over chunks."""
    extent, slab = (10**6, 4096), parse_selection("[::1000, 5]", (10**6, 4096))
    layout = ChunkedLayout(element_size_bytes=8, chunk_shape=(64, 64))
    found = block_features(extent, slab, layout, STRIPES, RAID)
    assert count_chunks(slab, layout.chunk_shape) == 1000
    assert found.runs == 1000
    wide = parse_selection("[::1000, :]", (10**6, 2**21))
    with pytest.raises(UnsupportedError, match="more than 16777216 chunks, unevenly"):
        block_features((10**6, 2**21), wide, layout, STRIPES, RAID)


def test_bad_chunk_layouts_are_refused_in_words():
    with pytest.raises(LayoutError, match=r"chunk shape \(4, 0\); give a length of at least 1"):
        ChunkedLayout(element_size_bytes=8, chunk_shape=(4, 0))
    with pytest.raises(LayoutError, match="stored_chunk_bytes is 0"):
        ChunkedLayout(element_size_bytes=8, chunk_shape=(4,), stored_chunk_bytes=0)
    layout = ChunkedLayout(element_size_bytes=8, chunk_shape=(4,))
    slab = parse_selection("[:, :]", (4, 4))
    with pytest.raises(LayoutError, match="give one length per axis"):
        block_features((4, 4), slab, layout, STRIPES, RAID)


def test_components_that_cannot_be_are_refused_in_words():
    def component(begin, end, **more):
        return StripeComponent(begin_bytes=begin, end_bytes=end, stripes=SMALL, **more)

    with pytest.raises(LayoutError, match="at least one"):
        FileStripes(components=())
    with pytest.raises(LayoutError, match="from byte 5 to None after one that ends at 0"):
        FileStripes(components=(component(5, None),))
    with pytest.raises(LayoutError, match="without holes"):
        FileStripes(components=(component(0, 100), component(200, None)))
    with pytest.raises(LayoutError, match="ends at 100; let it have no end"):
        FileStripes(components=(component(0, 100),))
    with pytest.raises(LayoutError, match="3 OSTs named for 2 stripes"):
        component(0, None, osts=(1, 2, 3))
    with pytest.raises(LayoutError, match="0 to 65535"):
        component(0, None, osts=(1, 70000))
    layered = FileStripes(components=(component(0, 100), component(100, None)))
    assert layered.prevailing(0, 150) == SMALL
