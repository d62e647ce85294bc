"""The file that a calibration reads: written, emptied from memory, and always removed."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import socket
import statistics
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import h5py
import numpy as np

from sds.calibration.design import ELEMENT_SIZE_BYTES, STORED_ORDERS, array_extent
from sds.calibration.results import FileSystem, ReadRequest
from sds.errors import FileMissingError, InsufficientSpaceError, PermissionDeniedError
from sds.mounts import filesystem_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sds.geometry import Hyperslab
    from sds.recommender.models.cost_model import Via

_PREFIX = ".sds-calibrate-"
# HDF5's own blocks, and what a file system keeps back.
_SLACK_BYTES = 16 << 20
_SLAB_BYTES = 8 << 20
_PAGE_BYTES = 4096
# No read of one page from memory takes so long, whatever else the machine does.
_SLOWEST_COPY_S = 0.5e-3
# Data apart from HDF5's own blocks, so that opening the file reads none of it ahead.
_ALIGNMENT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCopy:
    """One copy of the array in the calibration's file, in one axis order."""

    dataset: str
    order: tuple[int, ...]
    extent: tuple[int, ...]
    data_offset_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenArray:
    """The file of a calibration.

    Attributes
    ----------
    file
        Alone in its directory.
    extent
        Of the array in its logical order.
    copies
        One per stored order.
    """

    file: Path
    extent: tuple[int, int, int]
    copies: tuple[StoredCopy, ...]

    @property
    def directory(self) -> Path:
        """Removed at the end, with all that is in it."""
        return self.file.parent

    def request(
        self, copy: StoredCopy, slab: Hyperslab, *, via: Via, strategy: str = "auto"
    ) -> ReadRequest:
        """Return the request to a process to read a selection of a copy, in its stored order.

        strategy: of the engine; through HDF5 it has no meaning.
        """
        return ReadRequest(
            via=via,
            file=str(self.file),
            dataset=copy.dataset,
            data_offset_bytes=copy.data_offset_bytes,
            element_size_bytes=ELEMENT_SIZE_BYTES,
            strategy=strategy,
            extent=copy.extent,
            start=slab.start,
            stride=slab.stride,
            count=slab.count,
        )


@contextmanager
def written_array(
    path: Path, space_bytes: int, *, seed: int, progress: Callable[[float, str], None]
) -> Iterator[WrittenArray]:
    """Return the file of a calibration, on disk; it is removed at the end, whatever happens.

    Errors as of `work_directory` and `sds.calibration.design.array_extent`.
    """
    extent = array_extent(space_bytes)
    with work_directory(path, space_bytes) as directory:
        file = directory / "array.h5"
        copies = write_array(file, extent, seed=seed, progress=progress)
        yield WrittenArray(file=file, extent=extent, copies=copies)


def file_system_of(path: Path) -> FileSystem:
    """Return the file system that holds a path."""
    found = filesystem_of(path)
    return FileSystem(
        mount_point=str(found.mount_point),
        kind=found.kind,
        source=found.source,
        device=path.stat().st_dev,
    )


@contextmanager
def work_directory(path: Path, space_bytes: int) -> Iterator[Path]:
    """Return a new directory with room for the file; it is removed at the end, whatever happens.

    Directories that calibrations of this host left behind when they were killed go too.

    Raises
    ------
    FileMissingError, PermissionDeniedError, InsufficientSpaceError
        If the path does not exist, cannot be written, or has too little room.
    """
    if not path.exists():
        raise FileMissingError(f"{path} does not exist: name a directory to measure in")
    parent = path if path.is_dir() else path.parent
    _remove_abandoned(parent)
    free_bytes = shutil.disk_usage(parent).free
    if free_bytes < space_bytes + _SLACK_BYTES:
        raise InsufficientSpaceError(
            f"{parent} has {free_bytes} bytes free, a calibration of {space_bytes} bytes needs "
            f"{space_bytes + _SLACK_BYTES}: free some, or give a smaller size"
        )
    name = f"{_PREFIX}{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(8)}"
    directory = parent / name
    try:  # a signal may come at any moment
        _make(directory)
        yield directory
    finally:
        try:
            _remove(directory)
        finally:  # a signal may have cut that off
            _remove(directory)


def _remove(directory: Path) -> None:
    if directory.exists():
        shutil.rmtree(directory)


