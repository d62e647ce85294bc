"""Journal of a build under way: a kill at any time leaves nothing half-made.

A journal is a file of JSON lines under ``SDS_HOME/replicas/.building``: first the plan and the name
of the staged file, then how far the build came. The process that builds holds a lock on it; the
kernel lets go of the lock when that process ends, however it ends. So a journal without a lock is
what a killed build left behind, and says what to continue or remove.

What a step overwrites of earlier ones (HDF5 keeps changing what leads to the chunks) would be lost
with a kill. So a step may be noted with the bytes that later ones may overwrite; they lie in a file
of their own beside the journal, and are put back before the build goes on.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import logging
import os
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sds import _native
from sds.atomic_file import sync_directory
from sds.errors import BusyError, SdsError, UnreachableError
from sds.hdf5.identity import FileIdentity, identity_of
from sds.mounts import look_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sds.home import Home
    from sds.organizer.progress import AnyPlan

log = logging.getLogger(__name__)

KEEP_S = 7 * 86400.0
_VERSION = 1
_PATIENCE_S = 0.2
_RANKS_END_S = 10.0
NO_LOCKS = frozenset({errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP})
"""Errors of a lock on a file system that has none, as Lustre mounted without ``flock``."""
_PART_BYTES = 1 << 20


def journal_directory(home: Home) -> Path:
    """Return where the journals of a home lie."""
    return home.replicas / ".building"


def plan_digest(plan: AnyPlan) -> str:
    """Return 32 hex digits that are the same for the same plan, source identity included.

    Whether one process or several carry it out does not matter, nor the space that they need.
    """
    fields = plan.to_json()
    del fields["space_needed_bytes"]
    text = json.dumps(fields, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def staged_name(digest: str) -> str:
    """Return the name of the file in which the plan of that digest is built."""
    return f".sds-{digest}.partial"


class Journal:
    """The notes of one build; its checkpoint, too."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._lines, whole_bytes = _read_lines(descriptor)
        os.ftruncate(descriptor, whole_bytes)  # what a kill cut off must not join the next line

    @property
    def staged(self) -> Path | None:
        """The file that the build writes; None before that is known."""
        name = self._lines[0].get("staged") if self._lines else None
        if not isinstance(name, str):
            return None
        path = Path(os.fsdecode(bytes.fromhex(name)))
        return path if path.name == staged_name(self.path.stem) else None

    @property
    def output(self) -> Path | None:
        """Path intended for the replica; None before a plan is noted."""
        plan = self._lines[0].get("plan") if self._lines else None
        return Path(str(plan["output"])) if isinstance(plan, dict) else None

    @property
    def steps_done(self) -> int:
        """Steps whose bytes are on disk."""
        done = 0
        for line in self._lines:
            steps = line.get("steps_done")
            if isinstance(steps, int):
                done = steps
        return done

    def begin(self, plan: AnyPlan, staged: Path) -> None:
        """Begin anew: forget what was noted, note the plan and the name of the staged file."""
        os.ftruncate(self._descriptor, 0)
        for undo in self._undo_files():
            undo.unlink()
        self._lines = []
        self._append(
            {
                "version": _VERSION,
                "plan": plan.to_json(),
                "staged": os.fsencode(staged).hex(),  # a name may not be text
                "process": os.getpid(),
            }
        )
        sync_directory(self.path.parent)

    def created(self) -> None:
        """Note which file the staged one is."""
        staged = self.staged
        if staged is not None:
            self._append({"inode": identity_of(staged).inode})

    def reached(
        self, steps_done: int, *, overwritable: Sequence[tuple[int, int | None]] = ()
    ) -> None:
        """Record that `steps_done` steps are on disk, and bytes that later ones may overwrite."""
        staged = self.staged
        if not overwritable or staged is None:
            self._append({"steps_done": steps_done})
            return
        name = f"{self.path.stem}-{steps_done}.undo"
        size_bytes, ranges, crc32c = _save_ranges(staged, self.path.with_name(name), overwritable)
        sync_directory(self.path.parent)
        self._append(
            {
                "steps_done": steps_done,
                "undo": {
                    "file": name,
                    "size_bytes": size_bytes,
                    "ranges": ranges,
                    "crc32c": crc32c,
                },
            }
        )
        for earlier in self._undo_files():
            if earlier.name != name:
                earlier.unlink()

    def _undo_files(self) -> list[Path]:
        return sorted(self.path.parent.glob(f"{self.path.stem}-*.undo"))

    def roll_back(self) -> bool:
        """Give the staged file the bytes that it had when the last step was noted.

        Returns
        -------
        False where that cannot be done: the build begins anew.
        """
        staged = self.staged
        noted = next((line for line in reversed(self._lines) if "steps_done" in line), None)
        if staged is None or noted is None:
            return False
        undo = noted.get("undo")
        return undo is None or _put_back(staged, self.path.parent, undo)

    def can_continue(self, plan: AnyPlan) -> bool:
        """Return whether the staged file is the one of this very plan, with steps done."""
        staged = self.staged
        if staged is None or self.steps_done == 0 or self._lines[0].get("version") != _VERSION:
            return False
        noted = json.loads(json.dumps(plan.to_json()))
        inodes = [line["inode"] for line in self._lines if "inode" in line]
        try:
            return self._lines[0]["plan"] == noted and inodes == [identity_of(staged).inode]
        except SdsError:
            return False

    def is_obsolete(self, *, keep_s: float) -> bool:
        """Return whether no one can continue: source changed or gone, or too long ago."""
        if not self._lines or self.steps_done == 0:
            return True
        if time.time() - os.fstat(self._descriptor).st_mtime > keep_s:
            return True
        plan = self._lines[0]["plan"]
        try:
            noted = FileIdentity(**plan["source_identity"])
            source = plan["source_path"]
            return bool(noted.difference(look_at(source, lambda: identity_of(source))))
        except UnreachableError:
            return False
        except (SdsError, TypeError):
            return True
        except OSError:  # of its disk or server
            return False

    def discard(self) -> tuple[Path, ...]:
        """Remove the staged file, then the journal; return what was removed."""
        removed = []
        staged = self.staged
        if staged is not None and staged.exists():
            staged.unlink()
            sync_directory(staged.parent)
            removed.append(staged)
        for undo in self._undo_files():
            undo.unlink()
            removed.append(undo)
        self.path.unlink()
        sync_directory(self.path.parent)
        return (*removed, self.path)

    def _append(self, line: dict[str, object]) -> None:
        os.pwrite(
            self._descriptor,
            json.dumps(line).encode() + b"\n",
            os.fstat(self._descriptor).st_size,
        )
        os.fsync(self._descriptor)
        self._lines.append(line)


