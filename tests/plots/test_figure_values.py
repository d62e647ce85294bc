import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from sds.errors import SdsValueError
from sds.plots import Kind
from sds.plots.figure_values import (
    DATA_OF,
    Coefficient,
    coefficient_cells,
    coefficient_data,
    figure_data,
    fit_sentence,
    group_of,
    predicted_data,
    residual_data,
    speedup_data,
    unit_of,
)
from sds.recommender.models.cost_model import GapKind, ModelKind, builtin_model
from tests.plots.evidence import ABOUT, evidence, many


def test_predicted_times_have_their_interval_and_are_counted():
    factor = math.exp(1.96 * 0.25)
    data = predicted_data(
        evidence(
            [
                ("line along 0", "a", 1.0, 1.2),
                ("line along 1", "a", 1.0, 0.8),
                ("plane", "b", 1.0, 1.21),
                ("plane", "b", 1.0, 2.0 * factor),
            ]
        )
    )
    assert data.interval_factor == pytest.approx(factor)
    assert (data.n_near, data.n_not_near, data.n_outside_interval) == (2, 2, 1)
    first = data.points[0]
    assert (first.group, first.layout, first.observed_s) == ("line", "a", 1.0)
    assert (first.low_s, first.high_s) == pytest.approx((1.2 / factor, 1.2 * factor))
    errors = sorted(abs(math.log(x)) for x in (1.2, 0.8, 1.21, 2.0 * factor))
    assert data.median_log_error == pytest.approx((errors[1] + errors[2]) / 2)


@given(st.floats(1e-6, 1e6))
def test_a_perfect_model_has_all_reads_near_and_within_an_interval_of_nothing(seconds):
    data = predicted_data(evidence([("p", "x", seconds, seconds)], interval_log=0.0))
    assert (data.n_near, data.n_outside_interval, data.interval_factor) == (1, 0, 1.0)


def test_residuals_are_logarithms_of_observed_over_predicted():
    rows = [("a b", "x", float(t), 1.0) for t in (1, 2, 3, 4, 5)] + [("c", "x", 1.0, 4.0)]
    data = residual_data(evidence(rows))
    assert [p.log_ratio for p in data.points] == pytest.approx(
        [math.log(t) for t in (1, 2, 3, 4, 5, 0.25)]
    )
    assert data.interval_log == pytest.approx(0.49)
    first, second = data.patterns
    assert (first.pattern, first.group, first.n_reads) == ("a b", "a", 5)
    of = (first.least, first.quartile_low, first.median, first.quartile_high, first.greatest)
    assert of == pytest.approx([math.log(t) for t in (1, 2, 3, 4, 5)])
    assert second.median == pytest.approx(math.log(0.25))


def test_speedups_pair_reads_in_the_order_they_were_made():
    data = speedup_data(
        evidence(
            [
                ("line", "a", 8.0, 6.0),
                ("line", "b", 2.0, 3.0),
                ("line", "a", 9.0, 6.0),
                ("line", "b", 1.0, 2.0),
                ("line", "a", 100.0, 6.0),  # nothing to pair it with
                ("plane", "b", 1.0, 1.0),  # not read from the original
            ],
            ratio_error=0.5,
        )
    )
    (found,) = data.speedups
    assert (data.original_layout, found.pattern, found.layout) == ("a", "line", "b")
    assert found.n_pairs == 2
    assert (found.observed_low, found.observed_speedup, found.observed_high) == (4.0, 6.5, 9.0)
    assert found.predicted_speedup == 2.5
    factor = math.exp(1.96 * 0.5)
    assert data.interval_factor == pytest.approx(factor)
    assert (found.predicted_low, found.predicted_high) == pytest.approx(
        (2.5 / factor, 2.5 * factor)
    )


def test_the_error_of_ratios_is_that_of_the_pairs_where_it_is_not_known():
    rows = [("l", "a", 4.0, 4.0), ("l", "b", 1.0, 2.0), ("m", "a", 4.0, 1.0), ("m", "b", 1.0, 1.0)]
    data = speedup_data(evidence(rows))
    rms = math.sqrt((math.log(2) ** 2 + math.log(4) ** 2) / 2)
    assert data.interval_factor == pytest.approx(math.exp(1.96 * rms))


def test_another_original_turns_speedups_round():
    rows = [("l", "a", 4.0, 2.0), ("l", "b", 1.0, 1.0)]
    forward, back = (speedup_data(evidence(rows), original=name).speedups[0] for name in "ab")
    assert forward.observed_speedup == 1 / back.observed_speedup == 4.0
    assert forward.predicted_speedup == 1 / back.predicted_speedup == 2.0
    with pytest.raises(SdsValueError, match=r"'c'; there are a, b"):
        speedup_data(evidence(rows), original="c")


