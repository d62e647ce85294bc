"""Starts programs under the connector."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from sds.errors import ConfigurationError
from sds.redirect import connector
from sds.redirect.probe import probe_program

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sds.home import Home


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramEnvironment:
    """The environment in which a program is to run.

    Attributes
    ----------
    variables
        Complete.
    problem
        Why the program runs without the connector; empty where it runs with it.
    """

    variables: dict[str, str]
    problem: str


def environment(
    home: Home,
    environ: Mapping[str, str],
    *,
    trace: bool = True,
    redirect: bool = True,
    plugin_directories: Sequence[Path] | None = None,
    kept_plugin: Path | None = None,
) -> dict[str, str]:
    """Return a complete environment with the connector switched on.

    Parameters
    ----------
    trace, redirect
        False switches that part off.
    plugin_directories, kept_plugin
        As for :func:`sds.redirect.connector.environment`.

    Raises
    ------
    ConfigurationError
        If the connector is not installed, or environ names another one.
    """
    variables = dict(environ)
    variables |= connector.environment(
        home, environ, plugin_directories=plugin_directories, kept_plugin=kept_plugin
    )
    if not trace:
        variables["SDS_TRACE"] = "0"
    if not redirect:
        variables["SDS_REDIRECT"] = "0"
    return variables


def program_environment(
    command: Sequence[str],
    home: Home,
    environ: Mapping[str, str],
    *,
    trace: bool = True,
    redirect: bool = True,
    probed: Sequence[str] | None = None,
) -> ProgramEnvironment:
    """Return the environment for a command: native where its HDF5 cannot load the connector.

    Parameters
    ----------
    trace, redirect
        False switches that part off.
    probed
        The command that HDF5 will be used by, where the one given is a wrapper (mpiexec, a script).
    """
    probe = probe_program(probed or command, environ)
    if probe.can_bind is False:
        return ProgramEnvironment(variables=dict(environ), problem=probe.problem)
    try:
        variables = environment(
            home,
            environ,
            trace=trace,
            redirect=redirect,
            plugin_directories=probe.plugin_directories if probe.can_bind else None,
            kept_plugin=connector.keep_plugin(),
        )
    except ConfigurationError as error:
        return ProgramEnvironment(variables=dict(environ), problem=str(error))
    return ProgramEnvironment(variables=variables, problem="")


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
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(program or command[0], list(command), dict(variables))  # noqa: S606  (as asked for)
