"""``sds trace``: look into traces."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sds.cli.command_classes import Command, Group

if TYPE_CHECKING:
    from sds.trace import SpoolFile, TraceRecords

app = typer.Typer(help="Look into traces.", cls=Group, no_args_is_help=True)


@app.callback()
def trace() -> None:
    """Look into traces."""


@app.command(cls=Command)
def show(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="SPOOL-FILE", help="A trace; the newest in the spool if left out."),
    ] = None,
    *,
    limit: Annotated[
        int, typer.Option(min=0, metavar="N", help="Most records to print; 0: all.")
    ] = 1000,
    as_json: Annotated[  # noqa: ARG001  (taken like everywhere; there is no other output)
        bool, typer.Option("--json", help="Accepted; the output is always JSON.")
    ] = True,
) -> None:
    """Print a trace as JSON: the process, its datasets, its reads.

    A record stands for the reads of up to four nested loops; docs/reference/cli.md says how.
    """
    from sds.cli.output import print_json
    from sds.trace import read_spool

    path = _newest_trace() if file is None else file
    found = read_spool(_existing(path))
    print_json({"file": path, **_as_keys(found, limit)})


def _existing(path: Path) -> Path:
    """Return a path that is a file.

    Raises
    ------
    FileMissingError
        If there is none.
    """
    from sds.errors import FileMissingError

    if not path.is_file():
        message = f"no such trace: {path}; `sds trace show` alone takes the newest"
        raise FileMissingError(message)
    return path


def _newest_trace() -> Path:
    """Return the trace that was written last.

    Raises
    ------
    NotFoundError
        If the spool is empty.
    """
    from sds.errors import NotFoundError
    from sds.home import default_home
    from sds.trace import SUFFIX

    spool = default_home().spool
    traces = [path for path in spool.glob(f"*{SUFFIX}") if path.is_file()]
    if not traces:
        message = f"no trace in {spool}; run a program with `sds run`"
        raise NotFoundError(message)
    return max(traces, key=lambda path: path.stat().st_mtime_ns)


def _as_keys(found: "SpoolFile", limit: int) -> dict[str, object]:
    """Return a trace as JSON keys, of its records the first ones."""
    shown = len(found.records) if limit == 0 else min(limit, len(found.records))
    return {
        "process": found.process,
        "datasets": found.datasets,
        "n_records": len(found.records),
        "n_reads": int(found.records.n_reads.sum()),
        "torn_bytes": found.torn_bytes,
        "skipped_bytes": found.skipped_bytes,
        "dropped_reads": found.dropped_reads,
        "records": [_record(found.records, index) for index in range(shown)],
    }


def _record(records: "TraceRecords", index: int) -> dict[str, object]:
    """Return one record, its loops and axes cut to those that it has."""
    rank = int(records.rank[index])
    loops = [loop for loop in range(records.repeat.shape[1]) if records.repeat[index, loop] > 1]
    numbers = (
        "dataset_id",
        "thread",
        "selection_kind",
        "n_elements",
        "n_reads",
        "start_ns",
        "last_start_ns",
        "elapsed_ns",
        "elapsed_min_ns",
        "elapsed_max_ns",
        "served_by",
    )
    axes = ("start", "stride", "count", "block")
    return {
        **{name: int(getattr(records, name)[index]) for name in numbers},
        **{name: getattr(records, name)[index, :rank].tolist() for name in axes},
        "repeat": records.repeat[index, loops].tolist(),
        "advance": records.advance[index, loops, :rank].tolist(),
        "collective": bool(records.collective[index]),
        "latency": records.latency[index].tolist(),
    }