@pytest.mark.parametrize(
    "rows", [[("l", "a", 1.0, 1.0)], [("l", "a", 1.0, 1.0), ("m", "b", 1.0, 1.0)]]
)
def test_reads_that_compare_nothing_have_no_speedups(rows):
    with pytest.raises(SdsValueError, match="no speed-up to show; measure patterns in two layouts"):
        speedup_data(evidence(rows))


def test_coefficients_are_those_of_the_model(measured):
    name = "eq4, block gap count, relative"
    data = figure_data(Kind.COEFFICIENTS, measured, model=name)
    trials = measured.measurements[0].choice.trials
    model = next(t.model for t in trials if t.name == name)
    assert [t.term for t in data.terms] == ["1", "BD", "BG", "P"]
    assert tuple(t.coefficient for t in data.terms) == model.coefficients
    assert tuple(t.p_value for t in data.terms) == model.diagnostics.p_values
    assert tuple(t.low for t in data.terms) == model.diagnostics.confidence_low
    assert [t.unit for t in data.terms] == ["s", "s/block", "s/gap", "s/(process/OST)"]
    assert (data.weighting, data.n_reads) == ("relative", model.diagnostics.n)
    assert coefficient_cells(data.terms[1])[:2] == ("BD", "s/block")
    assert "relative" in fit_sentence(data)


def test_dropped_terms_are_listed_without_a_number(measured):
    trials = measured.measurements[0].choice.trials
    dropped = [t for t in trials if t.model is not None and t.model.dropped_terms]
    assert dropped, "the reads do not determine every term of the service model"
    data = figure_data(Kind.COEFFICIENTS, measured, model=dropped[0].name)
    missing = [t for t in data.terms if t.dropped]
    assert tuple(t.term for t in missing) == dropped[0].model.dropped_terms
    assert all(t.coefficient is None and t.p_value is None for t in missing)
    assert coefficient_cells(missing[0])[2] == "dropped"


def test_a_built_in_model_was_fitted_to_nothing():
    data = coefficient_data(builtin_model(), ABOUT)
    assert (data.n_reads, data.weighting, data.r_squared) == (0, None, None)
    assert fit_sentence(data) == "Coefficients chosen, not fitted."
    assert {t.unit for t in data.terms} == {"s", "s/request", "s/B"}


@pytest.mark.parametrize("kind", ModelKind)
def test_every_term_has_a_unit_of_its_own_words(kind):
    for gap in GapKind:
        units = [unit_of(term, gap) for term in kind.terms]
        assert units[0] == ("s/visit" if kind is ModelKind.SERVICE else "s")
        assert all(u.startswith("s") for u in units)
    assert unit_of("BD*BG*P", GapKind.DISTANCE) == "s/(block·block·process/OST)"
    for term in kind.terms:
        assert f"s/{term}" != unit_of(term, GapKind.COUNT), f"{term} has no unit in sds/plots/units"


@pytest.mark.parametrize(
    ("pattern", "group"),
    [
        ("line along 0, part 1/8", "line"),
        ("2-D 1x64 at 5", "2-D"),
        ("point", "point"),
        (" ", "unnamed"),
    ],
)
def test_patterns_are_grouped_by_their_first_word(pattern, group):
    assert group_of(pattern) == group


@pytest.mark.parametrize("kind", Kind)
def test_data_survive_json(measured, kind):
    data = figure_data(kind, measured, model="eq4, block gap count, relative")
    adapter = TypeAdapter(DATA_OF[kind])
    assert adapter.validate_json(adapter.dump_json(data)) == data


@pytest.mark.parametrize("kind", Kind)
def test_data_of_nothing_are_refused(measured, kind):
    data = figure_data(kind, measured, model="eq4, block gap count, relative")
    for field in ("points", "patterns", "speedups", "terms"):
        if hasattr(data, field):
            with pytest.raises(SdsValueError, match="there are no"):
                replace(data, **{field: ()})


def test_data_that_no_axis_shows_are_refused():
    data = predicted_data(many(3))
    raw = TypeAdapter(type(data)).dump_python(data, mode="json")
    raw["points"][1]["observed_s"] = 0.0
    with pytest.raises(ValidationError, match="cannot be shown"):
        TypeAdapter(type(data)).validate_python(raw)


def test_a_coefficient_held_at_zero_is_no_estimate():
    held = Coefficient(
        term="P*sieve_jumps",
        unit="s/jump",
        coefficient=0.0,
        low=None,
        high=None,
        p_value=None,
        dropped=False,
    )
    assert coefficient_cells(held) == ("P*sieve_jumps", "s/jump", "held at 0", "", "")
    # Of the built-in model: chosen, so without an interval, and not 0.
    assert coefficient_cells(replace(held, coefficient=2e-3))[2:] == ("0.002", "-", "-")
