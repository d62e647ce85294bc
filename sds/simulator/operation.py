"""Operations: one read by several processes at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sds import _native
from sds.errors import LayoutError, SdsValueError, SelectionError
from sds.geometry import MAX_PROCESSES, Dataspace, IoMode, ProcessReads, check_order
from sds.geometry.storage_layout import MAX_SIZE_BYTES
from sds.text import choice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sds.geometry import Hyperslab

_MAX_DEPTH = 1 << 20
_MAX_OFFSET = 1 << 61


class ReadStrategy(StrEnum):
    """Strategy by which a process of an independent read requests its runs."""

    MULTIPLE = "multiple"
    SIEVE = "sieve"
    LIST = "list"

    @property
    def code(self) -> int:
        """The number of sds_simulator_strategy."""
        return {
            "multiple": _native.SIMULATE_MULTIPLE,
            "sieve": _native.SIMULATE_SIEVE,
            "list": _native.SIMULATE_LIST,
        }[self.value]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Operation:
    """One read of an array stored contiguously in C order, by several processes at once.

    Attributes
    ----------
    extent
        Elements per axis, in the order in which the axes are stored.
    element_size_bytes, data_offset_bytes
        Of the array in its file.
    slabs
        What each process reads: int64, shape (processes, 4, rank), holding start, stride, count
        and block as in `sds.geometry.Hyperslab`.
    mode
        Independent: each process waits for its own requests only. Collective: in two phases
        through aggregators, whatever the strategy.
    strategy
        ``multiple``: one request per run, one after the other, as HDF5 does over MPI-IO;
        ``sieve``: everything from the first byte to the last, a buffer at a time; ``list``:
        ``list_depth`` runs at once.
    """

    extent: tuple[int, ...]
    element_size_bytes: int
    slabs: NDArray[np.int64]
    data_offset_bytes: int = 0
    mode: IoMode = IoMode.INDEPENDENT
    strategy: ReadStrategy = ReadStrategy.MULTIPLE
    list_depth: int = 64
    sieve_buffer_bytes: int = 32 << 20

    def __post_init__(self) -> None:
        space = Dataspace(extent=tuple(int(n) for n in self.extent))
        slabs = np.ascontiguousarray(self.slabs)
        if slabs.dtype.kind not in "iu" or slabs.ndim != 3 or slabs.shape[1:] != (4, space.rank):
            message = (
                f"slabs are {slabs.dtype} of shape {slabs.shape}; give integers of shape "
                f"(processes, 4, {space.rank}): start, stride, count and block of each process"
            )
            raise SelectionError(message)
        if len(slabs) > MAX_PROCESSES:
            message = f"{len(slabs)} processes; {MAX_PROCESSES} are the most"
            raise SelectionError(message)
        slabs = slabs.astype(np.int64)
        slabs.flags.writeable = False
        _check_slabs(slabs, space.extent)
        _check_numbers(self)
        if space.n_elements * self.element_size_bytes >= _MAX_OFFSET:
            message = f"an array of {space.extent} is too large; 2**61 bytes are the most"
            raise LayoutError(message)
        for name, value in (
            ("extent", space.extent),
            ("slabs", slabs),
            ("mode", choice(IoMode, self.mode, "mode")),
            ("strategy", choice(ReadStrategy, self.strategy, "strategy")),
        ):
            object.__setattr__(self, name, value)

    @classmethod
    def of(
        cls,
        extent: Sequence[int],
        selections: ProcessReads | Sequence[Hyperslab],
        *,
        element_size_bytes: int,
        data_offset_bytes: int = 0,
        mode: IoMode | str = IoMode.INDEPENDENT,
        strategy: ReadStrategy | str = ReadStrategy.MULTIPLE,
        list_depth: int = 64,
        sieve_buffer_bytes: int = 32 << 20,
    ) -> Operation:
        """Return the operation in which process i reads ``selections[i]``."""
        return cls(
            extent=tuple(extent),
            element_size_bytes=element_size_bytes,
            slabs=_slabs_of(selections, len(extent)),
            data_offset_bytes=data_offset_bytes,
            mode=choice(IoMode, mode, "mode"),
            strategy=choice(ReadStrategy, strategy, "strategy"),
            list_depth=list_depth,
            sieve_buffer_bytes=sieve_buffer_bytes,
        )

    @property
    def n_processes(self) -> int:
        """Number of processes, those that read nothing included."""
        return int(self.slabs.shape[0])

    def stored_as(self, order: Sequence[int]) -> Operation:
        """Return the same reads of the array with stored axis i being axis ``order[i]`` of this."""
        axes = check_order(order, len(self.extent))
        return replace(
            self,
            extent=tuple(self.extent[axis] for axis in axes),
            slabs=self.slabs[:, :, list(axes)],
        )


def _slabs_of(selections: ProcessReads | Sequence[Hyperslab], rank: int) -> NDArray[np.int64]:
    """Return selections as one array."""
    if isinstance(selections, ProcessReads):
        reads = selections
        return np.stack([reads.start, reads.stride, reads.count, reads.block], axis=1)
    for process, slab in enumerate(selections):
        if slab.rank != rank:
            message = f"process {process} selects on {slab.rank} axes, the array has {rank}"
            raise SelectionError(message)
    rows = [(slab.start, slab.stride, slab.count, slab.block) for slab in selections]
    return np.array(rows, dtype=np.int64).reshape(len(rows), 4, rank)


def _check_numbers(operation: Operation) -> None:
    """Raise SdsValueError unless the core can take the numbers of an operation."""
    limits = {
        "element_size_bytes": (1, MAX_SIZE_BYTES),
        "data_offset_bytes": (0, _MAX_OFFSET - 1),
        "list_depth": (1, _MAX_DEPTH),
        "sieve_buffer_bytes": (1, MAX_SIZE_BYTES),
    }
    for name, (low, high) in limits.items():
        value = getattr(operation, name)
        if not low <= value <= high or int(value) != value:
            message = f"{name} is {value}; give a whole number from {low} to {high}"
            raise SdsValueError(message)


def _check_slabs(slabs: NDArray[np.int64], extent: tuple[int, ...]) -> None:
    """Raise SelectionError, naming process and axis, unless every selection lies in the array."""
    start, stride, count, block = (slabs[:, i, :] for i in range(4))
    lengths = np.array(extent, dtype=np.int64)
    is_odd = (start < 0) | (stride < 1) | (count < 0) | (block < 0)
    is_odd |= (count > 1) & (stride < block)
    if is_odd.any():
        process, axis = np.argwhere(is_odd)[0]
        message = (
            f"process {process}, axis {axis}: start {start[process, axis]}, stride "
            f"{stride[process, axis]}, count {count[process, axis]}, block {block[process, axis]} "
            "are no selection; blocks must not overlap, and nothing be negative"
        )
        raise SelectionError(message)
    # Not by products, which might not fit: (count - 1) * stride <= lengths - start - block.
    room = lengths - start - block
    is_outside = ((room < 0) | (count - 1 > np.maximum(room, 0) // stride)) & (count > 0)
    is_outside &= block > 0
    if is_outside.any():
        process, axis = np.argwhere(is_outside)[0]
        message = (
            f"process {process}, axis {axis}: start {start[process, axis]}, stride "
            f"{stride[process, axis]}, count {count[process, axis]}, block {block[process, axis]} "
            f"reach outside the array, which has {lengths[axis]} there"
        )
        raise SelectionError(message)
