"""Schedules: every item once, OSTs and aggregators never shared, no longer than they must be."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sds.errors import SdsValueError
from sds.organizer.collective.schedule import (
    IDLE,
    edge_coloring,
    greedy,
    in_turn,
    least_iterations,
)

TABLE_I = np.array([[3, 2, 2], [2, 3, 2], [2, 2, 3]])


@st.composite
def counts_of_items(draw):
    """Draw counts up to 64 x 64: full, sparse, of equal sums, or with one that has most."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    shape = draw(st.integers(1, 64)), draw(st.integers(1, 64))
    counts = random.integers(0, draw(st.integers(1, 6)), shape)
    kind = draw(st.sampled_from(["full", "sparse", "equal", "peak"]))
    if kind == "sparse":
        counts *= random.random(shape) < 0.1
    elif kind == "equal":
        counts = sum(np.eye(shape[0], dtype=int)[random.permutation(shape[0])] for _ in range(9))
    elif kind == "peak":
        counts[random.integers(shape[0]), random.integers(shape[1])] += 50
    return counts


def check(schedule, counts):
    n_aggregators, n_osts = counts.shape
    assert schedule.shape[1] == n_aggregators
    for row in schedule:
        busy = row[row != IDLE]
        assert len(busy)
        assert len(set(busy.tolist())) == len(busy)
    found = np.zeros_like(counts)
    for aggregator in range(n_aggregators):
        mine = schedule[:, aggregator]
        found[aggregator] = np.bincount(mine[mine != IDLE], minlength=n_osts)
    assert np.array_equal(found, counts)


@given(counts_of_items())
def test_edge_coloring_meets_the_bound(counts):
    schedule = edge_coloring(counts)
    check(schedule, counts)
    assert len(schedule) == max(counts.sum(axis=0).max(), counts.sum(axis=1).max())


@given(counts_of_items())
def test_greedy_is_a_schedule(counts):
    schedule = greedy(counts)
    check(schedule, counts)
    assert len(schedule) >= least_iterations(counts)


@pytest.mark.parametrize("strategy", [edge_coloring, greedy])
def test_table_i_of_wang_2014(strategy):
    schedule = strategy(TABLE_I)
    check(schedule, TABLE_I)
    assert len(schedule) == 7
    assert (schedule != IDLE).all()


def test_greedy_begins_with_a_rotation():
    schedule = greedy(TABLE_I)
    for first in range(0, 6, 2):  # every group has two items
        assert np.array_equal(schedule[first], schedule[first + 1])


def test_one_thousand_aggregators():
    counts = np.random.default_rng(2).integers(0, 3, (1000, 100))
    schedule = edge_coloring(counts)
    check(schedule, counts)
    assert len(schedule) == least_iterations(counts)


def test_in_turn():
    assert in_turn(np.array([[3], [0], [1]])).tolist() == [[0, -1, 0], [0, -1, -1], [0, -1, -1]]
    with pytest.raises(SdsValueError, match="2 OSTs"):
        in_turn(np.ones((2, 2), np.int64))


@pytest.mark.parametrize("strategy", [edge_coloring, greedy])
@pytest.mark.parametrize("shape", [(0, 0), (3, 0), (0, 2), (3, 2)])
def test_nothing_to_do(strategy, shape):
    assert strategy(np.zeros(shape, np.int64)).shape == (0, shape[0])


@pytest.mark.parametrize("counts", [[1, 2], [[-1]], [[1.0]]])
def test_what_counts_no_items(counts):
    with pytest.raises(SdsValueError, match=r"shape \(aggregators, OSTs\)"):
        edge_coloring(np.array(counts))
