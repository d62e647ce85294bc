"""Description of a replica, read from its file.

docs/reference/replica-format.md describes the file.
"""

from __future__ import annotations

import json
import os
import posixpath
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sds import _native
from sds.errors import FormatError, FormatVersionError, SdsError, UnsupportedError
from sds.geometry import MAX_TILES, Box, SegmentList, check_order
from sds.geometry.replica_layout import Filter, ReplicaLayout, SortOrder, check_region
from sds.hdf5 import row_numbers
from sds.hdf5.identity import FileIdentity, identity_of
from sds.hdf5.trailer import FIRST_FORMAT, FORMAT, SEGMENTS, TILES, stored_array

if TYPE_CHECKING:
    import h5py

    from sds.hdf5.dataset import DatasetDescription

FORMAT_VERSION = 5
"""Format of new replicas, but for sorted ones."""
_NEWEST_FORMAT = row_numbers.FIRST_FORMAT
"""Newest known format: that of new sorted replicas."""
_SEGMENTS_FORMAT_VERSION = 4
"""Format of older replicas of segments, and of no others."""

SOURCE = "sds_source"
SOURCE_IDENTITY = "sds_source_identity"
DATASET = "sds_dataset"
ORDER = "sds_order"
SOURCE_EXTENT = "sds_source_extent"
REGION_START = "sds_region_start"
FILTERS = "sds_filters"
DECODE_S_PER_BYTE = "sds_decode_s_per_byte"
SOURCE_CHUNKS = "sds_source_chunks"
SOURCE_STORED_BYTES = "sds_source_stored_bytes"
SOURCE_DECODE_S_PER_BYTE = "sds_source_decode_s_per_byte"
PLAN = "sds_plan"
VERSION = "sds_version"
CREATED = "sds_created"
BUILD_SECONDS = "sds_build_s"
BLOCK_BYTES = "sds_block_bytes"
LEFT_OUT = "sds_left_out"
TILE_SHAPE = "sds_tile_shape"
SORT_KEY = "sds_sort_key"
SORT_COLUMNS = "sds_sort_columns"
SORT_BLOCK_ROWS = "sds_sort_block_rows"
SORT_NAN_ROWS = "sds_sort_nan_rows"
SORT_DECODE_S_PER_BYTE = "sds_sort_decode_s_per_byte"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """A reorganized copy of one dataset, or of a box of it.

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
        Of the whole source, in elements.
    region
        What of the source the replica holds, in the axes of the source.
    chunk_shape
        In the axes of the replica; None where it is contiguous.
    filters
        Of the chunks, as requested; Fletcher-32 comes last in any case.
    element_size_bytes, type_crc32c
        Of the type in the file, which source and replica share
        (:func:`sds.hdf5.type_digest.type_crc32c`); None for a type that is never redirected.
    data_offset_bytes
        Where the elements of a contiguous replica lie in the file; 0 where it is chunked.
    size_bytes
        Of its elements, decoded.
    stored_bytes
        What the file spends on them.
    decode_s_per_byte
        Time to undo the filters, per byte that comes out; 0 where there are none.
    source_chunk_shape, source_stored_bytes, source_decode_s_per_byte
        The same of the source, in its own axes, as it was when it was copied; unknown (None, 0, 0)
        for a replica of format 1.
    identity
        Of the replica file; it changes when the file is renamed into place.
    metadata_crc32c
        Of every byte of the file outside the elements; 0 where it is chunked, or where there are
        more of them than are checked before a replica serves.
    block_size_bytes
        Bytes per checksum in the file: of the elements, or of the whole file where it is chunked.
    created
        Time of the build, ISO 8601, UTC.
    sds_version
        The SDS that built it.
    build_s
        Seconds that the copy took, verification not included.
    left_out
        Attributes and dimension scales of the source that the replica does not carry.
    sort
        Of a table whose rows are sorted, else None. Its elements are then rows, `size_bytes` is
        that of columns and row numbers, and what is said of the stored type and place of one
        dataset is empty.
    segments
        The tiles that it holds, else None. Its region is then the box around them, and
        `size_bytes` counts what tiles that are cut off leave empty.
    """

    path: Path
    dataset_path: str
    source_path: Path
    source_identity: FileIdentity
    order: tuple[int, ...]
    extent: tuple[int, ...]
    region: Box
    chunk_shape: tuple[int, ...] | None
    filters: tuple[Filter, ...]
    element_size_bytes: int
    type_crc32c: int | None
    data_offset_bytes: int
    size_bytes: int
    stored_bytes: int
    decode_s_per_byte: float
    source_chunk_shape: tuple[int, ...] | None
    source_stored_bytes: int
    source_decode_s_per_byte: float
    identity: FileIdentity
    metadata_crc32c: int
    block_size_bytes: int
    created: str
    sds_version: str
    build_s: float
    left_out: tuple[str, ...]
    sort: SortOrder | None = None
    segments: SegmentList | None = None

    @property
    def layout(self) -> ReplicaLayout:
        """The layout, which differs between replicas of one dataset."""
        return ReplicaLayout(
            order=self.order,
            chunk_shape=self.chunk_shape,
            filters=self.filters,
            region=self.region,
            sort=self.sort,
            segments=self.segments,
        )

    @property
    def metadata_bytes(self) -> int:
        """Bytes of the file of a contiguous replica besides its elements."""
        return self.identity.size_bytes - self.size_bytes

    @property
    def replica_extent(self) -> tuple[int, ...]:
        """Elements per axis of the replica."""
        return self.layout.replica_extent


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
    from sds.hdf5.dataset import open_hdf5  # noqa: PLC0415

    with open_hdf5(path) as handle:
        try:
            _check_format(path, handle)
            if SORT_KEY in handle.attrs:
                return _describe_sorted(path, handle)
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
    if version > _NEWEST_FORMAT:
        message = (
            f"{path} was written in replica format {version}; this SDS knows formats up to "
            f"{_NEWEST_FORMAT}: update SDS"
        )
        raise FormatVersionError(message)
    holds_tiles = TILE_SHAPE in handle.attrs
    if version < FIRST_FORMAT and (version == _SEGMENTS_FORMAT_VERSION) != holds_tiles:
        message = (
            f"{path} is a damaged SDS replica (format {version}, {TILE_SHAPE} present or not "
            "against it): remove it and build it again"
        )
        raise FormatError(message)


