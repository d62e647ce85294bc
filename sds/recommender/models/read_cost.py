"""Cost of one read of a dataset in a layout: selection -> features -> seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sds import _native
from sds.errors import SdsValueError
from sds.geometry import (
    LOCAL_DISK_RAID,
    LOCAL_DISK_STRIPES,
    BlockFeatures,
    ContiguousLayout,
    Filter,
    Hyperslab,
    RaidLayout,
    StripeLayout,
    block_features,
    n_chunks,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sds.recommender.models.cost_model import CostModel, Prediction

# Time after which a feature is bounded instead of exact (docs/reference/semantics.md).
_BUDGET_S = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredArray:
    """A dataset as it is stored.

    Attributes
    ----------
    extent, element_size_bytes
        Source axis order.
    chunks
        Chunk shape; None where contiguous.
    data_offset_bytes
        File offset of element 0 where contiguous; 0 where it is not known.
    filters
        That a replica with the filters of its chunks has; empty where it can have none.
    stored_bytes
        Of all chunks, as filtered; None where they have no filters.
    decode_s_per_byte
        Time of undoing the filters, per byte that comes out.
    stripes, raid
        The file's. Default: one local disk.
    """

    extent: tuple[int, ...]
    element_size_bytes: int
    chunks: tuple[int, ...] | None = None
    data_offset_bytes: int = 0
    filters: tuple[Filter, ...] = ()
    stored_bytes: int | None = None
    decode_s_per_byte: float = 0.0
    stripes: StripeLayout = LOCAL_DISK_STRIPES
    raid: RaidLayout = LOCAL_DISK_RAID

    def __post_init__(self) -> None:
        if min(self.extent, default=0) < 0 or self.element_size_bytes < 1:
            raise SdsValueError(
                f"extent {self.extent}, {self.element_size_bytes} bytes an element: no length may "
                "be negative, and an element has at least 1 byte"
            )
        decode_s = self.decode_s_per_byte
        if not (math.isfinite(decode_s) and decode_s >= 0 and (self.stored_bytes or 0) >= 0):
            raise SdsValueError(
                f"{self.stored_bytes} bytes stored, {decode_s} s to decode a byte: give numbers "
                "that are not negative"
            )
        if self.chunks is not None and (
            len(self.chunks) != len(self.extent) or min(self.chunks, default=1) <= 0
        ):
            raise SdsValueError(
                f"chunks {self.chunks} do not fit extent {self.extent}: "
                "give one positive length per axis"
            )

    @property
    def size_bytes(self) -> int:
        """Bytes of all elements."""
        return math.prod(self.extent) * self.element_size_bytes

    @property
    def chunk_bytes(self) -> int:
        """Bytes of a chunk that comes out of the filters."""
        return math.prod(self.chunks or ()) * self.element_size_bytes

    @property
    def stored_chunk_bytes(self) -> int:
        """Bytes of a chunk in the file, on average."""
        if self.chunks is None or self.stored_bytes is None:
            return self.chunk_bytes
        return max(1, -(-self.stored_bytes // max(1, self.n_chunks)))

    @property
    def n_chunks(self) -> int:
        """Chunks in all; 0 where contiguous."""
        return n_chunks(self.extent, self.chunks) if self.chunks is not None else 0


def features_as_stored(array: StoredArray, slab: Hyperslab) -> BlockFeatures:
    """Return what reading a selection from a contiguous dataset itself touches."""
    return _features_in(array, slab, None, array.data_offset_bytes)


def features_in_replica(
    array: StoredArray,
    slab: Hyperslab,
    order: tuple[int, ...],
    *,
    data_offset_bytes: int | None = None,
) -> BlockFeatures:
    """Return what reading a selection from a contiguous replica of a whole dataset touches.

    `data_offset_bytes`: of its first element in its file; None: of one that is not built yet.
    """
    if data_offset_bytes is None:
        data_offset_bytes = _native.replica_data_offset(array.size_bytes)
    return _features_in(array, slab, order, data_offset_bytes)


def _features_in(
    array: StoredArray, slab: Hyperslab, order: tuple[int, ...] | None, data_offset_bytes: int
) -> BlockFeatures:
    """Return what reading a selection touches of elements one after another."""
    layout = ContiguousLayout(
        element_size_bytes=array.element_size_bytes,
        data_offset_bytes=data_offset_bytes,
        order=order,
    )
    return block_features(array.extent, slab, layout, array.stripes, array.raid, budget_s=_BUDGET_S)


def greatest_features(reads: Sequence[BlockFeatures]) -> BlockFeatures:
    """Return the features of an operation of several processes: of each the greatest.

    Source: docs/reference/semantics.md, "Several processes", independent I/O.
    """
    return BlockFeatures(
        runs=max(r.runs for r in reads),
        block_depth=max(r.block_depth for r in reads),
        block_gap_count=max(r.block_gap_count for r in reads),
        block_gap_distance=max(r.block_gap_distance for r in reads),
        block_gap_paper=max(r.block_gap_paper or 0 for r in reads),
        bytes_useful=max(r.bytes_useful for r in reads),
        bytes_touched=max(r.bytes_touched for r in reads),
        osts_touched=max(r.osts_touched for r in reads),
        disks_touched=max(r.disks_touched for r in reads),
        exact=True,
        sieve_requests=max(r.sieve_requests for r in reads),
        sieve_jumps=max(r.sieve_jumps for r in reads),
        sieve_bytes=max(r.sieve_bytes for r in reads),
    )


def processes_per_ost(features: BlockFeatures, *, n_concurrent: int, stripe_count: int) -> float:
    """Return P of Liu 2014, Eq. 4.

    OSTs are those that all reads of the operation touch; of the others no more is known than
    that they touch as many each, so as many together as the stripes allow.
    """
    touched = features.osts_touched * n_concurrent
    return n_concurrent / max(1, min(stripe_count, touched))


def predict_read(
    model: CostModel,
    array: StoredArray,
    features: BlockFeatures,
    *,
    n_concurrent: int = 1,
) -> Prediction:
    """Return the predicted time of one read with its interval."""
    p = processes_per_ost(
        features, n_concurrent=n_concurrent, stripe_count=array.stripes.stripe_count
    )
    return model.predict(features, processes_per_ost=p)


def contiguous_throughput(model: CostModel, *, read_bytes: int = 64 << 20) -> float:
    """Return bytes per second that the model predicts for one long contiguous read."""
    array = StoredArray(extent=(read_bytes,), element_size_bytes=1)
    features = features_as_stored(array, Hyperslab.all((read_bytes,)))
    return read_bytes / predict_read(model, array, features).seconds
