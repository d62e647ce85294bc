"""What an ELF file tells of the HDF5 in it, and which libraries the loader would give it."""

from __future__ import annotations

import mmap
import re
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LOADER_TIMEOUT_S = 20.0

_PT_INTERP = 3
_SHT_SYMTAB = 2
_SHT_DYNSYM = 11
_HEADER_BYTES = 64
_VERSION_TEXT = re.compile(rb"HDF5 library version:? (\d+)\.(\d+)\.(\d+)")
_PLUGIN_DIRECTORIES = re.compile(rb"\0(/[^\0\s:]+/plugins?(?::/[^\0\s:]+)*)\0")


@dataclass(frozen=True, slots=True, kw_only=True)
class ElfFacts:
    """What an ELF file tells about the HDF5 that is part of it.

    Attributes
    ----------
    interpreter
        The loader that it asks for; None in a library, and in a program without one.
    hdf5_version
        Empty where it holds no HDF5.
    plugin_directories
        Where that HDF5 looks for plugins by default.
    exports, names
        Whether the symbol that was asked for is among those for the loader, or among all.
    """

    interpreter: Path | None
    hdf5_version: tuple[int, ...]
    plugin_directories: tuple[Path, ...]
    exports: bool
    names: bool


def elf_facts(path: Path, symbol: str) -> ElfFacts | None:
    """Return what a file tells, and whether it has a function; None if it is no 64-bit ELF file."""
    with path.open("rb") as file:
        if file.read(6) != b"\x7fELF\x02\x01" or path.stat().st_size < _HEADER_BYTES:
            return None
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return _facts(content, symbol.encode())


def _facts(content: mmap.mmap, symbol: bytes) -> ElfFacts:
    version = _VERSION_TEXT.search(content)
    directories = _PLUGIN_DIRECTORIES.search(content) if version else None
    # The end of a name alone: a library may put something in front of all.
    found = {
        kind: content.find(symbol + b"\0", at, at + size) >= 0
        for kind, at, size in _names_of_symbols(content)
    }
    return ElfFacts(
        interpreter=_interpreter(content),
        hdf5_version=tuple(int(part) for part in version.groups()) if version else (),
        plugin_directories=tuple(
            Path(name) for name in (directories[1].decode().split(":") if directories else ())
        ),
        exports=found.get(_SHT_DYNSYM, False),
        names=found.get(_SHT_SYMTAB, False),
    )


def _interpreter(content: mmap.mmap) -> Path | None:
    (at,) = struct.unpack_from("<Q", content, 32)
    entry_bytes, n_entries = struct.unpack_from("<HH", content, 54)
    try:
        for i in range(n_entries):
            kind, offset, size = struct.unpack_from("<I4xQ16xQ", content, at + i * entry_bytes)
            if kind == _PT_INTERP:
                return Path(content[offset : offset + size].rstrip(b"\0").decode(errors="replace"))
    except struct.error:
        pass  # cut off: the kernel will not run it either
    return None


def _names_of_symbols(content: mmap.mmap) -> Iterator[tuple[int, int, int]]:
    """Yield the kind of each symbol table, and where the names of its symbols are."""
    (at,) = struct.unpack_from("<Q", content, 40)
    entry_bytes, n_entries = struct.unpack_from("<HH", content, 58)
    try:
        for i in range(n_entries):
            kind, link = struct.unpack_from("<4xI32xI", content, at + i * entry_bytes)
            if kind in (_SHT_SYMTAB, _SHT_DYNSYM):
                names, size = struct.unpack_from("<24xQQ", content, at + link * entry_bytes)
                yield kind, names, size
    except struct.error:
        return


def linked_libraries(path: Path, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the libraries that the loader would give a program or library, without running it.

    The loader itself is asked, which knows of search paths, caches and LD_LIBRARY_PATH. Empty where
    it does not say.
    """
    facts = elf_facts(path, "")
    if facts is None:
        return ()
    loader = facts.interpreter
    if loader is None:  # a library: by the loader of this interpreter
        own = elf_facts(Path(sys.executable), "")
        loader = own.interpreter if own else None
    if loader is None:
        return ()
    # Without a slash in it, the loader would look for it among libraries.
    command = [str(loader), "--list", str(path.absolute())]
    try:
        answer = subprocess.run(  # noqa: S603  (the loader of the program that the user runs)
            command, env=dict(environ), check=False, capture_output=True,
            text=True, errors="replace", timeout=LOADER_TIMEOUT_S,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ()
    # Names may hold spaces; the address at the end does not.
    found = re.findall(r"^\s*(?:\S+ => )?(/.+?) \(0x[0-9a-f]+\)$", answer.stdout, re.MULTILINE)
    return tuple(Path(place) for place in found)
