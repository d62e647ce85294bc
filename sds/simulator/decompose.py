"""How a selection is divided among processes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from sds.errors import SelectionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sds.geometry import Hyperslab

_MAX_PARTS = 1 << 24


def even_parts(slab: Hyperslab, n_processes: int) -> tuple[int, ...]:
    """Return parts per axis for so many processes: each cut where parts are longest.

    As `MPI_Dims_create`, but for the selection's shape; of axes that are equally long the slowest
    is cut. Where an axis cannot be cut further, some parts are empty.
    """
    if not 1 <= n_processes <= _MAX_PARTS:
        raise SelectionError(f"{n_processes} processes; give 1 to 2**24")
    lengths = slab.normalized().count
    parts = [1] * slab.rank
    for factor in sorted(_prime_factors(n_processes), reverse=True):
        if parts:
            longest = max(range(slab.rank), key=lambda a: (lengths[a] / parts[a], -a))
            parts[longest] *= factor
    return tuple(parts)


def divide(slab: Hyperslab, parts: Sequence[int]) -> list[Hyperslab]:
    """Return what each process reads: the selection cut into ``parts[i]`` on axis i.

    In C order of the grid of parts, as even as whole steps (blocks of a hyperslab, or single
    indices) allow; parts of an axis with fewer steps are empty.
    """
    if len(parts) != slab.rank or any(n < 1 for n in parts):
        message = f"parts {tuple(parts)}; give a number, at least 1, for each of {slab.rank} axes"
        raise SelectionError(message)
    if math.prod(parts) > _MAX_PARTS:
        raise SelectionError(f"{math.prod(parts)} parts; 2**24 are the most")
    divided = [slab.normalized()]
    for axis, n in enumerate(parts):
        divided = [_part(whole, axis, i, n) for whole in divided for i in range(n)]
    return divided


def _part(slab: Hyperslab, axis: int, i: int, n: int) -> Hyperslab:
    """Return part i of n of a selection along an axis."""
    start, stride, count, _ = slab.axes()[axis]
    first, last = i * count // n, (i + 1) * count // n
    return replace(
        slab,
        start=(*slab.start[:axis], start + first * stride, *slab.start[axis + 1 :]),
        count=(*slab.count[:axis], last - first, *slab.count[axis + 1 :]),
    )


def _prime_factors(number: int) -> list[int]:
    factors, factor = [], 2
    while factor * factor <= number:
        while number % factor == 0:
            factors.append(factor)
            number //= factor
        factor += 1
    return factors + [number] * (number > 1)
