"""Time saved by engine and replicas, by what traced reads took."""

import numpy as np
import pytest

from sds.analyzer import BY_ENGINE, BY_HDF5, find_patterns, merge_patterns
from sds.analyzer.gains import measured_gains, replica_gain, summed_savings
from tests.analyzer.traces import Read, records_of_reads

CUBE = (64, 64, 512)
EVERY = slice(None)


def pattern_of(*served, left_by=0, index=(EVERY, EVERY)):
    reads = [
        Read((*index, i), took_ms=ms, served_by=what, left_by=left_by, at_ms=20_000 * i)
        for i, (what, ms) in enumerate((what, ms) for what, times in served for ms in times)
    ]
    (pattern,) = find_patterns([records_of_reads(reads, CUBE)])
    return pattern


def gains(*served):
    """Return gains by what served, of planes: (what, ms of each) in turns."""
    found = measured_gains(pattern_of(*served))
    return {gain.times.served_by: gain for gain in found}


def test_a_replica_is_compared_with_the_original_and_the_engine_with_hdf5():
    found = gains((BY_HDF5, [100] * 5), (BY_ENGINE, [10] * 4), (7, [1] * 6))
    assert list(found) == [BY_HDF5, BY_ENGINE, 7]
    assert found[BY_HDF5].saved_s is None
    assert found[BY_ENGINE].saved_s == pytest.approx(4 * 0.09)
    assert found[7].saved_s == pytest.approx(6 * 0.1, rel=0.5)  # as most of the original's


def test_one_slow_read_says_nothing_of_the_others():
    found = gains((BY_HDF5, [900]), (BY_ENGINE, [2, 2, 2, 2]), (7, [1, 1]))
    assert found[BY_ENGINE].saved_s is None
    assert found[7].saved_s == pytest.approx(2 * 0.001, rel=0.5)


def test_of_too_few_reads_nothing_is_known():
    assert gains((BY_HDF5, [9, 9]), (7, [1, 1, 1]))[7].saved_s is None
    assert gains((7, [1, 1, 1]))[7].saved_s is None


def test_what_took_longer_saves_less_than_nothing():
    assert gains((BY_HDF5, [1, 1, 1]), (7, [4, 4]))[7].saved_s == pytest.approx(-0.006)


def test_reads_that_it_left_alone_in_shadow_are_the_better_comparison():
    before, in_shadow = pattern_of((BY_HDF5, [900] * 50)), pattern_of((BY_HDF5, [8] * 3), left_by=7)
    mine = pattern_of((7, [1] * 6))
    found = measured_gains(merge_patterns(merge_patterns(before, in_shadow), mine))
    assert found[-1].saved_s == pytest.approx(6 * 0.007, rel=0.5)
    assert found[-1].compared_s < 0.1


def test_what_a_replica_saved_is_summed_over_patterns():
    planes = pattern_of((BY_HDF5, [100] * 5), (7, [1] * 6), (8, [2] * 9))
    lines = pattern_of((BY_HDF5, [4] * 2), (7, [1] * 5), index=(3, 3))
    found = replica_gain([planes, lines], 7)
    (of_planes,) = [each for each in measured_gains(planes) if each.times.served_by == 7]
    assert (found.n, found.n_compared) == (11, 6)
    assert found.total_s == pytest.approx(0.011)
    assert found.saved_s == pytest.approx(of_planes.saved_s)
    assert found.last_ns == max(
        times.last_ns for one in (planes, lines) for times in one.times if times.served_by == 7
    )
    assert 0 < found.last_ns < planes.last_ns
    assert replica_gain([lines], 7).saved_s is None
    assert replica_gain([planes, lines], 9).n == 0


@pytest.mark.parametrize("spread", [0.05, 0.3, 1.0])
@pytest.mark.parametrize("n", [6, 20, 200])
def test_the_interval_of_a_median_holds_it_in_19_of_20_samples(spread, n):
    rng = np.random.default_rng(5)
    held, n_samples = 0, 60
    for _ in range(n_samples):
        median_ms = 2 ** rng.uniform(0, 1)  # anywhere in a bucket
        (times,) = pattern_of((7, list(median_ms * rng.lognormal(0, spread, n)))).times
        low, high = times.median_interval_s
        held += low <= 1e-3 * median_ms <= high
        assert low <= times.median_s <= high
    assert held >= 0.9 * n_samples


def test_what_is_saved_has_an_interval_that_narrows_with_reads():
    rng = np.random.default_rng(6)

    def of(n):
        slow, fast = rng.lognormal(2, 1, n), rng.lognormal(-2, 1, n)
        gain = gains((BY_HDF5, list(slow)), (7, list(fast)))[7]
        low, high = gain.saved_interval_s
        assert low <= gain.saved_s <= high
        return (high - low) / gain.saved_s

    assert of(400) < 0.8 * of(9)
    assert gains((BY_HDF5, [9, 9]), (7, [1, 1, 1]))[7].saved_interval_s is None


def test_errors_of_a_sum_are_not_taken_to_cancel():
    assert summed_savings([]) is None
    assert summed_savings([(10, 7, 13), (5, 1, 6)]) == (15, 8, 19)
