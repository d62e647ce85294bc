"""Selections of several processes that read one array at once, and how they divide it."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sds.errors import SelectionError
from sds.geometry.dataspace import Hyperslab, check_order

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAX_PROCESSES = 1 << 20  # of the core


class IoMode(enum.StrEnum):
    """I/O mode of an operation: each process by itself, or all together through aggregators."""

    INDEPENDENT = "independent"
    COLLECTIVE = "collective"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProcessReads:
    """One regular selection per process, as a hyperslab of one array each.

    Attributes
    ----------
    start, stride, count, block
        Shape (processes, axes), int64; axes as the readers of the array know them.
    """

    start: NDArray[np.int64]
    stride: NDArray[np.int64]
    count: NDArray[np.int64]
    block: NDArray[np.int64]

    def __post_init__(self) -> None:
        shapes = {a.shape for a in (self.start, self.stride, self.count, self.block)}
        if len(shapes) != 1 or self.start.ndim != 2:
            message = (
                "start, stride, count and block have a row per process and a column per axis, "
                f"not the shapes {sorted(shapes)}"
            )
            raise SelectionError(message)

    @classmethod
    def of(cls, slabs: Sequence[Hyperslab]) -> ProcessReads:
        """Return the reads of processes of which each reads one hyperslab.

        Raises
        ------
        SelectionError
            If there are none, or their numbers of axes differ.
        """
        if len({slab.rank for slab in slabs}) != 1:
            message = (
                f"the processes' selections have {sorted({slab.rank for slab in slabs})} axes; "
                "give at least one process, and selections of one array"
            )
            raise SelectionError(message)
        return cls(
            start=_rows([slab.start for slab in slabs]),
            stride=_rows([slab.stride for slab in slabs]),
            count=_rows([slab.count for slab in slabs]),
            block=_rows([slab.block for slab in slabs]),
        )

    @classmethod
    def decomposed(cls, slab: Hyperslab, parts: Sequence[int]) -> ProcessReads:
        """Return the reads of processes that divide a selection into a number of parts per axis.

        An axis is cut between its blocks, where it has several, into parts that differ by one at
        most, the longer ones first. Where there are more parts than it has, the last are empty.
        Processes are numbered in C order of the parts.

        Raises
        ------
        SelectionError
            If there is not one positive number of parts per axis, or their product exceeds 2**20.
        """
        if len(parts) != slab.rank or any(n < 1 for n in parts):
            message = (
                f"parts {tuple(parts)} of a selection with {slab.rank} axes; "
                "give one number of at least 1 per axis"
            )
            raise SelectionError(message)
        n_processes = math.prod(parts)
        if n_processes > MAX_PROCESSES:
            message = (
                f"parts {tuple(parts)} are {n_processes} processes; give at most {MAX_PROCESSES}"
            )
            raise SelectionError(message)
        axes = slab.normalized().axes()
        cuts = [
            [_cut(n, n_parts, i) for i in range(n_parts + 1)]
            for (_, _, n, _), n_parts in zip(axes, parts, strict=True)
        ]
        which = np.indices(tuple(parts), dtype=np.int64).reshape(slab.rank, n_processes)
        shape = (n_processes, slab.rank)
        start, stride = np.empty(shape, np.int64), np.empty(shape, np.int64)
        count, block = np.empty(shape, np.int64), np.empty(shape, np.int64)
        for axis, (first, step, _, length) in enumerate(axes):
            edges = np.array(cuts[axis], dtype=np.int64)
            start[:, axis] = first + edges[which[axis]] * step
            count[:, axis] = np.diff(edges)[which[axis]]
            stride[:, axis] = step
            block[:, axis] = length
        return cls(start=start, stride=stride, count=count, block=block)

    @classmethod
    def shared(cls, slab: Hyperslab, n_processes: int) -> ProcessReads:
        """Return the reads of processes that share a selection evenly; a scalar each reads whole.

        Raises
        ------
        SelectionError
            As `even_parts`.
        """
        parts = even_parts(slab, n_processes)
        return cls.decomposed(slab, parts) if parts else cls.of([slab] * n_processes)

    def __len__(self) -> int:
        return len(self.start)

    def __getitem__(self, process: int) -> Hyperslab:
        return Hyperslab(
            start=tuple(self.start[process].tolist()),
            stride=tuple(self.stride[process].tolist()),
            count=tuple(self.count[process].tolist()),
            block=tuple(self.block[process].tolist()),
        )

    def __iter__(self) -> Iterator[Hyperslab]:
        return (self[process] for process in range(len(self)))

    @property
    def rank(self) -> int:
        """Number of axes."""
        return int(self.start.shape[1])

    def permuted(self, order: Sequence[int]) -> ProcessReads:
        """Return the reads whose axis i is axis ``order[i]`` of these."""
        axes = list(check_order(order, self.rank))
        return ProcessReads(
            start=np.ascontiguousarray(self.start[:, axes]),
            stride=np.ascontiguousarray(self.stride[:, axes]),
            count=np.ascontiguousarray(self.count[:, axes]),
            block=np.ascontiguousarray(self.block[:, axes]),
        )

    def check_within(self, extent: Sequence[int]) -> None:
        """Raise SelectionError unless every read lies inside an array of this extent."""
        if self.rank != len(extent):
            message = f"selections have {self.rank} axes, the array {len(extent)}: {tuple(extent)}"
            raise SelectionError(message)
        end = self.start + (self.count - 1) * self.stride + self.block
        outside = ((self.count > 0) & (self.block > 0) & (end > np.array(extent, np.int64))).any(
            axis=1
        )
        # The first row out of range explains itself; so do rows that are no selection at all.
        odd = (self.start < 0) | (self.stride < 1) | (self.count < 0) | (self.block < 0)
        odd |= (self.count > 1) & (self.stride < self.block)
        for process in np.flatnonzero(outside | odd.any(axis=1))[:1].tolist():
            try:
                self[process].check_within(extent)
            except SelectionError as error:
                raise SelectionError(f"process {process}: {error}") from error


def even_parts(slab: Hyperslab, n_processes: int) -> tuple[int, ...]:
    """Return parts per axis for a number of processes: each cut where parts are longest.

    For `ProcessReads.decomposed`. As `MPI_Dims_create`, but for the selection's shape; of axes
    that are equally long the slowest is cut.

    Raises
    ------
    SelectionError
        If there are no processes, or more than 2**20.
    """
    if not 1 <= n_processes <= MAX_PROCESSES:
        raise SelectionError(f"{n_processes} processes; give 1 to 2**20")
    lengths = slab.normalized().count
    parts = [1] * slab.rank
    for factor in prime_factors(n_processes) if parts else ():
        longest = max(range(slab.rank), key=lambda a: (lengths[a] / parts[a], -a))
        parts[longest] *= factor
    return tuple(parts)


def prime_factors(n: int) -> list[int]:
    """Return the prime factors of a number, greatest first."""
    factors, divisor = [], 2
    while divisor * divisor <= n:
        while n % divisor == 0:
            factors.append(divisor)
            n //= divisor
        divisor += 1
    return ([n] if n > 1 else []) + factors[::-1]


def _rows(axes: list[tuple[int, ...]]) -> NDArray[np.int64]:
    return np.array(axes, dtype=np.int64).reshape(len(axes), len(axes[0]))


def _cut(n: int, n_parts: int, part: int) -> int:
    """Return where a part begins: the first ``n % n_parts`` are one longer than the others."""
    return part * (n // n_parts) + min(part, n % n_parts)