def _save_ranges(
    staged: Path, undo: Path, ranges: Sequence[tuple[int, int | None]]
) -> tuple[int, list[list[int]], int]:
    """Copy parts of a file into another, durably.

    Returns
    -------
    size_bytes, ranges, crc32c
        Of the file; first byte and length of each part; of all copied bytes.
    """
    crc32c = 0
    saved = []
    private = partial(os.open, mode=0o600)
    with (
        staged.open("rb", buffering=0) as source,
        open(undo, "wb", buffering=0, opener=private) as target,
    ):
        size_bytes = os.fstat(source.fileno()).st_size
        for first, end in ranges:
            length = (size_bytes if end is None else end) - first
            for part in _parts(source.fileno(), first, length):
                crc32c = _native.crc32c(part, crc32c)
                _write_all(target.fileno(), part, None)
            saved.append([first, length])
        os.fsync(target.fileno())
    return size_bytes, saved, crc32c


def _put_back(staged: Path, directory: Path, undo: dict[str, Any]) -> bool:
    """Write what :func:`_save_ranges` saved to where it was; False where it is damaged."""
    try:
        path = directory / Path(str(undo["file"])).name
        size_bytes = int(undo["size_bytes"])
        ranges = [(int(first), int(length)) for first, length in undo["ranges"]]
        noted_crc32c = int(undo["crc32c"])
        if sum(length for _, length in ranges) != path.stat().st_size:
            return False
    except (KeyError, TypeError, ValueError, FileNotFoundError):
        return False
    with path.open("rb", buffering=0) as source, staged.open("r+b", buffering=0) as target:
        crc32c = 0
        for part in _parts(source.fileno(), 0, os.fstat(source.fileno()).st_size):
            crc32c = _native.crc32c(part, crc32c)
        if crc32c != noted_crc32c or os.fstat(target.fileno()).st_size < size_bytes:
            return False
        at = 0
        for first, length in ranges:
            done = 0
            for part in _parts(source.fileno(), at, length):
                _write_all(target.fileno(), part, first + done)
                done += len(part)
            at += length
        os.ftruncate(target.fileno(), size_bytes)
        os.fsync(target.fileno())
    return True


