"""What was measured stands beside what is predicted, and no saving is larger than it."""

import math
from dataclasses import replace

import pytest

from sds.recommender.portfolio.portfolio_selection import choose_portfolio
from tests.recommender.portfolio.test_portfolio_selection import CUBE, reads_of, traced


def planes(measured_s, target="f.h5:/d"):
    return traced(reads_of(CUBE, ("[:, :, 5]", 50), target=target), elapsed_s=measured_s)


def test_times_of_a_day_are_measured_where_all_reads_were_traced():
    portfolio = choose_portfolio([planes(3.0), planes(2.0, "g.h5:/d")])
    assert portfolio.measured_s_now == pytest.approx(5.0)
    assert [one.measured_s_now for one in portfolio.datasets] == [3.0, 2.0]


def test_stated_reads_were_never_measured():
    stated = reads_of(CUBE, ("[:, :, 5]", 50))
    assert choose_portfolio([stated]).measured_s_now is None
    assert choose_portfolio([stated, planes(2.0, "g.h5:/d")]).measured_s_now is None
    assert choose_portfolio([]).measured_s_now is None
    assert choose_portfolio([stated]).saves_s == choose_portfolio([stated]).saving.seconds


def test_reads_from_memory_are_predicted_apart():
    portfolio = choose_portfolio([planes(1.0)])
    assert portfolio.layouts
    assert 0 < portfolio.warm_s_now < portfolio.seconds_now
    assert 0 < portfolio.warm_s_then < portfolio.warm_s_now
    assert portfolio.warm_s_then <= portfolio.seconds_then


def times(measured_s):
    (one,) = choose_portfolio([planes(measured_s)]).datasets
    return one


def test_no_more_is_saved_than_was_spent():
    cold = times(1.0)
    for measured_s in (0.0, 1e-6, cold.warm_s_now, 1.0, cold.seconds_now, 10 * cold.seconds_now):
        assert 0 <= times(measured_s).saves_s <= measured_s
    # As cold or as warm as predicted, it saves what is predicted of that.
    assert times(cold.seconds_now).saves_s == pytest.approx(cold.saving.seconds)
    assert times(cold.warm_s_now).saves_s == pytest.approx(cold.warm_s_now - cold.warm_s_then)
    # Predictions that are off by a factor are so now and then.
    assert times(3 * cold.seconds_now).saves_s == pytest.approx(3 * cold.saving.seconds)
    assert times(cold.warm_s_now / 3).saves_s == pytest.approx(
        (cold.warm_s_now - cold.warm_s_then) / 3
    )
    # What is slower was colder.
    steps = [times(cold.warm_s_now * 2**step).saves_s for step in range(8)]
    assert steps == sorted(steps)


def test_a_portfolio_saves_what_its_datasets_do():
    portfolio = choose_portfolio([planes(3.0), planes(2.0, "g.h5:/d")])
    assert portfolio.saves_s == math.fsum(one.saves_s for one in portfolio.datasets)
    one = replace(portfolio.datasets[0], warm_s_now=None)
    assert one.saves_s == one.saving.seconds
