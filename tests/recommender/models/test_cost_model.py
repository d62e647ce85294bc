"""Models behind one interface: columns of features, both phases of Eq. 5, gaps, held-out error."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.table1.operation_features import measure_operation
from sds.errors import SdsValueError
from sds.geometry import (
    HOPPER_RAID,
    HOPPER_STRIPES,
    ContiguousLayout,
    Hyperslab,
    IoMode,
    ProcessReads,
    block_features,
)
from sds.recommender.models.cost_model import CostModel, GapKind, ModelKind, builtin_model
from sds.recommender.models.cross_validation import cross_validate, heldout_error
from sds.recommender.models.feature_matrix import FeatureMatrix
from sds.recommender.models.model_selection import choose_model
from sds.recommender.models.model_summary import summary_of
from sds.recommender.models.regression import LinearFitter
from sds.recommender.models.samples import Samples
from tests.recommender.measured import features, samples

EXTENT = (64, 64, 4096)
LAYOUT = ContiguousLayout(element_size_bytes=8)


def eq4(depth, gap, p):
    return 0.5 + 3e-6 * depth + 2e-9 * gap + 0.25 * p


def model_of(kind, coefficients, gap=GapKind.COUNT):
    return CostModel(kind=kind, gap=gap, coefficients=coefficients, floor_s=1e-6, calibrated=True)


def cube(shape, *, parts=(1, 1, 1), mode=IoMode.INDEPENDENT, n_aggregators=None):
    slab = Hyperslab(start=(0,) * 3, stride=(1, 1, 1), count=tuple(shape), block=(1, 1, 1))
    return measure_operation(
        EXTENT,
        ProcessReads.decomposed(slab, parts),
        LAYOUT,
        HOPPER_STRIPES,
        HOPPER_RAID,
        mode=mode,
        n_aggregators=n_aggregators,
    )


@pytest.mark.parametrize("kind", list(ModelKind))
@given(st.data())
def test_columns_predict_what_single_reads_do(kind, data):
    model = model_of(kind, tuple(data.draw(st.floats(0, 1e3)) for _ in kind.terms))
    reads = [
        features(depth=d, gap=g, runs=r, n_bytes=4096 * d, osts=o)
        for d, g, r, o in data.draw(
            st.lists(st.tuples(*[st.integers(1, 10**9)] * 4), min_size=1, max_size=4)
        )
    ]
    shares = [data.draw(st.floats(0.01, 1e4)) for _ in reads]
    many = model.predict_many(FeatureMatrix.of_reads(reads, shares))
    assert many.tolist() == [
        model.seconds(read, processes_per_ost=p) for read, p in zip(reads, shares, strict=True)
    ]
    assert (many >= model.floor_s).all()


def test_empty_reads_and_scalars_have_predictions_like_others():
    model = model_of(ModelKind.SERVICE, (1e-3,) * 7)
    nothing = Hyperslab(start=(0,), stride=(1,), count=(0,), block=(1,))
    of = (LAYOUT, HOPPER_STRIPES, HOPPER_RAID)
    deep = (2,) * 5 + (1,) * 27
    for extent, slab in (
        ((0,), nothing),
        ((), Hyperslab.all(())),
        (deep, Hyperslab.all(deep)),
    ):
        found = block_features(extent, slab, *of)
        seconds = model.seconds(found)
        assert np.isfinite(seconds)
        assert seconds >= model.floor_s
        operation = measure_operation(extent, ProcessReads.of([slab]), *of)
        assert FeatureMatrix.of_operations([operation]).columns.min() >= 0


def test_errors_of_ratios_leave_out_what_is_wrong_by_one_factor():
    measured = np.array([1.0, 2.0, 10.0, 5.0])
    patterns = ("a", "a", "b", "b")
    error = heldout_error(measured * 3, measured, n_groups=2, patterns=patterns)
    assert error.ratio_rms == pytest.approx(0.0, abs=1e-12)
    assert error.median == pytest.approx(np.log(3))
    skewed = measured * np.exp([0.1, -0.1, 0.0, 0.3])
    error = heldout_error(skewed, measured, n_groups=2, patterns=patterns)
    assert error.ratio_rms == pytest.approx(np.sqrt((0.2**2 + 0.3**2) / 2))
    assert heldout_error(skewed, measured, n_groups=4, patterns=tuple("abcd")).ratio_rms is None


def test_held_out_r_squared_is_of_seconds():
    measured = np.array([1.0, 2.0, 3.0])
    assert heldout_error(measured, measured, n_groups=3).r_squared == 1.0
    mean = np.full(3, 2.0)
    assert heldout_error(mean, measured, n_groups=3).r_squared == pytest.approx(0.0)
    assert heldout_error(mean, mean, n_groups=3).r_squared is None


def test_what_is_left_out_must_be_named():
    made = samples(eq4)
    with pytest.raises(SdsValueError, match="do not say which layout"):
        cross_validate(LinearFitter(kind=ModelKind.EQ4), made, by="layouts")
    with pytest.raises(SdsValueError, match="patterns or layouts, not 'files'"):
        cross_validate(LinearFitter(kind=ModelKind.EQ4), made, by="files")
    one = replace(made, layouts=("xyz",) * len(made))
    with pytest.raises(SdsValueError, match="at least 2 layouts, not 1"):
        cross_validate(LinearFitter(kind=ModelKind.EQ4), one, by="layouts")
    two = replace(made, layouts=("xyz", "zxy") * (len(made) // 2))
    found = cross_validate(LinearFitter(kind=ModelKind.EQ4, gap=GapKind.COUNT), two, by="layouts")
    assert (found.left_out, found.n_patterns) == ("layouts", 2)


def test_a_summary_says_how_sure_the_fit_is():
    noisy = samples(eq4, n_patterns=20, noise=0.05)
    model = LinearFitter(kind=ModelKind.EQ4, gap=GapKind.COUNT).evaluate(noisy)
    text = summary_of(model)
    for words in (
        "eq4, block gap count",
        f"R^2 {model.diagnostics.r_squared:.4g}",
        "BD",
        "residuals, s: least",
        "held out (20 patterns)",
        f"held-out R^2 {model.heldout.r_squared:.4g}",
    ):
        assert words in text
    assert "built in" in summary_of(builtin_model())
    alone = samples(eq4, processes=(2.0,))
    without = LinearFitter(kind=ModelKind.EQ3, gap=GapKind.COUNT).evaluate(alone)
    assert "eq3" in summary_of(without)


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), 0.0, -1.0])
def test_times_that_are_none_are_refused_by_sample(seconds):
    with pytest.raises(SdsValueError, match=r"sample 0 \(a\) took"):
        Samples(
            patterns=("a",), features=(features(),), processes_per_ost=(1.0,), seconds=(seconds,)
        )


def test_samples_are_of_reads_or_of_operations():
    operation = cube((4, 4, 4))
    with pytest.raises(SdsValueError, match="not both"):
        Samples(
            patterns=("a",),
            features=(features(),),
            processes_per_ost=(1.0,),
            operations=(operation,),
            seconds=(1.0,),
        )
    with pytest.raises(SdsValueError, match="samples differ in number"):
        Samples(patterns=("a",), operations=(operation, operation), seconds=(1.0,))
    with pytest.raises(SdsValueError, match="samples differ in number"):
        Samples(patterns=("a",), operations=(operation,), layouts=("x", "y"), seconds=(1.0,))


def test_negative_straight_lines_never_predict_below_the_fastest_read():
    steep = samples(lambda d, g, p: 1e-4 + 1e-9 * d * g + 1e-3 * p, n_patterns=20)
    choice = choose_model(steep)
    smallest = features(depth=1, gap=0)
    for trial in choice.trials:
        if trial.model is not None:
            predicted = trial.model.predict(smallest)
            assert 0 < predicted.low <= predicted.seconds <= predicted.high
    assert choice.chosen.seconds(smallest) > 0


def test_a_tiny_training_set_leaves_the_built_in_model_and_says_why():
    tiny = samples(eq4, n_patterns=2, processes=(1.0, 2.0)).take([0, 2, 4, 6])
    choice = choose_model(tiny)
    assert choice.chosen.kind in {ModelKind.REQUESTS, ModelKind.EQ3}
    reasons = {t.name: t.refused for t in choice.trials if t.model is None}
    assert "4 reads are too few" in reasons["service"]
