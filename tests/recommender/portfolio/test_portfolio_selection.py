"""Portfolios: several layouts, several datasets, one budget."""

import math
from dataclasses import replace
from itertools import combinations

import pytest

from sds.analyzer import PatternKind, Place, stated_pattern
from sds.calibration.models_in_use import comparable_models
from sds.errors import LayoutError, SdsError, SdsValueError
from sds.geometry import Box, RaidLayout, StripeLayout
from sds.recommender.candidates.dataset_reads import DatasetReads, PortfolioSettings
from sds.recommender.candidates.replica_cost import (
    BUILD_START_S,
    BuildRates,
    check_layout,
    size_bytes,
)
from sds.recommender.models.cost_model import CostModel, GapKind, HeldoutError, ModelKind
from sds.recommender.models.read_cost import StoredArray
from sds.recommender.portfolio.gates import NoiseGates
from sds.recommender.portfolio.portfolio_selection import choose_portfolio
from sds.recommender.portfolio.striping_advice import advise_stripes
from sds.recommender.portfolio.values import saving_interval
from sds.recommender.portfolio.what_if import what_if
from tests.counted_work import count_calls
from tests.recommender.replicas import GZIP, replica

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
    dataset = replace(dataset, models=calibrated(0.1))
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
    array = replace(
        plain.array,
        filters=GZIP,
        stored_bytes=plain.array.size_bytes // 4,
        decode_s_per_byte=2e-9,
    )
    dataset = replace(plain, array=array)
    portfolio = choose_portfolio([dataset], budget_bytes=plain.array.size_bytes)
    assert len(portfolio.layouts) == 2
    assert all(layout.layout.filters for layout in portfolio.layouts)
    assert all("--compress source" in layout.command for layout in portfolio.layouts)
    assert portfolio.used_bytes < 0.6 * plain.array.size_bytes
    for layout in portfolio.layouts:
        check_layout(layout.layout, array)


def test_space_is_weighed_against_what_it_saves():
    """The smaller of layouts that save nearly the same, unless the larger earns its space."""

    def layout(n_reads, **settings):
        plain = reads_of(GRID, ("[:, 3, 4]", n_reads), chunks=(1, 180, 360))
        array = replace(
            plain.array,
            filters=GZIP,
            stored_bytes=plain.array.size_bytes // 30,
            decode_s_per_byte=2e-9,
        )
        portfolio = choose_portfolio(
            [replace(plain, array=array)], settings=PortfolioSettings(**settings)
        )
        found = [x.layout for x in portfolio.layouts]
        return found[0] if found else portfolio

    assert layout(3).filters
    assert not layout(3, space_s_per_gib=0).filters
    assert not layout(3000).filters
    dear = layout(3, space_s_per_gib=1e6)
    assert not dear.layouts
    assert any("are worth" in each.reason for each in dear.declined)


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


