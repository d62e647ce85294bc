"""Starts programs under the connector."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from sds.errors import ConfigurationError
from sds.redirect import connector
from sds.redirect.probe import probe_program

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

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
    filter_directories: Sequence[Path] | None = None,
) -> dict[str, str]:
    """Return a complete environment with the connector switched on.

    Parameters
    ----------
    trace, redirect
        False switches that part off.
    filter_directories
        Filter plugins of the program's packages (:class:`~sds.redirect.probe.ProgramProbe`); of
        this interpreter's where left out.

    Raises
    ------
    ConfigurationError
        If the connector is not installed, or environ names another one.
    """
    variables = dict(environ)
    variables |= connector.environment(home, environ, filter_directories=filter_directories)
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
) -> ProgramEnvironment:
    """Return the environment for a command: native where its HDF5 cannot load the connector."""
    probe = probe_program(command, environ)
    if probe.can_bind is False:
        return ProgramEnvironment(variables=dict(environ), problem=probe.problem)
    filters = probe.filter_directories if probe.can_bind else None
    try:
        variables = environment(
            home, environ, trace=trace, redirect=redirect, filter_directories=filters
        )
    except ConfigurationError as error:
        return ProgramEnvironment(variables=dict(environ), problem=str(error))
    return ProgramEnvironment(variables=variables, problem="")


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
