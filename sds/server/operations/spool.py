"""The files in the spool, and whether more will come in one of them."""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from sds import _native
from sds.errors import NotFoundError
from sds.hdf5.identity import identity_of
from sds.home import DAMAGE_SUFFIX
from sds.text import is_utf8

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from sds.analyzer import ReadRecords
    from sds.catalog.records import SpoolRecord
    from sds.catalog.store import Store
    from sds.hdf5.identity import FileIdentity
    from sds.home import Home
    from sds.trace import SpoolFile, TraceDataset

_SUFFIX = _native.TRACE_SUFFIX
_NAME = re.compile(rf"(?P<host>.+)-(?P<pid>\d+)-(?P<start_ns>\d+){re.escape(_SUFFIX)}")
# Times of directories are this coarse: a listing of a younger one may lack what came just after.
_SETTLED_NS = 2_000_000_000
# Files counted to their end that a look at some of them checks for growth.
_ENDED_PER_LOOK = 200
# The trace names the moment of its first read, which comes after the start of its process.
_CLOCK_SLACK_S = 2.0


class Spool:
    """The spool files of a home, and how far each is counted.

    What is kept between looks makes a look cheap where nothing happened: the directory is listed
    when its time has changed, the catalog is queried for names that were not there before, and of
    the files that are counted to their end (their process is gone) a fixed number is looked at
    each time. Threads may share it.
    """

    def __init__(self, home: Home, store: Store) -> None:
        self._directory = home.spool
        self._store = store
        self._one_at_a_time = threading.Lock()
        self._listed: tuple[int, int] | None = None
        self._counted: dict[str, dict[int, SpoolRecord]] = {}  # by name, then inode
        self._open: list[str] = []  # files whose process may live
        self._ended: list[str] = []  # and those that are counted to the end
        self._is_partitioned = False
        self._next_ended = 0
        self._damage_reports: list[Path] = []

    def waiting(self, *, every_file: bool) -> list[tuple[Path, FileIdentity, SpoolRecord | None]]:
        """Return files that may hold what is not counted, by name, with how far each is counted.

        The size tells, not the time: what was written while a step counted a file bears a time from
        before the end of that step.
        """
        with self._one_at_a_time:
            self._list()
            names = list(self._counted) if every_file else self._some()
        found = (self.entry(name) for name in sorted(names))
        return [entry for entry in found if entry is not None and _may_have_grown(*entry[1:])]

    def entry(self, name: str) -> tuple[Path, FileIdentity, SpoolRecord | None] | None:
        """Return a file as it is now, and how far it is counted; None where it is gone."""
        path = self._directory / name
        try:
            identity = identity_of(path)
        except NotFoundError:
            return None  # deleted since it was listed
        return path, identity, self._counted.get(name, {}).get(identity.inode)

    def damage_reports(self) -> list[Path]:
        """Return the files by which programs report damaged replicas."""
        with self._one_at_a_time:
            self._list()
            return list(self._damage_reports)

    def renew(self, names: Iterable[str]) -> None:
        """Reload the records of files from the catalog: more of them is counted now."""
        with self._one_at_a_time:
            self._load_records(list(names))

    def counted(self) -> list[SpoolRecord]:
        """Return how far the files are counted that are there."""
        with self._one_at_a_time:
            self._list()
            return [record for counted in self._counted.values() for record in counted.values()]

    def pending(self) -> tuple[int, int]:
        """Return how many files there are, and how many of their bytes are not counted yet."""
        waiting = self.waiting(every_file=False)
        n_bytes = sum(
            identity.size_bytes - (0 if record is None else record.settled_bytes)
            for _, identity, record in waiting
        )
        return len(self._counted), n_bytes

    def _list(self) -> None:
        """List the spool directory where it changed since the last time."""
        try:
            found = self._directory.stat()
        except FileNotFoundError:
            self._listed, self._counted, self._is_partitioned = None, {}, False
            self._damage_reports = []
            return
        now = found.st_ino, found.st_mtime_ns
        if now == self._listed:
            return
        found_names = os.listdir(self._directory)  # noqa: PTH208  (10^5 names)
        # No process writes a trace of another name, and the catalog holds none.
        names = [name for name in found_names if name.endswith(_SUFFIX) and is_utf8(name)]
        self._damage_reports = [
            self._directory / name for name in found_names if name.endswith(DAMAGE_SUFFIX)
        ]
        is_settled = time.time_ns() - found.st_mtime_ns > _SETTLED_NS
        self._listed = now if is_settled else None
        known = self._counted
        self._counted = {name: known[name] for name in names if name in known}
        self._load_records([name for name in names if name not in known])

    def _load_records(self, names: Sequence[str]) -> None:
        self._counted |= {name: {} for name in names}
        for record in self._store.spool_records(names):
            self._counted[record.name][record.inode] = record
        self._is_partitioned = False

    def _some(self) -> list[str]:
        """Return the files whose process may live, and the next of those counted to the end."""
        self._partition()
        first = self._next_ended if self._next_ended < len(self._ended) else 0
        self._next_ended = first + _ENDED_PER_LOOK
        return [*self._open, *self._ended[first : self._next_ended]]

    def _partition(self) -> None:
        """Divide the files into those whose process may live and those counted to the end."""
        if self._is_partitioned:
            return
        self._open, self._ended = [], []
        for name, counted in self._counted.items():
            is_ended = any(record.complete for record in counted.values())
            (self._ended if is_ended else self._open).append(name)
        self._is_partitioned = True


