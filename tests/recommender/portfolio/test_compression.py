"""Reads grouped by predicted cost: the law, and how the work grows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sds.errors import SdsValueError
from sds.recommender.portfolio.compression import group_by_cost
from tests.counted_work import count_calls


@st.composite
def tables(draw):
    n, m = draw(st.integers(1, 30)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    # Around a few centres, so that there are groups at all.
    centres = np.exp(rng.uniform(-9, 9, size=(3, m)))
    seconds = centres[rng.integers(0, 3, n)] * np.exp(
        rng.uniform(0, draw(st.floats(0, 0.3)), (n, m))
    )
    seconds[:, 1:][rng.random((n, m - 1)) < 0.2] = np.inf
    weights = rng.choice([0.0, 1.0, 5.0, 1e4], n)
    return seconds, weights


@given(tables(), st.floats(0.001, 0.5))
def test_every_set_of_layouts_takes_as_long_within_the_tolerance(table, tolerance):
    seconds, weights = table
    groups = group_by_cost(seconds, weights, tolerance=tolerance)
    m = seconds.shape[1]
    for bits in range(1 << (m - 1)):
        columns = [0, *(j + 1 for j in range(m - 1) if bits >> j & 1)]
        of_reads = float(seconds[:, columns].min(axis=1) @ weights)
        of_groups = float(groups.seconds[:, columns].min(axis=1) @ groups.weights)
        assert of_reads <= of_groups * (1 + 1e-12)
        assert of_groups <= of_reads * (1 + tolerance) * (1 + 1e-12)
        if len(columns) == 1:
            assert of_groups == pytest.approx(of_reads, rel=1e-9)


@given(tables(), st.floats(0.001, 0.5))
def test_reads_of_a_group_are_alike_in_every_layout(table, tolerance):
    seconds, weights = table
    groups = group_by_cost(seconds, weights, tolerance=tolerance)
    assert groups.weights.sum() == pytest.approx(weights.sum())
    for g in range(len(groups)):
        members = seconds[groups.group_of == g]
        for column in members.T:
            served = np.isfinite(column)
            assert served.all() or not served.any()
            if served.all():
                assert column.max() <= column.min() * (1 + tolerance) * (1 + 1e-9)


def test_a_hundred_thousand_reads_of_few_costs_are_few_groups_and_no_more_calls_than_of_few():
    rng = np.random.default_rng(5)
    centres = np.exp(rng.uniform(-9, 3, size=(40, 20)))
    seconds = centres[rng.integers(0, 40, 100_000)]

    def calls_of(n):
        return count_calls(group_by_cost, seconds[:n], np.ones(n), tolerance=0.02)

    _, n_few = calls_of(10_000)
    groups, n_calls = calls_of(100_000)
    assert len(groups) <= 40
    assert n_calls < 2 * n_few


def test_the_coarser_the_tolerance_the_fewer_the_groups():
    rng = np.random.default_rng(6)
    seconds = np.exp(rng.uniform(0, 1, size=(2000, 1)))
    sizes = [len(group_by_cost(seconds, np.ones(2000), tolerance=t)) for t in (0.01, 0.1, 0.5)]
    assert sizes[0] > sizes[1] > sizes[2]


@pytest.mark.parametrize(
    ("seconds", "weights", "tolerance"),
    [
        ([[0.0]], [1.0], 0.1),
        ([[-1.0]], [1.0], 0.1),
        ([[float("nan")]], [1.0], 0.1),
        ([[1.0]], [-1.0], 0.1),
        ([[1.0]], [float("nan")], 0.1),
        ([[1.0]], [1.0, 2.0], 0.1),
        ([1.0], [1.0], 0.1),
        ([[1.0]], [1.0], 0.0),
        ([[1.0]], [1.0], float("inf")),
    ],
)
def test_what_is_no_time_or_weight_is_refused(seconds, weights, tolerance):
    with pytest.raises(SdsValueError):
        group_by_cost(np.array(seconds), np.array(weights), tolerance=tolerance)


def test_no_reads_are_no_groups():
    assert len(group_by_cost(np.zeros((0, 3)), np.zeros(0), tolerance=0.1)) == 0
