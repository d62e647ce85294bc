"""Advice on sorted replicas: laws of the choice, and one table that is sampled."""

import dataclasses
import itertools
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sds.columns import Column, Table
from sds.conditions import left_over, parse_condition
from sds.engine import builtin_parameters
from sds.errors import DatasetNotFoundError, SdsValueError, UnsupportedError
from sds.home import Home
from sds.recommender.portfolio import PortfolioSettings
from sds.recommender.sort_keys import KeyShare, StatedQuery, advise_sorting
from sds.sort_advice import advise_queries

NAMES = ("energy", "x", "y", "id")
TABLE = Table(
    file=Path("/data/run.h5"),
    path="/p",
    n_rows=10**8,
    columns=tuple(
        Column(name=name, dtype=np.dtype("f8"), size_bytes=8, obstacle="") for name in NAMES
    ),
    is_compound=False,
    data_offset_bytes=None,
    chunk_shape=None,
    filters=(),
    stored_bytes=32 * 10**8,
)
GIB = 1 << 30


def asked(key="energy", share=1e-4, *, per_day=100.0, returned=("id",)):
    shares = (KeyShare(key=key, n_left=round(share * 10**6), n_sampled=10**6),)
    return StatedQuery(
        text=f"{key} > 1", compared=(key,), returned=returned, per_day=per_day, shares=shares
    )


def advise(*queries, budget_bytes=100 * GIB, **options):
    return advise_sorting(
        TABLE,
        queries,
        target="/data/run.h5:/p",
        budget_bytes=budget_bytes,
        parameters=builtin_parameters(),
        **options,
    )


def test_few_matches_are_worth_a_sorted_replica_with_its_command():
    found = advise(asked())
    (chosen,) = found.chosen
    assert (chosen.key, chosen.columns) == ("energy", ("energy", "id"))
    assert chosen.command == "sds reorganize /data/run.h5:/p --sort energy --columns energy,id"
    assert chosen.size_bytes == 10**8 * (8 + 8 + 4)
    assert chosen.saving.low <= chosen.saving.seconds <= chosen.saving.high
    assert found.seconds_now - found.seconds_then == pytest.approx(chosen.saving.seconds)
    assert chosen.break_even_days == pytest.approx(chosen.build_s / chosen.saving.seconds)
    assert not found.calibrated


def test_where_most_rows_match_nothing_is_advised():
    found = advise(asked(share=1.0))
    assert found.chosen == ()
    (declined,) = found.declined
    assert "too many rows match" in declined.reason
    assert declined.break_even_days is None


def test_a_replica_that_is_there_already_is_not_advised_again():
    found = advise(asked(), existing=[("energy", ("energy", "id", "x"))])
    assert found.chosen == ()
    without = advise(asked(), existing=[("energy", ("energy", "x"))])  # lacks a column
    assert len(without.chosen) == 1


def test_a_query_asked_too_seldom_does_not_pay_its_building():
    found = advise(asked(per_day=1e-3), settings=PortfolioSettings(pay_within_days=1))
    assert found.chosen == ()
    assert "takes longer to build" in found.declined[0].reason


def test_the_budget_leaves_out_what_saves_less():
    both = advise(asked("energy", per_day=100), asked("x", per_day=10))
    assert [candidate.key for candidate in both.chosen] == ["energy", "x"]
    one = advise(asked("energy"), asked("x", per_day=10), budget_bytes=both.used_bytes - 1)
    assert [candidate.key for candidate in one.chosen] == ["energy"]
    assert one.declined[0].reason == "others within the budget save more"
    none = advise(asked("energy"), budget_bytes=1000)
    assert "more than the budget of 1000" in none.declined[0].reason


@given(
    queries=st.lists(
        st.builds(
            asked,
            st.sampled_from(NAMES),
            st.sampled_from([0.0, 1e-6, 1e-3, 0.1, 1.0]),
            per_day=st.sampled_from([0.01, 1.0, 100.0]),
            returned=st.sampled_from([("id",), ("x", "y"), NAMES]),
        ),
        min_size=1,
        max_size=5,
    ),
    budget_bytes=st.sampled_from([0, 2 * 10**9, 4 * 10**9, 10**11]),
)
def test_no_set_within_the_budget_saves_more(queries, budget_bytes):
    found = advise(*queries, budget_bytes=budget_bytes)
    assert found.used_bytes == sum(c.size_bytes for c in found.chosen) <= budget_bytes
    assert found.seconds_then <= found.seconds_now

    def net(candidates):
        existing = [(c.key, c.columns) for c in candidates]
        built_s = sum(c.build_s for c in candidates)
        return advise(*queries, existing=existing).seconds_now + built_s / 365

    every = [*found.chosen, *found.declined]
    for n in range(len(every) + 1):
        for others in itertools.combinations(every, n):
            if sum(c.size_bytes for c in others) <= budget_bytes:
                assert net(found.chosen) <= net(others) + 1e-9


