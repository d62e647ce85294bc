"""Directory of the demonstration's files, and the size that they may have there."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from sds.errors import FileMissingError, InsufficientSpaceError, PermissionDeniedError
from sds.home import Home

DEFAULT_SIZE_BYTES = 1792 << 20
SMALLEST_DEFAULT_BYTES = 1 << 30
FIGURE_NAME = "sds-demo.png"
_SPARE_BYTES = 512 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """The directory in which everything of one demonstration lies."""

    root: Path

    @property
    def home(self) -> Home:
        """SDS_HOME of the demonstration."""
        return Home(self.root / "home")

    @property
    def bare_home(self) -> Home:
        """A home in which nothing is ever built: the connector alone."""
        return Home(self.root / "home-without-replicas")

    @property
    def cube(self) -> Path:
        """The image cube."""
        return self.root / "image.h5"

    @property
    def grid(self) -> Path:
        """The grid through time."""
        return self.root / "grid.nc"

    def remove(self) -> None:
        """Delete everything."""
        shutil.rmtree(self.root)


def make_workplace(directory: Path | None, size_bytes: int | None) -> tuple[Workplace, int]:
    """Create a directory and return it with the bytes of data that it is to hold.

    Parameters
    ----------
    directory
        In which to create it; None: the current one, or where that cannot be written or lacks
        room, the one for temporary files.
    size_bytes
        None: the default, or less (at least 1 GiB) where disk or memory would not hold twice
        that, once for the originals and once for the replicas.

    Raises
    ------
    InsufficientSpaceError
        If there is too little room.
    PermissionDeniedError
        If the directory cannot be written.
    """
    candidates = [directory] if directory else [Path.cwd(), Path(tempfile.gettempdir())]
    for candidate in candidates:
        candidate.mkdir(parents=True, exist_ok=True)
    writable = [path for path in candidates if os.access(path, os.W_OK | os.X_OK)]
    if not writable:
        message = f"may not write {candidates[0]}; name another --directory"
        raise PermissionDeniedError(message)
    needed = _needed_bytes(size_bytes or SMALLEST_DEFAULT_BYTES)
    chosen = next((path for path in writable if _free_bytes(path) >= needed), None)
    if chosen is None:
        message = (
            f"{writable[0]} has {_free_bytes(writable[0]) >> 20} MiB free, but the demonstration "
            f"needs {needed >> 20} MiB for files and replicas; "
            "name another --directory or a smaller --size"
        )
        raise InsufficientSpaceError(message)
    if size_bytes is None:
        room = min(_free_bytes(chosen), _available_memory_bytes())
        size_bytes = (room - _SPARE_BYTES) // 2
        size_bytes = max(SMALLEST_DEFAULT_BYTES, min(DEFAULT_SIZE_BYTES, size_bytes))
    root = Path(tempfile.mkdtemp(prefix="sds-demo-", dir=chosen)).resolve()
    return Workplace(root=root), size_bytes


def figure_path(output: Path | None) -> Path:
    """Return the path of the figure, checked before minutes of work.

    Parameters
    ----------
    output
        The file; None: ``sds-demo.png`` in the current directory, or where that cannot be
        written, in the one for temporary files.

    Raises
    ------
    FileMissingError
        If its directory does not exist.
    PermissionDeniedError
        If it cannot be written.
    """
    if output is None:
        here = _may_write(Path.cwd() / FIGURE_NAME)
        return (Path.cwd() if here else Path(tempfile.gettempdir())) / FIGURE_NAME
    output = output.absolute()
    if not output.parent.is_dir():
        message = f"there is no directory {output.parent} for the figure; name another --output"
        raise FileMissingError(message)
    if output.is_dir() or not _may_write(output):
        message = f"may not write the figure {output}; name another --output"
        raise PermissionDeniedError(message)
    return output


def _may_write(path: Path) -> bool:
    """Tell whether a file may be created, or written where there is one."""
    if path.exists():
        return os.access(path, os.W_OK)
    return os.access(path.parent, os.W_OK | os.X_OK)


def _needed_bytes(size_bytes: int) -> int:
    """Return the disk space for originals and replicas of a size."""
    return 2 * size_bytes + min(size_bytes, _SPARE_BYTES)


def _free_bytes(path: Path) -> int:
    """Return the bytes that an ordinary user may still write in a directory."""
    return shutil.disk_usage(path).free


def _available_memory_bytes() -> int:
    """Return the memory that the kernel can give to the page cache."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) << 10
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
