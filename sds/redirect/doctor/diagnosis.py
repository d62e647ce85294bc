"""Diagnose which HDF5 loads the connector, and why reads of a file are or are not redirected.

The connector is loaded into the HDF5 of a Python or program, with its log of
decisions switched on, and what it decides is reported with a remedy.
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sds.errors import ConfigurationError, PermissionDeniedError
from sds.home import default_home, is_switched_off
from sds.redirect.doctor.dataset_checks import DatasetReport, check_file, datasets_of_run
from sds.redirect.doctor.host_checks import (
    HostReport,
    check_program,
    check_python,
    hosts_of_run,
    run_logged,
)
from sds.redirect.doctor.table_checks import TableReport, find_tables
from sds.redirect.launch import connector
from sds.redirect.launch.activation import environment
from sds.redirect.launch.probe import PACKAGES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sds.home import Home


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something that keeps SDS from working, and what to do about it."""

    what: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Diagnosis of an installation.

    Attributes
    ----------
    plugin
        The connector; empty where it is not installed.
    python
        The interpreter whose packages were tried; None where a program was.
    command
        The program that was tried; None where a Python was.
    disabled
        Whether the environment or a file in the home switches SDS off.
    tables
        Of the file, or of the whole home where none was named.
    """

    plugin: str
    python: str | None
    command: tuple[str, ...] | None
    home: str
    disabled: bool
    hosts: tuple[HostReport, ...]
    tables: tuple[TableReport, ...]
    file: str | None
    datasets: tuple[DatasetReport, ...]
    problems: tuple[Problem, ...]

    @property
    def is_healthy(self) -> bool:
        """True if nothing keeps SDS from working."""
        return not self.problems


def diagnose(
    *,
    file: str | os.PathLike[str] | None = None,
    dataset: str | None = None,
    selection: str | None = None,
    python: str | os.PathLike[str] | None = None,
    command: Sequence[str] | None = None,
    runs_command: bool = False,
    home: Home | None = None,
    environ: Mapping[str, str] | None = None,
) -> Diagnosis:
    """Return what is loaded, and why the datasets of a file are or are not redirected.

    Parameters
    ----------
    file, dataset, selection
        What to look at; all datasets of its table where none is named, and a plane across the
        grain of the original where nothing is selected.
    python
        Interpreter to load the connector into; this one where left out.
    command
        A program to look at instead. It is not run, unless ``runs_command``: then it is, to its
        end, and what was decided on the files that it read is reported.
    home, environ
        Those of this process where left out.

    Raises
    ------
    SelectionError
        If the selection does not fit the dataset.
    """
    home = home or default_home()
    environ = os.environ if environ is None else environ
    interpreter = Path(python) if python else Path(sys.executable)
    problems = _home_problems(home, environ) + _environment_problems(environ)
    hosts: tuple[HostReport, ...] = ()
    datasets: tuple[DatasetReport, ...] = ()
    tables = find_tables(home, None if file is None else Path(file))
    plugin = ""
    try:
        plugin = str(connector.plugin_path())
        variables = _switched_on(home, environ)
    except ConfigurationError as error:
        problems.append(Problem(what=str(error), remedy=_remedy_of(plugin)))
    else:
        if command and runs_command:
            hosts, datasets, more = _run_command(command, variables)
        elif command:
            hosts, more = _look_at_command(command, variables)
        else:
            hosts, more = _look_at_python(interpreter, variables)
        problems += [
            Problem(what=f"{host.package}: {host.detail}", remedy=host.remedy)
            for host in hosts
            if not host.loads
        ]
        problems += more
        if file is not None:
            report = check_file(
                Path(file), dataset, selection, home=home,
                interpreter=Path(sys.executable) if command else interpreter, variables=variables,
            )  # fmt: skip
            datasets += report.datasets
            if report.problem:
                problems.append(Problem(what=report.problem, remedy=report.remedy))
            else:
                problems += [
                    Problem(what=table.problem, remedy=table.remedy)
                    for table in tables
                    if table.remedy
                ]
    return Diagnosis(
        plugin=plugin,
        python=None if command else str(interpreter),
        command=tuple(command) if command else None,
        home=str(home.root),
        disabled=_is_disabled(home, environ),
        hosts=hosts,
        tables=tables,
        file=None if file is None else os.fspath(file),
        datasets=datasets,
        problems=tuple(problems),
    )


def _remedy_of(plugin: str) -> str:
    """Return what to do where the connector cannot be switched on."""
    if plugin:
        return "unset the variable, in this shell and in its profile"
    return "install SDS for this Python with pip"


def _look_at_python(
    interpreter: Path, variables: Mapping[str, str]
) -> tuple[tuple[HostReport, ...], list[Problem]]:
    """Return the HDF5 libraries of a Python's packages, or that it has none."""
    hosts = check_python(interpreter, variables)
    if hosts:
        return hosts, []
    what = f"{interpreter} has none of {', '.join(PACKAGES)}"
    return (), [Problem(what=what, remedy="install one of them, or name another Python")]


