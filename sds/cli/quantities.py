"""Sizes, times and axis orders as users write and read them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from sds.errors import LayoutError, SdsValueError
from sds.text import size_text, time_text

if TYPE_CHECKING:
    import os

    from sds.catalog.replica_records import ReplicaRecord
    from sds.geometry import SegmentList

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:([KMGT])(?:I?B)?|B)?\s*", re.ASCII | re.IGNORECASE)


def parse_size(text: str, *, name: str = "size") -> int:
    """Return the bytes that a size names: ``512M``, ``512MiB`` and ``512MB`` are 512 x 2**20.

    Raises
    ------
    SdsValueError
        If it is no size, no whole number of bytes, or zero.
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        message = f"{name} {text!r} is no size; write for example 65536, 64K, 512M or 2G"
        raise SdsValueError(message)
    number, unit = match.groups()
    size_bytes = float(number) * _UNITS[(unit or "").upper()]
    if size_bytes != int(size_bytes) or size_bytes < 1:
        message = f"{name} {text!r} is no whole, positive number of bytes"
        raise SdsValueError(message)
    if "." not in number:
        return int(number) * _UNITS[(unit or "").upper()]
    return int(size_bytes)


def format_size(size_bytes: float) -> str:
    """Return bytes with the binary unit in which they read best."""
    return size_text(size_bytes)


def format_seconds(seconds: float | None) -> str:
    """Return a time with the unit in which it reads best; ``-`` for None."""
    return "-" if seconds is None else time_text(seconds)


def format_count(count: int) -> str:
    """Return a whole number with thin groups of three digits."""
    return f"{count:,}"


def parse_order(text: str) -> tuple[int, ...]:
    """Return the axis order that ``2,0,1`` names; whether it fits the dataset is checked later.

    Raises
    ------
    LayoutError
        If it is no list of whole numbers that names each axis once.
    """
    parts = [part.strip() for part in text.strip().strip("()[]").split(",")]
    try:
        order = tuple(int(part) for part in parts if part)
    except ValueError:
        order = ()
    if not order or sorted(order) != list(range(len(order))):
        message = (
            f"axis order {text!r} is no permutation; "
            "name each axis once, counted from 0, for example 2,0,1"
        )
        raise LayoutError(message)
    return order


def named_order(text: str, file: str | os.PathLike[str], dataset: str) -> tuple[int, ...]:
    """Return the axis order that ``2,0,1`` says, or ``lat,lon,time`` by names of dimensions.

    Errors as of `parse_order` and `sds.hdf5.dimension_names.order_of_names`.
    """
    words = tuple(word.strip() for word in text.strip().strip("()[]").split(","))
    if all(word.lstrip("+-").isdigit() or not word for word in words):
        return parse_order(text)
    from sds.hdf5.dimension_names import order_of_names

    return order_of_names(file, dataset, words)


def named_selection(text: str, file: str | os.PathLike[str], dataset: str) -> str:
    """Return the index that a selection says by names of dimensions and values of coordinates.

    One that is an index stays as it is. Errors as of
    `sds.hdf5.coordinate_selection.index_by_coordinates`.
    """
    from sds.hdf5.coordinate_selection import index_by_coordinates, is_by_name

    return index_by_coordinates(file, dataset, text) if is_by_name(text) else text


def parse_chunks(text: str) -> tuple[int, ...] | Literal["auto", "contiguous"]:
    """Return the chunk shape that ``64,64,64``, ``auto`` or ``contiguous`` names.

    Raises
    ------
    LayoutError
        If it is none of these; whether it fits the dataset is checked later.
    """
    word = text.strip().lower()
    if word == "auto":
        return "auto"
    if word == "contiguous":
        return "contiguous"
    parts = [part.strip() for part in word.strip("()[]").split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        message = (
            f"chunks {text!r} are no chunk shape: write a length for each axis of the replica, "
            "for example 64,64,64, or auto, or contiguous"
        )
        raise LayoutError(message)
    return tuple(map(int, parts))


def parse_tiles(text: str) -> tuple[int, ...]:
    """Return the shape of tiles that ``1,64,64`` names; whether it fits is checked later.

    Raises
    ------
    LayoutError
        If it is no list of whole numbers.
    """
    parts = [part.strip() for part in text.strip().strip("()[]").split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        message = (
            f"tiles {text!r} have no shape: write a length for each axis of the dataset, for "
            "example 1,64,64"
        )
        raise LayoutError(message)
    return tuple(map(int, parts))


def format_layout(replica: ReplicaRecord) -> tuple[tuple[str, str], ...]:
    """Return names and values of how a replica is stored, as far as it is not as usual."""
    from sds.organizer.replica_file.filters import format_filters

    fields: list[tuple[str, str]] = [("storage", replica.storage)]
    if replica.sort is not None:
        return (*fields, ("columns", ", ".join(replica.sort.columns)))
    if replica.chunk_shape is not None:
        fields.append(("chunks", ",".join(map(str, replica.chunk_shape))))
        fields.append(("filters", format_filters(replica.filters)))
        if replica.stored_bytes is not None:
            fields.append(("stored", format_size(replica.stored_bytes)))
    if replica.segments is not None:
        fields.append(("segments", format_segments(replica.segments)))
        fields.append(("within", str(replica.region)))
    else:
        fields.append(("region", describe_region(replica)))
    return tuple(fields)


def format_segments(segments: SegmentList) -> str:
    """Return how many tiles of which shape a replica holds, in how many segments."""
    from sds.text import counted

    tiles = counted(len(segments.tiles), "tile")
    shape = "x".join(map(str, segments.tile_shape))
    return f"{tiles} of {shape} in {counted(len(segments.lengths), 'segment')}"


def describe_order(replica: ReplicaRecord) -> str:
    """Return the axis order of a replica, or by which column it is sorted."""
    if replica.sort is None:
        return format_order(replica.order)
    return f"sorted by {replica.sort.key}"


def describe_storage(replica: ReplicaRecord) -> str:
    """Return in one word or two how a replica is stored."""
    from sds.organizer.replica_file.filters import format_filters

    if replica.chunk_shape is None:
        return replica.storage
    chunks = "x".join(map(str, replica.chunk_shape))
    return f"{chunks} {format_filters(replica.filters)}" if replica.filters else chunks


def describe_region(replica: ReplicaRecord) -> str:
    """Return what of its source a replica holds; ``all`` where that is known to be all."""
    from sds.geometry import Box
    from sds.text import counted

    if replica.segments is not None:
        shape = "x".join(map(str, replica.segments.tile_shape))
        return f"{counted(len(replica.segments.tiles), 'tile')} of {shape}"
    whole = replica.replica is not None and replica.region == Box.whole(replica.replica.extent)
    return "all" if whole else str(replica.region)


def format_order(order: tuple[int, ...] | None) -> str:
    """Return an axis order as it is written on the command line; ``as it is`` for None."""
    return "as it is" if order is None else ",".join(map(str, order))


def format_days(days: float) -> str:
    """Return a number of days for reading."""
    return "under a day" if days < 1 else f"{days:,.3g} days"
