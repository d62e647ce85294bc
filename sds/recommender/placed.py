"""Where reads by several processes at one time lie in a file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from sds.errors import SimulationLimitError
from sds.geometry import ContiguousLayout, Hyperslab, ProcessReads
from sds.geometry.chunk_selection import ChunkGrid, reads_of_chunks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sds.geometry import ArrayLayout

# Of where other processes read, of which only their number is known.
_SEED = 20140701


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedRead:
    """Where reads by several processes at one time lie in a file.

    Attributes
    ----------
    extent, element_size_bytes, data_offset_bytes
        Of the array, in the axis order in which it is stored.
    slabs
        What each process reads, in that order; they differ in where they begin alone.
    is_chunks
        Whether each element is a chunk, which HDF5 asks for by itself.
    """

    extent: tuple[int, ...]
    element_size_bytes: int
    data_offset_bytes: int
    slabs: tuple[Hyperslab, ...]
    is_chunks: bool = False

    @classmethod
    def of(
        cls,
        extent: tuple[int, ...],
        slab: Hyperslab,
        layout: ArrayLayout,
        *,
        n_processes: int = 1,
    ) -> Self:
        """Return a read of an array by the axes of its readers, and others like it elsewhere.

        Raises
        ------
        SimulationLimitError
            If it skips chunks unevenly, so that those needed are no hyperslab.
        """
        rank = len(extent)
        order = tuple(range(rank)) if layout.order is None else layout.order
        stored = tuple(extent[axis] for axis in order)
        if isinstance(layout, ContiguousLayout):
            slabs = _alike(slab, extent, n_processes, steps=(1,) * rank)
            return cls(
                extent=stored,
                element_size_bytes=layout.element_size_bytes,
                data_offset_bytes=layout.data_offset_bytes,
                slabs=tuple(each.permuted(order) for each in slabs),
            )
        grid = ChunkGrid.of(stored, layout)
        steps = [grid.chunk_shape[order.index(axis)] for axis in range(rank)]
        slabs = _alike(slab, extent, n_processes, steps=steps)
        chunks = reads_of_chunks(ProcessReads.of([each.permuted(order) for each in slabs]), grid)
        if chunks is None:
            raise SimulationLimitError("it skips chunks unevenly")
        return cls(
            extent=grid.in_file,
            element_size_bytes=grid.layout.element_size_bytes,
            data_offset_bytes=grid.layout.data_offset_bytes,
            slabs=tuple(chunks[i] for i in range(len(slabs))),
            is_chunks=True,
        )


def _alike(
    slab: Hyperslab, extent: tuple[int, ...], n_processes: int, *, steps: Sequence[int]
) -> tuple[Hyperslab, ...]:
    """Return a selection and the same at other places, as many as processes; always the same ones.

    steps: per axis; others begin whole steps away, so that all touch as many chunks of that length.
    The places are drawn without them: in other chunks, or in none, they are nearly the same.
    """
    random = np.random.default_rng(_SEED)
    room = [
        length - (count - 1) * stride - block + 1
        for length, (_, stride, count, block) in zip(extent, slab.axes(), strict=True)
    ]
    others = [
        Hyperslab(
            start=tuple(
                _whole_steps_from(start, int(random.integers(max(1, places))), step)
                for start, places, step in zip(slab.start, room, steps, strict=True)
            ),
            stride=slab.stride,
            count=slab.count,
            block=slab.block,
        )
        for _ in range(n_processes - 1)
    ]
    return slab, *others


def _whole_steps_from(start: int, drawn: int, step: int) -> int:
    """Return the last index up to the one drawn that is whole steps from a start, or the first.

    >>> [_whole_steps_from(5, drawn, 4) for drawn in (0, 1, 4, 5, 12, 13)]
    [1, 1, 1, 5, 9, 13]
    """
    last = drawn - (drawn - start) % step
    return last if last >= 0 else last + step
