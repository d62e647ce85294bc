"""Whether the calibrated engine predicts which read strategy is the fastest, on a mounted array.

    python -m benchmarks.array_strategies [--budget SECONDS] [--rounds N] [--calibration N]

The engine is calibrated on the array of `benchmarks.disk_array` (mounted; emulated disks, real
waits), and predicts the time of regular reads by the strategies multiple, sieve, list and pmd,
cold. Then each is measured, rounds in turn, medians count. Target: where strategies differ by
more than 20 %, the one predicted fastest is within 20 % of the fastest in 19 of 20 reads, and
predictions are within 20 % of measured in nine of ten.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import statistics
import time
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.disk_array import DiskArray, mounted
from sds import _native
from sds.recommender.engine_calibration import measure_engine

if TYPE_CHECKING:
    from pathlib import Path

KIB, MIB = 1 << 10, 1 << 20
STRATEGIES = ("multiple", "sieve", "list", "pmd")
FILE_BYTES = 256 * MIB
# Strategies that differ by no more than this are as good as each other.
DIFFERS = 1.2
_RUNS = (8, 4 * KIB, 64 * KIB)
_STRIDES = (256, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB)
_COUNTS = (16, 128)


def designed() -> list[tuple[int, int, int]]:
    """Return (bytes of a run, stride, number) of the reads: none overlaps, or passes the end."""
    return [
        (run, stride, n)
        for run, stride, n in itertools.product(_RUNS, _STRIDES, _COUNTS)
        if run < stride and stride * n <= FILE_BYTES // 2
    ]


def read_s(file: _native.ReadFile, read: tuple[int, int, int], strategy: str, at: int) -> float:
    """Return the seconds of one read."""
    run, stride, n = read
    out = bytearray(run * n)
    begin = time.perf_counter()
    file.read_runs(at, run, (n,), (stride,), out, strategy, cache="cold")
    return time.perf_counter() - begin


def measure(path: Path, rounds: int, until_s: float) -> dict[tuple, dict[str, list[float]]]:
    """Return the seconds of every read by every strategy."""
    random = np.random.default_rng(3)
    found: dict[tuple, dict[str, list[float]]] = {}
    reads = [(read, strategy) for read in designed() for strategy in STRATEGIES]
    file = _native.ReadFile(os.fspath(path), may_map=False)
    for turn in range(rounds):
        for i in random.permutation(len(reads)):
            if turn > 0 and time.monotonic() > until_s:
                return found
            read, strategy = reads[i]
            room = FILE_BYTES - read[1] * read[2]
            at = int(random.integers(room // MIB)) * MIB
            took = read_s(file, read, strategy, at)
            found.setdefault(read, {}).setdefault(strategy, []).append(took)
    return found


def predict_s(parameters: _native.IoParameters, read: tuple[int, int, int], strategy: str) -> float:
    """Return what the planner expects of a cold read."""
    run, stride, n = read
    return _native.plan_runs(
        0,
        run,
        (n,),
        (stride,),
        parameters=parameters,
        strategy=strategy,
        cache="cold",
        may_queue=True,
        may_read_directly=True,
    )["predicted_s"]


def main() -> None:
    """Calibrate, measure, compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--calibration", type=float, default=40.0, help="seconds")
    parser.add_argument("--budget", type=float, default=90.0, help="seconds of measuring")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with mounted(DiskArray()) as mount:
        path = mount / "data"
        with path.open("wb") as out:
            out.truncate(FILE_BYTES)
        engine = measure_engine(
            path,
            can_evict=True,
            is_cached=False,
            budget_s=options.calibration,
            seed=1,
            progress=lambda share, what: None,  # noqa: ARG005
        )
        found = measure(path, options.rounds, time.monotonic() + options.budget)
    parameters = engine.parameters.native()
    print(
        f"engine calibrated by {engine.n_reads} reads: |log error| {engine.median_log_error:.2f} "
        f"in the median, {engine.p95_log_error:.2f} in 95 %; {engine.parameters}\n"
    )
    print("| run, stride, number | " + " | ".join(STRATEGIES) + " | fastest | predicted |")
    print("|---" * (len(STRATEGIES) + 3) + "|")
    right = different = within = total = 0
    regrets = []
    for read, times in sorted(found.items()):
        seconds = {s: statistics.median(times[s]) for s in STRATEGIES}
        expected = {s: predict_s(parameters, read, s) for s in STRATEGIES}
        best, chosen = (
            min(seconds, key=seconds.__getitem__),
            min(expected, key=expected.__getitem__),
        )
        total += len(STRATEGIES)
        within += sum(abs(math.log(expected[s] / seconds[s])) <= math.log(1.2) for s in STRATEGIES)
        if max(seconds.values()) > DIFFERS * seconds[best]:
            different += 1
            right += seconds[chosen] <= DIFFERS * seconds[best]
        regrets.append(seconds[chosen] / seconds[best] - 1)
        cells = " | ".join(
            f"{seconds[s] * 1e3:.1f} ({expected[s] * 1e3:.1f}) ms" for s in STRATEGIES
        )
        print(f"| {read[0]}, {read[1]}, {read[2]} | {cells} | {best} | {chosen} |")
    share = f"{right / different:.0%}" if different else "none differ"
    print(
        f"\nMeasured (predicted). Of {different} reads whose strategies differ by over 20 %, the "
        f"one predicted fastest is within 20 % of the fastest in {right} ({share}; target 95 %); "
        f"median regret {statistics.median(regrets):.1%}, worst {max(regrets):.0%}.\n"
        f"Predicted within 20 % of measured: {within} of {total} ({within / total:.0%}; "
        "target 90 %)."
    )


if __name__ == "__main__":
    main()
