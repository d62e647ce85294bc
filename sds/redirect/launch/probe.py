"""Find the HDF5 libraries that a Python or program brings, without running the program.

What a shell script or mpiexec will start cannot be known.
"""

from __future__ import annotations

import importlib.util
import json
import mmap
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sds.redirect.launch.original_environment import is_python

if TYPE_CHECKING:
    from collections.abc import Mapping

PACKAGES = ("h5py", "netCDF4", "tables", "vtkmodules")
PROBE_TIMEOUT_S = 20.0
# Of a package that brings no HDF5 of its own, as many as h5py has in two kinds.
_MOST_EXTENSIONS = 60

_VERSION_TEXT = re.compile(rb"HDF5 library version:? (\d{1,4}\.\d{1,4}\.\d{1,4})")
# How pip names a Python whose path has spaces, or is too long for a first line.
_LONG_FIRST_LINE = b"'''exec' "
# Of the files that a process has mapped to be executed.
_LOADER = re.compile(r"^\S+ r-xp \S+ \S+ \S+ +(/.*/ld-[^/\n]*\.so[^/\n]*)$", re.MULTILINE)
_FIND_PACKAGES = """
import importlib.util, json, sys
found = {name: importlib.util.find_spec(name) for name in sys.argv[1:]}
print(json.dumps({name: spec.origin for name, spec in found.items() if spec and spec.origin}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hdf5Library:
    """An HDF5 library that a program brings.

    Attributes
    ----------
    used_by
        Python package, or the program.
    version
        Empty where the file does not tell it.
    """

    used_by: str
    path: Path
    version: str


def find_python(program: Path, environ: Mapping[str, str]) -> Path | None:
    """Return the Python that a program is or, as a script, names; None of others."""
    if is_python(program):  # also where it is a script that chooses among several
        return program
    try:
        interpreter = _interpreter_of(program, environ) if program.is_file() else None
    except OSError:
        return None  # it may be executed but not read
    return interpreter if interpreter is not None and is_python(interpreter) else None


def libraries_of_program(program: Path, environ: Mapping[str, str]) -> tuple[Hdf5Library, ...]:
    """Return the HDF5 libraries that the loader would give a program."""
    linked = _linked_libraries(program, environ) if program.is_file() else ()
    return tuple(_describe(path, program.name) for path in linked if is_hdf5_name(path))


def libraries_of_python(interpreter: Path, environ: Mapping[str, str]) -> tuple[Hdf5Library, ...]:
    """Return the HDF5 libraries of the packages that a Python has installed; imports none."""
    return tuple(
        _describe(path, name)
        for name, package in _find_packages(interpreter, environ).items()
        for path in _libraries_of(package, environ)
    )


def _find_packages(interpreter: Path, environ: Mapping[str, str]) -> dict[str, Path]:
    """Return the folders that a Python would import packages from; empty where it says none."""
    if interpreter.absolute() == Path(sys.executable).absolute():
        specs = {name: importlib.util.find_spec(name) for name in PACKAGES}
        return {name: Path(s.origin).parent for name, s in specs.items() if s and s.origin}
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
    return {str(name): Path(origin).parent for name, origin in found.items()}


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
    bundled = [path for folder in folders for path in folder.glob("*") if is_hdf5_name(path)]
    if bundled:
        return list(dict.fromkeys(bundled))
    linked: dict[Path, None] = {}
    # Debian keeps those of each kind of HDF5 in a folder below.
    for extension in sorted(package.rglob("*.so"))[:_MOST_EXTENSIONS]:
        for path in _linked_libraries(extension, environ):
            if is_hdf5_name(path):
                linked[path.resolve()] = None
    return list(linked)


def is_hdf5_name(path: Path) -> bool:
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


def _describe(path: Path, used_by: str) -> Hdf5Library:
    return Hdf5Library(used_by=used_by, path=path, version=hdf5_version_in(path))


def hdf5_version_in(path: Path) -> str:
    """Return what the text in a library says of its HDF5; empty where it says nothing."""
    try:
        if not path.is_file():  # a FIFO would have it wait
            return ""
        with (
            path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
        ):
            found = _VERSION_TEXT.search(content)
            return found[1].decode() if found else ""
    except (OSError, ValueError):  # it may not be read, or is empty
        return ""


def _linked_libraries(path: Path, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the libraries that the loader would give a program or library, without running it.

    The loader of this process lists them: it knows search paths, caches and LD_LIBRARY_PATH. Empty
    where it does not say.
    """
    mapped = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape")
    loader = _LOADER.search(mapped)
    if loader is None:
        return ()
    # Without a slash in it, the loader would look for it among libraries.
    command = [loader[1], "--list", str(path.absolute())]
    try:
        answer = subprocess.run(  # noqa: S603  (the loader that runs this process)
            command, env=dict(environ), check=False, capture_output=True,
            text=True, errors="replace", timeout=PROBE_TIMEOUT_S,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ()
    # Names may hold spaces; the address at the end does not.
    found = re.findall(r"^\s*(?:\S+ => )?(/.+?) \(0x[0-9a-f]+\)$", answer.stdout, re.MULTILINE)
    return tuple(map(Path, found))
