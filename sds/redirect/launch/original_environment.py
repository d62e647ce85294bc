"""Restore the locale and the signal dispositions that Python changed at its start."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_TAKEN = (signal.SIGPIPE, signal.SIGXFSZ)  # which Python ignores
_LOCALE = "LC_CTYPE"  # which it sets where the locale is C (PEP 538)


def with_original_locale(variables: Mapping[str, str]) -> dict[str, str]:
    """Return variables with the locale that this process was started with, where that is known."""
    restored = dict(variables)
    try:
        started_with = Path("/proc/self/environ").read_bytes()
    except OSError:  # /proc is not mounted
        return restored
    for variable in started_with.split(b"\0"):
        name, _, value = variable.partition(b"=")
        if name == _LOCALE.encode():
            restored[_LOCALE] = os.fsdecode(value)
            return restored
    restored.pop(_LOCALE, None)
    return restored


def restore_signals() -> None:
    """Restore the dispositions of the signals that Python ignores.

    Nothing tells what that was. A process that does not ignore a signal starts its children with
    the default, and one that does starts them with that, but for Python, whose `subprocess` gives
    them the default.
    """
    try:
        parent = Path(f"/proc/{os.getppid()}")
        ignored = 0 if is_python((parent / "exe").readlink()) else _ignored_by(parent)
    except (OSError, StopIteration, ValueError):  # of another account, or gone
        ignored = 0
    for number in _TAKEN:
        if not ignored >> (number - 1) & 1:
            signal.signal(number, signal.SIG_DFL)


def is_python(program: Path) -> bool:
    """Return whether a program is Python, by its name; also one that was replaced while it runs."""
    name = r"python(\d+(\.\d+)*)?[dt]*(-dbg)?( \(deleted\))?"
    return re.fullmatch(name, program.name) is not None


def _ignored_by(process: Path) -> int:
    """Return the signals that a process ignores, a bit for each."""
    lines = process.joinpath("status").read_text(encoding="utf-8", errors="replace").splitlines()
    return int(next(line for line in lines if line.startswith("SigIgn:")).split()[1], 16)
