"""What the planner's choices cost by fitted parameters and by built-in ones, where it runs.

``python -m benchmarks.fitted_choices [--file PATH] [--mib N] [--pairs N] [--fit FILE]
[--results FILE] [--seconds N] [--quick]``. The engine's parameters are fitted as `sds calibrate`
does it, to reads of the file itself; kept in FILE, they are taken from there the next time. Then
every cell of the table of `benchmarks.read_engine` is planned by both: the first read of an open
file that is cached, a repeated one, and a cold one. Where the two plans are the same, nothing is
lost by either. Where they differ, both are carried out in turns, beside every executor by name,
which must all read the same bytes. What a choice loses is its time over that of the fastest way in
the cell; a ratio is the median of its pairs, with its 95 % bootstrap bounds. With ``--results``,
cells are kept and measured once, so that the table can be measured in short turns; ``--seconds``
begins no cell after so long.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.read_engine import (
    MIB,
    WAYS,
    Case,
    Ratio,
    Way,
    drop,
    load,
    make_file,
    possible_ways,
    ratio_of,
    read,
    table_cases,
)
from sds import _native
from sds.calibration.engine_timings import measure_engine
from sds.calibration.scratch_file import file_system_of
from sds.engine import IoParameters, MeasuredFileSystem, publish_measured
from sds.home import Home

if TYPE_CHECKING:
    from collections.abc import Sequence

BUILT_IN, FITTED = "built in", "fitted"
FIT_BUDGET_S = 40.0
# What makes one plan another: not what it predicts.
CHOICE = ("executor", "max_hole_bytes", "group_bytes", "queue_depth")


# Of an open file, before the one that is timed. The engine maps a file with the second read at the
# latest where later ones gain by that.
READS_BEFORE = {"first": 0, "repeated": 3, "cold": 0}


def fitted_parameters(path: Path, kept: Path | None) -> IoParameters:
    """Fit the parameters to reads of a file, or take those that were kept."""
    if kept is not None and kept.exists():
        return IoParameters.from_native(json.loads(kept.read_text(encoding="utf-8")))
    found = measure_engine(
        path, can_evict=True, budget_s=FIT_BUDGET_S, seed=1, progress=lambda _done, _what: None
    )
    print(
        f"fitted to {found.n_reads} reads, median |log error| {found.median_log_error:.2f}, "
        f"95 % {found.p95_log_error:.2f}"
    )
    if kept is not None:
        kept.write_text(json.dumps(asdict(found.parameters), indent=1), encoding="utf-8")
    return found.parameters


def published(path: Path, parameters: IoParameters, root: Path) -> _native.Measured:
    """Publish parameters for the file system of a file, as a calibration does."""
    home = Home(root)
    home.create()
    file_system = file_system_of(path)
    entry = MeasuredFileSystem(
        mount_point=file_system.mount_point,
        kind=_native.ReadFile(os.fspath(path)).file_system_type,
        parameters=parameters,
    )
    return _native.Measured(publish_measured(home, [entry]).read_bytes())


def plan_of(case: Case, state: str, parameters: IoParameters | None) -> _native.ReadPlan:
    """Return the plan of a case, as the engine makes it."""
    return _native.plan_runs(
        int(case.offsets[0]),
        int(case.lengths[0]),
        (len(case.offsets),),
        (case.stride,),
        parameters=None if parameters is None else parameters.native(),
        cache="cold" if state == "cold" else "warm",
        may_map=True,
        is_mapped=state == "repeated",
        may_queue=True,
    )


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A case in one state, and what it took in every way; nothing where the plans are the same."""

    state: str
    name: str
    n_runs: int
    executors: tuple[str, str]
    seconds: dict[str, list[float]]

    def median_s(self, way: str) -> float:
        """Return the median of a way."""
        return float(np.median(self.seconds[way]))

    def loss(self, way: str) -> float:
        """Return how many times as long as the fastest way a choice takes."""
        if not self.seconds:
            return 1.0
        return self.median_s(way) / min(map(self.median_s, self.seconds))

    def gain(self) -> Ratio:
        """Return the time by built-in parameters over that by fitted ones."""
        return ratio_of(self.seconds[BUILT_IN], self.seconds[FITTED])

    def print(self) -> None:
        """Print a row."""
        if not self.seconds:
            print(f"| {self.state} | {self.name} | {self.executors[0]} | the same | | | |")
            return
        fastest = min(self.seconds, key=self.median_s)
        print(
            f"| {self.state} | {self.name} | {self.executors[0]} | {self.executors[1]} "
            f"| {self.loss(BUILT_IN):.2f} | {self.loss(FITTED):.2f} of {fastest} "
            f"| {self.gain()} |",
            flush=True,
        )


