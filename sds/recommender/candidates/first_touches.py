"""Shares of reads that a process has to fetch, because it has not read what they ask for before.

A plane of one column touches nearly all of a file in row order, so that the next such plane finds
its bytes in memory; in a replica where each plane lies together it does not.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from sds.analyzer import ReadTrail
    from sds.geometry import Hyperslab, ReplicaLayout
    from sds.recommender.models.read_cost import StoredArray

# Of a contiguous layout a read brings at least as much into memory: HDF5's buffer, and about what
# Linux reads ahead.
_GRANULE_BYTES = 64 << 10
_MAX_PROBES = 256
_N_POINTS = 4  # of each probe


def granule_of_array(array: StoredArray) -> tuple[int, ...]:
    """Return the shape of what one request brings of a dataset: a chunk, or a box of 64 KiB."""
    if array.chunks is not None:
        return array.chunks
    return _contiguous(array.extent, tuple(range(len(array.extent))), array.element_size_bytes)


def granule_of_replica(layout: ReplicaLayout, element_bytes: int) -> tuple[int, ...]:
    """Return the shape of what one request brings of a replica, in the axes of the source."""
    if layout.chunk_shape is not None:
        shape = dict(zip(layout.order, layout.chunk_shape, strict=True))
        return tuple(shape[a] for a in range(len(layout.order)))
    extent = layout.region.extent if layout.segments is None else layout.segments.tile_shape
    return _contiguous(extent, layout.order, element_bytes)


def _contiguous(extent: Sequence[int], order: Sequence[int], element_bytes: int) -> tuple[int, ...]:
    """Return the box that lies together in so many bytes, filled from the fastest axis on."""
    left = max(1, _GRANULE_BYTES // element_bytes)
    shape = [1] * len(order)
    for a in reversed(order):
        shape[a] = max(1, min(extent[a], left))
        left = max(1, left // shape[a])
    return tuple(shape)


def new_shares(
    trail: ReadTrail | None,
    slabs: Sequence[Hyperslab],
    granules: Sequence[tuple[int, ...]],
    *,
    alone: bool = False,
) -> NDArray[np.float64]:
    """Return the shares of reads that their processes had not read before.

    Parameters
    ----------
    trail
        The newest reads of the dataset; None: not known.
    slabs
        n reads: those of the trail count for one that select as much of each axis.
    granules
        Shapes of what is read together in m layouts, in the axes of the dataset.
    alone
        Suppose that the process had made no reads of other shapes.

    Returns
    -------
    Shape (n, m), above 0; nan where the trail has no such read.

    Notes
    -----
    Estimated at points within some of the reads: one is new where no earlier read of the process
    has touched its granule. Gaps of strided reads count as read.
    """
    found = np.full((len(slabs), len(granules)), np.nan)
    if trail is None or not len(trail):
        return found
    probes = _probes(trail)
    one_by_one = trail.n_reads[probes] == 1
    selected = trail.selection.selected[probes]
    for j, granule in enumerate(granules):
        new = _new_points(trail, granule, alone)
        for i, slab in enumerate(slabs):
            alike = one_by_one & np.all(selected == np.multiply(slab.count, slab.block), axis=1)
            if alike.any():
                # The first read of all is new; a share of nothing would make all others warm.
                found[i, j] = max(float(new[alike].mean()), 1 / len(trail))
    return found


def _probes(trail: ReadTrail) -> NDArray[np.int64]:
    """Return rows of a trail that stand for all."""
    n = len(trail)
    return np.unique(np.linspace(0, n - 1, min(n, _MAX_PROBES)).astype(np.int64))


@lru_cache(maxsize=256)
def _new_points(trail: ReadTrail, granule: tuple[int, ...], alone: bool) -> NDArray[np.float64]:  # noqa: FBT001  (cached by position)
    """Return the share of each probe that is new, shape (number of probes,)."""
    slabs, shape = trail.selection, np.array(granule)
    selected = slabs.selected
    first = slabs.start // shape
    last = (slabs.start + (slabs.count - 1) * slabs.stride + slabs.block - 1) // shape
    probes = _probes(trail)
    rng = np.random.default_rng(0)
    inside = rng.random((_N_POINTS, len(probes), len(granule)))
    points = first[probes] + np.floor(inside * (last - first + 1)[probes]).astype(np.int64)
    new = np.zeros(len(probes))
    for k, row in enumerate(probes.tolist()):
        is_mine = trail.process[:row] == trail.process[row]
        if alone:
            is_mine &= np.all(selected[:row] == selected[row], axis=1)
        mine = np.flatnonzero(is_mine)
        at = points[:, k, np.newaxis]
        touched = np.all((first[mine] <= at) & (at <= last[mine]), axis=2).any(axis=1)
        new[k] = 1 - touched.mean()
    return new
