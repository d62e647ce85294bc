"""What a read takes of the tiles that it touches, and what that costs."""

from __future__ import annotations

import math
from collections import Counter
from itertools import product
from typing import TYPE_CHECKING

from sds.geometry import Hyperslab, chunks_on_axis

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MAX_PREDICTED = 8
"""Pieces of a read that are predicted each by itself, as the connector does (prediction.cpp)."""


def pieces_in_tiles(slab: Hyperslab, tile_shape: Sequence[int]) -> Counter[Hyperslab]:
    """Return what a read takes of its tiles, in the axes of a tile, and of how many it takes that.

    Where in its tile a piece begins is left out: it begins at 0. Of blocks that a border between
    tiles cuts as many count in each tile as begin or end there, as far as they fit.
    """
    axes = [
        _on_axis(start, stride, count, block, size)
        for (start, stride, count, block), size in zip(slab.axes(), tile_shape, strict=True)
    ]
    pieces: Counter[Hyperslab] = Counter()
    for parts in product(*(axis.items() for axis in axes)):
        strides, counts, blocks = zip(*(part for part, _ in parts), strict=True)
        piece = Hyperslab(start=(0,) * slab.rank, stride=strides, count=counts, block=blocks)
        pieces[piece] += math.prod(n for _, n in parts)
    return pieces


def _on_axis(
    start: int, stride: int, count: int, block: int, size: int
) -> Counter[tuple[int, int, int]]:
    """Return (stride, count, block) of the pieces on one axis, and how many are alike."""
    parts: Counter[tuple[int, int, int]] = Counter()
    if count <= 1 or stride == block:
        end = start + count * block
        first, last = start // size, (end - 1) // size
        if first == last:
            parts[1, 1, end - start] += 1
            return parts
        parts[1, 1, (first + 1) * size - start] += 1
        parts[1, 1, end - last * size] += 1
        if last - first > 1:
            parts[1, 1, size] += last - first - 1
        return parts
    for tile in chunks_on_axis(start, stride, count, block, size).tolist():
        begin = tile * size
        first = max(0, -((start + block - 1 - begin) // stride))
        last = min(count - 1, (begin + size - 1 - start) // stride)
        n = min(last - first + 1, (size - 1) // stride + 1)
        part = min(block, size - (n - 1) * stride)
        parts[stride if n > 1 else 1, n, part] += 1
    return parts


def seconds_of_pieces(
    pieces: Counter[Hyperslab], seconds: Callable[[Hyperslab], float], *, start_s: float
) -> float:
    """Return what a read of pieces takes, at most: one after the other, none helping another.

    Of many pieces each counts as one that takes the most on every axis.

    Parameters
    ----------
    seconds
        Of each piece as a read of its own.
    start_s
        What any read takes, in those: it is paid once.
    """
    n = pieces.total()
    if n <= MAX_PREDICTED:
        times = {piece: seconds(piece) for piece in pieces}
    else:
        longest = max(pieces, key=lambda piece: (piece.n_elements, piece.stride))
        times, pieces = {longest: seconds(longest)}, Counter({longest: n})
    together = math.fsum(count * times[piece] for piece, count in pieces.items())
    return max(together - (n - 1) * start_s, *times.values(), 0.0)


def elements_around(piece: Hyperslab, tile_extent: Sequence[int]) -> int:
    """Return how many elements lie from the first of a piece to its last, as they are stored."""
    around, stride = 1, 1
    for (_, step, count, block), n in zip(piece.axes()[::-1], tile_extent[::-1], strict=True):
        around += ((count - 1) * step + block - 1) * stride
        stride *= n
    return around
