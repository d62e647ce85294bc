"""Try to load the connector into the HDF5 libraries of a Python or program."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sds.redirect.doctor.decisions import Decision, read_decisions
from sds.redirect.launch.probe import (
    PACKAGES,
    find_python,
    libraries_of_program,
    libraries_of_python,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sds.redirect.launch.probe import Hdf5Library

LOAD_TIMEOUT_S = 60.0

# Each package opens a file of its own: HDF5 loads the connector at the first one.
_LOAD = {
    "h5py": "import h5py; h5py.File(path, 'w').close()",
    "netCDF4": "import netCDF4; netCDF4.Dataset(path, 'w').close()",
    "tables": "import tables; tables.open_file(path, 'w').close()",
}
# A library without its program. Some rename all their functions.
_LOAD_LIBRARY = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
opening = getattr(library, "H5open", None) or getattr(library, "vtkhdf5_H5open")
sys.exit("H5open fails" if opening() < 0 else 0)
"""
_PROGRAM_ITSELF = "/proc/self/exe"
_BINDING_EVENTS = ("bound", "native", "unbound")
_RELINK = (
    "link it with HDF5 1.14, 2.0, 2.1 or 2.2; where HDF5 is part of the program, do not strip it "
    "and do not link with -static"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReport:
    """An HDF5 library, and whether the connector loads into it.

    Attributes
    ----------
    package
        Python package, or the program.
    binding
        Where the connector found its functions; ``native`` where it does not serve the library,
        which then runs as without SDS; ``none`` where it was not loaded.
    loads
        Whether reads through this library are traced and redirected, as seen when it was tried.
    detail
        Why not, or the version that bound.
    remedy
        Empty where it loads.
    """

    package: str
    library: str
    version: str
    binding: str
    loads: bool
    detail: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramRun:
    """Run of a program under the connector.

    Attributes
    ----------
    failure
        How it could not be started, or ended; empty after exit status 0.
    """

    failure: str
    decisions: tuple[Decision, ...]


def check_python(interpreter: Path, variables: Mapping[str, str]) -> tuple[HostReport, ...]:
    """Load the connector into the HDF5 of each package of a Python, one process each."""
    libraries = libraries_of_python(interpreter, variables)
    reports = []
    for package in PACKAGES:
        for library in (found for found in libraries if found.used_by == package):
            with tempfile.TemporaryDirectory(prefix="sds-doctor-") as directory:
                path = str(Path(directory) / "empty.h5")
                program = f"path = {path!r}; {_LOAD.get(package, _LOAD_LIBRARY)}"
                words = [str(interpreter), "-c", program, str(library.path)]
                # A home of its own: that of the user may switch SDS off.
                run = run_logged(words, {**variables, "SDS_HOME": directory})
            remedy = f"install {package} with HDF5 1.14, 2.0, 2.1 or 2.2"
            reports.append(_report(library, run, remedy))
    return tuple(reports)


def check_program(program: Path, variables: Mapping[str, str]) -> tuple[HostReport, ...]:
    """Load the connector into the HDF5 libraries that a program brings, without running it.

    What is linked into the program itself cannot be loaded alone: of that nothing is said.
    """
    if (python := find_python(program, variables)) is not None:
        return check_python(python, variables)
    remedy = "link the program with HDF5 1.14, 2.0, 2.1 or 2.2"
    return tuple(
        _report(
            library,
            run_logged([sys.executable, "-c", _LOAD_LIBRARY, str(library.path)], variables),
            remedy,
        )
        for library in libraries_of_program(program, variables)
    )


def hosts_of_run(program: str, decisions: Iterable[Decision]) -> tuple[HostReport, ...]:
    """Return the HDF5 libraries that loaded the connector while a program ran."""
    loaded = {entry.file: entry for entry in decisions if entry.event in _BINDING_EVENTS}
    return tuple(
        HostReport(
            package=Path(program).name,
            library=program if library == _PROGRAM_ITSELF else library,
            version=entry.reason if entry.event == "bound" else "",
            binding=_binding_of(entry),
            loads=entry.event == "bound",
            detail=_detail_of(entry),
            remedy="" if entry.event == "bound" else _RELINK,
        )
        for library, entry in loaded.items()
    )


def run_logged(
    command: Sequence[str],
    variables: Mapping[str, str],
    *,
    timeout_s: float | None = LOAD_TIMEOUT_S,
    is_shown: bool = False,
) -> ProgramRun:
    """Run a command under the connector, with its log of decisions.

    Parameters
    ----------
    is_shown
        Show what it prints, all of it on stderr, instead of taking its last line as the reason
        where it fails.
    """
    with tempfile.TemporaryDirectory(prefix="sds-doctor-") as directory:
        log = Path(directory) / "log"
        try:
            answer = subprocess.run(  # noqa: S603  (what is to be examined)
                command,
                env={**variables, "SDS_DEBUG": str(log)},
                check=False,
                stdout=sys.stderr.fileno() if is_shown else subprocess.DEVNULL,
                stderr=None if is_shown else subprocess.PIPE,
                text=True,
                errors="replace",
                timeout=timeout_s,
            )
            failure = _failure_of(answer)
        except subprocess.TimeoutExpired:
            failure = f"it did not finish within {timeout_s:.0f} s"
        except OSError as error:
            failure = f"it cannot be started: {error}"
        return ProgramRun(failure=failure, decisions=read_decisions(log))


def _failure_of(answer: subprocess.CompletedProcess[str]) -> str:
    if answer.returncode == 0:
        return ""
    last = (answer.stderr or "").strip().splitlines()[-1:]
    ended = (
        f"signal {-answer.returncode}" if answer.returncode < 0 else f"status {answer.returncode}"
    )
    return last[0] if last else f"it ended with {ended}"


def _binding_of(entry: Decision) -> str:
    return entry.dataset if entry.event == "bound" else "native"


def _detail_of(entry: Decision) -> str:
    if entry.event == "bound":
        return f"HDF5 {entry.reason}"
    return f"it runs natively: {entry.reason}"


def _report(library: Hdf5Library, run: ProgramRun, remedy: str) -> HostReport:
    """Return what was seen when a library was loaded."""
    seen = next((entry for entry in run.decisions if entry.event in _BINDING_EVENTS), None)
    binding, detail = "none", run.failure or "HDF5 did not load the connector"
    if seen is not None:
        binding, detail = _binding_of(seen), run.failure or _detail_of(seen)
    if seen is None and not run.failure and _is_old(library.version):
        detail = f"HDF5 {library.version} is older than 1.14"
    loads = seen is not None and seen.event == "bound" and not run.failure
    return HostReport(
        package=library.used_by,
        library=str(library.path),
        version=library.version,
        binding=binding,
        loads=loads,
        detail=detail,
        remedy="" if loads else remedy,
    )


def _is_old(version: str) -> bool:
    """Return whether an HDF5 has another interface for connectors, or none."""
    return bool(version) and tuple(map(int, version.split("."))) < (1, 14)
