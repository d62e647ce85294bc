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
import hashlib
import json
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sds import _native
from sds.geometry import ContiguousLayout
from sds.recommender.choose import fitters_of
from sds.recommender.judgement import WITHIN, Judgement, Observed, judge
from sds.recommender.operation import (
    LUSTRE_CLIENT,
    ClientReads,
    OperationMeasures,
    measure_operation,
)
from sds.recommender.protocol import (
    KINDS,
    PAPER_SPEEDUPS,
    Experiment,
    Pattern,
    draw_library,
    draw_tests,
    draw_training,
)
from sds.simulator import Operation, SimulatorParameters, hopper, simulate_many

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from benchmarks.measured_times import MeasuredTimes
    from sds.recommender.heldout import Fits
    from sds.recommender.judgement import Predicts

_RIGHT_OF_24 = 23
_LIBRARY = 120
_LIBRARY_SEED = 2014


@dataclass(slots=True)
class Simulator:
    """Simulated times of patterns, each simulated once and kept in a file."""

    experiment: Experiment
    parameters: SimulatorParameters
    store: Path
    seconds: dict[str, tuple[float, ...]] = field(default_factory=dict)
    observed: dict[Pattern, Observed] = field(default_factory=dict)

    @classmethod
    def opened(cls, experiment: Experiment, directory: Path) -> Simulator:
        """Return a simulator with what was simulated before with the same parameters."""
        parameters = hopper()
        key = hashlib.sha256(f"{parameters}{experiment.orders}{experiment.extent}".encode())
        # Another build may simulate otherwise.
        key.update(Path(_native.__file__).read_bytes())
        store = directory / f"table1-{key.hexdigest()[:16]}.json"
        known = json.loads(store.read_text()) if store.exists() else {}
        return cls(experiment, parameters, store, {k: tuple(v) for k, v in known.items()})

    def simulate(self, patterns: Iterable[Pattern]) -> None:
        """Simulate what is not known yet, on all processors; keep it."""
        missing = [p for p in dict.fromkeys(patterns) if p.name not in self.seconds]
        n = len(self.experiment.orders)
        begin = time.monotonic()
        for at in range(0, len(missing), 8):
            some = missing[at : at + 8]
            runs = simulate_many(
                [self._operation(p, i) for p in some for i in range(n)],
                self.parameters,
                n_threads=os.cpu_count() or 1,
            )
            for j, pattern in enumerate(some):
                self.seconds[pattern.name] = tuple(r.seconds for r in runs[j * n : j * n + n])
            self._keep()
            _tell(f"simulated {at + len(some)} of {len(missing)} patterns")
        if len(missing) > 1:
            print(
                f"simulated {len(missing)} patterns x {n} layouts in "
                f"{time.monotonic() - begin:.0f} s"
            )

    def _keep(self) -> None:
        self.store.parent.mkdir(parents=True, exist_ok=True)
        written = self.store.with_suffix(f".{os.getpid()}")
        written.write_text(json.dumps(self.seconds))
        written.replace(self.store)

    def _operation(self, pattern: Pattern, layout: int) -> Operation:
        reads = pattern.reads().permuted(self.experiment.orders[layout])
        return Operation(
            extent=tuple(self.experiment.extent[a] for a in self.experiment.orders[layout]),
            slabs=np.ascontiguousarray(
                np.stack([reads.start, reads.stride, reads.count, reads.block], axis=1)
            ),
            element_size_bytes=self.experiment.element_size_bytes,
        )

    def times(self, pattern: Pattern) -> tuple[float, ...]:
        """Return the simulated seconds of a pattern in each layout."""
        if pattern.name not in self.seconds:
            self.simulate([pattern])
        return self.seconds[pattern.name]

    def observe(self, pattern: Pattern) -> Observed:
        """Return the times of a pattern, and what it touches."""
        if pattern not in self.observed:
            self.observed[pattern] = Observed(
                seconds=self.times(pattern),
                operations=tuple(
                    measure(pattern, self.experiment, order) for order in self.experiment.orders
                ),
            )
        return self.observed[pattern]


def measure(
    pattern: Pattern,
    experiment: Experiment,
    order: tuple[int, ...],
    client: ClientReads = LUSTRE_CLIENT,
) -> OperationMeasures:
    """Return what a pattern asks of the storage in a layout, read by such a client."""
    return measure_operation(
        experiment.extent,
        pattern.reads(),
        ContiguousLayout(element_size_bytes=experiment.element_size_bytes, order=order),
        experiment.stripes,
        experiment.raid,
        client=client,
    )


