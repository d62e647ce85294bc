"""Regular selections of arrays."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sds._native import MAX_RANK
from sds.errors import LayoutError, SelectionError

if TYPE_CHECKING:
    from collections.abc import Sequence


def check_order(order: Sequence[int], rank: int) -> tuple[int, ...]:
    """Return an axis order as a tuple, as in `numpy.transpose`: new axis i is old axis order[i].

    Raises
    ------
    LayoutError
        If it is no permutation of ``range(rank)``.
    """
    axes = tuple(int(axis) for axis in order)
    if sorted(axes) != list(range(rank)):
        message = (
            f"axis order {','.join(map(str, axes))} is no permutation of the {rank} axes; "
            f"name each of {','.join(map(str, range(rank)))} once"
        )
        raise LayoutError(message)
    return axes


def check_chunks(chunk_shape: Sequence[int], extent: Sequence[int]) -> None:
    """Raise LayoutError unless HDF5 can store a dataset of that extent in such chunks.

    Parameters
    ----------
    chunk_shape, extent
        In the axes of the replica.
    """
    shown = ",".join(map(str, chunk_shape))
    if len(chunk_shape) != len(extent):
        message = (
            f"chunks {shown!r} have {len(chunk_shape)} axes, the replica has {len(extent)}: "
            "name one length for each, in the axis order of the replica"
        )
        raise LayoutError(message)
    for axis, (length, n) in enumerate(zip(chunk_shape, extent, strict=True)):
        if not 1 <= length <= n:
            message = (
                f"chunks {shown!r}: length {length} on replica axis {axis}, which has {n} "
                f"elements: give 1 to {n}"
                if n
                else f"chunks {shown!r} of a dataset without elements: it needs none"
            )
            raise LayoutError(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataspace:
    """Shape of a dataset: elements per axis; no axes for a scalar."""

    extent: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.extent) > MAX_RANK:
            message = f"{len(self.extent)} axes; HDF5 knows at most {MAX_RANK}"
            raise SelectionError(message)
        if any(length < 0 for length in self.extent):
            raise SelectionError(f"extent {self.extent} has a negative length")

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.extent)

    @property
    def n_elements(self) -> int:
        """Number of elements."""
        return math.prod(self.extent)

    def permuted(self, order: Sequence[int]) -> Dataspace:
        """Return the shape whose axis i is axis ``order[i]`` of this one."""
        axes = check_order(order, self.rank)
        return Dataspace(extent=tuple(self.extent[axis] for axis in axes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Hyperslab:
    """A regular selection as HDF5 defines it, one entry per axis.

    ``count`` blocks of ``block`` indices each, ``stride`` apart, from ``start`` on. A stride is at
    least the block where there is more than one.
    """

    start: tuple[int, ...]
    stride: tuple[int, ...]
    count: tuple[int, ...]
    block: tuple[int, ...]

    def __post_init__(self) -> None:
        rank = len(self.start)
        if not len(self.stride) == len(self.count) == len(self.block) == rank:
            lengths = [len(self.start), len(self.stride), len(self.count), len(self.block)]
            message = f"start, stride, count and block have {lengths} axes; give as many of each"
            raise SelectionError(message)
        axes = zip(self.start, self.stride, self.count, self.block, strict=True)
        for axis, (start, stride, count, block) in enumerate(axes):
            if start < 0 or stride < 1 or count < 0 or block < 0:
                message = (
                    f"axis {axis}: start {start}, count {count} and block {block} must not be "
                    f"negative, stride {stride} must be at least 1"
                )
                raise SelectionError(message)
            if count > 1 and stride < block:
                message = f"axis {axis}: blocks of {block} overlap at stride {stride}"
                raise SelectionError(message)

    @classmethod
    def all(cls, extent: Sequence[int]) -> Hyperslab:
        """Return the selection of a whole array."""
        rank = len(extent)
        ones = (1,) * rank
        return cls(start=(0,) * rank, stride=ones, count=tuple(extent), block=ones)

    def axes(self) -> list[tuple[int, int, int, int]]:
        """Return (start, stride, count, block) of each axis."""
        return list(zip(self.start, self.stride, self.count, self.block, strict=True))

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.start)

    @property
    def shape(self) -> tuple[int, ...]:
        """Selected indices per axis."""
        return tuple(c * b for c, b in zip(self.count, self.block, strict=True))

    @property
    def n_elements(self) -> int:
        """Number of selected elements."""
        return math.prod(self.shape)

    def permuted(self, order: Sequence[int]) -> Hyperslab:
        """Return the selection whose axis i is axis ``order[i]`` of this one."""
        axes = check_order(order, self.rank)
        return Hyperslab(
            start=tuple(self.start[axis] for axis in axes),
            stride=tuple(self.stride[axis] for axis in axes),
            count=tuple(self.count[axis] for axis in axes),
            block=tuple(self.block[axis] for axis in axes),
        )

    def normalized(self) -> Hyperslab:
        """Return the same selection in the form that slices have where it can be had.

        Adjacent indices become ``count`` blocks of one at stride 1, so that equal selections that
        were written differently compare equal.
        """
        axes = [_normalize_axis(*axis) for axis in self.axes()]
        start, stride, count, block = zip(*axes, strict=True) if axes else ((), (), (), ())
        return Hyperslab(start=start, stride=stride, count=count, block=block)

    def check_within(self, extent: Sequence[int]) -> None:
        """Raise SelectionError unless the selection lies inside an array of this extent."""
        if len(extent) != self.rank:
            message = f"selection has {self.rank} axes, the dataset {len(extent)}: {tuple(extent)}"
            raise SelectionError(message)
        for axis, (start, stride, count, block) in enumerate(self.axes()):
            if count == 0 or block == 0:
                continue
            end = start + (count - 1) * stride + block
            if end > extent[axis]:
                message = (
                    f"axis {axis}: selection reaches index {end - 1}, "
                    f"the dataset ends at {extent[axis] - 1}"
                )
                raise SelectionError(message)

    def __str__(self) -> str:
        """Write the selection as slices; blocks in steps as ``start::stride*count/block``."""
        return f"[{', '.join(_write_axis(*axis) for axis in self.normalized().axes())}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """Neighbouring indices on every axis: ``extent`` of them from ``start`` on."""

    start: tuple[int, ...]
    extent: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.start) != len(self.extent):
            message = (
                f"a box has a start and an extent per axis, not {self.start} and {self.extent}"
            )
            raise SelectionError(message)
        if min((*self.start, *self.extent), default=0) < 0:
            raise SelectionError(f"start {self.start} or extent {self.extent} of a box is negative")

    @classmethod
    def whole(cls, extent: Sequence[int]) -> Box:
        """Return the box that is a whole array."""
        return cls(start=(0,) * len(extent), extent=tuple(extent))

    @classmethod
    def around(cls, slab: Hyperslab) -> Box:
        """Return the smallest box that holds a selection."""
        ends = [s + (c - 1) * t + b if c and b else s for s, t, c, b in slab.axes()]
        return cls(
            start=slab.start, extent=tuple(e - s for e, s in zip(ends, slab.start, strict=True))
        )

    def check_within(self, extent: Sequence[int]) -> None:
        """Raise SelectionError unless the box lies inside an array of this extent."""
        Hyperslab(
            start=self.start, stride=(1,) * len(self.start), count=self.extent,
            block=(1,) * len(self.start),
        ).check_within(extent)  # fmt: skip

    def holds(self, slab: Hyperslab) -> bool:
        """Return whether every selected element lies in the box."""
        return all(
            low <= start and start + (count - 1) * stride + block <= low + length
            for low, length, (start, stride, count, block) in zip(
                self.start, self.extent, slab.axes(), strict=True
            )
        )

    def covers(self, other: Box) -> bool:
        """Return whether another box lies in this one."""
        return all(
            low <= start and start + extent <= low + length
            for low, length, start, extent in zip(
                self.start, self.extent, other.start, other.extent, strict=True
            )
        )

    @property
    def n_elements(self) -> int:
        """Number of elements."""
        return math.prod(self.extent)

    def __str__(self) -> str:
        """Return the box as a selection, e.g. ``[0:100, 3:4]``."""
        pairs = zip(self.start, self.extent, strict=True)
        return f"[{', '.join(f'{first}:{first + length}' for first, length in pairs)}]"

    def relative(self, slab: Hyperslab) -> Hyperslab:
        """Return a selection of the array as one of the box."""
        return replace(
            slab, start=tuple(s - low for s, low in zip(slab.start, self.start, strict=True))
        )


def _normalize_axis(start: int, stride: int, count: int, block: int) -> tuple[int, int, int, int]:
    if count == 0 or block == 0:
        return start, 1, 0, 1
    if count == 1 or stride == block:
        return start, 1, count * block, 1
    return start, stride, count, block


def _write_axis(start: int, stride: int, count: int, block: int) -> str:
    end = start + (count - 1) * stride + 1
    if count == 0:
        return f"{start}:{start}"
    if block > 1:
        return f"{start}::{stride}*{count}/{block}"
    if count == 1:
        return str(start)
    return f"{start}:{end}" if stride == 1 else f"{start}:{end}:{stride}"
