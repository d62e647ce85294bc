"""``sds plot``: pictures of how well models predict, and the numbers behind them."""

import enum
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sds.cli.names import check_output, write_output
from sds.cli.options import AsJson
from sds.plots import Kind

if TYPE_CHECKING:
    from sds.calibration.results import Calibration
    from sds.plots.figure_values import (
        CoefficientData,
        FigureData,
        PredictedData,
        ResidualData,
        SpeedupData,
    )


class Way(enum.StrEnum):
    """Way of reading: `Via` of the cost models, without importing their module."""

    HDF5 = "hdf5"
    ENGINE = "engine"


class State(enum.StrEnum):
    """State of the page cache when reads begin: `CacheState`, likewise."""

    COLD = "cold"
    WARM = "warm"


def plot(
    kind: Annotated[
        Kind,
        typer.Argument(
            metavar="KIND", help="What to show: predicted, residuals, speedups or coefficients."
        ),
    ],
    target: Annotated[
        Path,
        typer.Argument(
            metavar="TARGET",
            help="A path on a calibrated file system, or a .json file of `sds calibrate --json` "
            "or `sds plot --json`.",
        ),
    ] = Path(),
    *,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="The picture, .png or .svg."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the picture.")] = False,
    via: Annotated[Way, typer.Option(help="Reads through HDF5, or by the read engine.")] = Way.HDF5,
    cache: Annotated[
        State | None,
        typer.Option(help="Cache state of the reads; cold, or warm where there are no cold ones."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Another model than the chosen one.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show how well the cost models predict reads that they were not fitted to.

    *predicted*: predicted against measured times, with intervals. *residuals*: measured over
    predicted, by predicted time and by pattern. *speedups*: of each layout over the original, by
    pattern, measured and predicted. *coefficients*: the terms of a model. Without -o and --json
    prints the same as text.
    """
    from sds.cli.output import print_json, print_lines

    if output is not None:
        check_output(output, suffixes=(".png", ".svg"), force=force)
    data = _data_of(kind, target, via=via, cache=cache, model=model)
    if output is not None:
        from sds.plots.draw import draw, rendered

        write_output(output, rendered(draw(data), output.suffix[1:].lower()), force=force)
    if as_json:
        print_json(data)
    elif output is not None:
        print_lines(str(output))
    else:
        _print(data)


def _data_of(
    kind: Kind, target: Path, *, via: Way, cache: State | None, model: str | None
) -> "FigureData":
    """Return the data of a figure of what the target names."""
    from sds.calibration.results import Calibration
    from sds.plots.figure_values import figure_data
    from sds.recommender.models.cost_model import CacheState, Via

    if target.suffix.lower() == ".json" and target.is_file():
        found = _from_file(kind, target)
    else:
        found = _calibration_of(target)
    if isinstance(found, Calibration):
        state = None if cache is None else CacheState(cache.value)
        return figure_data(kind, found, via=Via(via.value), cache=state, model=model)
    return found


def _calibration_of(target: Path) -> "Calibration":
    """Return the newest calibration of the file system that holds a path."""
    from sds.errors import FileMissingError
    from sds.home import default_home
    from sds.server.operations.file_system_models import calibration_for
    from sds.server.remote_service import connect

    if not target.exists():
        message = f"no such file or directory: {target}; name a path on a calibrated file system"
        raise FileMissingError(message)
    with connect(default_home()) as service:
        return calibration_for(target, service.calibration_report().calibrations).calibration


def _from_file(kind: Kind, path: Path) -> "Calibration | FigureData":
    """Return the calibration, or the data of a figure of some kind, that a JSON file holds."""
    from pydantic import TypeAdapter, ValidationError

    from sds.calibration.results import Calibration
    from sds.catalog.model_records import CalibrationRecord
    from sds.errors import FormatError
    from sds.files import read_regular
    from sds.plots.figure_values import DATA_OF

    text = read_regular(path)
    for known in (DATA_OF[kind], CalibrationRecord, Calibration):
        try:
            adapter: TypeAdapter[CalibrationRecord | Calibration | FigureData] = TypeAdapter(known)
            found = adapter.validate_json(text)
        except ValidationError:
            continue
        return found.calibration if isinstance(found, CalibrationRecord) else found
    message = (
        f"{path} holds neither a calibration nor the data of a figure {kind}; write one with "
        f"`sds calibrate DIRECTORY --json` or `sds plot {kind} --json`"
    )
    raise FormatError(message)


def _print(data: "FigureData") -> None:
    """Print the data of a figure as text."""
    from sds.cli.output import print_fields
    from sds.plots.figure_values import CoefficientData, PredictedData, ResidualData

    about = data.about
    fields = [("times", f"{about.origin}, {about.subject}"), ("model", about.model)]
    if not isinstance(data, CoefficientData):
        fields.append(("held out", about.held_out))
    print_fields(fields)
    if isinstance(data, PredictedData):
        _print_predicted(data)
    elif isinstance(data, ResidualData):
        _print_residuals(data)
    elif isinstance(data, CoefficientData):
        _print_coefficients(data)
    else:
        _print_speedups(data)


def _print_predicted(data: "PredictedData") -> None:
    from sds.cli.output import print_fields

    print_fields(
        (
            ("reads", f"{len(data.points):,}"),
            ("within 20 %", f"{data.n_near:,}"),
            (
                "outside the 95 % interval",
                f"{data.n_outside_interval:,} (x or / {data.interval_factor:.3g})",
            ),
            ("error, median", f"x{math.exp(data.median_log_error):.3g}"),
            ("error, 95 %", f"x{math.exp(data.p95_log_error):.3g}"),
        )
    )


def _print_residuals(data: "ResidualData") -> None:
    from sds.cli.output import print_table

    print_table(
        ("pattern", "reads>", f"{data.about.origin} / predicted: least>", "median>", "greatest>"),
        [
            (
                row.pattern,
                f"{row.n_reads:,}",
                *(f"{math.exp(log):.3g}" for log in (row.least, row.median, row.greatest)),
            )
            for row in data.patterns
        ],
    )


def _print_speedups(data: "SpeedupData") -> None:
    from sds.cli.output import print_table

    def with_interval(middle: float, low: float, high: float) -> str:
        return f"{middle:.3g} ({low:.3g} to {high:.3g})"

    print_table(
        (
            "pattern",
            f"layout, over {data.original_layout}",
            f"{data.about.origin} (range)>",
            "predicted (95 %)>",
        ),
        [
            (
                s.pattern,
                s.layout,
                with_interval(s.observed_speedup, s.observed_low, s.observed_high),
                with_interval(s.predicted_speedup, s.predicted_low, s.predicted_high),
            )
            for s in data.speedups
        ],
    )


def _print_coefficients(data: "CoefficientData") -> None:
    from sds.cli.output import print_prose, print_table
    from sds.plots.figure_values import coefficient_cells, fit_sentence

    print_table(
        ("term", "unit", "coefficient>", "95 % interval>", "p>"),
        [coefficient_cells(row) for row in data.terms],
    )
    print_prose(fit_sentence(data))
