"""Check the redirect tables of a home."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sds.errors import FormatError, SdsError, SdsValueError
from sds.files import read_regular
from sds.hdf5.identity import source_identity
from sds.mounts import look_at
from sds.redirect.tables import RedirectTable, table_path

if TYPE_CHECKING:
    from pathlib import Path

    from sds.home import Home


OF_CHANGED_SOURCE = (
    "build its replicas anew with `sds reorganize`, or, where its bytes are the same, let "
    "`sds replicas verify` compare them"
)
"""Remedy where a source is not what its replicas were made of."""
_NOT_SEEN = "see to it that this account can read the file; until then programs read no replica"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReport:
    """A redirect table.

    Attributes
    ----------
    source
        The file that it is of; empty where the table cannot be read.
    datasets
        Those that have replicas.
    problem
        Why no program is served by it; empty where nothing is wrong with the table itself.
    remedy
        What to do about its source; empty where that is not the problem.
    """

    path: str
    source: str
    datasets: tuple[str, ...]
    problem: str
    remedy: str = ""


def find_tables(home: Home, source: Path | None = None) -> tuple[TableReport, ...]:
    """Return the tables of a home, or the one of a source where one is named."""
    paths = sorted(home.tables.glob("*.sdst")) if source is None else [table_path(home, source)]
    return tuple(_report(path) for path in paths if path.is_file())


def _report(path: Path) -> TableReport:
    try:
        table = RedirectTable.from_bytes(read_regular(path))
    except (FormatError, SdsValueError) as error:
        return TableReport(path=str(path), source="", datasets=(), problem=str(error))
    except OSError as error:
        problem = f"this account cannot read it: {error.strerror}"
        return TableReport(path=str(path), source="", datasets=(), problem=problem)
    problem = remedy = ""
    try:
        source = table.source_path
        changed = table.source_identity.difference(look_at(source, lambda: source_identity(source)))
    except SdsError as error:
        problem, remedy = str(error), _NOT_SEEN
    else:
        if changed:
            problem, remedy = f"{table.source_path} has changed ({changed})", OF_CHANGED_SOURCE
    return TableReport(
        path=str(path),
        source=str(table.source_path),
        datasets=tuple(dataset.path for dataset in table.datasets),
        problem=problem,
        remedy=remedy,
    )
