"""Selections by NumPy's basic indexing, in Python or as text."""

from __future__ import annotations

from typing import Any, TypeAlias, TypeGuard, cast

import numpy as np

from sds.errors import SelectionError
from sds.geometry.dataspace import Hyperslab

AxisIndex: TypeAlias = "int | slice"
_BASIC = "a selection is made of integers, slices start:stop:step and at most one ..., as in NumPy"


def is_basic_index(index: object) -> bool:
    """Return whether an index is made only of integers, slices and ellipses."""
    for part in index if isinstance(index, tuple) else (index,):
        kind = type(part)
        # What nearly all are made of, before what takes as long as a small read.
        if kind is int or kind is slice or part is Ellipsis:
            continue
        if not _is_integer(part):
            return False
    return True


def parse_selection(text: str, extent: tuple[int, ...]) -> Hyperslab:
    """Return the hyperslab that a text such as ``[:, 3, ::2]`` selects.

    NumPy's rules for basic indexing: negative indices count from the end, slices are clipped to
    the extent, missing axes are taken whole, ``...`` stands for as many as are missing. Brackets
    may be left out. An axis given by an integer stays an axis, of length one.

    Raises
    ------
    SelectionError
        If the text is no such index, or reaches outside the extent.
    """
    return selection_from_index(parse_index(text), extent)[0]


def selection_from_index(
    index: object, extent: tuple[int, ...]
) -> tuple[Hyperslab, tuple[int, ...]]:
    """Return the hyperslab that an index such as ``np.s_[:, 3, ::2]`` selects, and its shape.

    The shape is that of the result of indexing: integers drop their axis.

    Raises
    ------
    SelectionError
        If the index is not basic, steps backwards or reaches outside the extent.
    """
    parts = _expand(index if isinstance(index, tuple) else (index,), extent)
    starts, strides, counts, shape = [], [], [], []
    for axis, part in enumerate(parts):
        start, step, count = _select_axis(part, axis, extent[axis])
        starts.append(start)
        strides.append(step)
        counts.append(count)
        if isinstance(part, slice):
            shape.append(count)
    slab = Hyperslab(
        start=tuple(starts),
        stride=tuple(strides),
        count=tuple(counts),
        block=(1,) * len(counts),
    )
    return slab, tuple(shape)


def _is_integer(part: object) -> TypeGuard[int | np.integer[Any]]:
    """Return whether an index part is an integer; True and False are masks to NumPy."""
    return isinstance(part, int | np.integer) and not isinstance(part, bool)


def _expand(parts: tuple[object, ...], extent: tuple[int, ...]) -> list[AxisIndex]:
    """Return one integer or slice per axis."""
    if len(parts) == len(extent) and all(type(part) in (int, slice) for part in parts):
        return cast("list[AxisIndex]", list(parts))
    n_ellipses = sum(part is Ellipsis for part in parts)
    if n_ellipses > 1:
        raise SelectionError("more than one ... in a selection; write the other axes as :")
    n_given = len(parts) - n_ellipses
    if n_given > len(extent):
        message = (
            f"{n_given} axes selected, the dataset has {len(extent)}: {extent}; "
            f"leave out {n_given - len(extent)}"
        )
        raise SelectionError(message)
    missing: list[AxisIndex] = [slice(None)] * (len(extent) - n_given)
    expanded: list[AxisIndex] = []
    for part in parts:
        if part is Ellipsis:
            expanded += missing
        elif part is None:
            raise SelectionError("None (np.newaxis) adds an axis, it selects nothing; leave it out")
        elif isinstance(part, slice):
            expanded.append(part)
        elif _is_integer(part):
            expanded.append(int(part))
        else:
            raise SelectionError(f"cannot select by {part!r}; {_BASIC}")
    return expanded if n_ellipses else expanded + missing


def _select_axis(part: AxisIndex, axis: int, length: int) -> tuple[int, int, int]:
    """Return (start, step, count) on one axis."""
    if not isinstance(part, slice):
        if not -length <= part < length:
            allowed = f"{-length} to {length - 1}" if length else "nothing: its length is 0"
            message = f"axis {axis}: index {part} is out of range; possible is {allowed}"
            raise SelectionError(message)
        return part % length, 1, 1
    try:
        start, stop, step = part.indices(length)
    except (TypeError, ValueError) as error:
        raise SelectionError(f"axis {axis}: {_write_slice(part)}: {error}; {_BASIC}") from error
    if step < 1:
        message = (
            f"axis {axis}: step {step} in {_write_slice(part)} goes backwards; "
            "select forwards and reverse the result"
        )
        raise SelectionError(message)
    count = max(0, -((start - stop) // step))
    return start, step if count > 1 else 1, count


def _write_slice(part: slice) -> str:
    pieces = [part.start, part.stop] + ([part.step] if part.step is not None else [])
    return ":".join("" if piece is None else str(piece) for piece in pieces)


def parse_index(text: str) -> tuple[object, ...]:
    """Return the index that a text such as ``[:, 3, ::2]`` stands for, as ``np.s_`` would.

    Raises
    ------
    SelectionError
        If a part is no integer, slice or ``...``.
    """
    inner = text.strip()
    for opening, closing in ("[]", "()"):
        if inner.startswith(opening) and inner.endswith(closing):
            inner = inner[1:-1].strip()
            if not inner and opening == "(":
                return ()
            break
    if not inner:
        message = f"{text!r} selects nothing; write ... for everything, or for example [:, 3, ::2]"
        raise SelectionError(message)
    parts = inner.split(",")
    if not parts[-1].strip() and len(parts) > 1:
        parts.pop()  # Python allows one comma after the last index
    return tuple(_parse_part(part.strip(), text) for part in parts)


def _parse_part(part: str, text: str) -> object:
    if part in ("...", "Ellipsis"):
        return Ellipsis
    if part in ("None", "newaxis", "np.newaxis"):
        return None
    if ":" not in part:
        return _parse_integer(part, text)
    pieces = [piece.strip() for piece in part.split(":")]
    if len(pieces) > 3:
        message = f"{part!r} in {text!r} has {len(pieces)} parts; a slice is start:stop:step"
        raise SelectionError(message)
    return slice(*(_parse_integer(piece, text) if piece else None for piece in pieces))


def _parse_integer(piece: str, text: str) -> int:
    try:
        return int(piece)
    except ValueError as error:
        raise SelectionError(f"{piece!r} in {text!r} is no integer; {_BASIC}") from error
