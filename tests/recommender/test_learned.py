"""The learned model: what it learns, when it is used, and that what is stored predicts the same."""

from __future__ import annotations

import base64
import io
import math
from dataclasses import replace

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesRegressor

from sds.errors import SdsValueError
from sds.geometry import BlockFeatures
from sds.recommender.choose import choose_model, learn_model, learned_fitter
from sds.recommender.learned import LearnedModel, Trees, known_of, logs_of
from sds.recommender.learning import MIN_PATTERNS, LearnedFitter, _trees_of
from sds.recommender.measures import MEASURES
from sds.recommender.model import CacheState, Via
from sds.recommender.samples import Samples
from sds.recommender.service import ServiceFitter
from sds.recommender.tables import models_for_advice, models_for_table

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


def lesson_of(reads):
    choice = choose_model(reads, via=Via.ENGINE, cache=CacheState.COLD)
    return choice, learn_model(
        reads, choice, without_processes=False, via=Via.ENGINE, cache=CacheState.COLD
    )


@pytest.fixture(scope="module")
def bent():
    reads = samples(bent=True)
    return reads, *lesson_of(reads)


def test_what_equations_do_not_say_is_learned(bent):
    _, choice, lesson = bent
    assert lesson.refused == ""
    assert lesson.model.log_error < 0.6 * choice.chosen.log_error
    assert (lesson.model.via, lesson.model.cache) == (Via.ENGINE, CacheState.COLD)
    assert {h.left_out for h in (lesson.model.heldout, lesson.model.heldout_layouts)} == {
        "patterns",
        "layouts",
    }


def test_where_an_equation_is_true_nothing_learned_is_used():
    choice, lesson = lesson_of(samples(bent=False))
    assert choice.chosen.log_error < 0.1
    assert lesson.model is not None
    assert lesson.model.log_error > 0.95 * choice.chosen.log_error
    assert choice.chosen.name in lesson.refused


def test_too_few_reads_are_refused_in_words():
    _, lesson = lesson_of(samples(bent=True, n_patterns=MIN_PATTERNS - 1))
    assert lesson.model is None
    assert "too few to learn from" in lesson.refused
    assert "budget" in lesson.refused


def test_the_arrays_predict_what_the_fitted_forest_does():
    reads = samples(bent=True)
    measures = reads.measures()
    seconds = np.array(reads.seconds)
    equation, _ = ServiceFitter().solve(measures, seconds)
    known = known_of(logs_of(measures), equation.predict_many(measures))
    forest = ExtraTreesRegressor(n_estimators=10, min_samples_leaf=2, random_state=1)
    forest.fit(known, np.log(seconds))
    trees = _trees_of(forest, logs_of(measures))
    # Thresholds are kept in single precision: a read right on one may go the other way.
    np.testing.assert_allclose(trees.mean(known), forest.predict(known), rtol=0, atol=0.15)
    assert np.median(np.abs(trees.mean(known) - forest.predict(known))) < 1e-6


def test_the_same_reads_give_the_same_model():
    reads = samples(bent=True)
    fitter = LearnedFitter(baseline=ServiceFitter())
    seconds = np.array(reads.seconds)
    one, other = (fitter.solve(reads.measures(), seconds)[0] for _ in range(2))
    assert one == other


def test_one_read_is_predicted_as_many_are(bent):
    reads, _, lesson = bent
    many = lesson.model.predict_many(reads.measures())
    for i in (0, 7, 50):
        one = lesson.model.seconds(reads.features[i], processes_per_ost=reads.processes_per_ost[i])
        assert one == pytest.approx(many[i])


def test_far_outside_the_equation_predicts_with_its_own_interval(bent):
    _, choice, lesson = bent
    far = features(1 << 24, 1 << 20)
    found = lesson.model.predict(far)
    assert found == lesson.model.baseline.predict(far)
    assert lesson.model.baseline.log_error == choice.chosen.log_error
    near = lesson.model.predict(features(64, 64))
    assert near.high / near.seconds < found.high / found.seconds


def test_the_interval_is_the_held_out_one_and_is_not_cut_at_the_floor(bent):
    reads, choice, lesson = bent
    assert any(one < choice.chosen.floor_s * 1.5 for one in reads.seconds)
    for model in (choice.chosen, lesson.model):
        factor = math.exp(max(model.heldout.p95, model.heldout_layouts.p95))
        for one in reads.features[:20]:
            found = model.predict(one)
            assert found.low == pytest.approx(found.seconds / factor)
            assert found.high == pytest.approx(found.seconds * factor)


def test_nineteen_of_twenty_left_out_reads_lie_within_the_interval(bent):
    from sds.recommender.heldout import predict_heldout
    from sds.recommender.learning import N_FOLDS

    reads, choice, lesson = bent
    fitter = learned_fitter(lesson.model, choice, reads, without_processes=False)
    predicted = predict_heldout(fitter, reads, n_folds=N_FOLDS)
    within = np.abs(np.log(predicted / np.array(reads.seconds))) <= lesson.model.interval_log
    assert within.mean() >= 0.95


