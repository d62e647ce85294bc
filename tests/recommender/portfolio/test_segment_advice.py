"""Replicas of segments in advice: forecast from a trail, under the same budget as all others."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sds.analyzer import find_patterns, recurring_segments, stated_pattern, trail_of
from sds.errors import LayoutError
from sds.geometry import Box, Hyperslab, ReplicaLayout, SegmentList
from sds.recommender.candidates.cost_matrix import read_costs
from sds.recommender.candidates.dataset_reads import DatasetReads, PortfolioSettings
from sds.recommender.candidates.enumeration import candidate_costs
from sds.recommender.candidates.read_classes import classes_in_parts
from sds.recommender.candidates.replica_cost import check_layout, size_bytes
from sds.recommender.candidates.segment_candidates import (
    LEAST_TILE_BYTES,
    MOST_TILE_BYTES,
    ReadsInSegments,
    most_read,
    recurring_in,
    tile_shapes,
)
from sds.recommender.models.read_cost import StoredArray
from sds.recommender.portfolio.portfolio_selection import choose_portfolio
from sds.recommender.portfolio.striping_advice import advise_stripes
from sds.recommender.portfolio.what_if import what_if
from sds.recommender.portfolio.workload import read_candidate
from tests.analyzer.traces import Read, records_of_reads

GRID = (1000, 400, 400)
MIB = 1 << 20


def dataset_of(reads, extent=GRID, *, took_ms=20.0, existing=(), **stored):
    """A dataset with the patterns and the trail of some traced reads."""
    records = records_of_reads([replace(read, took_ms=took_ms) for read in reads], extent)
    return DatasetReads(
        target="f.h5:/d",
        array=StoredArray(extent=extent, element_size_bytes=4, **stored),
        patterns=tuple(find_patterns([records])),
        existing=existing,
        trail=trail_of([records], extent),
    )


def stations(n_places=100, n_reads=600, *, seed=1, at_ms=0):
    """Time series at places all over a grid, each read again and again."""
    rng = random.Random(seed)  # noqa: S311
    places = [(rng.randrange(GRID[1]), rng.randrange(GRID[2])) for _ in range(n_places)]
    return [
        Read((slice(0, GRID[0]), *place), at_ms=at_ms + 30 * k)
        for k, place in enumerate(rng.choices(places, k=n_reads))
    ]


def names(portfolio):
    return [layout.name for layout in portfolio.layouts]


def test_tiles_are_advised_where_the_budget_has_no_room_for_the_whole():
    dataset = dataset_of(stations())
    portfolio = choose_portfolio([dataset], budget_bytes=MIB)
    (layout,) = portfolio.layouts
    held = layout.layout.segments
    assert held.tile_shape == (1000, 1, 1)
    assert layout.name == f"order 0,1,2, {len(held.tiles)} tiles 1000x1x1 in 1 segment"
    assert layout.command.endswith("--order 0,1,2 --tiles 1000,1,1 --min-reads 2")
    assert layout.size_bytes == 4 * held.n_elements < MIB
    assert 0.85 < layout.shares.reads < 1.0
    assert layout.shares.space == pytest.approx(layout.size_bytes / dataset.array.size_bytes)
    assert layout.speedup > 50
    assert "what is read again and again: forecast for 9" in layout.reason
    assert not any("not considered" in note for note in portfolio.notes)
    without = choose_portfolio([replace(dataset, trail=None)], budget_bytes=MIB)
    assert not without.layouts


def test_where_there_is_room_the_whole_stands_and_the_tiles_are_named():
    portfolio = choose_portfolio([dataset_of(stations())])
    assert names(portfolio) == ["order 1,2,0"]
    assert any("tiles 1000x1x1" in note and "smaller" in note for note in portfolio.notes)


def test_what_a_portfolio_predicts_of_segments_is_what_what_if_predicts():
    dataset = dataset_of(stations())
    portfolio = choose_portfolio([dataset], budget_bytes=MIB)
    supposed = what_if(dataset, add=[layout.layout for layout in portfolio.layouts])
    # A portfolio weighs what is forecast in each part of the dataset that it considers.
    assert supposed.seconds_then == pytest.approx(portfolio.seconds_then, rel=0.05)
    assert supposed.seconds_now == pytest.approx(portfolio.seconds_now)
    assert supposed.size_bytes == portfolio.used_bytes
    assert supposed.saving.seconds == pytest.approx(portfolio.saving.seconds, rel=0.01)
    assert supposed.build_s == portfolio.layouts[0].build_s


def test_what_exists_serves_and_is_not_advised_again_and_can_be_supposed_away():
    dataset = dataset_of(stations())
    (layout,) = choose_portfolio([dataset], budget_bytes=MIB).layouts
    built = layout.layout
    there = replace(dataset, existing=(built,))
    again = choose_portfolio([there], budget_bytes=MIB)
    assert not again.layouts
    assert again.seconds_now <= what_if(dataset, add=[layout.layout]).seconds_then
    away = what_if(there, take_away=[built])
    assert away.saving.seconds < 0
    assert away.seconds_then == pytest.approx(what_if(dataset, add=[built]).seconds_now)
    (row,) = away.patterns
    assert set(row.from_now.split(" and ")) == {layout.name, "original"}
    assert row.from_then == "original"
    with pytest.raises(LayoutError, match="exists already"):
        what_if(there, add=[built])


def test_the_share_is_a_forecast_and_not_hindsight():
    """Places read twice, never again: afterwards every tile was read twice, before it none was."""
    rng = random.Random(5)  # noqa: S311
    places = [(rng.randrange(GRID[1]), rng.randrange(GRID[2])) for _ in range(300)]
    reads = [
        Read((slice(0, GRID[0]), *places[k + i % 2]), at_ms=60 * k + 30 * i)
        for k in range(0, 300, 2)
        for i in range(4)
    ]
    dataset = dataset_of(reads)
    held = recurring_segments(dataset.trail, (1000, 1, 1), element_size_bytes=4)
    assert len(held.tiles) == len(set(places))
    supposed = what_if(
        dataset,
        add=[ReplicaLayout.of_tiles(held, GRID)],
    )
    assert supposed.saving.seconds < 0.05 * supposed.seconds_now
    assert not choose_portfolio([dataset], budget_bytes=MIB).layouts


@pytest.mark.parametrize("at_ms", [0, 10**7])
def test_walks_of_the_same_shape_count_against_the_share(at_ms):
    """A station file that is also read through once, line by line: those reads find no tiles."""
    walk = Read((slice(0, GRID[0]), 0, 0), loops=[(400, (0, 1, 0)), (400, (0, 0, 1))], at_ms=at_ms)
    dataset = dataset_of([*stations(at_ms=10**6), walk])
    gained = what_if(
        dataset,
        add=[
            ReplicaLayout.of_tiles(
                recurring_segments(dataset.trail, (1000, 1, 1), element_size_bytes=4), GRID
            )
        ],
    )
    assert 0 < gained.saving.seconds < 0.01 * gained.seconds_now


def test_collective_reads_are_no_trail_and_stay():
    reads = [replace(read, collective=True) for read in stations()]
    dataset = dataset_of(reads)
    assert dataset.trail is None
    assert not choose_portfolio([dataset], budget_bytes=MIB).layouts


def test_without_recurring_places_advice_is_as_without_a_trail():
    rng = random.Random(2)  # noqa: S311
    reads = [
        Read((slice(0, GRID[0]), rng.randrange(400), rng.randrange(400)), at_ms=30 * k)
        for k in range(500)
    ]
    reads += [Read((k, slice(0, 400), slice(0, 400)), at_ms=20000 + 30 * k) for k in range(60)]
    dataset = dataset_of(reads)
    for budget in (None, 300 * MIB, MIB):
        found = choose_portfolio([dataset], budget_bytes=budget)
        assert found == choose_portfolio([replace(dataset, trail=None)], budget_bytes=budget)


def test_stated_reads_are_served_where_their_tiles_are_held():
    held = SegmentList(tile_shape=(1000, 10, 10), tiles=(0, 41), lengths=(2,))
    existing = ReplicaLayout.of_tiles(held, GRID)
    array = StoredArray(extent=GRID, element_size_bytes=4)
    patterns = tuple(
        stated_pattern(text, extent=GRID, element_size_bytes=4, n_reads_per_day=n)
        for text, n in (("[:, 3, 4]", 10), ("[:, 12, 15]", 5), ("[:, 3, 14]", 40))
    )
    dataset = DatasetReads(target="f.h5:/d", array=array, patterns=patterns, existing=(existing,))
    classes = candidate_costs(dataset, PortfolioSettings(), {}).classes
    held_a_day = {c.is_held_by(existing, GRID): pytest.approx(c.per_day) for c in classes}
    assert held_a_day == {True: 15, False: 40}
    away = what_if(dataset, take_away=[existing])
    assert [row.from_now for row in away.patterns].count(existing.describe(GRID)) == 2
    assert away.saving.seconds < 0


def test_segments_and_a_part_share_the_reads_between_them():
    """Reads in a part that exists are not counted for tiles that lie in it as well."""
    reads = stations(40, 500)
    near = [Read((slice(0, GRID[0]), 390 + k % 10, 395), at_ms=15 + 30 * k) for k in range(500)]
    dataset = dataset_of([*reads, *near])
    box = Box(start=(0, 390, 390), extent=(1000, 10, 10))
    corner = ReplicaLayout(order=(1, 2, 0), region=box)
    there = replace(dataset, existing=(corner,))
    (layout,) = choose_portfolio([there], budget_bytes=MIB).layouts
    assert layout.layout.segments is not None
    assert layout.shares.reads == pytest.approx(0.5, abs=0.05)
    both = what_if(there, add=[layout.layout])
    (row,) = both.patterns
    assert corner.describe(GRID) in row.from_now
    assert layout.name in row.from_then


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=60),
    st.lists(st.sets(st.integers(0, 99), min_size=1), max_size=3),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=2),
)
@settings(deadline=None)
def test_no_read_is_lost_between_segments_and_boxes(places, tile_sets, corners):
    extent = (50, 10, 10)
    reads = [Read((slice(0, 50), *place), at_ms=30 * k) for k, place in enumerate(places)]
    dataset = dataset_of(reads, extent)
    lists = [
        SegmentList(tile_shape=(50, 1, 1), tiles=tuple(sorted(tiles)), lengths=(len(tiles),))
        for tiles in tile_sets
    ]
    boxes = [Box(start=(0, i, j), extent=(50, 10 - i, 10 - j)) for i, j in dict.fromkeys(corners)]
    segments = ReadsInSegments(dataset.trail, lists)
    for pattern in dataset.patterns:
        classes = classes_in_parts([pattern], boxes, segments, until_ns=0)
        assert math.fsum(k.per_day for k in classes) == pytest.approx(pattern.n_calls)
        assert math.fsum(k.observed for k in classes) == pytest.approx(pattern.n_calls)
        assert math.fsum(k.logical_per_day for k in classes) == pytest.approx(pattern.n_reads)
        for kind in classes:
            for box in boxes:
                if box in kind.inside:
                    assert box.covers(Box.around(kind.slab))
            for held in lists:
                if held in kind.inside:
                    assert held.holds(kind.slab, extent)


def test_tiles_suit_reads_and_stay_within_bounds():
    line = stated_pattern("[:, 3, 4]", extent=GRID, element_size_bytes=4).call
    shapes = tile_shapes([line], GRID, 4)
    assert shapes == [(1000, 1, 1), (1000, 4, 4)]
    box = stated_pattern("[0:40, 100:200, 0:70]", extent=GRID, element_size_bytes=4).call
    assert tile_shapes([box], GRID, 4) == [(32, 64, 64), (16, 32, 32)]
    plane = stated_pattern("[7]", extent=GRID, element_size_bytes=4).call
    assert (1, 32, 400) in tile_shapes([plane], GRID, 4), "an aligned extent of the file"
    for shape in tile_shapes([line, box], GRID, 4):
        n_bytes = 4 * math.prod(shape)
        assert LEAST_TILE_BYTES * 2 / 3 <= n_bytes <= MOST_TILE_BYTES
    large = stated_pattern("[...]", extent=(10**6, 10**4), element_size_bytes=8).call
    assert tile_shapes([large], (10**6, 10**4), 8) == []
    small = stated_pattern("[0]", extent=(5,), element_size_bytes=8).call
    assert tile_shapes([small], (5,), 8) == [(5,)]


def test_shapes_of_segments_that_cannot_be_are_refused():
    held = SegmentList(tile_shape=(10, 10), tiles=(3,), lengths=(1,))
    whole = Box.whole((15, 15))
    with pytest.raises(LayoutError, match="stored contiguously"):
        ReplicaLayout(order=(0, 1), chunk_shape=(5, 5), region=whole, segments=held)
    with pytest.raises(LayoutError, match="2 axes in an order of 3"):
        ReplicaLayout(order=(0, 1, 2), region=Box.whole((15, 15, 15)), segments=held)
    shape = ReplicaLayout.of_tiles(held, (15, 15), order=(1, 0))
    assert shape.describe((15, 15)) == "order 1,0, 1 tile 10x10 in 1 segment"
    assert not shape.holds_all((15, 15))
    array = StoredArray(extent=(10, 10), element_size_bytes=4)
    with pytest.raises(LayoutError, match="tile 3: the dataset has 1"):
        check_layout(shape, array)
    array = StoredArray(extent=(15, 15), element_size_bytes=4)
    check_layout(shape, array)
    assert size_bytes(shape, array) == 400, "tiles that are cut off take as much as others"
    dataset = DatasetReads(target="f.h5:/d", array=array, patterns=())
    more = replace(shape, segments=replace(held, tiles=(0, 1, 2), lengths=(3,)))
    few_s, more_s = (read_candidate(dataset, x).build_s for x in (shape, more))
    assert more_s > few_s


def test_gathering_takes_no_longer_than_going_through_the_source():
    # Series across the grain: the organizer reads forwards what lies scattered.
    array = StoredArray(extent=(1000, 90, 100), element_size_bytes=4, data_offset_bytes=2048)
    dataset = DatasetReads(target="f.h5:/d", array=array, patterns=())

    def build_s(n_tiles, tile_shape=(1000, 1, 1)):
        held = SegmentList(tile_shape=tile_shape, tiles=tuple(range(n_tiles)), lengths=(n_tiles,))
        return read_candidate(dataset, ReplicaLayout.of_tiles(held, array.extent)).build_s

    (once,) = read_costs(array, dataset.models, [Hyperslab.all(array.extent)], [1]).by_hdf5
    assert build_s(60) < 0.4 + once
    assert build_s(8400) > 0.2 + 8.4e6 * 1e-6 + 2 * once, "more than is gathered at a time"
    assert build_s(1, (1, 90, 100)) < 0.25 + once / 100, "a tile is not all"
    assert build_s(1, (900, 90, 100)) == pytest.approx(0.2 + 32.4 / 250 + 0.9 * once, rel=0.1)


def test_stripes_count_reads_that_segments_serve():
    dataset = dataset_of(stations())
    (layout,) = choose_portfolio([dataset], budget_bytes=MIB).layouts
    there = replace(dataset, existing=(layout.layout,))
    found = advise_stripes([there], directory="/replicas", n_osts=1, allowed=True)
    assert found.command is None


def test_the_largest_trail_is_advised_for_in_time():
    """Four thousand reads of twenty shapes: what is compared stays bounded."""
    rng = random.Random(3)  # noqa: S311
    reads = []
    for k in range(4000):
        size = 1 << rng.randrange(3, 9)
        at = [rng.choice((0, 500, 900, 3000)) + rng.randrange(60) for _ in range(2)]
        reads.append(Read(tuple(slice(a, a + size) for a in at), at_ms=30 * k))
    dataset = dataset_of(reads, (4096, 4096))
    assert len(dataset.trail) == 4000
    found = candidate_costs(dataset, PortfolioSettings(), {})
    tiled = [layout.segments is not None for layout in found.layouts]
    assert 0 < sum(tiled) <= 12
    assert len(found.classes) < 2000
    assert np.isfinite(found.seconds[:, tiled]).any()


def test_programs_that_move_on_are_not_served_by_what_was_gathered_before():
    """Each day other places, each read many times: what recurred yesterday does not today."""
    rng = random.Random(8)  # noqa: S311
    reads = []
    for day in range(8):
        reads += stations(20, 100, seed=rng.randrange(10**6), at_ms=10**5 * day)
    moved_on = choose_portfolio([dataset_of(reads)], budget_bytes=MIB)
    stayed = choose_portfolio([dataset_of(stations(160, 800))], budget_bytes=MIB)
    assert [layout.shares.reads > 0.85 for layout in stayed.layouts] == [True]
    assert all(layout.shares.reads < 0.2 for layout in moved_on.layouts)


def test_a_small_budget_holds_the_places_that_are_read_most():
    """Some places are read all the time, many now and then: what fits, the most read first."""
    rng = random.Random(6)  # noqa: S311
    often = [(rng.randrange(GRID[1]), rng.randrange(GRID[2])) for _ in range(20)]
    seldom = [(rng.randrange(GRID[1]), rng.randrange(GRID[2])) for _ in range(400)]
    reads = [
        Read((slice(0, GRID[0]), *rng.choice(often if k % 2 else seldom)), at_ms=30 * k)
        for k in range(4000)
    ]
    dataset = dataset_of(reads)
    sizes, shares = [], []
    for budget in (2 * MIB, 128 << 10):
        (layout,) = choose_portfolio([dataset], budget_bytes=budget).layouts
        sizes.append(layout.size_bytes)
        shares.append(layout.shares.reads)
    assert sizes[0] > MIB > 128 << 10 >= sizes[1] >= 20 * 4000
    assert shares[0] > 0.9
    assert 0.45 < shares[1] < 0.6
    assert layout.min_reads > 2
    assert f"--min-reads {layout.min_reads}" in layout.command
    assert set(layout.layout.segments.tiles) >= {400 * i + j for i, j in often}


def test_of_more_tiles_than_a_replica_holds_those_read_most_are_considered():
    extent = (400, 400, 4)
    everywhere = [
        Read((slice(0, 1), slice(0, 1), slice(0, 4)), loops=[(400, (1, 0, 0))], at_ms=100 * k)
        for k in range(2)
    ]
    trail = dataset_of(everywhere, extent).trail
    found = recurring_in(trail, (1, 1, 4), most_elements=1e9)
    assert (len(found.segments.tiles), found.min_reads) == (400, 2)
    assert recurring_in(trail, (1, 1, 4), most_elements=100) is None
    again = [replace(read, loops=[(5, (1, 0, 0))], at_ms=10**4 + read.at_ms) for read in everywhere]
    trail = dataset_of([*everywhere, *again], extent).trail
    found = recurring_in(trail, (1, 1, 4), most_elements=100)
    assert (len(found.segments.tiles), found.min_reads) == (5, 4)
    halves = list(most_read(trail, recurring_in(trail, (1, 1, 4), most_elements=1e9)))
    assert [(len(each.segments.tiles), each.min_reads) for each in halves] == [(5, 4)]
    rows = [Read((k % 200, slice(0, 200)), at_ms=30 * k) for k in range(400)]
    rows += [Read((k % 10, slice(0, 200)), at_ms=10**6 + 30 * k) for k in range(20)]
    trail = dataset_of(rows, (200, 200)).trail
    found = recurring_in(trail, (1, 1), most_elements=1e9)
    assert (len(found.segments.tiles), found.min_reads) == (2000, 4), "40000 are too many"
