"""Where reads lie: every read counts once, in a box that holds it, and few boxes tell enough."""

import itertools

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from sds.analyzer import find_patterns, group_boxes
from sds.analyzer.regions import MAX_PLACES, joined_places, places_of
from sds.geometry import Box
from tests.analyzer.traces import POINTS, Read, records_of_reads

EXTENT = (12, 10)


@st.composite
def boxes(draw, *, n_most=120):
    n = draw(st.integers(1, n_most))
    rows = []
    for _ in range(n):
        start = [draw(st.integers(0, length - 1)) for length in EXTENT]
        extent = [
            draw(st.integers(1, length - first))
            for first, length in zip(start, EXTENT, strict=True)
        ]
        rows.append((Box(start=tuple(start), extent=tuple(extent)), draw(st.integers(1, 9))))
    return rows


def arrays_of(rows):
    low = np.array([box.start for box, _ in rows])
    return low, low + [box.extent for box, _ in rows], np.array([n for _, n in rows])


@given(boxes())
def test_every_read_lies_in_a_place_and_counts_once(rows):
    places = places_of(*arrays_of(rows), EXTENT)
    assert len(places) <= MAX_PLACES
    assert sum(place.n_calls for place in places) == sum(n for _, n in rows)
    for box, _ in rows:
        assert any(place.box.covers(box) for place in places)
    # Of no region are there said to be more reads than lie in it.
    for region in (Box(start=(0, 0), extent=(6, 10)), Box(start=(3, 2), extent=(5, 5))):
        inside = sum(place.n_calls for place in places if region.covers(place.box))
        assert inside <= sum(n for box, n in rows if region.covers(box))


@given(boxes(n_most=20), boxes(n_most=20))
def test_places_of_batches_join(first, second):
    both = [*places_of(*arrays_of(first), EXTENT), *places_of(*arrays_of(second), EXTENT)]
    joined = joined_places(both, EXTENT)
    assert sum(place.n_calls for place in joined) == sum(n for _, n in first + second)
    for box, _ in first + second:
        assert any(place.box.covers(box) for place in joined)


@given(boxes(n_most=40), st.integers(1, 9))
def test_groups_are_a_tree_of_tight_boxes(rows, n_leaves):
    given_boxes, weights = [box for box, _ in rows], [n for _, n in rows]
    root = group_boxes(given_boxes, weights, EXTENT, n_leaves=n_leaves)
    waiting, leaves = [root], []
    while waiting:
        group = waiting.pop()
        assert group.weight == sum(weights[i] for i in group.rows)
        assert group.box == Box(
            start=tuple(min(given_boxes[i].start[a] for i in group.rows) for a in (0, 1)),
            extent=tuple(
                max(given_boxes[i].start[a] + given_boxes[i].extent[a] for i in group.rows)
                - min(given_boxes[i].start[a] for i in group.rows)
                for a in (0, 1)
            ),
        )
        assert np.isclose(group.space, group.box.n_elements / 120)
        if group.parts:
            cost = sum(part.weight * part.space for part in group.parts)
            assert cost < group.weight * group.space
            assert sorted(np.concatenate([p.rows for p in group.parts])) == sorted(group.rows)
            waiting += group.parts
        else:
            leaves.append(group)
    assert len(leaves) <= n_leaves
    assert sorted(np.concatenate([leaf.rows for leaf in leaves])) == list(range(len(rows)))


@st.composite
def loops(draw):
    """One record: a box, and up to two loops that keep it within the extent."""
    size = [draw(st.integers(1, 3)) for _ in EXTENT]
    repeats = draw(
        st.lists(
            st.tuples(st.integers(1, 3), st.tuples(st.integers(-2, 2), st.integers(-2, 2))),
            max_size=2,
        )
    )
    start = []
    for a, length in enumerate(EXTENT):
        ways = [step[a] * (turns - 1) for turns, step in repeats]
        low, high = sum(min(0, way) for way in ways), sum(max(0, way) for way in ways)
        assume(size[a] + high - low <= length)
        start.append(draw(st.integers(-low, length - size[a] - high)))
    return tuple(slice(s, s + n) for s, n in zip(start, size, strict=True)), repeats


def calls_of(index, repeats):
    """Return the box of every single read of a record."""
    for turns in itertools.product(*(range(n) for n, _ in repeats)):
        start = [
            part.start + sum(t * step[a] for t, (_, step) in zip(turns, repeats, strict=True))
            for a, part in enumerate(index)
        ]
        yield Box(start=tuple(start), extent=tuple(part.stop - part.start for part in index))


@given(st.lists(loops(), min_size=1, max_size=12))
def test_places_of_patterns_hold_every_turn_of_every_loop(records):
    reads = [Read(index, repeats, at_ms=9000 * i) for i, (index, repeats) in enumerate(records)]
    patterns = find_patterns([records_of_reads(reads, EXTENT)])
    assert sum(p.n_calls for p in patterns) == sum(
        place.n_calls for p in patterns for place in p.places
    )
    for index, repeats in records:
        for box in calls_of(index, repeats):
            assert any(place.box.covers(box) for p in patterns for place in p.places)


def test_a_hot_part_is_told_from_reads_everywhere():
    random = np.random.default_rng(5)
    at = [*random.integers(0, 1000, 300).tolist(), *random.integers(400, 420, 2000).tolist()]
    reads = [Read((slice(None), k), at_ms=9000 * i) for i, k in enumerate(at)]
    (pattern,) = find_patterns([records_of_reads(reads, (8, 1000))])
    assert len(pattern.places) <= MAX_PLACES
    hot = Box(start=(0, 398), extent=(8, 24))
    assert sum(p.n_calls for p in pattern.places if hot.covers(p.box)) >= 2000


def test_two_reads_far_apart_that_a_trace_makes_a_loop_of_are_two_places():
    reads = [Read((slice(None), slice(2, 3)), [(2, (0, 900))])]
    (pattern,) = find_patterns([records_of_reads(reads, (8, 1000))])
    assert {(p.box.start, p.n_calls) for p in pattern.places} == {((0, 2), 1), ((0, 902), 1)}


def test_scalars_and_points_have_places_too():
    (scalar,) = find_patterns([records_of_reads([Read(()), Read((), at_ms=5)], ())])
    assert [(p.box, p.n_calls) for p in scalar.places] == [(Box(start=(), extent=()), 2)]
    points = Read((slice(2, 5), slice(1, 9)), kind=POINTS, n_elements=3)
    (irregular,) = find_patterns([records_of_reads([points], EXTENT)])
    assert irregular.irregular
    assert [p.box for p in irregular.places] == [Box(start=(2, 1), extent=(3, 8))]