def stored_plan(path: Path) -> str | None:
    """Return the plan, as JSON, that a file at any stage was made for; None if it cannot say."""
    import h5py  # noqa: PLC0415

    try:
        with h5py.File(path, "r", locking=False) as handle:
            return _text(handle.attrs[PLAN])
    except (OSError, RuntimeError, KeyError, TypeError):
        return None


def _describe(path: Path, handle: h5py.File) -> Replica:
    """Return the description of an open replica."""
    from sds.hdf5.dataset import describe_open_dataset, get_dataset  # noqa: PLC0415
    from sds.organizer.replica_file.block_checksums import metadata_checksum  # noqa: PLC0415

    attributes = handle.attrs
    dataset = get_dataset(handle, _text(attributes[DATASET]))
    described = describe_open_dataset(dataset, path)
    if TILE_SHAPE in attributes:
        layout, extent = _layout_of_segments(described, handle)
    else:
        layout, extent = _layout(described, attributes)
    metadata_crc32c = 0
    n_bytes = identity_of(path).size_bytes - described.size_bytes
    if layout.chunk_shape is None and n_bytes <= _native.MAX_METADATA_BYTES:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            metadata_crc32c = metadata_checksum(
                descriptor,
                data_offset_bytes=described.data_offset_bytes or 0,
                size_bytes=described.size_bytes,
            )
        finally:
            os.close(descriptor)
    first_format = int(attributes[FORMAT]) == 1
    source_chunks = () if first_format else tuple(int(n) for n in attributes[SOURCE_CHUNKS])
    return Replica(
        **_common_fields(path, attributes),
        dataset_path=described.path,
        order=layout.order,
        extent=extent,
        region=layout.region,
        chunk_shape=layout.chunk_shape,
        filters=layout.filters,
        element_size_bytes=described.element_size_bytes,
        type_crc32c=_type_checksum(dataset),
        data_offset_bytes=described.data_offset_bytes or 0,
        size_bytes=described.size_bytes,
        stored_bytes=described.stored_bytes,
        decode_s_per_byte=0.0 if first_format else float(attributes[DECODE_S_PER_BYTE]),
        source_chunk_shape=source_chunks or None,
        source_stored_bytes=0 if first_format else int(attributes[SOURCE_STORED_BYTES]),
        source_decode_s_per_byte=(
            0.0 if first_format else float(attributes[SOURCE_DECODE_S_PER_BYTE])
        ),
        metadata_crc32c=metadata_crc32c,
        segments=layout.segments,
    )


def _common_fields(path: Path, attributes: h5py.AttributeManager) -> dict[str, Any]:
    """Return the fields of a `Replica` that replicas of all kinds store alike."""
    # Replicas of older releases have no instance.
    inode, size_bytes, mtime_ns, ctime_ns, *instance = (int(n) for n in attributes[SOURCE_IDENTITY])
    return {
        "path": path,
        "source_path": Path(_text(attributes[SOURCE])),
        "source_identity": FileIdentity(
            inode=inode,
            size_bytes=size_bytes,
            mtime_ns=mtime_ns,
            ctime_ns=ctime_ns,
            instance=instance[0] if instance else 0,
        ),
        "identity": identity_of(path),
        "block_size_bytes": int(attributes[BLOCK_BYTES]),
        "created": _text(attributes[CREATED]),
        "sds_version": _text(attributes[VERSION]),
        "build_s": float(attributes[BUILD_SECONDS]),
        "left_out": tuple(json.loads(_text(attributes[LEFT_OUT]))),
    }


