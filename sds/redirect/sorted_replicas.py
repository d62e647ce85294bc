"""List of the sorted replicas of a file, for :func:`sds.query`.

One small JSON file per source in ``SDS_HOME/sorted``, replaced whole. The connector knows nothing
of these: a sorted replica serves no H5Dread.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sds.atomic_file import replace_whole
from sds.errors import FormatError, FormatVersionError, PermissionDeniedError
from sds.hdf5.identity import FileIdentity, is_same_source
from sds.home import make_private
from sds.redirect.tables import table_path
from sds.redirect.write_permissions import check_trusted

if TYPE_CHECKING:
    from sds.home import Home

_FORMAT = 1
_MAX_BYTES = 16 << 20  # a larger file is no such file


@dataclass(frozen=True, slots=True, kw_only=True)
class SortedReplica:
    """A replica of a table.

    Attributes
    ----------
    path, identity
        The file; another identity is another file.
    table
        HDF5 path of the table.
    key, columns
        By which its rows are ordered, and what it holds of them.
    """

    path: Path
    identity: FileIdentity
    table: str
    key: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SortedReplicas:
    """Sorted replicas of one source file.

    Attributes
    ----------
    source_path, source_identity
        The file; where that has another identity, none of them is of use.
    """

    source_path: Path
    source_identity: FileIdentity
    replicas: tuple[SortedReplica, ...]


def sorted_path(home: Home, source: str | os.PathLike[str]) -> Path:
    """Return where the list of a source is, whether there is one or not; links are followed."""
    return home.sorted / table_path(home, source).with_suffix(".json").name


def publish_sorted(home: Home, found: SortedReplicas) -> None:
    """Put the list of a source in place at once and whole; without replicas, remove it.

    Raises
    ------
    PermissionDeniedError
        If the directory may not be written.
    OSError
        If the disk is full or fails; the old list is then still in place.
    """
    import json  # noqa: PLC0415

    path = sorted_path(home, found.source_path)
    try:
        if not found.replicas:
            withdraw_sorted(home, found.source_path)
            return
        make_private(path.parent)
        fields = {"format": _FORMAT, **asdict(found), "source_path": _hex(found.source_path)}
        for entry in fields["replicas"]:
            entry["path"] = _hex(entry["path"])
        replace_whole(path, json.dumps(fields).encode())
    except PermissionError as error:
        message = f"cannot write {path}: permission denied; set SDS_HOME to a directory of yours"
        raise PermissionDeniedError(message) from error


def withdraw_sorted(home: Home, source: str | os.PathLike[str]) -> None:
    """Remove the list of a source, where there is one."""
    sorted_path(home, source).unlink(missing_ok=True)


def find_sorted(home: Home, source: Path, found: os.stat_result) -> tuple[SortedReplica, ...]:
    """Return the sorted replicas that are of a source as it is now.

    Parameters
    ----------
    source
        Its canonical path.
    found
        What stat(2) says of it.

    Raises
    ------
    OSError
        If the list cannot be read, or belongs to someone who is not trusted.
    FormatError
        If it is damaged or of another version.
    """
    path = sorted_path(home, source)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return ()
    try:
        check_trusted(path, os.fstat(descriptor), found.st_uid)
        content = os.pread(descriptor, _MAX_BYTES, 0)
    finally:
        os.close(descriptor)
    listed = _parse(path, content)
    if listed.source_path != source or not is_same_source(listed.source_identity, found, source):
        return ()
    return listed.replicas


def _parse(path: Path, content: bytes) -> SortedReplicas:
    import json  # noqa: PLC0415

    try:
        fields: dict[str, Any] = json.loads(content)
        _check_format(path, fields["format"])
        return SortedReplicas(
            source_path=_from_hex(fields["source_path"]),
            source_identity=FileIdentity(**fields["source_identity"]),
            replicas=tuple(
                SortedReplica(
                    path=_from_hex(entry["path"]),
                    identity=FileIdentity(**entry["identity"]),
                    table=str(entry["table"]),
                    key=str(entry["key"]),
                    columns=tuple(map(str, entry["columns"])),
                )
                for entry in fields["replicas"]
            ),
        )
    except FormatVersionError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"{path} is damaged ({error}); any sds reorganize writes it again"
        raise FormatError(message) from error


def _check_format(path: Path, version: object) -> None:
    if version != _FORMAT:
        message = f"{path} is of version {version}; this SDS knows {_FORMAT}: update SDS"
        raise FormatVersionError(message)


def _hex(path: Path) -> str:
    """Return a path as text, whatever bytes it is made of."""
    return os.fsencode(path).hex()


def _from_hex(text: str) -> Path:
    return Path(os.fsdecode(bytes.fromhex(text)))
