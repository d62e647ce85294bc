"""Liu 2014, Table I: which layout do models select for reads they were not fitted to.

    python -m benchmarks.table1 [--where simulator] [--seeds N | --seed S ...] [--scale 64]
                                [--library N] [--confidence P] [--only MODEL] [--json FILE]
    python -m benchmarks.table1 --where array|disk [--seeds N] [--library N] [--rounds N]
                                [--measure-for SECONDS] [--directory DIR] [--extent X Y Z]
                                [--simulated]

512 processes read lines, planes and cubes of an array of 1024 x 1024 x 65536 elements of 2 bytes
(--scale 64: 256 x 256 x 16384) from three layouts, 8 tests each; models are fitted to other
patterns. A selection is right where it loses at most 5 % of the least time.

Patterns come from a library that is simulated once and kept (--library: patterns of each kind),
from which each seed draws its training patterns and its tests; any seed can be run. --library 0:
every seed draws patterns of its own.

--simulated (array, disk): the simulator as a model besides, its numbers fitted to each seed's
training patterns, in a minute each. Not for --where simulator, which would predict itself.

Targets: at least 23 of 24 right in 19 of 20 seeds (full size), in 95 % of 1,000 seeds (--scale
64); held-out R^2 at least 0.995, median |log error| at most 10 %, 95th percentile at most 30 %.
"""

from __future__ import annotations

import argparse
import os
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.table1.protocol import (
    Experiment,
    Pattern,
    draw_library,
)
from benchmarks.table1.report import as_json, print_models, print_tests, run_seed
from benchmarks.table1.simulator import Simulator
from sds.recommender.models.model_selection import fitters_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.table1.evaluation import Judgement
    from sds.recommender.models.regression import EquationFitter

_LIBRARY = 120
_LIBRARY_SEED = 2014


_SHARED: tuple[Simulator, tuple[Pattern, ...], float, list[EquationFitter]] | None = None


def _run_shared(seed: int) -> Judgement:
    if _SHARED is None:
        raise RuntimeError("the workers were forked before there was anything to share")
    source, library, confidence, fitters = _SHARED
    return run_seed(source, seed, library, confidence, fitters)


def run(
    source: Simulator,
    seeds: Sequence[int],
    library: tuple[Pattern, ...],
    confidence: float,
    fitters: list[EquationFitter],
) -> list[Judgement]:
    """Return the judgements of all seeds, on all processors where the library is at hand."""
    global _SHARED  # noqa: PLW0603 - inherited by forked workers
    _SHARED = source, library, confidence, fitters
    if not library or len(seeds) < 4:
        return [_run_shared(seed) for seed in seeds]
    for pattern in library:
        source.observe(pattern)
    import multiprocessing  # noqa: PLC0415

    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=context) as pool:
        return list(pool.map(_run_shared, seeds, chunksize=max(1, len(seeds) // 50)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--where", choices=["simulator", "array", "disk"], default="simulator")
    parser.add_argument("--directory", type=Path, default=Path(), help="disk: of the arrays")
    parser.add_argument("--extent", type=int, nargs=3, help="disk: of the array")
    parser.add_argument("--rounds", type=int, default=3, help="array, disk: reads of each")
    parser.add_argument("--measure-for", type=float, help="array, disk: seconds; then judge")
    parser.add_argument(
        "--precedence",
        action="store_true",
        help="array, disk: measure at the highest ordinary priority, where other programs run",
    )
    parser.add_argument("--keep", action="store_true", help="disk: leave the files there")
    parser.add_argument(
        "--simulated", action="store_true", help="array, disk: also a simulated machine"
    )
    parser.add_argument("--seeds", type=int, default=20, help="run seeds 1 to N")
    parser.add_argument("--seed", type=int, action="append", help="run this one (repeatable)")
    parser.add_argument("--scale", type=int, default=1, help="1/scale of the array: 1, 8, 64")
    parser.add_argument("--library", type=int)
    parser.add_argument("--library-seed", type=int, default=_LIBRARY_SEED)
    parser.add_argument("--training", type=int, default=Experiment().n_training)
    parser.add_argument("--confidence", type=float, default=0.5)
    parser.add_argument("--only", action="append", help="only ways of fitting that begin so")
    parser.add_argument("--cache", type=Path, default=Path("~/.cache/sds").expanduser())
    parser.add_argument("--json", type=Path)
    return parser


def _check(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    if arguments.simulated and arguments.where == "simulator":
        parser.error("--simulated is for measured times: a simulator would predict itself")


def main() -> None:
    """Run the protocol and print its tables."""
    parser = _parser()
    arguments = parser.parse_args()
    seeds = arguments.seed or list(range(1, arguments.seeds + 1))
    _check(parser, arguments)
    if arguments.where != "simulator":
        from benchmarks.measured_times import report  # noqa: PLC0415 - mounts, reads

        judgements = report(arguments, seeds)
        if arguments.json and judgements:
            arguments.json.write_text(as_json(judgements))
        return
    if arguments.library is None:
        arguments.library = _LIBRARY
    whole = Experiment(n_training=arguments.training)
    experiment = replace(whole, extent=whole.scaled(arguments.scale))
    library = (
        draw_library(arguments.library_seed, experiment, arguments.library)
        if arguments.library
        else ()
    )
    source = Simulator.opened(experiment, arguments.cache)
    print(
        f"Simulated times ({source.parameters}).\nArray {experiment.extent} of "
        f"{experiment.element_size_bytes} bytes, {experiment.n_processes} processes; training: "
        f"{3 * experiment.n_training} patterns x {len(experiment.orders)} layouts."
    )
    if library:
        print(
            f"Patterns are drawn from a library of {len(library)}, simulated once (library seed "
            f"{arguments.library_seed}): seeds share patterns."
        )
        source.simulate(library)
    begin = time.monotonic()
    fitters = [
        fitter
        for fitter in fitters_of()
        if not arguments.only or fitter.name.startswith(tuple(arguments.only))
    ]
    if not fitters:
        names = ", ".join(fitter.name for fitter in fitters_of())
        parser.error(f"--only {' '.join(arguments.only)}: there are {names}")
    judgements = run(source, seeds, library, arguments.confidence, fitters)
    if len(judgements) <= 3:
        for judgement in judgements:
            print_tests(judgement)
    close = np.mean([j.draw.n_close for j in judgements])
    print(
        f"\n{len(seeds)} seeds in {time.monotonic() - begin:.0f} s; on average {close:.1f} of "
        f"{len(judgements[0].draw.tests)} tests have their two best layouts within a factor of "
        f"{experiment.close_factor:g}; advice is refused below a probability of "
        f"{arguments.confidence:g}."
    )
    print_models(judgements)
    if arguments.json:
        arguments.json.write_text(as_json(judgements))


if __name__ == "__main__":
    main()
