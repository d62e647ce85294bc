"""Draws the figures of docs/how-to/plots.md, of simulated times.

    python -m benchmarks._model_figures DIRECTORY [--seed N]

The tests of one seed of `benchmarks.table1` on an array of a sixty-fourth of the paper's, as the
service model fitted to the seed's training patterns predicts them: predicted against simulated
times and speed-ups as .svg, and the data behind them as .json, which `sds plot` draws.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from benchmarks.table1.evaluation import Judgement, judge
from benchmarks.table1.protocol import Experiment, draw_tests, draw_training
from benchmarks.table1.simulator import Simulator
from sds.errors import SdsValueError
from sds.plots.draw import draw, rendered
from sds.plots.figure_values import predicted_data, speedup_data
from sds.plots.heldout_reads import Evidence, Origin, Provenance
from sds.recommender.models.cost_model import SIGMAS_95
from sds.recommender.models.service_model import ServiceFitter

if TYPE_CHECKING:
    from collections.abc import Sequence

_SHARE = 64


def evidence_of(
    judgements: Sequence[Judgement],
    experiment: Experiment,
    *,
    model: str,
    origin: Origin,
    subject: str,
) -> Evidence:
    """Return the tests of some seeds, as the model fitted to their training predicts them.

    Parameters
    ----------
    judgements, experiment
        As judged; several seeds are put together.
    model
        Name of the way of fitting.
    origin, subject
        Of the times.

    Raises
    ------
    SdsValueError
        If the model could not be fitted in any seed.
    """
    found = [(j.draw.seed, j.of(model)) for j in judgements]
    models = [m.model for _, m in found if m.model is not None]
    if not models:
        why = next((m.refused for _, m in found), "no seed was judged")
        raise SdsValueError(f"{model} was not fitted ({why}): choose another model")
    layouts = [experiment.layout_name(i) for i in range(len(experiment.orders))]
    selections = [
        (s.pattern if len(found) == 1 else f"{s.pattern} (seed {seed})", s)
        for seed, judged in found
        for s in judged.selections
    ]
    return Evidence(
        about=Provenance(
            origin=origin,
            subject=subject,
            model=model,
            held_out="tests are no training patterns",
        ),
        patterns=tuple(name for name, _ in selections for _ in layouts),
        layouts=tuple(layout for _ in selections for layout in layouts),
        observed_s=tuple(t for _, s in selections for t in s.measured_s),
        predicted_s=tuple(t for _, s in selections for t in s.predicted_s),
        interval_log=SIGMAS_95 * _root_mean_square([m.log_error for m in models]),
        ratio_error=_root_mean_square([m.ratio_error for m in models]),
    )


def _root_mean_square(values: Sequence[float]) -> float:
    return math.sqrt(sum(v * v for v in values) / len(values))


def main() -> None:
    """Simulate, fit and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cache", type=Path, default=Path("~/.cache/sds").expanduser())
    arguments = parser.parse_args()
    whole = Experiment()
    experiment = replace(whole, extent=whole.scaled(_SHARE))
    source = Simulator.opened(experiment, arguments.cache)
    source.simulate(draw_training(arguments.seed, experiment))
    draw_of_seed = draw_tests(arguments.seed, experiment, source.times)
    fitter = ServiceFitter()
    judgement = judge(draw_of_seed, experiment, source.observe, [fitter])
    evidence = evidence_of(
        [judgement],
        experiment,
        model=fitter.name,
        origin=Origin.SIMULATED,
        subject=(
            f"Hopper, simulated: {' x '.join(map(str, experiment.extent))} elements, "
            f"{experiment.n_processes} processes, seed {arguments.seed}"
        ),
    )
    for name, data in (
        ("predicted", predicted_data(evidence)),
        ("speedups", speedup_data(evidence, original=experiment.layout_name(0))),
    ):
        target = arguments.directory / f"{name}-simulated.svg"
        target.write_bytes(rendered(draw(data), "svg"))
        target.with_suffix(".json").write_bytes(TypeAdapter(type(data)).dump_json(data))
        print(target)


if __name__ == "__main__":
    main()