def run_seed(
    source: Simulator | MeasuredTimes,
    seed: int,
    library: Sequence[Pattern],
    confidence: float,
    fitters: Sequence[Fits],
    *,
    others: Sequence[Predicts] = (),
) -> Judgement:
    """Return how all models did on the tests of one seed."""
    if not library and isinstance(source, Simulator):
        source.simulate(draw_training(seed, source.experiment))
    draw = draw_tests(seed, source.experiment, source.times, library=library)
    return judge(
        draw,
        source.experiment,
        source.observe,
        fitters,
        min_confidence=confidence,
        others=others,
    )


def print_tests(judgement: Judgement, times: str = "simulated") -> None:
    """Print the best layout measured and selected per test, as Table I does."""
    draw = judgement.draw
    kinds = [p.kind for p in draw.tests]
    print(
        f"\n### seed {draw.seed}: {draw.n_close} of {len(draw.tests)} tests close, "
        f"{draw.n_rejected} drawn and rejected\n"
    )
    first = next(m for m in judgement.models if not m.refused)
    rows = [(f"{times} best", [s.best for s in first.selections])]
    rows += [
        (m.name, [s.advice.layout for s in m.selections]) for m in judgement.models if not m.refused
    ]
    print("| | " + " | ".join(KINDS) + " |\n|---|---|---|---|")
    for name, layouts in rows:
        cells = [
            ",".join(str(i + 1) for i, k in zip(layouts, kinds, strict=True) if k == kind)
            for kind in range(len(KINDS))
        ]
        print(f"| {name} | " + " | ".join(cells) + " |")


def print_models(judgements: Sequence[Judgement], times: str = "simulated") -> None:
    """Print how each model did, over all seeds."""
    kinds = [p.kind for p in judgements[0].draw.tests]
    n_tests = len(kinds)
    print(
        f"\n| model (errors of {times} times) | right within {WITHIN:.0%}: median, least of "
        f"{n_tests} | seeds with {_RIGHT_OF_24} | exact | worst regret | held-out R^2: median, "
        "least | log error: median | 95 % | rank per test | mean speed-ups |"
    )
    print("|" + "---|" * 10)
    for i, first in enumerate(judgements[0].models):
        done = [j.models[i] for j in judgements if not j.models[i].refused]
        if not done:
            print(f"| {first.name} | {first.refused} |" + " |" * 8)
            continue
        right = np.array([m.n_within for m in done])
        errors = [m.error for m in done if m.error is not None]
        r2 = np.array([e.r_squared for e in errors if e.r_squared is not None])
        speedups = np.mean([m.speedups(kinds) for m in done], axis=0)
        print(
            f"| {first.name} | {np.median(right):.0f}, {right.min()} | "
            f"{np.mean(right >= _RIGHT_OF_24):.1%} | {np.mean([m.n_exact for m in done]):.1f} | "
            f"{max(m.worst_regret for m in done):.0%} | {np.median(r2):.4f}, {r2.min():.4f} | "
            f"{np.median([e.median for e in errors]):.3f} | "
            f"{np.median([e.p95 for e in errors]):.3f} | "
            f"{np.mean([m.rank_correlation for m in done]):.3f} | "
            + ", ".join(f"{s:.3g}" for s in speedups)
            + " |"
        )
    print(
        "\nMean speed-ups over layout 1 by the paper's own tests: "
        + ", ".join(f"{s}x ({k})" for s, k in zip(PAPER_SPEEDUPS, KINDS, strict=True))
        + "."
    )


def as_json(judgements: Sequence[Judgement]) -> str:
    """Return what every model did in every seed."""
    return json.dumps(
        [
            {
                "seed": j.draw.seed,
                "tests": [p.name for p in j.draw.tests],
                "n_close": j.draw.n_close,
                "models": {
                    m.name: {
                        "refused": m.refused,
                        "right": m.n_within,
                        "exact": m.n_exact,
                        "advice_refused": m.n_refused,
                        "selected": [s.advice.layout for s in m.selections],
                        "best": [s.best for s in m.selections],
                        "regret": [s.regret for s in m.selections],
                        "simulated_s": [s.measured_s for s in m.selections],
                        "predicted_s": [s.predicted_s for s in m.selections],
                        "r_squared": m.error.r_squared if m.error else None,
                        "median": m.error.median if m.error else None,
                        "p95": m.error.p95 if m.error else None,
                    }
                    for m in j.models
                },
            }
            for j in judgements
        ],
        indent=1,
    )


def _tell(text: str) -> None:
    """Say how far it is, where someone watches."""
    if sys.stderr.isatty():
        print(f"\r{text}   ", end="", file=sys.stderr, flush=True)


_SHARED: tuple[Simulator, tuple[Pattern, ...], float, list[Fits]] | None = None


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
    fitters: list[Fits],
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
