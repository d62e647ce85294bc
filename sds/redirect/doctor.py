"""Says what is loaded, by which HDF5, and why reads of a file are or are not redirected.

The connector itself is asked: it is loaded into the HDF5 of a Python, with its log of decisions
switched on, and what it decides is reported with a remedy.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sds.errors import ConfigurationError, FormatError, NotFoundError
from sds.home import default_home
from sds.redirect import connector
from sds.redirect.activate import environment
from sds.redirect.probe import PACKAGES, probe_python
from sds.redirect.tables import read_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sds.home import Home
    from sds.redirect.tables import TableDataset

LOAD_TIMEOUT_S = 60.0
MOST_ELEMENTS_READ = 1 << 22

# Each package opens a file of its own: HDF5 loads the connector at the first one.
_LOAD = {
    "h5py": "import h5py; h5py.File(path, 'w').close()",
    "netCDF4": "import netCDF4; netCDF4.Dataset(path, 'w').close()",
    "tables": "import tables; tables.open_file(path, 'w').close()",
}
_READ = """
import json, sys
import h5py
with h5py.File(sys.argv[1], "r") as file:
    for path, shape in json.loads(sys.argv[2]):
        if path in file:
            file[path][tuple(slice(0, length) for length in shape)]
"""
_REMEDIES = {
    "there is none": "build a replica with `sds reorganize`, or let `sds advise` say which",
    "changed": "build its replicas anew with `sds reorganize`",
    "written": "open it again once its writer has closed it",
    "missing": "build it anew with `sds reorganize`",
    "damaged": "run `sds replicas verify`, then build it anew with `sds reorganize`",
    "belongs": "give it to the source's owner, or name its owner in SDS_SERVICE_UID",
    "writable": "take write permission from group and others (chmod go-w)",
    "does not name": "build a replica with `sds reorganize`",
    "not that of the table": "build its replicas anew with `sds reorganize`",
    "lie in other files": "nothing to do: such datasets are read through HDF5",
    "data transform": "nothing to do: HDF5 computes such reads itself",
    "in the transfer's properties": "nothing to do: such reads are left to HDF5",
    "of another extent": "select in the dataset's own extent",
    "reach outside": "nothing to do: HDF5 says what is wrong with such a read",
    "name a point twice": "name each point of the memory selection once",
    "memory type": "read the dataset's own type, or another integer or float",
    "share of the reads": "nothing to do: the replica is being measured",
    "cannot be": "run `sds replicas verify`, then build it anew with `sds reorganize`",
    "could not be read": "run `sds replicas verify`, then build it anew with `sds reorganize`",
    "lacks a filter": "install the filter where HDF5_PLUGIN_PATH names it, or compress the replica "
    "with gzip (`sds reorganize --compress`)",
    "no checksums": "build it anew with `sds reorganize`",
    "is not what the table says": "run `sds replicas verify`",
    "original is predicted": "nothing is wrong: such reads are faster from the original",
    "format version": "use one version of SDS for programs and server; `sds replicas verify` "
    "writes the table anew",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReport:
    """One package's HDF5, and whether the connector loads into it.

    Attributes
    ----------
    loads
        What was seen when it was tried.
    detail
        Why not, or the version that bound.
    """

    package: str
    library: str
    version: str
    loads: bool
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetReport:
    """Whether reads of a dataset are redirected.

    Attributes
    ----------
    orders
        Axis orders of the replicas that the table names.
    served
        Whether a read across the grain was served by a replica.
    reason, remedy
        Of the connector's decision; the remedy is empty where there is nothing to do.
    """

    path: str
    orders: tuple[tuple[int, ...], ...]
    served: bool
    reason: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something that keeps SDS from working, and what to do about it."""

    what: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What the doctor found.

    Attributes
    ----------
    plugin
        The connector; empty where it is not installed.
    python
        The interpreter whose packages were tried.
    disabled
        Whether the environment or a file in the home switches SDS off.
    """

    plugin: str
    python: str
    home: str
    disabled: bool
    hosts: tuple[HostReport, ...]
    file: str | None
    datasets: tuple[DatasetReport, ...]
    problems: tuple[Problem, ...]

    @property
    def is_healthy(self) -> bool:
        """Whether nothing keeps SDS from working."""
        return not self.problems


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A line of the connector's log."""

    event: str
    file: str
    dataset: str
    reason: str