def _describe_sorted(path: Path, handle: h5py.File) -> Replica:
    """Return the description of an open replica of a table.

    Raises
    ------
    ValueError, KeyError, SdsError
        If the attributes contradict what the file holds.
    """
    attributes = handle.attrs
    table_path = _text(attributes[DATASET])
    sort = SortOrder(
        key=_text(attributes[SORT_KEY]),
        columns=tuple(_text(name) for name in attributes[SORT_COLUMNS]),
    )
    extent = tuple(int(n) for n in attributes[SOURCE_EXTENT])
    columns = [handle[posixpath.join(table_path, name)] for name in sort.columns]
    if any(column.shape != extent for column in columns):
        message = f"the columns of {table_path} are not {extent} rows long"
        raise ValueError(message)
    numbers = row_numbers.RowNumbers(handle, extent[0])
    size_bytes = numbers.size_bytes + sum(column.id.get_storage_size() for column in columns)
    return Replica(
        **_common_fields(path, attributes),
        dataset_path=table_path,
        order=(0,),
        extent=extent,
        region=Box.whole(extent),
        chunk_shape=None,
        filters=(),
        element_size_bytes=size_bytes // extent[0],
        type_crc32c=None,
        data_offset_bytes=0,
        size_bytes=size_bytes,
        stored_bytes=size_bytes,
        decode_s_per_byte=0.0,
        source_chunk_shape=tuple(int(n) for n in attributes[SOURCE_CHUNKS]) or None,
        source_stored_bytes=int(attributes[SOURCE_STORED_BYTES]),
        source_decode_s_per_byte=0.0,
        metadata_crc32c=0,
        sort=sort,
    )


def _layout(
    described: DatasetDescription, attributes: h5py.AttributeManager
) -> tuple[ReplicaLayout, tuple[int, ...]]:
    """Return the layout of a replica's dataset, and the extent of its source.

    Raises
    ------
    ValueError, SdsError
        If the attributes contradict the dataset.
    """
    order = tuple(int(axis) for axis in attributes[ORDER])
    stored = described.data_offset_bytes is not None or described.chunk_shape is not None
    if not stored or sorted(order) != list(range(len(described.extent))):
        message = f"dataset {described.path} is not stored as order {order} says"
        raise ValueError(message)
    held = [0] * len(order)
    for axis, elements in zip(order, described.extent, strict=True):
        held[axis] = elements
    filters: tuple[Filter, ...] = ()
    if int(attributes[FORMAT]) == 1:
        extent = tuple(held)
        region = Box.whole(extent)
    else:
        extent = tuple(int(n) for n in attributes[SOURCE_EXTENT])
        start = tuple(int(n) for n in attributes[REGION_START])
        region = Box(start=start, extent=tuple(held))
        filters = tuple(
            Filter(code=int(code), name=str(name), options=tuple(map(int, options)))
            for code, name, options in json.loads(_text(attributes[FILTERS]))
        )
    check_region(region, extent)
    layout = ReplicaLayout(
        order=order, chunk_shape=described.chunk_shape, filters=filters, region=region
    )
    return layout, extent


def _layout_of_segments(
    described: DatasetDescription, handle: h5py.File
) -> tuple[ReplicaLayout, tuple[int, ...]]:
    """Return the layout of a replica of segments, and the extent of its source.

    Raises
    ------
    ValueError, KeyError, SdsError
        If the attributes contradict the dataset, or each other.
    """
    attributes = handle.attrs
    order = tuple(int(axis) for axis in attributes[ORDER])
    extent = tuple(int(n) for n in attributes[SOURCE_EXTENT])
    segments = SegmentList(
        tile_shape=tuple(int(n) for n in attributes[TILE_SHAPE]),
        tiles=_numbers(handle, TILES),
        lengths=_numbers(handle, SEGMENTS),
    )
    check_order(order, len(extent))
    segments.check_within(extent)
    region = segments.around(extent)
    layout = ReplicaLayout(
        order=order, chunk_shape=None, filters=(), region=region, segments=segments
    )
    start = tuple(int(n) for n in attributes[REGION_START])
    if described.data_offset_bytes is None or start != region.start:
        message = f"dataset {described.path} is not stored as tiles, or not those of its region"
        raise ValueError(message)
    if described.extent != layout.replica_extent:
        message = f"dataset {described.path} has extent {described.extent}, not that of its tiles"
        raise ValueError(message)
    return layout, extent


def _numbers(handle: h5py.File, name: str) -> tuple[int, ...]:
    """Return a list of tiles or lengths; ValueError for one that is too long."""
    _, numbers = stored_array(handle, name, "<i8")
    if len(numbers) > MAX_TILES:
        message = f"it lists {len(numbers)} {name}; replicas have at most {MAX_TILES}"
        raise ValueError(message)
    return tuple(numbers.tolist())


def _type_checksum(dataset: h5py.Dataset) -> int | None:
    """Return the checksum of a stored type; None for one that is never redirected."""
    from sds.hdf5.type_digest import type_crc32c  # noqa: PLC0415

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
