"""The HDF5 file around the elements of a replica.

It is made before the elements are, with the attributes, dimension scales and fill value of the
source, and the provenance. A contiguous dataset is allocated early, at an aligned offset, and what
is written goes straight to its place in the file; chunks are given to HDF5. Times, and
behind the end of the HDF5 file the checksums and lists (:mod:`sds.hdf5.trailer`), come after.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import h5py
import numpy as np

import sds
from sds import _native
from sds.errors import UnsupportedError
from sds.hdf5.dataset import get_dataset
from sds.hdf5.trailer import CHECKSUMS, FORMAT, SEGMENTS, TILES, append_trailer, end_with_trailer
from sds.organizer.plans.segment_plan import SegmentPlan
from sds.organizer.replica_file import replica as names
from sds.organizer.replica_file.attributes import carry_attributes
from sds.organizer.replica_file.block_checksums import file_checksums, metadata_checksum, n_blocks
from sds.organizer.replica_file.dimension_scales import carry_scales, names_of_scales
from sds.organizer.replica_file.filters import format_filters

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from numpy.typing import NDArray

    from sds.organizer.plans.reorganization_plan import ReorganizationPlan
    from sds.organizer.progress import AnyPlan, DatasetPlan

PAGE_BYTES = 4096
# How far behind a page the elements of a contiguous replica begin. A copy to memory that lies 1 to
# 31 bytes further in its page than what is copied does in its own takes two to five times as long
# on processors of today: each load seems to be of what was stored just before. Large new arrays lie
# 16 bytes into a page (malloc), others at its begin: half a page is far from both. To memory that
# lies a multiple of 32 bytes further the kernel copies a tenth more slowly; memory lies at
# multiples of 16, so elements do not.
BEHIND_PAGE_BYTES = _native.REPLICA_SHIFT_BYTES
# Old enough for every HDF5 since 1.10, new enough for attributes above 64 KiB. No upper bound: a
# type of a newer file keeps its newer version.
_LIBVER = ("v108", "latest")
# From 1.10 on: every structure that leads to a chunk has a checksum.
CHUNKED_LIBVER = ("v110", "latest")
# Attributes that name an axis each: those of tiles are others.
_OF_AXES = frozenset({"_Netcdf4Coordinates"})
_OF_SCALES = _OF_AXES | {"_Netcdf4Dimid", "CLASS", "NAME"}


def open_source(path: Path) -> h5py.File:
    """Open an original for reading, without a lock: the program that owns it may want to write.

    Nothing is kept in memory, neither chunks nor what lies around a run: slabs that are read one
    after the other share none.
    """
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_file_locking(False, True)
    _, n_slots, _, preemption = access.get_cache()
    access.set_cache(0, n_slots, 0, preemption)
    access.set_sieve_buf_size(0)  # of 64 KiB, each read whole for a run of a few
    return h5py.File(h5py.h5f.open(os.fsencode(path), h5py.h5f.ACC_RDONLY, access))


def create_container(staged: Path, plan: DatasetPlan) -> None:
    """Make `staged` an HDF5 file that lacks nothing but the elements and what is known after them.

    Raises
    ------
    UnsupportedError
        If HDF5 does not store such elements with such filters.
    """
    chunked = plan.layout.chunk_shape is not None
    with (
        open_source(plan.source_path) as source,
        (_create_chunked if chunked else _create_contiguous)(staged, source, plan) as target,
    ):
        original = get_dataset(source, plan.dataset_path)
        copy = target[plan.dataset_path].id
        if isinstance(plan, SegmentPlan):
            without = _OF_SCALES if h5py.h5ds.is_scale(original.id) else _OF_AXES
            left_out = carry_attributes(original, copy, plan.order, without=without)
            left_out += names_of_scales(original)
            write_provenance(target, plan, left_out)
            target.attrs[names.TILE_SHAPE] = np.array(plan.segments.tile_shape, np.int64)
        else:
            left_out = carry_attributes(original, copy, plan.order)
            left_out += carry_scales(original, copy, plan)
            write_provenance(target, plan, left_out)


def _create_chunked(staged: Path, source: h5py.File, plan: DatasetPlan) -> h5py.File:
    """Create the file of a chunked replica, with its dataset."""
    target = h5py.File(staged, "w", libver=CHUNKED_LIBVER, locking=False)
    return _with_dataset(target, source, plan)


def _create_contiguous(staged: Path, source: h5py.File, plan: DatasetPlan) -> h5py.File:
    """Create the file of a contiguous replica, with its dataset where its elements are to begin."""
    *others, last = _intervals_bytes(plan.size_bytes)
    for interval in others:
        target = _create_aligned(staged, source, plan, interval)
        if target[plan.dataset_path].id.get_offset() % PAGE_BYTES == BEHIND_PAGE_BYTES:
            return target
        target.close()
    return _create_aligned(staged, source, plan, last)


def _intervals_bytes(size_bytes: int) -> tuple[int, ...]:
    """Return at multiples of what to place elements, in the order in which to try.

    Of an interval that is itself as far off a page, the first multiple is right, if what HDF5 has
    written by then, as a type of many members, fits in front of it.
    """
    if size_bytes < _native.REPLICA_LEAST_SHIFTED_BYTES:
        return (PAGE_BYTES,)
    return (*(pages * PAGE_BYTES + BEHIND_PAGE_BYTES for pages in (1, 7, 63)), PAGE_BYTES)


def _create_aligned(
    staged: Path, source: h5py.File, plan: DatasetPlan, interval_bytes: int
) -> h5py.File:
    target = h5py.File(
        staged,
        "w",
        libver=_LIBVER,
        locking=False,
        alignment_threshold=max(1, min(plan.size_bytes, 1 << 20)),
        alignment_interval=interval_bytes,
    )
    return _with_dataset(target, source, plan)


def _with_dataset(target: h5py.File, source: h5py.File, plan: DatasetPlan) -> h5py.File:
    """Return a new file with the dataset of a replica in it; closed where that fails."""
    try:
        _create_dataset(target, get_dataset(source, plan.dataset_path), plan)
    except BaseException:
        target.close()
        raise
    return target


def _block_bytes(plan: AnyPlan) -> int:
    return _native.block_bytes(plan.size_bytes)


def open_for_chunks(staged: Path) -> h5py.File:
    """Open the file of a chunked replica to write to it; no chunk is kept in memory."""
    return h5py.File(staged, "r+", libver=CHUNKED_LIBVER, locking=False, rdcc_nbytes=0)


def find_data_offset(staged: Path, plan: DatasetPlan) -> int:
    """Return where the elements begin in a file that :func:`create_container` made earlier."""
    with h5py.File(staged, "r", locking=False) as target:
        return int(target[plan.dataset_path].id.get_offset())


def finish_container(
    staged: Path,
    data_offset_bytes: int,
    plan: DatasetPlan,
    checksums: NDArray[np.uint32],
    *,
    build_s: float,
    source_decode_s_per_byte: float,
) -> None:
    """Write the times and the checksums of the elements and of all the rest.

    The first of the stored checksums is that of the metadata with its own four bytes zero.
    """
    # HDF5 cuts off what an earlier attempt has left behind its end.
    with h5py.File(staged, "r+", libver=_LIBVER, locking=False) as target:
        target.attrs.modify(names.BUILD_SECONDS, np.float64(build_s))
        target.attrs.modify(names.SOURCE_DECODE_S_PER_BYTE, np.float64(source_decode_s_per_byte))
    arrays = {CHECKSUMS: np.concatenate([np.zeros(1, np.uint32), checksums]).astype("<u4")}
    if isinstance(plan, SegmentPlan):
        arrays[TILES] = np.array(plan.segments.tiles, "<i8")
        arrays[SEGMENTS] = np.array(plan.segments.lengths, "<i8")
    with staged.open("r+b", buffering=0) as stream:
        descriptor = stream.fileno()
        at, _ = append_trailer(descriptor, arrays)[CHECKSUMS]
        crc = metadata_checksum(
            descriptor,
            data_offset_bytes=data_offset_bytes,
            size_bytes=plan.size_bytes,
            zeroed_offset_bytes=at,
        )
        os.pwrite(descriptor, crc.to_bytes(4, "little"), at)


def finish_chunked(
    staged: Path,
    plan: ReorganizationPlan,
    *,
    build_s: float,
    decode_s_per_byte: float,
    source_decode_s_per_byte: float,
) -> None:
    """Write the times, and the checksum of each block of the whole file."""
    with open_for_chunks(staged) as target:
        target.attrs.modify(names.BUILD_SECONDS, np.float64(build_s))
        target.attrs.modify(names.DECODE_S_PER_BYTE, np.float64(decode_s_per_byte))
        target.attrs.modify(names.SOURCE_DECODE_S_PER_BYTE, np.float64(source_decode_s_per_byte))
    write_file_checksums(staged, plan)


def write_file_checksums(
    staged: Path, plan: AnyPlan, arrays: Mapping[str, NDArray[Any]] | None = None
) -> None:
    """Write arrays and the checksum of each block of the whole file behind the end of a closed one.

    The place of the checksums counts as zero in the blocks that it lies in.
    """
    arrays = {} if arrays is None else dict(arrays)
    block_bytes = _block_bytes(plan)
    file_bytes = staged.stat().st_size
    n_checksums = 0
    while True:  # the checksums themselves make the file longer
        arrays[CHECKSUMS] = np.zeros(n_checksums, "<u4")
        sizes_bytes = {name: array.nbytes for name, array in arrays.items()}
        n_needed = n_blocks(end_with_trailer(file_bytes, sizes_bytes), block_bytes)
        if n_needed == n_checksums:
            break
        n_checksums = n_needed
    with staged.open("r+b", buffering=0) as stream:
        descriptor = stream.fileno()
        at, size_bytes = append_trailer(descriptor, arrays)[CHECKSUMS]
        crcs = file_checksums(descriptor, block_bytes, hole=(at, at + size_bytes))
        os.pwrite(descriptor, crcs.astype("<u4").tobytes(), at)


def create_early(
    parent: h5py.File,
    path: str | None,
    file_type: h5py.h5t.TypeID,
    extent: Sequence[int],
    properties: h5py.h5p.PropDCID,
) -> h5py.h5d.DatasetID:
    """Create a contiguous dataset whose bytes have their place in the file but are not written.

    One without a path goes when it is closed, and its bytes stay unused if others follow.
    """
    properties.set_layout(h5py.h5d.CONTIGUOUS)
    properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    properties.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    return _create(parent, path, file_type, extent, properties)


def _create(
    parent: h5py.File,
    path: str | None,
    file_type: h5py.h5t.TypeID,
    extent: Sequence[int],
    properties: h5py.h5p.PropDCID,
) -> h5py.h5d.DatasetID:
    """Create a dataset of fixed extent, and the groups on the way to it."""
    if path is None:
        space = h5py.h5s.create_simple(tuple(extent))
        return h5py.h5d.create(parent.id, None, file_type, space, dcpl=properties)
    links = h5py.h5p.create(h5py.h5p.LINK_CREATE)
    links.set_create_intermediate_group(True)
    space = h5py.h5s.create_simple(tuple(extent))
    return h5py.h5d.create(parent.id, path.encode(), file_type, space, dcpl=properties, lcpl=links)


def _create_dataset(
    target: h5py.File, original: h5py.Dataset, plan: DatasetPlan
) -> h5py.h5d.DatasetID:
    """Create the dataset of the replica: type, properties and permuted extent of the original."""
    file_type = original.id.get_type().copy()  # a named type would stay behind in the source
    properties = original.id.get_create_plist()  # a copy: fill value, order of attributes
    while properties.get_nfilters():
        properties.remove_filter(properties.get_filter(0)[0])
    chunk_shape = plan.layout.chunk_shape
    if chunk_shape is None:
        return create_early(target, plan.dataset_path, file_type, plan.replica_extent, properties)
    properties.set_chunk(chunk_shape)
    for step in plan.layout.filters:
        # Optional, as HDF5's own are: a chunk that grows when compressed is stored as it is.
        properties.set_filter(step.code, h5py.h5z.FLAG_OPTIONAL, step.options)
    properties.set_fletcher32()
    properties.set_alloc_time(h5py.h5d.ALLOC_TIME_INCR)
    # What a chunk at the edge holds beyond the extent is not what was in memory: the fill value, or
    # zeros where HDF5 does not write the chunk.
    properties.set_fill_time(h5py.h5d.FILL_TIME_ALLOC)
    try:
        return _create(target, plan.dataset_path, file_type, plan.replica_extent, properties)
    except (ValueError, OSError, RuntimeError) as error:
        message = (
            f"HDF5 does not store elements of {plan.dataset_path} in {plan.source_path} with the "
            f"filters {format_filters(plan.layout.filters)} ({error}): choose others"
        )
        raise UnsupportedError(message) from error


def write_provenance(target: h5py.File, plan: AnyPlan, left_out: Sequence[str]) -> None:
    """Write what the replica is a copy of, and how it was made, to the root group."""
    identity = plan.source_identity
    attributes = target.attrs
    attributes[FORMAT] = np.uint32(names.FORMAT_VERSION)
    attributes[names.SOURCE] = names.stored_path(plan.source_path)
    attributes[names.SOURCE_IDENTITY] = np.array(
        [
            identity.inode,
            identity.size_bytes,
            identity.mtime_ns,
            identity.ctime_ns,
            identity.instance,
        ],
        np.uint64,
    )
    attributes[names.DATASET] = plan.dataset_path
    attributes[names.ORDER] = np.array(plan.order, np.int64)
    attributes[names.SOURCE_EXTENT] = np.array(plan.extent, np.int64)
    attributes[names.REGION_START] = np.array(plan.region.start, np.int64)
    attributes[names.FILTERS] = json.dumps(
        [[step.code, step.name, list(step.options)] for step in plan.layout.filters]
    )
    attributes[names.DECODE_S_PER_BYTE] = np.float64(0)
    attributes[names.SOURCE_CHUNKS] = np.array(plan.source_chunk_shape or (), np.int64)
    attributes[names.SOURCE_STORED_BYTES] = np.int64(plan.source_stored_bytes)
    attributes[names.SOURCE_DECODE_S_PER_BYTE] = np.float64(0)
    attributes[names.PLAN] = json.dumps(plan.to_json())
    attributes[names.VERSION] = sds.__version__
    attributes[names.CREATED] = datetime.now(UTC).isoformat(timespec="seconds")
    attributes[names.BUILD_SECONDS] = np.float64(0)
    attributes[names.BLOCK_BYTES] = np.int64(_block_bytes(plan))
    attributes[names.LEFT_OUT] = json.dumps(list(left_out))
