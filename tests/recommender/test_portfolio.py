"""Portfolios: several layouts, several datasets, one budget."""

import math
import time
from dataclasses import replace
from itertools import combinations

import pytest

from sds.analyzer import PatternKind, stated_pattern
from sds.errors import LayoutError, SdsValueError
from sds.geometry import RaidLayout, StripeLayout
from sds.recommender import (
    CostModel,
    DatasetReads,
    GapKind,
    HeldoutError,
    ModelKind,
    NoiseGates,
    PortfolioSettings,
    ReplicaShape,
    StoredArray,
    advise_stripes,
    choose_portfolio,
    what_if,
)
from sds.recommender.layouts import check_shape, size_bytes
from sds.recommender.portfolio import saving_interval

GRID = (3650, 180, 360)
CUBE = (512, 512, 1024)


def reads_of(extent, *selections, target="f.h5:/d", element=4, **stored):
    array = StoredArray(extent=extent, element_size_bytes=element, **stored)
    patterns = tuple(
        stated_pattern(text, extent=extent, element_size_bytes=element, n_reads_per_day=n)
        for text, n in selections
    )
    return DatasetReads(target=target, array=array, patterns=patterns)


def names(portfolio):
    return {layout.name for layout in portfolio.layouts}


def traced(dataset, **changes):
    patterns = tuple(
        replace(p, stated=False, processes=("p",), first_ns=10**18, last_ns=10**18 + 1, **changes)
        for p in dataset.patterns
    )
    return replace(dataset, patterns=patterns)


def calibrated(error):
    heldout = HeldoutError(median=error, p95=error, rms=error, rank_correlation=1.0, n_patterns=9)
    model = CostModel(
        kind=ModelKind.REQUESTS,
        gap=GapKind.COUNT,
        coefficients=(2e-4, 6e-5, 1e-9),
        floor_s=1e-5,
        calibrated=True,
        heldout=heldout,
    )
    return model, model


def test_one_layout_cannot_serve_both_axes_and_two_do():
    dataset = reads_of(CUBE, ("[:, :, 5]", 50), ("[:, 5, :]", 50))
    both = choose_portfolio([dataset])
    assert len(both.layouts) == 2
    assert {layout.layout.order[0] for layout in both.layouts} == {1, 2}
    assert both.exact
    for n_bytes in (dataset.array.size_bytes, 2 * dataset.array.size_bytes - 1):
        one = choose_portfolio([dataset], budget_bytes=n_bytes)
        assert len(one.layouts) == 1
        assert one.used_bytes <= n_bytes
        assert one.seconds_then > both.seconds_then


def test_the_set_saves_what_its_times_say_and_no_pair_under_the_budget_saves_more():
    dataset = reads_of(CUBE, ("[:, :, 5]", 50), ("[:, 5, :]", 50), ("[3, 4, :]", 5))
    settings = PortfolioSettings(tolerance=1e-9)
    gates = NoiseGates(min_speedup=1.0, min_confidence=0.0, min_saving_s=0, min_total_s=0)
    portfolio = choose_portfolio([dataset], gates=gates, settings=settings)
    assert portfolio.saving.seconds == pytest.approx(portfolio.seconds_now - portfolio.seconds_then)
    considered = [p.layout for p in portfolio.layouts] + [p.layout for p in portfolio.declined]
    assert len(considered) >= 3
    for pair in combinations(considered, 2):
        then = what_if(dataset, add=pair)
        assert then.seconds_then >= portfolio.seconds_then * (1 - 1e-9)


def test_what_a_portfolio_predicts_is_what_what_if_predicts():
    dataset = reads_of(GRID, ("[:, 3, 4]", 100), ("[7]", 100), chunks=(50, 60, 60))
    portfolio = choose_portfolio([dataset])
    supposed = what_if(dataset, add=[layout.layout for layout in portfolio.layouts])
    assert supposed.seconds_then == pytest.approx(portfolio.seconds_then)
    assert supposed.seconds_now == pytest.approx(portfolio.seconds_now)
    assert supposed.size_bytes == portfolio.used_bytes
    assert supposed.saving.seconds == pytest.approx(portfolio.saving.seconds)


