"""Replicas that are open: checked before they are read, and again after each read."""

from __future__ import annotations

import logging
import math
import os
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from sds import _native
from sds.engine import load_measured
from sds.hdf5.chunk_reader import ChunkedSource, describe_chunked, find_chunks, read_chunked
from sds.hdf5.dataset import as_words, describe_open_dataset
from sds.hdf5.identity import FileIdentity, Version, identity_of, version_of
from sds.hdf5.type_digest import type_crc32c
from sds.home import damage_report, verifies_reads
from sds.redirect.write_permissions import check_trusted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sds.geometry import Hyperslab
    from sds.home import Home
    from sds.redirect.tables import TableCandidate, TableDataset

log = logging.getLogger(__name__)

_MAX_CHECKED = 128

_checked: set[tuple[FileIdentity, int]] = set()
"""Replicas whose metadata this process found intact."""

_damaged: set[FileIdentity] = set()
"""Replicas of which this process found a block that differs from its checksum."""


@dataclass(slots=True, kw_only=True, eq=False)
class ContiguousRead:
    """Plan of reads of one shape from a contiguous replica, wherever they start.

    Attributes
    ----------
    base_offset
        Of a read that starts at index 0 of every axis of the source.
    index_bytes
        What one index further along an axis of the source adds to it.
    run_bytes, counts, strides_bytes
        As :func:`sds._native.runs` returns them.
    stored_shape
        Elements per axis of the replica; None where they lie there in the order of the source.
    """

    base_offset: int
    index_bytes: tuple[int, ...]
    run_bytes: int
    counts: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    stored_shape: tuple[int, ...] | None

    def first_offset(self, start: tuple[int, ...]) -> int:
        """Return where the first run of a read begins, bytes."""
        return self.base_offset + sum(
            index * n_bytes for index, n_bytes in zip(start, self.index_bytes, strict=True)
        )

    def run_from(self, start: tuple[int, ...]) -> tuple[int, int] | None:
        """Return the offset and bytes of a read that is one run, None of others."""
        return None if self.counts else (self.first_offset(start), self.run_bytes)


@dataclass(slots=True, kw_only=True, eq=False)
class OpenReplica:
    """A replica that was found to be good, and is open.

    Attributes
    ----------
    chunked
        Of one in chunks that was read: what it takes to read it without HDF5, if that can be done.
    announced
        Of one of segments: how often each segment was announced to the kernel in part.
    """

    engine: _native.ReadFile
    stamp: Version
    chunked: ChunkedSource | None = None
    announced: bytearray = field(default_factory=bytearray)


def open_checked(
    home: Home,
    candidate: TableCandidate,
    known: TableDataset,
    source_owner: int,
    run: tuple[int, int] | None,
) -> OpenReplica:
    """Return a replica, open and checked; raises whatever stands against it."""
    if candidate.identity in _damaged:
        message = f"replica {candidate.path} was found to be damaged; verify the replicas"
        raise OSError(message)
    data_bytes = known.element_size_bytes * math.prod(candidate.stored_extent(known.extent))
    metadata = _unchecked_metadata(candidate, known)
    engine = _native.ReadFile(
        os.fspath(candidate.path),
        may_map=os.environ.get("SDS_MMAP") != "0",
        measured=load_measured(home),
        follow_links=False,
        replica_data=None if candidate.chunk_shape else (candidate.data_offset_bytes, data_bytes),
        checks_all=verifies_reads(home, os.environ),
        checks_soon=bool(metadata),
    )
    found = os.fstat(engine.fileno())
    check_trusted(candidate.path, found, source_owner)
    if stat.S_ISREG(found.st_mode):
        # The device works while the file is checked: first on what is waited for first.
        for offset, length in metadata:
            if length > 0:  # 0 is all to the end
                os.posix_fadvise(engine.fileno(), offset, length, os.POSIX_FADV_WILLNEED)
        if run is not None:
            engine.announce(*run)
    _check_unchanged(engine.fileno(), candidate)
    _check_intact(home, engine.fileno(), candidate, metadata)
    return OpenReplica(engine=engine, stamp=version_of(found))


