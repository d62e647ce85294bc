"""Advice on sorted replicas: laws of the choice, and one table that is sampled."""

import dataclasses
import itertools
import re
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from sds.analyzer import stated_pattern
from sds.engine import builtin_parameters
from sds.errors import DatasetNotFoundError, LayoutError, SdsValueError, UnsupportedError
from sds.geometry.replica_layout import Filter
from sds.hdf5.columns import Column, Table
from sds.home import Home
from sds.queries.conditions import left_over, parse_condition
from sds.queries.query_cost import _span_share, predict_query
from sds.recommender.candidates.dataset_reads import DatasetReads, PortfolioSettings
from sds.recommender.models.read_cost import StoredArray
from sds.recommender.portfolio.gates import NoiseGates
from sds.recommender.portfolio.portfolio_selection import choose_portfolio
from sds.recommender.portfolio.sort_keys import (
    KeyShare,
    StatedQuery,
    TableQueries,
    query_workload,
)
from sds.recommender.portfolio.values import Portfolio, Recommendation, ReplicaCoverage
from sds.recommender.portfolio.what_if import what_if_sorted
from sds.server.operations.sort_advice import QueryRequest, sample_queries
from tests.sizes import repeated

NAMES = ("energy", "x", "y", "id")
TABLE = Table(
    file=Path("/data/run.h5"),
    path="/p",
    n_rows=10**8,
    columns=tuple(
        Column(name=name, dtype=np.dtype("f8"), size_bytes=8, obstacle="") for name in NAMES
    ),
    row_size_bytes=32,
    is_compound=False,
    data_offset_bytes=None,
    chunk_shape=None,
    filters=(),
    stored_bytes=32 * 10**8,
)
GIB = 1 << 30


PAIR = (64, 256, 1024)


def query(key="energy", share=1e-4, *, per_day=100.0, returned=("id",)):
    shares = (KeyShare(key=key, n_left=round(share * 10**6), n_sampled=10**6),)
    return StatedQuery(
        text=f"{key} > 1", compared=(key,), returned=returned, per_day=per_day, shares=shares
    )


def queries_of(*queries, table=TABLE, target="/data/run.h5:/p", measured=True, **options):
    parameters = dataclasses.replace(builtin_parameters(), is_measured=measured)
    return TableQueries(
        target=target, table=table, stated=queries, parameters=parameters, **options
    )


def choose(*queries, budget_bytes=None, gates=None, settings=None, **options):
    return choose_portfolio(
        [],
        tables=[queries_of(*queries, **options)],
        budget_bytes=budget_bytes,
        gates=gates,
        settings=settings,
    )


def reads(n_reads, target="/data/cube.h5:/d"):
    array = StoredArray(extent=PAIR, element_size_bytes=4)
    pattern = stated_pattern(
        "[:, :, 5]", extent=PAIR, element_size_bytes=4, n_reads_per_day=n_reads
    )
    return DatasetReads(target=target, array=array, patterns=(pattern,))


def sorted_by(key, columns):
    """Return a replica of the table."""
    return queries_of(query()).layout(key, columns)


def keys(portfolio):
    return [layout.layout.sort.key for layout in portfolio.layouts]


def test_few_matches_are_worth_a_sorted_replica_with_its_command():
    found = choose(query())
    (chosen,) = found.layouts
    assert chosen.layout == sorted_by("energy", ("energy", "id"))
    assert chosen.command == "sds reorganize /data/run.h5:/p --sort energy --columns energy,id"
    assert chosen.size_bytes == found.used_bytes == 10**8 * (8 + 8 + 4)
    assert chosen.saving.low < chosen.saving.seconds < chosen.saving.high
    assert found.seconds_now - found.seconds_then == pytest.approx(chosen.saving.seconds)
    assert chosen.break_even_days == pytest.approx(chosen.build_s / chosen.saving.seconds)
    assert chosen.serves == ("energy > 1",)
    assert chosen.shares == ReplicaCoverage(space=0.5, reads=1.0, seconds=1.0)
    assert (found.n_patterns, found.exact, found.calibrated) == (1, True, True)


def test_a_few_rows_sampled_and_costs_not_measured_make_the_interval_wide():
    (sure,) = choose(query()).layouts
    uncertain = dataclasses.replace(
        query(), shares=(KeyShare(key="energy", n_left=1, n_sampled=10**4),)
    )
    (sampled,) = choose(uncertain).layouts
    assert sampled.saving.seconds == pytest.approx(sure.saving.seconds, rel=1e-2)
    assert sampled.confidence < sure.confidence
    (builtin,) = choose(query(), measured=False).layouts
    assert builtin.saving.low < sure.saving.low < sure.saving.high < builtin.saving.high
    assert builtin.confidence < sure.confidence
    assert any("uncalibrated" in note for note in choose(query(), measured=False).notes)


