"""Judgements of seeds, and their tables."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.table1.evaluation import WITHIN, Judgement, judge
from benchmarks.table1.protocol import KINDS, PAPER_SPEEDUPS, Pattern, draw_tests, draw_training
from benchmarks.table1.simulator import Simulator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.measured_times import MeasuredTimes
    from benchmarks.table1.evaluation import Predicts
    from sds.recommender.models.regression import EquationFitter

_RIGHT_OF_24 = 23


def run_seed(
    source: Simulator | MeasuredTimes,
    seed: int,
    library: Sequence[Pattern],
    confidence: float,
    fitters: Sequence[EquationFitter],
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
