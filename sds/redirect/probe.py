"""Whether a program's HDF5 can load the connector, found out without running the program.

HDF5 2 crashes where HDF5_VOL_CONNECTOR names a connector that does not bind, and 1.12 prints
errors. So a launcher looks first. What a wrapper (a shell script, mpiexec) will start cannot be
known; there the connector is switched on.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import struct
import subprocess
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

PACKAGES = ("h5py", "netCDF4", "tables")
OLDEST_VERSION = (1, 14, 0)
PROBE_TIMEOUT_S = 20.0

_VERSION_TEXT = re.compile(rb"HDF5 library version:? (\d+)\.(\d+)\.(\d+)")
# Newer than any function of HDF5 1.12: what lacks it has another interface for connectors.
_NEEDED_SYMBOL = b"H5VLintrospect_get_cap_flags\0"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Hdf5Library:
    """An HDF5 library that a program brings.

    Attributes
    ----------
    used_by
        Python package, or the program itself.
    version
        Empty where the file does not tell it.
    """

    used_by: str
    path: Path
    version: str
    can_bind: bool


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
    def can_bind(self) -> bool | None:
        """Whether every HDF5 that was found loads the connector; None where none was found."""
        return all(library.can_bind for library in self.libraries) if self.libraries else None

    @property
    def problem(self) -> str:
        """Say which library cannot load the connector; empty where all can."""
        return "; ".join(
            f"{library.path} (HDF5 {library.version or 'of unknown version'}, used by "
            f"{library.used_by}) cannot load the connector, which needs HDF5 1.14 or newer with "
            "visible symbols"
            for library in self.libraries
            if not library.can_bind
        )


def probe_program(command: Sequence[str], environ: Mapping[str, str]) -> ProgramProbe:
    """Return what the first word of a command starts, and which HDF5 libraries that brings."""
    found = shutil.which(command[0], path=environ.get("PATH")) if command else None
    if found is None:
        return ProgramProbe(program=None, kind=ProgramKind.MISSING)
    program = Path(found)
    interpreter = _interpreter_of(program, environ) or program
    if _is_python(program):  # also where it is a script that chooses among several
        return probe_python(program, environ)
    if _is_python(interpreter):
        return probe_python(interpreter, environ)
    if interpreter != program or not _is_elf(program):
        return ProgramProbe(program=program, kind=ProgramKind.OTHER)
    linked = [path for path in _linked_libraries(program, environ) if _is_hdf5_name(path)]
    # HDF5 may be part of the program itself, whose symbols then have to be exported.
    places = linked or ([program] if _hdf5_version(program) else [])
    return ProgramProbe(
        program=program,
        kind=ProgramKind.ELF,
        libraries=tuple(_describe_library(path, program.name) for path in places),
    )


def probe_python(interpreter: Path, environ: Mapping[str, str]) -> ProgramProbe:
    """Return the HDF5 libraries of the packages that a Python has installed; imports none."""
    libraries: list[Hdf5Library] = []
    filters: list[Path] = []
    for name, origin in _find_packages(interpreter, environ).items():
        package = Path(origin).parent
        libraries += [_describe_library(path, name) for path in _libraries_of(package, environ)]
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
    bundled = [
        path
        for directory in (package.parent, package)
        for path in directory.glob(f"{package.name}*.libs/*")
        if _is_hdf5_name(path)
    ]
    lower = package.parent / f"{package.name.lower()}.libs"
    if lower.is_dir():
        bundled += [path for path in lower.iterdir() if _is_hdf5_name(path)]
    if bundled:
        return list(dict.fromkeys(bundled))
    linked: dict[Path, None] = {}
    for extension in sorted(package.glob("*.so"))[:40]:
        for path in _linked_libraries(extension, environ):
            if _is_hdf5_name(path):
                linked[path.resolve()] = None
    return list(linked)


def _is_hdf5_name(path: Path) -> bool:
    """Return whether a file is HDF5's main library, not its high-level or C++ one."""
    name = path.name
    return name.startswith("libhdf5") and ".so" in name and not re.match(
        r"libhdf5_(?!serial|openmpi|mpich)", name
    )  # fmt: skip


def _linked_libraries(path: Path, environ: Mapping[str, str]) -> Iterable[Path]:
    """Return the libraries that the loader would give a program; empty where it does not say."""
    ldd = shutil.which("ldd")
    if ldd is None:
        return ()
    try:
        answer = subprocess.run(  # noqa: S603  (of the program that the user runs)
            [ldd, path], env=dict(environ), check=False, capture_output=True, text=True,
            timeout=PROBE_TIMEOUT_S,
        )  # fmt: skip
    except (OSError, ValueError, subprocess.SubprocessError):
        return ()
    return tuple(Path(place) for place in re.findall(r"=> (/\S+)", answer.stdout))


def _interpreter_of(program: Path, environ: Mapping[str, str]) -> Path | None:
    """Return the interpreter that a script's first line names; None for anything else."""
    with program.open("rb") as file:
        line = file.readline(512)
    if not line.startswith(b"#!"):
        return None
    words = line[2:].decode(errors="replace").split()
    if words and Path(words[0]).name == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    found = shutil.which(words[0], path=environ.get("PATH")) if words else None
    return Path(found) if found else None


def _is_python(program: Path) -> bool:
    return re.fullmatch(r"python(\d+(\.\d+)*)?t?", program.name) is not None


def _is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def _describe_library(path: Path, used_by: str) -> Hdf5Library:
    version = _hdf5_version(path)
    new_enough = not version or version >= OLDEST_VERSION
    return Hdf5Library(
        used_by=used_by,
        path=path,
        version=".".join(map(str, version)),
        can_bind=new_enough and _NEEDED_SYMBOL in _dynamic_names(path),
    )


def _hdf5_version(path: Path) -> tuple[int, ...]:
    """Return the version that an HDF5 library's text tells; empty where it has none."""
    found = _VERSION_TEXT.search(path.read_bytes())
    return tuple(int(part) for part in found.groups()) if found else ()


def _dynamic_names(path: Path) -> bytes:
    """Return the names in the dynamic symbol table of a 64-bit ELF file; empty for others.

    Only these can be looked up at run time; the names that a debugger sees are elsewhere.
    """
    elf = path.read_bytes()
    if elf[:6] != b"\x7fELF\x02\x01":
        return b""
    (sections_at,) = struct.unpack_from("<Q", elf, 40)
    entry_bytes, n_sections = struct.unpack_from("<HH", elf, 58)
    dynamic_symbols = 11  # SHT_DYNSYM; its link is the section of its names
    try:
        for i in range(n_sections):
            kind, link = struct.unpack_from("<4xI32xI", elf, sections_at + i * entry_bytes)
            if kind == dynamic_symbols:
                at, size = struct.unpack_from("<24xQQ", elf, sections_at + link * entry_bytes)
                return elf[at : at + size]
    except struct.error:
        return b""
    return b""