def _parts(descriptor: int, first: int, length: int) -> Iterator[bytes]:
    """Yield the bytes of a range of a file, piece by piece; a file that ends yields fewer."""
    done = 0
    while done < length:
        part = os.pread(descriptor, min(_PART_BYTES, length - done), first + done)
        if not part:
            return
        yield part
        done += len(part)


def _write_all(descriptor: int, part: bytes, offset_bytes: int | None) -> None:
    """Write bytes at an offset, or where the file stands."""
    done = 0
    while done < len(part):
        if offset_bytes is None:
            done += os.write(descriptor, part[done:])
        else:
            done += os.pwrite(descriptor, part[done:], offset_bytes + done)


def _read_lines(descriptor: int) -> tuple[list[dict[str, Any]], int]:
    """Return the lines of a journal up to the first that a kill cut off, and their bytes."""
    content = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    lines: list[dict[str, Any]] = []
    n_bytes = 0
    for text in content.split(b"\n")[:-1]:
        try:
            line = json.loads(text)
        except ValueError:
            break
        if not isinstance(line, dict):
            break
        lines.append(line)
        n_bytes += len(text) + 1
    return lines, n_bytes


@contextmanager
def open_journal(path: Path) -> Iterator[Journal]:
    """Open a journal, new or left behind, and hold its lock.

    Raises
    ------
    BusyError
        If a running process holds it.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _lock(descriptor, path)
            if not _is_same_file(descriptor, path):
                continue  # its holder removed it between our open and our lock
            yield Journal(path, descriptor)
        finally:
            os.close(descriptor)
        return


def require_unused(staged: Path) -> None:
    """Refuse a staged file that ranks of an earlier build still write: they end soon after it.

    Raises
    ------
    BusyError
        If they do not within a few seconds.
    """
    descriptor = os.open(staged, os.O_RDWR | os.O_CLOEXEC)  # as NFS wants for such a lock
    try:
        error = _try_to_lock(descriptor, _RANKS_END_S)
    except OSError as refused:
        if refused.errno not in NO_LOCKS:
            raise
        return
    finally:
        os.close(descriptor)
    if error is not None:
        message = f"ranks of an earlier build still write {staged}; end them, or wait"
        raise BusyError(message) from error


def _try_to_lock(descriptor: int, patience_s: float) -> OSError | None:
    """Lock a file; return the error where another process holds it for longer than a time."""
    patient_until = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in {errno.EWOULDBLOCK, errno.EACCES}:
                raise
            if time.monotonic() >= patient_until:
                return error
            time.sleep(0.02)
        else:
            return None


def _lock(descriptor: int, path: Path) -> None:
    """Lock a journal; a moment's patience, since `recover` holds each for a moment."""
    error = _try_to_lock(descriptor, _PATIENCE_S)
    if error is not None:
        lines, _ = _read_lines(descriptor)
        process = lines[0].get("process", "unknown") if lines else "unknown"
        message = (
            f"process {process} is building this replica now (journal {path}); "
            "wait until it has finished"
        )
        raise BusyError(message) from error


def _is_same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.fstat(descriptor).st_ino == path.stat().st_ino
    except FileNotFoundError:
        return False


def discard_builds_of(home: Home, output: Path) -> None:
    """Remove what builds of a replica, none of them under way, have left behind."""
    for path in sorted(journal_directory(home).glob("*.json")):
        try:
            with open_journal(path) as journal:
                if journal.output == output:
                    journal.discard()
        except BusyError:
            continue


def recover(home: Home, *, keep_s: float = KEEP_S) -> tuple[Path, ...]:
    """Remove what killed builds left behind and no one can or will continue.

    Left alone are builds under way, and those that can be continued: their source is unchanged
    and they are younger than `keep_s`. The next :func:`sds.organizer.build.reorganize` of the same
    plan continues them.

    Returns
    -------
    The files that were removed.
    """
    removed: list[Path] = []
    directory = journal_directory(home)
    if not directory.is_dir():
        return ()
    for path in sorted(directory.glob("*.json")):
        try:
            with open_journal(path) as journal:
                staged = journal.staged
                if staged is not None:
                    look_at(staged, staged.exists)
                if journal.is_obsolete(keep_s=keep_s):
                    removed.extend(journal.discard())
        except BusyError:
            continue
        except UnreachableError as error:
            log.warning("%s is left for later: %s", path, error)
    for undo in sorted(directory.glob("*.undo")):
        # Of a journal that is gone; a build under way has one.
        if not undo.with_name(f"{undo.name.partition('-')[0]}.json").exists():
            undo.unlink(missing_ok=True)
            removed.append(undo)
    return tuple(removed)
