"""Liu 2014's array: too large to walk byte by byte, small enough to walk run by run."""

from __future__ import annotations

import itertools

import pytest

from sds import _native
from sds.geometry import (
    HOPPER_RAID,
    HOPPER_STRIPES,
    ContiguousLayout,
    Hyperslab,
    RaidLayout,
    StripeLayout,
    block_features,
    extent_features,
    parse_selection,
)
from tests.counted_work import finish

EXTENT = (1024, 1024, 65536)
ORDERS = list(itertools.permutations(range(3)))
SELECTIONS = [
    "[:, :, 300]",
    "[512, ::3, ::5]",
    "[:, 7, ::97]",
    "[3:1000:9, 512:600, 300:900]",
    "[::33, ::31, ::5000]",
    "[1:1024:2, 1000:, 65535]",
    "[5, 6, :]",
    "[100:164, 100:164, 100:164]",
]


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_folding_equals_walking_every_run(order):
    for text in SELECTIONS:
        slab = parse_selection(text, EXTENT)
        layout = ContiguousLayout(element_size_bytes=2, data_offset_bytes=2048, order=order)
        folded = block_features(EXTENT, slab, layout, HOPPER_STRIPES, HOPPER_RAID)
        if folded.runs > 1 << 21:
            continue
        stored = slab.permuted(order)
        offsets, lengths = _native.extents(
            [EXTENT[axis] for axis in order],
            2,
            2048,
            stored.start,
            stored.stride,
            stored.count,
            stored.block,
        )
        walked = extent_features(offsets, lengths, HOPPER_STRIPES, HOPPER_RAID)
        for name in walked.__slots__:
            if name != "block_gap_paper" and not name.startswith("sieve"):
                assert getattr(folded, name) == getattr(walked, name), (text, name)


def test_hand_worked_planes():
    layout = ContiguousLayout(element_size_bytes=2)

    def features(text):
        slab = parse_selection(text, EXTENT)
        return block_features(EXTENT, slab, layout, HOPPER_STRIPES, HOPPER_RAID)

    whole = features("[:]")
    # 131,072 stripes over 100 OSTs: 72 of them hold 1,311, each of 256 rows.
    assert (whole.runs, whole.block_depth) == (1, 1311 * 256)
    assert (whole.block_gap_count, whole.osts_touched, whole.disks_touched) == (0, 100, 800)
    across = features("[:, :, 77]")
    # One row in every 128 KiB: 8 in a stripe, 31 left out after each.
    assert (across.runs, across.block_depth) == (1 << 20, 1311 * 8)
    assert across.block_gap_count == 1311 * 8 - 1
    assert across.block_gap_distance == (1311 * 8 - 1) * 31
    assert across.bytes_touched == 4096 << 20
    assert across.block_gap_paper == 1
    # Liu 2014, Sec. IV: length 100 of 1000 on a slow dimension leaves 900.
    slab = parse_selection("[0:100, 5]", (1000, 6))
    few = block_features((1000, 6), slab, layout, HOPPER_STRIPES, HOPPER_RAID)
    assert few.block_gap_paper == 900 + 1


def test_a_paper_sized_block_depth():
    # Liu 2014, Sec. IV: 36 blocks on 8 disks: 4 disks hold 4, 4 hold 5.
    layout = ContiguousLayout(element_size_bytes=512)
    raid = RaidLayout.of(unit_bytes=512, data_disks=8)
    stripes = StripeLayout(stripe_size_bytes=1 << 20, stripe_count=1)
    features = block_features((36,), Hyperslab.all((36,)), layout, stripes, raid)
    assert features.block_depth == 5
    assert features.disks_touched == 8


def test_a_budget_is_kept_where_nothing_folds():
    # 2^49 runs, years of walking, whose starts repeat only after 97 stripes of a million odd bytes.
    extent = (1 << 49, 8199)
    slab = parse_selection("[:, 0]", extent)
    layout = ContiguousLayout(element_size_bytes=1, data_offset_bytes=2051)
    stripes = StripeLayout(stripe_size_bytes=1_000_003, stripe_count=97)
    raid = RaidLayout(unit_bytes=700, data_disks=7, min_request_bytes=1100)
    features = finish(block_features, extent, slab, layout, stripes, raid, budget_s=0.005)
    assert not features.exact
    low, high = features.bounds.bytes_touched
    assert low < high == features.bytes_touched
    assert features.runs == 1 << 49
