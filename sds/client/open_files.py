"""Files that :func:`sds.read` and :func:`sds.read_list` keep open between calls.

What is kept of a file is a descriptor, how its datasets are stored, the engine's mapping, and what
is known of its replicas, of which some are open as well (:mod:`sds.client.replica_reader`). No HDF5
library has it open for that, and no lock is held. Every use checks that the path still leads to the
same bytes: device, inode, size and both times of change, which must have been settled when they
were noted, and no handle of HDF5 through which this process writes. Otherwise the file is dropped
and opened anew.

Closing any descriptor of a file drops the POSIX locks that the process has on it. Closing it within
the call that opened it, as HDF5 does, surprises no one; closing it at some later call might. So a
file on which this process has a lock is not closed before the lock is gone.
"""

from __future__ import annotations

import atexit
import os
import stat
import sys
import threading
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from sds import _native
from sds.client.replica_reader import Redirection
from sds.engine import load_measured
from sds.errors import FileMissingError, PermissionDeniedError
from sds.files import require_regular
from sds.hdf5.chunk_reader import ChunkedSource
from sds.hdf5.dataset import DatasetDescription
from sds.hdf5.identity import SETTLED_S, Version, version_of
from sds.home import default_home

if TYPE_CHECKING:
    import h5py

MAX_FILES = 8
"""The file that was not used for the longest time is closed for another one."""

MAX_IDLE_S = 60.0
"""A file that was not used for so long is closed by the next call."""

_SWEEP_S = 5.0


@dataclass(slots=True, kw_only=True, eq=False)
class OpenedFile:
    """A file that is open for reading, without HDF5.

    Attributes
    ----------
    path
        As it was given.
    version
        Of the bytes that `datasets` was found in.
    engine
        Reads; closes the descriptor when no read is left.
    is_remote
        On a file system whose clients know attributes for seconds after another host has changed
        them: only opening a file asks for the present ones.
    redirection
        What is known of its replicas.
    datasets
        How they are stored, by the names that reads used.
    chunked
        Where the chunks of those among them lie that are stored in chunks.
    """

    path: str | bytes
    version: Version
    engine: _native.ReadFile
    is_regular: bool
    is_remote: bool
    redirection: Redirection
    datasets: dict[str, DatasetDescription] = field(default_factory=dict)
    chunked: dict[str, ChunkedSource] = field(default_factory=dict)
    used_s: float = 0.0


_files: dict[str | bytes, OpenedFile] = {}
_lock = threading.Lock()
_swept_s = 0.0


def open_file(file: str | os.PathLike[str]) -> OpenedFile:
    """Return a file opened for reading: the one that is kept, or a new one.

    Raises
    ------
    FileMissingError, PermissionDeniedError, OSError
        If it cannot be opened.
    NotHdf5Error
        If it is a pipe, a socket or a device.
    """
    kept = find_opened(file)
    if kept is not None:
        return kept
    path = os.fspath(file)
    require_regular(path)
    try:
        engine = engine_of(path)
    except FileNotFoundError as error:
        message = f"no such file: {file}; check the name and the directory"
        raise FileMissingError(message) from error
    except PermissionError as error:
        message = f"may not read {file}; ask its owner for permission"
        raise PermissionDeniedError(message) from error
    found = os.fstat(engine.fileno())
    return OpenedFile(
        path=path,
        version=engine.stamp,
        engine=engine,
        is_regular=stat.S_ISREG(found.st_mode),
        is_remote=engine.is_remote,
        redirection=Redirection(os.fsdecode(path), found, engine),
    )


def engine_of(file: str | bytes | int) -> _native.ReadFile:
    """Return what reads a file: opened here, or a descriptor of the caller's."""
    return _native.ReadFile(
        file,
        may_map=os.environ.get("SDS_MMAP") != "0",
        measured=load_measured(default_home()),
    )


def find_opened(file: str | os.PathLike[str], *, is_hdf5: bool = True) -> OpenedFile | None:
    """Return the file that is kept for a path, if it still holds the bytes it held then.

    `is_hdf5`: datasets are read, not bytes; it must not be open for writing through h5py.
    """
    path = os.fspath(file)
    kept = _files.get(path)
    now_s = time.monotonic()
    if kept is not None:
        kept.used_s = now_s
        if not _is_current(kept) or (is_hdf5 and is_written_through_h5py(kept.version)):
            with _lock:
                _files.pop(path, None)
            kept = None
    if now_s - _swept_s > _SWEEP_S:
        _sweep_if_due(now_s)
    return kept


def find_local(file: str | os.PathLike[str]) -> OpenedFile | None:
    """Return the file that is kept for a path, unchecked: the caller checks if it has changed.

    None on file systems of other hosts.
    """
    path = os.fspath(file)
    kept = _files.get(path)
    if kept is None or kept.is_remote:
        return None
    kept.used_s = time.monotonic()
    _sweep_if_due(kept.used_s)
    return kept if _files.get(path) is kept else None


def keep(opened: OpenedFile) -> None:
    """Keep a file for later calls, unless it was changed too recently to know later changes."""
    if not opened.is_regular or time.time() - opened.version[3] / 1e9 < SETTLED_S:
        return
    with _lock:
        opened.used_s = time.monotonic()
        _files[opened.path] = opened
        by_use = sorted(_files.values(), key=lambda one: one.used_s)
    if len(by_use) > MAX_FILES:
        _let_go(by_use[: len(by_use) - MAX_FILES])


