"""Shadow tests: what the reads of both sides say of a replica, and after how many of them."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sds.analyzer import BY_ENGINE, BY_HDF5, find_patterns, merge_patterns
from sds.analyzer.shadow import (
    SLOWER,
    WINDOW_READS,
    ShadowOutcome,
    ShadowTest,
    begin_shadow,
    shadow_result,
)
from tests.analyzer.traces import Read, records_of_reads

CUBE = (64, 64, 512)
REPLICA = 7
EVERY = slice(None)
PLANE, LINE = (EVERY, EVERY, 5), (3, 3, EVERY)
FASTER, NOT_FASTER, OPEN = ShadowOutcome.FASTER, ShadowOutcome.NOT_FASTER, ShadowOutcome.OPEN


def reads_of(times_ms, *, served_by, index=PLANE):
    return [
        Read(index, took_ms=float(ms), served_by=served_by, at_ms=20_000 * number)
        for number, ms in enumerate(times_ms)
    ]


def patterns_of(*groups):
    return find_patterns([records_of_reads([read for group in groups for read in group], CUBE)])


def counted(earlier, later):
    """Return the patterns of both, as the catalog has them after two ingests."""
    shapes = {pattern.shape_key: pattern for pattern in earlier}
    for pattern in later:
        known = shapes.get(pattern.shape_key)
        shapes[pattern.shape_key] = pattern if known is None else merge_patterns(known, pattern)
    return list(shapes.values())


def sides(mine_ms, others_ms, *, index=PLANE, others_by=BY_HDF5):
    return patterns_of(
        reads_of(mine_ms, served_by=REPLICA, index=index),
        reads_of(others_ms, served_by=others_by, index=index),
    )


SECOND = ShadowTest(window=2)


@pytest.mark.parametrize("others_by", [BY_HDF5, BY_ENGINE, 3])
def test_a_replica_that_is_faster_than_what_serves_the_others_soon_passes(others_by):
    found = shadow_result(sides([1] * 12, [20] * 12, others_by=others_by), REPLICA, ShadowTest())
    assert found.outcome is FASTER
    assert found.saved_s == pytest.approx(12 * 0.019)
    assert "12 reads of 0.001 s on average against 12 of 0.02 s" in found.reason


@pytest.mark.parametrize("n", [0, 1, 9])
def test_few_reads_of_either_side_say_nothing(n):
    for mine, others in (([1] * n, [20] * 50), ([1] * 50, [20] * n)):
        found = shadow_result(sides(mine, others), REPLICA, ShadowTest())
        assert (found.outcome, found.n, found.next_test) == (OPEN, 0, None)


def test_what_was_counted_before_counts_for_neither_side():
    before = sides([500] * 40, [1] * 400)
    test = begin_shadow(before, REPLICA)
    assert shadow_result(before, REPLICA, test).classes == ()
    found = shadow_result(counted(before, sides([1] * 20, [20] * 20)), REPLICA, test)
    assert found.outcome is FASTER
    (planes,) = found.classes
    assert (planes.n, planes.n_others) == (20, 20)
    assert (planes.mean_s, planes.others_mean_s) == pytest.approx((0.001, 0.02))


def test_times_that_were_forgotten_since_are_not_taken_away():
    test = begin_shadow(sides([5] * 300, [1] * 400), REPLICA)
    found = shadow_result(sides([1] * 20, [20] * 20), REPLICA, test)
    assert found.classes[0].n == 20


def test_a_replica_that_is_slower_fails_in_the_second_window():
    """In the first it may have been read from the device, and the original from memory."""
    slower = sides([30] * WINDOW_READS, [10] * WINDOW_READS)
    first = shadow_result(slower, REPLICA, ShadowTest())
    assert first.outcome is OPEN
    assert first.next_test.window == 2
    assert shadow_result(slower, REPLICA, first.next_test).outcome is OPEN
    more = counted(slower, sides([30] * 10, [10] * 10))
    second = shadow_result(more, REPLICA, first.next_test)
    assert second.outcome is NOT_FASTER
    assert second.reason.startswith("measured slower in shadow: plane fixing axis 2, 10 reads")
    assert second.saved_s == pytest.approx(-0.2)


def test_a_replica_that_was_cold_at_first_passes_once_it_is_warm():
    cold = sides([50] * WINDOW_READS, [4] * WINDOW_READS)
    test = shadow_result(cold, REPLICA, ShadowTest()).next_test
    found = shadow_result(counted(cold, sides([1] * 20, [4] * 20)), REPLICA, test)
    assert found.outcome is FASTER


def test_a_replica_that_gains_nothing_fails_after_two_windows():
    rng = np.random.default_rng(3)
    alike = sides(*rng.uniform(5, 7, (2, WINDOW_READS)))
    assert shadow_result(alike, REPLICA, ShadowTest()).next_test is not None
    found = shadow_result(alike, REPLICA, SECOND)
    assert found.outcome is NOT_FASTER
    assert found.reason.startswith("no gain measured in shadow")


@pytest.mark.parametrize("window", [1, 2])
def test_one_kind_of_read_that_is_slower_outweighs_what_another_gains(window):
    both = patterns_of(
        reads_of([1] * 60, served_by=REPLICA), reads_of([200] * 60, served_by=BY_HDF5),
        reads_of([3] * 60, served_by=REPLICA, index=LINE),
        reads_of([1] * 60, served_by=BY_HDF5, index=LINE),
    )  # fmt: skip
    found = shadow_result(both, REPLICA, ShadowTest(window=window))
    assert found.saved_s > 0
    assert [each.is_slower for each in found.classes].count(True) == 1
    assert found.outcome is (OPEN if window == 1 else NOT_FASTER)


def test_reads_of_other_replicas_and_collective_ones_are_not_the_replicas():
    patterns = patterns_of(
        reads_of([1] * 50, served_by=REPLICA + 1),
        [dataclasses.replace(read, collective=True)
         for read in reads_of([1] * 50, served_by=REPLICA)],
        reads_of([20] * 50, served_by=BY_HDF5),
    )  # fmt: skip
    assert shadow_result(patterns, REPLICA, ShadowTest()).classes == ()


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.2, 5), st.floats(0.05, 1.5), st.integers(1, 4))
def test_noise_hardly_ever_decides_wrongly(seed, ratio, spread, rounds):
    """However often it is looked at: a replica as fast as the others, or twice as slow, never
    passes by chance, and one twice as fast never fails.
    """
    rng = np.random.default_rng(seed)
    n = 50 * rounds
    mine, others = np.exp(rng.normal(0, spread, (2, n)))
    found = shadow_result(sides(4 * ratio * mine, 4 * others), REPLICA, SECOND)
    (planes,) = found.classes
    if found.outcome is FASTER:
        assert planes.mean_s < planes.others_mean_s
    if found.reason.startswith("measured slower"):
        assert planes.mean_s > SLOWER * planes.others_mean_s


def test_equal_sides_pass_in_fewer_than_one_of_a_hundred_looks():
    rng = np.random.default_rng(11)
    passed = 0
    for _ in range(400):
        mine, others = 4 * np.exp(rng.normal(0, 0.7, (2, 60)))
        passed += shadow_result(sides(mine, others), REPLICA, SECOND).outcome is FASTER
    assert passed < 4