def hot(extent=CUBE, *, across=0):
    """Planes [:, :, k], nine in ten in an eighth of the last axis; planes [:, k, :] anywhere."""
    n = extent[2]
    within = Box(start=(0, 0, n // 2), extent=(*extent[:2], n // 8))
    dataset = reads_of(extent, ("[:, :, 5]", 100), *((("[:, 5, :]", across),) if across else ()))
    plane, *others = traced(dataset).patterns
    places = (Place(box=within, n_calls=90), Place(box=Box.whole(extent), n_calls=10))
    anywhere = [replace(p, places=(Place(box=Box.whole(extent), n_calls=across),)) for p in others]
    return replace(dataset, patterns=(replace(plane, places=places), *anywhere)), within


def test_a_part_is_advised_where_the_budget_has_no_room_for_the_whole():
    dataset, within = hot()
    (whole,) = choose_portfolio([dataset]).layouts
    assert whole.layout == replica((2, 0, 1), extent=CUBE)
    assert (whole.shares.space, whole.shares.reads, whole.shares.seconds) == (1, 1, 1)
    size = dataset.array.size_bytes
    portfolio = choose_portfolio([dataset], budget_bytes=size // 2)
    (part,) = portfolio.layouts
    assert part.layout == replica((2, 0, 1), region=within)
    assert part.size_bytes == portfolio.used_bytes == size // 8
    assert part.build_s - BUILD_START_S == pytest.approx((whole.build_s - BUILD_START_S) / 8)
    assert part.shares.space == pytest.approx(1 / 8)
    assert part.shares.reads == pytest.approx(0.9)
    assert part.shares.seconds == pytest.approx(0.9)
    assert part.saving.seconds == pytest.approx(0.9 * whole.saving.seconds, rel=0.01)
    assert part.command.endswith("--region '[0:512, 0:512, 512:640]'")
    assert "12% of the dataset, where 90% of its reads lie" in part.reason
    # What-if says the same of it, both ways.
    supposed = what_if(dataset, add=[part.layout])
    assert supposed.seconds_then == pytest.approx(portfolio.seconds_then)
    assert supposed.saving.seconds == pytest.approx(part.saving.seconds)
    assert supposed.patterns[0].from_then == f"original and {part.name}"
    kept = replace(dataset, existing=(part.layout,))
    less = what_if(kept, take_away=[part.layout])
    assert less.saving.seconds == pytest.approx(-part.saving.seconds)
    # Where it exists, the whole has only the rest to save.
    assert choose_portfolio([kept]).saving.seconds == pytest.approx(
        0.1 * whole.saving.seconds, rel=0.02
    )


def test_a_part_that_saves_nearly_as_much_is_named_beside_the_whole():
    dataset, _ = hot()
    size = dataset.array.size_bytes
    (note,) = [note for note in choose_portfolio([dataset]).notes if "instead of" in note]
    assert "would take 128 MiB instead of 1 GiB and save 90% as much" in note
    assert size == 1 << 30


def test_a_part_and_a_whole_share_a_budget():
    dataset, within = hot(across=4000)
    dataset = replace(dataset, models=calibrated(0.1))
    size = dataset.array.size_bytes
    portfolio = choose_portfolio([dataset], budget_bytes=size + size // 4)
    regions = {layout.layout.region for layout in portfolio.layouts}
    assert regions == {Box.whole(CUBE), within}
    assert portfolio.used_bytes <= size + size // 4


@pytest.mark.parametrize("n_axes", [1, 2])
def test_where_there_is_room_the_whole_stands_for_parts_that_hold_all_reads(n_axes):
    # Every 64th plane, each read once: parts would be built sooner and serve no plane between.
    texts = ("[:, :, 5]", "[:, 5, :]")[:n_axes]
    dataset = traced(reads_of((512, 512, 512), *((text, 8) for text in texts)))
    dataset = replace(dataset, models=calibrated(0.1))
    boxes = (
        [Box(start=(0, 0, 64 * i), extent=(512, 512, 1)) for i in range(8)],
        [Box(start=(0, 64 * i, 0), extent=(512, 1, 512)) for i in range(8)],
    )
    patterns = tuple(
        replace(p, places=tuple(Place(box=box, n_calls=1) for box in at))
        for p, at in zip(dataset.patterns, boxes, strict=False)
    )
    dataset = replace(dataset, patterns=patterns)
    size = dataset.array.size_bytes
    whole = Box.whole(dataset.array.extent)
    for budget in (None, n_axes * size):
        portfolio = choose_portfolio([dataset], budget_bytes=budget)
        assert [layout.layout.region for layout in portfolio.layouts] == [whole] * n_axes
        assert portfolio.used_bytes == n_axes * size
    without_room = choose_portfolio([dataset], budget_bytes=n_axes * size - 1)
    assert any(layout.layout.region != whole for layout in without_room.layouts)
    assert without_room.used_bytes < n_axes * size
    # A plane alone is a part; the whole stands for it too.
    alone = replace(patterns[0], places=(Place(box=boxes[0][0], n_calls=8),))
    (chosen,) = choose_portfolio([replace(dataset, patterns=(alone,))]).layouts
    assert chosen.layout.region == whole


@pytest.mark.parametrize("n", [1, 2, 3])
def test_parts_far_from_each_other_are_advised_apart(n):
    dataset = reads_of(CUBE, ("[:, :, 5]", 300))
    (plane,) = traced(dataset).patterns
    spots = [Box(start=(0, 0, 300 * i), extent=(512, 512, 40)) for i in range(n)]
    places = tuple(Place(box=box, n_calls=300 // n) for box in spots)
    dataset = replace(dataset, patterns=(replace(plane, places=places),))
    portfolio = choose_portfolio([dataset], budget_bytes=n * 40 << 20)
    assert {layout.layout.region for layout in portfolio.layouts} == set(spots)
    assert portfolio.seconds_then < portfolio.seconds_now / 100


def test_where_a_stated_read_lies_makes_no_part_of_its_own():
    dataset = reads_of(CUBE, ("[0:64, 0:64, 5]", 10000))
    portfolio = choose_portfolio([dataset], budget_bytes=dataset.array.size_bytes // 2)
    considered = (*portfolio.layouts, *portfolio.declined)
    assert all(d.layout.holds_all(CUBE) for d in considered)
    here = replica((2, 0, 1), region=Box(start=(0, 0, 0), extent=(64, 64, 9)))
    assert what_if(dataset, add=[here]).saving.seconds > 0
    elsewhere = replace(here, region=Box(start=(0, 0, 6), extent=(64, 64, 9)))
    assert what_if(dataset, add=[elsewhere]).saving.seconds == 0


def test_reads_whose_places_are_unknown_are_in_no_part():
    dataset, within = hot()
    (plane,) = dataset.patterns
    before = replace(dataset, patterns=(replace(plane, places=()),))
    assert not choose_portfolio([before], budget_bytes=dataset.array.size_bytes // 2).layouts
    shape = replica((2, 0, 1), region=within)
    assert what_if(before, add=[shape]).saving.seconds == 0


def test_stripes_are_advised_for_parts_too():
    dataset, within = hot()
    part = replica((2, 0, 1), region=within)
    kept = replace(dataset, existing=(part,), models=calibrated(0.1))
    advice = advise_stripes([kept], directory="/r", n_osts=8, allowed=True)
    whole = replace(kept, existing=(replica((2, 0, 1), extent=CUBE),))
    all_s = advise_stripes([whole], directory="/r", n_osts=8, allowed=True).seconds_now
    assert advice.seconds_now == pytest.approx(0.9 * all_s, rel=0.05)


@pytest.mark.parametrize(
    ("region", "chunks", "words"),
    [
        (Box(start=(0, 0, 0), extent=(0, 1, 1)), None, "is empty"),
        (Box(start=(0, 0, 1000), extent=(1, 1, 100)), None, "axis 2"),
        (Box(start=(0, 0, 0), extent=(4, 4, 4)), (4, 8, 4), "length 8 on replica axis 1"),
    ],
)
def test_parts_that_cannot_be_are_refused(region, chunks, words):
    dataset = reads_of(CUBE, ("[:, :, 5]", 50))
    shape = replica((2, 0, 1), chunk_shape=chunks, region=region)
    with pytest.raises(SdsError, match=words):
        what_if(dataset, add=[shape])


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


def calls_of(*datasets, **options):
    """Return a portfolio, and how many functions were called to choose it."""
    return count_calls(choose_portfolio, list(datasets), **options)


def test_the_highest_rank_is_chosen_for_in_polynomial_time():
    def of_rank(n):
        reads = reads_of((2,) * n, ("[..., 0]", 10), ("[0]", 10), element=1)
        return replace(reads, models=calibrated(0.1))

    _, n_half = calls_of(of_rank(15))
    portfolio, n_calls = calls_of(of_rank(30))
    assert n_calls < 2**3 * n_half  # not 2^15 times, nor 30! / 15! times, as many
    # [0] is one run in the original; the last axis goes next to the first, and nothing else moves.
    assert portfolio.layouts[0].layout.order == (0, 29, *range(1, 29))
    highest = reads_of((2,) * 32, ("[..., 0]", 10), element=1)
    highest = replace(highest, models=calibrated(0.1))
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
    slow = replace(many, build_rates=BuildRates(plain=1.0))
    portfolio = choose_portfolio([slow])
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
    narrow, wide = (saving_interval(10.0, 1.0, (e, e)) for e in (0.01, 1.0))
    assert narrow.low < 9 < narrow.high
    assert wide.low < narrow.low
    assert wide.high > narrow.high
    assert narrow.high - narrow.low == pytest.approx(2 * 1.96 * 0.01 * math.hypot(10, 1), rel=0.05)
    same = saving_interval(3.0, 3.0, (1.0, 1.0))
    assert (same.seconds, same.low, same.high) == (0.0, 0.0, 0.0)


def test_the_work_grows_as_patterns_do():
    def of_patterns(n):
        return reads_of(
            GRID,
            *((f"[{i}]", 1) for i in range(20 * n)),
            *((f"[:, {i % 180}, {i}]", 1) for i in range(3 * n)),
        )

    _, n_few = calls_of(of_patterns(10))
    portfolio, n_calls = calls_of(of_patterns(100))
    assert portfolio.n_patterns == 2300
    assert portfolio.n_groups <= 4
    assert n_calls < 12 * n_few


def test_the_work_grows_as_datasets_do():
    def alike(n):
        return [
            reads_of(GRID, ("[:, 3, 4]", 1 + i), ("[7]", 9), target=f"f{i}.h5:/d") for i in range(n)
        ]

    size_bytes = alike(1)[0].array.size_bytes
    _, n_few = calls_of(*alike(20), budget_bytes=5 * size_bytes)
    portfolio, n_calls = calls_of(*alike(200), budget_bytes=50 * size_bytes)
    assert len(portfolio.layouts) == 50
    assert {layout.target for layout in portfolio.layouts} == {
        f"f{i}.h5:/d" for i in range(150, 200)
    }
    assert n_calls < 12 * n_few


def test_patterns_of_another_dataset_and_settings_that_make_no_sense_are_refused():
    dataset = reads_of(CUBE, ("[:, :, 5]", 50))
    with pytest.raises(SdsValueError, match="is not of"):
        choose_portfolio([replace(dataset, array=StoredArray(extent=(5,), element_size_bytes=4))])
    with pytest.raises(SdsValueError, match="tolerance"):
        PortfolioSettings(tolerance=0)
    with pytest.raises(SdsValueError, match="pay_within_days"):
        PortfolioSettings(pay_within_days=math.nan)
    with pytest.raises(SdsValueError, match="space_s_per_gib"):
        PortfolioSettings(space_s_per_gib=-1)


@pytest.mark.parametrize("budget", [-1, math.nan, -math.inf])
def test_budgets_that_are_no_space_are_refused(budget):
    with pytest.raises(SdsValueError, match="give 0 or more"):
        choose_portfolio([reads_of(CUBE, ("[:, :, 5]", 50))], budget_bytes=budget)


@pytest.mark.parametrize(
    "gates",
    [
        {"min_saving_s": math.nan},
        {"min_total_s": math.inf},
        {"min_calls": -1},
        {"min_speedup": math.nan},
        {"min_confidence": math.nan},
    ],
)
def test_gates_that_are_no_numbers_are_refused(gates):
    with pytest.raises(SdsValueError, match="must be"):
        NoiseGates(**gates)


@pytest.mark.parametrize(
    ("stored", "words"),
    [
        ({"extent": (4, -1)}, "no length may be negative"),
        ({"element_size_bytes": 0}, "at least 1 byte"),
        ({"decode_s_per_byte": math.nan}, "nan s to decode"),
        ({"stored_bytes": -5}, "-5 bytes stored"),
    ],
)
def test_arrays_that_cannot_be_are_refused(stored, words):
    with pytest.raises(SdsValueError, match=words):
        StoredArray(**{"extent": (4, 4), "element_size_bytes": 4, **stored})


@pytest.mark.parametrize("extent", [(0, 3), (4, 0, 5)])
def test_nothing_is_advised_for_arrays_without_elements(extent):
    array = StoredArray(extent=extent, element_size_bytes=4)
    dataset = DatasetReads(target="f.h5:/d", array=array, patterns=())
    portfolio = choose_portfolio([dataset])
    assert not portfolio.layouts
    assert any("it is empty" in note for note in portfolio.notes)
    order = tuple(reversed(range(len(extent))))
    supposed = what_if(dataset, add=[replica(order, extent=extent)])
    assert (supposed.seconds_now, supposed.seconds_then, supposed.size_bytes) == (0, 0, 0)
    assert supposed.break_even_days is None


def test_a_scalar_has_one_layout():
    array = StoredArray(extent=(), element_size_bytes=4)
    dataset = DatasetReads(target="f.h5:/d", array=array, patterns=())
    assert "f.h5:/d: a scalar has one layout" in choose_portfolio([dataset]).notes
    with pytest.raises(LayoutError, match="a scalar has one layout"):
        what_if(dataset, add=[replica((), extent=())])


def test_rank_32_is_advised_in_polynomial_time():
    def of_rank(n):
        extent = (1,) * (n // 3) + (2,) * (n - 2 - n // 3) + (3, 3)
        return reads_of(extent, ("[..., 1]", 10**6), ("[..., 1, :]", 10**6), ("[:]", 10))

    _, n_half = calls_of(of_rank(16))
    portfolio, n_calls = calls_of(of_rank(32))
    assert n_calls < 2**3 * n_half
    for layout in portfolio.layouts:
        assert sorted(layout.layout.order) == list(range(32))
        assert 0 < layout.saving.seconds < portfolio.seconds_now


def test_models_that_predict_no_time_give_no_numbers():
    dataset = reads_of((64, 64, 64), ("[:, :, 5]", 50))
    below = CostModel(
        kind=ModelKind.EQ3,
        gap=GapKind.COUNT,
        coefficients=(-5.0, 1e-9, -1.0),
        floor_s=0.0,
        calibrated=True,
    )
    with pytest.raises(SdsValueError, match=r"predicted to take 0\.0 s: calibrate"):
        choose_portfolio([replace(dataset, models=(below, below))])


def test_what_if_works_both_ways():
    dataset = reads_of(CUBE, ("[:, :, 5]", 50), ("[3, 4, :]", 50))
    shape = replica((2, 0, 1), extent=CUBE)
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
        replace(dataset, existing=(shape,)),
        add=[replica((2, 1, 0), extent=CUBE)],
        take_away=[shape],
    )
    assert moved.size_bytes == 0


def test_what_is_named_twice_is_supposed_once():
    dataset = reads_of(CUBE, ("[:, :, 5]", 50), ("[3, 4, :]", 50))
    shape = replica((2, 0, 1), extent=CUBE)
    there = replace(dataset, existing=(shape,))
    assert what_if(there, take_away=[shape, shape]) == what_if(there, take_away=[shape])
    assert what_if(dataset, add=[shape, shape]) == what_if(dataset, add=[shape])


def test_of_two_replicas_alike_one_serves_on_without_the_other():
    dataset = reads_of(CUBE, ("[:, :, 5]", 50), ("[3, 4, :]", 50))
    shape = replica((2, 0, 1), extent=CUBE)
    twice, once = (replace(dataset, existing=(shape,) * n) for n in (2, 1))
    one = what_if(twice, take_away=[shape])
    assert (one.saving.seconds, one.size_bytes) == (0, -dataset.array.size_bytes)
    assert one.seconds_now == one.seconds_then == what_if(once, take_away=[shape]).seconds_now
    both = what_if(twice, take_away=[shape, shape])
    assert both.saving == what_if(once, take_away=[shape]).saving
    assert both.size_bytes == -2 * dataset.array.size_bytes
    assert both.taken_away == ("order 2,0,1", "order 2,0,1")
    part = replace(shape, region=Box(start=(0, 0, 0), extent=(CUBE[0], CUBE[1], 8)))
    parts = replace(dataset, existing=(part, part))
    assert what_if(parts, add=[shape]).seconds_now == pytest.approx(
        what_if(replace(dataset, existing=(part,)), add=[shape]).seconds_now
    )


@pytest.mark.parametrize(
    ("add", "away", "words"),
    [
        ((), (), "no change given"),
        ([replica((0, 1), extent=(5, 5))], (), "no permutation"),
        ([replica((2, 0, 1), chunk_shape=(2000, 1, 1), extent=CUBE)], (), "2000"),
        ([replica((0, 1, 2), chunk_shape=(512, 512, 512), extent=CUBE)], (), "at most"),
        ([replica((0, 1, 2), chunk_shape=(1, 1, 1), extent=CUBE)], (), "make them larger"),
        (
            [replica((0, 1, 2), chunk_shape=(8, 8, 8), filters=GZIP, extent=CUBE)],
            (),
            "does not have",
        ),
        ((), [replica((2, 0, 1), extent=CUBE)], "no replica of order 2,0,1"),
    ],
)
def test_what_cannot_be_supposed_is_refused(add, away, words):
    dataset = reads_of(CUBE, ("[:, :, 5]", 50))
    with pytest.raises(LayoutError, match=words):
        what_if(dataset, add=add, take_away=away)


def test_shapes_that_cannot_be_are_refused():
    with pytest.raises(LayoutError):
        replica((0, 0), extent=(5, 5))
    with pytest.raises(LayoutError, match="filters work on chunks"):
        replica((0, 1), filters=GZIP, extent=(5, 5))
    with pytest.raises(LayoutError, match="do not fit"):
        replica((0, 1), chunk_shape=(3,), extent=(5, 5))
    with pytest.raises(LayoutError, match="do not fit"):
        replica((0, 1), chunk_shape=(3, 0), extent=(5, 5))


def test_sizes_count_whole_chunks_and_what_filters_leave():
    array = StoredArray(
        extent=(10, 10), element_size_bytes=8, chunks=(5, 5), filters=GZIP, stored_bytes=400
    )
    for more, n_bytes in (
        ({}, 800),
        ({"chunk_shape": (7, 10)}, 2 * 560),
        ({"chunk_shape": (5, 5), "filters": GZIP}, 400),
    ):
        assert size_bytes(replica((1, 0), extent=(10, 10), **more), array) == n_bytes


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
    dataset = replace(dataset, models=STRIPED, existing=(replica((2, 0, 1), extent=CUBE),))
    advice = advise_stripes([dataset], directory="/scratch/my replicas", n_osts=100, allowed=True)
    assert advice.stripes is not None
    assert advice.stripes.stripe_count > 16
    assert advice.command == (
        f"lfs setstripe -c {advice.stripes.stripe_count} "
        f"-S {advice.stripes.stripe_size_bytes >> 20}M '/scratch/my replicas'"
    )
    assert advice.seconds_then < advice.seconds_now
    for measured_s in (0.01, 3.0, 100.0):  # of the original, which keeps its stripes
        of_traced = traced(dataset, elapsed_s=measured_s)
        again = advise_stripes([of_traced], directory="/r", n_osts=100, allowed=True)
        assert again.stripes == advice.stripes
    for n_osts, allowed, words in ((100, False, "does not let"), (1, True, "no stripes to choose")):
        left = advise_stripes([dataset], directory="/r", n_osts=n_osts, allowed=allowed)
        assert (left.stripes, left.command) == (None, None)
        assert words in left.reason
    uncalibrated = replace(dataset, models=comparable_models(None))
    left = advise_stripes([uncalibrated], directory="/r", n_osts=100, allowed=True)
    assert left.command is None
    assert "cannot tell" in left.reason
    unserved = replace(dataset, existing=())
    left = advise_stripes([unserved], directory="/r", n_osts=100, allowed=True)
    assert "no reads would be served" in left.reason
    with pytest.raises(SdsValueError):
        advise_stripes([dataset], directory="/r", n_osts=0, allowed=True)
