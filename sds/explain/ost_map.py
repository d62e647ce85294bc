"""Map of the OSTs and disks that a read touches, drawn in characters."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sds.explain.touched_extents import OstLoad

_HEIGHTS = "▁▂▃▄▅▆▇█"
_SHADES = "░▒▓█"
_NOTHING = "·"
_ASCII_HEIGHTS = _ASCII_SHADES = ".:-=+*#@"
_ASCII_NOTHING = " "
# Of cividis, dark to light: readable with every kind of colour vision, and in grey.
_COLOURS = ("#31446b", "#575d6d", "#7b7b78", "#a59c74", "#d3c064", "#fee838")
_LEAST_WIDTH = 20
_MOST_DISKS = 16


def draw_osts(loads: Sequence[OstLoad], *, width: int, plain: bool = False) -> Text:
    """Return a drawing, a column for each OST and a row for each disk.

    Where all disks of each OST are alike, one row of bars stands for them. More OSTs than fit go
    on below; where there are too many for that, a column stands for several, by the busiest.

    Parameters
    ----------
    width
        Columns of the terminal.
    plain
        Whether only ASCII may be used.
    """
    width = max(width, _LEAST_WIDTH)
    rows, alike = _rows_of(loads)
    most = max((max(row, default=0) for row in rows), default=0)
    margin = len(f"disk {len(rows) - 1}") + 1 if not alike else 0
    columns = width - margin
    per_column = -(-len(loads) // (columns * (4 if alike else 2)))
    rows = [_binned(row, per_column) for row in rows]
    text = Text()
    n_columns = len(rows[0]) if rows else 0
    for begin in range(0, n_columns, columns):
        end = min(begin + columns, n_columns)
        first, last = loads[begin * per_column], loads[min(end * per_column, len(loads)) - 1]
        text.append(" " * margin + _ruler(first.ost, last.ost, end - begin) + "\n")
        for disk, row in enumerate(rows):
            if margin:
                text.append(f"disk {disk}".ljust(margin))
            for value in row[begin:end]:
                text.append(_cell(value, most, alike=alike, plain=plain), _style(value, most))
            text.append("\n")
    legend = _legend(most, alike=alike, plain=plain, per_column=per_column)
    text.append(legend)
    return text


def prefers_ascii() -> bool:
    """Return whether stdout takes no other characters."""
    encoding = sys.stdout.encoding or "ascii"
    try:
        (_HEIGHTS + _SHADES + _NOTHING).encode(encoding)
    except (LookupError, UnicodeEncodeError):
        return True
    return False


def _rows_of(loads: Sequence[OstLoad]) -> tuple[list[list[int]], bool]:
    """Return blocks by disk and OST, and whether one row stands for all disks."""
    alike = all(len(set(load.disk_blocks)) <= 1 for load in loads)
    if alike:
        return [[max(load.disk_blocks, default=0) for load in loads]], True
    n_disks = max(len(load.disk_blocks) for load in loads)
    per_row = -(-n_disks // _MOST_DISKS)
    return [
        [max(load.disk_blocks[disk : disk + per_row], default=0) for load in loads]
        for disk in range(0, n_disks, per_row)
    ], False


def _binned(row: list[int], per_column: int) -> list[int]:
    return [max(row[i : i + per_column]) for i in range(0, len(row), per_column)]


def _ruler(first: int, last: int, width: int) -> str:
    """Return the numbers of the first and the last OST above their columns."""
    left, right = f"OST {first}", str(last)
    if first == last or width < len(left) + len(right) + 2:
        return f"{left}-{last}" if first != last else left
    return left + right.rjust(width - len(left))


def _level(value: int, most: int, n_levels: int) -> int:
    """Return 0 to n_levels - 1; the highest for the most alone."""
    return (value * n_levels - 1) // most if value else 0


def _cell(value: int, most: int, *, alike: bool, plain: bool) -> str:
    if value == 0:
        return _ASCII_NOTHING if plain else _NOTHING
    if plain:
        scale = _ASCII_HEIGHTS if alike else _ASCII_SHADES
    else:
        scale = _HEIGHTS if alike else _SHADES
    return scale[_level(value, most, len(scale))]


def _style(value: int, most: int) -> str:
    return "bright_black" if value == 0 else _COLOURS[_level(value, most, len(_COLOURS))]


def _legend(most: int, *, alike: bool, plain: bool, per_column: int) -> str:
    if most == 0:
        return "nothing is touched"
    full = _cell(most, most, alike=alike, plain=plain)
    none = "blank" if plain else _NOTHING
    of = "each disk of the OST" if alike else "the disk"
    several = f"; a column is {per_column} OSTs, the busiest" if per_column > 1 else ""
    return f"{full} {most:,} blocks of {of}, {none} none{several}"
