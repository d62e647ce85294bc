"""Draw lines, planes and cubes of a three-dimensional array, divided among processes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sds.errors import SdsValueError
from sds.geometry import Hyperslab, ProcessReads, prime_factors

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

KINDS = ("1-D", "2-D", "3-D")

# Shortest line, plane side and cube side drawn, as a share of the axis.
_SHORTEST = (1 / 64, 1 / 16, 1 / 32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """One read of the array by all processes.

    Attributes
    ----------
    kind
        0: lines, 1: a plane, 2: a cube.
    slab
        What all processes read together, in the axes of the array.
    parts
        Into how many parts each axis is cut; their product is the number of processes.
    """

    kind: int
    slab: Hyperslab
    parts: tuple[int, int, int]

    @property
    def name(self) -> str:
        """Name, e.g. ``2-D 1x64x4096 at 5,0,17 by 1x16x32``."""
        shape = "x".join(map(str, self.slab.count))
        start = ",".join(map(str, self.slab.start))
        steps = (
            " every " + ",".join(map(str, self.slab.stride)) if max(self.slab.stride) > 1 else ""
        )
        return f"{KINDS[self.kind]} {shape} at {start}{steps} by {'x'.join(map(str, self.parts))}"

    def reads(self) -> ProcessReads:
        """Return the read of each process."""
        return ProcessReads.decomposed(self.slab, self.parts)


def draw_pattern(
    random: np.random.Generator, extent: tuple[int, int, int], n_processes: int, kind: int
) -> Pattern:
    """Return lines (kind 0), a plane (1) or a cube (2), its place, size and division drawn.

    Lines: one per process, on a grid of the other two axes with steps drawn. Planes and cubes:
    dense, divided among the processes along all their axes. Lengths are uniform in the logarithm.
    """
    axis = int(random.integers(3))
    lengths = [_length(random, n, _SHORTEST[kind]) for n in extent]
    steps = [1, 1, 1]
    if kind == 0:
        others = [a for a in range(3) if a != axis]
        grid = _division(random, n_processes, [extent[a] for a in others])
        for a, n in zip(others, grid, strict=True):
            if n > extent[a]:
                raise SdsValueError(
                    f"an array of extent {extent} has no place for {n_processes} lines "
                    f"along axis {axis}: give a larger one, or fewer processes"
                )
            lengths[a] = n
            steps[a] = _length(random, extent[a] // n, 0.0) if n > 1 else 1
        parts = [1, 1, 1]
        for a, n in zip(others, grid, strict=True):
            parts[a] = n
    else:
        if kind == 1:
            lengths[axis] = 1
        parts = _division(random, n_processes, lengths)
    start = [
        int(random.integers(n - (length - 1) * step))
        for n, length, step in zip(extent, lengths, steps, strict=True)
    ]
    return Pattern(
        kind=kind,
        slab=Hyperslab(
            start=tuple(start), stride=tuple(steps), count=tuple(lengths), block=(1, 1, 1)
        ),
        parts=(parts[0], parts[1], parts[2]),
    )


def runs_in(pattern: Pattern, order: tuple[int, ...]) -> int:
    """Return an upper bound of the runs of all processes, found without features."""
    fastest = order[-1]
    slab = pattern.slab
    lengths = list(slab.count)
    if slab.stride[fastest] == 1:
        lengths[fastest] = pattern.parts[fastest]
    return math.prod(lengths)


def _length(random: np.random.Generator, longest: int, share: float) -> int:
    """Return a length from a share of the longest to it, uniform in the logarithm."""
    shortest = max(1.0, longest * share)
    drawn = round(shortest * float(longest / shortest) ** float(random.random()))
    return max(1, min(longest, int(drawn)))


def _division(random: np.random.Generator, n: int, lengths: Sequence[int]) -> list[int]:
    """Return numbers of parts, one per axis, their product n: its factors dealt at random.

    No axis gets more parts than it is long, unless there is no other way.
    """
    parts = [1] * len(lengths)
    for factor in prime_factors(n):
        fitting = [a for a, length in enumerate(lengths) if parts[a] * factor <= length]
        if not fitting:
            fitting = [max(range(len(lengths)), key=lambda a: lengths[a] / parts[a])]
        parts[fitting[int(random.integers(len(fitting)))]] *= factor
    return parts
