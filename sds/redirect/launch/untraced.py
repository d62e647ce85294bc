"""Processes of which nothing is traced, because SDS cannot serve their HDF5.

The preloaded library and the connector note them in the spool (sds/redirect/vol/abi/preload_note.c,
sds/redirect/vol/state/untraced.cpp).
"""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

from sds.errors import UnreachableError
from sds.mounts import look_at
from sds.redirect.launch.probe import hdf5_version_in, is_hdf5_name
from sds.text import counted

log = logging.getLogger(__name__)

UNTRACED_NAME = "untraced.tsv"
_SHOWN_DAYS = 7
_MOST_SENTENCES = 5
# A file that has so many is added to no more.
_MOST_BYTES = 64 << 10
_MOST_DIGITS = 18
_FIRST_WITH_CONNECTORS = (1, 12)
_REMEDY = (
    "wheels of h5py, netCDF4 and tables from PyPI bring an HDF5 that is served; of another program "
    "sds doctor -- PROGRAM says what to do"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UntracedProcess:
    """A process, and the HDF5 library that it used without SDS.

    Attributes
    ----------
    time_s
        When that library started, seconds since the epoch.
    program, library
        As the process was started, and the path of the library or of the program that holds it.
    version
        Of HDF5; 0.0.0 where it is not known.
    """

    time_s: int
    pid: int
    host: str
    program: str
    library: str
    version: str
    reason: str


def read_untraced(spool: Path) -> tuple[UntracedProcess, ...]:
    """Return the processes that a spool tells of, the oldest first.

    What is no line of such a file is left out: a line may be cut where a disk was full. Of an HDF5
    that asked for no connector the file says its version; what holds none, or a later one that has
    connectors, only asked for the same variables.
    """
    found = []
    versions: dict[str, str | None] = {}
    for name in (f"{UNTRACED_NAME}.old", UNTRACED_NAME):
        for line in _text(spool / name).splitlines():
            process = _process(line)
            if process is not None and not process.reason:
                library = process.library
                if library not in versions:
                    versions[library] = _version_in(Path(library))
                process = _without_connectors(process, versions[library])
            if process is not None:
                found.append(process)
    return tuple(found)


def _process(line: str) -> UntracedProcess | None:
    """Return what a line tells of; None of what is none."""
    fields = line.split("\t")
    numbers = fields[:2]
    if len(fields) != 7 or not all(n.isdecimal() and len(n) <= _MOST_DIGITS for n in numbers):
        return None
    return UntracedProcess(
        time_s=int(fields[0]), pid=int(fields[1]), host=fields[2], program=fields[3],
        library=fields[4], version=fields[5], reason=fields[6],
    )  # fmt: skip


def _version_in(library: Path) -> str | None:
    """Return the version of HDF5 that a file holds; empty: none, None: it cannot be looked at."""
    try:
        if not look_at(library, lambda: os.path.lexists(library)):
            return None
        return look_at(library, lambda: hdf5_version_in(library))
    except UnreachableError:
        return None


def _without_connectors(process: UntracedProcess, version: str | None) -> UntracedProcess | None:
    """Return a process whose HDF5, of a version, asked for no connector; None where it has some."""
    if version is None:
        # It is gone, or of another host; a program may also ask for such variables itself.
        is_hdf5 = is_hdf5_name(Path(process.library))
        return replace(process, reason="it asked for no connector") if is_hdf5 else None
    if not version or tuple(map(int, version.split("."))) >= _FIRST_WITH_CONNECTORS:
        return None
    return replace(process, version=version, reason=f"HDF5 {version} is older than 1.14")


def drop_old_notes(spool: Path) -> None:
    """Put a file of notes that is half full aside, in the place of the one before it."""
    path = spool / UNTRACED_NAME
    try:
        if path.lstat().st_size >= _MOST_BYTES // 2:
            path.replace(spool / f"{UNTRACED_NAME}.old")
    except OSError as error:
        log.debug("%s is not put aside: %s", path, error)


def untraced_sentences(spool: Path, *, since_s: float | None = None) -> tuple[str, ...]:
    """Return in words which libraries were used without SDS, the latest first.

    Parameters
    ----------
    since_s
        Seconds since the epoch; None: a week ago.
    """
    since = time.time() - _SHOWN_DAYS * 86400 if since_s is None else since_s
    by_library: dict[tuple[str, str], list[UntracedProcess]] = {}
    for each in read_untraced(spool):
        if each.time_s >= int(since):
            by_library.setdefault((each.library, each.reason), []).append(each)
    latest = sorted(by_library.items(), key=lambda item: -item[1][-1].time_s)
    sentences = [
        f"{_processes(found)} used {library}, and nothing of it was traced: {reason}; {_REMEDY}"
        for (library, reason), found in latest[:_MOST_SENTENCES]
    ]
    if len(latest) > _MOST_SENTENCES:
        n_more = len(latest) - _MOST_SENTENCES
        sentences.append(f"nor of {counted(n_more, 'more HDF5 library', 'more HDF5 libraries')}")
    return tuple(sentences)


def _processes(found: list[UntracedProcess]) -> str:
    n = counted(len({(each.host, each.pid, each.time_s) for each in found}), "process", "processes")
    last = found[-1].program
    return f"{n} ({last})" if len({each.program for each in found}) == 1 else f"{n}, last {last},"


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            text = file.read(2 * _MOST_BYTES).decode(errors="replace")
    except OSError:
        return ""
    # What a terminal would take for more than text.
    return "".join(c if c.isprintable() or c in "\t\n" else "?" for c in text)
