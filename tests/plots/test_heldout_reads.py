from dataclasses import replace

import numpy as np
import pytest

from sds.calibration.aggregate import aggregate
from sds.errors import NotFoundError, SdsValueError
from sds.plots.heldout_reads import Evidence, equation_of, measurement_of
from sds.recommender.models.cost_model import CacheState, GapKind, ModelKind, Via
from sds.recommender.models.cross_validation import cross_validate, heldout_error, predict_heldout
from sds.recommender.models.model_selection import fitters_for
from sds.recommender.models.regression import LinearFitter
from tests.plots.evidence import ABOUT, evidence
from tests.recommender.measured import samples


def test_heldout_predictions_are_those_of_a_fit_without_the_pattern():
    reads = samples(lambda depth, gap, p: 1e-3 + 1e-6 * depth + 1e-8 * gap + 1e-4 * p, noise=0.2)
    fitter = LinearFitter(kind=ModelKind.EQ4, gap=GapKind.COUNT, relative=True)
    predicted = predict_heldout(fitter, reads)
    features, seconds = reads.feature_matrix(), np.array(reads.seconds)
    for pattern in sorted(set(reads.patterns)):
        out = np.array([name == pattern for name in reads.patterns])
        model, _ = fitter.solve(features.take(np.flatnonzero(~out)), seconds[~out])
        expected = model.predict_many(features.take(np.flatnonzero(out)))
        assert predicted[out].tolist() == expected.tolist()
    error = heldout_error(predicted, seconds, n_groups=12, patterns=reads.patterns)
    assert cross_validate(fitter, reads) == error


@pytest.mark.parametrize("name", [None, "builtin", "service", "sieve", "eq3, block gap count"])
def test_predictions_for_a_calibration_have_the_error_that_it_states(measured, name):
    measurement = measurement_of(measured)
    tried, model = equation_of(measurement, name)
    found = Evidence.of_measurement(measured, measurement, model=name)
    aggregated = aggregate(measurement.samples).samples
    assert sorted(found.observed_s) == sorted(aggregated.seconds)
    log = np.log(np.array(found.predicted_s) / np.array(found.observed_s))
    # Fits that are found step by step depend on the order of reads a little.
    assert np.sqrt(np.mean(log**2)) == pytest.approx(model.heldout.rms, rel=1e-4)
    assert found.interval_log == model.interval_log
    assert found.about.model == tried
    assert ("built-in" in found.about.held_out) == (tried == "builtin")


def test_every_model_that_was_tried_can_be_shown_or_says_why_not(measured):
    measurement = measured.measurements[0]
    names = {t.name for t in measurement.choice.trials}
    assert {f.name for f in fitters_for(measurement.samples)} == names - {"builtin"}
    for trial in measurement.choice.trials:
        if trial.model is None:
            with pytest.raises(SdsValueError, match="could not be fitted"):
                Evidence.of_measurement(measured, measurement, model=trial.name)
        elif trial.name.startswith("eq"):
            assert len(Evidence.of_measurement(measured, measurement, model=trial.name)) > 0


def test_patterns_and_layouts_of_a_calibration_are_told_apart(measured):
    found = Evidence.of_measurement(measured, measured.measurements[0], model="builtin")
    assert set(found.layouts) == {"0,1,2", "2,0,1"}
    assert set(found.patterns) == {f"line along {i}" for i in range(6)}


def test_layouts_that_samples_name_are_kept(measured):
    of = measured.measurements[0]
    names = tuple("ab"[i % 2] for i in range(len(of.samples)))
    named = replace(of, samples=replace(of.samples, layouts=names))
    found = Evidence.of_measurement(measured, named, model="builtin")
    assert set(found.layouts) == {"a", "b"}
    assert set(found.patterns) == set(of.samples.patterns)


def test_reads_of_a_pattern_are_in_the_order_of_their_processes(measured):
    of = measured.measurements[0]
    found = Evidence.of_measurement(measured, of, model="builtin")
    of_pattern = {}
    for seconds, pattern, layout in zip(
        found.observed_s, found.patterns, found.layouts, strict=True
    ):
        processes = of.samples.p[of.samples.seconds.index(seconds)]
        of_pattern.setdefault((pattern, layout), []).append(processes)
    assert set(map(tuple, of_pattern.values())) == {(1.0, 2.0, 4.0)}


def test_cold_reads_are_shown_where_there_are_any(measured):
    (cold,) = measured.measurements
    warm = replace(cold, cache=CacheState.WARM)
    both = replace(measured, measurements=(warm, cold))
    assert measurement_of(both).cache is CacheState.COLD
    assert measurement_of(both, cache=CacheState.WARM) is warm
    assert measurement_of(replace(measured, measurements=(warm,))) is warm


def test_what_was_not_measured_or_tried_is_named_with_what_was(measured):
    with pytest.raises(NotFoundError, match=r"no reads engine cold or warm; it has hdf5 cold"):
        measurement_of(measured, via=Via.ENGINE)
    with pytest.raises(NotFoundError, match=r"no model 'eq7' was tried; there are .*builtin"):
        equation_of(measured.measurements[0], "eq7")


def test_nothing_to_show_is_refused():
    with pytest.raises(SdsValueError, match="there are no reads"):
        Evidence(
            about=ABOUT, patterns=(), layouts=(), observed_s=(), predicted_s=(), interval_log=0.1
        )
    with pytest.raises(SdsValueError, match="one of each per read"):
        Evidence(
            about=ABOUT,
            patterns=("a",),
            layouts=(),
            observed_s=(1.0,),
            predicted_s=(1.0,),
            interval_log=0.1,
        )


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_times_that_are_none_are_named(bad):
    with pytest.raises(SdsValueError, match=r"read 1 \(plane, x\) took"):
        evidence([("line", "x", 1.0, 1.0), ("plane", "x", bad, 1.0)])
    with pytest.raises(SdsValueError, match="predicted to take"):
        evidence([("line", "x", 1.0, bad)])


@pytest.mark.parametrize("bad", [-0.1, float("nan"), float("inf")])
def test_errors_that_are_none_are_refused(bad):
    with pytest.raises(SdsValueError, match="standard deviation"):
        evidence([("line", "x", 1.0, 1.0)], interval_log=bad)
