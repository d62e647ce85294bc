"""The files in the spool, and whether more will come in one of them."""

from __future__ import annotations

import os
import re
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sds.analyzer import ReadRecords
from sds.errors import NotFoundError
from sds.identity import identity_of
from sds.trace import SUFFIX

if TYPE_CHECKING:
    from sds.home import Home
    from sds.identity import FileIdentity
    from sds.trace import SpoolFile, TraceDataset

_NAME = re.compile(rf"(?P<host>.+)-(?P<pid>\d+)-(?P<start_ns>\d+){re.escape(SUFFIX)}")
# The trace names the moment of its first read, which comes after the start of its process.
_CLOCK_SLACK_S = 2.0


def spool_paths(home: Home) -> tuple[tuple[Path, FileIdentity], ...]:
    """Return the spool files of a home by name, and which files they are."""
    found = []
    for path in sorted(home.spool.glob(f"*{SUFFIX}")):
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
    records = spool.records
    order = np.argsort(records.dataset_id, kind="stable")
    ids, first = np.unique(records.dataset_id[order], return_index=True)
    indices = dict(zip(ids.tolist(), np.split(order, first[1:]), strict=True)) if len(order) else {}
    found = {}
    for dataset in spool.datasets:
        mine = indices.get(dataset.id)
        if mine is None:
            continue
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
            thread=records.thread[mine],
            served_by=records.served_by[mine],
            collective=records.collective[mine],
        )
    return found