def open_unchecked(candidate: TableCandidate) -> _native.ReadFile:
    """Return a replica's file, as it was published, to look at what is in memory of it."""
    file = _native.ReadFile(os.fspath(candidate.path), may_map=False, follow_links=False)
    _check_unchanged(file.fileno(), candidate)
    return file


def is_unchanged(replica: OpenReplica) -> bool:
    """Return whether a descriptor still leads to what was opened: not where a program closed it."""
    try:
        return version_of(os.fstat(replica.engine.fileno())) == replica.stamp
    except OSError:
        return False


def note_damage(home: Home, candidate: TableCandidate) -> None:
    """Serve nothing from a replica any more, and have it verified."""
    if len(_damaged) >= _MAX_CHECKED:
        _damaged.clear()
    _damaged.add(candidate.identity)
    try:
        damage_report(home, candidate.replica_id).touch(mode=0o600)
    except OSError as error:
        log.warning("replica %s is damaged, and no report can be left: %s", candidate.path, error)


def read_contiguous(
    replica: OpenReplica,
    candidate: TableCandidate,
    plan: ContiguousRead,
    slab: Hyperslab,
    result: NDArray[Any],
) -> None:
    """Fill an array from a contiguous replica; raises where it changed meanwhile."""
    stored_shape = plan.stored_shape
    values = result if stored_shape is None else np.empty(stored_shape, result.dtype)
    replica.engine.read_runs(
        plan.first_offset(slab.start),
        plan.run_bytes,
        plan.counts,
        plan.strides_bytes,
        values.reshape(-1).view(np.uint8).data,
    )
    _check_still_unchanged(replica, candidate)
    if stored_shape is not None:
        _put_back(values, candidate.order, slab, result)


def read_from_tiles(
    replica: OpenReplica,
    entry: _native.TableEntry,
    number: int,
    slab: Hyperslab,
    result: NDArray[Any],
    *,
    candidate: TableCandidate,
) -> None:
    """Fill an array from a replica of segments that holds a selection; raises where it changed."""
    if not replica.announced:
        replica.announced = bytearray(entry.announced_bytes(number))
    entry.read_tiles(
        number,
        slab.start,
        slab.stride,
        slab.count,
        slab.block,
        replica.engine,
        replica.announced,
        result.reshape(-1).view(np.uint8).data,
    )
    _check_still_unchanged(replica, candidate)


def read_from_chunks(
    replica: OpenReplica,
    candidate: TableCandidate,
    known: TableDataset,
    slab: Hyperslab,
    result: NDArray[Any],
) -> None:
    """Fill an array from a replica in chunks; raises whatever stands against that."""
    stored = candidate.region_in(known.extent).relative(slab).permuted(candidate.order)
    values = np.empty(stored.shape, result.dtype)
    if replica.chunked is None or not read_chunked(replica.engine, replica.chunked, stored, values):
        _read_through_hdf5(replica, candidate, known, stored, values)
    _check_still_unchanged(replica, candidate)
    _put_back(values, candidate.order, slab, result)


