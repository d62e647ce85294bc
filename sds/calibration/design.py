"""The reads that a calibration measures: shapes that spread block depth, block gap and runs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sds.errors import SdsValueError
from sds.geometry import Hyperslab

ELEMENT_SIZE_BYTES = 4
# The array is stored twice, in two axis orders: (x, y, z) and (z, x, y).
STORED_ORDERS = ((0, 1, 2), (2, 0, 1))
# Below this an array has no room for the shapes.
MIN_SPACE_BYTES = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True)
class DesignedRead:
    """A shape of read, without its position.

    Attributes
    ----------
    name
        E.g. ``line along 0``.
    stride, count
        Per axis of the array in its logical order; block is 1.
    """

    name: str
    stride: tuple[int, int, int]
    count: tuple[int, int, int]

    def room(self, extent: tuple[int, int, int]) -> tuple[int, ...]:
        """Return per axis how many starts there are."""
        return tuple(
            n - (c - 1) * s for n, c, s in zip(extent, self.count, self.stride, strict=True)
        )

    def at(self, start: tuple[int, ...]) -> Hyperslab:
        """Return the selection that begins at `start`."""
        return Hyperslab(start=start, stride=self.stride, count=self.count, block=(1, 1, 1))


def array_extent(space_bytes: int) -> tuple[int, int, int]:
    """Return an extent (n, n, 4 n) of which two copies of 4-byte elements fit into the space.

    Raises
    ------
    SdsValueError
        If the space is less than 256 KiB.
    """
    if space_bytes < MIN_SPACE_BYTES:
        raise SdsValueError(
            f"{space_bytes} bytes are too few to calibrate with: give at least {MIN_SPACE_BYTES}"
        )
    elements = space_bytes / (len(STORED_ORDERS) * ELEMENT_SIZE_BYTES)
    n = math.floor((elements / 4.0) ** (1.0 / 3.0) + 1e-9)
    return n, n, 4 * n


def designed_reads(extent: tuple[int, int, int]) -> list[DesignedRead]:
    """Return the shapes to measure, each of which fits into the extent.

    Points, lines, planes and sub-planes along and across every axis, cubes of three sizes,
    ranges of rows, thick planes, and strided lines, planes and cubes.
    """
    shapes: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {}
    one = (1, 1, 1)

    def add(name: str, count: tuple[int, ...], stride: tuple[int, ...] = one) -> None:
        fitted = tuple(
            max(1, min(c, (n - 1) // s + 1)) for n, c, s in zip(extent, count, stride, strict=True)
        )
        shapes[name] = (
            tuple(s if c > 1 else 1 for s, c in zip(stride, fitted, strict=True)),
            fitted,
        )

    def along(axes: tuple[int, ...], part: int, step: int = 1) -> None:
        count = tuple(max(1, n // (part * step)) if a in axes else 1 for a, n in enumerate(extent))
        stride = tuple(step if a in axes else 1 for a in range(3))
        what = {1: "line", 2: "plane", 3: "cube"}[len(axes)]
        name = f"{what} along {','.join(map(str, axes))}"
        name += f", part 1/{part}" if part > 1 else ""
        add(name + (f", every {step}" if step > 1 else ""), count, stride)

    add("point", one)
    for axis in range(3):
        for part in (1, 8):
            along((axis,), part)
        along((axis,), 1, 4)
    for axes in ((0, 1), (0, 2), (1, 2)):
        for part in (1, 4):
            along(axes, part)
        along(axes, 1, 4)
    for part in (2, 8, 16):
        along((0, 1, 2), part)
    along((0, 1, 2), 1, 8)
    for thickness in (2, 8):
        add(f"plane of {thickness} across 0", (thickness, extent[1], extent[2]))
        add(f"plane of {thickness} across 1", (extent[0], thickness, extent[2]))
        add(f"plane of {thickness} across 2", (extent[0], extent[1], thickness))
    return [
        DesignedRead(name=name, stride=stride, count=count)  # type: ignore[arg-type]
        for name, (stride, count) in shapes.items()
    ]
