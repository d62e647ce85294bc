"""Which HDF5 libraries a Python or program brings, found out without running the program.

For `sds doctor`. What a shell script or mpiexec will start cannot be known.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from sds.redirect.elf import elf_facts, linked_libraries

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PACKAGES = ("h5py", "netCDF4", "tables", "vtkmodules")
PROBE_TIMEOUT_S = 20.0
# Of a package that brings no HDF5 of its own, as many as h5py has in two kinds.
_MOST_EXTENSIONS = 60

# Newer than any function of HDF5 1.12: what lacks it has another interface for connectors.
_NEEDED_SYMBOL = "H5VLintrospect_get_cap_flags"
# How pip names a Python whose path has spaces, or is too long for a first line.
_LONG_FIRST_LINE = b"'''exec' "
_FIND_PACKAGES = """
import importlib.util, json, sys
found = {name: importlib.util.find_spec(name) for name in sys.argv[1:]}
print(json.dumps({name: spec.origin for name, spec in found.items() if spec and spec.origin}))
"""


class ProgramKind(StrEnum):
    """What a command starts."""

    PYTHON = "python"
    ELF = "elf"
    OTHER = "other"
    MISSING = "missing"


class Binding(StrEnum):
    """Where the connector finds the functions of an HDF5 library."""

    EXPORTED = "exported symbols"
    SYMBOL_TABLE = "symbol table"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hdf5Library:
    """An HDF5 library that a program brings.

    Attributes
    ----------
    used_by
        Python package, or the program itself.
    version
        Empty where the file does not tell it.
    binding
        Where the connector would find its functions; :attr:`Binding.NONE` where it cannot serve it.
    problem
        Why it cannot; empty where it can.
    plugin_directories
        Where it looks for plugins while HDF5_PLUGIN_PATH is not set.
    """

    used_by: str
    path: Path
    version: str
    binding: Binding
    problem: str = ""
    plugin_directories: tuple[Path, ...] = ()

    @property
    def can_bind(self) -> bool:
        """Whether the connector serves it."""
        return self.binding is not Binding.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramProbe:
    """What was found out about a command.

    Attributes
    ----------
    program
        Where it was found; None where it was not.
    filter_directories
        HDF5 filter plugins that the program's own packages bring.
    """

    program: Path | None
    kind: ProgramKind
    libraries: tuple[Hdf5Library, ...] = ()
    filter_directories: tuple[Path, ...] = ()

    @property
    def plugin_directories(self) -> tuple[Path, ...]:
        """Where the program would find plugins if HDF5_PLUGIN_PATH were not set."""
        defaults = [path for library in self.libraries for path in library.plugin_directories]
        return tuple(dict.fromkeys((*self.filter_directories, *defaults)))


def probe_program(command: Sequence[str], environ: Mapping[str, str]) -> ProgramProbe:
    """Return what a command starts, and which HDF5 that brings."""
    found = shutil.which(command[0], path=environ.get("PATH")) if command else None
    if found is None:
        return ProgramProbe(program=None, kind=ProgramKind.MISSING)
    program = Path(found)
    try:
        if program.is_file():
            return _probe_file(program, environ)
    except OSError:
        pass  # it may be executed but not read
    return ProgramProbe(program=program, kind=ProgramKind.OTHER)


def _probe_file(program: Path, environ: Mapping[str, str]) -> ProgramProbe:
    interpreter = _interpreter_of(program, environ) or program
    if _is_python(program):  # also where it is a script that chooses among several
        return probe_python(program, environ)
    if _is_python(interpreter):
        return probe_python(interpreter, environ)
    if interpreter != program or not (facts := elf_facts(program, _NEEDED_SYMBOL)):
        return ProgramProbe(program=program, kind=ProgramKind.OTHER)
    linked = [path for path in linked_libraries(program, environ) if _is_hdf5_name(path)]
    # HDF5 may also be part of the program itself.
    places = linked or ([program] if facts.hdf5_version else [])
    return ProgramProbe(
        program=program,
        kind=ProgramKind.ELF,
        libraries=tuple(
            describe_library(path, program.name, is_program=path == program) for path in places
        ),
    )


def probe_python(interpreter: Path, environ: Mapping[str, str]) -> ProgramProbe:
    """Return the HDF5 libraries of the packages that a Python has installed; imports none."""
    libraries: list[Hdf5Library] = []
    filters: list[Path] = []
    for name, origin in _find_packages(interpreter, environ).items():
        package = Path(origin).parent
        libraries += [describe_library(path, name) for path in _libraries_of(package, environ)]
        if name == "netCDF4" and (package / "plugins").is_dir():
            filters.append(package / "plugins")
    return ProgramProbe(
        program=interpreter,
        kind=ProgramKind.PYTHON,
        libraries=tuple(libraries),
        filter_directories=tuple(filters),
    )


def _find_packages(interpreter: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Return where a Python would import the packages from; empty where it does not say."""
    if interpreter.absolute() == Path(sys.executable).absolute():
        specs = {name: importlib.util.find_spec(name) for name in PACKAGES}
        return {name: spec.origin for name, spec in specs.items() if spec and spec.origin}
    # Without the connector: the probe must not depend on what it is to find out.
    plain = {name: value for name, value in environ.items() if not name.startswith("HDF5_")}
    try:
        answer = subprocess.run(  # noqa: S603  (the interpreter that the user runs)
            [interpreter, "-c", _FIND_PACKAGES, *PACKAGES],
            env=plain,
            check=True,
            capture_output=True,
            timeout=PROBE_TIMEOUT_S,
        )
        found = json.loads(answer.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        # A Python that cannot answer is a program of unknown kind, not an error of SDS.
        return {}
    return {str(name): str(origin) for name, origin in found.items()}


def _libraries_of(package: Path, environ: Mapping[str, str]) -> list[Path]:
    """Return the HDF5 libraries of an installed package: bundled in its wheel, or linked."""
    folders = [
        package,
        *(
            folder
            for around in (package.parent, package)
            for name in dict.fromkeys((package.name, package.name.lower()))
            for folder in around.glob(f"{name}*.libs")
        ),
    ]
    bundled = [path for folder in folders for path in folder.glob("*") if _is_hdf5_name(path)]
    if bundled:
        return list(dict.fromkeys(bundled))
    linked: dict[Path, None] = {}
    # Debian keeps those of each kind of HDF5 in a folder below.
    for extension in sorted(package.rglob("*.so"))[:_MOST_EXTENSIONS]:
        for path in linked_libraries(extension, environ):
            if _is_hdf5_name(path):
                linked[path.resolve()] = None
    return list(linked)


def _is_hdf5_name(path: Path) -> bool:
    """Return whether a file is HDF5's main library, not its high-level or C++ one."""
    return re.match(r"lib(vtk)?hdf5(_serial|_openmpi|_mpich)?[^_]*\.so", path.name) is not None


def _interpreter_of(program: Path, environ: Mapping[str, str]) -> Path | None:
    """Return the interpreter that a script's first line names; None for anything else."""
    with program.open("rb") as file:
        line, second = file.readline(512), file.readline(512)
    if not line.startswith(b"#!"):
        return None
    words = line[2:].decode(errors="replace").split()
    if words and Path(words[0]).name == "sh" and second.startswith(_LONG_FIRST_LINE):
        words = shlex.split(second.decode(errors="replace"))[1:2]
    if words and Path(words[0]).name == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    found = shutil.which(words[0], path=environ.get("PATH")) if words else None
    return Path(found) if found else None


def _is_python(program: Path) -> bool:
    return re.fullmatch(r"python(\d+(\.\d+)*)?t?", program.name) is not None


def describe_library(path: Path, used_by: str, *, is_program: bool = False) -> Hdf5Library:
    """Return what a library, or a program with HDF5 linked in, tells of its HDF5."""
    facts = elf_facts(path, _NEEDED_SYMBOL)
    if facts is None:
        return Hdf5Library(
            used_by=used_by, path=path, version="", binding=Binding.NONE,
            problem="it is not a 64-bit library",
        )  # fmt: skip
    version = facts.hdf5_version
    text = ".".join(map(str, version))
    binding, problem = Binding.NONE, ""
    if version and not _is_known(version):
        age = "older than 1.14" if version < (1, 14) else "newer than this SDS knows (2.2)"
        problem = f"HDF5 {text} is {age}"
    elif facts.exports:
        binding = Binding.EXPORTED
    elif facts.names and (facts.interpreter or not is_program):
        binding = Binding.SYMBOL_TABLE
    elif facts.names:
        problem = f"HDF5 {text} is part of a program without a dynamic loader (-static)"
    else:
        problem = f"HDF5 {text or 'of unknown version'} shows no function {_NEEDED_SYMBOL}"
    return Hdf5Library(
        used_by=used_by,
        path=path,
        version=text,
        binding=binding,
        problem=problem,
        plugin_directories=facts.plugin_directories,
    )


def _is_known(version: tuple[int, ...]) -> bool:
    """Return whether the connector serves this version, as host.cpp decides."""
    return version[:2] == (1, 14) or (2, 0) <= version[:2] <= (2, 2)
