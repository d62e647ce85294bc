"""Processes of which nothing is traced, because SDS cannot serve their HDF5.

The connector notes each in the spool (sds/redirect/vol/state/untraced.cpp).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sds.text import counted

if TYPE_CHECKING:
    from pathlib import Path

UNTRACED_NAME = "untraced.tsv"
_SHOWN_DAYS = 7
_MOST_SENTENCES = 5
# Twice what the connector lets such a file grow to.
_MOST_BYTES = 128 << 10
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

    What is no line of such a file is left out: a line may be cut where a disk was full.
    """
    found = []
    for name in (f"{UNTRACED_NAME}.old", UNTRACED_NAME):
        for line in _text(spool / name).splitlines():
            fields = line.split("\t")
            if len(fields) == 7 and fields[0].isdecimal() and fields[1].isdecimal():
                found.append(
                    UntracedProcess(
                        time_s=int(fields[0]), pid=int(fields[1]), host=fields[2],
                        program=fields[3], library=fields[4], version=fields[5], reason=fields[6],
                    )
                )  # fmt: skip
    return tuple(found)


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
            return file.read(_MOST_BYTES).decode(errors="replace")
    except OSError:
        return ""
