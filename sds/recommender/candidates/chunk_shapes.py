"""Chunk shapes fitted to how a dataset is read.

A read takes whole chunks: long ones along an axis that a read spans are few, but hold much that a
read along another axis does not want. Which shape is best follows from the reads alone, from what
a request costs and from what a byte costs; there is no good shape without them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np

from sds import _native
from sds.geometry import (
    MAX_CHUNK_BYTES,
    MAX_CHUNKS,
    ContiguousLayout,
    Hyperslab,
    block_features,
    n_chunks,
)
from sds.recommender.models.read_cost import predict_read

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from sds.recommender.models.cost_model import CostModel
    from sds.recommender.models.read_cost import StoredArray

_MAX_RANK_OF_PAIRS = 8  # beyond, two axes are not moved at once: there are too many pairs
_MAX_STEPS = 64
_SMALL_BYTES = 4096
_FAR_BYTES = 16 << 20
_N_FAR = 64
_LONG_BYTES = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedRead:
    """Read class of a dataset, with its weight.

    Attributes
    ----------
    slab
        A typical one; where it begins is taken to be any place.
    weight
        How often it is made.
    now_s
        What it takes in the layouts that exist: a shape that is worse is not used for it.
    """

    slab: Hyperslab
    weight: float
    now_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkCosts:
    """Costs of reading chunks, seconds: per chunk, per stretch of the file, per decoded byte."""

    chunk_s: float
    request_s: float
    byte_s: float

    @classmethod
    def of(
        cls, model: CostModel, array: StoredArray, *, decode_s_per_byte: float, stored_share: float
    ) -> ChunkCosts:
        """Return the costs that a model implies, from what it predicts for four simple reads."""
        near = _predicted(model, array, n=1, length_bytes=_SMALL_BYTES)
        far = _predicted(model, array, n=_N_FAR + 1, length_bytes=_SMALL_BYTES)
        short = _predicted(model, array, n=1, length_bytes=_LONG_BYTES)
        long = _predicted(model, array, n=1, length_bytes=2 * _LONG_BYTES)
        return cls(
            chunk_s=_native.HDF5_CHUNK_S,
            request_s=max(0.0, far - near) / _N_FAR,
            byte_s=stored_share * max(0.0, long - short) / _LONG_BYTES + decode_s_per_byte,
        )


def _predicted(model: CostModel, array: StoredArray, *, n: int, length_bytes: int) -> float:
    """Return the predicted time of n runs far apart."""
    slab = Hyperslab(start=(0, 0), stride=(1, 1), count=(n, length_bytes), block=(1, 1))
    layout = ContiguousLayout(element_size_bytes=1)
    extent = (n, max(_FAR_BYTES, length_bytes))
    features = block_features(extent, slab, layout, array.stripes, array.raid)
    return predict_read(model, array, features).seconds


def expected_chunks(slab: Hyperslab, chunk_shape: Sequence[int], extent: Sequence[int]) -> float:
    """Return how many chunks a selection touches in the mean over the places where it may begin.

    >>> line = Hyperslab(start=(0,), stride=(1,), count=(11,), block=(1,))
    >>> expected_chunks(line, (10,), (100,))
    2.0
    """
    return float(np.prod(_per_axis(slab, chunk_shape, extent)))


def _per_axis(
    slab: Hyperslab, chunk_shape: Sequence[int], extent: Sequence[int]
) -> NDArray[np.float64]:
    """Return the chunks touched in the mean, per axis."""
    touched = []
    for (_, step, count, block), chunk, n in zip(slab.axes(), chunk_shape, extent, strict=True):
        grid = -(-n // chunk)
        if count <= 1 or step - block < chunk:
            span = (count - 1) * step + block if count else 0
            mean = 1.0 + (span - 1) / chunk
        else:
            mean = count * (1.0 + (block - 1) / chunk)
        touched.append(min(float(grid), mean))
    return np.array(touched)


def chunked_seconds(
    slab: Hyperslab,
    chunk_shape: Sequence[int],
    extent: Sequence[int],
    *,
    element_size_bytes: int,
    costs: ChunkCosts,
) -> float:
    """Return what a read costs in the mean from chunks that lie in C order of their grid."""
    touched = _per_axis(slab, chunk_shape, extent)
    chunks = float(np.prod(touched))
    runs = chunks
    for axis in reversed(range(len(extent))):
        # Along the axis that is cut first, counted from the last, neighbours follow each other.
        runs /= max(1.0, touched[axis])
        if touched[axis] < -(-extent[axis] // chunk_shape[axis]):
            break
    chunk_bytes = math.prod(chunk_shape) * element_size_bytes
    return float(runs * costs.request_s + chunks * (costs.chunk_s + chunk_bytes * costs.byte_s))


def fit_chunk_shape(
    reads: Sequence[WeightedRead],
    extent: tuple[int, ...],
    element_size_bytes: int,
    *,
    costs: ChunkCosts,
) -> tuple[int, ...] | None:
    """Return the chunk shape in which reads are made in the least time; None where there is none.

    Parameters
    ----------
    reads
        Of the dataset, in its axes.

    Notes
    -----
    A search from several beginnings (each read's own box, the whole array, one element), in steps
    that change one axis, or lengthen one and shorten another, as long as any step gains. Lengths
    are those that cut an axis evenly. Of equals the shape with the largest chunks: fewer of them.
    """
    if not reads or not extent or min(extent) < 1 or element_size_bytes > MAX_CHUNK_BYTES:
        return None
    lengths = [_lengths(n) for n in extent]

    def cost(shape: tuple[int, ...]) -> tuple[float, float]:
        total = 0.0
        for read in reads:
            seconds = chunked_seconds(
                read.slab, shape, extent, element_size_bytes=element_size_bytes, costs=costs
            )
            total += read.weight * min(read.now_s, seconds)
        return total, -math.prod(shape)

    def fits(shape: tuple[int, ...]) -> bool:
        return (
            math.prod(shape) * element_size_bytes <= MAX_CHUNK_BYTES
            and n_chunks(extent, shape) <= MAX_CHUNKS
        )

    found: tuple[tuple[float, float], tuple[int, ...]] | None = None
    boxes = [tuple(c * b for c, b in zip(r.slab.count, r.slab.block, strict=True)) for r in reads]
    for box in dict.fromkeys((*boxes, extent, (1,) * len(extent))):
        shape = _shrunk(box, lengths, element_size_bytes)
        if not fits(shape):
            continue
        best = cost(shape)
        for _ in range(_MAX_STEPS):
            steps = ((cost(s), s) for s in _neighbours(shape, lengths) if fits(s))
            least = min(steps, default=(best, shape))
            if least[0] >= best:
                break
            best, shape = least
        if found is None or (best, shape) < found:
            found = best, shape
    return None if found is None else found[1]


def _lengths(n: int) -> tuple[int, ...]:
    """Return lengths that cut n indices evenly into 1, 2, 3, 4, 6, 8, 12, ... pieces, ascending."""
    pieces, lengths = 1, {n, 1}
    while pieces < n:
        lengths |= {-(-n // pieces), -(-n // min(n, pieces + pieces // 2))}
        pieces *= 2
    return tuple(sorted(lengths))


def _shrunk(
    box: Sequence[int], lengths: Sequence[tuple[int, ...]], element_size_bytes: int
) -> tuple[int, ...]:
    """Return a box cut along its longest axes until a chunk can hold it, in allowed lengths."""
    at = [
        max(i for i, length in enumerate(of_axis) if length <= max(1, n))
        for n, of_axis in zip(box, lengths, strict=True)
    ]

    def shape() -> tuple[int, ...]:
        return tuple(of_axis[i] for i, of_axis in zip(at, lengths, strict=True))

    while math.prod(shape()) * element_size_bytes > MAX_CHUNK_BYTES:
        longest = max(range(len(at)), key=lambda a: shape()[a])
        at[longest] -= 1
    return shape()


def _neighbours(
    shape: tuple[int, ...], lengths: Sequence[tuple[int, ...]]
) -> Iterable[tuple[int, ...]]:
    """Yield shapes with another length on one axis, or one step more here and one less there."""
    for axis, of_axis in enumerate(lengths):
        for length in of_axis:
            if length != shape[axis]:
                yield (*shape[:axis], length, *shape[axis + 1 :])
    if len(shape) > _MAX_RANK_OF_PAIRS:
        return
    for longer, shorter in permutations(range(len(shape)), 2):
        up = lengths[longer].index(shape[longer]) + 1
        down = lengths[shorter].index(shape[shorter]) - 1
        while up < len(lengths[longer]) and down >= 0:
            changed = list(shape)
            changed[longer], changed[shorter] = lengths[longer][up], lengths[shorter][down]
            yield tuple(changed)
            up, down = up + 1, down - 1
