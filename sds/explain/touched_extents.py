"""Footprint of one read of a dataset, as it is stored or in a hypothetical layout."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from sds.errors import LimitError
from sds.geometry import (
    BlockFeatures,
    ChunkedLayout,
    ContiguousLayout,
    Hyperslab,
    OperationFeatures,
    OstLoads,
    ProcessReads,
    block_features,
    count_chunks,
    extent_features,
    operation_loads,
    operation_of_extents,
)
from sds.hdf5.chunk_extents import chunk_extents
from sds.hdf5.dataset import DatasetDescription, Storage

if TYPE_CHECKING:
    from collections.abc import Callable

    import h5py

    from sds.explain.hypothetical_layout import Disks
    from sds.geometry import ArrayLayout

_MAX_LANES_DRAWN = 1 << 16
_DRAWING_BUDGET_S = 2.0

_NO_FEATURES = {
    Storage.COMPACT: "stored compact: the elements come with the object header, in one request",
    Storage.VIRTUAL: "a virtual dataset: explain the datasets that it is made of instead",
    Storage.EXTERNAL: "stored in external raw files, whose bytes are not in this file",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OstLoad:
    """Load of a read on one OST; ``disk_blocks`` are blocks on each of its data disks."""

    ost: int
    bytes_touched: int
    disk_blocks: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFootprint:
    """Features of one read, or None with a note that says why."""

    features: BlockFeatures | None
    loads: OstLoads | None = None
    chunks: int | None = None
    note: str | None = None


def footprint_as_stored(
    dataset: h5py.Dataset,
    described: DatasetDescription,
    slab: Hyperslab,
    disks: Disks,
    budget_s: float | None,
) -> ReadFootprint:
    """Return what reading a selection touches as the dataset lies in its file."""
    if described.storage is Storage.CHUNKED:
        offsets, lengths = chunk_extents(dataset, slab)
        first = np.array([0, len(offsets)])
        return ReadFootprint(
            features=extent_features(
                offsets, lengths, disks.stripes, disks.raid, budget_s=budget_s
            ),
            loads=_drawable(
                disks,
                lambda: operation_of_extents(
                    first, offsets, lengths, disks.stripes, disks.raid, budget_s=_DRAWING_BUDGET_S
                ),
            ),
            chunks=len(offsets),
            note="stored in chunks, which are read whole: the features are those of the chunks",
        )
    if described.storage is not Storage.CONTIGUOUS:
        return ReadFootprint(features=None, note=_NO_FEATURES[described.storage])
    if described.data_offset_bytes is None:
        return ReadFootprint(features=None, note="nothing has been written yet: nothing is read")
    layout = ContiguousLayout(
        element_size_bytes=described.element_size_bytes,
        data_offset_bytes=described.data_offset_bytes,
    )
    return _footprint_in(described, slab, layout, disks, budget_s)


def footprint_as_replica(
    described: DatasetDescription,
    slab: Hyperslab,
    layout: ArrayLayout,
    disks: Disks,
    budget_s: float | None,
) -> ReadFootprint:
    """Return what reading a selection would touch in a hypothetical replica."""
    footprint = _footprint_in(described, slab, layout, disks, budget_s)
    if isinstance(layout, ChunkedLayout):
        stored = slab if layout.order is None else slab.permuted(layout.order)
        return replace(
            footprint,
            chunks=count_chunks(stored, layout.chunk_shape),
            note="supposes a replica in these chunks, one after the other in C order, read whole",
        )
    return replace(
        footprint, note="supposes a replica of this axis order, its data half a page behind a page"
    )


def _footprint_in(
    described: DatasetDescription,
    slab: Hyperslab,
    layout: ArrayLayout,
    disks: Disks,
    budget_s: float | None,
) -> ReadFootprint:
    reads = ProcessReads.of([slab])
    return ReadFootprint(
        features=block_features(
            described.extent, slab, layout, disks.stripes, disks.raid, budget_s=budget_s
        ),
        loads=_drawable(
            disks,
            lambda: operation_loads(
                described.extent,
                reads,
                layout,
                disks.stripes,
                disks.raid,
                budget_s=_DRAWING_BUDGET_S,
            ),
        ),
    )


def _drawable(
    disks: Disks, account: Callable[[], tuple[OperationFeatures, OstLoads]]
) -> OstLoads | None:
    """Return the account OST by OST; None where it is too long to be of use or takes too long."""
    n_osts = sum(c.stripes.stripe_count for c in disks.stripes.components)
    if n_osts * disks.raid.data_disks > _MAX_LANES_DRAWN:
        return None
    try:
        return account()[1]
    except LimitError:
        return None


def ost_loads(loads: OstLoads | None, disks: Disks) -> tuple[OstLoad, ...]:
    """Return an account of every OST that the file is striped over."""
    if loads is None:
        return ()
    touched = {ost: row for row, ost in enumerate(loads.ost.tolist())}
    # Components without names have the numbers behind those that are named.
    first = disks.stripes.components[0]
    if len(disks.stripes.components) == 1:
        osts = set(range(first.stripes.stripe_count)) if first.osts is None else set(first.osts)
    else:
        named = {ost for each in disks.stripes.components for ost in each.osts or ()}
        osts = named | {ost for ost in touched if ost > max(named, default=-1)}
    nothing = (0,) * loads.blocks.shape[1]
    return tuple(
        OstLoad(
            ost=ost,
            bytes_touched=int(loads.bytes_touched[touched[ost]]) if ost in touched else 0,
            disk_blocks=tuple(loads.blocks[touched[ost]].tolist()) if ost in touched else nothing,
        )
        for ost in sorted(osts)
    )