def test_where_most_rows_match_nothing_is_advised():
    found = choose(query(share=1.0))
    assert found.layouts == found.declined == ()
    assert any("too many rows match" in note for note in found.notes)


EITHER = StatedQuery(
    text="energy > 1 or x > 1",
    compared=("energy", "x"),
    returned=("id",),
    per_day=100.0,
    shares=tuple(KeyShare(key=key, n_left=10**6, n_sampled=10**6) for key in ("energy", "x")),
)
BOTH = dataclasses.replace(EITHER, text="energy > 1 and x > 1")
SMALL = dataclasses.replace(TABLE, n_rows=10_000)


@pytest.mark.parametrize(
    ("asks", "table", "said"),
    [
        ([query(share=1.0)], TABLE, "too many rows match to be found faster than by a scan"),
        ([BOTH], TABLE, "too many rows match to be found faster than by a scan"),
        ([query(share=0.0)], SMALL, "a scan takes no longer than opening a sorted replica"),
        ([EITHER], SMALL, "a scan takes no longer than opening a sorted replica"),
        ([EITHER], TABLE, "no column rules out rows by itself, as where 'or' joins"),
        ([dataclasses.replace(EITHER, shares=())], TABLE, "no column that the conditions compare"),
        (
            [query(share=1.0), EITHER, *[BOTH] * 3],
            TABLE,
            (
                "too many rows match to be found faster than by a scan ('energy > 1', 'energy > 1 "
                "and x > 1', 'energy > 1 and x > 1' and 1 more); no column rules out rows by itself"
            ),
        ),
    ],
)
def test_why_nothing_is_advised_is_said_of_each_query(asks, table, said):
    found = choose(*asks, table=table)
    assert found.layouts == found.declined == ()
    (note,) = [note for note in found.notes if note.startswith("/data/run.h5:/p: ")]
    assert said in note


def test_a_replica_that_is_there_already_is_not_advised_again():
    there = sorted_by("energy", ("energy", "x", "id"))
    found = choose(query(), existing=(there,))
    assert found.layouts == ()
    assert found.seconds_now < choose(query()).seconds_now
    assert any("answer these queries already" in note for note in found.notes)
    lacking = sorted_by("energy", ("energy", "x"))
    assert keys(choose(query(), existing=(lacking,))) == ["energy"]


def test_columns_in_another_order_are_the_same_replica():
    table = queries_of(query())
    assert table.layout("x", ("id", "energy")) == table.layout("x", ("energy", "id", "x"))
    first, second = query(returned=("x", "id")), query(returned=("id", "x"), share=1e-5)
    found = choose(first, second)
    (chosen,) = found.layouts
    assert chosen.layout.sort.columns == ("energy", "x", "id")
    assert set(chosen.serves) == {"energy > 1"}
    assert found.declined == ()


def test_queries_that_share_a_key_share_a_replica_where_there_is_room():
    one, other = query(returned=("x",), per_day=100), query(returned=("y",), per_day=10)
    both = choose(one, other)
    assert [layout.layout.sort.columns for layout in both.layouts] == [("energy", "x", "y")]
    less = choose(one, other, budget_bytes=both.used_bytes - 1)
    assert [layout.layout.sort.columns for layout in less.layouts] == [("energy", "x")]
    assert less.seconds_then > both.seconds_then


def test_a_query_asked_too_seldom_does_not_pay_its_building():
    found = choose(query(per_day=3), settings=PortfolioSettings(pay_within_days=1))
    assert found.layouts == ()
    assert "building takes" in found.declined[0].reason


def test_noise_gates_hold_for_queries():
    assert "all queries take" in choose(query(per_day=1e-3)).declined[0].reason
    few = choose(query(share=5e-3), measured=False)
    assert few.layouts == ()
    assert "cannot tell from no gain" in few.declined[0].reason
    gates = NoiseGates(min_speedup=1e6)
    assert "gates ask for" in choose(query(), gates=gates).declined[0].reason


def test_a_confidence_just_below_the_gate_reads_so():
    confidence = choose(query()).layouts[0].confidence
    gates = NoiseGates(min_confidence=confidence + 1e-4 * (1 - confidence))
    (declined, *_) = choose(query(), gates=gates).declined
    found, needed = re.findall(r"(?:confidence|needed) ([\d.]+)%", declined.reason)
    assert float(found) < float(needed)


