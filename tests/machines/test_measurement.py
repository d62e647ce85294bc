"""Reads are drawn and timed for a machine to be fitted to."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from sds.calibration.design import STORED_ORDERS, array_extent
from sds.errors import SdsValueError, UnsupportedError
from sds.machines.measurement import MAX_RUNS, MeasureSettings, draw_patterns, time_reads
from sds.machines.random_reads import runs_in
from sds.machines.timed_reads import median_times
from sds.mounts import filesystem_of

SMALL = MeasureSettings(space_bytes=1 << 24, processes=(1, 2), n_each=2, rounds=2, budget_s=3000)


def ignore(share, what):
    pass


def test_patterns_are_of_all_kinds_and_no_layout_cuts_them_into_too_many_runs():
    settings = MeasureSettings()
    patterns = draw_patterns(array_extent(settings.space_bytes), settings)
    assert len(patterns) * len(STORED_ORDERS) == settings.n_reads
    assert {p.kind for p in patterns} == {0, 1, 2}
    assert {p.parts[0] * p.parts[1] * p.parts[2] for p in patterns} == {1, 2, 4, 8}
    runs = [max(runs_in(p, order) for order in STORED_ORDERS) for p in patterns]
    assert runs == sorted(runs)
    assert runs[-1] <= MAX_RUNS


def test_every_pattern_is_timed_in_both_orders_so_often(tmp_path):
    shares = []
    timed = list(time_reads(tmp_path, SMALL, lambda share, _what: shares.append(share)))
    assert len(timed) == 2 * SMALL.n_reads
    each = median_times(timed)
    assert len(each) == SMALL.n_reads
    assert {read.order for read in each} == set(STORED_ORDERS)
    assert len({read.pattern for read in each}) == SMALL.n_reads / 2
    for read in each:
        assert 0 < read.seconds < SMALL.budget_s
        assert read.operation().n_processes == read.n_processes
    assert shares == sorted(shares)
    assert list(tmp_path.iterdir()) == []


def test_a_cut_off_measuring_removes_its_file(tmp_path):
    reads = time_reads(tmp_path, SMALL, ignore)
    next(reads)
    assert list(tmp_path.iterdir()) != []
    reads.close()
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_begun_after_the_budget(tmp_path):
    assert list(time_reads(tmp_path, replace(SMALL, budget_s=1e-9), ignore)) == []


def test_a_memory_file_system_has_no_cold_reads():
    memory = Path("/dev/shm")  # noqa: S108 - it is the memory
    if not os.access(memory, os.W_OK) or filesystem_of(memory).kind != "tmpfs":
        pytest.skip(f"{memory} is no memory that this process may write")
    with pytest.raises(UnsupportedError, match="no cold reads: name a directory on the storage"):
        next(time_reads(memory, SMALL, ignore))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"budget_s": float("nan")}, "must be positive, not nan s"),
        ({"rounds": 0}, "must be positive"),
        ({"processes": ()}, "give 1 to 256 each"),
        ({"processes": (1, 257)}, "give 1 to 256 each"),
    ],
)
def test_settings_that_measure_nothing_are_refused(change, words):
    with pytest.raises(SdsValueError, match=words):
        MeasureSettings(**change)


def test_an_array_too_small_for_so_many_processes_is_refused():
    with pytest.raises(SdsValueError, match=r"256 processes|fewer processes"):
        draw_patterns((4, 4, 16), MeasureSettings(processes=(256,)))
