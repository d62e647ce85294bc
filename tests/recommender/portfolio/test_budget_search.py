"""The choice under a budget, against every set tried."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sds.errors import SdsValueError
from sds.recommender.portfolio.budget_search import Block, select


def value(blocks, chosen):
    total = 0.0
    for b, block in enumerate(blocks):
        columns = [c for at, c in chosen if at == b]
        least = np.minimum(block.now, block.seconds[:, columns].min(axis=1, initial=np.inf))
        total += float((block.now - least) @ block.weights) - sum(block.costs[c] for c in columns)
    return total


def used(blocks, chosen):
    return sum(blocks[b].sizes[c] for b, c in chosen)


def best_of_all(blocks, budget):
    keys = [(b, c) for b, block in enumerate(blocks) for c in range(len(block.sizes))]
    sets = (s for n in range(len(keys) + 1) for s in combinations(keys, n))
    return max(value(blocks, s) for s in sets if budget is None or used(blocks, s) <= budget)


@st.composite
def problems(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    blocks = []
    for _ in range(draw(st.integers(1, 3))):
        n, m = int(rng.integers(1, 6)), int(rng.integers(1, 4))
        now = rng.uniform(1, 100, n)
        seconds = np.where(rng.random((n, m)) < 0.6, rng.uniform(0.1, 100, (n, m)), np.inf)
        blocks.append(
            Block(
                now=now,
                seconds=seconds,
                weights=rng.choice([0.0, 1.0, 3.0], n),
                sizes=tuple(int(s) for s in rng.integers(0, 10, m)),
                costs=tuple(rng.choice([0.0, 1.0, 50.0], m)),
            )
        )
    return blocks, draw(st.one_of(st.none(), st.integers(0, 40)))


@given(problems())
def test_the_set_chosen_is_the_best_of_all_that_fit(problem):
    blocks, budget = problem
    selected = select(blocks, budget_bytes=budget)
    assert budget is None or used(blocks, selected.chosen) <= budget
    assert selected.saving == pytest.approx(value(blocks, selected.chosen), abs=1e-9)
    assert selected.exact
    assert selected.saving == pytest.approx(best_of_all(blocks, budget), rel=1e-5, abs=1e-9)


@given(problems())
def test_cut_short_it_is_greedy_and_its_bound_holds(problem):
    blocks, budget = problem
    selected = select(blocks, budget_bytes=budget, max_steps=0)
    best = best_of_all(blocks, budget)
    assert selected.bound >= best - 1e-6 * abs(best) - 1e-9
    if not any(any(block.costs) for block in blocks):
        assert selected.saving >= best * 0.5 * (1 - np.exp(-1)) - 1e-9
    if selected.exact:
        assert selected.saving == pytest.approx(best, rel=1e-5, abs=1e-9)


def test_one_large_layout_does_not_keep_out_two_small_ones_that_save_more():
    block = Block(
        now=np.array([10.0, 10.0]),
        seconds=np.array([[3.0, 1.0, np.inf], [3.0, np.inf, 1.0]]),
        weights=np.ones(2),
        sizes=(10, 5, 5),
        costs=(0.0, 0.0, 0.0),
    )
    assert select([block], budget_bytes=10).chosen == ((0, 1), (0, 2))
    assert select([block], budget_bytes=9).chosen in {((0, 1),), ((0, 2),)}
    assert select([block], budget_bytes=4).chosen == ()


def test_excluded_candidates_stay_out():
    block = Block(
        now=np.array([10.0]),
        seconds=np.array([[1.0, 2.0]]),
        weights=np.ones(1),
        sizes=(1, 1),
        costs=(0.0, 0.0),
    )
    excluded = frozenset({(0, 0)})
    assert select([block], budget_bytes=None, excluded=excluded).chosen == ((0, 1),)


def test_a_thousand_datasets_share_a_budget():
    rng = np.random.default_rng(3)
    blocks = [
        Block(
            now=rng.uniform(1, 100, 4),
            seconds=rng.uniform(0.1, 100, (4, 6)),
            weights=rng.uniform(0, 9, 4),
            sizes=tuple(int(s) for s in rng.integers(1, 1000, 6)),
            costs=(0.1,) * 6,
        )
        for _ in range(1000)
    ]
    selected = select(blocks, budget_bytes=100_000, max_steps=10_000)
    assert used(blocks, selected.chosen) <= 100_000
    assert selected.saving == pytest.approx(value(blocks, selected.chosen))
    assert selected.saving <= selected.bound <= selected.saving * 1.3


def test_a_negative_budget_is_refused_and_nothing_fits_in_none():
    with pytest.raises(SdsValueError, match="-1"):
        select([], budget_bytes=-1)
    assert select([], budget_bytes=None).chosen == ()
