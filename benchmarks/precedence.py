"""Measuring beside other programs: served before them, and again what was stopped meanwhile.

Nothing of that makes a busy machine an idle one; docs/explanation/models.md says how far readings
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
# this file has that of the session.
_OF_SESSION = Path("/proc/self/autogroup")
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
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
    has_sessions = _OF_SESSION.exists()
    nice_of_session = _OF_SESSION.read_text().split()[-1] if has_sessions else ""
    _schedule(NICE, SLICE_NS)
    try:
        if has_sessions:
            _OF_SESSION.write_text(str(NICE))
        yield
    finally:
        if has_sessions:
            _OF_SESSION.write_text(nice_of_session)
        _schedule(nice, 0)


def _schedule(nice: int, slice_ns: int) -> None:
    """Ask for a nice value and slices of time; 0: the usual ones."""
    number = _SCHED_SETATTR.get(platform.machine())
    if number is None:
        raise OSError(f"no way is known to ask for slices of time on {platform.machine()}")
    wanted = _SCHED_ATTR.pack(_SCHED_ATTR.size, 0, 0, nice, 0, slice_ns, 0, 0)
    library = ctypes.CDLL(None, use_errno=True)
    if library.syscall(number, 0, wanted, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{os.strerror(code)}: nice {nice} and slices of {slice_ns} ns")


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