def _look_at_command(
    command: Sequence[str], variables: Mapping[str, str]
) -> tuple[tuple[HostReport, ...], list[Problem]]:
    """Return the HDF5 libraries of a program, and why nothing is known of them."""
    program = shutil.which(command[0], path=variables.get("PATH"))
    if program is None:
        return (), [
            Problem(what=f"no such program: {command[0]}", remedy="check the name and PATH")
        ]
    hosts = check_program(Path(program), variables)
    if hosts:
        return hosts, []
    what = f"{command[0]}: which HDF5 it uses is not known without running it"
    remedy = "`sds doctor --run -- COMMAND` runs it; or name the program that it starts"
    return (), [Problem(what=what, remedy=remedy)]


def _run_command(
    command: Sequence[str], variables: Mapping[str, str]
) -> tuple[tuple[HostReport, ...], tuple[DatasetReport, ...], list[Problem]]:
    """Run a program to its end, and return what the connector noted meanwhile."""
    run = run_logged(command, variables, timeout_s=None, is_shown=True)
    hosts = hosts_of_run(command[0], run.decisions)
    problems = []
    if run.failure:
        problems.append(Problem(what=f"{command[0]}: {run.failure}", remedy="see what it printed"))
    if not hosts:
        problems.append(
            Problem(
                what=f"{command[0]}: no HDF5 loaded the connector while it ran",
                remedy="check that it opens HDF5 files, with HDF5 1.14 or newer",
            )
        )
    return hosts, datasets_of_run(run.decisions), problems


def _is_disabled(home: Home, environ: Mapping[str, str]) -> bool:
    return is_switched_off(environ) or home.disabled.exists()


def probe(file: Path, dataset: str, *, home: Home) -> DatasetReport | None:
    """Read a little of a dataset by this Python under the connector; return what came of it.

    None where its table does not name it.

    Raises
    ------
    ConfigurationError
        If the connector is not installed.
    """
    found = check_file(
        file, dataset, None,
        home=home, interpreter=Path(sys.executable), variables=_switched_on(home, os.environ),
    )  # fmt: skip
    return next(iter(found.datasets), None)


def _switched_on(home: Home, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a program under the connector, whatever switches it off now."""
    plain = {name: value for name, value in environ.items() if not name.startswith("HDF5_VOL")}
    return environment(home, plain, trace=False) | {"SDS_DISABLE": ""}


def _environment_problems(environ: Mapping[str, str]) -> list[Problem]:
    """Return what variables do to programs that are started from here."""
    return [
        *_preload_problems(environ),
        *_connector_problems(environ),
    ]


def _preload_problems(environ: Mapping[str, str]) -> list[Problem]:
    """Return what is wrong with LD_PRELOAD, as in a container that inherited it."""
    return [
        Problem(
            what=f"LD_PRELOAD names {library}, which is not here: the loader says so on standard "
            "error for each program, which runs without SDS",
            remedy='eval "$(sds env --unset)", or unset LD_PRELOAD; in a container, install SDS '
            "there and use `sds run`",
        )
        for library in connector.missing_preloads(environ)
    ]


def _connector_problems(environ: Mapping[str, str]) -> list[Problem]:
    """Return what is wrong with the variables of HDF5."""
    named = environ.get("HDF5_VOL_CONNECTOR", "").strip()
    if not named:
        return []
    if not connector.is_named(environ):
        return [
            Problem(
                what=f"HDF5_VOL_CONNECTOR={named!r} names another connector: `sds run` starts "
                "programs without SDS, and HDF5 2 crashes if it does not find that connector",
                remedy="unset HDF5_VOL_CONNECTOR, in this shell and in its profile",
            )
        ]
    directories = environ.get("HDF5_PLUGIN_PATH", "")
    if connector.is_preloaded(environ):
        return []
    if any((Path(place) / connector.PLUGIN_NAME).is_file() for place in directories.split(":")):
        return []
    return [
        Problem(
            what=f"HDF5_VOL_CONNECTOR names SDS, but no directory of HDF5_PLUGIN_PATH "
            f"({directories or 'not set'}) holds {connector.PLUGIN_NAME}: programs that are "
            "started without `sds run` crash or run without SDS",
            remedy='eval "$(sds env)", or unset HDF5_VOL_CONNECTOR, in this shell',
        )
    ]


def _home_problems(home: Home, environ: Mapping[str, str]) -> list[Problem]:
    problems = []
    if is_switched_off(environ):
        problems.append(Problem(what="SDS_DISABLE=1 switches SDS off", remedy="unset SDS_DISABLE"))
    if home.disabled.exists():
        problems.append(
            Problem(what=f"{home.disabled} switches SDS off", remedy=f"remove {home.disabled}")
        )
    try:
        home.check()
    except PermissionDeniedError as error:
        what, _, remedy = str(error).rpartition("; ")
        return [*problems, Problem(what=what, remedy=remedy)]
    if not home.spool.is_dir():
        problems.append(
            Problem(
                what=f"{home.spool} does not exist, so that nothing is traced",
                remedy="start programs with `sds run`, which creates it",
            )
        )
    elif not os.access(home.spool, os.W_OK | os.X_OK):
        problems.append(
            Problem(
                what=f"{home.spool} may not be written, so that nothing is traced",
                remedy="set SDS_HOME to a directory that you can write",
            )
        )
    return problems
