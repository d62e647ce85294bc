"""Redirect tables: which replicas of one source file may serve reads, and what each read costs.

The server publishes them, the connector and :func:`sds.read` use them. One file per source,
replaced whole by a rename; the bytes are defined in native/include/sds/table_format.h.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sds import _native
from sds.atomic_file import replace_whole, sync_directory
from sds.errors import (
    FormatError,
    NotFoundError,
    PermissionDeniedError,
    SdsValueError,
)
from sds.files import canonical_path, read_regular
from sds.geometry import Box, RaidLayout, SegmentList, StripeLayout
from sds.hdf5.identity import FileIdentity
from sds.home import make_private

if TYPE_CHECKING:
    from collections.abc import Callable

    from sds.geometry import Hyperslab
    from sds.home import Home


@dataclass(frozen=True, slots=True, kw_only=True)
class TableModel:
    """Coefficients of a cost model (native/include/sds/cost.h).

    Attributes
    ----------
    kind, gap
        sds_model_kind, sds_gap_kind.
    coefficients
        Seconds per unit of each term.
    floor_s
        No prediction is below this.
    """

    kind: int
    gap: int
    calibrated: bool
    coefficients: tuple[float, ...]
    floor_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCandidate:
    """One replica of one dataset.

    Attributes
    ----------
    path
        Of the replica file, absolute.
    identity
        Of that file when the table was written.
    data_offset_bytes
        Of the dataset's first byte in it; 0 where it is stored in chunks.
    metadata_crc32c
        Of every byte of the file outside the dataset's; 0 where it is stored in chunks, which
        HDF5's own checksums protect.
    order
        Axis i of the replica is axis ``order[i]`` of the source.
    model
        Time of a read from the replica, that of undoing filters apart.
    shadow_permille
        Share of reads that it may serve; 1000 where it is active.
    chunk_shape
        In the axes of the replica; None where it is contiguous.
    stored_bytes
        Of all chunks, as filtered; 0 where contiguous.
    decode_s_per_byte
        Time of undoing the filters, per byte that comes out.
    region
        What it holds of the source, in the source's axes; None where that is everything.
    segments
        The tiles that it holds instead of all of its region, which is the box around them: it is
        contiguous then, and has one axis more, of tiles in their stored order.
    """

    replica_id: int
    path: Path
    identity: FileIdentity
    data_offset_bytes: int
    metadata_crc32c: int
    order: tuple[int, ...]
    stripes: StripeLayout
    raid: RaidLayout
    model: TableModel
    shadow_permille: int = 1000
    chunk_shape: tuple[int, ...] | None = None
    stored_bytes: int = 0
    decode_s_per_byte: float = 0.0
    region: Box | None = None
    segments: SegmentList | None = None

    def region_in(self, extent: tuple[int, ...]) -> Box:
        """Return what it holds of a source of this extent; the box around its segments."""
        return Box.whole(extent) if self.region is None else self.region

    def holds(self, slab: Hyperslab, extent: tuple[int, ...]) -> bool:
        """Return whether it holds all that is selected of a source of this extent."""
        if self.segments is not None:
            return self.segments.holds(slab, extent)
        return self.region is None or self.region.holds(slab)

    def stored_extent(self, extent: tuple[int, ...]) -> tuple[int, ...]:
        """Return elements per axis of its dataset, of a source of this extent."""
        if self.segments is not None:
            tile = self.segments.tile_shape
            return (len(self.segments.tiles), *(tile[axis] for axis in self.order))
        region = self.region_in(extent)
        return tuple(region.extent[axis] for axis in self.order)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDataset:
    """A dataset of the source that may be redirected.

    Attributes
    ----------
    path
        Absolute HDF5 path.
    type_crc32c
        Of its stored type (:func:`sds.hdf5.type_digest.type_crc32c`).
    type_class
        H5T_class_t.
    data_offset_bytes
        Of its first byte in the source; None unless it is stored contiguously there.
    model
        Time of a read from the source through HDF5, that of undoing filters apart.
    chunk_shape
        None unless it is stored in chunks; a dataset that is neither contiguous nor chunked is
        never redirected.
    stored_bytes
        Of all chunks, as filtered; 0 where not chunked.
    decode_s_per_byte
        Time of undoing the filters, per byte that comes out.
    """

    path: str
    extent: tuple[int, ...]
    element_size_bytes: int
    type_crc32c: int
    type_class: int
    data_offset_bytes: int | None
    stripes: StripeLayout
    raid: RaidLayout
    model: TableModel
    candidates: tuple[TableCandidate, ...]
    chunk_shape: tuple[int, ...] | None = None
    stored_bytes: int = 0
    decode_s_per_byte: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RedirectTable:
    """Redirect table of one source file.

    Attributes
    ----------
    source_path
        Canonical: absolute, links followed.
    source_identity
        Of the source when its replicas were built; where it differs, the table does not apply.
        The instance of its file system is compared where it is not 0.
    """

    source_path: Path
    source_identity: FileIdentity
    datasets: tuple[TableDataset, ...]

    def to_bytes(self) -> bytes:
        """Return the table as it is stored.

        Raises
        ------
        SdsValueError
            If a field is out of range: an order that is no permutation, a path that is not
            absolute, data that reaches beyond its file, ...
        """
        try:
            return _native.encode_table(
                {
                    "source_path": os.fspath(self.source_path),
                    "source_identity": _identity_fields(self.source_identity),
                    "source_instance": self.source_identity.instance,
                    "datasets": [_dataset_fields(dataset) for dataset in self.datasets],
                }
            )
        except SdsValueError as error:
            message = f"cannot make a redirect table for {self.source_path}: {error}"
            raise SdsValueError(message) from error

    @classmethod
    def from_bytes(cls, table: bytes) -> RedirectTable:
        """Return the table that these bytes hold.

        Raises
        ------
        FormatError
            If they are damaged or no redirect table.
        FormatVersionError
            If an SDS with another version of the format wrote them.
        """
        found = _native.decode_table(table)
        return cls(
            source_path=Path(found["source_path"]),
            source_identity=FileIdentity(
                **found["source_identity"], instance=found["source_instance"]
            ),
            datasets=tuple(_dataset_of(dataset) for dataset in found["datasets"]),
        )


def table_path(home: Home, source: str | os.PathLike[str]) -> Path:
    """Return where the table of a source lies, whether there is one or not; links are followed."""
    return home.tables / _native.table_name(canonical_path(source))


def publish_table(home: Home, table: RedirectTable) -> Path:
    """Put a table in place at once and whole, and return its path.

    A program that opens the source meanwhile finds the old table or the new one.

    Raises
    ------
    SdsValueError
        As :meth:`RedirectTable.to_bytes`.
    PermissionDeniedError
        If the directory of tables may not be written.
    OSError
        If the disk is full or fails; the old table is then still in place.
    """
    encoded = table.to_bytes()
    path = table_path(home, table.source_path)
    try:
        make_private(path.parent)
        if any(one.chunk_shape for dataset in table.datasets for one in dataset.candidates):
            home.chunked.touch(mode=0o600)
        replace_whole(path, encoded)
    except PermissionError as error:
        message = (
            f"cannot write redirect tables into {path.parent}: permission denied; "
            "set SDS_HOME to a directory that you can write"
        )
        raise PermissionDeniedError(message) from error
    return path


def read_table(home: Home, source: str | os.PathLike[str]) -> RedirectTable:
    """Return the published table of a source.

    Raises
    ------
    NotFoundError
        If there is none.
    FormatError
        If it is damaged, or another file's.
    FormatVersionError
        If an SDS with another version of the format wrote it.
    """
    path = table_path(home, source)
    try:
        encoded = read_regular(path)
    except FileNotFoundError as error:
        message = f"no redirect table for {source}: none of its datasets has an active replica"
        raise NotFoundError(message) from error
    try:
        table = RedirectTable.from_bytes(encoded)
    except FormatError as error:
        message = f"{path}: {error}; verify the replicas to have it written again"
        raise type(error)(message) from error
    if os.fspath(table.source_path) != canonical_path(source):
        message = f"{path} is the redirect table of {table.source_path}, not of {source}"
        raise FormatError(message)
    return table


def withdraw_naming(
    home: Home, is_chosen: Callable[[RedirectTable, TableDataset, TableCandidate], bool]
) -> tuple[Path, ...]:
    """Remove the tables that name some replicas, whatever the catalog says.

    Returns
    -------
    The files of those replicas.
    """
    found = []
    for path in sorted(home.tables.glob("*.sdst")):
        try:
            table = RedirectTable.from_bytes(read_regular(path))
        except (FormatError, SdsValueError, OSError):
            continue  # it serves nothing
        chosen = [
            candidate.path
            for dataset in table.datasets
            for candidate in dataset.candidates
            if is_chosen(table, dataset, candidate)
        ]
        if chosen:
            path.unlink(missing_ok=True)
        found += chosen
    return tuple(found)


def withdraw_table(home: Home, source: str | os.PathLike[str]) -> bool:
    """Remove the table of a source, so that every program reads the original from now on.

    Returns
    -------
    Whether there was one.
    """
    path = table_path(home, source)
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    sync_directory(path.parent)
    return True


def _identity_fields(identity: FileIdentity) -> _native.TableIdentity:
    return {
        "inode": identity.inode,
        "size_bytes": identity.size_bytes,
        "mtime_ns": identity.mtime_ns,
        "ctime_ns": identity.ctime_ns,
    }


def _layout_fields(stripes: StripeLayout, raid: RaidLayout) -> _native.TableLayout:
    return {
        "stripe_size_bytes": stripes.stripe_size_bytes,
        "stripe_count": stripes.stripe_count,
        "unit_bytes": raid.unit_bytes,
        "data_disks": raid.data_disks,
        "min_request_bytes": raid.min_request_bytes,
    }


def _model_fields(model: TableModel) -> _native.TableModel:
    return {
        "kind": model.kind,
        "gap": model.gap,
        "calibrated": model.calibrated,
        "coefficients": list(model.coefficients),
        "floor_s": model.floor_s,
    }


def _storage_name(entry: TableCandidate | TableDataset) -> str:
    if entry.chunk_shape is not None:
        return "chunked"
    return "other" if entry.data_offset_bytes is None else "contiguous"


def _check_segments(candidate: TableCandidate, extent: tuple[int, ...], region: Box) -> None:
    """Raise SdsValueError unless the region is the box around what the replica holds."""
    if candidate.segments is None:
        return
    candidate.segments.check_within(extent)
    around = candidate.segments.around(extent)
    if around != region:
        message = f"the tiles of replica {candidate.path} lie in {around}, not in {region}"
        raise SdsValueError(message)


def _segments_fields(segments: SegmentList | None) -> _native.TableSegments | None:
    if segments is None:
        return None
    return {
        "tile_shape": list(segments.tile_shape),
        "tiles": list(segments.tiles),
        "lengths": list(segments.lengths),
    }


def _candidate_fields(candidate: TableCandidate, extent: tuple[int, ...]) -> _native.TableCandidate:
    region = candidate.region_in(extent)
    _check_segments(candidate, extent, region)
    return {
        "replica_id": candidate.replica_id,
        "path": os.fspath(candidate.path),
        "identity": _identity_fields(candidate.identity),
        "data_offset_bytes": candidate.data_offset_bytes,
        "metadata_crc32c": candidate.metadata_crc32c,
        "storage": _storage_name(candidate),
        "chunk": list(candidate.chunk_shape or ()),
        "stored_bytes": candidate.stored_bytes,
        "decode_s_per_byte": candidate.decode_s_per_byte,
        "order": list(candidate.order),
        "region_start": list(region.start),
        "region_extent": list(region.extent),
        "segments": _segments_fields(candidate.segments),
        "layout": _layout_fields(candidate.stripes, candidate.raid),
        "model": _model_fields(candidate.model),
        "shadow_permille": candidate.shadow_permille,
    }


def _dataset_fields(dataset: TableDataset) -> _native.TableDataset:
    offset_bytes = dataset.data_offset_bytes
    return {
        "path": dataset.path,
        "extent": list(dataset.extent),
        "element_bytes": dataset.element_size_bytes,
        "type_crc32c": dataset.type_crc32c,
        "type_class": dataset.type_class,
        "storage": _storage_name(dataset),
        "data_offset_bytes": 0 if offset_bytes is None else offset_bytes,
        "chunk": list(dataset.chunk_shape or ()),
        "stored_bytes": dataset.stored_bytes,
        "decode_s_per_byte": dataset.decode_s_per_byte,
        "layout": _layout_fields(dataset.stripes, dataset.raid),
        "model": _model_fields(dataset.model),
        "candidates": [
            _candidate_fields(candidate, dataset.extent) for candidate in dataset.candidates
        ],
    }


def _stripes_of(layout: _native.TableLayout) -> StripeLayout:
    return StripeLayout(
        stripe_size_bytes=layout["stripe_size_bytes"], stripe_count=layout["stripe_count"]
    )


def _raid_of(layout: _native.TableLayout) -> RaidLayout:
    return RaidLayout(
        unit_bytes=layout["unit_bytes"],
        data_disks=layout["data_disks"],
        min_request_bytes=layout["min_request_bytes"],
    )


def _model_of(model: _native.TableModel) -> TableModel:
    return TableModel(
        kind=model["kind"],
        gap=model["gap"],
        calibrated=model["calibrated"],
        coefficients=tuple(model["coefficients"]),
        floor_s=model["floor_s"],
    )


def _chunk_shape_of(entry: _native.TableCandidate | _native.TableDataset) -> tuple[int, ...] | None:
    return tuple(entry["chunk"]) if entry["storage"] == "chunked" else None


def _segments_of(fields: _native.TableSegments | None) -> SegmentList | None:
    return (
        None
        if fields is None
        else SegmentList(
            tile_shape=tuple(fields["tile_shape"]),
            tiles=tuple(fields["tiles"]),
            lengths=tuple(fields["lengths"]),
        )
    )


def _candidate_of(candidate: _native.TableCandidate, extent: tuple[int, ...]) -> TableCandidate:
    region = Box(start=tuple(candidate["region_start"]), extent=tuple(candidate["region_extent"]))
    segments = _segments_of(candidate["segments"])
    if segments is not None and segments.around(extent) != region:
        message = f"the tiles of replica {candidate['path']} do not lie in {region}"
        raise FormatError(message)
    return TableCandidate(
        replica_id=candidate["replica_id"],
        path=Path(candidate["path"]),
        identity=FileIdentity(**candidate["identity"]),
        data_offset_bytes=candidate["data_offset_bytes"],
        metadata_crc32c=candidate["metadata_crc32c"],
        order=tuple(candidate["order"]),
        stripes=_stripes_of(candidate["layout"]),
        raid=_raid_of(candidate["layout"]),
        model=_model_of(candidate["model"]),
        shadow_permille=candidate["shadow_permille"],
        chunk_shape=_chunk_shape_of(candidate),
        stored_bytes=candidate["stored_bytes"],
        decode_s_per_byte=candidate["decode_s_per_byte"],
        region=None if region == Box.whole(extent) else region,
        segments=segments,
    )


def _dataset_of(dataset: _native.TableDataset) -> TableDataset:
    extent = tuple(dataset["extent"])
    return TableDataset(
        path=dataset["path"],
        extent=extent,
        element_size_bytes=dataset["element_bytes"],
        type_crc32c=dataset["type_crc32c"],
        type_class=dataset["type_class"],
        data_offset_bytes=(
            dataset["data_offset_bytes"] if dataset["storage"] == "contiguous" else None
        ),
        stripes=_stripes_of(dataset["layout"]),
        raid=_raid_of(dataset["layout"]),
        model=_model_of(dataset["model"]),
        candidates=tuple(_candidate_of(candidate, extent) for candidate in dataset["candidates"]),
        chunk_shape=_chunk_shape_of(dataset),
        stored_bytes=dataset["stored_bytes"],
        decode_s_per_byte=dataset["decode_s_per_byte"],
    )