def _make(directory: Path) -> None:
    """Make a directory of this account's alone; errors as of `work_directory`."""
    parent = directory.parent
    try:
        directory.mkdir(mode=0o700)
    except OSError as error:
        if error.errno == errno.EROFS:
            raise PermissionDeniedError(
                f"{parent} is on a file system that is mounted read-only: calibrate where it can "
                "be written"
            ) from error
        if isinstance(error, PermissionError):
            raise PermissionDeniedError(
                f"{parent} cannot be written: name a directory on that file system that you may "
                "write"
            ) from error
        raise


def _remove_abandoned(parent: Path) -> None:
    """Remove the directories of calibrations of this host whose process is gone."""
    for left in parent.glob(f"{_PREFIX}{socket.gethostname()}-*"):
        pid = left.name.removeprefix(f"{_PREFIX}{socket.gethostname()}-").split("-")[0]
        if (
            pid.isdigit()
            and not Path(f"/proc/{pid}").exists()
            and left.stat().st_uid == os.getuid()
        ):
            shutil.rmtree(left)


def write_array(
    file: Path, extent: tuple[int, ...], *, seed: int, progress: Callable[[float, str], None]
) -> tuple[StoredCopy, ...]:
    """Write the array in every stored order, on disk when this returns; return the copies."""
    random = np.random.default_rng(seed)
    copies = []
    size = int(np.prod(extent)) * ELEMENT_SIZE_BYTES * len(STORED_ORDERS)
    written = 0
    with h5py.File(
        file,
        "w",
        # Some parallel file systems refuse locks; no one else knows this file.
        locking=False,
        alignment_threshold=_ALIGNMENT_BYTES // 16,
        alignment_interval=_ALIGNMENT_BYTES,
    ) as hdf5:
        for order in STORED_ORDERS:
            stored = tuple(extent[axis] for axis in order)
            name = "order_" + "_".join(map(str, order))
            dataset = hdf5.create_dataset(name, shape=stored, dtype=np.float32)
            row_elements = int(np.prod(stored[1:]))
            rows = max(1, _SLAB_BYTES // (row_elements * ELEMENT_SIZE_BYTES))
            for first in range(0, stored[0], rows):
                slab = random.random((min(rows, stored[0] - first), *stored[1:]), dtype=np.float32)
                dataset[first : first + len(slab)] = slab
                written += slab.nbytes
                progress(written / size, "writing the array")
            copies.append(
                StoredCopy(
                    dataset=name,
                    order=order,
                    extent=stored,
                    data_offset_bytes=int(dataset.id.get_offset()),
                )
            )
    with file.open("rb") as done:
        os.fsync(done.fileno())
    return tuple(copies)


def evict(fd: int) -> None:
    """Empty the page cache of a file whose pages are clean, in this system."""
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def keeps_pages(fd: int, size_bytes: int) -> bool:
    """Return whether a page read once is read faster again: some file systems cache nothing.

    Of eight pages; a second read as slow as the first, and slower than any copy, is from the
    device.
    """
    page = bytearray(_PAGE_BYTES)
    times = []
    for at in _places_of_data(fd, size_bytes, first=1 / 16):
        for _ in range(2):
            begin_s = time.perf_counter()
            os.preadv(fd, [page], at)
            times.append(time.perf_counter() - begin_s)
    again_s = statistics.median(times[1::2])
    return again_s < max(_SLOWEST_COPY_S, statistics.median(times[::2]) / 2)


def eviction_works(fd: int, size_bytes: int) -> bool | None:
    """Return whether evicting leaves the file out of memory; None where that is unknown.

    Eight pages across the file are requested without waiting: what is not in memory is refused.
    """
    # Else the first page requested brings others along, which are then found in memory.
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    evict(fd)
    page = bytearray(1)
    for at in _places_of_data(fd, size_bytes, first=0.0):
        try:
            os.preadv(fd, [page], at, os.RWF_NOWAIT)
        except BlockingIOError:
            continue
        except OSError:
            return None
        return False
    return True


def _places_of_data(fd: int, size_bytes: int, *, first: float) -> list[int]:
    """Return the begins of pages, up to eight across a file from some share of it on.

    Where the file has a hole, of the next data: a hole is read without the device, whatever is
    cached. What holes are, some file systems do not say; there all is data.
    """
    places: set[int] = set()
    for part in range(8):
        at = int(size_bytes * (part / 8 + first))
        try:
            at = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # a hole up to the end
                continue
            if error.errno not in {errno.EINVAL, errno.EOPNOTSUPP}:
                raise
        places.add(at // _PAGE_BYTES * _PAGE_BYTES)
    return sorted(places)