def diagnose(
    *,
    file: str | os.PathLike[str] | None = None,
    dataset: str | None = None,
    python: str | os.PathLike[str] | None = None,
    home: Home | None = None,
    environ: Mapping[str, str] | None = None,
) -> Diagnosis:
    """Return what is loaded, and why the datasets of a file are or are not redirected.

    Parameters
    ----------
    file, dataset
        What to look at; all datasets of its table where none is named.
    python
        Interpreter to load the connector into; this one where left out.
    home, environ
        Those of this process where left out.
    """
    home = home or default_home()
    environ = os.environ if environ is None else environ
    interpreter = Path(python) if python else Path(sys.executable)
    problems = _home_problems(home, environ)
    try:
        plugin = str(connector.plugin_path())
        # A doctor asks what the connector would do, whatever switches it off at present.
        plain = {name: value for name, value in environ.items() if not name.startswith("HDF5_VOL")}
        variables = environment(home, plain, trace=False) | {"SDS_DISABLE": ""}
        hosts = _try_hosts(interpreter, variables)
    except ConfigurationError as error:
        plugin, variables, hosts = "", {}, ()
        problems.append(Problem(what=str(error), remedy="install SDS for this Python with pip"))
    problems += [
        Problem(
            what=f"{host.package}: {host.detail}",
            remedy=f"install a {host.package} that brings HDF5 1.14 or newer",
        )
        for host in hosts
        if not host.loads
    ]
    datasets: tuple[DatasetReport, ...] = ()
    if file is not None and plugin:
        datasets, more = _examine_file(Path(file), dataset, home, interpreter, variables)
        problems += more
    return Diagnosis(
        plugin=plugin,
        python=str(interpreter),
        home=str(home.root),
        disabled=_is_disabled(home, environ),
        hosts=hosts,
        file=None if file is None else os.fspath(file),
        datasets=datasets,
        problems=tuple(problems),
    )


def read_decisions(log: Path) -> tuple[Decision, ...]:
    """Return what the connector wrote into the log that SDS_DEBUG names."""
    if not log.exists():
        return ()
    lines = (line.split("\t") for line in log.read_text().splitlines())
    return tuple(
        Decision(event=event, file=file, dataset=dataset, reason=reason)
        for _, event, file, dataset, reason in lines
    )


def remedy_for(reason: str) -> str:
    """Return what to do about a reason of the connector's; empty where there is nothing to do."""
    return next((remedy for part, remedy in _REMEDIES.items() if part in reason), "")


def _is_disabled(home: Home, environ: Mapping[str, str]) -> bool:
    return environ.get("SDS_DISABLE") == "1" or home.disabled.exists()


def _home_problems(home: Home, environ: Mapping[str, str]) -> list[Problem]:
    problems = []
    if environ.get("SDS_DISABLE") == "1":
        problems.append(Problem(what="SDS_DISABLE=1 switches SDS off", remedy="unset SDS_DISABLE"))
    if home.disabled.exists():
        problems.append(
            Problem(what=f"{home.disabled} switches SDS off", remedy=f"remove {home.disabled}")
        )
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


def _try_hosts(interpreter: Path, variables: Mapping[str, str]) -> tuple[HostReport, ...]:
    """Load the connector into each package's HDF5, one process each."""
    found = {library.used_by: library for library in probe_python(interpreter, variables).libraries}
    reports = []
    for package in PACKAGES:
        library = found.get(package)
        if library is None:
            continue
        loads, detail = False, "its HDF5 is older than 1.14, or hides its symbols"
        if library.can_bind:  # else trying would crash
            loads, detail = _try_host(package, interpreter, variables)
        reports.append(
            HostReport(
                package=package,
                library=str(library.path),
                version=library.version,
                loads=loads,
                detail=detail,
            )
        )
    return tuple(reports)


