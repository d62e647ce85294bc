import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sds.errors import RankDeficientError, SdsValueError
from sds.recommender.models.cost_model import GapKind, ModelKind
from sds.recommender.models.cross_validation import cross_validate
from sds.recommender.models.regression import (
    LinearFitter,
    dependent_columns,
    design_matrix,
)
from sds.recommender.models.samples import Samples
from tests.recommender.measured import features, samples

EQ4 = (0.5, 3e-6, 2e-9, 0.25)
EQ6 = (0.1, 4e-6, 3e-9, 0.2, 5e-15, 2e-6, 1e-9, 4e-15)


def eq4(depth, gap, p):
    return EQ4[0] + EQ4[1] * depth + EQ4[2] * gap + EQ4[3] * p


def eq6(depth, gap, p):
    terms = (1, depth, gap, p, depth * gap, depth * p, gap * p, depth * gap * p)
    return sum(c * t for c, t in zip(EQ6, terms, strict=True))


def test_the_design_matrix_holds_the_terms_of_the_paper():
    one = Samples(
        patterns=("a",),
        features=(features(depth=5, gap=11),),
        processes_per_ost=(2.0,),
        seconds=(1.0,),
    )
    one = one.feature_matrix()
    row = design_matrix(one, ModelKind.EQ6, GapKind.COUNT)[0]
    assert row.tolist() == [1, 5, 11, 2, 55, 10, 22, 110]
    assert design_matrix(one, ModelKind.EQ4, GapKind.DISTANCE)[0].tolist() == [1, 5, 77, 2]
    assert design_matrix(one, ModelKind.EQ3, GapKind.PAPER)[0].tolist() == [1, 5, 33]


def test_the_additive_model_is_found_again():
    model = LinearFitter(kind=ModelKind.EQ4, gap=GapKind.COUNT).evaluate(samples(eq4))
    assert model.coefficients == pytest.approx(EQ4, rel=1e-6)
    assert model.diagnostics.r_squared == pytest.approx(1.0)
    assert model.heldout.median < 1e-6
    assert max(map(abs, model.diagnostics.residuals_s)) < 1e-6


def test_the_multiplicative_model_is_found_again():
    model = LinearFitter(kind=ModelKind.EQ6, gap=GapKind.COUNT).evaluate(
        samples(eq6, n_patterns=20)
    )
    assert model.coefficients == pytest.approx(EQ6, rel=1e-3)
    assert model.heldout.rank_correlation == pytest.approx(1.0, abs=1e-3)


def test_diagnostics_say_which_terms_matter():
    noisy = samples(lambda d, _g, p: 1 + 3e-5 * d + p, n_patterns=30, noise=0.05)
    model = LinearFitter(kind=ModelKind.EQ4, gap=GapKind.COUNT).evaluate(noisy)
    by_term = dict(zip(model.diagnostics.terms, model.diagnostics.p_values, strict=True))
    assert by_term["BD"] < 1e-6
    assert by_term["BG"] > 0.001
    assert 0.9 < model.diagnostics.r_squared_adjusted <= model.diagnostics.r_squared < 1.0
    for low, c, high in zip(
        model.diagnostics.confidence_low,
        model.coefficients,
        model.diagnostics.confidence_high,
        strict=True,
    ):
        assert low < c < high
    assert model.diagnostics.n == len(model.diagnostics.residuals_s) == len(noisy)


@pytest.mark.parametrize("kind", [ModelKind.EQ4, ModelKind.EQ6])
def test_a_constant_process_count_is_refused_by_name(kind):
    one = samples(eq4, processes=(2.0,))
    with pytest.raises(RankDeficientError, match=r"\bP\b.*several process counts"):
        LinearFitter(kind=kind, gap=GapKind.COUNT).evaluate(one)


def test_without_processes_eq4_is_eq3_and_eq6_says_what_it_dropped():
    one = samples(eq4, processes=(2.0,))
    model = LinearFitter(kind=ModelKind.EQ3, gap=GapKind.COUNT).evaluate(one)
    assert model.kind is ModelKind.EQ3
    assert model.coefficients == pytest.approx((1.0, EQ4[1], EQ4[2]), rel=1e-5)
    many = LinearFitter(kind=ModelKind.EQ6, gap=GapKind.COUNT, without_processes=True).evaluate(one)
    assert many.dropped_terms == ("P", "BD*P", "BG*P", "BD*BG*P")
    assert many.coefficients[3] == 0.0


def test_columns_that_follow_from_others_are_named():
    tied = samples(eq4)
    same = Samples(
        patterns=tied.patterns,
        features=tuple(features(depth=f.block_depth, gap=4 * f.block_depth) for f in tied.features),
        processes_per_ost=tied.processes_per_ost,
        seconds=tied.seconds,
    )
    with pytest.raises(RankDeficientError, match="BG did not vary independently"):
        LinearFitter(kind=ModelKind.EQ4, gap=GapKind.COUNT).evaluate(same)


@given(
    scale=st.lists(st.floats(1e-9, 1e9), min_size=3, max_size=3),
    seed=st.integers(0, 2**32 - 1),
)
def test_dependence_does_not_hang_on_units(scale, seed):
    random = np.random.default_rng(seed)
    free = random.random((30, 3)) * scale
    matrix = np.column_stack((np.ones(30), free, free[:, 0] * 2 + free[:, 1] + 5))
    assert dependent_columns(matrix, ["1", "a", "b", "c", "d"]) == ["d"]
    assert dependent_columns(matrix[:, :4], ["1", "a", "b", "c"]) == []


def test_predictions_are_never_below_the_fastest_read_measured():
    model = LinearFitter(kind=ModelKind.EQ4, gap=GapKind.COUNT).evaluate(samples(eq4))
    assert model.floor_s == pytest.approx(min(samples(eq4).seconds))
    assert model.seconds(features(depth=0, gap=0), processes_per_ost=0.0) == model.floor_s


def test_relative_weights_keep_small_reads_right():
    def law(depth, gap, p):
        return 1e-4 + 1e-6 * depth + 1e-9 * gap + 1e-5 * p

    noisy = samples(law, n_patterns=40, noise=0.3)
    plain = cross_validate(LinearFitter(kind=ModelKind.EQ4, gap=GapKind.COUNT), noisy)
    relative = cross_validate(
        LinearFitter(kind=ModelKind.EQ4, gap=GapKind.COUNT, relative=True), noisy
    )
    assert relative.rms < plain.rms


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 0.0, -1.0])
def test_times_that_are_none_are_refused_by_number(bad):
    good = samples(eq4)
    with pytest.raises(SdsValueError, match="sample 3 "):
        Samples(
            patterns=good.patterns,
            features=good.features,
            processes_per_ost=good.processes_per_ost,
            seconds=(*good.seconds[:3], bad, *good.seconds[4:]),
        )


def test_tiny_training_sets_are_refused():
    few = samples(eq4, n_patterns=1, processes=(1.0, 2.0))
    with pytest.raises(SdsValueError, match="4 reads are too few to fit the 4 terms"):
        LinearFitter(kind=ModelKind.EQ4, gap=GapKind.COUNT).evaluate(few)
    with pytest.raises(SdsValueError, match="at least 2 patterns"):
        cross_validate(LinearFitter(kind=ModelKind.EQ3), few)
    with pytest.raises(SdsValueError, match="differ in number"):
        Samples(patterns=(), features=few.features, processes_per_ost=(), seconds=())