def forget(file: str | os.PathLike[str] | bytes | None = None) -> None:
    """Let go of a file that reads keep open, or of all of them.

    For the sake of the file system: a deleted file gives its space back, a file system can be
    unmounted. Reads that are under way end as they would have. Closing a file drops the POSIX locks
    that this process has on it.

    Parameters
    ----------
    file
        As it was given to :func:`sds.read`; None for all files.
    """
    with _lock:
        if file is None:
            _files.clear()
        else:
            _files.pop(os.fspath(file), None)


def _let_go(files: list[OpenedFile]) -> None:
    """Drop files from those that are kept, except where that would drop a lock."""
    locked = _locked_inodes() if files else set()
    with _lock:
        for one in files:
            if one.version[1] not in locked and _files.get(one.path) is one:
                del _files[one.path]


def _sweep_if_due(now_s: float) -> None:
    global _swept_s  # noqa: PLW0603  (one cache per process)
    if now_s - _swept_s > _SWEEP_S:
        _swept_s = now_s
        _sweep(now_s)


def _sweep(now_s: float) -> None:
    """Drop files that were unused for long, or were deleted."""
    with _lock:
        old = [
            one
            for one in _files.values()
            if now_s - one.used_s > MAX_IDLE_S or not one.engine.is_linked()
        ]
        kept = list(_files.values())
    _let_go(old)
    for one in kept:
        one.redirection.drop_unlinked()


def _locked_inodes() -> set[int]:
    """Return the inodes on which this process has POSIX locks."""
    try:
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        return set()  # without /proc there is no telling
    own = str(os.getpid())
    fields = [line.split() for line in lines]
    return {int(f[5].rsplit(":", 1)[1]) for f in fields if f[1] == "POSIX" and f[4] == own}


def version_in_hdf5(file: h5py.h5f.FileID) -> Version | None:
    """Return the version of the file that HDF5 reads, None where its bytes are not to be had.

    Of a file that is open for writing elsewhere in this process, HDF5 may hold bytes back that the
    file does not have yet.
    """
    import h5py  # noqa: PLC0415

    if file.get_intent() & h5py.h5f.ACC_RDWR:
        return None
    if file.get_access_plist().get_driver() != h5py.h5fd.SEC2:
        return None
    return version_of(os.fstat(file.get_vfd_handle()))


def _is_current(kept: OpenedFile) -> bool:
    """Return whether the path leads to the bytes that were described."""
    if kept.is_remote:
        # Where attributes are cached for seconds, opening asks the server.
        try:
            if version_of(_stat_anew(kept.path)) != kept.version:
                return False
        except OSError:
            return False
    return kept.engine.is_current()


def _stat_anew(path: str | bytes) -> os.stat_result:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        return os.fstat(descriptor)
    finally:
        os.close(descriptor)


def is_written_through_h5py(version: Version) -> bool:
    """Return whether h5py's HDF5 has a file open for writing, and may hold bytes of it back.

    Another HDF5 library in this process, as those of netCDF4 and PyTables, is like another program:
    what it holds back no other reader can see.
    """
    if "h5py" not in sys.modules:
        return False
    try:
        return _is_open_for_writing(version)
    except (RuntimeError, ValueError):
        return True  # another thread closed what was being looked at: let HDF5 read


@cache
def _kinds_of_handles() -> int:
    import h5py  # noqa: PLC0415  (import sds must not load the HDF5 library)

    h5f = h5py.h5f
    kinds: int = h5f.OBJ_FILE | h5f.OBJ_DATASET | h5f.OBJ_GROUP | h5f.OBJ_ATTR
    return kinds


def _is_open_for_writing(version: Version) -> bool:
    import h5py  # noqa: PLC0415

    h5f, kinds = h5py.h5f, _kinds_of_handles()
    n_objects = h5f.get_obj_count(h5f.OBJ_ALL, kinds)
    if n_objects == 0:
        return False
    files = h5f.get_obj_ids(h5f.OBJ_ALL, h5f.OBJ_FILE)
    # Every handle of a file counts all objects in it.
    distinct = files if len(files) == 1 else {one.name: one for one in files}.values()
    # Objects keep a file open whose own handle is closed; usually there are none such.
    if sum(h5f.get_obj_count(one, kinds) for one in distinct) != n_objects:
        objects = h5f.get_obj_ids(h5f.OBJ_ALL, kinds)
        files = [h5py.h5i.get_file_id(one) for one in objects]
    return any(_may_write(one, version) for one in files)


def _may_write(handle: h5py.h5f.FileID, version: Version) -> bool:
    import h5py  # noqa: PLC0415

    if not handle.get_intent() & h5py.h5f.ACC_RDWR:
        return False
    if handle.get_access_plist().get_driver() != h5py.h5fd.SEC2:
        return True  # several files, or memory: no telling which
    found = os.fstat(handle.get_vfd_handle())
    return (found.st_dev, found.st_ino) == version[:2]


def _renew_lock() -> None:
    """Give a child of fork a lock that no thread of its parent holds."""
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)
atexit.register(_files.clear)
