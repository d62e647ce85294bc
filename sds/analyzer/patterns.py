"""Access patterns: shape, orientation, frequency and cost of the reads of a dataset.

A pattern is a value: classified from a selection alone, counted from a trace or stated by a user.
Definitions: docs/reference/patterns.md. Liu 2014, Sec. III and VI.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from sds.analyzer.read_times import ReadTimes
from sds.analyzer.regions import Place
from sds.errors import SdsValueError, SelectionError
from sds.geometry import Box, Hyperslab, parse_selection
from sds.text import DAY_S

if TYPE_CHECKING:
    from collections.abc import Iterable

PAUSE_DAYS = 3.0
"""Days without a read that end no pattern: a weekend, and some hours."""

TIMES_THE_PAUSE = 2.0
"""A pattern has ended that pauses for longer than this many times its longest pause so far."""


class PatternKind(StrEnum):
    """The shapes that reads of an array have (Liu 2014, Sec. III; lines from Sec. VI)."""

    EMPTY = "empty"
    POINT = "point"
    LINE = "line"
    PLANE = "plane"
    SUB_PLANE = "sub-plane"
    SUB_CUBE = "sub-cube"
    CONTIGUOUS_CHUNKS = "contiguous chunks"
    NONCONTIGUOUS_CHUNKS = "noncontiguous chunks"
    WHOLE = "whole dataset"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The class of one selection within its dataset, without its position.

    Attributes
    ----------
    kind
        Its name.
    axes
        Axes along which it selects more than one index, ascending.
    spanned_axes
        Axes longer than 1 of which it selects every index, ascending.
    selected
        Indices selected per axis, shape (rank,).
    steps
        Distance between selected indices per axis; 1 where they are adjacent, shape (rank,).
    """

    kind: PatternKind
    axes: tuple[int, ...]
    spanned_axes: tuple[int, ...]
    selected: tuple[int, ...]
    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessPattern:
    """Reads of one dataset that agree in shape and orientation, with their cost.

    Attributes
    ----------
    kind, axes, spanned_axes, steps
        Shape of the logical reads (see `Shape`).
    extent, element_size_bytes
        The dataset, source axis order.
    typical
        Selection of a representative logical read; the bounding box where `irregular`.
    call
        Selection of a representative HDF5 read. It equals `typical` unless several HDF5 reads
        together make one logical read. Costs are predicted for calls: a program that is not
        changed goes on making them.
    n_reads
        Logical reads.
    n_calls
        HDF5 reads, at least `n_reads`.
    n_elements
        Elements that one typical logical read selects.
    bytes_read
        Selected bytes of all reads.
    elapsed_s
        Time within all HDF5 reads, summed over processes; 0 where the pattern is stated.
    time_lost_s
        What of `elapsed_s` exceeds the time of reading as many bytes contiguously, >= 0.
    first_ns, last_ns
        Start of the first and of the last read, nanoseconds since the epoch; 0 where stated.
    longest_pause_ns
        The longest time between two successive reads, ns; None where that is not known, which no
        more than `last_ns` less `first_ns` can be.
    processes
        Keys of the processes that read, sorted. Empty where stated.
    n_concurrent
        The most processes that were reading at one time: Nproc of Liu 2014, Eq. 4.
    n_redirected
        HDF5 reads that a replica served.
    times
        Times of the HDF5 reads that were not collective, apart for each of what served them; empty
        where the pattern is stated, or older than such times.
    left_alone
        Times of those of these reads that replicas in shadow left alone, whatever served them;
        apart for each of the replicas, whose id is their ``served_by``.
    n_collective
        HDF5 reads that were collective MPI transfers.
    irregular
        Whether points or irregular regions were read, of which only the bounding box is known.
    stated
        Whether a user stated the pattern; `n_reads` are then reads per day.
    places
        Boxes within which the HDF5 reads lay, few however many reads there were; those that are
        in none lay anywhere. Of a stated pattern, where it was stated.
    """

    kind: PatternKind
    axes: tuple[int, ...]
    spanned_axes: tuple[int, ...]
    steps: tuple[int, ...]
    extent: tuple[int, ...]
    element_size_bytes: int
    typical: Hyperslab
    call: Hyperslab
    n_reads: int
    n_calls: int
    n_elements: int
    bytes_read: int
    elapsed_s: float = 0.0
    time_lost_s: float = 0.0
    first_ns: int = 0
    last_ns: int = 0
    longest_pause_ns: int | None = None
    processes: tuple[str, ...] = field(default=())
    n_concurrent: int = 1
    n_redirected: int = 0
    times: tuple[ReadTimes, ...] = ()
    left_alone: tuple[ReadTimes, ...] = ()
    n_collective: int = 0
    irregular: bool = False
    stated: bool = False
    places: tuple[Place, ...] = ()

    def __post_init__(self) -> None:
        if self.element_size_bytes <= 0:
            raise SdsValueError(
                f"element size must be positive, not {self.element_size_bytes} bytes"
            )
        if not 0 <= self.n_reads <= self.n_calls:
            raise SdsValueError(
                f"a pattern needs 0 <= n_reads <= n_calls, not {self.n_reads} and {self.n_calls}"
            )
        if not (math.isfinite(self.elapsed_s) and self.elapsed_s >= 0.0):
            raise SdsValueError(f"elapsed time must be finite and >= 0, not {self.elapsed_s} s")

    @property
    def rank(self) -> int:
        """Number of axes of the dataset."""
        return len(self.extent)

    @property
    def n_processes(self) -> int:
        """Number of processes that read; 0 where the pattern is stated."""
        return len(self.processes)

    @property
    def description(self) -> str:
        """The pattern in words, e.g. ``plane fixing axis 2``, ``line along axis 0``.

        Where several calls make one logical read: ``plane fixing axis 2, one line along axis 1
        at a time``.
        """
        words = _words(self.kind, self.axes, self.steps, self.extent)
        if self.irregular or self.call.shape == self.typical.shape:
            return words
        call = classify(self.call, self.extent)
        return f"{words}, one {_words(call.kind, call.axes, call.steps, self.extent)} at a time"

    def is_of_kind(self, slab: Hyperslab) -> bool:
        """Return whether calls of a box are of this pattern, but for what makes logical reads.

        On each axis they have the same step, and as many indices up to a power of two.
        """
        return not self.irregular and _kind(self.call) == _kind(slab)

    @property
    def most_pause_ns(self) -> int:
        """Longest time between two successive reads, or the most that it can be, ns."""
        known = self.longest_pause_ns
        return self.last_ns - self.first_ns if known is None else known

    def has_ended(self, now_ns: int) -> bool:
        """Return whether it is no longer read: it pauses for much longer than ever before.

        A pattern that was read once has paused for no time yet. Stated ones do not end.

        Parameters
        ----------
        now_ns
            The present, ns since 1970: best the newest read of all, since where nothing at all is
            read nothing ends.
        """
        least_ns = PAUSE_DAYS * DAY_S * 1e9
        pause_ns = now_ns - self.last_ns
        return not self.stated and pause_ns > max(least_ns, TIMES_THE_PAUSE * self.most_pause_ns)

    @property
    def shape_key(self) -> str:
        """Equal for two patterns of one dataset exactly where they are the same pattern.

        Holds the extent and element size, the kind, the axes, steps, and the number of indices
        selected per axis up to a power of two, of logical read and HDF5 read; no counts.
        """
        parts = (
            "stated" if self.stated else "traced",
            "irregular" if self.irregular else "regular",
            str(self.kind),
            _listed(self.extent) + f"*{self.element_size_bytes}",
            "axes " + _listed(self.axes),
            "spans " + _listed(self.spanned_axes),
            "steps " + _listed(self.steps),
            "bits " + _listed(n.bit_length() for n in self.typical.shape),
            "read by " + _listed(n.bit_length() for n in self.call.shape),
        )
        return "; ".join(parts)


