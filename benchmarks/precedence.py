"""Measuring beside other programs: served before them, and again what was stopped meanwhile.

Nothing of that makes a busy machine an idle one; docs/explanation/table1.md says how far readings
of the mounted array differ.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import struct
import time
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

NICE = -20
SLICE_NS = 100_000
# Where the kernel groups processes by session, a nice value counts within the session alone, and
# this file has that of the session; it is empty for a process that is in no group.
_OF_SESSION = Path("/proc/self/autogroup")
# System calls: sched_setattr(2), sched_getattr(2).
_CALLS = {"x86_64": (314, 315), "aarch64": (274, 275)}
_SCHED_ATTR = struct.Struct("IIQiIQQQ")
# Until the last of several processes that were stopped goes on.
_GOING_ON_S = 0.3


@contextmanager
def precedence() -> Iterator[None]:
    """Give this session, and what this process starts, the highest ordinary priority meanwhile.

    Raises
    ------
    PermissionError
        If the user may not; root may.
    OSError
        If the kernel gives no short slices of time: before Linux 6.12, or on other machines.
    """
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    group = _OF_SESSION.read_text() if _OF_SESSION.exists() else ""
    _schedule(NICE, SLICE_NS)
    try:
        given_ns = own_slice_ns()
        if given_ns != SLICE_NS:
            raise OSError(
                f"Linux {platform.release()} gives slices of {given_ns} ns where {SLICE_NS} were "
                "asked for (0: it knows none of a process's own): use Linux 6.12 or newer, or "
                "measure without precedence"
            )
        if group:
            _OF_SESSION.write_text(str(NICE))
        yield
    finally:
        if group:
            _OF_SESSION.write_text(group.split()[-1])
        _schedule(nice, 0)


def _schedule(nice: int, slice_ns: int) -> None:
    """Ask for a nice value and slices of time; 0: the usual ones."""
    wanted = _SCHED_ATTR.pack(_SCHED_ATTR.size, 0, 0, nice, 0, slice_ns, 0, 0)
    _call(0, wanted, 0, what=f"nice {nice} and slices of {slice_ns} ns")


def own_slice_ns() -> int:
    """Return the slice of time that the kernel keeps for this process; 0 before Linux 6.12.

    Such a kernel takes the wish for one, and gives none.
    """
    found = ctypes.create_string_buffer(_SCHED_ATTR.size)
    _call(1, found, _SCHED_ATTR.size, 0, what="which slices of time there are")
    return int(_SCHED_ATTR.unpack(found.raw)[5])


def _call(which: int, *arguments: object, what: str) -> None:
    """Set (0) or get (1) how this process is scheduled."""
    numbers = _CALLS.get(platform.machine())
    if numbers is None:
        raise OSError(f"no way is known to ask for slices of time on {platform.machine()}")
    library = ctypes.CDLL(None, use_errno=True)
    if library.syscall(numbers[which], 0, *arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{os.strerror(code)}: {what}")


@contextmanager
def noting_stops() -> Iterator[Event]:
    """Give an event that is set whenever this process goes on after it was stopped.

    In the main thread alone.
    """
    stopped = Event()

    def note(_signal: int, _frame: FrameType | None) -> None:
        stopped.set()

    before = signal.signal(signal.SIGCONT, note)
    try:
        yield stopped
    finally:
        signal.signal(signal.SIGCONT, before)


def unstopped(read: Callable[[], float], stopped: Event) -> float:
    """Return what a reading gives; it is taken again while it, or what led to it, was stopped."""
    while True:
        took = read()
        if not stopped.is_set():
            return took
        time.sleep(_GOING_ON_S)
        stopped.clear()