def test_the_budget_leaves_out_what_saves_less():
    both = choose(query("energy", per_day=100), query("x", per_day=10))
    assert keys(both) == ["energy", "x"]
    one = choose(query("energy"), query("x", per_day=10), budget_bytes=both.used_bytes - 1)
    assert keys(one) == ["energy"]
    assert "of the budget are left" in one.declined[0].reason
    for budget_bytes in (0, 1000):
        none = choose(query("energy"), query("x"), budget_bytes=budget_bytes)
        assert none.layouts == ()
        assert all("more than the whole budget" in d.reason for d in none.declined)
        assert any("has no room for any layout" in note for note in none.notes)


def test_sorted_tables_and_layouts_of_arrays_compete_for_one_budget():
    seldom, often = reads(5), reads(500_000)
    table = queries_of(query(per_day=100))

    def chosen(dataset, budget_bytes):
        found = choose_portfolio([dataset], tables=[table], budget_bytes=budget_bytes)
        assert found.used_bytes <= budget_bytes
        return {layout.target for layout in found.layouts}

    size_bytes = 10**8 * 20
    room = size_bytes + seldom.array.size_bytes
    assert chosen(seldom, room) == {seldom.target, table.target}
    assert chosen(seldom, room - 1) == {table.target}
    assert chosen(often, room - 1) == {often.target}
    # Room for the array's alone, whatever it saves; and for neither.
    assert chosen(seldom, size_bytes - 1) == {seldom.target}
    assert chosen(often, often.array.size_bytes - 1) == set()


def test_tables_of_several_files_share_the_budget():
    small = dataclasses.replace(TABLE, n_rows=10**7)
    much = queries_of(query(per_day=1000), table=small, target="/b.h5:/p")
    little = queries_of(query(per_day=10), table=small, target="/a.h5:/p")
    (one,) = choose_portfolio([], tables=[little, much], budget_bytes=3 * 10**8).layouts
    assert one.target == much.target
    assert len(choose_portfolio([], tables=[little, much]).layouts) == 2
    with pytest.raises(SdsValueError, match="same table twice"):
        choose_portfolio([], tables=[little, little])


def test_without_stated_queries_the_portfolio_says_how_to_state_them():
    assert any("--query" in note for note in choose_portfolio([reads(5)]).notes)
    assert not any("--query" in note for note in choose(query()).notes)


