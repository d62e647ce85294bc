"""``sds advise``: which layouts would pay."""

from typing import TYPE_CHECKING, Annotated

import typer

from sds.cli.options import AsJson, split_name

if TYPE_CHECKING:
    from sds.catalog.records import RecommendationRecord
    from sds.server.reports import Advice


def advise(
    name: Annotated[
        str,
        typer.Argument(metavar="FILE[:/DATASET]", help="A file, or one dataset of it."),
    ],
    *,
    select: Annotated[
        str | None,
        typer.Option(
            metavar="SELECTION",
            help="Advise for this selection, as in NumPy, instead of for traced reads; "
            "for example '[:, :, 5]'.",
        ),
    ] = None,
    reads: Annotated[
        int | None, typer.Option(min=1, help="With --select: how many such reads a day.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say which axis orders would make the observed reads cheaper, and by how much.

    Rests on the traces ingested so far, or on --select. Builds nothing: the command that would
    is printed. Times are predictions; `uncalibrated` marks those of the built-in model.
    """
    from sds.cli.client import connect
    from sds.cli.output import note, print_json
    from sds.errors import SdsValueError
    from sds.home import default_home

    file, dataset = split_name(name)
    if select is not None and dataset is None:
        message = f"--select needs a dataset: write {name}:/DATASET"
        raise SdsValueError(message)
    if reads is not None and select is None:
        message = "--reads needs --select: traced reads have been counted"
        raise SdsValueError(message)
    with connect(default_home()) as service:
        advice = service.advise(file, dataset, selection=select, n_reads=reads)
    if as_json:
        print_json(_with_best(advice))
        return
    for record in advice.recommendations:
        _print_recommendation(record)
    for remark in advice.notes:
        note(remark)


def _with_best(advice: "Advice") -> dict[str, object]:
    """Return advice as JSON keys, what to do first beside it."""
    first = advice.recommendations[0] if advice.recommendations else None
    best = None if first is None else first.recommendation
    return {
        "file": advice.file,
        "dataset": None if first is None else first.dataset,
        "order": None if best is None else best.order,
        "command": None if best is None else best.command,
        "calibrated": None if best is None else best.calibrated,
        "predicted_s_now": None if best is None else best.best.predicted_s_now,
        "predicted_s": None if best is None else best.best.predicted_s,
        "speedup": None if best is None else best.best.speedup,
        "recommendations": advice.recommendations,
        "notes": advice.notes,
    }


def _print_recommendation(record: "RecommendationRecord") -> None:
    """Print the advice for one dataset: the answer, the candidates, the command."""
    from sds.cli.output import print_lines, print_table
    from sds.cli.quantities import format_order, format_seconds, format_size

    advice = record.recommendation
    mark = "" if advice.calibrated else " (uncalibrated)"
    print_lines(f"{record.file}:{record.dataset}", f"  {advice.reason}")
    print_table(
        (
            "layout",
            "now>",
            f"then{mark}>",
            "faster>",
            "confidence>",
            "size>",
            "build>",
            "pays after>",
        ),
        [
            (
                format_order(layout.order) + (" *" if layout.advised else ""),
                format_seconds(layout.predicted_s_now),
                format_seconds(layout.predicted_s),
                f"{layout.speedup:.3g}x",
                f"{layout.confidence:.0%}",
                "" if layout.order is None else format_size(layout.size_bytes),
                "" if layout.order is None else format_seconds(layout.build_cost_s),
                _break_even(layout.break_even_reads),
            )
            for layout in advice.candidates
        ],
    )
    if advice.command is not None:
        print_lines(f"  {advice.command}", "")


def _break_even(n_reads: int | None) -> str:
    """Return the reads after which a replica has paid for itself."""
    if n_reads is None:
        return ""
    return f"{n_reads:,} read" if n_reads == 1 else f"{n_reads:,} reads"
