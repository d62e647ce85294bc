"""Pieces of a dataset that are read again and again, in groups that are read one after the other.

1. The dataset is cut into tiles (`sds.geometry.segments`). A read visits the tiles that it touches.
2. Of two visits of one process, one right behind the other, the second's tile follows the first's.
   Tiles of one read are requested at once: neighbours among them follow each other.
3. A tile has another for a successor where that followed at least `BEST` of the last `OF_LAST`
   times that the tile was read.
4. Groups are the strongly connected components of that graph: tiles from each of which reads have
   come to every other and back.

Source: Zhang 2009 (SOGP), Sec. 3: Recent Popularity ("best j out of the last k") and its groups;
its pieces are aligned extents of a file.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from sds.analyzer.logical_reads import Int64
from sds.errors import LayoutError, SdsValueError
from sds.geometry import (
    MAX_TILES,
    MAX_TILES_OF_READ,
    SegmentList,
    tile_grid,
    tiles_touched,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from sds.analyzer.read_history import ReadTrail

BEST, OF_LAST = 2, 8
"""A successor that came once may be chance. On simulated zooming into five places (views that never
repeat, 600 and 3000 reads, tiles of 64 and 128) 2 of 8 gathered nine tiles of ten in groups, a
segment of 1.05 places in the mean; 2 of 4 seven of ten (1.3 places), 3 of 8 eight (1.3)."""

MIN_READS = 2
"""Times that a tile was read, from which on it is taken to be read again."""

MAX_SEGMENT_BYTES = 16 << 20
"""Largest segment, bytes: as in Zhang 2009, and what is announced to the kernel at once."""

LOOSE_SEGMENT_BYTES = 1 << 20
"""Largest segment of ungrouped tiles, bytes: reading it costs a disk about as much as a seek."""

_MAX_VISITS = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TileVisits:
    """Visits of the reads of a trail to tiles: v of them, in order of time.

    Attributes
    ----------
    row
        Of the trail, shape (v,), ascending.
    tile
        Shape (v,), ascending within a read.
    process, turn
        Whose read it is, and how many that process had made before it, shape (v,).
    """

    row: Int64
    tile: Int64
    process: Int64
    turn: Int64

    def __len__(self) -> int:
        return len(self.row)

    def arrivals(self) -> TileVisits:
        """Return the visits with which a process comes to a tile.

        Where its read right before touched the tile as well it has stayed: a plane that is read
        line by line is not read again.
        """
        order = np.lexsort((self.turn, self.tile, self.process))
        stays = np.ones(len(self), dtype=np.bool_)
        stays[:1] = False
        for column, step in ((self.process, 0), (self.tile, 0), (self.turn, 1)):
            stays[1:] &= np.diff(column[order]) == step
        return self.rows(np.sort(order[~stays]))

    def rows(self, index: Int64) -> TileVisits:
        """Return some of the visits."""
        return TileVisits(
            row=self.row[index],
            tile=self.tile[index],
            process=self.process[index],
            turn=self.turn[index],
        )

    def earlier(self) -> Int64:
        """Return how often the tile of each visit was visited before, shape (v,)."""
        return _places_in_group(self.tile)

    def later(self) -> Int64:
        """Return how often the tile of each visit is visited after it, shape (v,)."""
        return _places_in_group(self.tile[::-1])[::-1]


def tile_visits(trail: ReadTrail, tile_shape: Sequence[int]) -> TileVisits:
    """Return the tiles that reads of a trail touch.

    Walks are left out, and reads of more tiles than segments serve. Of reads that touch
    more than a million tiles together the newest are taken.

    Raises
    ------
    LayoutError
        If the dataset cannot be cut in such tiles.
    """
    _check_tile(tile_shape, trail.extent)
    sizes = np.array(tile_shape, dtype=np.int64)
    slabs = trail.selection
    end = slabs.start + (slabs.count - 1) * slabs.stride + slabs.block
    first, last = slabs.start // sizes, (end - 1) // sizes
    # In floating point: a product of many long axes is only compared.
    n_tiles = np.prod((last - first + 1).astype(np.float64), axis=1)
    single = trail.n_reads == 1
    dense = np.all((slabs.count <= 1) | (slabs.stride - slabs.block < sizes), axis=1)
    listed = {
        row: touched
        for row in np.flatnonzero(single & ~dense).tolist()
        if (touched := tiles_touched(trail.slab(row), tile_shape, trail.extent)) is not None
    }
    rows = single & dense & (n_tiles <= MAX_TILES_OF_READ)
    rows[list(listed)] = True
    n_tiles[list(listed)] = [len(touched) for touched in listed.values()]
    index = np.flatnonzero(rows)
    n = n_tiles[index].astype(np.int64)
    enough = int(np.searchsorted(np.cumsum(n[::-1]), _MAX_VISITS, side="right"))
    index, n = index[len(index) - enough :], n[len(n) - enough :]
    row = np.repeat(index, n)
    begin = np.cumsum(n) - n
    left = np.arange(len(row)) - np.repeat(begin, n)
    tile = np.zeros(len(row), dtype=np.int64)
    n_before = 1  # tiles of the grid from one index of the axis to the next
    for axis, n_on_axis in reversed(list(enumerate(tile_grid(trail.extent, tile_shape)))):
        left, at = np.divmod(left, (last - first + 1)[row, axis])
        tile += (first[row, axis] + at) * n_before
        n_before *= n_on_axis
    for at_row, i in zip(index.tolist(), begin.tolist(), strict=True):
        if at_row in listed:
            tile[i : i + len(listed[at_row])] = listed[at_row]
    turns = _places_in_group(trail.process)
    return TileVisits(row=row, tile=tile, process=trail.process[row], turn=turns[row])


def tile_reads(trail: ReadTrail, tile_shape: Sequence[int]) -> tuple[Int64, Int64]:
    """Return the numbers of the tiles that were read, ascending, and how often each was.

    Of reads of one process right behind each other that touch a tile the first counts.

    Raises
    ------
    LayoutError
        If the dataset cannot be cut in such tiles.
    """
    return np.unique(tile_visits(trail, tile_shape).arrivals().tile, return_counts=True)


def recurring_segments(
    trail: ReadTrail,
    tile_shape: tuple[int, ...],
    *,
    element_size_bytes: int,
    min_reads: int = MIN_READS,
    best: int = BEST,
    of_last: int = OF_LAST,
) -> SegmentList | None:
    """Return the tiles that are read again and again, in segments; None where there are none.

    Parameters
    ----------
    tile_shape
        Elements per axis.
    min_reads
        Tiles that were read less often are not held; see `tile_reads`.
    best, of_last
        See `BEST`.

    Returns
    -------
    Groups in the order in which they were first read, their tiles likewise, cut at
    `MAX_SEGMENT_BYTES`; then tiles of no group in the order of their places, gathered up to
    `LOOSE_SEGMENT_BYTES`.

    Raises
    ------
    LayoutError
        If the dataset cannot be cut so, or more tiles recur than a replica can hold.
    SdsValueError
        If a number is not positive.
    """
    for name, value in (("min_reads", min_reads), ("best", best), ("of_last", of_last)):
        if value < 1:
            raise SdsValueError(f"{name} must be at least 1, not {value}")
    visits = tile_visits(trail, tile_shape)
    tiles, node = np.unique(visits.tile, return_inverse=True)
    _, n_reads = np.unique(visits.arrivals().tile, return_counts=True)
    recurs = n_reads >= min_reads
    n_recurring = int(np.count_nonzero(recurs))
    if n_recurring == 0:
        return None
    if n_recurring > MAX_TILES:
        shape = ",".join(map(str, tile_shape))
        raise LayoutError(
            f"{n_recurring} tiles of {shape} elements were read {min_reads} times or more, and a "
            f"replica holds at most {MAX_TILES}: name larger tiles (--tiles), or more reads "
            "(--min-reads)"
        )
    nodes = replace(visits, tile=node.reshape(-1))
    edges = _successors(trail, nodes, best=best, of_last=of_last)
    edges = edges[:, recurs[edges].all(axis=0)]
    tile_bytes = math.prod(tile_shape) * element_size_bytes
    segments = _segments(nodes, recurs, edges, tile_bytes)
    return SegmentList(
        tile_shape=tuple(tile_shape),
        tiles=tuple(tiles[np.concatenate(segments)].tolist()),
        lengths=tuple(len(segment) for segment in segments),
    )


def served_from(trail: ReadTrail, segments: SegmentList, *, min_reads: int) -> Int64:
    """Return after which read of a trail segments serve each of its reads, shape (n,).

    Parameters
    ----------
    min_reads
        Times that a tile has to be read before it is gathered; 0: the segments exist.

    Returns
    -------
    The row of the trail at which the last of a read's tiles had been read often enough, -1 where
    the segments exist; n where a tile is in none. Segments of the first k reads serve those with
    less than k: a forecast of the others, since it depends on nothing that came later.
    """
    visits = tile_visits(trail, segments.tile_shape)
    held = np.isin(visits.tile, np.array(segments.tiles, dtype=np.int64))
    known = np.full(len(visits), -1)
    if min_reads:
        tiles, node = np.unique(visits.tile, return_inverse=True)
        arrivals = visits.arrivals()
        enough = arrivals.rows(np.flatnonzero(arrivals.earlier() == min_reads - 1))
        known_of_tile = np.full(len(tiles), len(trail))
        known_of_tile[np.searchsorted(tiles, enough.tile)] = enough.row
        known = known_of_tile[node]
    known[~held] = len(trail)
    served = np.full(len(trail), -1)
    np.maximum.at(served, visits.row, known)
    touched = np.zeros(len(trail), dtype=np.bool_)
    touched[visits.row] = True
    return np.where(touched, served, len(trail))


def _check_tile(tile_shape: Sequence[int], extent: Sequence[int]) -> None:
    """Raise LayoutError unless a dataset can be cut in tiles of that shape."""
    fits = len(tile_shape) == len(extent) and all(
        1 <= size <= n for size, n in zip(tile_shape, extent, strict=True)
    )
    if not fits:
        shown = ",".join(map(str, tile_shape))
        raise LayoutError(
            f"tiles of {shown or 'no'} elements in a dataset of {'x'.join(map(str, extent))}: give "
            "each of its axes a length, from 1 to that of the axis"
        )


def _places_in_group(values: Int64) -> Int64:
    """Return how many equal values come before each, shape (n,)."""
    order = np.argsort(values, kind="stable")
    first = np.flatnonzero(np.diff(values[order], prepend=-1))
    sizes = np.diff(np.append(first, len(values)))
    places = np.empty_like(values)
    places[order] = np.arange(len(values)) - np.repeat(first, sizes)
    return places


def _successors(trail: ReadTrail, visits: TileVisits, *, best: int, of_last: int) -> Int64:
    """Return the edges of the successor graph, (from, to), shape (2, m)."""
    recent = visits.later() < of_last
    # The visits of each process behind each other.
    order = np.argsort(trail.process[visits.row], kind="stable")
    process = trail.process[visits.row[order]]
    before, behind = order[:-1], order[1:]
    same = process[:-1] == process[1:]
    before, behind = before[same], behind[same]
    together = visits.row[before] == visits.row[behind]
    visit = np.concatenate([before, behind[together]])
    follower = visits.tile[np.concatenate([behind, before[together]])]
    counts = recent[visit] & (visits.tile[visit] != follower)
    # What follows a visit in two ways counts once.
    n = int(visits.tile.max(initial=0)) + 1
    visit, follower = np.divmod(np.unique(visit[counts] * n + follower[counts]), n)
    edges, times = np.unique(visits.tile[visit] * n + follower, return_counts=True)
    successors: Int64 = np.stack(np.divmod(edges[times >= best], n))
    return successors


def _segments(
    visits: TileVisits, recurs: NDArray[np.bool_], edges: Int64, tile_bytes: int
) -> list[Int64]:
    """Return the nodes of each segment."""
    from scipy.sparse import coo_array  # noqa: PLC0415  (slow to import: no start needs it)
    from scipy.sparse.csgraph import connected_components  # noqa: PLC0415

    n = len(recurs)
    graph = coo_array((np.ones(edges.shape[1]), (edges[0], edges[1])), shape=(n, n))
    _, group = connected_components(graph, connection="strong")
    sizes = np.bincount(group, minlength=n)
    first_visit = np.full(n, len(visits))
    np.minimum.at(first_visit, visits.tile, np.arange(len(visits)))
    first_of_group = np.full(n, len(visits))
    np.minimum.at(first_of_group, group, first_visit)
    grouped = np.flatnonzero(recurs & (sizes[group] > 1))
    grouped = grouped[np.lexsort((first_visit[grouped], first_of_group[group[grouped]]))]
    bounds = np.flatnonzero(np.diff(group[grouped])) + 1
    most = max(1, MAX_SEGMENT_BYTES // tile_bytes)
    segments = [
        part for nodes in np.split(grouped, bounds) if len(nodes) for part in _cut(nodes, most)
    ]
    loose = np.flatnonzero(recurs & (sizes[group] == 1))
    return segments + _cut(loose, max(1, LOOSE_SEGMENT_BYTES // tile_bytes))


def _cut(nodes: Int64, most: int) -> list[Int64]:
    """Split nodes into nonempty parts of bounded size."""
    return [nodes[i : i + most] for i in range(0, len(nodes), most)]
