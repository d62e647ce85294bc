"""A machine's numbers are found again from reads that were timed on it."""

import math
from dataclasses import replace

import numpy as np
import pytest

from sds.errors import SdsValueError
from sds.geometry import RaidLayout, StripeLayout
from sds.simulator import Operation, hopper, simulate_many
from sds.simulator.parameter_fit import FREE, MIN_OPERATIONS, fit_machine, mean_seconds, searched

EXTENT = (64, 64, 512)
# Two OSTs of two disks that remember nothing but their last access.
TRUE = replace(
    hopper(),
    stripes=StripeLayout(stripe_size_bytes=1 << 20, stripe_count=2),
    raid=RaidLayout(unit_bytes=64 << 10, data_disks=2, min_request_bytes=4096),
    n_osts=2,
    page_bytes=1,
    read_ahead_bytes=0,
    processes_per_node=1,
    ost_forgets=True,
    client_jitter_s=40e-6,
    client_start_s=0.3e-3,
    disk_settle_s=3e-3,
    disk_full_stroke_s=10e-3,
    disk_first_s=5e-3,
    disk_request_s=30e-6,
    disk_bytes_per_s=80e6,
)


def reads(n, seed=1):
    """Random boxes, each divided among four processes along a random axis."""
    random = np.random.default_rng(seed)
    operations = []
    for _ in range(n):
        count = np.array([int(random.integers(4, 33)) for _ in EXTENT])
        start = np.array(
            [int(random.integers(e - c + 1)) for e, c in zip(EXTENT, count, strict=True)]
        )
        axis = int(random.integers(3))
        slabs = np.ones((4, 4, 3), dtype=np.int64)
        slabs[:, 0] = start
        slabs[:, 2] = count
        slabs[:, 2, axis] = count[axis] // 4
        slabs[:, 0, axis] += np.arange(4) * (count[axis] // 4)
        operations.append(Operation(extent=EXTENT, slabs=slabs, element_size_bytes=2))
    return operations


WRONG = replace(
    TRUE,
    network_latency_s=100e-6,
    client_jitter_s=100e-6,
    disk_settle_s=5e-3,
    disk_full_stroke_s=12e-3,
    disk_first_s=8e-3,
    disk_request_s=60e-6,
    disk_bytes_per_s=60e6,
)
# Four processes on one node of two processors.
SHARED = replace(TRUE, processes_per_node=4, processors_per_node=2, client_request_s=60e-6)
N = 80
OPERATIONS = reads(N)
GROUPS = [str(i // 2) for i in range(N)]


@pytest.fixture(scope="module")
def seconds():
    other_draws = replace(TRUE, jitter_seed=1000)
    return [run.seconds for run in simulate_many(OPERATIONS, other_draws)]


@pytest.fixture(scope="module")
def fitted(seconds):
    return fit_machine(OPERATIONS, seconds, WRONG, groups=GROUPS)


def within_20_percent(predicted, measured):
    return np.mean(np.abs(np.log(np.array(predicted) / measured)) < math.log(1.2))


def test_wrong_guesses_are_mended(fitted):
    """By reads that were not fitted to: what was far off is near."""
    others = reads(60, seed=2)
    measured = np.array([run.seconds for run in simulate_many(others, TRUE)])
    guessed = [run.seconds for run in simulate_many(others, WRONG)]
    predicted = fitted.predict_many(others)
    assert within_20_percent(guessed, measured) < 0.4
    assert within_20_percent([p.seconds for p in predicted], measured) > 0.8
    for one in predicted:
        assert one.low_s < one.seconds < one.high_s
        assert one.high_s / one.seconds == pytest.approx(math.exp(fitted.interval_error))
    assert fitted.predict_many(others[:3]) == predicted[:3]


def test_the_interval_holds_about_two_in_three(fitted):
    """Also where a few reads err most, so that the root mean square is far greater."""
    others = reads(200, seed=3)
    measured = np.array([run.seconds for run in simulate_many(others, TRUE)])
    predicted = fitted.predict_many(others)
    held = [p.low_s <= m <= p.high_s for p, m in zip(predicted, measured, strict=True)]
    assert 0.5 < np.mean(held) < 0.8


def test_the_error_is_that_of_reads_left_out(fitted):
    assert fitted.n_fitted == 3 * N // 4
    assert fitted.n_left_out == N // 4
    assert 0 < fitted.median_error < fitted.log_error < 0.25
    assert fitted.median_error < fitted.interval_error < fitted.p95_error < 0.6
    # What a longer seek takes more is not searched.
    found = fitted.parameters
    assert found.disk_full_stroke_s - found.disk_settle_s == pytest.approx(7e-3)


@pytest.mark.long
def test_the_same_reads_give_the_same_machine(seconds):
    few = slice(0, 40)
    found = [
        fit_machine(OPERATIONS[few], seconds[few], TRUE, groups=GROUPS[few], n_threads=n)
        for n in (1, 2)
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seconds": [1.0]}, "one of each per read"),
        ({"seconds": [float("nan")] * N}, "read 0 took nan s: measure it again"),
        ({"seconds": [1.0] * (N - 1) + [0.0]}, "read 79 took 0.0 s"),
        ({"start": replace(TRUE, disk_first_s=0.0)}, "disk_first_s is 0.0: the search needs"),
        ({"start": replace(SHARED, client_request_s=0.0)}, "client_request_s is 0.0: the search"),
        ({"groups": ["one"] * N}, f"0 timed reads .* give at least {MIN_OPERATIONS}"),
    ],
)
def test_what_cannot_be_fitted_is_refused_with_words(change, words):
    given = {"seconds": [1.0] * N, "start": TRUE, "groups": GROUPS, **change}
    with pytest.raises(SdsValueError, match=words):
        fit_machine(OPERATIONS, given["seconds"], given["start"], groups=given["groups"])


def test_what_is_searched_are_numbers_of_the_machine():
    assert set(searched(SHARED)) <= set(TRUE.__dataclass_fields__)


def test_work_is_searched_where_processes_wait_for_each_others():
    assert set(searched(SHARED)) ^ set(FREE) == {"client_request_s", "network_latency_s"}
    assert searched(TRUE) == searched(replace(SHARED, processors_per_node=4)) == FREE


@pytest.mark.long
def test_work_is_found_where_processes_wait_for_each_others():
    measured = [run.seconds for run in simulate_many(OPERATIONS, replace(SHARED, jitter_seed=9))]
    start = replace(SHARED, client_request_s=25e-6)
    found = fit_machine(OPERATIONS, measured, start, groups=GROUPS)
    others = reads(60, seed=2)
    predicted = [time.seconds for time in found.predict_many(others)]
    assert within_20_percent(predicted, mean_seconds(others, SHARED)) > 0.9
