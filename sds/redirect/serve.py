"""Reads a selection from a replica where that is predicted faster, as the connector does.

Whatever stands against a replica (none, stale, damaged, owned by someone else, slower) means the
original: `serve_from_replica` then returns False and says why in the log.
"""

from __future__ import annotations

import logging
import math
import os
import stat
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

import numpy as np

from sds import _native
from sds.chunks import chunk_extents
from sds.dataset import Storage
from sds.errors import NotFoundError, SdsError
from sds.geometry import (
    ContiguousLayout,
    block_features,
    chunk_features,
    chunks_touched,
    extent_features,
)
from sds.home import default_home
from sds.identity import identity_of
from sds.redirect.tables import RedirectTable, read_table, table_path
from sds.redirect.type_digest import type_crc32c

if TYPE_CHECKING:
    from pathlib import Path

    import h5py
    from numpy.typing import NDArray

    from sds.dataset import DatasetDescription
    from sds.geometry import BlockFeatures, Hyperslab
    from sds.home import Home
    from sds.identity import FileIdentity
    from sds.redirect.tables import TableCandidate, TableDataset, TableModel

log = logging.getLogger(__name__)

FEATURES_BUDGET_S = 0.001
"""For deciding about one read; past it, bounds decide."""

_MAX_METADATA_BYTES = 1 << 20
_ACTIVE_PERMILLE = 1000
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH

_checked: set[tuple[FileIdentity, int]] = set()
"""Replicas whose metadata this process found intact."""


def serve_from_replica(
    dataset: h5py.Dataset,
    described: DatasetDescription,
    slab: Hyperslab,
    result: NDArray[Any],
    *,
    engine_serves_original: bool,
) -> bool:
    """Fill an array from a replica if there is a good one predicted faster; return whether.

    Parameters
    ----------
    dataset, described
        The original, open.
    slab
        What to read, in the axis order of the original.
    result
        C-contiguous, of the elements of `slab`; may be partly filled where False is returned.
    engine_serves_original
        Whether the original would be read by the same engine as a replica.
    """
    home = default_home()
    if os.environ.get("SDS_DISABLE") == "1" or os.environ.get("SDS_REDIRECT") == "0":
        return False
    try:
        if home.disabled.exists():
            return False
        return _serve(
            home,
            dataset,
            described,
            slab,
            result,
            engine_serves_original=engine_serves_original,
        )
    except NotFoundError:
        return False  # the usual case: nothing was reorganized
    except (SdsError, OSError) as error:
        log.warning("reading %s:%s from the original: %s", described.file, described.path, error)
        return False


def _serve(
    home: Home,
    dataset: h5py.Dataset,
    described: DatasetDescription,
    slab: Hyperslab,
    result: NDArray[Any],
    *,
    engine_serves_original: bool,
) -> bool:
    table = read_table(home, described.file)
    source_owner = described.file.stat().st_uid
    _check_trusted(table_path(home, described.file), source_owner)
    known = _find_dataset(table, dataset, described)
    if known is None or identity_of(described.file) != table.source_identity:
        return False
    candidate = _cheapest(
        known, dataset, described, slab, engine_serves_original=engine_serves_original
    )
    if candidate is None:
        return False
    _read_candidate(candidate, known, slab, result, source_owner)
    # A source that changed meanwhile: its replica is no longer what it says.
    return identity_of(described.file) == table.source_identity


def _check_trusted(path: Path | int, source_owner: int) -> None:
    """Raise PermissionError unless a file belongs to someone trusted, who alone may write it."""
    found = os.stat(path)  # noqa: PTH116  (also of an open descriptor)
    service = os.environ.get("SDS_SERVICE_UID", "")
    trusted = {source_owner, os.geteuid()} | ({int(service)} if service.isdecimal() else set())
    if found.st_uid not in trusted:
        message = f"{path} belongs to neither the source's owner nor this user"
        raise PermissionError(message)
    if found.st_mode & _OTHERS_MAY_WRITE:
        message = f"{path} may be written by others; remove group and world write permission"
        raise PermissionError(message)


