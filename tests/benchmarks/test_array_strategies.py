"""What the benchmark of read strategies simulates, and how it judges: without the array."""

import json

import pytest

from benchmarks.array_strategies import (
    STRATEGIES,
    designed,
    drawn,
    judge,
    opened,
    operation_of,
    plan_of,
)
from benchmarks.disk_array import DiskArray
from benchmarks.fitted_machine import array_machine
from sds.simulator import simulate


def test_shapes_to_fit_to_are_none_of_those_that_are_judged():
    reads = drawn(1)
    assert len(reads) == len(set(reads)) == 20
    assert not set(reads) & set(designed())
    assert reads == drawn(1) != drawn(2)
    assert all(run < stride for run, stride, _ in reads)


@pytest.mark.parametrize("read", [*designed()[::3], *drawn(1)[::4]])
def test_what_is_simulated_asks_for_what_the_engine_asks_for(read):
    machine = array_machine(DiskArray())
    for strategy in STRATEGIES:
        plan = plan_of(read, strategy)
        found = simulate(operation_of(read, strategy), machine)
        assert found.bytes_useful >= plan["bytes_useful"]
        if plan["executor"] == "list":
            assert found.requests == -(-read[2] // plan["queue_depth"])
        else:
            assert found.requests == plan["requests"]
        # Disks read whole blocks of 4 KiB, of each run, or of all from first to last.
        assert found.bytes_from_disks >= min(plan["bytes_read"], found.disk_accesses * 4096)


def test_judging_counts_strategies_that_differ_and_predictions_that_are_near():
    found = {(read, s): [0.010] for read in designed() for s in STRATEGIES}
    predicted = {key: times[0] for key, times in found.items()}
    same = judge("a model", designed(), found, predicted)
    assert "of 0 reads whose strategies differ" in same
    assert "none differ" in same
    assert "96 of 96 (100%; target 90 %)" in same
    first, second = designed()[:2]
    found[first, "list"] = [0.005]
    found[second, "list"] = [0.030]
    words = judge("a model", designed(), found, predicted)
    # Of the first, another is chosen that takes twice as long; of the second, the slow one is not.
    assert "of 2 reads" in words
    assert "in 1 (50%; target 95 %)" in words
    assert "worst 100%" in words
    assert "94 of 96" in words
    # Only the reads asked about count.
    assert "in 1 (100%; target 95 %)" in judge("a model", [second], found, predicted)


def test_what_was_measured_is_found_again(tmp_path):
    file = tmp_path / "results.jsonl"
    found, keep = opened(file)
    assert not found
    keep(designed()[0], "list", 0.5)
    keep(designed()[0], "list", 0.7)
    assert len(file.read_text().splitlines()) == 2
    assert json.loads(file.read_text().splitlines()[0])["seconds"] == 0.5
    again, _ = opened(file)
    assert again[designed()[0], "list"] == [0.5, 0.7]
    nothing, forget = opened(None)
    forget(designed()[0], "list", 0.5)
    assert not nothing
