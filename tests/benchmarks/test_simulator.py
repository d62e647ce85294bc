"""The benchmark compares what it says it compares."""

import pytest

from benchmarks import simulator as benchmark


def test_runs_of_a_small_array_are_the_same_request_by_request(capsys):
    benchmark.with_and_without(seed=7, threads=2, share=4096)
    printed = capsys.readouterr().out
    assert "81 runs of 1/4096 of the size ((64, 64, 4096))" in printed
    assert "Every time and every count is the same." in printed


def test_a_difference_is_told(monkeypatch):
    simulate = benchmark.simulate

    def off_by_a_nanosecond(run, *, request_by_request=False):
        timed = simulate(run)
        timed.found["elapsed_ns"] += request_by_request
        return timed

    monkeypatch.setattr(benchmark, "simulate", off_by_a_nanosecond)
    with pytest.raises(AssertionError, match="elapsed_ns differs when nothing is aggregated"):
        benchmark.with_and_without(seed=7, threads=2, share=4096)
