"""Boxes of a source that cover a list of tiles, and the pieces of tiles in each.

Pure. The source is cut into cells, boxes of one shape that lie side by side from its
origin on. Those that hold anything wanted are found; neighbours are joined into boxes, as long as
they stay small enough. So every cell is read once, and none that nothing is wanted of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sds.errors import UnsupportedError
from sds.geometry import tile_grid
from sds.organizer.plans.reorganization_plan import Slab, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from sds.geometry import SegmentList

MAX_CELLS = 1 << 21
"""Parts of tiles in cells; the list of them takes memory while it is made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """The part of one tile that lies in a box of the source.

    Attributes
    ----------
    place
        Of the tile in the replica.
    in_source
        The piece, in the axes of the source.
    in_tile
        The same from the first element of the tile on.
    """

    place: int
    in_source: Slab
    in_tile: Slab


@dataclass(frozen=True, slots=True, kw_only=True)
class GatheredBox:
    """A box of the source that is read at once, no larger than what is wanted of it."""

    box: Slab
    pieces: tuple[Piece, ...]


def boxes_of_tiles(
    segments: SegmentList,
    extent: Sequence[int],
    *,
    cell_shape: Sequence[int],
    cells_of_box: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return boxes of cells that hold all tiles and share no cell, in the order of the source.

    Parameters
    ----------
    cells_of_box
        No box has more.

    Returns
    -------
    first, count
        In cells, shape (n, rank).

    Raises
    ------
    UnsupportedError
        If tiles lie across very many cells.
    """
    first = _cells_of_tiles(segments, extent, cell_shape)
    count = np.ones_like(first)
    for axis in reversed(range(first.shape[1])):
        first, count = _joined(first, count, axis, cells_of_box)
    order = np.lexsort(first.T[::-1])
    return first[order], count[order]


def _cells_of_tiles(
    segments: SegmentList, extent: Sequence[int], cell_shape: Sequence[int]
) -> NDArray[np.int64]:
    """Return the cells in which any element of a tile lies, each once; shape (n, rank)."""
    tiles = _indices(segments.tiles, tile_grid(extent, segments.tile_shape))
    cell = np.array(cell_shape, np.int64)
    size = np.array(segments.tile_shape, np.int64)
    start = tiles * size
    end = start + np.minimum(size, np.array(extent, np.int64) - start)
    low, high = start // cell, (end - 1) // cell
    owner = np.arange(len(tiles))
    columns: list[NDArray[np.int64]] = []
    for axis in range(len(cell)):
        counts = (high[:, axis] - low[:, axis] + 1)[owner]
        if counts.sum(dtype=np.float64) > MAX_CELLS:
            message = (
                f"tiles of {shown(segments.tile_shape)} elements lie across more than "
                f"{MAX_CELLS} pieces of {shown(cell_shape)}, in which the dataset is read: "
                "gather fewer tiles, or such as are multiples of its chunks"
            )
            raise UnsupportedError(message)
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        columns = [np.repeat(column, counts) for column in columns]
        owner = np.repeat(owner, counts)
        columns.append(low[owner, axis] + within)
    grid = tile_grid(extent, cell_shape)
    numbers = np.unique(np.ravel_multi_index(tuple(columns), grid))
    return _indices(numbers, grid)


def _indices(numbers: Sequence[int] | NDArray[np.int64], grid: Sequence[int]) -> NDArray[np.int64]:
    """Return the index on each axis of numbered boxes of a grid; shape (n, rank)."""
    found = np.unravel_index(np.asarray(numbers, np.int64), grid)
    return np.stack(found, axis=1).astype(np.int64)


def _joined(
    first: NDArray[np.int64], count: NDArray[np.int64], axis: int, cells_of_box: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Join boxes of one cell on an axis with their neighbours there, where they are alike else."""
    others = [other for other in range(first.shape[1]) if other != axis]
    alike = np.concatenate([first[:, others], count[:, others]], axis=1)
    order = np.lexsort((first[:, axis], *alike.T))
    first, count, alike = first[order], count[order], alike[order]
    follows = np.zeros(len(first), bool)
    follows[1:] = (alike[1:] == alike[:-1]).all(axis=1)
    follows[1:] &= first[1:, axis] == first[:-1, axis] + 1
    run_begins = np.flatnonzero(~follows)
    within = np.arange(len(first)) - np.repeat(run_begins, np.diff(run_begins, append=len(first)))
    most = np.maximum(1, cells_of_box // count.prod(axis=1))
    begins = np.flatnonzero(within % most == 0)
    count[begins, axis] = np.diff(begins, append=len(first))
    return first[begins], count[begins]


class TilePlaces:
    """The tiles of a list by where they lie in the source."""

    def __init__(self, segments: SegmentList, extent: Sequence[int]) -> None:
        self._extent = extent
        self._tile_shape = segments.tile_shape
        self._grid = tile_grid(extent, segments.tile_shape)
        numbers = np.array(segments.tiles, np.int64)
        self._places = np.argsort(numbers)
        self._numbers = numbers[self._places]
        self._indices = _indices(self._numbers, self._grid)

    def gathered(self, box: Slab) -> GatheredBox:
        """Return a box cut down to the parts of tiles in it, together with these parts."""
        pieces = self._pieces(box)
        low = [min(axis) for axis in zip(*(piece.in_source.start for piece in pieces), strict=True)]
        high = [max(axis) for axis in zip(*(piece.in_source.end for piece in pieces), strict=True)]
        shape = tuple(b - a for a, b in zip(low, high, strict=True))
        return GatheredBox(box=Slab(start=tuple(low), shape=shape), pieces=pieces)

    def _pieces(self, box: Slab) -> tuple[Piece, ...]:
        """Return what a box holds of tiles, in the order in which the replica holds them."""
        low = [a // size for a, size in zip(box.start, self._tile_shape, strict=True)]
        high = [(a - 1) // size for a, size in zip(box.end, self._tile_shape, strict=True)]
        begin, end = np.searchsorted(
            self._numbers, [_number(low, self._grid), _number(high, self._grid) + 1]
        )
        candidates = self._indices[begin:end]
        inside = ((candidates >= low) & (candidates <= high)).all(axis=1)
        places = self._places[begin:end][inside]
        order = np.argsort(places)
        return tuple(
            self._piece(place, index, box)
            for place, index in zip(
                places[order].tolist(), candidates[inside][order].tolist(), strict=True
            )
        )

    def _piece(self, place: int, index: Sequence[int], box: Slab) -> Piece:
        origin = [i * size for i, size in zip(index, self._tile_shape, strict=True)]
        start = tuple(max(a, b) for a, b in zip(origin, box.start, strict=True))
        ends = zip(origin, self._tile_shape, box.end, strict=True)
        shape = tuple(min(a + n, b) - c for (a, n, b), c in zip(ends, start, strict=True))
        within = tuple(a - b for a, b in zip(start, origin, strict=True))
        return Piece(
            place=place,
            in_source=Slab(start=start, shape=shape),
            in_tile=Slab(start=within, shape=shape),
        )


def slab_of_cells(
    first: Sequence[int], count: Sequence[int], cell_shape: Sequence[int], extent: Sequence[int]
) -> Slab:
    """Return a box of cells as one of elements, cut off where the source ends."""
    start = tuple(a * size for a, size in zip(first, cell_shape, strict=True))
    shape = tuple(
        min(n * size, end - a)
        for n, size, end, a in zip(count, cell_shape, extent, start, strict=True)
    )
    return Slab(start=start, shape=shape)


def _number(index: Sequence[int], grid: Sequence[int]) -> int:
    number = 0
    for i, n in zip(index, grid, strict=True):
        number = number * n + i
    return number