def _find_dataset(
    table: RedirectTable, dataset: h5py.Dataset, described: DatasetDescription
) -> TableDataset | None:
    """Return the table's entry if it describes this very dataset."""
    for known in table.datasets:
        if (
            known.path == described.path
            and known.extent == described.extent
            and known.element_size_bytes == described.element_size_bytes
            and known.type_crc32c == type_crc32c(dataset.id.get_type())
        ):
            return known
    return None


def _cheapest(
    known: TableDataset,
    dataset: h5py.Dataset,
    described: DatasetDescription,
    slab: Hyperslab,
    *,
    engine_serves_original: bool,
) -> TableCandidate | None:
    """Return the candidate predicted cheapest, None where that is the original."""
    original = _original_features(known, dataset, described, slab)
    if described.storage is Storage.CONTIGUOUS and original.runs <= 1:
        return None
    best: TableCandidate | None = None
    best_s = _seconds(known.model, original)
    if known.chunk_shape is not None:
        best_s += _decode_seconds(known, known, original.runs)
    for candidate in known.candidates:
        if candidate.shadow_permille < _ACTIVE_PERMILLE:
            continue
        region = candidate.region_in(known.extent)
        if not region.holds(slab):
            continue
        seconds = _candidate_seconds(candidate, known, region.extent, region.relative(slab))
        # The table's model of the original is that of HDF5; the engine may do better than that.
        by_engine = _seconds(candidate.model, original) if engine_serves_original else best_s
        if seconds < min(best_s, by_engine):
            best, best_s = candidate, seconds
    return best


