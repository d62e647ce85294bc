"""Start a program under the connector."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from sds.redirect.launch import connector
from sds.redirect.launch.original_environment import restore_signals, with_original_locale

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sds.home import Home


def environment(
    home: Home, environ: Mapping[str, str], *, trace: bool = True, redirect: bool = True
) -> dict[str, str]:
    """Return a complete environment with the connector switched on.

    Parameters
    ----------
    trace, redirect
        False switches that part off.

    Raises
    ------
    ConfigurationError
        If the connector is not installed, or environ names another one.
    """
    variables = dict(environ) | connector.environment(home, environ)
    if not trace:
        variables["SDS_TRACE"] = "0"
    if not redirect:
        variables["SDS_REDIRECT"] = "0"
    return variables


def log_native(environ: Mapping[str, str], program: str, problem: str) -> None:
    """Note in the log that SDS_DEBUG names why a program runs without the connector.

    In the form of the connector's own lines. A log that cannot be written is left alone, as there.
    """
    log = environ.get("SDS_DEBUG")
    if not log:
        return
    line = f"{os.getpid()}\tnative\t{program}\t\t{problem}\n"
    with contextlib.suppress(OSError), Path(log).open("a") as file:
        file.write(line)


def run_program(command: Sequence[str], variables: Mapping[str, str]) -> NoReturn:
    """Become the program: its output, signals and exit status are its own.

    It finds what it would have found without SDS, but for the variables.

    Raises
    ------
    FileNotFoundError
        If no directory of PATH holds such a program.
    OSError
        If it cannot be started.
    """
    program = shutil.which(command[0], path=variables.get("PATH", os.defpath))
    if program is None and os.sep not in command[0]:
        # execvp would report a directory of PATH that may not be searched instead.
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command[0])
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # closed when this process was started
            stream.flush()
    found = with_original_locale(variables)
    restore_signals()
    os.execve(program or command[0], list(command), found)  # noqa: S606  (the user's command)
