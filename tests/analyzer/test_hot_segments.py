"""Tiles that recur, and their groups: against a slow oracle, and on simulated zooming."""

import math
import random
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sds.analyzer import ReadTrail, recurring_segments, served_from, tile_reads
from sds.analyzer.hot_segments import (
    BEST,
    LOOSE_SEGMENT_BYTES,
    MAX_SEGMENT_BYTES,
    OF_LAST,
    tile_visits,
)
from sds.analyzer.logical_reads import Slabs
from sds.errors import LayoutError, SdsValueError
from sds.geometry import MAX_TILES_OF_READ, Hyperslab, SegmentList, tiles_touched
from tests.sizes import repeated
from tests.strategies import axis_slabs


def trail_of_slabs(slabs, extent, processes=None, n_reads=None):
    def part(name):
        return np.array([getattr(slab, name) for slab in slabs], dtype=np.int64).reshape(
            len(slabs), len(extent)
        )

    names = sorted(set(processes or ["p"]))
    return ReadTrail(
        extent=tuple(extent),
        processes=tuple(names),
        process=np.array([names.index(p) for p in processes or ["p"] * len(slabs)], dtype=np.int64),
        time_ns=np.arange(len(slabs), dtype=np.int64),
        n_reads=np.array(n_reads or [1] * len(slabs), dtype=np.int64),
        selection=Slabs(
            start=part("start"), stride=part("stride"), count=part("count"), block=part("block")
        ),
    )


def box(start, shape):
    ones = (1,) * len(start)
    return Hyperslab(start=tuple(start), stride=ones, count=tuple(shape), block=ones)


@st.composite
def trails(draw):
    """A trail in which reads come again, as often as not."""
    extent = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))
    tile_shape = tuple(draw(st.integers(1, n)) for n in extent)
    some = []
    for _ in range(draw(st.integers(1, 5))):
        axes = zip(*(draw(axis_slabs(n)) for n in extent), strict=True)
        start, stride, count, block = axes
        slab = Hyperslab(start=start, stride=stride, count=count, block=block)
        if slab.n_elements:
            some.append(slab)
    slabs = draw(st.lists(st.sampled_from(some), max_size=25)) if some else []
    n_reads = [draw(st.sampled_from([1, 1, 1, 1, 5000])) for _ in slabs]
    processes = [draw(st.sampled_from(["p", "q"])) for _ in slabs]
    return trail_of_slabs(slabs, extent, processes, n_reads), tile_shape


def touched_by(trail, tile_shape):
    """The tiles of each read; of a walk none."""
    return [
        []
        if trail.n_reads[i] > 1
        or (tiles := tiles_touched(trail.slab(i), tile_shape, trail.extent)) is None
        else tiles.tolist()
        for i in range(len(trail))
    ]


def arrivals_slowly(trail, touched):
    """The tiles of each read that the read of its process right before did not touch."""
    before = {}
    found = []
    for row, tiles in enumerate(touched):
        process = int(trail.process[row])
        found.append([tile for tile in tiles if tile not in before.get(process, ())])
        before[process] = tiles
    return found


def groups_slowly(trail, tile_shape, min_reads, best, of_last):
    """Groups and loose tiles, from the definition, by walking."""
    touched = touched_by(trail, tile_shape)
    n_reads = Counter(tile for tiles in arrivals_slowly(trail, touched) for tile in tiles)
    last_of = {}  # process: its last tile's visit
    visits = defaultdict(list)  # tile: the followers of each visit
    for row, tiles in enumerate(touched):
        process = int(trail.process[row])
        for i, tile in enumerate(tiles):
            followers = set(tiles[max(0, i - 1) : i] + tiles[i + 1 : i + 2])
            visits[tile].append(followers)
            if i == 0 and process in last_of:
                last_of[process].add(tile)
        if tiles:
            last_of[process] = visits[tiles[-1]][-1]
    nodes = [tile for tile, n in n_reads.items() if n >= min_reads]
    reach = {tile: {tile} for tile in nodes}
    for tile in nodes:
        counts = Counter(f for followers in visits[tile][-of_last:] for f in followers)
        reach[tile] |= {f for f, n in counts.items() if n >= best and f in reach}
    for _ in nodes:
        for tile in nodes:
            reach[tile] = reach[tile].union(*(reach[other] for other in reach[tile]))
    groups = {frozenset(other for other in reach[tile] if tile in reach[other]) for tile in nodes}
    return {g for g in groups if len(g) > 1}, sorted(t for g in groups if len(g) == 1 for t in g)


