"""Divide a selection among processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sds.errors import SelectionError

if TYPE_CHECKING:
    from sds.geometry import Hyperslab

_MAX_PROCESSES = 1 << 20


def even_parts(slab: Hyperslab, n_processes: int) -> tuple[int, ...]:
    """Return parts per axis for a number of processes: each cut where parts are longest.

    For `sds.geometry.ProcessReads.decomposed`. As `MPI_Dims_create`, but for the selection's
    shape; of axes that are equally long the slowest is cut.
    """
    if not 1 <= n_processes <= _MAX_PROCESSES:
        raise SelectionError(f"{n_processes} processes; give 1 to 2**20")
    lengths = slab.normalized().count
    parts = [1] * slab.rank
    for factor in sorted(_prime_factors(n_processes), reverse=True):
        if parts:
            longest = max(range(slab.rank), key=lambda a: (lengths[a] / parts[a], -a))
            parts[longest] *= factor
    return tuple(parts)


def _prime_factors(number: int) -> list[int]:
    factors, factor = [], 2
    while factor * factor <= number:
        while number % factor == 0:
            factors.append(factor)
            number //= factor
        factor += 1
    return factors + [number] * (number > 1)
