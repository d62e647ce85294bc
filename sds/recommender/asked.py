"""What a read asks of the storage, as the simulator takes it.

HDF5 reads a contiguous dataset through its sieve buffer, the engine by its plan: neither asks for
the runs of a selection one by one. Of chunks HDF5 asks for each by itself, also where two follow
each other in the file. Here are the requests so made, as hyperslabs again; where a read has no such
form, that is said.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from sds._native import MAX_RANK
from sds.engine import Cache, Executor, FileState, plan_selection
from sds.errors import SimulationLimitError
from sds.geometry import BlockFeatures, ContiguousLayout
from sds.recommender.model import Via
from sds.simulator import Operation, ReadStrategy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sds.engine import IoParameters
    from sds.recommender.placed import PlacedRead

_SIEVE_BYTES = 1 << 16  # of HDF5, unless a program sets another
# Requests may be so many times more or fewer than are really made.
_NEAR = 1.25
# Of so many requests one more or less is none.
_MANY = 16


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
        If the requests have no such form, there are none, or too little is known of them.
    """
    if any(slab.n_elements == 0 for slab in read.slabs):
        raise SimulationLimitError("it selects nothing, so that nothing is asked for")
    asked = _Progression.of(read)
    if read.is_chunks:
        return _operation(asked)
    if via is Via.HDF5:
        return _through_sieve(asked, features)
    return _as_planned(asked, read, parameters)


def _through_sieve(asked: _Progression, features: BlockFeatures) -> Operation:
    if not features.exact:
        raise SimulationLimitError("what it touches could not be counted in time")
    asked.through_sieve()
    return _checked(_operation(asked), asked.n_requests, features.sieve_requests)


def _as_planned(
    asked: _Progression, read: PlacedRead, parameters: IoParameters | None
) -> Operation:
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
    """Runs of several processes: a hyperslab each, in bytes along the last axis.

    They differ in where they begin alone; start: shape (processes, axes).
    """

    extent: list[int]
    start: NDArray[np.int64]
    stride: list[int]
    count: list[int]
    block: list[int]
    offset_bytes: int

    @classmethod
    def of(cls, read: PlacedRead) -> Self:
        """Return the selections of a read, those of chunks a run per chunk."""
        first, size = read.slabs[0], read.element_size_bytes
        if len({(slab.stride, slab.count, slab.block) for slab in read.slabs}) > 1:
            raise SimulationLimitError("its processes read selections of several shapes")
        if read.is_chunks and size == 1:
            raise SimulationLimitError("its chunks are of one byte, so that nothing parts them")
        start = np.array([(*slab.start, 0) for slab in read.slabs], dtype=np.int64)
        found = cls(
            extent=[*read.extent, size],
            start=start,
            stride=[*first.stride, size],
            count=[*first.count, 1],
            # Chunks that touch would be one run: a byte less keeps them apart.
            block=[*first.block, size - 1 if read.is_chunks else size],
            offset_bytes=read.data_offset_bytes,
        )
        for axis in range(len(found.extent)):
            if found.count[axis] == 1 or found.stride[axis] == found.block[axis]:
                found._make_one_block(axis)
        found._flatten()
        if len(found.extent) > MAX_RANK:
            raise SimulationLimitError(f"its chunks take more than {MAX_RANK} axes to describe")
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
        """Make the runs of the last axis requests: of `block` bytes, one every `step`.

        Requests that touched would be one: a byte less keeps them apart. They stay in the array: of
        many the last, which would be shorter, is left out; few are all as short as that, or
        begin earlier.
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
        """Make one axis of the last two, for as long as all runs stay equally far apart."""
        while len(self.extent) > 1:
            row, run = self.extent[-1], self.block[-1]
            is_even = self.count[-1] * self.stride[-1] == row and self.count[-2] == 1
            if self.count[-1] > 1 and not is_even:
                return
            is_whole = run == row
            if self.count[-2] > 1 and self.block[-2] > 1 and not is_whole:
                return
            if self.count[-1] > 1:  # runs that go on evenly from row to row
                count, stride, block = self.block[-2] * self.count[-1], self.stride[-1], run
            elif is_whole:  # rows that follow each other
                count, stride, block = self.count[-2], self.stride[-2] * row, self.block[-2] * row
            elif self.count[-2] == 1:  # a run in each of the rows of one block
                count, stride, block = self.block[-2], row, run
            else:  # a run in each of some rows
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