def _candidate_seconds(
    candidate: TableCandidate, known: TableDataset, extent: tuple[int, ...], slab: Hyperslab
) -> float:
    """Return the predicted time of reading a selection of what a candidate holds."""
    if candidate.chunk_shape is None:
        layout = ContiguousLayout(
            element_size_bytes=known.element_size_bytes,
            data_offset_bytes=candidate.data_offset_bytes,
            order=candidate.order,
        )
        features = block_features(
            extent, slab, layout, candidate.stripes, candidate.raid, budget_s=FEATURES_BUDGET_S
        )
        return _seconds(candidate.model, features)
    stored = slab.permuted(candidate.order)
    stored_extent = tuple(extent[axis] for axis in candidate.order)
    n_stored = math.prod(
        -(-n // c) for n, c in zip(stored_extent, candidate.chunk_shape, strict=True)
    )
    features = chunk_features(
        stored_extent,
        candidate.chunk_shape,
        stored,
        candidate.stripes,
        candidate.raid,
        chunk_bytes=max(1, -(-candidate.stored_bytes // n_stored)),
        budget_s=FEATURES_BUDGET_S,
    )
    n_chunks = chunks_touched(stored, candidate.chunk_shape).n_elements
    return _seconds(candidate.model, features) + _decode_seconds(candidate, known, n_chunks)


def _decode_seconds(
    stored: TableCandidate | TableDataset, known: TableDataset, n_chunks: int
) -> float:
    """Return the predicted time of undoing the filters of some chunks."""
    chunk_bytes = math.prod(stored.chunk_shape or ()) * known.element_size_bytes
    return stored.decode_s_per_byte * chunk_bytes * n_chunks


def _original_features(
    known: TableDataset, dataset: h5py.Dataset, described: DatasetDescription, slab: Hyperslab
) -> BlockFeatures:
    if described.storage is Storage.CHUNKED:
        offsets, lengths = chunk_extents(dataset, slab)
        return extent_features(
            offsets, lengths, known.stripes, known.raid, budget_s=FEATURES_BUDGET_S
        )
    if described.data_offset_bytes is None:
        message = f"{described.path} is stored {described.storage}: nothing to compare a replica to"
        raise NotFoundError(message)
    layout = ContiguousLayout(
        element_size_bytes=described.element_size_bytes,
        data_offset_bytes=described.data_offset_bytes,
    )
    return block_features(
        described.extent, slab, layout, known.stripes, known.raid, budget_s=FEATURES_BUDGET_S
    )


def _seconds(model: TableModel, features: BlockFeatures) -> float:
    return _native.predict(
        model.kind, model.gap, model.coefficients, model.floor_s, features.native(), 1.0
    )


def _read_candidate(
    candidate: TableCandidate,
    known: TableDataset,
    slab: Hyperslab,
    result: NDArray[Any],
    source_owner: int,
) -> None:
    """Fill an array from a replica; raises whatever stands against that."""
    stored = candidate.region_in(known.extent).relative(slab).permuted(candidate.order)
    values = np.empty(stored.shape, result.dtype)
    descriptor = os.open(candidate.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        _check_trusted(descriptor, source_owner)
        _check_unchanged(descriptor, candidate)
        if candidate.chunk_shape is None:
            _read_contiguous(descriptor, candidate, known, stored, values)
        else:
            _read_chunked(candidate, known, stored, values)
        _check_unchanged(descriptor, candidate)
    finally:
        os.close(descriptor)
    back = np.argsort(candidate.order).tolist()
    into = result.reshape(slab.shape)
    _native.permute(_as_words(values), [*back, len(back)], _as_words(into))


def _read_contiguous(
    descriptor: int,
    candidate: TableCandidate,
    known: TableDataset,
    stored: Hyperslab,
    values: NDArray[Any],
) -> None:
    """Fill an array from a contiguous replica, whose metadata are checked first."""
    region = candidate.region_in(known.extent)
    _check_intact(descriptor, candidate, known.element_size_bytes * math.prod(region.extent))
    runs = _native.runs(
        tuple(region.extent[axis] for axis in candidate.order),
        known.element_size_bytes,
        candidate.data_offset_bytes,
        *astuple(stored),
    )
    file = _native.ReadFile(descriptor, may_map=False)
    file.read_runs(*runs, values.reshape(-1).view(np.uint8).data)


def _read_chunked(
    candidate: TableCandidate, known: TableDataset, stored: Hyperslab, values: NDArray[Any]
) -> None:
    """Fill an array from a replica in chunks, which h5py's HDF5 reads and checks."""
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
            selected = dataset.id.get_space()
            selected.select_hyperslab(stored.start, stored.count, stored.stride, stored.block)
            packed = h5py.h5s.create_simple(values.shape)
            dataset.id.read(packed, selected, values, file_type)
    # What h5py raises besides OSError for files that are damaged.
    except (AttributeError, KeyError, RuntimeError, ValueError) as error:
        message = f"replica {candidate.path} cannot be read: {error}; verify the replicas"
        raise OSError(message) from error


def _as_words(array: NDArray[Any]) -> NDArray[Any]:
    """Return a view of C-contiguous elements as one more axis of unsigned words."""
    word = next(size for size in (8, 4, 2, 1) if array.dtype.itemsize % size == 0)
    words = array.reshape(-1).view(f"u{word}")
    return words.reshape(*array.shape, array.dtype.itemsize // word)


def _check_unchanged(descriptor: int, candidate: TableCandidate) -> None:
    difference = candidate.identity.difference(identity_of(descriptor))
    if difference:
        message = f"replica {candidate.path} changed since it was published: {difference}"
        raise OSError(message)


def _check_intact(descriptor: int, candidate: TableCandidate, n_bytes: int) -> None:
    """Raise OSError unless a replica is intact outside the bytes of its dataset, `n_bytes`."""
    key = (candidate.identity, candidate.metadata_crc32c)
    if key in _checked:
        return
    end = candidate.data_offset_bytes + n_bytes
    tail = candidate.identity.size_bytes - end
    if candidate.data_offset_bytes + tail > _MAX_METADATA_BYTES:
        message = (
            f"replica {candidate.path} holds more than {_MAX_METADATA_BYTES} bytes of metadata"
        )
        raise OSError(message)
    crc = 0
    for offset, length in ((0, candidate.data_offset_bytes), (end, tail)):
        crc = _native.crc32c(os.pread(descriptor, length, offset), crc)
    if crc != candidate.metadata_crc32c:
        message = f"the metadata of replica {candidate.path} is damaged; verify the replicas"
        raise OSError(message)
    _checked.add(key)