@given(trails())
@settings(deadline=None)
def test_visits_are_the_tiles_of_the_reads(case):
    trail, tile_shape = case
    visits = tile_visits(trail, tile_shape)
    expected = [
        (row, tile) for row, tiles in enumerate(touched_by(trail, tile_shape)) for tile in tiles
    ]
    assert list(zip(visits.row.tolist(), visits.tile.tolist(), strict=True)) == expected
    tiles = [tile for _, tile in expected]
    assert visits.earlier().tolist() == [tiles[:i].count(t) for i, t in enumerate(tiles)]
    assert dict(zip(*map(np.ndarray.tolist, tile_reads(trail, tile_shape)), strict=True)) == (
        Counter(t for at in arrivals_slowly(trail, touched_by(trail, tile_shape)) for t in at)
    )
    assert visits.later().tolist() == [tiles[i + 1 :].count(t) for i, t in enumerate(tiles)]


@given(trails(), st.integers(1, 4), st.integers(1, 3), st.integers(1, 5))
@settings(deadline=None, max_examples=repeated(40, 300))
def test_groups_are_those_of_the_definition(case, min_reads, best, of_last):
    trail, tile_shape = case
    found = recurring_segments(
        trail, tile_shape, element_size_bytes=1, min_reads=min_reads, best=best, of_last=of_last
    )
    groups, loose = groups_slowly(trail, tile_shape, min_reads, best, of_last)
    if not groups and not loose:
        assert found is None
        return
    segments = found.segments()
    # Nothing here is near the sizes at which segments are cut.
    assert {frozenset(s) for s in segments[: len(groups)]} == groups
    assert [tile for s in segments[len(groups) :] for tile in s] == loose
    first = {}
    for tiles in touched_by(trail, tile_shape):
        for tile in tiles:
            first.setdefault(tile, len(first))
    grouped = [first[tile] for s in segments[: len(groups)] for tile in s]
    assert [s[0] for s in segments[: len(groups)]] == sorted(
        (min(group, key=first.__getitem__) for group in groups), key=first.__getitem__
    )
    for s in segments[: len(groups)]:
        assert list(s) == sorted(s, key=first.__getitem__)
    assert len(grouped) == sum(map(len, groups))
    found.check_within(trail.extent)


@given(trails(), st.integers(0, 3), st.data())
@settings(deadline=None)
def test_a_forecast_knows_only_what_was_read_before(case, min_reads, data):
    trail, tile_shape = case
    touched = touched_by(trail, tile_shape)
    read = sorted({tile for tiles in touched for tile in tiles})
    if not read:
        return
    some = data.draw(st.sets(st.sampled_from(read), min_size=1))
    held = SegmentList(tile_shape=tile_shape, tiles=tuple(some), lengths=(len(some),))
    after = served_from(trail, held, min_reads=min_reads)
    arrivals = arrivals_slowly(trail, touched)
    for known in range(len(trail) + 1):
        before = Counter(tile for tiles in arrivals[:known] for tile in tiles)
        gathered = {tile for tile in some if before[tile] >= min_reads}
        for row, tiles in enumerate(touched):
            assert (after[row] < known) == (bool(tiles) and gathered.issuperset(tiles))
    if min_reads == 0:
        for row in range(len(trail)):
            assert (after[row] == -1) == (
                trail.n_reads[row] == 1 and held.holds(trail.slab(row), trail.extent)
            )


