"""Chen 2014's model in Python, and what costs can be."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sds import _native
from sds.engine import CHEN_2014_READS, CHEN_2014_WRITES, builtin_parameters
from sds.errors import SdsValueError

CLIENTS = (1, 2, 4, 8, 16)
NODES = range(1, 17)


def test_figures_of_the_paper():
    assert CHEN_2014_READS.break_even_bytes() == pytest.approx(0.0405e6)
    assert CHEN_2014_WRITES.break_even_bytes() == pytest.approx(0.0429e6)
    assert CHEN_2014_READS.break_even_bytes(clients=16, nodes=16) == pytest.approx(9.288e6)


@given(st.integers(1, 64), st.integers(1, 64), st.integers(0, 10**9))
def test_time_is_the_sum_of_its_terms(p, n, size):
    costs = CHEN_2014_READS
    expected = p * 0.0003 + size / 120e6 / n + p * 0.0003 + size / 120e6 / n + 75e-6
    assert costs.request_s(size, clients=p, nodes=n) == pytest.approx(expected)
    hole = costs.break_even_bytes(clients=p, nodes=n)
    assert costs.merges(int(hole * 0.999), clients=p, nodes=n)
    assert not costs.merges(int(hole * 1.001) + 1, clients=p, nodes=n)


def test_sweeps_move_the_break_even():
    over_clients = [CHEN_2014_READS.break_even_bytes(clients=p, nodes=16) for p in CLIENTS]
    over_nodes = [CHEN_2014_READS.break_even_bytes(clients=16, nodes=n) for n in NODES]
    assert over_clients == sorted(over_clients)
    assert over_nodes == pytest.approx([over_nodes[0] * n for n in NODES])


def test_ratio_rule_is_two_to_one():
    assert _native.ratio_rule_sieves(201, 100)
    assert not _native.ratio_rule_sieves(200, 100)


def test_parameters_survive_the_core():
    parameters = builtin_parameters()
    assert parameters.native() == _native.io_parameters()
    assert not parameters.is_measured


@pytest.mark.parametrize("value", [-1e-9, float("nan"), float("inf")])
def test_costs_that_cannot_be_are_named(value):
    with pytest.raises(SdsValueError, match="call_s is"):
        replace(builtin_parameters(), call_s=value)
    with pytest.raises(SdsValueError, match="te_s is"):
        replace(CHEN_2014_READS, te_s=value)
    with pytest.raises(SdsValueError, match="a cost is negative or not finite"):
        _native.plan_runs(0, 8, (), (), parameters={"call_s": value})
    with pytest.raises(SdsValueError, match="a cost is negative or not finite"):
        _native.pmd_time_s({"te_s": value}, 1, 1, 0)


def test_unknown_names_are_refused():
    with pytest.raises(SdsValueError, match='no parameter "calls_s"'):
        _native.plan_runs(0, 8, (), (), parameters={"calls_s": 1.0})
    with pytest.raises(SdsValueError, match='no cost "seek"'):
        _native.plan_runs(0, 8, (), (), parameters={"reads": {"seek": 1.0}})
    with pytest.raises(SdsValueError, match="nodes is 0"):
        replace(builtin_parameters(), nodes=0)
