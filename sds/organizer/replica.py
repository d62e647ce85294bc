"""A replica and what its file says of itself.

docs/reference/replica-format.md describes the file.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sds.errors import FormatError, FormatVersionError, SdsError, UnsupportedError
from sds.identity import FileIdentity, identity_of

if TYPE_CHECKING:
    import h5py

FORMAT_VERSION = 1

SOURCE = "sds_source"
SOURCE_IDENTITY = "sds_source_identity"
DATASET = "sds_dataset"
ORDER = "sds_order"
PLAN = "sds_plan"
VERSION = "sds_version"
FORMAT = "sds_format"
CREATED = "sds_created"
BUILD_SECONDS = "sds_build_s"
BLOCK_BYTES = "sds_block_bytes"
LEFT_OUT = "sds_left_out"
CHECKSUMS_PATH = "/sds_checksums"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """A reorganized copy of one dataset.

    Attributes
    ----------
    path
        The HDF5 file.
    dataset_path
        The same HDF5 path in source and replica.
    source_path, source_identity
        The original as it was when it was copied.
    order
        Replica axis i is source axis ``order[i]``.
    extent
        Of the source, in elements.
    element_size_bytes, type_crc32c
        Of the type in the file, which source and replica share
        (:func:`sds.redirect.type_digest.type_crc32c`); None for a type that is never redirected.
    data_offset_bytes, size_bytes
        Where the elements lie in the file.
    identity
        Of the replica file; it changes when the file is renamed into place.
    metadata_crc32c
        Of every byte of the file outside the elements.
    block_size_bytes
        Each block of so many bytes of elements has its own checksum in the file.
    created
        Time of the build, ISO 8601, UTC.
    sds_version
        The SDS that built it.
    build_s
        Seconds that the copy took, verification not included.
    left_out
        Attributes and dimension scales of the source that the replica does not carry.
    """

    path: Path
    dataset_path: str
    source_path: Path
    source_identity: FileIdentity
    order: tuple[int, ...]
    extent: tuple[int, ...]
    element_size_bytes: int
    type_crc32c: int | None
    data_offset_bytes: int
    size_bytes: int
    identity: FileIdentity
    metadata_crc32c: int
    block_size_bytes: int
    created: str
    sds_version: str
    build_s: float
    left_out: tuple[str, ...]

    @property
    def replica_extent(self) -> tuple[int, ...]:
        """Elements per axis of the replica."""
        return tuple(self.extent[axis] for axis in self.order)


def describe_replica(path: Path) -> Replica:
    """Return what a replica file says of itself; the elements are not read.

    Raises
    ------
    FileMissingError, PermissionDeniedError, NotHdf5Error, TruncatedFileError, FormatError
        If it cannot be opened.
    FormatError
        If it is no replica, or damaged.
    FormatVersionError
        If a newer SDS wrote it.
    """
    from sds.dataset import open_hdf5  # noqa: PLC0415

    with open_hdf5(path) as handle:
        try:
            _check_format(path, handle)
            return _describe(path, handle)
        except FormatError:
            raise
        # What h5py raises for damaged metadata, and what damaged attributes lead to.
        except (SdsError, KeyError, TypeError, ValueError, RuntimeError, OSError) as error:
            message = f"{path} is a damaged SDS replica ({error}): remove it and build it again"
            raise FormatError(message) from error


def _check_format(path: Path, handle: h5py.File) -> None:
    """Raise FormatError unless an open file is a replica of a format that this SDS knows."""
    if FORMAT not in handle.attrs:
        message = f"{path} is no SDS replica: it has no attribute {FORMAT}"
        raise FormatError(message)
    version = int(handle.attrs[FORMAT])
    if version > FORMAT_VERSION:
        message = (
            f"{path} was written in replica format {version}; this SDS knows formats up to "
            f"{FORMAT_VERSION}: update SDS"
        )
        raise FormatVersionError(message)


def stored_plan(path: Path) -> str | None:
    """Return the plan, as JSON, that a file at any stage was made for; None if it cannot say."""
    import h5py  # noqa: PLC0415

    try:
        with h5py.File(path, "r", locking=False) as handle:
            return _text(handle.attrs[PLAN])
    except (OSError, RuntimeError, KeyError, TypeError):
        return None


def checksums_offset_bytes(handle: h5py.File) -> int:
    """Return where the stored checksums lie in an open replica."""
    return int(handle[CHECKSUMS_PATH].id.get_offset())


def _describe(path: Path, handle: h5py.File) -> Replica:
    """Return the description of an open replica."""
    from sds.dataset import describe_open_dataset, get_dataset  # noqa: PLC0415
    from sds.organizer.blocks import metadata_checksum  # noqa: PLC0415

    attributes = handle.attrs
    dataset = get_dataset(handle, _text(attributes[DATASET]))
    described = describe_open_dataset(dataset, path)
    order = tuple(int(axis) for axis in attributes[ORDER])
    if described.data_offset_bytes is None or sorted(order) != list(range(len(described.extent))):
        message = f"dataset {described.path} is not stored as order {order} says"
        raise ValueError(message)
    extent = [0] * len(order)
    for axis, elements in zip(order, described.extent, strict=True):
        extent[axis] = elements
    inode, size_bytes, mtime_ns, ctime_ns = (int(n) for n in attributes[SOURCE_IDENTITY])
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        metadata_crc32c = metadata_checksum(
            descriptor,
            data_offset_bytes=described.data_offset_bytes,
            size_bytes=described.size_bytes,
        )
    finally:
        os.close(descriptor)
    return Replica(
        path=path,
        dataset_path=described.path,
        source_path=Path(_text(attributes[SOURCE])),
        source_identity=FileIdentity(
            inode=inode, size_bytes=size_bytes, mtime_ns=mtime_ns, ctime_ns=ctime_ns
        ),
        order=order,
        extent=tuple(extent),
        element_size_bytes=described.element_size_bytes,
        type_crc32c=_type_checksum(dataset),
        data_offset_bytes=described.data_offset_bytes,
        size_bytes=described.size_bytes,
        identity=identity_of(path),
        metadata_crc32c=metadata_crc32c,
        block_size_bytes=int(attributes[BLOCK_BYTES]),
        created=_text(attributes[CREATED]),
        sds_version=_text(attributes[VERSION]),
        build_s=float(attributes[BUILD_SECONDS]),
        left_out=tuple(json.loads(_text(attributes[LEFT_OUT]))),
    )


def _type_checksum(dataset: h5py.Dataset) -> int | None:
    """Return the checksum of a stored type; None for one that is never redirected."""
    from sds.redirect.type_digest import type_crc32c  # noqa: PLC0415

    try:
        return type_crc32c(dataset.id.get_type())
    except UnsupportedError:
        return None


def _text(attribute: str | bytes) -> str:
    """Return a string attribute; bytes are a name that is not UTF-8."""
    return os.fsdecode(attribute)


def stored_path(path: Path) -> str | bytes:
    """Return a path as an attribute can hold it: text, or bytes where it is not UTF-8."""
    encoded = os.fsencode(path)
    try:
        return encoded.decode("utf-8")
    except UnicodeDecodeError:
        return encoded
