"""The residual model: what it learns, when it is used, that a stored one predicts the same."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from sds.calibration.results import Calibration, CalibrationSettings, FileSystem
from sds.calibration.run import fit_measurement
from sds.geometry import LOCAL_DISK_RAID, BlockFeatures
from sds.recommender.models.cost_model import CacheState, Via
from sds.recommender.models.cross_validation import predict_heldout
from sds.recommender.models.model_selection import residual_fitter
from sds.recommender.models.models_in_use import comparable_models, models_for_table
from sds.recommender.models.residual_forest import MIN_PATTERNS, ResidualForest
from sds.recommender.models.samples import Samples

LAYOUTS = ("0,1,2", "2,0,1")


def features(runs, run_bytes):
    touched = runs * max(run_bytes, 4096)
    return BlockFeatures(
        runs=runs,
        block_depth=runs,
        block_gap_count=runs - 1,
        block_gap_distance=16 * (runs - 1),
        block_gap_paper=16 * (runs - 1),
        bytes_useful=runs * run_bytes,
        bytes_touched=touched,
        osts_touched=1,
        disks_touched=1,
        exact=True,
        sieve_requests=max(1, touched >> 16),
        sieve_jumps=runs,
        sieve_bytes=touched,
    )


def samples(*, bent, n_patterns=40, seed=3):
    """Return reads; bent: those of 64 to 1024 runs take longer, which no equation says."""
    random = np.random.default_rng(seed)
    rows = []
    for pattern in range(n_patterns):
        runs = int(2 ** random.uniform(0, 14))
        for layout in LAYOUTS:
            run_bytes = int(2 ** random.uniform(3, 14))
            for p in (1.0, 2.0, 4.0):
                touched = features(runs, run_bytes)
                seconds = 1e-4 + 2e-5 * touched.sieve_jumps + 1e-9 * touched.sieve_bytes * p
                if bent and 64 <= runs <= 1024:
                    seconds *= 6.0
                seconds *= math.exp(random.normal(0.0, 0.02))
                rows.append((f"pattern {pattern}", layout, touched, p, seconds))
    patterns, layouts, read, p, seconds = zip(*rows, strict=True)
    return Samples(
        patterns=patterns, layouts=layouts, features=read, processes_per_ost=p, seconds=seconds
    )


def calibrated_by(reads):
    """Return a calibration of a file system where reads of both ways take as long."""
    fitted = fit_measurement(reads, without_processes=False, via=Via.ENGINE, cache=CacheState.COLD)
    return Calibration(
        path="/data",
        file_system=FileSystem(mount_point="/", kind="ext4", source="/dev/sda", device=1),
        created="2026-11-22T00:00:00+00:00",
        settings=CalibrationSettings(raid=LOCAL_DISK_RAID),
        elapsed_s=1.0,
        n_reads=len(reads),
        cold_method="as in a test",
        complete=True,
        measurements=tuple(replace(fitted, via=via) for via in Via),
    )


@pytest.fixture(scope="module")
def bent():
    return calibrated_by(samples(bent=True))


@pytest.fixture(scope="module")
def measurement(bent):
    return bent.measurements[0]


def test_what_equations_leave_over_is_learned(measurement):
    model = measurement.residual_model
    assert measurement.residual.refused == ""
    assert measurement.best is model
    assert model.log_error < 0.6 * measurement.choice.chosen.log_error
    assert (model.via, model.cache) == (Via.ENGINE, CacheState.COLD)
    assert {h.left_out for h in (model.heldout, model.heldout_layouts)} == {"patterns", "layouts"}


def test_where_an_equation_is_true_nothing_learned_is_used():
    (measurement, _) = calibrated_by(samples(bent=False)).measurements
    chosen = measurement.choice.chosen
    assert chosen.log_error < 0.1
    assert measurement.residual_model.log_error > 0.95 * chosen.log_error
    assert chosen.name in measurement.residual.refused
    assert measurement.best is chosen


def test_too_few_reads_are_refused_in_words():
    (measurement, _) = calibrated_by(samples(bent=True, n_patterns=MIN_PATTERNS - 1)).measurements
    assert measurement.residual_model is None
    assert "too few to learn from" in measurement.residual.refused
    assert "budget" in measurement.residual.refused


def test_a_stored_calibration_predicts_the_same(bent):
    stored = Calibration.from_json(bent.to_json())
    assert stored == bent
    features = samples(bent=True, seed=4).feature_matrix()
    before, after = (c.measurements[0].best.predict_many(features) for c in (bent, stored))
    assert before.tolist() == after.tolist()


def test_calibrations_from_before_it_was_tried_predict_by_their_equation(bent):
    (older, _) = bent.measurements
    older = replace(older, residual=None)
    assert older.best == older.choice.chosen
    assert older.residual_model is None


def test_one_read_is_predicted_as_many_are(measurement):
    model, reads = measurement.residual_model, measurement.samples
    many = model.predict_many(reads.feature_matrix())
    for i in (0, 7, 50):
        one = model.seconds(reads.features[i], processes_per_ost=reads.processes_per_ost[i])
        assert one == pytest.approx(many[i])


def test_far_outside_the_equation_predicts_with_its_own_interval(measurement):
    model = measurement.residual_model
    far = features(1 << 24, 1 << 20)
    found = model.predict(far)
    assert found == model.baseline.predict(far)
    assert model.baseline.log_error == measurement.choice.chosen.log_error
    near = model.predict(features(64, 64))
    assert near.high / near.seconds < found.high / found.seconds


def test_the_interval_is_the_held_out_one_and_is_not_cut_at_the_floor(measurement):
    chosen, reads = measurement.choice.chosen, measurement.samples
    assert any(one < chosen.floor_s * 1.5 for one in reads.seconds)
    for model in (chosen, measurement.residual_model):
        factor = math.exp(max(model.heldout.p95, model.heldout_layouts.p95))
        for one in reads.features[:20]:
            found = model.predict(one)
            assert found.low == pytest.approx(found.seconds / factor)
            assert found.high == pytest.approx(found.seconds * factor)


def test_nineteen_of_twenty_left_out_reads_lie_within_the_interval(measurement):
    reads = measurement.samples
    fitter = residual_fitter(measurement.choice, reads, without_processes=False)
    predicted = predict_heldout(fitter, reads, n_folds=fitter.n_folds)
    error = np.abs(np.log(predicted / np.array(reads.seconds)))
    assert (error <= measurement.residual_model.interval_log).mean() >= 0.95


def test_a_summary_names_the_equation_and_both_errors(measurement):
    model = measurement.residual_model
    text = model.summary()
    assert model.name in text
    assert measurement.choice.chosen.name in text
    assert "held out (40 patterns)" in text
    assert "held out (2 layouts)" in text


def test_advice_and_tables_are_by_equations(bent):
    chosen = bent.measurements[0].choice.chosen
    assert isinstance(bent.measurements[0].best, ResidualForest)
    assert comparable_models(bent) == (chosen, chosen)
    original, replica = models_for_table(bent)
    assert original.kind == replica.kind == chosen.kind
