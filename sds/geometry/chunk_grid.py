"""Features of a read of a chunked dataset whose chunks' offsets are unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sds.geometry.dataspace import Hyperslab
from sds.geometry.features import BlockFeatures, block_features
from sds.geometry.storage_layout import ContiguousLayout

if TYPE_CHECKING:
    from sds.geometry.storage_layout import RaidLayout, StripeLayout


def chunk_features(
    extent: tuple[int, ...],
    chunk_shape: tuple[int, ...],
    slab: Hyperslab,
    stripes: StripeLayout,
    raid: RaidLayout,
    *,
    chunk_bytes: int,
    budget_s: float | None = None,
) -> BlockFeatures:
    """Return the features of reading a selection of a dataset whose chunks are read whole.

    Parameters
    ----------
    extent, slab
        In the axes in which it is stored.
    chunk_bytes
        Of one chunk in the file.
    stripes, raid, budget_s
        As for `block_features`.

    Notes
    -----
    Chunks are taken to lie in C order of the chunk grid, one after the other. HDF5 guarantees
    neither.
    """
    grid = tuple(-(-n // c) for n, c in zip(extent, chunk_shape, strict=True))
    layout = ContiguousLayout(element_size_bytes=chunk_bytes, data_offset_bytes=0, order=None)
    touched = chunks_touched(slab, chunk_shape)
    return block_features(grid, touched, layout, stripes, raid, budget_s=budget_s)


def chunks_touched(slab: Hyperslab, chunks: tuple[int, ...]) -> Hyperslab:
    """Return the chunks that a selection touches, as a selection of the chunk grid.

    Exact in number. Where steps are longer than a chunk and no multiple of it, the chunks are
    evenly spaced here and only nearly so in truth.
    """
    start, stride, count = [], [], []
    for axis, length in enumerate(chunks):
        s, step = int(slab.start[axis]), int(slab.stride[axis])
        n, block = int(slab.count[axis]), int(slab.block[axis])
        first = s // length
        last = (s + (n - 1) * step + block - 1) // length if n and block else first - 1
        if n <= 1 or step - block < length:
            # Holes are shorter than a chunk: no chunk in between is left out.
            start.append(first)
            stride.append(1)
            count.append(last - first + 1)
        else:
            per_block = (s % length + block - 1) // length + 1
            if per_block > 1:
                start.append(first)
                stride.append(1)
                count.append(min(last - first + 1, n * per_block))
            else:
                start.append(first)
                stride.append(max(1, (last - first) // (n - 1)))
                count.append(n)
    ones = (1,) * len(chunks)
    return Hyperslab(start=tuple(start), stride=tuple(stride), count=tuple(count), block=ones)