def _try_host(package: str, interpreter: Path, variables: Mapping[str, str]) -> tuple[bool, str]:
    with tempfile.TemporaryDirectory(prefix="sds-doctor-") as directory:
        log = Path(directory) / "log"
        program = f"path = {str(Path(directory) / 'empty.h5')!r}; {_LOAD[package]}"
        failure = _run(interpreter, program, (), {**variables, "SDS_DEBUG": str(log)})
        bound = [entry for entry in read_decisions(log) if entry.event == "bound"]
    if failure:
        return False, failure
    if not bound:
        return False, "HDF5 did not load the connector"
    return True, f"HDF5 {bound[0].reason}"


def _run(
    interpreter: Path, program: str, arguments: Sequence[str], variables: Mapping[str, str]
) -> str:
    """Run a program and return how it failed; empty where it did not."""
    try:
        answer = subprocess.run(  # noqa: S603  (the interpreter that is to be examined)
            [interpreter, "-c", program, *arguments],
            env=dict(variables),
            check=False,
            capture_output=True,
            text=True,
            timeout=LOAD_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return f"it did not finish within {LOAD_TIMEOUT_S:.0f} s"
    except OSError as error:
        return f"it cannot be started: {error}"
    if answer.returncode == 0:
        return ""
    last = answer.stderr.strip().splitlines()[-1:] or [f"exit status {answer.returncode}"]
    return last[0]


def _examine_file(
    file: Path,
    dataset: str | None,
    home: Home,
    interpreter: Path,
    variables: Mapping[str, str],
) -> tuple[tuple[DatasetReport, ...], list[Problem]]:
    """Read a plane of every dataset across its grain, and report what the connector decided."""
    if not file.is_file():
        return (), [Problem(what=f"no such file: {file}", remedy="check the name")]
    try:
        table = read_table(home, file)
    except NotFoundError as error:
        return _without_table(dataset, str(error), "build a replica with `sds reorganize`")
    except FormatError as error:
        return _without_table(dataset, str(error), "write it again with `sds replicas verify`")
    wanted = [entry for entry in table.datasets if dataset in (None, entry.path)]
    if not wanted:
        without, _ = _without_table(
            dataset, "the table does not name it", "build a replica with `sds reorganize`"
        )
        return without, []
    with tempfile.TemporaryDirectory(prefix="sds-doctor-") as directory:
        log = Path(directory) / "log"
        shapes = [(entry.path, _across_the_grain(entry)) for entry in wanted]
        failure = _run(
            interpreter,
            _READ,
            (str(file), json.dumps(shapes)),
            {**variables, "SDS_DEBUG": str(log)},
        )
        decisions = read_decisions(log)
    problems = []
    if failure:
        problems.append(Problem(what=f"{file} cannot be read: {failure}", remedy="check the file"))
    refused = [entry.reason for entry in decisions if entry.event == "no-table"]
    reports = []
    for entry in wanted:
        own = [found for found in decisions if found.dataset == entry.path]
        served = any(found.event == "served" for found in own)
        reasons = [found.reason for found in own] or refused or ["it was not read"]
        reports.append(
            DatasetReport(
                path=entry.path,
                orders=tuple(candidate.order for candidate in entry.candidates),
                served=served,
                reason=reasons[-1],
                remedy="" if served else remedy_for(reasons[-1]),
            )
        )
    return tuple(reports), problems


def _across_the_grain(entry: TableDataset) -> list[int]:
    """Return the shape of a read that a replica serves well: one index of its slowest axis.

    Clipped on the other axes, so that a diagnosis stays quick on large data.
    """
    shape = list(entry.extent)
    n_elements = 1
    for axis in reversed(entry.candidates[0].order):
        slowest = axis == entry.candidates[0].order[0]
        shape[axis] = 1 if slowest else min(shape[axis], max(1, MOST_ELEMENTS_READ // n_elements))
        n_elements *= max(1, shape[axis])
    return shape


def _without_table(
    dataset: str | None, reason: str, remedy: str
) -> tuple[tuple[DatasetReport, ...], list[Problem]]:
    """Return what is reported of a file, and of a dataset where one is named, without a table."""
    named = () if dataset is None else (dataset,)
    reports = tuple(
        DatasetReport(path=path, orders=(), served=False, reason=reason, remedy=remedy)
        for path in named
    )
    return reports, [Problem(what=reason, remedy=remedy)]