def test_the_filters_of_the_source_let_two_layouts_share_what_one_would_take():
    plain = reads_of(GRID, ("[:, 3, 4]", 100), ("[7]", 100), chunks=(50, 60, 60))
    array = replace(plain.array, stored_bytes=plain.array.size_bytes // 4, decode_s_per_byte=2e-9)
    dataset = replace(plain, array=array)
    portfolio = choose_portfolio([dataset], budget_bytes=plain.array.size_bytes)
    assert len(portfolio.layouts) == 2
    assert all(layout.layout.filtered for layout in portfolio.layouts)
    assert all("--compress source" in layout.command for layout in portfolio.layouts)
    assert portfolio.used_bytes < 0.6 * plain.array.size_bytes
    for layout in portfolio.layouts:
        check_shape(layout.layout, array)


def test_datasets_share_the_budget_and_the_one_that_gains_more_goes_first():
    little = reads_of(CUBE, ("[:, :, 5]", 50), target="f.h5:/little")
    much = reads_of(CUBE, ("[:, :, 5]", 5000), target="f.h5:/much")
    size = little.array.size_bytes
    one = choose_portfolio([little, much], budget_bytes=size)
    assert [layout.target for layout in one.layouts] == ["f.h5:/much"]
    declined = {d.target: d.reason for d in one.declined}
    assert "of the budget are left" in declined["f.h5:/little"]
    both = choose_portfolio([little, much], budget_bytes=2 * size)
    assert [layout.target for layout in both.layouts] == ["f.h5:/much", "f.h5:/little"]
    with pytest.raises(SdsValueError, match="twice"):
        choose_portfolio([little, little])


def test_users_add_up():
    dataset = reads_of(CUBE, ("[:, :, 5]", 50), ("[:, :, 900]", 50))
    together = choose_portfolio([dataset])
    alone = choose_portfolio([replace(dataset, patterns=dataset.patterns[:1])])
    assert together.n_groups == 1
    assert together.saving.seconds == pytest.approx(2 * alone.saving.seconds)
    assert together.layouts[0].break_even_days == pytest.approx(
        alone.layouts[0].break_even_days / 2
    )


def test_a_replica_that_exists_is_counted_and_not_advised_again():
    dataset = reads_of(CUBE, ("[:, :, 5]", 50))
    first = choose_portfolio([dataset]).layouts[0].layout
    again = choose_portfolio([replace(dataset, existing=(first,))])
    assert not again.layouts
    assert again.seconds_now == pytest.approx(choose_portfolio([dataset]).seconds_then)


@pytest.mark.parametrize(
    ("budget", "words"), [(0, "no room for any layout"), (1000, "no room for any layout")]
)
def test_a_budget_too_small_is_said(budget, words):
    dataset = reads_of(CUBE, ("[:, :, 5]", 50))
    portfolio = choose_portfolio([dataset], budget_bytes=budget)
    assert not portfolio.layouts
    assert portfolio.seconds_then == portfolio.seconds_now
    assert portfolio.saving.seconds == portfolio.saving.low == portfolio.saving.high == 0
    assert any(words in note for note in portfolio.notes)
    assert any("more than the whole budget" in d.reason for d in portfolio.declined)


def test_a_negative_budget_is_refused():
    with pytest.raises(SdsValueError, match="-5"):
        choose_portfolio([], budget_bytes=-5)


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        (reads_of((), ("[...]", 10)), "a scalar has one layout"),
        (reads_of((0, 5)), "empty"),
        (reads_of((5, 5)), "no reads are known"),
        (reads_of((1, 1), ("[0, 0]", 10)), "no layout would make its reads faster"),
    ],
)
def test_where_there_is_nothing_to_choose_the_words_are_clear(dataset, words):
    portfolio = choose_portfolio([dataset])
    assert not portfolio.layouts
    assert any(words in note for note in portfolio.notes)
    assert math.isfinite(portfolio.seconds_now)


def test_no_dataset_is_nothing_to_build():
    portfolio = choose_portfolio([])
    assert (portfolio.layouts, portfolio.seconds_now, portfolio.calibrated) == ((), 0.0, False)


def test_the_highest_rank_is_chosen_for_in_time():
    dataset = reads_of((2,) * 30, ("[..., 0]", 10), ("[0]", 10), element=1)
    began = time.perf_counter()
    portfolio = choose_portfolio([dataset])
    assert time.perf_counter() - began < 10
    # [0] is one run in the original; the last axis goes next to the first, and nothing else moves.
    assert portfolio.layouts[0].layout.order == (0, 29, *range(1, 29))
    highest = reads_of((2,) * 32, ("[..., 0]", 10), element=1)
    assert choose_portfolio([highest]).layouts[0].layout.order == (31, *range(31))


def test_points_keep_their_measured_time_and_collective_reads_stay():
    dataset = traced(reads_of(CUBE, ("[:, :, 5]", 50)))
    points = replace(
        dataset.patterns[0],
        kind=PatternKind.NONCONTIGUOUS_CHUNKS,
        irregular=True,
        elapsed_s=50.0,
    )
    only = choose_portfolio([replace(dataset, patterns=(points,))])
    assert not only.layouts
    assert only.seconds_now == only.seconds_then == pytest.approx(50.0)
    assert any("bounding box" in note for note in only.notes)
    half = choose_portfolio([traced(dataset, n_collective=25)])
    whole = choose_portfolio([dataset])
    assert half.saving.seconds == pytest.approx(whole.saving.seconds / 2)
    none = choose_portfolio([traced(dataset, n_collective=50)])
    assert not none.layouts
    assert any("collective" in note for note in none.notes)


