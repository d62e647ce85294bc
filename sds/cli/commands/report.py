"""``sds report``: what traced reads took, and what engine and replicas saved of it."""

import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sds.cli.options import AsJson, OptionalName

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sds.analyzer.gains import MeasuredGain
    from sds.catalog.model_records import PatternRecord
    from sds.server.operations.savings import ReplicaSavings, Savings

_FIRST = 20


def report(
    name: OptionalName = None,
    *,
    limit: Annotated[
        int,
        typer.Option(metavar="N", min=0, help="Show the N kinds of read that took most; 0: all."),
    ] = _FIRST,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a page with plots, complete in one file."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the page.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what traced reads took, by what served them, and what replicas saved and cost.

    All is measured: reads from a replica are compared with reads of the same kind from the
    original, those of SDS's engine with those of HDF5, by their medians. What was not traced three
    times the other way saves nothing that is known. Traces that wait are counted first.

    Example: sds report cube.h5 --html cube.html
    """
    from sds.cli.names import check_output, split_name, write_output
    from sds.cli.output import note, print_fields, print_json, print_lines
    from sds.home import default_home
    from sds.redirect.launch.untraced import untraced_sentences
    from sds.server.remote_service import connect

    if html is not None:
        check_output(html, suffixes=(".html", ".htm"), force=force)
    home = default_home()
    file, dataset = (None, None) if name is None else split_name(name)
    with connect(home) as service:
        for problem in service.ingest().problems:
            note(problem)
        found = service.patterns(file, dataset)
        savings = service.savings(file, dataset)
    records = sorted(
        (record for record in found if not record.pattern.stated),
        key=lambda record: -record.pattern.elapsed_s,
    )
    receipt = _as_json(records, savings)
    if html is not None:
        fields = _sum_fields(records, savings)
        page = _page(name, fields, records[: limit or None], _built(savings), receipt)
        write_output(html, page.encode("utf-8", "backslashreplace"), force=force)
    if as_json:
        print_json(receipt)
        return
    if html is not None:
        print_lines(str(html))
        return
    if not records:
        print_lines("no read was traced" + ("" if name is None else f" of {name}"))
        for sentence in untraced_sentences(home.spool):
            note(sentence)
        if not _built(savings):
            return
    print_fields(_sum_fields(records, savings))
    _print_replicas(savings)
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


def _sums(records: "Sequence[PatternRecord]", savings: "Savings") -> dict[str, Any]:
    gains = [gain for _, gain in _gains(records)]
    return {
        "reads": sum(record.pattern.n_calls for record in records),
        "elapsed_s": sum(record.pattern.elapsed_s for record in records),
        "time_lost_s": sum(record.pattern.time_lost_s for record in records),
        "saved_by_engine_s": _saved_s([g for g in gains if g.times.is_of_original]),
        "saved_by_replicas_s": savings.saved_s,
        "saved_by_replicas_low_s": savings.saved_low_s,
        "saved_by_replicas_high_s": savings.saved_high_s,
        "build_s": savings.build_s,
        "gone_build_s": savings.gone_build_s,
        "gone_saved_s": savings.gone_saved_s,
    }


def _as_json(records: "Sequence[PatternRecord]", savings: "Savings") -> dict[str, Any]:
    from dataclasses import asdict

    from pydantic_core import to_jsonable_python

    from sds import __version__
    from sds.analyzer.gains import measured_gains

    return _sums(records, savings) | {
        "version": __version__,
        "host": socket.gethostname(),
        "made_ns": time.time_ns(),
        "replicas": to_jsonable_python(savings.replicas),
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
        ],
    }


def _sum_fields(records: "Sequence[PatternRecord]", savings: "Savings") -> list[tuple[str, str]]:
    from sds.cli.quantities import format_seconds
    from sds.cli.traced_times import describe_saved
    from sds.text import counted

    sums = _sums(records, savings)
    saved = describe_saved(savings.saved_s, savings.saved_low_s, savings.saved_high_s)
    fields = [
        ("traced", f"{counted(sums['reads'], 'read')}, {format_seconds(sums['elapsed_s'])}"),
        ("saved by replicas", saved),
        ("saved by SDS's engine", format_seconds(sums["saved_by_engine_s"])),
        ("lost to the layout", format_seconds(sums["time_lost_s"])),
    ]
    if savings.build_s:
        fields.append(("replicas were built in", format_seconds(savings.build_s)))
    if savings.gone_build_s:
        saved_s = savings.gone_saved_s
        saved = "is not known" if saved_s is None else f"was {format_seconds(saved_s)}"
        of_gone = f"{format_seconds(savings.gone_build_s)}; what they had saved {saved}"
        fields.append(("of it those that are gone", of_gone))
    return fields


def _built(savings: "Savings") -> "list[ReplicaSavings]":
    """Return the replicas that there were, without those of which the build failed."""
    return [one for one in savings.replicas if one.replica.replica is not None or one.gain.n]


def _print_replicas(savings: "Savings") -> None:
    """Print a table of what the replicas of each dataset saved and cost."""
    from itertools import groupby

    from sds.cli.output import print_lines, print_table
    from sds.cli.traced_times import REPLICA_COLUMNS, replica_cells

    def source(one: "ReplicaSavings") -> str:
        return f"{one.replica.file}:{one.replica.dataset}"

    for name, of_one in groupby(sorted(_built(savings), key=source), key=source):
        print_lines("", f"replicas of {name}")
        print_table(REPLICA_COLUMNS, [replica_cells(one) for one in of_one])


def _page(
    name: str | None,
    fields: "Sequence[tuple[str, str]]",
    records: "Sequence[PatternRecord]",
    replicas: "Sequence[ReplicaSavings]",
    receipt: dict[str, Any],
) -> str:
    """Return the page of a report, with when and where it was made."""
    from datetime import UTC, datetime

    from sds.cli.report_page import report_page

    made = datetime.fromtimestamp(receipt["made_ns"] / 1e9, UTC).isoformat(timespec="seconds")
    about = f"{made}, on {receipt['host']}, by SDS {receipt['version']}"
    title = "Reads and replicas" + ("" if name is None else f" of {name}")
    return report_page(title, [("made", about), *fields], records, replicas, receipt)


def _print_patterns(records: "Sequence[PatternRecord]") -> None:
    """Print a table for each dataset, those first of which a kind of read took most."""
    from sds.cli.output import print_lines, print_table
    from sds.cli.traced_times import PATTERN_COLUMNS, pattern_cells

    tables: dict[str, list[tuple[str, ...]]] = {}
    for record in records:
        rows = tables.setdefault(f"{record.file}:{record.dataset}", [])
        rows += pattern_cells(record.pattern)
    for name, rows in tables.items():
        print_lines("", name)
        print_table(PATTERN_COLUMNS, rows)
