"""Advice after one traced run, against what was built and measured: random workloads.

``python -m benchmarks.advice_quality [--workloads N] [--seed S] [--mib N] [--calibrated]``. Each
is a file of 2 to 4 axes, contiguous or in gzip chunks, and a program that reads one to three kinds
of selections of it (planes, lines, ranges of an axis, boxes) a number of times, from cold cache or
from memory. The program runs once under SDS in a home of its own, without a calibration, or with
one of this file system that is made first; `sds advise` is asked with its default gates, and what
it advises is built. Beside that every other axis order is built, each in a home of its own (of four
axes eight, drawn). Then the program runs under SDS beside each, beside none ("alone"), and
natively, the median of three new processes in turns, in the cache state of the traced run.

Columns: seconds of all its reads natively, alone, as advised, and beside the best axis order;
"now" is what advice took the reads to take over what they take alone, "then" the same as advised;
"of best" is the time as advised (alone, where nothing is advised) over the least of all.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from benchmarks.read_engine import drop, load
from sds.home import Home
from tests.redirected import settle
from tests.under_connector import ROOT, connector_environment, native_environment

ROUNDS = 3
LEAST_S = 0.1  # what takes less is not advised on
MOST_ORDERS = 8
PROGRAM = """
import json, sys, time
import h5py
path, selections = sys.argv[1], json.loads(sys.stdin.read())
taken = 0.0
with h5py.File(path) as file:
    data = file["d"]
    for axes in selections:
        index = tuple(slice(*axis) for axis in axes)
        begin = time.perf_counter()
        data[index]
        taken += time.perf_counter() - begin
print(taken)
"""


@dataclass(frozen=True)
class Workload:
    """A file and what a program reads of it."""

    shape: tuple[int, ...]
    chunks: tuple[int, ...] | None
    cold: bool
    selections: tuple[tuple[tuple[int, int], ...], ...]
    kinds: str

    @classmethod
    def draw(cls, rng: random.Random, mib: int) -> Workload:
        """Draw one of so many MiB of float32."""
        rank = rng.choice((2, 3, 3, 4))
        logs = [rng.uniform(0.5, 1.5) for _ in range(rank)]
        total = math.log2(mib * 2**18)
        shape = tuple(max(4, round(2 ** (total * x / sum(logs)))) for x in logs)
        chunks = None
        if rng.random() < 0.5:
            share = (2 ** rng.uniform(14, 18) / math.prod(shape)) ** (1 / rank)
            chunks = tuple(min(n, max(1, round(n * share))) for n in shape)
        selections: list[tuple[tuple[int, int], ...]] = []
        kinds = []
        for _ in range(rng.randint(1, 3)):
            kind = rng.choice(("plane", "line", "range", "box"))
            axis = rng.randrange(rank)
            kinds.append(f"{kind} {axis}")
            n = rng.choice((5, 10, 20, 40))
            selections += [cls._selection(rng, kind, axis, shape) for _ in range(n)]
        rng.shuffle(selections)
        return cls(shape, chunks, rng.random() < 0.5, tuple(selections), ", ".join(kinds))

    @staticmethod
    def _selection(
        rng: random.Random, kind: str, axis: int, shape: tuple[int, ...]
    ) -> tuple[tuple[int, int], ...]:
        """Draw where a selection lies: a plane fixes an axis, a line all but that one."""
        found = []
        for a, n in enumerate(shape):
            at = rng.randrange(n)
            if kind == "plane":
                found.append((at, at + 1) if a == axis else (0, n))
            elif kind == "line":
                found.append((0, n) if a == axis else (at, at + 1))
            elif kind == "range":
                some = max(1, n // 16)
                begin = rng.randrange(n - some + 1)
                found.append((begin, begin + some) if a == axis else (0, n))
            else:
                some = max(1, n // 8)
                begin = rng.randrange(n - some + 1)
                found.append((begin, begin + some))
        return tuple(found)

    def write(self, path: Path) -> None:
        """Write the file: smooth values with noise."""
        filters = {} if self.chunks is None else {"chunks": self.chunks, "compression": "gzip"}
        rng = np.random.default_rng(1)
        with h5py.File(path, "w") as file:
            data = file.create_dataset("d", self.shape, "f4", **filters)
            step = max(1, self.shape[0] // 16)
            for begin in range(0, self.shape[0], step):
                part = (min(step, self.shape[0] - begin), *self.shape[1:])
                data[begin : begin + step] = rng.integers(0, 1000, part) / 8
        settle(path)


def files_of(path: Path, home: Path) -> list[Path]:
    """Return the file and its replicas."""
    return [path, *(home / "replicas").rglob("*.h5")]


def run(path: Path, workload: Workload, home: Path, environment: dict[str, str]) -> float:
    """Return the seconds of the program's reads, in a new process."""
    for file in files_of(path, home):
        (drop if workload.cold else load)(file)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path)],
        input=json.dumps(workload.selections), env=environment, cwd=ROOT, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    return float(done.stdout)


