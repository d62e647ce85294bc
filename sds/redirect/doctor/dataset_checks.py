"""Explain why datasets are redirected or not: read a little of each, and consult the log."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sds.errors import FormatError, NotFoundError
from sds.geometry import parse_selection
from sds.redirect.doctor.decisions import remedy_for
from sds.redirect.doctor.host_checks import run_logged
from sds.redirect.tables import read_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from sds.home import Home
    from sds.redirect.doctor.decisions import Decision
    from sds.redirect.tables import TableDataset

MOST_ELEMENTS_READ = 1 << 22

_READ = """
import json, sys
import h5py
with h5py.File(sys.argv[1], "r") as file:
    for path, slices in json.loads(sys.argv[2]):
        if path in file:
            file[path][tuple(slice(*each) for each in slices)]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetReport:
    """Report on a dataset: whether its reads are redirected.

    Attributes
    ----------
    orders
        Axis orders of the replicas that the table names.
    served
        Whether a read was served by a replica.
    by_engine
        Whether SDS's engine read the original, past HDF5.
    reason, remedy
        Of the connector's decision; the remedy is empty where there is nothing to do.
    """

    path: str
    orders: tuple[tuple[int, ...], ...]
    served: bool
    reason: str
    remedy: str
    by_engine: bool = False


@dataclass(frozen=True, slots=True)
class FileReport:
    """Report on a file: its datasets, and what keeps all of them from replicas.

    Attributes
    ----------
    problem, remedy
        Empty where its table can be used.
    """

    datasets: tuple[DatasetReport, ...]
    problem: str = ""
    remedy: str = ""


def check_file(
    file: Path,
    dataset: str | None,
    selection: str | None,
    *,
    home: Home,
    interpreter: Path,
    variables: Mapping[str, str],
) -> FileReport:
    """Read a little of each dataset in a file's table, and report what the connector decided.

    Parameters
    ----------
    dataset
        Look at this one alone.
    selection
        Of that dataset: read this; else a plane across the grain of the original, or a tile.
    """
    if not file.is_file():
        return FileReport(datasets=(), problem=f"no such file: {file}", remedy="check the name")
    try:
        table = read_table(home, file)
    except NotFoundError as error:
        # Nothing is wrong with a file that has no replica yet.
        return FileReport(_without_table(dataset, str(error), "build one with `sds reorganize`"))
    except FormatError as error:
        reason, remedy = str(error), "write it again with `sds replicas verify`"
        return FileReport(_without_table(dataset, reason, remedy), problem=reason, remedy=remedy)
    wanted = [entry for entry in table.datasets if dataset in (None, entry.path)]
    if not wanted:
        reason = "the table does not name it: it has no replica, or the file no such dataset"
        remedy = "check its name, or build a replica with `sds reorganize`"
        return FileReport(_without_table(dataset, reason, remedy))
    reads = [(entry.path, _slices(entry, selection)) for entry in wanted]
    run = run_logged([str(interpreter), "-c", _READ, str(file), json.dumps(reads)], variables)
    reports = tuple(_report(entry, run.decisions) for entry in wanted)
    if run.failure:
        return FileReport(
            datasets=reports,
            problem=f"{file} cannot be read: {run.failure}",
            remedy="check the file",
        )
    return FileReport(datasets=reports)


def datasets_of_run(decisions: Iterable[Decision]) -> tuple[DatasetReport, ...]:
    """Return what the connector decided on each dataset that a program read.

    The connector notes each reason once for a dataset that is open.
    """
    reads: dict[str, list[Decision]] = {}
    for entry in decisions:
        if entry.event in ("served", "original", "engine"):
            reads.setdefault(f"{entry.file}:{entry.dataset}", []).append(entry)
        elif entry.event == "no-table":
            reads.setdefault(entry.file, []).append(entry)
    reports = []
    for name, entries in reads.items():
        others = (entry.reason for entry in entries if entry.event not in ("served", "engine"))
        reasons = tuple(dict.fromkeys(others))
        served = any(entry.event == "served" for entry in entries)
        reports.append(
            DatasetReport(
                path=name,
                orders=(),
                served=served,
                reason=_reason_of_run(reasons, served=served) or entries[0].reason,
                remedy="; ".join(filter(None, map(remedy_for, reasons))),
                by_engine=any(entry.event == "engine" for entry in entries),
            )
        )
    return tuple(reports)


def _reason_of_run(reasons: tuple[str, ...], *, served: bool) -> str:
    """Return why reads went to the original; of a dataset that is served, why others did."""
    joined = "; ".join(reasons)
    return f"other reads come from the original: {joined}" if served and joined else joined


def _report(entry: TableDataset, decisions: Iterable[Decision]) -> DatasetReport:
    own = [found for found in decisions if found.dataset == entry.path]
    refused = [found for found in decisions if found.event == "no-table"]
    served = any(found.event == "served" for found in own)
    by_engine = [found for found in own if found.event == "engine"]
    others = [found for found in own if found.event != "engine"]
    reasons = [found.reason for found in others or refused or by_engine] or ["it was not read"]
    return DatasetReport(
        path=entry.path,
        orders=tuple(candidate.order for candidate in entry.candidates),
        served=served,
        reason=reasons[-1],
        remedy="" if served else remedy_for(reasons[-1]),
        by_engine=bool(by_engine),
    )


def _slices(entry: TableDataset, selection: str | None) -> list[tuple[int, int, int]]:
    """Return start, stop and step of what is read on each axis."""
    if selection is None:
        return _across_the_grain(entry)
    chosen = parse_selection(selection, entry.extent)
    return [
        (
            start,
            start + (count - 1) * stride + block if count else start,
            stride if count > 1 else 1,
        )
        for start, stride, count, block in chosen.axes()
    ]


def _across_the_grain(entry: TableDataset) -> list[tuple[int, int, int]]:
    """Return a read that the first replica serves well: one index of its slowest axis, or a tile.

    Inside of what the replica holds, and clipped, so that a diagnosis stays quick on large data.
    """
    replica = entry.candidates[0]
    if replica.segments is None:
        box, slowest = replica.region_in(entry.extent), replica.order[0]
    else:
        box, slowest = replica.segments.box(replica.segments.tiles[0], entry.extent), None
    shape = list(box.extent)
    n_elements = 1
    for axis in reversed(replica.order):
        most = 1 if axis == slowest else max(1, MOST_ELEMENTS_READ // n_elements)
        shape[axis] = min(shape[axis], most)
        n_elements *= max(1, shape[axis])
    return [(start, start + n, 1) for start, n in zip(box.start, shape, strict=True)]


def _without_table(dataset: str | None, reason: str, remedy: str) -> tuple[DatasetReport, ...]:
    """Return what is reported of a dataset, where one is named, that no table names."""
    if dataset is None:
        return ()
    return (DatasetReport(path=dataset, orders=(), served=False, reason=reason, remedy=remedy),)
