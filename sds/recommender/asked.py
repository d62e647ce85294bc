"""What a read asks of the storage, as the simulator takes it.

HDF5 reads a contiguous dataset through its sieve buffer, the engine by its plan: neither asks for
the runs of a selection one by one. Here are the requests that they make instead, as hyperslabs
again; where a read has no such form, that is said.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from sds.engine import Cache, Executor, FileState, plan_selection
from sds.errors import SimulationLimitError
from sds.geometry import (
    BlockFeatures,
    ChunkedLayout,
    ContiguousLayout,
    Hyperslab,
    ProcessReads,
)
from sds.geometry.chunk_selection import ChunkGrid, reads_of_chunks
from sds.recommender.model import Via
from sds.simulator import Operation, ReadStrategy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sds.engine import IoParameters

_SIEVE_BYTES = 1 << 16  # of HDF5, unless a program sets another
# Requests may be so many times more or fewer than are really made.
_NEAR = 1.25
# Of so many requests one more or less is none.
_MANY = 16
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
        layout: ContiguousLayout | ChunkedLayout,
        *,
        n_processes: int = 1,
    ) -> Self:
        """Return a read of an array by the axes of its readers, and others like it elsewhere.

        Raises
        ------
        SimulationLimitError
            If it skips chunks unevenly, so that those needed are no hyperslab.
        """
        slabs = (slab, *_elsewhere(slab, extent, n_processes - 1))
        if layout.order is not None:
            slabs = tuple(each.permuted(layout.order) for each in slabs)
            extent = tuple(extent[axis] for axis in layout.order)
        if isinstance(layout, ContiguousLayout):
            return cls(
                extent=extent,
                element_size_bytes=layout.element_size_bytes,
                data_offset_bytes=layout.data_offset_bytes,
                slabs=slabs,
            )
        grid = ChunkGrid.of(extent, layout)
        chunks = reads_of_chunks(ProcessReads.of(slabs), grid)
        if chunks is None:
            raise SimulationLimitError("it skips chunks unevenly")
        return cls(
            extent=grid.in_file,
            element_size_bytes=grid.layout.element_size_bytes,
            data_offset_bytes=grid.layout.data_offset_bytes,
            slabs=tuple(chunks[i] for i in range(len(slabs))),
            is_chunks=True,
        )


def _elsewhere(slab: Hyperslab, extent: tuple[int, ...], n: int) -> list[Hyperslab]:
    """Return the same selection at n other places, always the same ones."""
    random = np.random.default_rng(_SEED)
    room = [
        length - (count - 1) * stride - block + 1
        for length, stride, count, block in zip(
            extent, slab.stride, slab.count, slab.block, strict=True
        )
    ]
    return [
        Hyperslab(
            start=tuple(int(random.integers(max(1, r))) for r in room),
            stride=slab.stride,
            count=slab.count,
            block=slab.block,
        )
        for _ in range(n)
    ]


def operation_of(
    read: PlacedRead,
    via: Via,
    *,
    features: BlockFeatures,
    parameters: IoParameters | None = None,
) -> Operation:
    """Return the requests that reads make which begin cold.

    Parameters
    ----------
    via
        Through HDF5: of a contiguous dataset what its sieve buffer asks for. By the engine: what
        it plans.
    features
        Of the read that touches most; its requests are compared with those returned.
    parameters
        By which the engine plans; None: the built-in ones.

    Raises
    ------
    SimulationLimitError
        If the requests have no such form, or too little is known of them.
    """
    if read.is_chunks:
        return _operation(_Progression.of(read))
    asked = _Progression.of(read)
    if via is Via.HDF5:
        if not features.exact:
            raise SimulationLimitError("what it touches could not be counted in time")
        asked.through_sieve()
        return _checked(_operation(asked), asked.n_requests, features.sieve_requests)
    layout = ContiguousLayout(
        element_size_bytes=read.element_size_bytes, data_offset_bytes=read.data_offset_bytes
    )
    plan = plan_selection(
        read.extent,
        read.slabs[0],
        layout,
        state=FileState(cache=Cache.COLD, may_map=False),
        parameters=parameters,
    )
    asked.read_along(plan.max_hole_bytes, plan.group_bytes)
    strategy = ReadStrategy.LIST if plan.executor is Executor.LIST else ReadStrategy.MULTIPLE
    operation = _operation(asked, strategy=strategy, depth=max(1, plan.queue_depth))
    return _checked(operation, asked.n_requests, plan.requests)


def _checked(operation: Operation, n: int, expected: int) -> Operation:
    """Return an operation if it makes about as many requests as are really made."""
    if not expected / _NEAR <= n <= expected * _NEAR:
        raise SimulationLimitError(
            f"its {expected} requests have no regular form ({n} would be the nearest)"
        )
    return operation


@dataclass(slots=True, kw_only=True)
class _Progression:
    """Selections of several processes in bytes along the last axis; only their starts differ.

    start: shape (processes, rank).
    """

    extent: list[int]
    start: NDArray[np.int64]
    stride: list[int]
    count: list[int]
    block: list[int]
    offset_bytes: int

    @classmethod
    def of(cls, read: PlacedRead) -> Self:
        """Return the selections of a read."""
        first = read.slabs[0]
        shapes = {(slab.stride, slab.count, slab.block) for slab in read.slabs}
        if len(shapes) > 1:
            raise SimulationLimitError("its processes read selections of several shapes")
        size = read.element_size_bytes
        start = np.array([slab.start for slab in read.slabs], dtype=np.int64)
        extent, stride = [*read.extent], [*first.stride]
        count, block = [*first.count], [*first.block]
        if not extent:  # a scalar
            extent, stride, count, block = [1], [1], [1], [1]
            start = np.zeros((len(read.slabs), 1), dtype=np.int64)
        start[:, -1] *= size
        extent[-1], stride[-1], block[-1] = extent[-1] * size, stride[-1] * size, block[-1] * size
        found = cls(
            extent=extent,
            start=start,
            stride=stride,
            count=count,
            block=block,
            offset_bytes=read.data_offset_bytes,
        )
        for axis in range(len(extent)):
            if count[axis] == 1 or stride[axis] == block[axis]:
                found._make_one_block(axis)
        found._flatten()
        return found

    @property
    def n_requests(self) -> int:
        """Runs of each process."""
        inner = zip(self.count[:-1], self.block[:-1], strict=True)
        return self.count[-1] * math.prod(count * block for count, block in inner)

    def read_along(self, max_hole_bytes: int, group_bytes: int) -> None:
        """Join runs that are at most so far apart, up to some bytes."""
        while self.count[-1] > 1 and self.stride[-1] - self.block[-1] <= max_hole_bytes:
            step, block = self.stride[-1], self.block[-1]
            held = max(1, (group_bytes - block) // step + 1)
            if held < self.count[-1]:
                self._make_groups(held * step, (held - 1) * step + block)
                return
            self._make_one_block(-1)
            self._flatten()

    def through_sieve(self) -> None:
        """Make runs requests of a buffer that begins with the first run that it does not hold."""
        is_row = False
        while self.count[-1] > 1 and self.block[-1] <= _SIEVE_BYTES:
            step, block = self.stride[-1], self.block[-1]
            held = max(1, (_SIEVE_BYTES - block) // step + 1)
            if held < self.count[-1] or len(self.extent) == 1:
                step *= held
                if is_row and step * _NEAR < _SIEVE_BYTES:
                    step = _SIEVE_BYTES  # the buffer ends within a row: there the next begins
                self._make_groups(step, _SIEVE_BYTES)
                return
            self._make_one_block(-1)
            self._flatten()
            is_row = True
        if self.count[-1] == 1 and self.block[-1] < _SIEVE_BYTES:
            self._make_groups(self.extent[-1], _SIEVE_BYTES)

    def _make_groups(self, step: int, block: int) -> None:
        """Make requests of the runs of the last axis: one every so many bytes, of so many.

        Were they to touch, they would be one run: a byte less keeps them apart. The last one, which
        may be shorter, is left out of many; of few all are as short, or begin earlier.
        """
        span = (self.count[-1] - 1) * self.stride[-1] + self.block[-1]
        count = -(-span // step)
        block = min(block, step - 1 if count > 1 else step)
        first, end = int(self.start[:, -1].max()), self.extent[-1]
        if count >= _MANY and first + (count - 1) * step + block > end:
            count -= 1
        room = end - (count - 1) * step
        block = min(block, room)
        if room - first >= block / 2:
            block = min(block, room - first)
        else:
            self.start[:, -1] = np.minimum(self.start[:, -1], room - block)
        self.count[-1], self.stride[-1], self.block[-1] = count, step, block

    def _make_one_block(self, axis: int) -> None:
        """Take what lies between the blocks of an axis along."""
        self.block[axis] += (self.count[axis] - 1) * self.stride[axis]
        self.count[axis], self.stride[axis] = 1, max(1, self.block[axis])

    def _flatten(self) -> None:
        """Make one axis of the last two, as long as their blocks follow each other evenly."""
        while len(self.extent) > 1:
            row, run = self.extent[-1], self.block[-1]
            is_even = self.count[-1] * self.stride[-1] == row and self.count[-2] == 1
            if self.count[-1] > 1 and not is_even:
                return
            is_whole = run == row
            if self.count[-2] > 1 and self.block[-2] > 1 and not is_whole:
                return
            if self.count[-1] > 1:
                count, stride, block = self.block[-2] * self.count[-1], self.stride[-1], run
            elif is_whole:
                count, stride, block = self.count[-2], self.stride[-2] * row, self.block[-2] * row
            elif self.count[-2] == 1:
                count, stride, block = self.block[-2], row, run
            else:
                count, stride, block = self.count[-2], self.stride[-2] * row, run
            self.start[:, -2] = self.start[:, -2] * row + self.start[:, -1]
            self.start = np.ascontiguousarray(self.start[:, :-1])
            self.extent[-2:] = [self.extent[-2] * row]
            self.count[-2:], self.stride[-2:], self.block[-2:] = [count], [stride], [block]
            if self.count[-1] == 1 or self.stride[-1] == self.block[-1]:
                self._make_one_block(-1)


def _operation(
    asked: _Progression,
    *,
    strategy: ReadStrategy = ReadStrategy.MULTIPLE,
    depth: int = 64,
) -> Operation:
    same: Sequence[list[int]] = (asked.stride, asked.count, asked.block)
    slabs = np.array([[start, *same] for start in asked.start.tolist()], dtype=np.int64)
    return Operation(
        extent=tuple(asked.extent),
        element_size_bytes=1,
        slabs=slabs,
        data_offset_bytes=asked.offset_bytes,
        strategy=strategy,
        list_depth=depth,
    )
