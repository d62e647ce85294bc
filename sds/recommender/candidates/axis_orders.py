"""Axis orders worth considering for a replica."""

from __future__ import annotations

from itertools import combinations, permutations
from typing import TYPE_CHECKING

from sds.analyzer import stated_pattern

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sds.geometry import Hyperslab

# 5! = 120 orders are predicted one by one; 6! = 720 would take longer than anyone waits.
MAX_RANK_OF_ALL_ORDERS = 5


def inversions(order: Sequence[int]) -> int:
    """Return how many pairs of axes an order turns round: its distance from no change."""
    return sum(a > b for a, b in combinations(order, 2))


def candidate_orders(slabs: Sequence[Hyperslab], extent: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the axis orders that reads of a dataset can profit from, least change first.

    Parameters
    ----------
    slabs
        Reads of the dataset, the most important first.
    extent
        Its extent, shape (rank,).

    Returns
    -------
    Orders in which the stored bytes differ: where an axis of length 1 stands changes none. The
    unchanged order is among them.

    Notes
    -----
    Up to rank 5 every order. Beyond, per read the order that makes it one run as far as any can:
    axes of which one index is selected first, then those selected in part, then those spanned,
    each group in source order; and for each pair of reads the order that does so for the first
    and, within its groups, for the second.
    """
    rank = len(extent)
    if rank <= MAX_RANK_OF_ALL_ORDERS:
        orders = set(permutations(range(rank)))
    else:
        spreads = [_spread(slab, extent) for slab in slabs]
        orders = {tuple(range(rank))}
        for first in spreads:
            for second in spreads:
                keys = list(zip(first, second, range(rank), strict=True))
                orders.add(tuple(sorted(range(rank), key=keys.__getitem__)))
    distinct: dict[tuple[int, ...], tuple[int, ...]] = {}
    for order in sorted(orders, key=lambda o: (inversions(o), o)):
        distinct.setdefault(tuple(a for a in order if extent[a] > 1), order)
    return list(distinct.values())


def _spread(slab: Hyperslab, extent: tuple[int, ...]) -> tuple[int, ...]:
    """Return per axis 0 where one index is read, 1 where some are, 2 where all are."""
    pattern = stated_pattern(slab, extent=extent, element_size_bytes=1)
    return tuple(
        2 if a in pattern.spanned_axes else int(a in pattern.axes) for a in range(pattern.rank)
    )
