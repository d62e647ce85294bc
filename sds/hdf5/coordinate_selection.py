"""Selections by names of dimensions and values of coordinates, as the CF conventions have them.

``time=2001-01:2001-12, lat=40`` is the index ``[372:384, 130, :]`` of a dataset whose axes have the
dimension scales time, lat and lon.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING

import h5py
import numpy as np

from sds.errors import SelectionError
from sds.hdf5.dataset import get_dataset, open_hdf5
from sds.hdf5.dimension_names import dimension_names

if TYPE_CHECKING:
    import os

    from numpy.typing import NDArray

_MOST_BYTES = 128 << 20
_MOST_EXACT = 2.0**53
# Of a coordinate with one value, such as a level, what is within a hundredth of it means it.
_LIKE_THE_ONLY_ONE = 0.01
_BY_INDEX = "select by {name}=[START:STOP]"
_NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable"
_DATE = r"\d{4}(?:-\d\d(?:-\d\d(?:T\d\d(?::\d\d(?::\d\d)?)?)?)?)?"
_DATES = re.compile(rf"\s*({_DATE})?\s*(:)?\s*({_DATE})?\s*")
_INDEX = re.compile(r"\[(.*)\]")
_HOW = (
    "write NAME=VALUE, NAME=FROM:TO or NAME=[START:STOP], separated by commas, or an index such "
    "as [:, 3, ::2]"
)
_MONTHS = 12
_PARTS = ("year", "month", "day", "hour", "minute", "second")


def is_by_name(text: str) -> bool:
    """Return whether a selection names dimensions, instead of being an index."""
    return "=" in text


def index_by_coordinates(file: str | os.PathLike[str], dataset: str, text: str) -> str:
    """Return the index, as text, that names of dimensions and values of coordinates say.

    Parameters
    ----------
    text
        ``NAME=VALUE`` is the nearest value of a coordinate of numbers, of times all that are within
        ``2001``, ``2001-01`` or ``2001-01-15``, and of strings the equal one; ``NAME=FROM:TO`` all
        from the one to the other, both included. ``NAME=[INDEX]`` is an integer or a slice, as it
        is without brackets where the dimension has no coordinate. What is not named is whole.

    Raises
    ------
    SelectionError
        If a name is no dimension's, a value lies outside its coordinate or cannot be read, or what
        is between two values is no range with a constant step.
    FileMissingError, DatasetNotFoundError, NotHdf5Error, PermissionDeniedError
        If there is no such dataset.
    """
    with open_hdf5(file) as handle:
        opened = get_dataset(handle, dataset)
        named = dimension_names(opened)
        parts = [":"] * len(named)
        for name, value in _parts(text):
            axes = [axis for axis, names in enumerate(named) if name in names]
            if not axes:
                raise SelectionError(f"{name!r} is no dimension of {dataset}: {_dimensions(named)}")
            if len(axes) > 1:
                message = f"{name!r} is the name of several axes of {dataset}: select by an index"
                raise SelectionError(message)
            if parts[axes[0]] != ":":
                raise SelectionError(f"dimension {name} twice in {text!r}: name it once")
            parts[axes[0]] = _index(opened, axes[0], name, value)
    return f"[{', '.join(parts)}]"


def _parts(text: str) -> list[tuple[str, str]]:
    """Return names and values; commas in brackets separate nothing."""
    found = []
    for part in re.split(r",(?![^\[]*\])", text.strip()):
        name, equals, value = (word.strip() for word in part.partition("="))
        if not (name and equals and value):
            raise SelectionError(f"{part.strip()!r} in the selection {text!r}: {_HOW}")
        found.append((name, value))
    return found


def _dimensions(named: tuple[tuple[str, ...], ...]) -> str:
    """Return the dimensions of a dataset in words."""
    if not any(named):
        return f"its {len(named)} axes have no names, select by an index such as [:, 3, ::2]"
    return "they are " + ", ".join("/".join(n) or f"(axis {i})" for i, n in enumerate(named))


def _index(opened: h5py.Dataset, axis: int, name: str, value: str) -> str:
    """Return the part of an index for one axis."""
    if match := _INDEX.fullmatch(value):
        return match[1].strip() or ":"
    coordinate = _coordinate(opened, axis, name)
    if coordinate is None:
        return value
    n_bytes = coordinate.size * coordinate.dtype.itemsize
    if coordinate.shape != (opened.shape[axis],) or n_bytes > _MOST_BYTES:
        raise SelectionError(
            f"the coordinate {coordinate.name}, {n_bytes} bytes of shape {coordinate.shape}, has "
            f"not one value for each of {opened.shape[axis]} indices, or more than {_MOST_BYTES} "
            f"bytes: {_BY_INDEX.format(name=name)}"
        )
    try:
        return _range_of(_chosen(coordinate, name, value), name, value)
    except SelectionError:
        raise
    except (OSError, RuntimeError, TypeError, ValueError, IndexError) as error:
        raise SelectionError(
            f"the coordinate {coordinate.name} cannot be read ({error}): "
            f"{_BY_INDEX.format(name=name)}"
        ) from error


def _coordinate(opened: h5py.Dataset, axis: int, name: str) -> h5py.Dataset | None:
    """Return the scale of an axis that has a name, or its only one; None where there is none."""
    try:
        found = [(scale.name, scale) for scale in opened.dims[axis].values()]
        scales = [scale for path, scale in found if path and _has_values(scale)]
    except (RuntimeError, KeyError, OSError):  # references that lead nowhere
        return None
    names = [str(scale.name).rpartition("/")[2] for scale in scales]
    if name in names:
        return scales[names.index(name)]
    if len(scales) > 1:
        raise SelectionError(f"{name} has several coordinates: name {' or '.join(names)}")
    return scales[0] if scales else None


def _has_values(scale: h5py.Dataset) -> bool:
    """Return whether a dimension scale is a coordinate, and not only the length of a dimension."""
    return not _text(scale.attrs.get("NAME", "")).startswith(_NO_VARIABLE)


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _chosen(coordinate: h5py.Dataset, name: str, value: str) -> NDArray[np.bool_]:
    """Return which values of a coordinate are meant."""
    if h5py.check_string_dtype(coordinate.dtype):
        texts = coordinate.asstr("utf-8", "surrogateescape")[:]
        return np.asarray(texts == value, dtype=np.bool_)
    if coordinate.dtype.kind not in "iuf":
        raise SelectionError(f"{name} holds no numbers and no text: {_BY_INDEX.format(name=name)}")
    values = _unpacked(coordinate)
    units = _text(coordinate.attrs.get("units", ""))
    if " since " in units:
        low, high = _period(value, name, units, _text(coordinate.attrs.get("calendar", "standard")))
        return (values >= low) & (values < high)
    return _of_numbers(values, _resolution(coordinate), name, value)


def _attribute(coordinate: h5py.Dataset, name: str, default: float) -> float:
    """Return a number among the attributes of a coordinate."""
    return float(np.ravel(coordinate.attrs.get(name, default))[0])


def _unpacked(coordinate: h5py.Dataset) -> NDArray[np.float64]:
    """Return the values of a coordinate, scaled as its attributes say; missing ones are nan.

    Values so large that a number of 64 bits does not hold them exactly are nan as well.
    """
    stored = coordinate[:]
    values: NDArray[np.float64] = stored.astype(np.float64)
    for attribute in ("_FillValue", "missing_value"):
        if attribute in coordinate.attrs:
            values[np.isin(stored, np.ravel(coordinate.attrs[attribute]))] = np.nan
    if stored.dtype.kind in "iu":
        values[np.abs(values) > _MOST_EXACT] = np.nan
    scale = _attribute(coordinate, "scale_factor", 1.0)
    return values * scale + _attribute(coordinate, "add_offset", 0.0)


def _resolution(coordinate: h5py.Dataset) -> float:
    """Return by which factor values may differ from what users write, for want of digits."""
    stored = coordinate.dtype
    packed = "scale_factor" in coordinate.attrs
    return 4 * float(np.finfo(stored if stored.kind == "f" and not packed else np.float64).eps)


def _of_numbers(
    values: NDArray[np.float64], resolution: float, name: str, value: str
) -> NDArray[np.bool_]:
    """Return which numbers are meant: the nearest to one, or all from one to another."""
    known = values[np.isfinite(values)]
    if not known.size:
        raise SelectionError(f"{name} has no values: {_BY_INDEX.format(name=name)}")
    least, most = float(known.min()), float(known.max())
    near = resolution * max(abs(least), abs(most))
    ends = [word.strip() for word in value.split(":")]
    try:
        numbers = [float(word) if word else np.nan for word in ends]
    except ValueError:
        numbers = []
    if len(numbers) == 2 and not np.isnan(numbers).all():
        low = least if np.isnan(numbers[0]) else numbers[0]
        high = most if np.isnan(numbers[1]) else numbers[1]
        if not np.isnan(numbers).any():  # of values that descend, users begin with the greater
            low, high = min(low, high), max(low, high)
        return np.asarray((values >= low - near) & (values <= high + near), dtype=np.bool_)
    if len(numbers) != 1 or np.isnan(numbers[0]):
        raise SelectionError(f"{name}={value}: {name} holds the numbers {least:.9g} to {most:.9g}")
    (number,) = numbers
    apart = np.abs(values - number)
    # Half a step beyond the ends is still nearest to them; -75 degrees of 0 to 359 is a mistake.
    steps = np.diff(np.unique(known))
    beyond = float(steps.max()) / 2 if steps.size else _LIKE_THE_ONLY_ONE * abs(least)
    if not least - beyond - near <= number <= most + beyond + near:
        raise SelectionError(
            f"{name}={value} lies outside {name}, which is {least:.9g} to {most:.9g}"
        )
    return np.asarray(np.arange(values.size) == int(np.nanargmin(apart)), dtype=np.bool_)


def _period(value: str, name: str, units: str, calendar: str) -> tuple[float, float]:
    """Return the begin and the end of a period, in the units of a coordinate of times."""
    match = _DATES.fullmatch(value)
    if match is None or not (match[1] or match[3]) or (match[3] and not match[2]):
        raise SelectionError(
            f"{name}={value}: times are written as 2001, 2001-01, 2001-01-15 or 2001-01-15T06, or "
            "two of these with a colon between them"
        )
    first, last = match[1], match[3] if match[2] else match[1]
    low = -np.inf if not first else _begin_of(first, 0, name, units, calendar)
    high = np.inf if not last else _begin_of(last, 1, name, units, calendar)
    return low, high


def _begin_of(date: str, later: int, name: str, units: str, calendar: str) -> float:
    """Return when a year, month, day, ... begins, or the one that follows it."""
    import cftime  # noqa: PLC0415  (of the extra server; selections without times need none)

    given = [int(part) for part in re.split(r"[-T:]", date)]
    unit = _PARTS[len(given) - 1]
    fields = dict(zip(_PARTS, [*given, *(1, 1, 0, 0, 0)[len(given) - 1 :]], strict=True))
    try:
        begin = cftime.datetime(**fields, calendar=calendar)
        if later and unit in {"year", "month"}:
            begin = cftime.datetime(**_next(fields, unit), calendar=calendar)
        elif later:
            begin += timedelta(**{f"{unit}s": 1})
        return float(cftime.date2num(begin, units, calendar))
    except (ValueError, OverflowError) as error:
        raise SelectionError(
            f"{name}: {date} in {units!r}, calendar {calendar!r}: {error}; "
            f"{_BY_INDEX.format(name=name)}"
        ) from error


def _next(fields: dict[str, int], unit: str) -> dict[str, int]:
    """Return the first moment of the year or month after one."""
    if unit == "month" and fields["month"] < _MONTHS:
        return {**fields, "month": fields["month"] + 1}
    return {**fields, "year": fields["year"] + 1, "month": 1}


def _range_of(chosen: NDArray[np.bool_], name: str, value: str) -> str:
    """Return the integer or slice that selects what is chosen."""
    at = np.flatnonzero(chosen)
    if not at.size:
        raise SelectionError(f"{name}={value} selects nothing: no value of {name} lies there")
    if at.size == 1:
        return str(at[0])
    step = int(at[1] - at[0])
    if (np.diff(at) != step).any():
        raise SelectionError(
            f"{name}={value} selects {at.size} indices that are no range with one step, for the "
            f"values of {name} do not ascend or descend: {_BY_INDEX.format(name=name)}"
        )
    return f"{at[0]}:{at[-1] + 1}" + (f":{step}" if step > 1 else "")
