"""Whether it is predicted which read strategy is the fastest, on a mounted array.

    python -m benchmarks.array_strategies [--budget SECONDS] [--rounds N] [--calibration N]
                                          [--seed N] [--tests N] [--results FILE]

Two models predict the time of regular reads by the strategies multiple, sieve, list and pmd, cold,
on the array of `benchmarks.disk_array` (mounted; emulated disks, real waits): the read engine's
planner, calibrated there; and a simulated machine (`benchmarks.fitted_machine`), its numbers fitted
to reads of other shapes, which are drawn from --seed and measured as well. Predicted are the reads
of a designed grid or, with --tests N, shapes drawn from that seed. Rounds in turn, medians count.
Target: where strategies differ by more than 20 %, the one predicted fastest is within 20 % of the
fastest in 19 of 20 reads, and predictions are within 20 % of measured in nine of ten.

--results FILE keeps what was measured; the next run with it goes on from there.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import statistics
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.disk_array import DiskArray, mounted
from benchmarks.fitted_machine import array_machine
from sds import _native
from sds.calibration.engine_timings import measure_engine
from sds.simulator import Operation
from sds.simulator.parameter_fit import FittedMachine, fit_machine

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# (bytes of a run, bytes from one begin to the next, number)
Read = tuple[int, int, int]
Found = dict[tuple[Read, str], list[float]]

KIB, MIB = 1 << 10, 1 << 20
STRATEGIES = ("multiple", "sieve", "list", "pmd")
FILE_BYTES = 256 * MIB
# Strategies that differ by no more than this are as good as each other.
DIFFERS = 1.2
# Of shapes drawn to fit the simulated machine to.
_N_DRAWN = 20
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


def drawn(seed: int) -> list[Read]:
    """Return as many other shapes, lengths uniform in the logarithm: none of `designed`."""
    random = np.random.default_rng([seed, 4])
    reads: dict[Read, None] = {}
    while len(reads) < _N_DRAWN:
        run = int(2 ** random.uniform(3, 17))
        stride = int(run * 2 ** random.uniform(0.5, 10))
        n = int(random.integers(8, 97))
        if stride * n <= FILE_BYTES // 2 and (run, stride, n) not in designed():
            reads[run, stride, n] = None
    return list(reads)


def read_s(file: _native.ReadFile, read: Read, strategy: str, at: int) -> float:
    """Return the seconds of one read."""
    run, stride, n = read
    out = bytearray(run * n)
    begin = time.perf_counter()
    file.read_runs(at, run, (n,), (stride,), out, strategy, cache="cold")
    return time.perf_counter() - begin


def measure(
    path: Path,
    reads: Sequence[Read],
    found: Found,
    *,
    rounds: int,
    until_s: float,
    keep: Callable[[Read, str, float], None],
) -> None:
    """Read what was not yet read so often by every strategy, in an order drawn, until a time."""
    file = _native.ReadFile(os.fspath(path), may_map=False)
    both = [(read, strategy) for read in reads for strategy in STRATEGIES]
    for turn in range(1, rounds + 1):
        random = np.random.default_rng([3, turn])
        for i in random.permutation(len(both)):
            read, strategy = both[i]
            room = (FILE_BYTES - read[1] * read[2]) // MIB
            at = int(random.integers(room)) * MIB
            if len(found[read, strategy]) >= turn:
                continue
            if time.monotonic() > until_s:
                return
            took = read_s(file, read, strategy, at)
            found[read, strategy].append(took)
            keep(read, strategy, took)


def operation_of(read: Read, strategy: str) -> Operation:
    """Return what the engine does for a read, as the simulator takes it."""
    run, stride, n = read
    plan = plan_of(read, strategy)
    is_list = plan["executor"] == "list"
    if plan["requests"] == 1 and not is_list:  # one run, its holes read along
        run, n = stride * (n - 1) + run, 1
        stride = run
    return Operation(
        extent=(FILE_BYTES,),
        slabs=np.array([[[0], [stride], [n], [run]]]),
        element_size_bytes=1,
        strategy="list" if is_list else "sieve" if strategy == "sieve" else "multiple",
        list_depth=plan["queue_depth"],
        sieve_buffer_bytes=plan["group_bytes"],
    )


def plan_of(read: Read, strategy: str, parameters: _native.IoParameters | None = None) -> dict:
    """Return how the engine carries out a cold read; by the costs built in, as in `measure`."""
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
    )


def fitted(found: Found, reads: Sequence[Read]) -> FittedMachine:
    """Return the simulated machine, its numbers found from the reads drawn."""
    keys = [(read, strategy) for read in reads for strategy in STRATEGIES]
    return fit_machine(
        [operation_of(*key) for key in keys],
        [statistics.median(found[key]) for key in keys],
        # A process alone is late by less than where eight want two processors.
        replace(array_machine(DiskArray()), client_start_s=0.0),
        groups=[str(read) for read, _ in keys],
    )


def opened(results: Path | None) -> tuple[Found, Callable[[Read, str, float], None]]:
    """Return what was measured before, and what keeps more of it."""
    found: Found = defaultdict(list)
    if results is None:
        return found, lambda read, strategy, took: None  # noqa: ARG005
    if results.exists():
        for line in results.read_text().splitlines():
            entry = json.loads(line)
            run, stride, n = entry["read"]
            found[(run, stride, n), entry["strategy"]].append(entry["seconds"])

    def keep(read: Read, strategy: str, took: float) -> None:
        with results.open("a") as out:
            out.write(json.dumps({"read": read, "strategy": strategy, "seconds": took}) + "\n")

    return found, keep


def judge(
    name: str, tests: Sequence[Read], found: Found, predicted: dict[tuple[Read, str], float]
) -> str:
    """Return how well a model did, in words."""
    right = different = within = total = 0
    regrets = []
    for read in tests:
        seconds = {s: statistics.median(found[read, s]) for s in STRATEGIES}
        expected = {s: predicted[read, s] for s in STRATEGIES}
        best_s = min(seconds.values())
        chosen = min(expected, key=expected.__getitem__)
        total += len(STRATEGIES)
        within += sum(abs(math.log(expected[s] / seconds[s])) <= math.log(1.2) for s in STRATEGIES)
        if max(seconds.values()) > DIFFERS * best_s:
            different += 1
            right += seconds[chosen] <= DIFFERS * best_s
        regrets.append(seconds[chosen] / best_s - 1)
    share = f"{right / different:.0%}" if different else "none differ"
    return (
        f"{name}: of {different} reads whose strategies differ by over 20 %, the one predicted "
        f"fastest is within 20 % of the fastest in {right} ({share}; target 95 %); median regret "
        f"{statistics.median(regrets):.1%}, worst {max(regrets):.0%}. Predicted within 20 % of "
        f"measured: {within} of {total} ({within / total:.0%}; target 90 %)."
    )


def print_table(
    tests: Sequence[Read], found: Found, by_model: dict[str, dict[tuple[Read, str], float]]
) -> None:
    """Print what was measured, and in brackets what each model predicted."""
    print(f"\nMilliseconds: measured ({', '.join(by_model)}).\n")
    print(
        "| run, stride, number | "
        + " | ".join(STRATEGIES)
        + " | fastest | "
        + " | ".join(by_model)
        + " |"
    )
    print("|---" * (len(STRATEGIES) + 2 + len(by_model)) + "|")
    for read in tests:
        seconds = {s: statistics.median(found[read, s]) for s in STRATEGIES}
        cells = [
            f"{seconds[s] * 1e3:.1f} ("
            + ", ".join(f"{predicted[read, s] * 1e3:.1f}" for predicted in by_model.values())
            + ")"
            for s in STRATEGIES
        ]
        cells.append(min(seconds, key=seconds.__getitem__))
        cells += [min(STRATEGIES, key=lambda s, p=p: p[read, s]) for p in by_model.values()]
        print(f"| {read[0]}, {read[1]}, {read[2]} | " + " | ".join(cells) + " |")


def spread(found: Found) -> float:
    """Return the median over reads of (longest - shortest) / median."""
    return statistics.median(
        (max(times) - min(times)) / statistics.median(times) for times in found.values()
    )


def main() -> None:
    """Calibrate, measure, compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--calibration", type=float, default=40.0, help="seconds")
    parser.add_argument("--budget", type=float, default=90.0, help="seconds of measuring")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1, help="of the shapes drawn")
    parser.add_argument("--tests", type=int, metavar="SEED", help="predict shapes drawn from this")
    parser.add_argument("--results", type=Path)
    options = parser.parse_args()
    if options.tests == options.seed:
        parser.error("--tests draws what is predicted, --seed what is fitted to: give two seeds")
    found, keep = opened(options.results)
    tests = designed() if options.tests is None else drawn(options.tests)
    reads = [*tests, *drawn(options.seed)]
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
        until_s = time.monotonic() + options.budget
        measure(path, reads, found, rounds=options.rounds, until_s=until_s, keep=keep)
    missing = [(r, s) for r in reads for s in STRATEGIES if not found[r, s]]
    if missing:
        print(f"{len(missing)} reads are not measured yet: run again with --results, or for longer")
        return
    parameters = engine.parameters.native()
    print(
        f"engine calibrated by {engine.n_reads} reads: |log error| {engine.median_log_error:.2f} "
        f"in the median, {engine.p95_log_error:.2f} in 95 %; {engine.parameters}"
    )
    machine = fitted(found, drawn(options.seed))
    print(f"simulated machine: {machine}")
    keys = [(read, strategy) for read in tests for strategy in STRATEGIES]
    simulated = machine.predict_many([operation_of(*key) for key in keys])
    by_model = {
        "planner": {key: plan_of(*key, parameters)["predicted_s"] for key in keys},
        "simulated": {key: time.seconds for key, time in zip(keys, simulated, strict=True)},
    }
    print_table(tests, found, by_model)
    print(f"\nTimes of one read differ by {spread(found):.1%} (longest less shortest).")
    again = {key: found[key][0] for key in keys}
    rest = defaultdict(list, {key: found[key][1:] or found[key] for key in keys})
    print(judge("reading once more", tests, rest, again))
    for name, predicted in by_model.items():
        print(judge(name, tests, found, predicted))


if __name__ == "__main__":
    main()