def _kind(slab: Hyperslab) -> tuple[tuple[int, int], ...]:
    """Return the step, 1 where indices are adjacent, and the bits of their number, per axis."""
    return tuple(
        (1 if count <= 1 or stride == block else stride, (count * block).bit_length())
        for stride, count, block in zip(slab.stride, slab.count, slab.block, strict=True)
    )


def _listed(numbers: Iterable[int]) -> str:
    """Return ``(3,0,2)``."""
    return f"({','.join(map(str, numbers))})"


def _axis_list(axes: tuple[int, ...]) -> str:
    """Return ``axis 2`` or ``axes 0, 1``."""
    return f"{'axis' if len(axes) == 1 else 'axes'} {', '.join(map(str, axes))}"


def _words(
    kind: PatternKind,
    axes: tuple[int, ...],
    steps: tuple[int, ...],
    extent: tuple[int, ...],
) -> str:
    """Return a shape and its orientation in words."""
    text = str(kind)
    fixed = tuple(a for a, length in enumerate(extent) if length > 1 and a not in axes)
    if kind in {PatternKind.EMPTY, PatternKind.POINT, PatternKind.WHOLE} or len(extent) <= 1:
        pass
    elif kind in {PatternKind.PLANE, PatternKind.SUB_PLANE} and fixed:
        text += f" fixing {_axis_list(fixed)}"
    elif axes:
        text += f" along {_axis_list(axes)}"
    strided = [f"every {steps[a]} on axis {a}" for a in axes if steps[a] > 1]
    return f"{text} ({', '.join(strided)})" if strided else text


