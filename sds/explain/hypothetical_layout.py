"""Layouts that a dataset could have: another axis order, chunks, stripes, disks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sds import _native
from sds.errors import LayoutError
from sds.geometry import (
    LOCAL_DISK_STRIPES,
    ChunkedLayout,
    ContiguousLayout,
    FileStripes,
    RaidLayout,
    StripeLayout,
    check_chunks,
    check_order,
)
from sds.geometry.lustre import STRIPE_SIZE_UNIT_BYTES
from sds.hdf5.striping import FoundStripes, StripesSource

if TYPE_CHECKING:
    from sds.geometry import ArrayLayout
    from sds.hdf5.dataset import DatasetDescription

CHUNKS_OFFSET_BYTES = 4096
"""File offset of hypothetical chunks, bytes: on a page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HypotheticalLayout:
    """A layout that no file need have; what is None is as it is.

    Attributes
    ----------
    order
        Axis order of a replica, as in `numpy.transpose`.
    chunks
        Chunk shape of a replica, in its own axes.
    stored_ratio
        Bytes of a chunk in the file by its elements' bytes: what compression leaves.
    stripe_size, stripe_count
        Lustre striping, bytes.
    raid_disks, raid_unit, raid_min_request
        RAID below an OST, sizes in bytes.
    """

    order: tuple[int, ...] | None = None
    chunks: tuple[int, ...] | None = None
    stored_ratio: float | None = None
    stripe_size: int | None = None
    stripe_count: int | None = None
    raid_disks: int | None = None
    raid_unit: int | None = None
    raid_min_request: int | None = None

    @property
    def is_replica(self) -> bool:
        """True if the dataset would be stored anew."""
        return self.order is not None or self.chunks is not None

    @property
    def is_elsewhere(self) -> bool:
        """True if it has other disks than those on which the file lies."""
        return any(
            value is not None
            for value in (
                self.stripe_size,
                self.stripe_count,
                self.raid_disks,
                self.raid_unit,
                self.raid_min_request,
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Disks:
    """Striping and RAID of a file, and where the striping is known from."""

    stripes: FileStripes
    source: str
    raid: RaidLayout
    notes: tuple[str, ...] = ()


def disks_of(
    described: DatasetDescription,
    hypothetical: HypotheticalLayout,
    found: FoundStripes,
    own_raid: RaidLayout,
) -> Disks:
    """Return the disks below a layout: those of the hypothetical layout, else the file's own."""
    min_request = hypothetical.raid_min_request
    if hypothetical.raid_unit is None and min_request is None:
        min_request = own_raid.min_request_bytes
    raid = RaidLayout.of(
        unit_bytes=_given(hypothetical.raid_unit, own_raid.unit_bytes),
        data_disks=_given(hypothetical.raid_disks, own_raid.data_disks),
        min_request_bytes=min_request,
    )
    if hypothetical.stripe_size is None and hypothetical.stripe_count is None:
        remarks = []
        if found.problem is not None:
            remarks.append(f"striping is {found.source}: {found.problem}")
        if hypothetical.is_replica and len(found.stripes.components) > 1:
            remarks.append("the replica is supposed to be striped as the file is")
        return Disks(
            stripes=found.stripes, source=str(found.source), raid=raid, notes=tuple(remarks)
        )
    own = LOCAL_DISK_STRIPES
    if found.source is not StripesSource.ASSUMED:
        own = found.stripes.prevailing(0, Path(described.file).stat().st_size)
    stripes = StripeLayout(
        stripe_size_bytes=_given(hypothetical.stripe_size, own.stripe_size_bytes),
        stripe_count=_given(hypothetical.stripe_count, own.stripe_count),
    )
    remarks = []
    if stripes.stripe_size_bytes % STRIPE_SIZE_UNIT_BYTES:
        remarks.append(
            f"no Lustre file has stripes of {stripes.stripe_size_bytes} bytes: "
            "they are multiples of 64 KiB"
        )
    return Disks(
        stripes=FileStripes.of(stripes), source="supposed", raid=raid, notes=tuple(remarks)
    )


def array_layout_of(described: DatasetDescription, hypothetical: HypotheticalLayout) -> ArrayLayout:
    """Return how the elements of a hypothetical replica lie in its file."""
    rank = len(described.extent)
    order = None if hypothetical.order is None else check_order(hypothetical.order, rank)
    if hypothetical.chunks is None:
        if hypothetical.stored_ratio is not None:
            raise LayoutError("a stored ratio needs chunks: give chunks as well")
        return ContiguousLayout(
            element_size_bytes=described.element_size_bytes,
            data_offset_bytes=_native.replica_data_offset(
                math.prod(described.extent) * described.element_size_bytes
            ),
            order=order,
        )
    check_chunks(hypothetical.chunks, [described.extent[a] for a in order or range(rank)])
    stored_bytes = None
    if hypothetical.stored_ratio is not None:
        if not 0 < hypothetical.stored_ratio <= 100:
            message = f"compression leaves {hypothetical.stored_ratio}; give a ratio such as 0.4"
            raise LayoutError(message)
        whole = math.prod(hypothetical.chunks) * described.element_size_bytes
        stored_bytes = max(1, math.ceil(whole * hypothetical.stored_ratio))
    return ChunkedLayout(
        element_size_bytes=described.element_size_bytes,
        chunk_shape=hypothetical.chunks,
        data_offset_bytes=CHUNKS_OFFSET_BYTES,
        order=order,
        stored_chunk_bytes=stored_bytes,
    )


def _given(value: int | None, default: int) -> int:
    return default if value is None else value
