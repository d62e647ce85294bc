import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.table1.evaluation import samples_of
from benchmarks.table1.protocol import draw_library
from sds.errors import SdsValueError
from sds.recommender.models.cost_model import CostModel, GapKind, ModelKind
from sds.recommender.models.cross_validation import cross_validate
from sds.recommender.models.feature_matrix import FEATURES, FeatureMatrix
from sds.recommender.models.model_selection import choose_model, falling_terms
from sds.recommender.models.service_model import ServiceFitter
from tests.benchmarks.table1.operations import LAW, SMALL, Storage, seconds_by_law

counts = st.integers(0, 2**50).map(float)
tables = st.lists(
    st.lists(counts, min_size=len(FEATURES), max_size=len(FEATURES)), min_size=1, max_size=5
).map(lambda rows: FeatureMatrix(np.ascontiguousarray(np.array(rows).T)))
coefficients = st.lists(st.floats(0, 1e3), min_size=7, max_size=7).map(tuple)


def model_of(law, floor_s=0.0):
    return CostModel(
        kind=ModelKind.SERVICE,
        gap=GapKind.DISTANCE,
        coefficients=tuple(law),
        floor_s=floor_s,
        calibrated=True,
    )


@pytest.fixture(scope="module")
def measured():
    """150 operations of 50 patterns by the law, with 3 % noise."""
    storage = Storage(noise=0.03)
    return samples_of(draw_library(3, SMALL, 17)[:50], SMALL, storage.observe)


@given(tables, coefficients)
def test_the_core_predicts_what_the_law_says(table, law):
    expected = seconds_by_law(table, law)
    assert model_of(law).predict_many(table) == pytest.approx(expected, rel=1e-9)


@given(tables, coefficients, st.sampled_from(FEATURES), st.floats(1, 1e6))
def test_more_work_never_takes_less_time(table, law, name, more):
    model = model_of(law)
    worse = table.columns.copy()
    worse[FEATURES.index(name)] *= more
    before, after = model.predict_many(table), model.predict_many(FeatureMatrix(worse))
    assert (after >= before * (1 - 1e-12)).all()
    assert (before >= 0).all()


def test_the_law_is_found_again():
    exact = samples_of(draw_library(3, SMALL, 20), SMALL, Storage().observe)
    model = ServiceFitter().fit(exact)
    predicted = model.predict_many(exact.feature_matrix())
    assert np.abs(np.log(predicted / np.array(exact.seconds))).max() < 0.02
    assert model.diagnostics.r_squared > 0.9999
    assert min(model.coefficients) >= 0


def test_it_predicts_patterns_and_layouts_left_out(measured):
    fitter = ServiceFitter()
    patterns = cross_validate(fitter, measured, n_folds=10)
    assert patterns.median < 0.04
    assert patterns.r_squared > 0.99
    assert patterns.ratio_rms < 0.08
    layouts = cross_validate(fitter, measured, by="layouts")
    assert layouts.left_out == "layouts"
    assert layouts.n_patterns == 3
    assert layouts.median < 0.1


def test_its_diagnostics_hold_the_law_within_their_intervals(measured):
    d = ServiceFitter().fit(measured).diagnostics
    assert d.weighting == "log"
    by_term = dict(zip(d.terms, zip(d.confidence_low, d.confidence_high, strict=True), strict=True))
    low, high = by_term["ost_bytes"]
    assert low < LAW[4] < high
    assert len(d.residuals_s) == len(measured)
    assert all(p is None or 0 <= p <= 1 for p in d.p_values)


def test_it_is_chosen_where_storage_is_like_that(measured):
    choice = choose_model(measured, gaps=(GapKind.DISTANCE,))
    assert choice.chosen.kind is ModelKind.SERVICE
    assert falling_terms(choice.chosen, lowest_p=1.0) == ()


def test_too_few_reads_are_refused(measured):
    with pytest.raises(SdsValueError, match=r"8 reads are too few.*at least 9"):
        ServiceFitter().fit(measured.take(range(8)))


def test_terms_that_follow_from_others_are_left_out_and_named(measured):
    table = measured.feature_matrix()
    columns = table.columns.copy()
    columns[FEATURES.index("ost_bytes")] = 3 * columns[FEATURES.index("step_bytes")]
    model, _ = ServiceFitter().solve(FeatureMatrix(columns), np.array(measured.seconds))
    assert model.dropped_terms == ("ost_bytes",)
    assert model.coefficients[4] == 0


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_measures_that_no_count_can_be_are_refused(value):
    columns = np.ones((len(FEATURES), 2))
    columns[3, 1] = value
    with pytest.raises(SdsValueError, match=f"{FEATURES[3]} of operation 1 is {value}"):
        FeatureMatrix(columns)
    with pytest.raises(SdsValueError, match="not one row for each of"):
        FeatureMatrix(np.ones((2, 2)))