def test_gates_hold_layouts_back_and_say_why():
    dataset = traced(reads_of(CUBE, ("[:, :, 5]", 2)))
    assert "only 2 reads" in choose_portfolio([dataset]).declined[0].reason
    many = traced(reads_of(CUBE, ("[:, :, 5]", 50)))
    for gates, words in (
        (NoiseGates(min_total_s=1e7), "all reads take"),
        (NoiseGates(min_saving_s=1e7), "it would save"),
        (NoiseGates(min_speedup=1e9), "gates ask for"),
        (NoiseGates(min_confidence=0.9999999999999999), "cannot tell from no gain"),
    ):
        portfolio = choose_portfolio([many], gates=gates)
        assert not portfolio.layouts
        assert words in portfolio.declined[0].reason
    slow = PortfolioSettings(build_bytes_per_s=1.0)
    portfolio = choose_portfolio([many], settings=slow)
    assert "more than it saves in 365 days" in portfolio.declined[0].reason


def test_a_second_layout_that_the_models_cannot_tell_from_the_first_is_left_out():
    dataset = reads_of(CUBE, ("[:, :, 5]", 50))
    portfolio = choose_portfolio([dataset])
    assert len(portfolio.layouts) == 1
    # Far enough apart for good models to tell, and not for poor ones.
    pair = reads_of((64, 256, 1024), ("[:, :, 5]", 500), ("[:, 5, :]", 500))
    good = choose_portfolio([replace(pair, models=calibrated(0.05))])
    sure = NoiseGates(min_confidence=0.99)
    poor = choose_portfolio([replace(pair, models=calibrated(0.9))], gates=sure)
    assert len(good.layouts) == 2
    assert good.calibrated
    assert len(poor.layouts) == 1
    assert any("cannot tell" in d.reason for d in poor.declined)


def test_intervals_hold_the_prediction_and_widen_with_the_error():
    narrow, wide = (saving_interval(10.0, 1.0, calibrated(e)) for e in (0.01, 1.0))
    assert narrow.low < 9 < narrow.high
    assert wide.low < narrow.low
    assert wide.high > narrow.high
    assert narrow.high - narrow.low == pytest.approx(2 * 1.96 * 0.01 * math.hypot(10, 1), rel=0.05)
    same = saving_interval(3.0, 3.0, calibrated(1.0))
    assert (same.seconds, same.low, same.high) == (0.0, 0.0, 0.0)


def test_thousands_of_patterns_and_hundreds_of_datasets_are_quick():
    many = reads_of(
        GRID,
        *((f"[{i}]", 1) for i in range(2000)),
        *((f"[:, {i % 180}, {i}]", 1) for i in range(300)),
    )
    began = time.perf_counter()
    portfolio = choose_portfolio([many])
    assert portfolio.n_patterns == 2300
    assert portfolio.n_groups <= 4
    assert time.perf_counter() - began < 10
    alike = [
        reads_of(GRID, ("[:, 3, 4]", 1 + i), ("[7]", 9), target=f"f{i}.h5:/d") for i in range(200)
    ]
    began = time.perf_counter()
    portfolio = choose_portfolio(alike, budget_bytes=50 * alike[0].array.size_bytes)
    assert len(portfolio.layouts) == 50
    assert {layout.target for layout in portfolio.layouts} == {
        f"f{i}.h5:/d" for i in range(150, 200)
    }
    assert time.perf_counter() - began < 20


def test_patterns_of_another_dataset_and_settings_that_make_no_sense_are_refused():
    dataset = reads_of(CUBE, ("[:, :, 5]", 50))
    with pytest.raises(SdsValueError, match="is not of"):
        choose_portfolio([replace(dataset, array=StoredArray(extent=(5,), element_size_bytes=4))])
    with pytest.raises(SdsValueError, match="tolerance"):
        PortfolioSettings(tolerance=0)
    with pytest.raises(SdsValueError, match="pay_within_days"):
        PortfolioSettings(pay_within_days=math.nan)


