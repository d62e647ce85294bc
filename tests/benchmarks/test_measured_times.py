"""The measured side of Table I's protocol: what is drawn, and what is kept of what was measured."""

import json
import time

import pytest

from benchmarks.measured_times import (
    MAX_RUNS,
    MeasuredTimes,
    array_experiment,
    disk_experiment,
    disk_files,
    measurable_library,
    runs_in,
)
from sds import _native

SMALL = disk_experiment(8, extent=(16, 16, 256))


def test_no_layout_cuts_a_pattern_into_more_runs_than_can_be_measured():
    experiment = array_experiment(8)
    library = measurable_library(1, experiment, 12)
    assert [p.kind for p in library] == [0] * 12 + [1] * 12 + [2] * 12
    assert len(set(library)) == 36
    for pattern in library:
        for order in experiment.orders:
            assert runs_in(pattern, order) <= MAX_RUNS


def test_a_larger_library_begins_with_a_smaller_one():
    small, large = (measurable_library(1, array_experiment(8), n) for n in (3, 9))
    for kind in range(3):
        assert small[3 * kind : 3 * kind + 3] == large[9 * kind : 9 * kind + 3]


def test_runs_are_bounded_from_above():
    for pattern in measurable_library(2, SMALL, 6):
        for order in SMALL.orders:
            extent = [SMALL.extent[axis] for axis in order]
            reads = pattern.reads().permuted(order)
            n = 0
            for i in range(len(reads)):
                slab = reads[i]
                ones = (1,) * 3
                found = _native.runs(extent, 2, 0, slab.start, slab.stride, slab.count, ones)
                product = 1
                for count in found[2]:
                    product *= count
                n += product if found[1] else 0
            assert n <= runs_in(pattern, order)


def test_measuring_goes_on_where_it_was_cut_off(tmp_path):
    library = measurable_library(1, SMALL, 1)
    times = MeasuredTimes.opened(SMALL, "a test", tmp_path, rounds=1)
    assert len(times.missing(library, 1)) == 9
    with disk_files(SMALL, tmp_path, keep=False) as files:
        assert len({file.read_bytes() for file in files}) == 3
        times.measure(files, library, until_s=time.monotonic() - 1)
        assert len(times.missing(library, 1)) == 9, "no time, nothing measured"
        times.measure(files, library, until_s=time.monotonic() + 60)
    assert not any(file.exists() for file in files)
    again = MeasuredTimes.opened(SMALL, "a test", tmp_path, rounds=1)
    assert again.seconds == times.seconds
    assert again.is_measured(library)
    seen = again.observe(library[0])
    assert all(seconds > 0 for seconds in seen.seconds)
    # Another experiment has times of its own.
    assert not MeasuredTimes.opened(SMALL, "another", tmp_path).seconds


def test_reads_whose_times_differ_are_read_again(tmp_path):
    library = measurable_library(1, SMALL, 1)
    times = MeasuredTimes.opened(SMALL, "a test", tmp_path, rounds=2)
    lines = [
        {"pattern": p.name, "layout": i, "seconds": s}
        for p in library
        for i in range(3)
        for s in (1.0, 1.5 if p is library[0] and i == 0 else 1.01)
    ]
    times.store.write_text("".join(json.dumps(line) + "\n" for line in lines))
    times = MeasuredTimes.opened(SMALL, "a test", tmp_path, rounds=2)
    assert times.missing(library, 2) == []
    assert times.missing(library, 3) == [(library[0], 0)]
    assert not times.is_measured(library)
    assert times.spread(library) == pytest.approx(0.01, rel=0.1)


def test_a_full_disk_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.measured_times.KEEP_FREE_BYTES", 1 << 60)
    with (
        pytest.raises(OSError, match="give a smaller --extent"),
        disk_files(SMALL, tmp_path, keep=False),
    ):
        pass
    assert list(tmp_path.iterdir()) == []
