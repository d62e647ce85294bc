"""Reads that bring into memory what later reads of their process ask for.

A plane of one column touches nearly all of a file in row order, so that the next such plane finds
its bytes in memory; in a replica where each plane lies together it does not. And what stays with
the original finds less of it in memory when such planes go to a replica.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sds.analyzer import ReadTrail
from sds.geometry import Hyperslab

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sds.analyzer import ReadTimes
    from sds.geometry import ReplicaLayout
    from sds.recommender.models.read_cost import StoredArray

# Of a contiguous layout a read brings at least as much into memory: HDF5's buffer, and about what
# Linux reads ahead.
_GRANULE_BYTES = 64 << 10
# Reads of each shape that are looked at, and points of each.
_MAX_PROBES = 64
_N_POINTS = 4
# A read was cold where it took this share of what is predicted of that, and longer than a processor
# may be away; and cold reads are told from others where the slowest took so many times as long as
# the median.
_COLD_SHARE, _COLD_FACTOR = 0.5, 4.0
_LEAST_COLD_S = 0.01
_FEWEST = 5


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
    warmed_by: Sequence[Hyperslab] | None = None,
) -> NDArray[np.float64]:
    """Return the shares of reads that no earlier read of their process has touched.

    Parameters
    ----------
    trail
        The newest reads of the dataset; None: not known.
    slabs
        n reads: those of the trail count for one that select as much of each axis.
    granules
        Shapes of what is read together in m layouts, in the axes of the dataset.
    warmed_by
        Reads, by what they select of each axis, that bring anything into memory; None: those of the
        same shape alone.

    Returns
    -------
    Shape (n, m), from 0 to 1; nan where the trail has no such read.

    Notes
    -----
    Of at most 64 reads of a shape, and the first of each process, four points are looked at: one is
    new where no earlier read of the process has touched its granule. Gaps of strided reads count as
    read.
    """
    found = np.full((len(slabs), len(granules)), np.nan)
    if trail is None or not len(trail):
        return found
    selected = trail.selection.selected
    shapes = np.array([np.multiply(slab.count, slab.block) for slab in slabs])
    warms = np.ones(len(trail), dtype=np.bool_)
    if warmed_by is not None:
        warm_shapes = [np.multiply(slab.count, slab.block) for slab in warmed_by]
        warms = np.any([np.all(selected == shape, axis=1) for shape in warm_shapes], axis=0)
    for i, shape in enumerate(shapes):
        mine = np.all(selected == shape, axis=1)
        rows = np.flatnonzero(mine & (trail.n_reads == 1))
        if not len(rows):
            continue
        known = np.flatnonzero(mine if warmed_by is None else mine | warms)
        for j, granule in enumerate(granules):
            found[i, j] = _new_share(trail, rows, known, granule)
    return found


def _new_share(
    trail: ReadTrail, rows: NDArray[np.int64], known: NDArray[np.int64], granule: tuple[int, ...]
) -> float:
    """Return the share of reads, by their rows, that none of those known before has touched."""
    slabs, shape = trail.selection, np.array(granule)
    first = slabs.start // shape
    last = (slabs.start + (slabs.count - 1) * slabs.stride + slabs.block - 1) // shape
    _, first_rows = np.unique(trail.process[rows], return_index=True)
    others = np.delete(rows, first_rows)
    some = np.unique(np.linspace(0, max(0, len(others) - 1), _MAX_PROBES).astype(np.int64))
    probes = np.concatenate([rows[first_rows], others[some] if len(others) else others])
    inside = np.random.default_rng(0).random((_N_POINTS, len(probes), len(granule)))
    points = first[probes] + np.floor(inside * (last - first + 1)[probes]).astype(np.int64)
    new = np.zeros(len(probes))
    for k, row in enumerate(probes.tolist()):
        before = known[(known < row) & (trail.process[known] == trail.process[row])]
        at = points[:, k, np.newaxis]
        touched = np.all((first[before] <= at) & (at <= last[before]), axis=2).any(axis=1)
        new[k] = 1 - touched.mean()
    n_first = len(first_rows)
    of_others = float(new[n_first:].mean()) if len(others) else 0.0
    return (float(new[:n_first].sum()) + len(others) * of_others) / len(rows)


def share_begun_cold(times: ReadTimes | None, cold_s: float, new_share: float) -> float:
    """Return of how many reads that found nothing in memory the data were on the device, 0 to 1.

    Parameters
    ----------
    times
        Of reads of the original; None: not known.
    cold_s
        Predicted seconds of a cold one.
    new_share
        Share of them that no earlier read had touched.

    Returns
    -------
    nan where cold reads cannot be told from others. Means do not tell them: models of reads from
    memory err by more than a few cold ones add to it.
    """
    least_s = max(_COLD_SHARE * cold_s, _LEAST_COLD_S)
    if times is None or not new_share > 0 or not times.most_s >= least_s:
        return np.nan
    if times.n < _FEWEST or times.most_s < _COLD_FACTOR * times.median_s:
        return np.nan
    # A bucket holds times up to twice those at its lower end.
    n_cold = max(1, sum(n for b, n in times.histogram if np.ldexp(1e-9, b + 1) > least_s))
    return min(1.0, n_cold / (new_share * times.n))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OriginalWarmth:
    """Reads of an original that warm each other, n kinds of them.

    Attributes
    ----------
    trail, granule
        The newest reads of the dataset, and what is read together of it.
    slabs
        One read of each kind.
    reads_original
        Which are served by the original now, shape (n,).
    begun_cold
        Share of reads that found nothing in memory and had to wait for the device.
    cold_s, warm_s
        Predicted seconds of each from cold cache and from memory, shape (n,).
    per_day
        Number of each, shape (n,).
    """

    trail: ReadTrail
    granule: tuple[int, ...]
    slabs: tuple[Hyperslab, ...]
    reads_original: NDArray[np.bool_]
    begun_cold: float
    cold_s: NDArray[np.float64]
    warm_s: NDArray[np.float64]
    per_day: NDArray[np.float64]

    def in_order(self, index: NDArray[np.intp]) -> OriginalWarmth:
        """Return the same of the kinds in another order."""
        return replace(
            self,
            slabs=tuple(self.slabs[i] for i in index),
            reads_original=self.reads_original[index],
            cold_s=self.cold_s[index],
            warm_s=self.warm_s[index],
            per_day=self.per_day[index],
        )

    def lost_s_per_day(self, leaves: NDArray[np.bool_]) -> float:
        """Return by how much reads that stay take longer when others go to replicas, shape (n,)."""
        stays = np.flatnonzero(self.reads_original & ~leaves)
        if not len(stays) or not (self.reads_original & leaves).any():
            return 0.0
        slabs = [self.slabs[i] for i in stays]
        now = [self.slabs[i] for i in np.flatnonzero(self.reads_original)]
        new_now, new_then = (
            new_shares(self.trail, slabs, [self.granule], warmed_by)[:, 0]
            for warmed_by in (now, slabs)
        )
        more = np.fmax(0.0, np.nan_to_num(new_then - new_now))
        extra_s = self.begun_cold * more * (self.cold_s - self.warm_s)[stays]
        return float(np.fmax(0.0, extra_s) @ self.per_day[stays])