def _changed(arrays, **changes):
    """Return encoded arrays of which some were replaced."""
    with np.load(io.BytesIO(base64.b64decode(arrays))) as file:
        found = {name: file[name] for name in file.files}
    out = io.BytesIO()
    np.savez(out, **(found | {k: change(found[k]) for k, change in changes.items()}))
    return base64.b64encode(out.getvalue()).decode()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"version": lambda v: v + 1}, "another version"),
        ({"measures": lambda m: m[::-1]}, "another version"),
        ({"right": lambda r: r + 1_000_000}, "do not hang together"),
        ({"right": np.zeros_like}, "do not hang together"),
        ({"roots": lambda r: r - 5}, "do not hang together"),
        ({"feature": lambda f: np.where(f >= 0, len(MEASURES) + 9, f)}, "do not hang together"),
        ({"value": lambda v: v * np.nan}, "do not hang together"),
        ({"threshold": lambda t: t[:-1]}, "do not hang together"),
        ({"low": lambda a: a[:3]}, "do not hang together"),
        ({"low": lambda a: a * np.nan}, "do not hang together"),
        ({"high": lambda a: a + np.inf}, "do not hang together"),
        ({"feature": lambda f: np.where(f >= 0, f, -300)}, "do not hang together"),
        ({"value": lambda v: v + 1000.0}, "do not hang together"),
        ({"feature": lambda f: f[0]}, "damaged"),
        ({"roots": lambda r: r.astype(np.int64)}, "damaged"),
        ({"value": lambda v: v + 1j}, "damaged"),
        ({"version": lambda v: np.array([v, v])}, "damaged"),
        ({"measures": lambda m: np.array(len(m))}, "damaged"),
    ],
)
def test_damaged_arrays_are_refused(bent, changes, words):
    arrays = _changed(bent[2].model.arrays, **changes)
    with pytest.raises(SdsValueError, match=words):
        replace(bent[2].model, arrays=arrays).check()


@pytest.mark.parametrize("text", ["", "no base64!", "QUJD", base64.b64encode(b"PK\3\4").decode()])
def test_what_is_no_array_is_refused(bent, text):
    with pytest.raises(SdsValueError, match="run sds calibrate again"):
        replace(bent[2].model, arrays=text).check()


def test_whatever_is_damaged_is_refused(bent):
    stored = base64.b64decode(bent[2].model.arrays)
    random = np.random.default_rng(7)
    n_refused = 0
    for _ in range(300):
        damaged = bytearray(stored)
        for at in random.integers(0, len(damaged), 4):
            damaged[at] ^= 1 << random.integers(8)
        try:
            replace(bent[2].model, arrays=base64.b64encode(damaged).decode()).check()
        except SdsValueError:
            n_refused += 1
    # Some bytes mean nothing: times and sizes that stand twice.
    assert n_refused > 200


@pytest.mark.parametrize("at", ["method", "flags"])
def test_what_this_zip_cannot_read_is_damaged(bent, at):
    """Compressed in another way, or encrypted."""
    damaged = bytearray(base64.b64decode(bent[2].model.arrays))
    entry = damaged.index(b"PK\x01\x02")
    while entry >= 0:
        if at == "method":
            damaged[entry + 10] = 77
        else:
            damaged[entry + 8] |= 1
        entry = damaged.find(b"PK\x01\x02", entry + 4)
    with pytest.raises(SdsValueError, match="damaged"):
        replace(bent[2].model, arrays=base64.b64encode(damaged).decode()).check()


def test_objects_are_never_unpickled(bent):
    out = io.BytesIO()
    np.savez(out, version=np.array([{"a": 1}], dtype=object))
    arrays = base64.b64encode(out.getvalue()).decode()
    with pytest.raises(SdsValueError, match="damaged"):
        replace(bent[2].model, arrays=arrays).check()


def test_a_summary_names_the_equation_and_both_errors(bent):
    text = bent[2].model.summary()
    assert bent[2].model.name in text
    assert bent[1].chosen.name in text
    assert "held out (40 patterns)" in text
    assert "held out (2 layouts)" in text


def test_advice_is_by_the_best_model_and_tables_are_by_equations(bent, calibrated_by):
    _, choice, lesson = bent
    calibration = calibrated_by(choice, lesson)
    assert all(isinstance(m, LearnedModel) for m in models_for_advice(calibration))
    original, replica = models_for_table(calibration)
    assert original.kind == replica.kind == choice.chosen.kind
    refused = calibrated_by(choice, replace(lesson, refused="an equation predicts as well"))
    assert models_for_advice(refused) == (choice.chosen, choice.chosen)


def test_trees_survive_being_stored(bent):
    model = bent[2].model
    trees = Trees.decoded(model.arrays)
    assert Trees.decoded(trees.encoded()).encoded() == model.arrays


@pytest.fixture
def calibrated_by():
    from sds.geometry import LOCAL_DISK_RAID
    from sds.recommender.calibration import (
        Calibration,
        CalibrationSettings,
        FileSystem,
        Measurement,
    )

    def made(choice, lesson):
        few = samples(bent=True, n_patterns=2)
        return Calibration(
            path="/data",
            file_system=FileSystem(mount_point="/", kind="ext4", source="/dev/sda", device=1),
            created="2026-11-22T00:00:00+00:00",
            settings=CalibrationSettings(raid=LOCAL_DISK_RAID),
            elapsed_s=1.0,
            n_reads=len(few),
            cold_method="as in a test",
            complete=True,
            measurements=tuple(
                Measurement(
                    via=via, cache=CacheState.COLD, samples=few, choice=choice, lesson=lesson
                )
                for via in Via
            ),
        )

    return made
