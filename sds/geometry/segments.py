"""Pieces of a dataset that are read together, gathered from all over it.

A dataset is cut into tiles, boxes of one shape that lie side by side from its origin on; those at
the end of an axis are cut off there. A segment is a group of tiles that are read one after the
other (Zhang 2009, whose pieces are aligned extents of a file: tiles as long as the fastest axes
allow are just those).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from sds.errors import LayoutError
from sds.geometry.chunk_selection import chunks_on_axis
from sds.geometry.dataspace import Box, check_chunks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from sds.geometry.dataspace import Hyperslab

MAX_TILES = 1 << 14
"""Largest number of tiles of a replica. Every program that opens the source reads the list."""

MAX_TILES_OF_FILE = 1 << 16
"""Largest number of tiles in all replicas of a file: some 1 MiB, kept while it is open.

A table that finds no room in a process serves nothing of its file.
"""

MAX_TILES_OF_READ = 1 << 10
"""Largest number of tiles that serve a read: looking more up would cost more than it saves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentList:
    """Tiles of a dataset in segments, in the order in which a replica holds them.

    Attributes
    ----------
    tile_shape
        Elements per axis of the source.
    tiles
        Number of each tile in the grid of tiles, the last axis fastest; none twice.
    lengths
        Tiles of each segment; the first segment has the first tiles, and so on.
    """

    tile_shape: tuple[int, ...]
    tiles: tuple[int, ...]
    lengths: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.tile_shape or min(self.tile_shape) < 1:
            raise LayoutError(
                f"tiles of {self.tile_shape} elements: give each axis a length of at least 1"
            )
        if not 1 <= len(self.tiles) <= MAX_TILES:
            raise LayoutError(
                f"{len(self.tiles)} tiles; segments have 1 to {MAX_TILES}: make the tiles larger, "
                "or gather fewer"
            )
        if len(set(self.tiles)) < len(self.tiles):
            raise LayoutError("a tile is listed twice: name each once")
        if min(self.lengths, default=0) < 1 or sum(self.lengths) != len(self.tiles):
            raise LayoutError(
                f"segments of {sum(self.lengths)} tiles in all, but {len(self.tiles)} are listed: "
                "the lengths of segments, each at least 1, add up to all tiles"
            )

    @property
    def tile_elements(self) -> int:
        """Elements of a tile that is not cut off."""
        return math.prod(self.tile_shape)

    @property
    def n_elements(self) -> int:
        """Elements that a replica has room for; tiles that are cut off take as much as others."""
        return len(self.tiles) * self.tile_elements

    def check_within(self, extent: Sequence[int]) -> None:
        """Raise LayoutError unless these are tiles of a dataset of that extent."""
        check_chunks(self.tile_shape, extent)
        n_tiles = math.prod(tile_grid(extent, self.tile_shape))
        for number in (min(self.tiles), max(self.tiles)):
            if not 0 <= number < n_tiles:
                raise LayoutError(
                    f"tile {number}: the dataset has {n_tiles} of {self.tile_shape} elements, "
                    f"numbered from 0 to {n_tiles - 1}"
                )

    def box(self, number: int, extent: Sequence[int]) -> Box:
        """Return the box of a dataset that a tile holds."""
        start, length = [], []
        grid = tile_grid(extent, self.tile_shape)
        for n_tiles, size, n in zip(grid[::-1], self.tile_shape[::-1], extent[::-1], strict=True):
            number, index = divmod(number, n_tiles)
            start.append(index * size)
            length.append(min(size, n - index * size))
        return Box(start=tuple(start[::-1]), extent=tuple(length[::-1]))

    def around(self, extent: Sequence[int]) -> Box:
        """Return the smallest box that holds all tiles."""
        grid = tile_grid(extent, self.tile_shape)
        indices = np.unravel_index(np.array(self.tiles, dtype=np.int64), grid)
        low = [int(axis.min()) * size for axis, size in zip(indices, self.tile_shape, strict=True)]
        high = [
            min(n, (int(axis.max()) + 1) * size)
            for axis, size, n in zip(indices, self.tile_shape, extent, strict=True)
        ]
        lengths = tuple(end - begin for begin, end in zip(low, high, strict=True))
        return Box(start=tuple(low), extent=lengths)

    def holds(self, slab: Hyperslab, extent: Sequence[int]) -> bool:
        """Return whether a read of a dataset is served: all of it lies in tiles, and not in many.

        A read of nothing is not.
        """
        touched = tiles_touched(slab, self.tile_shape, extent)
        return touched is not None and set(self.tiles).issuperset(touched.tolist())

    def segments(self) -> list[tuple[int, ...]]:
        """Return the tiles of each segment."""
        ends = np.cumsum((0, *self.lengths)).tolist()
        return [self.tiles[begin:end] for begin, end in pairwise(ends)]


def tile_grid(extent: Sequence[int], tile_shape: Sequence[int]) -> tuple[int, ...]:
    """Return how many tiles a dataset has on each axis."""
    return tuple(-(-n // size) for n, size in zip(extent, tile_shape, strict=True))


def tiles_touched(
    slab: Hyperslab, tile_shape: Sequence[int], extent: Sequence[int]
) -> NDArray[np.int64] | None:
    """Return the numbers of the tiles that a selection touches, ascending.

    None where it selects nothing, or touches more than `MAX_TILES_OF_READ`.
    """
    axes = []
    n_tiles = 1
    for (start, stride, count, block), size in zip(slab.axes(), tile_shape, strict=True):
        # Not listed before it is known to be few.
        if count * block == 0 or _fewest_on_axis(stride, count, block, size) > MAX_TILES_OF_READ:
            return None
        axes.append(chunks_on_axis(start, stride, count, block, size))
        n_tiles *= len(axes[-1])
        if n_tiles > MAX_TILES_OF_READ:
            return None
    grid = tile_grid(extent, tile_shape)
    numbers: NDArray[np.int64] = reduce(
        lambda numbers, axis: (numbers[:, np.newaxis] * axis[1] + axis[0]).reshape(-1),
        zip(axes, grid, strict=True),
        np.zeros(1, dtype=np.int64),
    )
    return numbers


def _fewest_on_axis(stride: int, count: int, block: int, size: int) -> int:
    """Return a number of tiles that a selection touches at least on one axis."""
    span = (count - 1) * stride + block
    return -(-span // size) if stride - block < size or count == 1 else count