def zooming(rng, places, *, n_reads, extent, smallest, largest):
    """Views that zoom in and out of a few places, never twice quite the same."""
    slabs, size = [], largest
    center = places[0]
    for _ in range(n_reads):
        size = size / 2 if rng.random() < 0.7 else size * 2
        if not smallest <= size <= largest:
            center, size = rng.choice(places), largest
        shape = [max(1, int(size * rng.uniform(0.8, 1.2))) for _ in extent]
        start = [
            min(max(0, c - s // 2 + rng.randrange(-8, 9)), n - s)
            for c, s, n in zip(center, shape, extent, strict=True)
        ]
        slabs.append(box(start, shape))
    return trail_of_slabs(slabs, extent)


def test_zooming_into_a_few_places_is_forecast_to_be_served_and_elsewhere_not():
    extent, tile_shape = (4096, 4096), (64, 64)
    rng = random.Random(7)  # noqa: S311
    places = [(700, 600), (900, 3300), (2000, 2000), (3400, 700), (3200, 3500)]
    trail = zooming(rng, places, n_reads=600, extent=extent, smallest=32, largest=512)
    found = recurring_segments(trail, tile_shape, element_size_bytes=4)
    known = len(trail) * 3 // 4
    # Zhang 2009 reports hit rates of 81.57 to 86.21 % for its simulated zooming.
    assert (served_from(trail, found, min_reads=2)[known:] < known).mean() > 0.85
    share = len(found.tiles) * math.prod(tile_shape) / math.prod(extent)
    assert share < 0.15
    # Each segment of a group lies around one place.
    for segment in (s for s in found.segments() if len(s) > 16):
        near = {
            min(range(len(places)), key=lambda p: math.dist(places[p], found.box(t, extent).start))
            for t in segment
        }
        assert len(near) == 1
    everywhere = trail_of_slabs(
        [box([rng.randrange(n - 40) for n in extent], (40, 40)) for _ in range(300)], extent
    )
    held = recurring_segments(everywhere, tile_shape, element_size_bytes=4)
    assert (served_from(everywhere, held, min_reads=2)[225:] < 225).mean() < 0.05


def test_what_is_read_once_recurs_nowhere():
    extent = (64, 64)
    slabs = [box((8 * i, 8 * j), (8, 8)) for i in range(8) for j in range(8)]
    assert recurring_segments(trail_of_slabs(slabs, extent), (8, 8), element_size_bytes=1) is None
    walk = trail_of_slabs(slabs[:1] * 5, extent, n_reads=[2000] * 5)
    assert recurring_segments(walk, (8, 8), element_size_bytes=1) is None


def test_places_read_in_turn_are_one_group_in_that_order_and_others_come_last():
    extent = (100, 100)
    turn = [(70, 10), (10, 80), (40, 40)]
    slabs = [box(at, (10, 10)) for at in turn * 3]
    slabs += [box(at, (10, 10)) for at in ((0, 0), (90, 90), (50, 50), (90, 90), (20, 20), (0, 0))]
    found = recurring_segments(trail_of_slabs(slabs, extent), (10, 10), element_size_bytes=1)
    assert found.segments() == [(71, 18, 44), (0, 99)]


def test_chance_is_no_successor():
    """Twice of eight times is a relation, once is none."""
    assert (BEST, OF_LAST) == (2, 8)
    a, b, c, d = (box((10 * i,), (10,)) for i in range(4))
    trail = trail_of_slabs([a, b, c, a, d, c, a], (40,))
    found = recurring_segments(trail, (10,), element_size_bytes=1)
    assert found.segments() == [(0, 2)]
    trail = trail_of_slabs([a, b, a, b, a], (40,))
    assert recurring_segments(trail, (10,), element_size_bytes=1).segments() == [(0, 1)]


def test_what_is_read_line_by_line_is_not_read_again():
    """Each plane in pieces, one behind the other; then all of it once more."""
    pieces = [box((plane, row), (1, 1)) for plane in range(4) for row in range(10)]
    assert (
        recurring_segments(trail_of_slabs(pieces, (4, 10)), (1, 10), element_size_bytes=1) is None
    )
    again = recurring_segments(trail_of_slabs(pieces * 2, (4, 10)), (1, 10), element_size_bytes=1)
    assert again.tiles == (0, 1, 2, 3)
    by_two = trail_of_slabs([p for p in pieces for _ in (0, 1)], (4, 10), ["p", "q"] * 40)
    assert recurring_segments(by_two, (1, 10), element_size_bytes=1).n_elements == 40


def test_processes_do_not_follow_each_other():
    a, b = box((0,), (10,)), box((10,), (10,))
    trail = trail_of_slabs([a, b] * 4, (20,), ["p", "q"] * 4)
    found = recurring_segments(
        trail, (10,), element_size_bytes=LOOSE_SEGMENT_BYTES, min_reads=1, best=1
    )
    assert found.segments() == [(0,), (1,)]


def test_segments_are_cut_where_they_grow_large():
    n = 40
    tile_bytes = MAX_SEGMENT_BYTES // 16
    slabs = [box((i,), (1,)) for i in range(n)] * 3
    grouped = recurring_segments(trail_of_slabs(slabs, (n,)), (1,), element_size_bytes=tile_bytes)
    assert grouped.lengths == (16, 16, 8)
    assert grouped.tiles == tuple(range(n))
    rng = random.Random(3)  # noqa: S311
    slabs = [box((i,), (1,)) for i in rng.choices(range(n), k=400)]
    loose = recurring_segments(
        trail_of_slabs(slabs, (n,)), (1,), element_size_bytes=LOOSE_SEGMENT_BYTES // 4, best=5
    )
    assert loose.lengths == (4,) * (n // 4)
    assert loose.tiles == tuple(range(n))


def test_reads_of_very_many_tiles_and_too_many_tiles():
    extent = (200, 200)
    whole = [Hyperslab.all(extent)] * 4
    assert math.prod(extent) > MAX_TILES_OF_READ
    assert recurring_segments(trail_of_slabs(whole, extent), (1, 1), element_size_bytes=1) is None
    rows = [box((i, 0), (1, 200)) for i in range(200)] * 2
    with pytest.raises(LayoutError, match=r"40000 tiles of 1,1 elements .* name larger tiles"):
        recurring_segments(trail_of_slabs(rows, extent), (1, 1), element_size_bytes=1)
    with pytest.raises(LayoutError, match="tiles of 1,201 elements in a dataset of 200x200"):
        recurring_segments(trail_of_slabs(rows, extent), (1, 201), element_size_bytes=1)
    with pytest.raises(SdsValueError, match="min_reads must be at least 1, not 0"):
        recurring_segments(trail_of_slabs(rows, extent), (1, 1), element_size_bytes=1, min_reads=0)
