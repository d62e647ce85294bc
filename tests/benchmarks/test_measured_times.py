"""The measured side of Table I's protocol: what is drawn, and what is kept of what was measured."""

import json
import os
import time
from dataclasses import replace

import numpy as np
import pytest

from benchmarks import measured_times
from benchmarks.disk_array import DiskArray
from benchmarks.fitted_machine import Simulated, array_machine, disk_machine, operations_of
from benchmarks.measured_times import (
    MAX_RUNS,
    MeasuredTimes,
    array_experiment,
    disk_experiment,
    disk_files,
    measurable_library,
    undecided,
)
from benchmarks.table1 import __main__ as table1
from sds import _native
from sds.machines.random_reads import runs_in
from sds.simulator import Operation, simulate_many
from tests.waiting import PATIENCE_S

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


def test_measuring_goes_on_where_it_was_cut_off(tmp_path, monkeypatch):
    monkeypatch.setattr(measured_times, "KEEP_FREE_BYTES", 0)  # of the machine that runs this
    library = measurable_library(1, SMALL, 1)
    times = MeasuredTimes.opened(SMALL, "a test", tmp_path, rounds=1)
    assert len(times.missing(library, 1)) == 9
    with disk_files(SMALL, tmp_path, keep=False) as files:
        assert len({file.read_bytes() for file in files}) == 3
        times.measure(files, library, until_s=time.monotonic() - 1)
        assert len(times.missing(library, 1)) == 9, "no time, nothing measured"
        times.measure(files, library, until_s=time.monotonic() + PATIENCE_S)
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


@pytest.mark.parametrize(
    ("readings", "again"),
    [
        # Each for certain slower, though one of them nearly as fast.
        ([[1.0, 1.01, 1.0], [1.2, 1.25, 1.3], [3.0, 9.0, 5.0]], []),
        # For certain within 5 %: both are right, whichever is faster.
        ([[1.0, 1.01, 1.02], [1.01, 1.02, 1.0], [2.0, 2.0, 2.0]], []),
        # May lose 5 %, or not.
        ([[1.0, 1.01, 1.02], [1.01, 1.04, 1.09], [2.0, 2.0, 2.0]], [0, 1]),
        # May be the faster of the two.
        ([[2.0, 2.0, 2.0], [1.0, 1.3, 1.6], [0.9, 1.2, 1.9]], [1, 2]),
        # Known from one reading alone: nothing can be said of how it repeats.
        ([[1.0], [1.01], [1.2]], []),
    ],
)
def test_layouts_are_read_again_until_it_is_known_which_are_right(readings, again):
    assert undecided(readings, np.random.default_rng(1)) == again


def test_undecided_layouts_are_read_until_the_most_readings(tmp_path):
    library = measurable_library(1, SMALL, 1)
    times = MeasuredTimes.opened(SMALL, "a test", tmp_path, rounds=3)
    for pattern in library:
        for layout in range(3):
            times.seconds[pattern.name, layout] = [float(1 + layout)] * 3
    assert times.is_measured(library)
    near = [1.0, 1.08] * 3
    times.seconds[library[1].name, 0] = times.seconds[library[1].name, 2] = near
    assert not times.is_measured(library)
    assert sorted(i for _, i in times.missing(library, 8)) == [0, 2]
    times.seconds[library[1].name, 0] = [1.0, 1.08] * 20
    assert times.missing(library, 40) == [(library[1], 2)]
    times.seconds[library[1].name, 2] = [1.0, 1.08] * 20
    assert times.is_measured(library)
    assert times.undecided(library) == [(library[1], 0), (library[1], 2)]


