"""Schedules of collective I/O: which OST each aggregator works on in each iteration. Pure.

An *item* is what an aggregator transfers in one iteration: a collective buffer's worth of its data
on one OST. A schedule takes every item once, so that in no iteration an aggregator has two items,
or an OST two aggregators. It is an array of integers, shape (iterations, aggregators), that holds
OST numbers, and `IDLE` where an aggregator has nothing to do. Items of one aggregator on one OST
are taken in the order of their offsets.

Aggregators and OSTs are the two sides of a bipartite multigraph whose edges are the items, so that
a schedule is an edge coloring, and as many iterations as the busiest aggregator or OST has items
always suffice (Koenig 1916): `edge_coloring` needs no more. `greedy` is the rule of Wang 2014,
Sec. III.B, to compare with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sds.errors import SdsValueError

if TYPE_CHECKING:
    from numpy.typing import NDArray

IDLE = -1


def least_iterations(counts: NDArray[np.int64]) -> int:
    """Return the items of the busiest aggregator or OST: no schedule is shorter.

    Parameters
    ----------
    counts
        Items of each aggregator on each OST, shape (aggregators, OSTs).
    """
    counts = _checked(counts)
    if counts.size == 0:
        return 0
    return int(max(counts.sum(axis=1).max(), counts.sum(axis=0).max()))


def in_turn(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the schedule in which every aggregator takes its items in order, whoever else does.

    The conventional order of two-phase I/O, for items that are not cut by OST: all are of one
    column.

    Parameters
    ----------
    counts
        Items of each aggregator, shape (aggregators, 1).
    """
    counts = _checked(counts)
    if counts.shape[1] != 1:
        message = f"items of {counts.shape[1]} OSTs would meet; give shape (aggregators, 1)"
        raise SdsValueError(message)
    iterations = np.arange(counts.max(initial=0))
    return np.where(iterations[:, None] < counts[:, 0], 0, IDLE).astype(np.int64)


def edge_coloring(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a schedule of `least_iterations`.

    Parameters
    ----------
    counts
        Items of each aggregator on each OST, shape (aggregators, OSTs).

    Examples
    --------
    >>> edge_coloring(np.array([[1, 1], [1, 1]])).tolist()
    [[0, 1], [1, 0]]
    """
    counts = _checked(counts)
    n_aggregators, n_osts = counts.shape
    n_iterations = least_iterations(counts)
    coloring = _Coloring(n_aggregators, n_osts, n_iterations)
    for aggregator, ost in np.argwhere(counts).tolist():
        for _ in range(int(counts[aggregator, ost])):
            coloring.add(aggregator, ost)
    return np.array(coloring.ost_of, np.int64).reshape(n_aggregators, n_iterations).T


class _Coloring:
    """Edges of a bipartite multigraph, each of a color that neither of its ends has twice.

    Colors are iterations. Sets of colors are the bits of an integer.
    """

    def __init__(self, n_aggregators: int, n_osts: int, n_colors: int) -> None:
        self.ost_of = [[IDLE] * n_colors for _ in range(n_aggregators)]
        self._aggregator_of = [[IDLE] * n_colors for _ in range(n_osts)]
        self._free_of_aggregator = [(1 << n_colors) - 1] * n_aggregators
        self._free_of_ost = [(1 << n_colors) - 1] * n_osts

    def add(self, aggregator: int, ost: int) -> None:
        """Add an edge; recolor others where its ends have no free color in common."""
        common = self._free_of_aggregator[aggregator] & self._free_of_ost[ost]
        if not common:
            color = _lowest(self._free_of_aggregator[aggregator])
            self._swap_path(ost, color, _lowest(self._free_of_ost[ost]))
            common = 1 << color
        self._set(aggregator, ost, _lowest(common))

    def _swap_path(self, ost: int, color: int, other: int) -> None:
        """Swap two colors on the path from an OST that lacks `other`; it then lacks `color`.

        The path comes to aggregators by `color` alone, so not to one that lacks it.
        """
        path = []
        while True:
            aggregator = self._aggregator_of[ost][color]
            if aggregator == IDLE:
                break
            path.append((aggregator, ost, color))
            ost = self.ost_of[aggregator][other]
            if ost == IDLE:
                break
            path.append((aggregator, ost, other))
        for edge in path:
            self._clear(*edge)
        for aggregator, ost, was in path:
            self._set(aggregator, ost, other if was == color else color)

    def _set(self, aggregator: int, ost: int, color: int) -> None:
        self.ost_of[aggregator][color] = ost
        self._aggregator_of[ost][color] = aggregator
        self._free_of_aggregator[aggregator] &= ~(1 << color)
        self._free_of_ost[ost] &= ~(1 << color)

    def _clear(self, aggregator: int, ost: int, color: int) -> None:
        self.ost_of[aggregator][color] = IDLE
        self._aggregator_of[ost][color] = IDLE
        self._free_of_aggregator[aggregator] |= 1 << color
        self._free_of_ost[ost] |= 1 << color


def _lowest(bits: int) -> int:
    """Return the number of the lowest bit that is set."""
    return (bits & -bits).bit_length() - 1


def greedy(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the schedule of Wang 2014, which may take more than `least_iterations`.

    As long as every group (an aggregator's items on one OST) has items, the OSTs rotate over the
    aggregators; then the groups with the fewest items left go first.

    Parameters
    ----------
    counts
        Items of each aggregator on each OST, shape (aggregators, OSTs).
    """
    left = _checked(counts).copy()
    n_aggregators, n_osts = left.shape
    rows: list[NDArray[np.int64]] = []
    n_places = max(n_aggregators, n_osts)
    aggregators = np.arange(n_aggregators)
    n_rounds = int(left.min(initial=np.iinfo(np.int64).max)) if left.size else 0
    for step in range(n_places):
        places = (aggregators + step) % n_places
        rows += [np.where(places < n_osts, places, IDLE)] * n_rounds
    left -= n_rounds
    while left.any():
        row = np.full(n_aggregators, IDLE, np.int64)
        free = np.ones(n_osts, np.bool_)
        groups = np.argwhere(left)
        for aggregator, ost in groups[np.argsort(left[tuple(groups.T)], kind="stable")].tolist():
            if row[aggregator] == IDLE and free[ost]:
                row[aggregator] = ost
                free[ost] = False
                left[aggregator, ost] -= 1
        rows.append(row)
    return np.array(rows, np.int64).reshape(len(rows), n_aggregators)


def _checked(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    array = np.asarray(counts)
    if array.ndim != 2 or array.dtype.kind not in "iu" or (array < 0).any():
        message = (
            f"counts are {array.dtype} of shape {array.shape}; give the number of items of each "
            "aggregator on each OST, shape (aggregators, OSTs)"
        )
        raise SdsValueError(message)
    return array.astype(np.int64)