def measure(
    path: Path, case: Case, state: str, fitted: _native.Measured, pairs: int
) -> dict[str, list[float]]:
    """Time a case by both kinds of parameters and by every executor, in turns."""
    ways: dict[str, tuple[Way, _native.Measured | None]] = {
        BUILT_IN: (Way(), None),
        FITTED: (Way(), fitted),
    }
    for name in possible_ways(case, is_cold=state == "cold"):
        if name.startswith("by "):
            ways[name] = (WAYS[name], None)
    out = np.ones(case.n_bytes, np.uint8)
    expected: bytes | None = None
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    shuffled = random.Random(1)  # noqa: S311 - turns
    for turn in range(pairs + 1):
        for name in shuffled.sample(list(ways), len(ways)):
            way, measured = ways[name]
            if state == "cold":
                drop(path)
            file = _native.ReadFile(os.fspath(path), measured=measured)
            for _ in range(READS_BEFORE[state]):
                read(file, case, out, way)
            out[:: max(1, case.n_bytes // 64)] ^= 0xFF
            begun = time.perf_counter()
            read(file, case, out, way)
            took_s = time.perf_counter() - begun
            if turn > 0:
                seconds[name].append(took_s)
            if expected is None:
                expected = out.tobytes()
            elif out.tobytes() != expected:
                sys.exit(f"{case.name}: {name} read other bytes")
    return seconds


def kept_cells(results: Path | None) -> list[Cell]:
    """Return what was measured before."""
    if results is None or not results.exists():
        return []
    lines = results.read_text(encoding="utf-8").splitlines()
    return [
        Cell(**{**found, "executors": tuple(found["executors"])})
        for found in map(json.loads, lines)
    ]


def print_verdict(state: str, cells: Sequence[Cell]) -> None:
    """Print what is lost over all cells of a state, also where both plans are the same."""
    others = [cell for cell in cells if cell.seconds]
    lost = {
        way: math.exp(float(np.mean([math.log(cell.loss(way)) for cell in others])))
        for way in (BUILT_IN, FITTED)
        if others
    }
    better = sum(cell.gain().low > 1 for cell in others)
    worse = sum(cell.gain().high < 1 for cell in others)
    print(f"\n{state}: {len(cells)} cells, in {len(others)} the plans differ", end="")
    if others:
        print(
            f"; there {lost[BUILT_IN]:.2f} of the fastest way's time by built-in parameters, "
            f"{lost[FITTED]:.2f} by fitted ones (geometric means; the worst "
            f"{max(cell.loss(BUILT_IN) for cell in others):.2f} and "
            f"{max(cell.loss(FITTED) for cell in others):.2f}); fitted faster in {better}, "
            f"slower in {worse}, within the noise in {len(others) - better - worse}",
            end="",
        )
    print(flush=True)


def main() -> None:
    """Print the table and the verdicts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--file", type=Path, help="made where missing; default: a temporary one")
    parser.add_argument("--mib", type=int, default=1024, help="of the file")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--fit", type=Path, help="the parameters, kept")
    parser.add_argument("--results", type=Path, help="cells are kept here, and measured once")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no cell after that")
    parser.add_argument("--quick", action="store_true", help="a coarser table, 5 pairs")
    asked = parser.parse_args()
    begin_s = time.monotonic()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        path = asked.file or Path(folder, "random.bin")
        make_file(path, asked.mib * MIB)
        parameters = fitted_parameters(path, asked.fit)
        fitted = published(path, parameters, Path(folder, "home"))
        cells = kept_cells(asked.results)
        known = {(cell.state, cell.name) for cell in cells}
        print("| cache | runs | built in | fitted | loses | loses | built in / fitted |")
        print("|---|---|---|---|---|---|---|")
        for cell in cells:
            cell.print()
        for state in READS_BEFORE:
            if state == "first":
                load(path)
            for case in table_cases(path.stat().st_size, is_quick=asked.quick):
                if (state, case.name) in known or time.monotonic() - begin_s > asked.seconds:
                    continue
                plans = [plan_of(case, state, each) for each in (None, parameters)]
                is_same = all(plans[0].get(name) == plans[1].get(name) for name in CHOICE)
                pairs = 5 if asked.quick else asked.pairs
                cell = Cell(
                    state=state,
                    name=case.name,
                    n_runs=len(case.offsets),
                    executors=(plans[0]["executor"], plans[1]["executor"]),
                    seconds={} if is_same else measure(path, case, state, fitted, pairs),
                )
                cell.print()
                cells.append(cell)
                if asked.results is not None:
                    with asked.results.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(asdict(cell)) + "\n")
        for state in READS_BEFORE:
            print_verdict(state, [cell for cell in cells if cell.state == state])


if __name__ == "__main__":
    main()
