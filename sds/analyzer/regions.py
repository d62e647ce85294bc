"""Cover the reads of a dataset by few boxes, tight where most reads lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sds.geometry import Box

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAX_PLACES = 32
"""Largest number of boxes per pattern: more cost space in the catalog and time in advice."""

_NO_GAIN = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A box of a dataset, and how many HDF5 reads of a pattern lie within it.

    Places of one pattern may overlap; each read counts in one.
    """

    box: Box
    n_calls: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BoxGroup:
    """Boxes near each other, and the two groups that they fall into most naturally.

    Attributes
    ----------
    rows
        Which of the boxes given.
    box
        The smallest that holds them.
    space
        Its share of the dataset.
    weight
        Of its boxes together.
    parts
        None, or two groups of the same boxes.
    """

    rows: NDArray[np.intp]
    box: Box
    space: float
    weight: float
    parts: tuple[BoxGroup, BoxGroup] | tuple[()]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Boxes:
    """Boxes as arrays, shapes (n, rank), (n, rank), (n,) and (rank,)."""

    low: NDArray[np.int64]
    high: NDArray[np.int64]
    weights: NDArray[np.float64]
    extent: NDArray[np.float64]

    def space(self, low: NDArray[np.int64], high: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the share of the dataset that boxes take, shape (n,)."""
        share: NDArray[np.float64] = np.prod((high - low) / self.extent, axis=1)
        return share


@dataclass(slots=True, eq=False)
class _Node:
    """A group that may be cut in two."""

    rows: NDArray[np.intp]
    gain: float
    halves: tuple[NDArray[np.intp], NDArray[np.intp]] | None
    parts: tuple[_Node, _Node] | None = None


def places_of(
    low: NDArray[np.int64],
    high: NDArray[np.int64],
    n_calls: NDArray[np.int64],
    extent: Sequence[int],
) -> tuple[Place, ...]:
    """Return few places for reads in many boxes, those with most reads first.

    Parameters
    ----------
    low, high
        First index of each box and the one after its last, shape (n, rank); boxes not empty.
    n_calls
        Reads in each, shape (n,).
    extent
        Of the dataset.
    """
    if not extent:  # a scalar
        return (Place(box=Box(start=(), extent=()), n_calls=int(n_calls.sum())),)
    boxes = np.concatenate([low, high], axis=1)
    distinct, which = np.unique(boxes, axis=0, return_inverse=True)
    counts = np.zeros(len(distinct))
    np.add.at(counts, which.reshape(-1), n_calls)
    rank = len(extent)
    low, high = distinct[:, :rank], distinct[:, rank:]
    found = []
    for rows in _leaves(_cut(_boxes(low, high, counts, extent), n_leaves=MAX_PLACES)):
        first, last = low[rows].min(axis=0), high[rows].max(axis=0)
        box = Box(start=tuple(first.tolist()), extent=tuple((last - first).tolist()))
        found.append(Place(box=box, n_calls=int(counts[rows].sum())))
    return tuple(sorted(found, key=lambda place: (-place.n_calls, place.box.start)))


def joined_places(places: Iterable[Place], extent: Sequence[int]) -> tuple[Place, ...]:
    """Return few places for those of several patterns."""
    given = list(places)
    if not given:
        return ()
    low, high = _limits([place.box for place in given])
    return places_of(low, high, np.array([place.n_calls for place in given]), extent)


def group_boxes(
    boxes: Sequence[Box], weights: Sequence[float], extent: Sequence[int], *, n_leaves: int
) -> BoxGroup:
    """Return how boxes lie together: a tree of groups, cut where most is gained.

    Parameters
    ----------
    boxes
        At least one, not empty.
    weights
        Of each, positive.
    n_leaves
        Groups that are cut no further.

    Notes
    -----
    A group costs its weight times the space of the smallest box that holds it. The cut that makes
    that least along some axis comes next: what is read often gets tight boxes, the rest wide ones.
    """
    low, high = _limits(boxes)
    given = _boxes(low, high, np.asarray(weights, dtype=np.float64), extent)

    def group(node: _Node) -> BoxGroup:
        first, last = low[node.rows].min(axis=0), high[node.rows].max(axis=0)
        parts = node.parts
        return BoxGroup(
            rows=node.rows,
            box=Box(start=tuple(first.tolist()), extent=tuple((last - first).tolist())),
            space=float(given.space(first[np.newaxis], last[np.newaxis])[0]),
            weight=float(given.weights[node.rows].sum()),
            parts=() if parts is None else (group(parts[0]), group(parts[1])),
        )

    return group(_cut(given, n_leaves=n_leaves))


def _limits(boxes: Sequence[Box]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    low = np.array([box.start for box in boxes], dtype=np.int64).reshape(len(boxes), -1)
    lengths = np.array([box.extent for box in boxes], dtype=np.int64).reshape(len(boxes), -1)
    return low, low + lengths


def _boxes(
    low: NDArray[np.int64],
    high: NDArray[np.int64],
    weights: NDArray[np.float64],
    extent: Sequence[int],
) -> _Boxes:
    return _Boxes(
        low=low, high=high, weights=weights, extent=np.maximum(1, np.array(extent, np.float64))
    )


def _cut(boxes: _Boxes, *, n_leaves: int) -> _Node:
    """Return all boxes as one group, merged to a bounded number."""
    root = _node(boxes, np.arange(len(boxes.weights)))
    leaves = [root]
    while len(leaves) < n_leaves:
        best = max(leaves, key=lambda node: node.gain)
        if best.halves is None:
            break
        best.parts = (_node(boxes, best.halves[0]), _node(boxes, best.halves[1]))
        leaves.remove(best)
        leaves += best.parts
    return root


def _leaves(node: _Node) -> list[NDArray[np.intp]]:
    if node.parts is None:
        return [node.rows]
    return _leaves(node.parts[0]) + _leaves(node.parts[1])


def _node(boxes: _Boxes, rows: NDArray[np.intp]) -> _Node:
    """Return a group with its best cut, where one gains anything."""
    low, high, weights = boxes.low[rows], boxes.high[rows], boxes.weights[rows]
    whole = float(boxes.space(low.min(axis=0)[None], high.max(axis=0)[None])[0] * weights.sum())
    least, halves = whole * (1.0 - _NO_GAIN), None
    for axis in range(low.shape[1]) if len(rows) > 1 else ():
        order = np.argsort(low[:, axis] + high[:, axis], kind="stable")
        before = _cost_of_first(boxes, low[order], high[order], weights[order])
        turned = order[::-1]
        behind = _cost_of_first(boxes, low[turned], high[turned], weights[turned])[::-1]
        costs = before[:-1] + behind[1:]
        at = int(np.argmin(costs))
        if costs[at] < least:
            least = float(costs[at])
            halves = (rows[order[: at + 1]], rows[order[at + 1 :]])
    return _Node(rows=rows, gain=0.0 if halves is None else whole - least, halves=halves)


def _cost_of_first(
    boxes: _Boxes, low: NDArray[np.int64], high: NDArray[np.int64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the cost of the first n boxes together, for each n, shape (n,)."""
    space = boxes.space(np.minimum.accumulate(low), np.maximum.accumulate(high))
    cost: NDArray[np.float64] = np.cumsum(weights) * space
    return cost
