"""Times, sizes, counts and names as people read and write them, in commands, settings and logs."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from sds.errors import SdsValueError

if TYPE_CHECKING:
    from collections.abc import Sequence

Choice = TypeVar("Choice", bound=StrEnum)

# What a terminal or a log would take for more than text: controls, line separators, marks that turn
# the direction of writing, and halves of characters (names of files that are no UTF-8).
_NOT_TEXT = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
DAY_S = 86400.0
_TIME_UNITS = (("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("min", 60.0), ("h", 3600.0))


def choice(kind: type[Choice], value: str, name: str) -> Choice:
    """Return the member of an enumeration that a text names.

    Parameters
    ----------
    name
        Name of the choice, for the message.

    Raises
    ------
    SdsValueError
        If there is none; names those that there are.
    """
    try:
        return kind(value)
    except ValueError:
        message = f"{name} {value!r}; there are {', '.join(kind)}"
        raise SdsValueError(message) from None


def is_utf8(name: str) -> bool:
    """Return False for a name of other bytes than UTF-8, as Python decodes those of files."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def time_text(seconds: float) -> str:
    """Return a time with the unit in which it reads best: ``3.2 ms``, ``12 s``, ``11 min``."""
    return times_text((seconds,))[0]


def times_text(seconds: Sequence[float]) -> tuple[str, ...]:
    """Return times in the unit that suits the first; only that one carries the unit."""
    name, scale = _time_unit(seconds[0])
    numbers = [f"{value / scale:.3g}" for value in seconds]
    return f"{numbers[0]} {name}", *numbers[1:]


def _time_unit(seconds: float) -> tuple[str, float]:
    """Return the unit in which a time has one to three digits before the point."""
    if seconds == 0:
        return "s", 1.0
    for name, scale in _TIME_UNITS:
        if abs(seconds) < (999.5 if scale < 1 else 119.5) * scale:
            return name, scale
    return "days", DAY_S


def size_text(size_bytes: float) -> str:
    """Return bytes with the binary unit in which they read best: ``312 B``, ``1.02 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        # At three digits 999.5 KiB and more would read 1e+03 KiB.
        if abs(size_bytes) < (1024 if unit == "B" else 999.5):
            break
        size_bytes /= 1024
    else:
        unit = "TiB"
    return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.3g} {unit}"


def counted(n: int, thing: str, things: str | None = None) -> str:
    """Return how many there are: ``1 read``, ``1,200 reads``; `things` is the plural."""
    return f"{n:,} {thing}" if n == 1 else f"{n:,} {things or f'{thing}s'}"


def share_text(share: float) -> str:
    """Return a part of a whole: ``12%``, ``0.043%``; only nothing is 0%, only all is 100%."""
    percent = 100 * share
    if 0 < percent < 0.001:
        return "under 0.001%"
    if 99.5 <= percent < 100:
        return "over 99%"
    return f"{percent:.2g}%" if percent < 10 else f"{percent:.0f}%"


def factor_text(factor: float) -> str:
    """Return by how many times something is faster: ``1.25``, ``72.1``, ``6,418``."""
    return f"{factor:,.0f}" if factor >= 1000 else f"{factor:.3g}"


def factors_apart(one: float, other: float) -> tuple[str, str]:
    """Return two factors with digits that tell them apart: ``1.384``, ``1.379``."""
    texts = factor_text(one), factor_text(other)
    for digits in range(4, 18 if one != other else 4):
        if texts[0] != texts[1]:
            break
        texts = f"{one:,.{digits}g}", f"{other:,.{digits}g}"
    return texts


def shares_apart(one: float, other: float) -> tuple[str, str]:
    """Return two shares in per cent, with digits that tell them apart: ``89.96%``, ``90.00%``."""
    for digits in range(17 if one != other else 1):
        texts = f"{one:.{digits}%}", f"{other:.{digits}%}"
        if texts[0] != texts[1]:
            break
    return texts


def printable(text: str) -> str:
    """Return text on one line, with control characters as escapes: a file's name may hold any."""
    return _NOT_TEXT.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
