"""The choice under a budget, against every set tried."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sds.errors import SdsValueError
from sds.recommender.portfolio.budget_search import Budgets, DatasetCosts, PartBudget, select


def value(datasets, chosen):
    total = 0.0
    for d, dataset in enumerate(datasets):
        columns = [c for at, c in chosen if at == d]
        least = np.minimum(dataset.now, dataset.seconds[:, columns].min(axis=1, initial=np.inf))
        total += float((dataset.now - least) @ dataset.weights) - sum(
            dataset.costs[c] for c in columns
        )
    return total


def used(datasets, chosen):
    return sum(datasets[d].sizes[c] for d, c in chosen)


def keeps(datasets, chosen, budgets):
    total = budgets.total_bytes
    if total is not None and used(datasets, chosen) > total:
        return False
    return all(
        used(datasets, [(d, c) for d, c in chosen if d in part.members]) <= part.budget_bytes
        for part in budgets.parts
    )


def best_of_all(datasets, budgets):
    keys = [(d, c) for d, dataset in enumerate(datasets) for c in range(len(dataset.sizes))]
    sets = (s for n in range(len(keys) + 1) for s in combinations(keys, n))
    return max(value(datasets, s) for s in sets if keeps(datasets, s, budgets))


@st.composite
def problems(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    datasets = []
    for _ in range(draw(st.integers(1, 3))):
        n, m = int(rng.integers(1, 6)), int(rng.integers(1, 4))
        now = rng.uniform(1, 100, n)
        seconds = np.where(rng.random((n, m)) < 0.6, rng.uniform(0.1, 100, (n, m)), np.inf)
        datasets.append(
            DatasetCosts(
                now=now,
                seconds=seconds,
                weights=rng.choice([0.0, 1.0, 3.0], n),
                sizes=tuple(int(s) for s in rng.integers(0, 10, m)),
                costs=tuple(rng.choice([0.0, 1.0, 50.0], m)),
            )
        )
    parts = st.builds(
        PartBudget,
        name=st.just("/data"),
        members=st.frozensets(st.integers(0, len(datasets) - 1)),
        budget_bytes=st.integers(0, 20),
    )
    total = draw(st.one_of(st.none(), st.integers(0, 40)))
    return datasets, Budgets(total_bytes=total, parts=tuple(draw(st.lists(parts, max_size=2))))


@given(problems())
def test_the_set_chosen_is_the_best_of_all_that_fit(problem):
    datasets, budgets = problem
    selected = select(datasets, budgets=budgets)
    assert keeps(datasets, selected.chosen, budgets)
    assert budgets.hold(selected.chosen, [dataset.sizes for dataset in datasets])
    assert selected.saving == pytest.approx(value(datasets, selected.chosen), abs=1e-9)
    assert selected.exact
    assert selected.saving == pytest.approx(best_of_all(datasets, budgets), rel=1e-5, abs=1e-9)


@given(problems())
def test_cut_short_it_is_greedy_and_its_bound_holds(problem):
    datasets, budgets = problem
    selected = select(datasets, budgets=budgets, max_steps=0)
    assert keeps(datasets, selected.chosen, budgets)
    best = best_of_all(datasets, budgets)
    assert selected.bound >= best - 1e-6 * abs(best) - 1e-9
    if not budgets.parts and not any(any(dataset.costs) for dataset in datasets):
        assert selected.saving >= best * 0.5 * (1 - np.exp(-1)) - 1e-9
    if selected.exact:
        assert selected.saving == pytest.approx(best, rel=1e-5, abs=1e-9)


def test_one_large_layout_does_not_keep_out_two_small_ones_that_save_more():
    dataset = DatasetCosts(
        now=np.array([10.0, 10.0]),
        seconds=np.array([[3.0, 1.0, np.inf], [3.0, np.inf, 1.0]]),
        weights=np.ones(2),
        sizes=(10, 5, 5),
        costs=(0.0, 0.0, 0.0),
    )
    assert select([dataset], budgets=Budgets(total_bytes=10)).chosen == ((0, 1), (0, 2))
    assert select([dataset], budgets=Budgets(total_bytes=9)).chosen in {((0, 1),), ((0, 2),)}
    assert select([dataset], budgets=Budgets(total_bytes=4)).chosen == ()


def test_excluded_candidates_stay_out():
    dataset = DatasetCosts(
        now=np.array([10.0]),
        seconds=np.array([[1.0, 2.0]]),
        weights=np.ones(1),
        sizes=(1, 1),
        costs=(0.0, 0.0),
    )
    excluded = frozenset({(0, 0)})
    selected = select([dataset], budgets=Budgets(total_bytes=None), excluded=excluded)
    assert selected.chosen == ((0, 1),)


def test_a_thousand_datasets_share_a_budget():
    rng = np.random.default_rng(3)
    datasets = [
        DatasetCosts(
            now=rng.uniform(1, 100, 4),
            seconds=rng.uniform(0.1, 100, (4, 6)),
            weights=rng.uniform(0, 9, 4),
            sizes=tuple(int(s) for s in rng.integers(1, 1000, 6)),
            costs=(0.1,) * 6,
        )
        for _ in range(1000)
    ]
    selected = select(datasets, budgets=Budgets(total_bytes=100_000), max_steps=10_000)
    assert used(datasets, selected.chosen) <= 100_000
    assert selected.saving == pytest.approx(value(datasets, selected.chosen))
    assert selected.saving <= selected.bound <= selected.saving * 1.3


def test_a_negative_budget_is_refused_and_nothing_fits_in_none():
    with pytest.raises(SdsValueError, match="-1"):
        select([], budgets=Budgets(total_bytes=-1))
    assert select([], budgets=Budgets(total_bytes=None)).chosen == ()