@given(
    queries=st.lists(
        st.builds(
            query,
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
@settings(max_examples=repeated(20, 50))
def test_no_set_within_the_budget_saves_more(queries, budget_bytes):
    open_gates = NoiseGates(
        min_calls=0, min_total_s=0, min_saving_s=0, min_speedup=1, min_confidence=0
    )
    tolerance = PortfolioSettings(tolerance=1e-12)
    found = choose(*queries, budget_bytes=budget_bytes, gates=open_gates, settings=tolerance)
    assert found.used_bytes == sum(c.size_bytes for c in found.layouts) <= budget_bytes
    assert found.seconds_then <= found.seconds_now
    every = query_workload(queries_of(*queries), tolerance)
    costs = {c.layout: (c.size_bytes, c.build_s) for c in every.candidates}

    def net(shapes):
        built_s = sum(costs[shape][1] for shape in shapes)
        return choose(*queries, existing=tuple(shapes)).seconds_now + built_s / 365

    best = net([c.layout for c in found.layouts])
    for n in range(min(3, len(costs)) + 1):
        for others in itertools.combinations(costs, n):
            if sum(costs[shape][0] for shape in others) <= budget_bytes:
                assert best <= net(others) * (1 + 1e-6) + 1e-9


def test_what_if_agrees_with_the_portfolio_in_both_directions():
    queries = query("energy"), query("x", per_day=10)
    found = choose(*queries)
    shapes = [layout.layout for layout in found.layouts]
    added = what_if_sorted(queries_of(*queries), add=shapes)
    assert added.seconds_then == pytest.approx(found.seconds_then)
    assert added.saving.seconds == pytest.approx(found.saving.seconds)
    assert added.size_bytes == found.used_bytes
    assert {row.from_then for row in added.patterns} == {layout.name for layout in found.layouts}
    built = queries_of(*queries, existing=tuple(shapes))
    away = what_if_sorted(built, take_away=shapes)
    assert away.saving.seconds == pytest.approx(-added.saving.seconds)
    assert (away.size_bytes, away.break_even_days) == (-found.used_bytes, None)
    assert what_if_sorted(built, take_away=[*shapes, *shapes]) == away
    assert what_if_sorted(queries_of(*queries), add=[*shapes, *shapes]) == added
    alike = queries_of(*queries, existing=(*shapes, *shapes))
    half = what_if_sorted(alike, take_away=shapes)
    assert (half.saving.seconds, half.size_bytes) == (0, away.size_bytes)
    whole = what_if_sorted(alike, take_away=[*shapes, *shapes])
    assert whole.saving == away.saving
    assert whole.size_bytes == 2 * away.size_bytes
    # What one saves beside the other is what is lost without it.
    alone = what_if_sorted(built, take_away=shapes[:1])
    assert -alone.saving.seconds == pytest.approx(found.layouts[0].saving.seconds)
    for options, said in (
        ({}, "no change given"),
        ({"add": shapes}, "exists already"),
        ({"take_away": [sorted_by("y", ("y",))]}, "no replica of sorted by y"),
    ):
        with pytest.raises(LayoutError, match=said):
            what_if_sorted(built, **options)


def test_columns_that_no_replica_can_hold_bring_no_candidate():
    columns = [
        dataclasses.replace(column, obstacle="is a reference" if column.name == "id" else "")
        for column in TABLE.columns
    ]
    table = dataclasses.replace(TABLE, columns=tuple(columns))
    found = choose(query(), table=table)
    assert found.layouts == ()
    assert any("column 'id' is a reference: no sorted replica" in note for note in found.notes)
    assert keys(choose(query(returned=("x",)), table=table)) == ["energy"]


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


def test_nothing_asked_is_refused():
    with pytest.raises(SdsValueError, match=r"no query of /data/run\.h5:/p is stated"):
        queries_of()
    for per_day in (0, -1, float("nan"), float("inf")):
        with pytest.raises(SdsValueError, match="times a day"):
            query(per_day=per_day)


def test_a_scan_of_compressed_columns_takes_their_decoding():
    gzip = (Filter(code=1, name="deflate", options=(4,)),)
    of_x = [dataclasses.replace(c, filters=gzip if c.name == "x" else ()) for c in TABLE.columns]
    table = dataclasses.replace(TABLE, columns=tuple(of_x))

    def costs(compared, returned, table=table, **options):
        return predict_query(
            table,
            compared,
            returned,
            n_matching=0,
            n_ranges=1,
            parameters=builtin_parameters(),
            **options,
        )

    plain = costs(("x",), ("id",), table=TABLE)
    default = costs(("x",), ("id",))
    measured = costs(("x",), ("id",), decode_s_per_byte={"x": 4e-9})
    n_bytes = TABLE.n_rows * 8
    for state in range(2):
        assert default.scan_s[state] - plain.scan_s[state] == pytest.approx(0.3e-9 * n_bytes)
        assert measured.scan_s[state] - plain.scan_s[state] == pytest.approx(4e-9 * n_bytes)
    assert default.sorted_s == measured.sorted_s == plain.sorted_s
    # Columns that are not compared are decoded where rows match, and here none does.
    assert costs(("energy",), ("x",)).scan_s == costs(("energy",), ("x",), table=TABLE).scan_s
    compound = dataclasses.replace(table, is_compound=True)
    whole = dataclasses.replace(TABLE, is_compound=True)
    rates = {"energy": 1e-9, "id": 1e-9}
    more = costs(("energy",), ("id",), table=compound, decode_s_per_byte=rates).scan_s[0]
    less = costs(("energy",), ("id",), table=whole).scan_s[0]
    assert more - less == pytest.approx(1e-9 * TABLE.n_rows * 32)


@given(n_matching=st.integers(0, 10**8))
def test_scattered_matches_take_no_less_than_matches_in_one_place(n_matching):
    costs = predict_query(
        TABLE,
        ("energy",),
        ("id",),
        n_matching=n_matching,
        n_ranges=1,
        parameters=builtin_parameters(),
    )
    every = predict_query(
        TABLE, ("energy",), ("id",), n_matching=10**8, n_ranges=1, parameters=builtin_parameters()
    )
    assert costs.scan_s[0] <= costs.scattered_scan_s <= every.scan_s[0] * (1 + 1e-9)


@pytest.mark.parametrize("n_matching", [0.01, 0.5, 3.0, 40.0])
def test_the_span_of_matches_is_that_of_matches_drawn_at_random(n_matching):
    rng = np.random.default_rng(7)
    spans = []
    for n in rng.poisson(n_matching, 100_000):
        places = rng.random(n)
        spans.append(np.ptp(places) if n else 0.0)
    error = np.std(spans) / len(spans) ** 0.5
    assert _span_share(n_matching) == pytest.approx(np.mean(spans), abs=5 * error + 1e-6)
    assert _span_share(1e-3) == pytest.approx(_span_share(0.999e-3), rel=1e-2)


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
    question = f"energy >= {n_rows - 10}"

    def advised(condition, **options):
        found = sample_queries(
            path, "/p", [QueryRequest(condition=condition, per_day=1000, **options)], home=home
        )
        return choose_portfolio([], tables=[found]).layouts

    (chosen,) = advised(question, columns=("id",))
    assert chosen.serves == (question,)
    assert advised("energy >= 0") == ()
    with pytest.raises(DatasetNotFoundError):
        advised("mass > 0")
    with pytest.raises(SdsValueError, match="no query of"):
        sample_queries(path, "/p", [], home=home)


def test_each_query_returns_its_own_columns(tmp_path):
    path = tmp_path / "run.h5"
    with h5py.File(path, "w") as file:
        for name in ("e", "x", "y"):
            file[f"p/{name}"] = np.arange(100.0)
    queries = [QueryRequest(condition="e > 98", columns=(name,)) for name in ("x", "y")]
    found = sample_queries(path, "p", queries, home=Home(tmp_path / "home"))
    assert [query.returned for query in found.stated] == [("x",), ("y",)]
    assert found.target == f"{path}:/p"


def test_what_decoding_takes_is_measured_by_column(tmp_path):
    path = tmp_path / "run.h5"
    noise = np.random.default_rng(1).random(200_000)
    with h5py.File(path, "w") as file:
        file["p/e"] = noise
        file["p"].create_dataset("x", data=noise, compression="gzip")
    query = QueryRequest(condition="e > 0.99")
    found = sample_queries(path, "p", [query], home=Home(tmp_path / "home"))
    assert found.decode_s_per_byte.keys() == {"x"}
    assert found.decode_s_per_byte["x"] > 0
    assert [bool(column.filters) for column in found.table.columns] == [False, True]


def test_columns_that_no_replica_can_hold_are_refused(tmp_path):
    path = tmp_path / "run.h5"
    with h5py.File(path, "w") as file:
        file["p/e"] = np.arange(3.0)
        file["p/note"] = np.array(["a", "b", "c"], dtype=h5py.string_dtype())
    home = Home(tmp_path)
    with pytest.raises(UnsupportedError, match="no sorted replica can hold it"):
        sample_queries(path, "p", [QueryRequest(condition="e > 1", columns=("note",))], home=home)
    # All columns are what the queries would return, and so read from the original for ever.
    with pytest.raises(UnsupportedError, match=r"read note, .* name the columns"):
        sample_queries(path, "p", [QueryRequest(condition="e > 1")], home=home)


def test_a_table_behind_an_external_link_is_sampled_where_it_is(tmp_path):
    linking, linked = tmp_path / "a.h5", tmp_path / "b.h5"
    n_rows = 8_000_000
    with h5py.File(linked, "w") as file:
        file["d/energy"] = np.arange(n_rows, dtype="f8")
    with h5py.File(linking, "w") as file:
        file["l"] = h5py.ExternalLink("b.h5", "/d")
        file["d/energy"] = np.full(n_rows, n_rows, "f8")  # of which everything matches
    asked_of_link = QueryRequest(condition=f"energy >= {n_rows - 10}", per_day=1000)
    found = sample_queries(linking, "/l", [asked_of_link], home=Home(tmp_path / "home"))
    assert found.target == f"{linked}:/d"
    (chosen,) = choose_portfolio([], tables=[found]).layouts
    assert f"{linked}:/d" in chosen.command


def test_an_empty_table_is_not_sorted(tmp_path):
    path = tmp_path / "run.h5"
    with h5py.File(path, "w") as file:
        file["p/e"] = np.zeros(0)
    found = sample_queries(path, "p", [QueryRequest(condition="e > 1")], home=Home(tmp_path))
    portfolio = choose_portfolio([], tables=[found])
    assert portfolio.layouts == ()
    assert any("has no rows" in note for note in portfolio.notes)


def test_advice_is_a_value():
    kept = TypeAdapter(Portfolio)
    found = choose(query())
    assert kept.validate_json(kept.dump_json(found)) == found
    (of_table,) = found.of_each()
    assert (of_table.layouts, of_table.target) == (found.layouts, "/data/run.h5:/p")
    assert of_table.models.predicted == "queries"
    kept_one = TypeAdapter(Recommendation)
    assert kept_one.validate_json(kept_one.dump_json(of_table)) == of_table