def sds(home: Path, *words: str) -> str:
    """Return what a command prints."""
    return subprocess.run(
        [sys.executable, "-m", "sds.cli", *words], env=native_environment(SDS_HOME=home),
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip


def row_of(
    workload: Workload, place: Path, rng: random.Random, calibrated: Path | None
) -> dict[str, float]:
    """Trace, advise, build and measure one workload, in homes that know what `calibrated` does."""
    path = place / "d.h5"
    workload.write(path)
    advised, bare = place / "advised", place / "bare"
    for home in (advised, bare):
        if calibrated is not None:
            shutil.copytree(calibrated, home)
        Home(home).create()
    run(path, workload, advised, connector_environment(advised))
    advice = json.loads(sds(advised, "advise", str(path), "--json"))
    layouts = advice["portfolio"]["layouts"]
    for layout in layouts:
        sds(advised, *shlex.split(layout["command"])[1:])
    homes = {"alone": bare, "advised": advised}
    orders = list(itertools.permutations(range(len(workload.shape))))[1:]
    for order in rng.sample(orders, min(MOST_ORDERS, len(orders))):
        name = ",".join(map(str, order))
        homes[name] = place / name
        if calibrated is not None:
            shutil.copytree(calibrated, homes[name])
        sds(homes[name], "reorganize", f"{path}:/d", "--order", name)
    sides = {name: connector_environment(home, SDS_TRACE="0") for name, home in homes.items()} | {
        "native": native_environment()
    }
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(ROUNDS):
        for name in rng.sample(sorted(sides), len(sides)):
            seconds[name].append(run(path, workload, homes.get(name, bare), sides[name]))
    took = {name: statistics.median(each) for name, each in seconds.items()}
    rest = [took[name] for name in took if name not in {"native", "alone", "advised"}]
    best = min(*rest, took["alone"], took["advised"])
    return {
        "native": took["native"],
        "alone": took["alone"],
        "advised": took["advised"],
        "best order": min(rest),
        "layouts": len(layouts),
        "now": advice["seconds_now"] / took["alone"],
        "then": advice["seconds_then"] / took["advised"],
        "of best": took["advised"] / best,
    }


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.advice_quality")
    parser.add_argument("--workloads", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mib", type=int, default=128)
    parser.add_argument("--calibrated", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sds-bench-") as name:
        calibrated = Path(name) / "home" if given.calibrated else None
        if calibrated is not None:
            Home(calibrated).create()
            sds(calibrated, "calibrate", name)
        print_rows(given, calibrated)


def print_rows(given: argparse.Namespace, calibrated: Path | None) -> None:
    """Print a row for each workload, and what holds of how many."""
    print("| seed | shape | chunks | reads | cache | native | alone | advised | best order | "
          "layouts | now | then | of best |")  # fmt: skip
    print("|" + "---|" * 13)
    rows = []
    for seed in range(given.seed, given.seed + given.workloads):
        rng = random.Random(seed)  # noqa: S311
        workload = Workload.draw(rng, given.mib)
        with tempfile.TemporaryDirectory(prefix="sds-bench-") as name:
            row = row_of(workload, Path(name), rng, calibrated)
        rows.append(row)
        shape = "x".join(map(str, workload.shape))
        chunks = "x".join(map(str, workload.chunks)) if workload.chunks else "-"
        times = " | ".join(
            f"{row[name] * 1e3:.1f} ms" for name in ("native", "alone", "advised", "best order")
        )
        print(
            f"| {seed} | {shape} | {chunks} | {len(workload.selections)}: {workload.kinds} | "
            f"{'cold' if workload.cold else 'warm'} | {times} | {row['layouts']:.0f} | "
            f"{row['now']:.2f} | {row['then']:.2f} | {row['of best']:.2f} |",
            flush=True,
        )
    built = [row for row in rows if row["layouts"]]
    worth_it = [row for row in rows if row["alone"] >= LEAST_S]
    laws = {
        "now within a factor of 2": [0.5 <= row["now"] <= 2 for row in rows],
        "then within a factor of 4, where something is advised": [
            0.25 <= row["then"] <= 4 for row in built
        ],
        f"as advised within 20 % of the best, of {LEAST_S} s and more": [
            row["of best"] <= 1.2 for row in worth_it
        ],
        "as advised not 10 % slower than alone": [
            row["advised"] <= 1.1 * row["alone"] for row in rows
        ],
        "alone not 5 % slower than natively": [
            row["alone"] <= 1.05 * row["native"] for row in rows
        ],
    }
    print()
    for law, held in laws.items():
        print(f"{law}: {sum(held)} of {len(held)}")


if __name__ == "__main__":
    main()
