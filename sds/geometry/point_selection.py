"""Selections that are no hyperslab: points, lists along one axis, masks. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sds import _native
from sds.errors import SelectionError
from sds.geometry import Hyperslab, is_basic_index, selection_from_index

_GREATEST = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, kw_only=True)
class ScatteredSelection:
    """Runs of elements of an array in C order, in the order of the result.

    Attributes
    ----------
    offsets
        Index of the first element of each run; shape (n,).
    run_elements
        Elements of each.
    shape
        Of the result.
    """

    offsets: NDArray[np.int64]
    run_elements: int
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedSelection:
    """A hyperslab of which only some places of one axis are selected.

    Attributes
    ----------
    slab
        With all of that axis.
    axis
        Which one.
    places
        Indices on it, ascending.
    shape
        Of the result.
    """

    slab: Hyperslab
    axis: int
    places: NDArray[np.int64]
    shape: tuple[int, ...]

    def spread(self, extent: tuple[int, ...]) -> ScatteredSelection:
        """Return the runs that are selected in an array of this extent."""
        return _spread(self.slab, self.axis, self.places, extent, self.shape)


def select_points(points: object, extent: tuple[int, ...]) -> ScatteredSelection:
    """Return the selection of single elements, one per row of coordinates.

    Parameters
    ----------
    points
        Integers of shape (n, rank); of shape (n,) where there is one axis. In any order, also
        repeated; negative ones count from the end, as in NumPy.

    Raises
    ------
    SelectionError
        If the shape is another, or a point lies outside the extent.
    """
    array = np.asarray(points)
    rank = len(extent)
    if array.ndim == 1 and (rank == 1 or array.size == 0):
        array = array.reshape(-1, rank)
    if array.ndim != 2 or array.shape[1] != rank or rank == 0:
        message = (
            f"points of shape {array.shape} in a dataset of extent {extent}: pass one row of "
            f"{rank} coordinates per point, shape (n, {rank})"
        )
        raise SelectionError(message)
    if array.size == 0:
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        message = f"points are of type {array.dtype}; coordinates are integers"
        raise SelectionError(message)
    rows = array
    if array.dtype == np.uint64:  # beyond what int64 holds, they would become others
        rows = np.minimum(array, np.uint64(_GREATEST))
    offsets, n_inside = _native.elements_at(np.ascontiguousarray(rows, np.int64), extent)
    if n_inside < len(rows):
        point = tuple(array[n_inside].tolist())
        raise SelectionError(f"point {n_inside}, {point}, lies outside of {extent}")
    return ScatteredSelection(offsets=offsets, run_elements=1, shape=(len(rows),))


def select_scattered(
    index: object, extent: tuple[int, ...]
) -> ScatteredSelection | ListedSelection | None:
    """Return the selection of a mask of the whole extent, or of a list along one axis.

    None where it is neither, or one that h5py refuses: it has the words for that.
    """
    parts = index if isinstance(index, tuple) else (index,)
    if len(parts) == 1 and _is_mask(parts[0], extent):
        places = np.flatnonzero(parts[0])
        return ScatteredSelection(offsets=places, run_elements=1, shape=places.shape)
    given = _per_axis(parts, extent)
    listed = [axis for axis, part in enumerate(given) if not is_basic_index(part)]
    if len(listed) != 1 or len(given) != len(extent):
        return None
    axis = listed[0]
    on_axis = _places_on_axis(given[axis], extent[axis], len(extent))
    if on_axis is None:
        return None
    given[axis] = slice(None)
    slab, shape = selection_from_index(tuple(given), extent)
    n_before = sum(isinstance(part, slice) for part in given[:axis])
    shape = (*shape[:n_before], len(on_axis), *shape[n_before + 1 :])
    return ListedSelection(slab=slab, axis=axis, places=on_axis, shape=shape)


def _per_axis(parts: tuple[Any, ...], extent: tuple[int, ...]) -> list[Any]:
    """Return one part per axis, where they are not too many."""
    # By identity: comparing an array compares its elements.
    at = next((k for k, part in enumerate(parts) if part is Ellipsis), len(parts))
    rest = parts[at + 1 :]
    return [*parts[:at], *[slice(None)] * (len(extent) - at - len(rest)), *rest]


def _is_mask(part: object, extent: tuple[int, ...]) -> bool:
    return isinstance(part, np.ndarray) and part.dtype.kind == "b" and part.shape == extent


def _places_on_axis(part: object, length: int, rank: int) -> NDArray[np.int64] | None:
    """Return increasing indices on an axis, None where h5py takes no such list."""
    if not isinstance(part, list | np.ndarray):
        return None
    try:
        array = np.asarray(part)
    except ValueError:  # lists of different lengths
        return None
    if isinstance(part, list) and not part:
        array = array.astype(np.int64)  # an empty list is one of floats
    if array.dtype.kind == "b" and array.shape == (length,) and rank > 1:
        array = np.flatnonzero(array)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        return None
    places = array.astype(np.int64)
    places = np.where(places < 0, places + length, places)
    fits = ((places >= 0) & (places < length)).all() and (np.diff(places) > 0).all()
    # Of unsigned numbers beyond 2**63 others may have become.
    return places if fits and (array.dtype.kind == "i" or (array < length).all()) else None


def _strides(extent: tuple[int, ...]) -> NDArray[np.int64]:
    """Return how many elements lie between neighbours on each axis."""
    strides = [math.prod(extent[axis + 1 :]) for axis in range(len(extent))]
    return np.array(strides, np.int64)


def _spread(
    slab: Hyperslab,
    axis: int,
    places: NDArray[np.int64],
    extent: tuple[int, ...],
    shape: tuple[int, ...],
) -> ScatteredSelection:
    """Return the runs of a slab with some places of one axis."""
    last = len(extent) - 1
    run = 1
    # Whole axes at the end, and the stretch before them, are one run.
    while last > axis and slab.count[last] == extent[last]:
        run *= extent[last]
        last -= 1
    if last > axis and slab.stride[last] == 1:
        run *= slab.count[last]
        first, last = slab.start[last], last - 1
        offsets = np.array([first * _strides(extent)[last + 1]], np.int64)
    else:
        offsets = np.zeros(1, np.int64)
    strides = _strides(extent).tolist()
    for k in range(last, -1, -1):
        on_axis = (
            places
            if k == axis
            else slab.start[k] + slab.stride[k] * np.arange(slab.count[k], dtype=np.int64)
        )
        offsets = (on_axis[:, None] * strides[k] + offsets).reshape(-1)
    return ScatteredSelection(offsets=offsets, run_elements=run, shape=shape)
