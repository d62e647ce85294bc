"""``sds report``: what traced reads took, and what engine and replicas saved of it."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sds.cli.options import AsJson, OptionalName

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sds.analyzer.gains import MeasuredGain
    from sds.catalog.model_records import PatternRecord

_FIRST = 20


def report(
    name: OptionalName = None,
    *,
    limit: Annotated[
        int,
        typer.Option(metavar="N", min=0, help="Show the N kinds of read that took most; 0: all."),
    ] = _FIRST,
    as_json: AsJson = False,
) -> None:
    """Show what traced reads took, by what served them, and the time that this saved.

    All is measured: reads from a replica are compared with reads of the same kind from the
    original, those of SDS's engine with those of HDF5, by their medians. What was not traced three
    times the other way saves nothing that is known. Traces that wait are counted first.

    Example: sds report cube.h5
    """
    from sds.cli.names import split_name
    from sds.cli.output import note, print_json, print_lines
    from sds.home import default_home
    from sds.redirect.launch.untraced import untraced_sentences
    from sds.server.remote_service import connect

    home = default_home()
    file, dataset = (None, None) if name is None else split_name(name)
    with connect(home) as service:
        for problem in service.ingest().problems:
            note(problem)
        found = service.patterns(file, dataset)
    records = sorted(
        (record for record in found if not record.pattern.stated),
        key=lambda record: -record.pattern.elapsed_s,
    )
    if as_json:
        print_json(_as_json(records))
        return
    if not records:
        print_lines("no read was traced" + ("" if name is None else f" of {name}"))
        for sentence in untraced_sentences(home.spool):
            note(sentence)
        return
    _print_sums(records)
    _print_patterns(records[: limit or None])
    if limit and len(records) > limit:
        note(f"{len(records) - limit} more kinds of read took less: --limit 0 shows all")


def _gains(records: "Sequence[PatternRecord]") -> "list[tuple[PatternRecord, MeasuredGain]]":
    from sds.analyzer.gains import measured_gains

    return [(record, gain) for record in records for gain in measured_gains(record.pattern)]


def _saved_s(gains: "Sequence[MeasuredGain]") -> float | None:
    """Return what is saved in all; None where nothing is known."""
    known = [gain.saved_s for gain in gains if gain.saved_s is not None]
    return sum(known) if known else None


def _sums(records: "Sequence[PatternRecord]") -> dict[str, Any]:
    gains = [gain for _, gain in _gains(records)]
    return {
        "reads": sum(record.pattern.n_calls for record in records),
        "elapsed_s": sum(record.pattern.elapsed_s for record in records),
        "time_lost_s": sum(record.pattern.time_lost_s for record in records),
        "saved_by_engine_s": _saved_s([g for g in gains if g.times.is_of_original]),
        "saved_by_replicas_s": _saved_s([g for g in gains if not g.times.is_of_original]),
    }


def _as_json(records: "Sequence[PatternRecord]") -> dict[str, Any]:
    from dataclasses import asdict

    from sds.analyzer.gains import measured_gains

    return _sums(records) | {
        "patterns": [
            {
                "file": record.file,
                "dataset": record.dataset,
                "description": record.pattern.description,
                "reads": record.pattern.n_calls,
                "elapsed_s": record.pattern.elapsed_s,
                "time_lost_s": record.pattern.time_lost_s,
                "served": [
                    asdict(gain.times)
                    | {
                        "median_s": gain.times.median_s,
                        "compared_s": gain.compared_s,
                        "saved_s": gain.saved_s,
                    }
                    for gain in measured_gains(record.pattern)
                ],
            }
            for record in records
        ]
    }


def _print_sums(records: "Sequence[PatternRecord]") -> None:
    from sds.cli.output import print_fields
    from sds.cli.quantities import format_seconds
    from sds.text import counted

    sums = _sums(records)
    print_fields(
        (
            ("traced", f"{counted(sums['reads'], 'read')}, {format_seconds(sums['elapsed_s'])}"),
            ("saved by replicas", _difference(sums["saved_by_replicas_s"])),
            ("saved by SDS's engine", _difference(sums["saved_by_engine_s"])),
            ("lost to the layout", format_seconds(sums["time_lost_s"])),
        )
    )


def _difference(seconds: float | None) -> str:
    from sds.cli.quantities import format_seconds

    if seconds is None:
        return "-"
    return format_seconds(seconds) if seconds >= 0 else f"-{format_seconds(-seconds)}"


def _print_patterns(records: "Sequence[PatternRecord]") -> None:
    """Print a table for each dataset, those first of which a kind of read took most."""
    from sds.analyzer.gains import measured_gains
    from sds.cli.output import print_lines, print_table
    from sds.cli.quantities import format_seconds
    from sds.cli.traced_times import served_by

    tables: dict[str, list[tuple[str, ...]]] = {}
    for record in records:
        pattern = record.pattern
        rows = tables.setdefault(f"{record.file}:{record.dataset}", [])
        gains = measured_gains(pattern)
        for number, gain in enumerate(gains):
            times = gain.times
            rows.append(
                (
                    pattern.description if number == 0 else "",
                    served_by(times.served_by),
                    f"{times.n:,}",
                    format_seconds(times.median_s),
                    f"{format_seconds(times.least_s)} to {format_seconds(times.most_s)}",
                    format_seconds(times.total_s),
                    _difference(gain.saved_s),
                )
            )
        if not gains:  # collective, or of an older catalog
            rows.append(
                (pattern.description, "-", f"{pattern.n_calls:,}", "-", "-",
                 format_seconds(pattern.elapsed_s), "-")
            )  # fmt: skip
    columns = ("reads", "served by", "number>", "median>", "fastest to slowest>", "all>", "saved>")
    for name, rows in tables.items():
        print_lines("", name)
        print_table(columns, rows)
