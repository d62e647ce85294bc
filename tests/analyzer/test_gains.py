"""Time saved by engine and replicas, by what traced reads took."""

import pytest

from sds.analyzer import BY_ENGINE, BY_HDF5, find_patterns
from sds.analyzer.gains import measured_gains
from tests.analyzer.traces import Read, records_of_reads

CUBE = (64, 64, 512)
EVERY = slice(None)


def gains(*served):
    """Return gains by what served, of planes: (what, ms of each) in turns."""
    reads = [
        Read((EVERY, EVERY, i), took_ms=ms, served_by=what, at_ms=20_000 * i)
        for i, (what, ms) in enumerate((what, ms) for what, times in served for ms in times)
    ]
    (pattern,) = find_patterns([records_of_reads(reads, CUBE)])
    found = measured_gains(pattern)
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
