"""Shadow tests: what the reads of both sides say of a replica, and after how many of them."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sds.analyzer import BY_ENGINE, BY_HDF5, find_patterns, merge_patterns
from sds.analyzer.shadow import (
    LOOKS,
    SLOWER,
    WINDOW_READS,
    ShadowOutcome,
    ShadowTest,
    shadow_result,
)
from tests.analyzer.traces import Read, records_of_reads
from tests.sizes import repeated

CUBE = (64, 64, 512)
REPLICA = 7
EVERY = slice(None)
PLANE, LINE = (EVERY, EVERY, 5), (3, 3, EVERY)
FASTER, NOT_FASTER, OPEN = ShadowOutcome.FASTER, ShadowOutcome.NOT_FASTER, ShadowOutcome.OPEN
SECOND = ShadowTest(window=2)


def reads_of(times_ms, *, served_by=BY_HDF5, left_by=0, index=PLANE):
    return [
        Read(index, took_ms=float(ms), served_by=served_by, left_by=left_by, at_ms=20_000 * number)
        for number, ms in enumerate(times_ms)
    ]


def patterns_of(*groups):
    return find_patterns([records_of_reads([read for group in groups for read in group], CUBE)])


def sides(mine_ms, others_ms, *, index=PLANE, others_by=BY_HDF5):
    """Return the patterns of reads that the replica served, and of those that it left alone."""
    return patterns_of(
        reads_of(mine_ms, served_by=REPLICA, index=index),
        reads_of(others_ms, served_by=others_by, left_by=REPLICA, index=index),
    )


def counted(earlier, later):
    """Return the patterns of both, as the catalog has them after two ingests."""
    shapes = {pattern.shape_key: pattern for pattern in earlier}
    for pattern in later:
        known = shapes.get(pattern.shape_key)
        shapes[pattern.shape_key] = pattern if known is None else merge_patterns(known, pattern)
    return list(shapes.values())


@pytest.mark.parametrize("others_by", [BY_HDF5, BY_ENGINE, 3])
def test_a_replica_that_is_faster_than_what_serves_the_others_soon_passes(others_by):
    found = shadow_result(sides([1] * 20, [20] * 20, others_by=others_by), REPLICA, ShadowTest())
    assert found.outcome is FASTER
    assert found.saved_s == pytest.approx(20 * 0.019)
    assert "20 reads of 1 ms on average against 20 of 20 ms" in found.reason


@pytest.mark.parametrize("n", [0, 1, 9])
def test_few_reads_of_either_side_say_nothing(n):
    for mine, others in (([1] * n, [20] * 50), ([1] * 50, [20] * n)):
        found = shadow_result(sides(mine, others), REPLICA, ShadowTest())
        assert (found.outcome, found.n, found.test) == (OPEN, 0, ShadowTest())


def test_only_reads_that_were_left_alone_count_as_the_others():
    """Not what came from memory, what another replica in shadow left, or what HDF5 had to read."""
    patterns = counted(
        sides([5] * 100, [50] * 100),
        patterns_of(
            reads_of([0.5] * 3000),
            reads_of([0.5] * 100, left_by=REPLICA + 1),
            reads_of([0.5] * 100, served_by=REPLICA + 1),
        ),
    )
    found = shadow_result(patterns, REPLICA, SECOND)
    assert found.outcome is FASTER
    assert (found.classes[0].n, found.classes[0].n_others) == (100, 100)


def test_collective_reads_have_no_times_of_their_own():
    patterns = patterns_of(
        [dataclasses.replace(read, collective=True)
         for read in reads_of([1] * 50, served_by=REPLICA)],
        reads_of([20] * 50, left_by=REPLICA),
    )  # fmt: skip
    assert shadow_result(patterns, REPLICA, ShadowTest()).classes == ()


def test_a_replica_that_is_slower_fails_in_the_second_window():
    """In the first it may have been read from the device, and the original from memory."""
    slower = sides([30] * WINDOW_READS, [10] * WINDOW_READS)
    first = shadow_result(slower, REPLICA, ShadowTest())
    assert (first.outcome, first.test.window) == (OPEN, 2)
    assert shadow_result(slower, REPLICA, first.test).classes == ()
    more = counted(slower, sides([30] * 20, [10] * 20))
    second = shadow_result(more, REPLICA, first.test)
    assert second.outcome is NOT_FASTER
    assert second.reason.startswith("measured slower in shadow: plane fixing axis 2, 20 reads")
    assert second.saved_s == pytest.approx(-0.4)


def test_a_replica_that_was_cold_at_first_passes_once_it_is_warm():
    cold = sides([50] * WINDOW_READS, [4] * WINDOW_READS)
    test = shadow_result(cold, REPLICA, ShadowTest()).test
    found = shadow_result(counted(cold, sides([1] * 20, [4] * 20)), REPLICA, test)
    assert found.outcome is FASTER


def test_a_replica_that_gains_nothing_fails_after_two_windows():
    rng = np.random.default_rng(3)
    alike = sides(*rng.uniform(5, 7, (2, WINDOW_READS)))
    assert shadow_result(alike, REPLICA, ShadowTest()).test.window == 2
    found = shadow_result(alike, REPLICA, SECOND)
    assert found.outcome is NOT_FASTER
    assert found.reason.startswith("no gain measured in shadow")


@pytest.mark.parametrize("window", [1, 2])
def test_one_kind_of_read_that_is_slower_outweighs_what_another_gains(window):
    both = patterns_of(
        reads_of([1] * 60, served_by=REPLICA), reads_of([200] * 60, left_by=REPLICA),
        reads_of([3] * 60, served_by=REPLICA, index=LINE),
        reads_of([1] * 60, left_by=REPLICA, index=LINE),
    )  # fmt: skip
    found = shadow_result(both, REPLICA, ShadowTest(window=window))
    assert found.saved_s > 0
    assert [each.is_slower for each in found.classes].count(True) == 1
    assert found.outcome is (OPEN if window == 1 else NOT_FASTER)


@pytest.mark.parametrize(("mine_ms", "outcome"), [(1, FASTER), (90, NOT_FASTER)])
def test_kinds_of_few_reads_are_taken_together(mine_ms, outcome):
    """As of a program that reads each time another number of planes."""
    groups = []
    for k in range(7):
        index = (EVERY, slice(0, 1 << k), 3)
        groups += [
            reads_of([mine_ms] * 9, served_by=REPLICA, index=index),
            reads_of([10] * 9, left_by=REPLICA, index=index),
        ]
    found = shadow_result(patterns_of(*groups), REPLICA, SECOND)
    assert found.outcome is outcome
    assert [each.description for each in found.classes] == ["other reads"]
    assert found.n == 63


def test_a_test_is_looked_at_after_certain_numbers_of_reads():
    """Else looking again and again would in the end find what is not there."""
    slow = sides([30] * 25, [10] * 25)
    seen = dataclasses.replace(SECOND, n_seen=20)
    assert shadow_result(slow, REPLICA, SECOND).outcome is NOT_FASTER
    assert shadow_result(slow, REPLICA, seen).outcome is OPEN
    assert shadow_result(sides([30] * 50, [10] * 50), REPLICA, seen).outcome is NOT_FASTER
    undecided = shadow_result(sides([5, 14] * 10, [6, 15] * 10), REPLICA, SECOND)
    assert (undecided.outcome, undecided.test.n_seen) == (OPEN, 20)


def test_times_that_were_forgotten_since_are_not_taken_away():
    """Those of a file that was written anew."""
    test = shadow_result(sides([5] * 300, [1] * 400), REPLICA, ShadowTest()).test
    assert test.window == 2
    found = shadow_result(sides([1] * 20, [20] * 20), REPLICA, test)
    assert (found.classes[0].n, found.outcome) == (20, FASTER)


def end_of(draw, rng):
    """Go through a whole test, counted every ten reads of each side; return its outcome."""
    test, counts = ShadowTest(), []
    for _ in range(300):
        mine, others = draw(rng)
        counts = counted(counts, sides(mine, others))
        found = shadow_result(counts, REPLICA, test)
        if found.outcome is not OPEN:
            return found
        test = found.test
    raise AssertionError(found.reason)


def lognormal(ratio, spread):
    def draw(rng):
        mine, others = 4 * np.exp(rng.normal(0, spread, (2, 10)))
        return ratio * mine, others

    return draw


def ends_at_two_values(rng):
    """Draw the most that times of one bucket can vary."""
    return np.where(rng.random((2, 10)) < 0.5, 4.3, 8.2)


@pytest.mark.parametrize("draw", [lognormal(1, 0.7), lognormal(1, 0.1), ends_at_two_values])
def test_whole_tests_of_equal_sides_hardly_ever_pass(draw):
    rng = np.random.default_rng(11)
    n = repeated(40, 400)
    assert sum(end_of(draw, rng).outcome is FASTER for _ in range(n)) <= n / 20


@pytest.mark.parametrize(
    ("ratio", "spread", "least"), [(1 / 3, 1.0, 0.95), (0.5, 0.7, 0.9), (0.8, 0.3, 0.9)]
)
def test_whole_tests_of_replicas_that_gain_pass(ratio, spread, least):
    rng = np.random.default_rng(12)
    draw, n = lognormal(ratio, spread), repeated(60, 400)
    assert sum(end_of(draw, rng).outcome is FASTER for _ in range(n)) >= least * n


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.2, 5), st.floats(0.05, 1.5), st.sampled_from(LOOKS))
def test_what_a_test_says_is_what_the_means_say(seed, ratio, spread, n):
    rng = np.random.default_rng(seed)
    mine, others = np.exp(rng.normal(0, spread, (2, min(n, 200))))
    found = shadow_result(sides(4 * ratio * mine, 4 * others), REPLICA, SECOND)
    (planes,) = found.classes
    if found.outcome is FASTER:
        assert planes.mean_s < planes.others_mean_s
    if found.reason.startswith("measured slower"):
        assert planes.mean_s > SLOWER * planes.others_mean_s
    assert planes.error_s >= 0
