"""Names of columns as one text, such as ``energy,x,y``: how users write and read them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sds.errors import SdsValueError

if TYPE_CHECKING:
    from collections.abc import Iterable

_NAME = re.compile(r"(?:\s*`(?P<quoted>(?:[^`]|``)*)`\s*|(?P<plain>(?!\s*`)[^,]*))(?P<more>,|\Z)")


def parse_columns(text: str) -> tuple[str, ...]:
    """Return the columns that ``energy,x,y`` names.

    Between backticks a name may hold what it likes, a backtick written twice; blanks around others
    are none of theirs.

    Raises
    ------
    SdsValueError
        If a name is empty, or a backtick is not closed.

    >>> parse_columns("energy, `p, T`, x")
    ('energy', 'p, T', 'x')
    """
    names = []
    at, more = 0, True
    while more:
        match = _NAME.match(text, at)
        if match is None:
            message = (
                f"columns {text!r}: from character {at + 1} a name is not closed; write names with "
                "commas in them between backticks, and their own backticks twice"
            )
            raise SdsValueError(message)
        quoted = match["quoted"]
        names.append(match["plain"].strip() if quoted is None else quoted.replace("``", "`"))
        at, more = match.end(), bool(match["more"])
    if not all(names):
        message = f"columns {text!r}: write names with commas between them, such as energy,x,y"
        raise SdsValueError(message)
    return tuple(names)


def format_columns(names: Iterable[str]) -> str:
    """Return names as `parse_columns` reads them.

    >>> format_columns(["energy", "p, T", "x"])
    'energy,`p, T`,x'
    """
    return ",".join(map(_quoted, names))


def _quoted(name: str) -> str:
    if name == name.strip() and not {",", "`", "\n"} & set(name):
        return name
    return "`" + name.replace("`", "``") + "`"