@given(n_left=st.integers(0, 1000), more=st.integers(0, 1000))
def test_bounds_of_a_share_hold_it_and_shrink_with_the_sample(n_left, more):
    n_sampled = n_left + more
    share, low, high = KeyShare(key="k", n_left=n_left, n_sampled=n_sampled).interval()
    assert 0 <= low <= high <= 1
    if n_sampled:
        assert low - 1e-12 <= share <= high + 1e-12
        _, less, most = KeyShare(key="k", n_left=16 * n_left, n_sampled=16 * n_sampled).interval()
        assert most - less <= high - low
    else:
        assert (low, high) == (0, 1)


@pytest.mark.parametrize(
    ("options", "said"),
    [({"queries": []}, "no query is stated"), ({"per_day": 0}, "0 times a day")],
)
def test_nothing_asked_is_refused(options, said):
    queries = options.get("queries", [asked(per_day=options.get("per_day", 1))])
    with pytest.raises(SdsValueError, match=said):
        advise(*queries)


def test_what_other_columns_say_is_left_open():
    values = {"a": np.array([1, 2, 3])}
    assert left_over(parse_condition("a > 1 and b > 5"), values).tolist() == [False, True, True]
    assert left_over(parse_condition("a > 1 or b > 5"), values).all()


def test_a_table_is_sampled_all_over(tmp_path):
    path = tmp_path / "run.h5"
    n_rows = 8_000_000
    with h5py.File(path, "w") as file:
        # Large at the end only: the first rows alone would say that nothing matches.
        file["p/energy"] = np.arange(n_rows, dtype="f8")
        file["p/id"] = np.zeros(n_rows, "i1")
    home = Home(tmp_path / "home")
    question = f"energy >= {n_rows * 0.999}"
    found = advise_queries(str(path), "/p", [(question, 1000.0)], home=home, columns=["id"])
    (chosen,) = found.chosen
    assert chosen.serves == (question,)
    everything = advise_queries(str(path), "/p", [("energy >= 0", 1000.0)], home=home)
    assert everything.chosen == ()
    with pytest.raises(DatasetNotFoundError):
        advise_queries(str(path), "/p", [("mass > 0", 1.0)], home=home)
    with pytest.raises(SdsValueError, match="no query is stated"):
        advise_queries(str(path), "/p", [], home=home)


def test_columns_that_no_replica_can_hold_are_refused(tmp_path):
    path = tmp_path / "run.h5"
    with h5py.File(path, "w") as file:
        file["p/e"] = np.arange(3.0)
        file["p/note"] = np.array(["a", "b", "c"], dtype=h5py.string_dtype())
    with pytest.raises(UnsupportedError, match="no sorted replica can hold it"):
        advise_queries(str(path), "p", [("e > 1", 1.0)], home=Home(tmp_path), columns=["note"])
    # All columns are what the queries would return, and so read from the original for ever.
    with pytest.raises(UnsupportedError, match=r"read note, .* name the columns"):
        advise_queries(str(path), "p", [("e > 1", 1.0)], home=Home(tmp_path))


def test_a_table_behind_an_external_link_is_sampled_where_it_is(tmp_path):
    linking, linked = tmp_path / "a.h5", tmp_path / "b.h5"
    n_rows = 8_000_000
    with h5py.File(linked, "w") as file:
        file["d/energy"] = np.arange(n_rows, dtype="f8")
    with h5py.File(linking, "w") as file:
        file["l"] = h5py.ExternalLink("b.h5", "/d")
        file["d/energy"] = np.full(n_rows, n_rows, "f8")  # of which everything matches
    question = f"energy >= {n_rows * 0.999}"
    found = advise_queries(str(linking), "/l", [(question, 1000.0)], home=Home(tmp_path / "home"))
    assert found.target == f"{linked}:/d"
    (chosen,) = found.chosen
    assert f"{linked}:/d" in chosen.command


def test_an_empty_table_is_not_sorted(tmp_path):
    path = tmp_path / "run.h5"
    with h5py.File(path, "w") as file:
        file["p/e"] = np.zeros(0)
    assert advise_queries(str(path), "p", [("e > 1", 1.0)], home=Home(tmp_path)).chosen == ()


def test_advice_is_a_value():
    assert dataclasses.replace(advise(asked())) == advise(asked())
