"""``sds calibrate``: measure a file system."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sds.cli.options import AsJson
from sds.files import canonical_path

if TYPE_CHECKING:
    from sds.calibration.results import Calibration, EngineMeasurement


def calibrate(
    path: Annotated[
        Path, typer.Argument(metavar="DIRECTORY", help="A directory of the file system.")
    ],
    *,
    size: Annotated[str, typer.Option(metavar="SIZE", help="Size of the test file.")] = "256M",
    budget: Annotated[
        float, typer.Option(metavar="SECONDS", help="Start no timed read after this time.")
    ] = 60.0,
    refit: Annotated[
        bool,
        typer.Option("--refit", help="Measure nothing: fit the models to traced reads as well."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Time reads of known shape with 1, 2 and 4 processes, and fit the cost models to them.

    Until a file system is calibrated, built-in costs of requests decide. The test file is
    removed afterwards.
    """
    from sds.calibration.results import CalibrationSettings
    from sds.catalog.requests import CalibrateRequest
    from sds.cli.output import print_json, progress_bar
    from sds.cli.quantities import parse_size
    from sds.home import default_home
    from sds.server.remote_service import connect

    if refit:
        _refit(canonical_path(path), as_json=as_json)
        return
    settings = CalibrationSettings(space_bytes=parse_size(size, name="--size"), budget_s=budget)
    request = CalibrateRequest(path=canonical_path(path), settings=settings)
    with connect(default_home()) as service, progress_bar("Calibrating") as advance:
        record = service.calibrate(request, progress=advance)
    if as_json:
        print_json(record)
    else:
        _print_calibration(record.calibration)


def _refit(path: str, *, as_json: bool) -> None:
    """Compare traced reads with a calibration, and tell what came of it."""
    from sds.cli.output import note, print_json, print_prose, print_table, progress_bar
    from sds.home import default_home
    from sds.server.remote_service import connect
    from sds.text import counted

    with connect(default_home()) as service, progress_bar("Fitting") as advance:
        report = service.refit(path, progress=advance)
    if as_json:
        print_json(report)
        return
    for found in report.file_systems:
        if found.changed:
            note(
                f"{found.mount_point} has changed since it was calibrated: {found.changed}; "
                f"run sds calibrate {path}"
            )
            continue
        print_prose(
            f"{found.mount_point}: {counted(found.n_reads, 'traced read')}, {found.n_fitted:,} of "
            f"them fitted; the models are {'new' if found.refitted else 'the same as before'}"
        )
        if found.left_out:
            print_table(
                ("not fitted>", "because", "remedy"),
                [(f"{one.n_reads:,}", one.reason, one.remedy) for one in found.left_out],
            )


def _print_calibration(found: "Calibration") -> None:
    """Print what was measured, and how well the chosen models predict what they had not seen."""
    from sds.cli.output import note, print_fields, print_table
    from sds.cli.quantities import format_seconds
    from sds.text import counted

    system = found.file_system
    print_fields(
        (
            ("file system", f"{system.mount_point} ({system.kind}, {system.source})"),
            ("timed reads", f"{found.n_reads:,} in {format_seconds(found.elapsed_s)}"),
            ("cold by", found.cold_method),
        )
    )
    rows = []
    for measurement in found.measurements:
        repeats = measurement.repeats
        model = measurement.choice.chosen
        error = model.worst_heldout
        rows.append(
            (
                f"{measurement.via}, {measurement.cache}",
                model.name,
                "-" if error is None else f"x{math.exp(error.median):.2f}",
                "-" if error is None else f"x{math.exp(error.p95):.2f}",
                "-" if error is None else error.left_out,
                "" if repeats is None else f"x{math.exp(repeats.median):.2f}",
                "" if repeats is None else f"x{math.exp(repeats.p95):.2f}",
            )
        )
    print_table(
        (
            "reads",
            "model",
            "held-out error, median>",
            "95 %>",
            "held out",
            "repeats differ, median>",
            "95 %>",
        ),
        rows,
    )
    if found.engine is not None:
        _print_engine(found.engine)
    disturbed = sum(measurement.n_disturbed for measurement in found.measurements)
    if disturbed:
        note(
            f"{counted(disturbed, 'read')} took over three times as long as the others of the same "
            "shape; left out of the fits, as something else kept the storage busy"
        )
    if not found.complete:
        note("the time ended before every shape was read; a larger --budget measures them all")


def _print_engine(found: "EngineMeasurement") -> None:
    """Print what requests cost the read engine, and up to which hole it reads on."""
    from sds.cli.output import print_fields, print_prose, print_table
    from sds.cli.quantities import format_seconds, format_size

    costs = found.parameters
    rates = [
        f"{format_size(1 / cost)}/s"
        for cost in (costs.buffered_s_per_byte, costs.direct_s_per_byte, costs.copy_s_per_byte)
    ]
    times = [
        format_seconds(cost)
        for cost in (costs.reads.startup_s, costs.queued_startup_s, costs.call_s, costs.touch_s)
    ]
    holes = [
        format_size(hole)
        for hole in (
            costs.reads.break_even_bytes(),
            costs.queued_startup_s / costs.buffered_s_per_byte,
        )
    ]
    errors = math.exp(found.median_log_error), math.exp(found.p95_log_error)
    print_fields(
        (
            (
                "cold start-up",
                f"{times[0]} a request alone, {times[1]} with {costs.queue_depth} in flight",
            ),
            ("cold stream", f"{rates[0]}, past the page cache {rates[1]}"),
            ("warm", f"{times[2]} a call, {rates[2]}, {times[3]} to map 64 KiB"),
            ("holes read along", f"up to {holes[0]} alone, {holes[1]} in flight"),
            (
                "error of the fit",
                f"x{errors[0]:.2f} in the median, x{errors[1]:.2f} in 95 %",
            ),
        )
    )
    if found.queue:
        print_table(
            ("requests in flight>", "cold 4 KiB request>"),
            [(str(depth), format_seconds(seconds)) for depth, seconds in found.queue],
        )
        print_prose(
            "Start-ups, rates and holes are fitted to reads of all sizes together, the bytes of a "
            "request apart; the table is measured: 4 KiB requests 256 KiB apart, bytes included.",
        )
