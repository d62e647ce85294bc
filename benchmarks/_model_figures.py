"""Draws the figures of docs/how-to/plots.md, of simulated times.

    python -m benchmarks._model_figures DIRECTORY [--seed N]

The tests of one seed of `benchmarks.table1` on an array of a sixty-fourth of the paper's, as the
service model fitted to the seed's training patterns predicts them: predicted against simulated
times and speed-ups as .svg, and the data behind them as .json, which `sds plot` draws.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from pydantic import TypeAdapter

from benchmarks.table1 import Simulator
from sds.plots.data import predicted_data, speedup_data
from sds.plots.evidence import Evidence, Origin
from sds.plots.figures import draw, rendered
from sds.recommender.judgement import judge
from sds.recommender.protocol import Experiment, draw_tests, draw_training
from sds.recommender.service import ServiceFitter

_SHARE = 64


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
    evidence = Evidence.of_judgements(
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