def _may_have_grown(identity: FileIdentity, record: SpoolRecord | None) -> bool:
    """Return whether a file may hold what is not counted."""
    return record is None or not record.complete or identity.size_bytes != record.size_bytes


def spool_paths(home: Home) -> tuple[tuple[Path, FileIdentity], ...]:
    """Return the spool files of a home by name, and which files they are."""
    found = []
    for path in sorted(home.spool.glob(f"*{_SUFFIX}")):
        try:
            found.append((path, identity_of(path)))
        except NotFoundError:
            continue  # deleted since it was listed
    return tuple(found)


def has_ended(path: Path, identity: FileIdentity, *, idle_s: float) -> bool:
    """Return whether the process that wrote a spool file has ended.

    Of a process of this host the kernel tells; one of another host has ended when its file was
    not written for `idle_s`.
    """
    name = _NAME.fullmatch(path.name)
    if name is None or name["host"] != socket.gethostname():
        return time.time() - identity.mtime_ns / 1e9 > idle_s
    started_s = _start_of(int(name["pid"]))
    # A process that is younger than the trace has only inherited the number.
    return started_s is None or started_s > int(name["start_ns"]) / 1e9 + _CLOCK_SLACK_S


def _start_of(pid: int) -> float | None:
    """Return when a process of this host began, seconds since 1970; None where there is none."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        boot = Path("/proc/stat").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name of the program, in brackets, may hold anything.
    fields = status.rpartition(")")[2].split()
    if fields[0] in {"Z", "X"}:
        return None
    ticks = int(fields[19])
    boot_s = int(next(line for line in boot.splitlines() if line.startswith("btime")).split()[1])
    return boot_s + ticks / os.sysconf("SC_CLK_TCK")


def records_of(spool: SpoolFile) -> dict[TraceDataset, ReadRecords]:
    """Return the reads of each dataset that a piece of a spool file holds."""
    import numpy as np  # noqa: PLC0415  (`sds status` does without)

    from sds.analyzer import ReadRecords  # noqa: PLC0415

    records = spool.records
    order = np.argsort(records.dataset_id, kind="stable")
    ids, first = np.unique(records.dataset_id[order], return_index=True)
    indices = dict(zip(ids.tolist(), np.split(order, first[1:]), strict=True)) if len(order) else {}
    found = {}
    for dataset in spool.datasets:
        mine: NDArray[np.int64] | slice | None = indices.get(dataset.id)
        if mine is None:
            continue
        if len(indices) == 1:
            mine = slice(None)
        rank = len(dataset.extent)
        found[dataset] = ReadRecords(
            process=spool.process.key,
            extent=dataset.extent,
            element_size_bytes=dataset.element_bytes,
            selection_kind=records.selection_kind[mine],
            start=records.start[mine, :rank],
            stride=records.stride[mine, :rank],
            count=records.count[mine, :rank],
            block=records.block[mine, :rank],
            n_elements=records.n_elements[mine],
            repeat=records.repeat[mine],
            advance=records.advance[mine, :, :rank],
            start_ns=records.start_ns[mine],
            last_start_ns=records.last_start_ns[mine],
            elapsed_ns=records.elapsed_ns[mine],
            elapsed_min_ns=records.elapsed_min_ns[mine],
            elapsed_max_ns=records.elapsed_max_ns[mine],
            latency=records.latency[mine],
            thread=records.thread[mine],
            served_by=records.served_by[mine],
            left_by=records.left_by[mine],
            collective=records.collective[mine],
        )
    return found