def _read_through_hdf5(
    replica: OpenReplica,
    candidate: TableCandidate,
    known: TableDataset,
    stored: Hyperslab,
    values: NDArray[Any],
) -> None:
    """Fill an array from a replica in chunks that h5py's HDF5 opens and checks, and learn of it."""
    import h5py  # noqa: PLC0415  (import sds must not load the HDF5 library)

    region = candidate.region_in(known.extent)
    extent = tuple(region.extent[axis] for axis in candidate.order)
    try:
        with h5py.File(candidate.path, "r", locking=False) as handle:
            _check_unchanged(handle.id.get_vfd_handle(), candidate)
            dataset = handle[known.path]
            file_type = dataset.id.get_type()
            if (
                (dataset.shape, dataset.chunks) != (extent, candidate.chunk_shape)
                or type_crc32c(file_type) != known.type_crc32c
                or not dataset.fletcher32
            ):
                message = f"replica {candidate.path} is not what its table says; verify it"
                raise OSError(message)
            if replica.chunked is None:
                described = describe_open_dataset(dataset, candidate.path)
                replica.chunked = describe_chunked(dataset, described)
            if replica.chunked is not None:
                find_chunks(dataset, replica.chunked, stored)
            selected = dataset.id.get_space()
            selected.select_hyperslab(stored.start, stored.count, stored.stride, stored.block)
            packed = h5py.h5s.create_simple(values.shape)
            dataset.id.read(packed, selected, values, file_type)
    # What h5py raises besides OSError for files that are damaged.
    except (AttributeError, KeyError, RuntimeError, ValueError) as error:
        message = f"replica {candidate.path} cannot be read: {error}; verify the replicas"
        raise OSError(message) from error


def _put_back(
    values: NDArray[Any], order: tuple[int, ...], slab: Hyperslab, result: NDArray[Any]
) -> None:
    """Copy what lies in the axis order of a replica into that of the source."""
    back = np.argsort(order).tolist()
    stored, into = (
        as_words(array.reshape(-1).view(np.uint8), shape, values.itemsize)
        for array, shape in ((values, values.shape), (result, slab.shape))
    )
    _native.permute(stored, [*back, len(back)], into)


def _check_still_unchanged(replica: OpenReplica, candidate: TableCandidate) -> None:
    if not is_unchanged(replica):
        message = f"replica {candidate.path} changed while it was read; verify the replicas"
        raise OSError(message)


def _check_unchanged(descriptor: int, candidate: TableCandidate) -> None:
    difference = candidate.identity.difference(identity_of(descriptor))
    if difference:
        message = f"replica {candidate.path} changed since it was published: {difference}"
        raise OSError(message)


def _unchecked_metadata(
    candidate: TableCandidate, known: TableDataset
) -> tuple[tuple[int, int], ...]:
    """Return offset and length of what a replica holds besides its dataset, if it was not checked.

    Of one in chunks nothing: HDF5 checks it.

    Raises
    ------
    OSError
        If that is more than a replica holds, or the dataset does not fit.
    """
    if candidate.chunk_shape is not None or _key_of(candidate) in _checked:
        return ()
    begin = candidate.data_offset_bytes
    end = begin + known.element_size_bytes * math.prod(candidate.stored_extent(known.extent))
    tail = candidate.identity.size_bytes - end
    if tail < 0:
        message = f"replica {candidate.path} is too short for its dataset; verify the replicas"
        raise OSError(message)
    if begin + tail > _native.MAX_METADATA_BYTES:
        most = _native.MAX_METADATA_BYTES
        message = f"replica {candidate.path} holds more than {most} bytes of metadata"
        raise OSError(message)
    return ((0, begin), (end, tail))


def _key_of(candidate: TableCandidate) -> tuple[FileIdentity, int]:
    return (candidate.identity, candidate.metadata_crc32c)


def _check_intact(
    home: Home, descriptor: int, candidate: TableCandidate, metadata: tuple[tuple[int, int], ...]
) -> None:
    """Raise OSError unless a replica is intact outside the bytes of its dataset."""
    if not metadata:
        return
    crc = 0
    for offset, length in metadata:
        crc = _native.crc32c(os.pread(descriptor, length, offset), crc)
    if crc != candidate.metadata_crc32c:
        note_damage(home, candidate)
        message = f"the metadata of replica {candidate.path} is damaged; verify the replicas"
        raise OSError(message)
    if len(_checked) >= _MAX_CHECKED:
        _checked.clear()
    _checked.add(_key_of(candidate))