def test_what_if_works_both_ways():
    dataset = reads_of(CUBE, ("[:, :, 5]", 50), ("[3, 4, :]", 50))
    shape = ReplicaShape(order=(2, 0, 1))
    more = what_if(dataset, add=[shape])
    less = what_if(replace(dataset, existing=(shape,)), take_away=[shape])
    assert more.saving.seconds > 0
    assert less.saving.seconds == pytest.approx(-more.saving.seconds)
    assert (less.seconds_now, less.seconds_then) == pytest.approx(
        (more.seconds_then, more.seconds_now)
    )
    assert more.size_bytes == dataset.array.size_bytes == -less.size_bytes
    assert more.break_even_days == pytest.approx(more.build_s / more.saving.seconds)
    assert less.break_even_days is None
    plane, line = more.patterns
    assert (plane.from_now, plane.from_then) == ("original", "order 2,0,1")
    assert (line.from_now, line.from_then) == ("original", "original")
    moved = what_if(
        replace(dataset, existing=(shape,)), add=[ReplicaShape(order=(2, 1, 0))], take_away=[shape]
    )
    assert moved.size_bytes == 0


@pytest.mark.parametrize(
    ("add", "away", "words"),
    [
        ((), (), "what if what"),
        ([ReplicaShape(order=(0, 1))], (), "no permutation"),
        ([ReplicaShape(order=(2, 0, 1), chunk_shape=(2000, 1, 1))], (), "2000"),
        ([ReplicaShape(order=(0, 1, 2), chunk_shape=(512, 512, 512))], (), "at most"),
        ([ReplicaShape(order=(0, 1, 2), chunk_shape=(1, 1, 1))], (), "make them larger"),
        ([ReplicaShape(order=(0, 1, 2), chunk_shape=(8, 8, 8), filtered=True)], (), "no filters"),
        ((), [ReplicaShape(order=(2, 0, 1))], "no replica of order 2,0,1"),
    ],
)
def test_what_cannot_be_supposed_is_refused(add, away, words):
    dataset = reads_of(CUBE, ("[:, :, 5]", 50))
    with pytest.raises(LayoutError, match=words):
        what_if(dataset, add=add, take_away=away)


def test_shapes_that_cannot_be_are_refused():
    with pytest.raises(LayoutError):
        ReplicaShape(order=(0, 0))
    with pytest.raises(LayoutError, match="filters work on chunks"):
        ReplicaShape(order=(0, 1), filtered=True)
    with pytest.raises(LayoutError, match="do not fit"):
        ReplicaShape(order=(0, 1), chunk_shape=(3,))
    with pytest.raises(LayoutError, match="do not fit"):
        ReplicaShape(order=(0, 1), chunk_shape=(3, 0))


def test_sizes_count_whole_chunks_and_what_filters_leave():
    array = StoredArray(extent=(10, 10), element_size_bytes=8, chunks=(5, 5), stored_bytes=400)
    assert size_bytes(ReplicaShape(order=(1, 0)), array) == 800
    assert size_bytes(ReplicaShape(order=(1, 0), chunk_shape=(7, 10)), array) == 2 * 560
    assert size_bytes(ReplicaShape(order=(1, 0), chunk_shape=(5, 5), filtered=True), array) == 400


STRIPED = (
    CostModel(
        kind=ModelKind.EQ3,
        gap=GapKind.COUNT,
        coefficients=(1e-4, 1e-5, 0.0),
        floor_s=1e-5,
        calibrated=True,
        heldout=HeldoutError(median=0.05, p95=0.1, rms=0.05, rank_correlation=1.0, n_patterns=9),
    ),
) * 2


def test_stripes_are_advised_where_disks_share_the_work_and_nowhere_else():
    dataset = reads_of(
        CUBE,
        ("[:, :, 0:64]", 50),
        stripes=StripeLayout(stripe_size_bytes=1 << 20, stripe_count=1),
        raid=RaidLayout(unit_bytes=512, data_disks=8, min_request_bytes=4096),
    )
    dataset = replace(dataset, models=STRIPED, existing=(ReplicaShape(order=(2, 0, 1)),))
    advice = advise_stripes([dataset], directory="/scratch/my replicas", n_osts=100, allowed=True)
    assert advice.stripes is not None
    assert advice.stripes.stripe_count > 16
    assert advice.command == (
        f"lfs setstripe -c {advice.stripes.stripe_count} "
        f"-S {advice.stripes.stripe_size_bytes >> 20}M '/scratch/my replicas'"
    )
    assert advice.seconds_then < advice.seconds_now
    for n_osts, allowed, words in ((100, False, "does not let"), (1, True, "no stripes to choose")):
        left = advise_stripes([dataset], directory="/r", n_osts=n_osts, allowed=allowed)
        assert (left.stripes, left.command) == (None, None)
        assert words in left.reason
    uncalibrated = replace(dataset, models=None)
    left = advise_stripes([uncalibrated], directory="/r", n_osts=100, allowed=True)
    assert left.command is None
    assert "cannot tell" in left.reason
    unserved = replace(dataset, existing=())
    left = advise_stripes([unserved], directory="/r", n_osts=100, allowed=True)
    assert "no reads would be served" in left.reason
    with pytest.raises(SdsValueError):
        advise_stripes([dataset], directory="/r", n_osts=0, allowed=True)