def classify(slab: Hyperslab, extent: tuple[int, ...], *, irregular: bool = False) -> Shape:
    """Return the shape of a selection.

    Parameters
    ----------
    slab
        The selection; its bounding box where `irregular`.
    extent
        Extent of the dataset, shape (rank,).
    irregular
        Whether the selection is points or irregular regions within the box.

    Raises
    ------
    SelectionError
        If slab and extent differ in rank.

    Notes
    -----
    The first rule that holds decides:

    1. an axis selects nothing: *empty*;
    2. irregular: *noncontiguous chunks*;
    3. every index of every axis: *whole dataset* (a scalar too);
    4. one element: *point*;
    5. one axis is longer than 1: *contiguous chunks* where the indices are adjacent, else
       *noncontiguous chunks*;
    6. blocks of several indices repeat with holes between them: *noncontiguous chunks*;
    7. by the number of axes selected along: 1 *line*; 2 *plane* where both are spanned, else
       *sub-plane*; 3 and more *sub-cube*.

    Source: Liu 2014, Sec. III (names) and VI (1-D, 2-D and 3-D reads).
    """
    rank = len(extent)
    if len(slab.start) != rank:
        raise SelectionError(
            f"a selection of {len(slab.start)} axes does not fit a dataset of {rank}: "
            "give one entry per axis"
        )
    selected = tuple(int(c) * int(b) for c, b in zip(slab.count, slab.block, strict=True))
    adjacent = [
        c <= 1 or s == b for c, s, b in zip(slab.count, slab.stride, slab.block, strict=True)
    ]
    chunked = any(not adjacent[a] and slab.block[a] > 1 for a in range(rank))
    steps = tuple(1 if adjacent[a] else int(slab.stride[a]) for a in range(rank))
    axes = tuple(a for a in range(rank) if selected[a] > 1)
    spanned = tuple(a for a in axes if selected[a] == extent[a])
    long_axes = tuple(a for a in range(rank) if extent[a] > 1)
    if any(n == 0 for n in selected):
        kind = PatternKind.EMPTY
    elif irregular:
        kind = PatternKind.NONCONTIGUOUS_CHUNKS
    elif spanned == long_axes:
        kind = PatternKind.WHOLE
    elif not axes:
        kind = PatternKind.POINT
    elif len(long_axes) == 1:
        one = adjacent[long_axes[0]]
        kind = PatternKind.CONTIGUOUS_CHUNKS if one else PatternKind.NONCONTIGUOUS_CHUNKS
    elif chunked:
        kind = PatternKind.NONCONTIGUOUS_CHUNKS
    elif len(axes) == 1:
        kind = PatternKind.LINE
    elif len(axes) == 2:
        kind = PatternKind.PLANE if spanned == axes else PatternKind.SUB_PLANE
    else:
        kind = PatternKind.SUB_CUBE
    return Shape(kind=kind, axes=axes, spanned_axes=spanned, selected=selected, steps=steps)


def stated_pattern(
    selection: str | Hyperslab,
    *,
    extent: tuple[int, ...],
    element_size_bytes: int,
    n_reads_per_day: int = 1,
    n_concurrent: int = 1,
) -> AccessPattern:
    """Return a pattern that a user states, without any trace.

    Parameters
    ----------
    selection
        A typical read: ``'[:, 3, ::2]'`` or a hyperslab.
    extent, element_size_bytes
        The dataset.
    n_reads_per_day
        How often it is read.
    n_concurrent
        Processes that read at one time.

    Raises
    ------
    SelectionError
        If the selection cannot be read, reaches outside the dataset or selects nothing.
    SdsValueError
        If the number of reads or processes is not positive.
    """
    if n_reads_per_day <= 0 or n_concurrent <= 0:
        raise SdsValueError(
            "reads per day and concurrent processes must be positive, not "
            f"{n_reads_per_day} and {n_concurrent}"
        )
    slab = parse_selection(selection, extent) if isinstance(selection, str) else selection
    shape = classify(slab, extent)
    if shape.kind is PatternKind.EMPTY:
        raise SelectionError(
            f"selection {selection} selects nothing of extent {extent}: state one that reads data"
        )
    n_elements = math.prod(shape.selected)
    return AccessPattern(
        kind=shape.kind,
        axes=shape.axes,
        spanned_axes=shape.spanned_axes,
        steps=shape.steps,
        extent=tuple(extent),
        element_size_bytes=element_size_bytes,
        typical=slab,
        call=slab,
        n_reads=n_reads_per_day,
        n_calls=n_reads_per_day,
        n_elements=n_elements,
        bytes_read=n_reads_per_day * n_elements * element_size_bytes,
        n_concurrent=n_concurrent,
        stated=True,
        places=(Place(box=Box.around(slab), n_calls=n_reads_per_day),),
    )
