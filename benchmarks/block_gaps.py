"""The three quantities that Liu 2014 calls block gap, by the fit that each gives.

    python -m benchmarks.block_gaps [--where simulator|array|disk] [--scale 64] [--library N]
                                    [--sets N] [--seeds N] [--json FILE]

First what the paper did: sets of 24 patterns of sub-cubes, block depth alone and each block gap
alone against the time, with R^2 and p of the slope. Then Eq. 3, 4 and 6 with each gap, fitted to
the patterns of the whole library (lines, planes and cubes in three layouts), in sample and with
each pattern left out. Then how often each selects the right layout of 24 tests, over seeds.

Times are simulated, or those that `python -m benchmarks.table1 --where array|disk` has measured and
kept.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import linregress

from benchmarks.disk_array import DiskArray
from benchmarks.measured_times import (
    DISK_EXTENT,
    LIBRARY,
    MAX_RUNS,
    MAX_RUNS_ON_DISK,
    PAGE_CACHE_CLIENT,
    MeasuredTimes,
    array_experiment,
    describe,
    disk_experiment,
    measurable_library,
)
from benchmarks.table1.evaluation import samples_of
from benchmarks.table1.gaps import compare_gaps, gap_table
from benchmarks.table1.protocol import Experiment, Pattern, draw_library
from benchmarks.table1.report import print_models, run_seed
from benchmarks.table1.simulator import Simulator
from sds.recommender.models.cost_model import GapKind, ModelKind
from sds.recommender.models.regression import LinearFitter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.table1.evaluation import Judgement

_CUBES = 2
_N_OF_PAPER = 24
_KINDS = (ModelKind.EQ3, ModelKind.EQ4, ModelKind.EQ6)
_ALONE = {"BD": "block_depth"} | {f"BG {gap}": f"block_gap_{gap}" for gap in GapKind}


@dataclass(frozen=True, slots=True)
class Alone:
    """One quantity by itself against the time, in many sets of patterns.

    Attributes
    ----------
    name
        ``BD``, or ``BG`` and which.
    r_squared, p_value
        Of each set in which it varies at all.
    n_constant
        Sets in which it does not.
    """

    name: str
    r_squared: tuple[float, ...]
    p_value: tuple[float, ...]
    n_constant: int


def alone(
    source: Simulator | MeasuredTimes,
    cubes: Sequence[Pattern],
    layouts: Sequence[int],
    *,
    n_sets: int,
    seed: int = 1,
) -> list[Alone]:
    """Return how well each quantity alone fits the times of sets of patterns, as the paper did."""
    random = np.random.default_rng(seed)
    seen = [source.observe(pattern) for pattern in cubes]
    fits: dict[str, list[tuple[float, float]]] = {name: [] for name in _ALONE}
    constant = dict.fromkeys(_ALONE, 0)
    for _ in range(n_sets):
        chosen = random.permutation(len(cubes))[:_N_OF_PAPER]
        seconds = [seen[i].seconds[layout] for i in chosen for layout in layouts]
        for name, field in _ALONE.items():
            values = [
                getattr(seen[i].operations[layout], field) for i in chosen for layout in layouts
            ]
            if min(values) == max(values):
                constant[name] += 1
                continue
            found = linregress(values, seconds)
            fits[name].append((float(found.rvalue) ** 2, float(found.pvalue)))
    return [
        Alone(name, tuple(r for r, _ in pairs), tuple(p for _, p in pairs), constant[name])
        for name, pairs in fits.items()
    ]


def print_alone(found: Sequence[Alone], n_points: int) -> None:
    """Print the quantities by themselves, and how often the gap fits better than the depth."""
    print(
        f"\n| alone, {n_points} times | R^2: median (quartiles) | p of the slope: median "
        "(quartiles) | sets with R^2 over 0.5 | p below 0.05 | R^2 above that of BD |"
    )
    print("|" + "---|" * 6)
    depth = found[0]
    for one in found:
        if not one.r_squared:
            print(f"| {one.name} | the same in all patterns of a set |" + " |" * 4)
            continue
        r = np.quantile(one.r_squared, (0.5, 0.25, 0.75))
        p = np.quantile(one.p_value, (0.5, 0.25, 0.75))
        above = "-"
        if one is not depth and len(one.r_squared) == len(depth.r_squared):
            pairs = zip(one.r_squared, depth.r_squared, strict=True)
            above = f"{np.mean([a > b for a, b in pairs]):.0%}"
        print(
            f"| {one.name} | {r[0]:.2f} ({r[1]:.2f} to {r[2]:.2f}) | {p[0]:.2g} ({p[1]:.2g} to "
            f"{p[2]:.2g}) | {np.mean(np.array(one.r_squared) > 0.5):.0%} | "
            f"{np.mean(np.array(one.p_value) < 0.05):.0%} | {above} |"
        )


def opened(
    arguments: argparse.Namespace,
) -> tuple[Simulator | MeasuredTimes, tuple[Pattern, ...], str]:
    """Return times, the patterns they are of, and what they are called."""
    if arguments.where == "simulator":
        whole = Experiment()
        experiment = Experiment(extent=whole.scaled(arguments.scale))
        library = draw_library(arguments.library_seed, experiment, arguments.library or LIBRARY)
        simulator = Simulator.opened(experiment, arguments.cache)
        simulator.simulate(library)
        return simulator, library, "simulated"
    if arguments.where == "array":
        experiment, label = (
            array_experiment(24),
            f"on a mounted array of emulated disks ({DiskArray()})",
        )
    else:
        experiment = disk_experiment(24, extent=DISK_EXTENT)
        label = f"on a disk: {describe(arguments.directory)}, striping as configured"
    max_runs = MAX_RUNS if arguments.where == "array" else MAX_RUNS_ON_DISK
    times = MeasuredTimes.opened(experiment, label, arguments.cache, rounds=1)
    if arguments.where == "disk":
        times.client = PAGE_CACHE_CLIENT
    library = measurable_library(
        arguments.library_seed, experiment, arguments.library or LIBRARY, max_runs=max_runs
    )
    n_missing = len(times.missing(library, 1))
    if n_missing:
        sys.exit(
            f"{n_missing} of {3 * len(library)} times are not measured: run "
            f"python -m benchmarks.table1 --where {arguments.where} first"
        )
    return times, library, "measured"


def judged(
    source: Simulator | MeasuredTimes, library: Sequence[Pattern], seeds: Sequence[int]
) -> list[Judgement]:
    """Return how the equations select with each gap."""
    fitters = [
        LinearFitter(kind=kind, gap=gap, relative=relative)
        for kind in _KINDS
        for relative in (False, True)
        for gap in GapKind
    ]
    return [run_seed(source, seed, library, 0.5, fitters) for seed in seeds]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--where", choices=["simulator", "array", "disk"], default="simulator")
    parser.add_argument("--directory", type=Path, default=Path(), help="disk: of the arrays")
    parser.add_argument("--scale", type=int, default=64, help="1/scale of the array: 1, 8, 64")
    parser.add_argument("--library", type=int, help="patterns of each kind")
    parser.add_argument("--library-seed", type=int, default=2014)
    parser.add_argument("--sets", type=int, default=200, help="of 24 sub-cubes")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--cache", type=Path, default=Path("~/.cache/sds").expanduser())
    parser.add_argument("--json", type=Path)
    return parser


def main() -> None:
    """Fit, and print the tables."""
    arguments = _parser().parse_args()
    source, library, times = opened(arguments)
    experiment = source.experiment
    print(
        f"Array {experiment.extent} of {experiment.element_size_bytes} bytes, "
        f"{experiment.n_processes} processes, {len(library)} patterns (library seed "
        f"{arguments.library_seed}); times are {times}."
    )
    cubes = [p for p in library if p.kind == _CUBES]
    by_layouts = {}
    for layouts in ((0,), tuple(range(len(experiment.orders)))):
        found = alone(source, cubes, layouts, n_sets=arguments.sets)
        names = " and ".join(experiment.layout_name(i) for i in layouts)
        print(f"\n{arguments.sets} sets of {_N_OF_PAPER} sub-cubes from {names}:")
        print_alone(found, _N_OF_PAPER * len(layouts))
        by_layouts[names] = [asdict(one) for one in found]
    fits = compare_gaps(samples_of(library, experiment, source.observe))
    print(f"\nAll patterns in {len(experiment.orders)} layouts ({times}):\n\n{gap_table(fits)}")
    print_models(judged(source, library, range(1, arguments.seeds + 1)), times)
    if arguments.json:
        arguments.json.write_text(json.dumps(by_layouts, indent=1))


if __name__ == "__main__":
    main()