def test_a_full_disk_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.measured_times.KEEP_FREE_BYTES", 1 << 60)
    with (
        pytest.raises(OSError, match="give a smaller --extent"),
        disk_files(SMALL, tmp_path, keep=False),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_no_files_are_written_where_nothing_may_be_measured(tmp_path, monkeypatch, capsys):
    # Writing them would fail: the disk is full.
    monkeypatch.setattr("benchmarks.measured_times.KEEP_FREE_BYTES", 1 << 60)
    options = {"where": "disk", "library": 1, "training": 8, "measure-for": 0}
    options |= {"directory": tmp_path, "cache": tmp_path}
    words = [f"--{name}={value}" for name, value in options.items()]
    monkeypatch.setattr("sys.argv", ["table1", *words, "--extent", "16", "16", "256"])
    table1.main()
    assert "9 reads are not measured yet" in capsys.readouterr().out


def test_another_reading_bounds_what_can_be_predicted(tmp_path):
    library = measurable_library(1, SMALL, 1)
    times = MeasuredTimes.opened(SMALL, "a test", tmp_path, rounds=2)
    for pattern in library:
        for layout in range(3):
            times.seconds[pattern.name, layout] = [1.0 + layout, 1.1 + layout, 0.9 + layout]
    assert times.repeated(library) == (3, 1.0)
    # The first reading of one pattern took layout 2 for the fastest; by the others it loses.
    times.seconds[library[0].name, 2] = [0.5, 3.0, 3.1]
    right, near = times.repeated(library)
    assert right == 2
    assert near == pytest.approx(8 / 9)


def test_a_simulated_machine_is_fitted_to_measured_times_and_predicts_all_layouts(tmp_path):
    """Times that the array would have are simulated with other numbers than it begins with."""
    experiment = replace(array_experiment(8), extent=(32, 32, 256), n_processes=4)
    library = measurable_library(1, experiment, 8)
    start = array_machine(DiskArray())
    true = replace(start, disk_settle_s=2 * start.disk_settle_s, jitter_seed=99)
    true = replace(true, disk_full_stroke_s=start.disk_full_stroke_s + start.disk_settle_s)
    times = MeasuredTimes.opened(experiment, "a test", tmp_path)
    for pattern in library:
        for i, run in enumerate(simulate_many(operations_of(pattern, experiment), true)):
            times.seconds[pattern.name, i] = [run.seconds]
    training, others = library[::2], library[1::2]
    fitted = Simulated.fitted(times, training, start)
    assert fitted.machine.n_fitted + fitted.machine.n_left_out == 3 * len(training)
    assert fitted.ratio_error == fitted.machine.ratio_error
    predicted = np.array([fitted.times(p) for p in others])
    measured = np.array([times.times(p) for p in others])
    assert np.median(np.abs(np.log(predicted / measured))) < 0.15
    assert fitted.times(others[0]) == tuple(predicted[0])


def test_the_machine_that_is_fitted_is_built_like_the_array():
    array = DiskArray()
    machine = array_machine(array)
    assert (machine.stripes, machine.raid) == (array.stripes, array.raid)
    # The law of a seek is the array's: of any distance, without anything fitted.
    for distance in (0, 1 << 20, array.capacity_bytes):
        share = distance / machine.disk_capacity_bytes
        longer_s = machine.disk_full_stroke_s - machine.disk_settle_s
        assert machine.disk_settle_s + longer_s * share**0.5 == pytest.approx(
            array.seek_s(distance)
        )
    assert machine.disk_bytes_per_s == array.bytes_per_s * array.speed


def test_readers_share_the_processors_of_this_machine():
    n = len(os.sched_getaffinity(0))
    alone = array_machine(DiskArray())
    assert array_machine(DiskArray(), n_processes=n) == alone
    many = array_machine(DiskArray(), n_processes=n + 1)
    assert (many.processes_per_node, many.processors_per_node) == (n + 1, n)
    assert many.client_request_s > 0
    assert (many.raid, many.disk_settle_s) == (alone.raid, alone.disk_settle_s)


def test_what_stands_for_a_disk_reads_a_long_run_at_its_rate():
    machine = disk_machine(SMALL.stripes)
    n_bytes = 256 << 20
    whole = Operation(
        extent=(n_bytes,),
        slabs=np.array([[[0], [1], [n_bytes], [1]]]),
        element_size_bytes=1,
    )
    found = simulate_many([whole], machine)[0]
    least_s = n_bytes / machine.disk_bytes_per_s
    assert least_s < found.seconds < 3 * least_s
    assert found.bytes_from_disks == n_bytes


def test_a_simulator_does_not_predict_itself(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["table1", "--where", "simulator", "--simulated"])
    with pytest.raises(SystemExit):
        table1.main()
    assert "a simulator would predict itself" in capsys.readouterr().err
