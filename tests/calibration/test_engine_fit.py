"""The engine's parameters are found again from the times that they predict."""

import math
from dataclasses import replace
from statistics import median

import numpy as np
import pytest

from sds.calibration.engine_fit import EngineSample, best_depth, fit_parameters
from sds.calibration.engine_timings import cold_reads, warm_reads
from sds.engine import Cache, Executor, builtin_parameters
from sds.errors import SdsValueError

SLOW_DISK = replace(
    builtin_parameters(),
    reads=replace(builtin_parameters().reads, startup_s=8e-3, cud_s_per_byte=4e-9),
    queued_startup_s=1.5e-3,
    buffered_s_per_byte=5e-9,
    direct_s_per_byte=6e-9,
    call_s=2e-6,
    copy_s_per_byte=3e-10,
    touch_s=3e-6,
)


def samples_of(parameters, *, noise=0.0, seed=1):
    random = np.random.default_rng(seed)
    made = []
    for cache, reads in ((Cache.WARM, warm_reads()), (Cache.COLD, cold_reads())):
        for read in reads:
            sample = EngineSample(
                run_bytes=read.run_bytes,
                stride_bytes=read.stride_bytes,
                n_runs=read.n_runs,
                executor=read.executor,
                cache=cache,
                is_mapped=read.is_mapped,
                seconds=1.0,
            )
            seconds = sample.predicted_s(parameters.native())
            made.append(replace(sample, seconds=seconds * math.exp(noise * random.normal())))
    return made


def worst_factor(fitted, samples):
    return max(
        math.exp(abs(math.log(sample.predicted_s(fitted.native()) / sample.seconds)))
        for sample in samples
    )


def test_what_a_short_read_from_a_mapping_takes_is_fitted():
    samples = samples_of(builtin_parameters(), noise=0.1)
    fit = fit_parameters(samples, start=replace(builtin_parameters(), guard_s=200e-6))
    assert 1e-6 < fit.parameters.guard_s < 4e-6


def test_the_times_of_another_device_are_predicted_after_the_fit():
    samples = samples_of(SLOW_DISK)
    assert worst_factor(builtin_parameters(), samples) > 10
    fit = fit_parameters(samples, start=builtin_parameters())
    assert worst_factor(fit.parameters, samples) < 1.4
    assert fit.parameters.is_measured
    assert fit.median_log_error < 0.05


@pytest.fixture(scope="module")
def noisy_fits():
    """Return parameters fitted to nine calibrations of one disk: the noise of one may mislead."""
    return [
        fit_parameters(
            samples_of(SLOW_DISK, noise=0.1, seed=seed), start=builtin_parameters()
        ).parameters
        for seed in range(1, 10)
    ]


@pytest.mark.parametrize("name", ["queued_startup_s", "buffered_s_per_byte", "call_s"])
def test_what_decides_between_strategies_is_found(name, noisy_fits):
    found = median(getattr(fitted, name) for fitted in noisy_fits)
    assert found == pytest.approx(getattr(SLOW_DISK, name), rel=0.3)
    assert median(f.reads.startup_s for f in noisy_fits) == pytest.approx(8e-3, rel=0.15)
    assert median(f.reads.cud_s_per_byte for f in noisy_fits) == pytest.approx(4e-9, rel=0.15)


def test_one_read_that_was_disturbed_does_not_bend_the_others():
    samples = samples_of(SLOW_DISK)
    samples[0] = replace(samples[0], seconds=samples[0].seconds * 100)
    fit = fit_parameters(samples, start=builtin_parameters())
    assert worst_factor(fit.parameters, samples[1:]) < 1.5


def test_what_no_read_tells_stays_as_it_was():
    warm = [s for s in samples_of(SLOW_DISK) if s.cache is Cache.WARM]
    fit = fit_parameters(warm, start=builtin_parameters())
    assert fit.parameters.queued_startup_s == pytest.approx(builtin_parameters().queued_startup_s)
    assert fit.parameters.direct_s_per_byte == pytest.approx(builtin_parameters().direct_s_per_byte)


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_a_time_that_cannot_be_is_refused(seconds):
    samples = samples_of(SLOW_DISK)
    samples[3] = replace(samples[3], seconds=seconds)
    with pytest.raises(SdsValueError, match="cannot have taken"):
        fit_parameters(samples, start=builtin_parameters())


def test_no_reads_are_refused():
    with pytest.raises(SdsValueError, match="give more time"):
        fit_parameters([], start=builtin_parameters())


def test_the_depth_is_the_least_that_is_nearly_the_best():
    assert best_depth({1: 100e-6, 8: 20e-6, 64: 10.5e-6, 256: 10e-6}) == 64
    assert best_depth({1: 5e-3}) == 1


def test_every_executor_is_measured():
    assert {read.executor for read in (*warm_reads(), *cold_reads())} == set(Executor)
