import math
from dataclasses import replace

import numpy as np
import pytest

from sds.calibration.drift import ReadError, find_change, noise_of
from sds.calibration.results import Calibration, CalibrationSettings, FileSystem
from sds.calibration.run import fit_measurement
from sds.calibration.trace_fit import LeftOut, TracedRead, change_since, refit, refit_explained
from sds.errors import SdsValueError
from sds.recommender.models.cost_model import CacheState, Via
from tests.recommender.measured import features, samples

MODEL_ERROR, NOISE = 0.5, 0.25


def errors(random, n, *, kinds=6, shift=0.0, own=None):
    """Errors of n reads in turn: each kind's own, noise, and what changed."""
    own = random.normal(0.0, MODEL_ERROR, kinds) if own is None else own
    return [
        ReadError(
            group=f"kind {i % kinds}",
            log_error=float(own[i % kinds] + random.normal(0.0, NOISE) + shift),
            model_error=MODEL_ERROR,
            noise=NOISE,
        )
        for i in range(n)
    ]


def test_nothing_changed_is_seldom_called_a_change():
    """200 histories of 500 reads: one false alarm in 140,000 reads would be 0.7 of them."""
    random = np.random.default_rng(5)
    assert sum(find_change(errors(random, 500)) is not None for _ in range(200)) <= 4


@pytest.mark.parametrize("factor", [2.0, 0.5])
def test_a_factor_of_two_is_found(factor):
    random = np.random.default_rng(6)
    found = 0
    for _ in range(50):
        own = random.normal(0.0, MODEL_ERROR, 6)
        before = errors(random, 60, own=own)
        change = find_change(before + errors(random, 60, own=own, shift=math.log(factor)))
        if change is not None and (change.factor > 1) == (factor > 1):
            found += 1
            assert change.n_groups >= 2
    assert found >= 47


def test_a_wrong_model_is_no_change():
    """One kind is predicted wrong by a factor of three, each time alike."""
    random = np.random.default_rng(7)
    own = np.array([math.log(3.0), 0.1, -0.2, 0.3])
    assert find_change(errors(random, 400, kinds=4, own=own)) is None


def test_a_busy_neighbour_is_no_change():
    random = np.random.default_rng(8)
    reads = errors(random, 100)
    for i in (20, 50, 80):
        reads[i] = ReadError(
            group=reads[i].group, log_error=5.0, model_error=MODEL_ERROR, noise=NOISE
        )
    assert find_change(reads) is None


def test_one_kind_alone_does_not_condemn_a_file_system():
    assert find_change([*errors(np.random.default_rng(9), 60, kinds=1, shift=9.0)]) is None


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_times_that_are_none_are_refused(value):
    with pytest.raises(SdsValueError, match="kind 1"):
        ReadError(group="kind 1", log_error=value, model_error=0.1, noise=0.1)


def law(depth, gap, p):
    return 1e-3 + 1e-6 * depth + 1e-8 * gap + 1e-5 * p


@pytest.fixture(scope="module")
def calibration():
    measured = {
        CacheState.COLD: samples(law, noise=0.1),
        CacheState.WARM: samples(lambda d, g, p: law(d, g, p) / 50, noise=0.1, seed=2),
    }
    return Calibration(
        path="/scratch/me",
        file_system=FileSystem(mount_point="/scratch", kind="ext4", source="/dev/x", device=1),
        created="2026-01-01T00:00:00+00:00",
        settings=CalibrationSettings(),
        elapsed_s=1.0,
        n_reads=1,
        cold_method="",
        complete=True,
        measurements=tuple(
            fit_measurement(of, without_processes=False, via=Via.HDF5, cache=cache)
            for cache, of in measured.items()
        ),
    )


def traced(n, *, slower=1.0, kinds=5, seed=1, state=1.0):
    random = np.random.default_rng(seed)
    depths = [int(10 ** (1 + k)) for k in range(kinds)]
    return [
        TracedRead(
            group=f"kind {i % kinds}",
            start_ns=i,
            seconds=float(
                law(depths[i % kinds], 10, 1.0) * slower / state * np.exp(random.normal(0, 0.1))
            ),
            via=Via.HDF5,
            features=features(depth=depths[i % kinds], gap=10, n_bytes=4096 * depths[i % kinds]),
        )
        for i in range(n)
    ]


def test_reads_as_calibrated_tell_of_no_change(calibration):
    assert change_since(calibration, traced(300)) is None
    assert change_since(calibration, traced(300, state=50.0)) is None, "all of them warm"


def test_a_slower_file_system_is_told(calibration):
    reads = [*traced(100), *(r for r in traced(300, slower=4.0)[100:])]
    change = change_since(calibration, reads)
    assert change is not None
    assert 2.0 < change.factor < 8.0
    assert "times as long as predicted" in change.text


def test_between_warm_and_cold_anything_may_be(calibration):
    assert change_since(calibration, traced(300, slower=0.2)) is None


def test_to_refit_twice_is_to_refit_once(calibration):
    reads = traced(200)
    once = refit(calibration, reads)
    cold = once.measurement(via=Via.HDF5, cache=CacheState.COLD)
    assert 0 < cold.n_traced <= 9 * 5, "a few of each kind"
    assert refit(once, reads) is once
    assert refit(once, list(reversed(reads))) is once
    assert refit(calibration, []) is calibration


def test_a_loop_counts_as_its_reads_and_weighs_as_one(calibration):
    """A program that reads one plane a million times does not fit the model to that plane."""
    reads = [*traced(200), *traced(20, slower=1e4)]
    loops = [replace(read, n_reads=1000) for read in reads]
    (fitted, single), (again, many) = (refit_explained(calibration, r) for r in (reads, loops))
    assert again == fitted
    assert set(single) == {LeftOut.ENOUGH, LeftOut.FAR}
    assert many == {reason: 1000 * n for reason, n in single.items()}


def test_disturbed_and_impossible_reads_are_not_fitted(calibration):
    wrong = [*traced(20, slower=1e4), *traced(5)[:1]]
    wrong += [
        TracedRead(group="nan", start_ns=1, seconds=float("nan"), via=Via.HDF5, features=features())
    ]
    refitted = refit(calibration, wrong)
    assert sum(m.n_traced for m in refitted.measurements) == 1


def test_traces_say_nothing_of_ways_that_were_not_measured(calibration):
    reads = [
        TracedRead(group="e", start_ns=1, seconds=1e-3, via=Via.ENGINE, features=features())
    ] * 50
    assert refit(calibration, reads) is calibration
    assert change_since(calibration, reads) is None


def test_a_calibration_s_noise_is_that_of_reads_of_one_shape():
    of = samples(law, n_patterns=200, processes=(1.0,), noise=0.3)
    assert noise_of(of) == pytest.approx(0.3, rel=0.25)
