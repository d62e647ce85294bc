"""What a command starts that begins with one of the plain wrappers, such as ``env`` or ``nice``.

Only those are seen through that hand their environment on and whose options are few and old. Of
anything else (shells, mpiexec, srun), and of any option that is not known here, nothing is assumed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wrapper:
    """How a wrapper is called.

    Attributes
    ----------
    flags
        Options without a value.
    valued
        Options whose value follows, as the next word or behind the letter.
    n_operands
        Words between the options and the command.
    """

    flags: tuple[str, ...] = ()
    valued: tuple[str, ...] = ()
    n_operands: int = 0


_WRAPPERS = {
    "env": _Wrapper(),
    "ionice": _Wrapper(flags=("-t",), valued=("-c", "-n")),
    "nice": _Wrapper(valued=("-n",)),
    "nohup": _Wrapper(),
    "setsid": _Wrapper(flags=("-c", "-f", "-w")),
    "stdbuf": _Wrapper(valued=("-i", "-o", "-e")),
    "time": _Wrapper(flags=("-a", "-p", "-v"), valued=("-f", "-o")),
    "timeout": _Wrapper(flags=("-f", "-p", "-v"), valued=("-k", "-s"), n_operands=1),
}
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


@dataclass(frozen=True, slots=True)
class Started:
    """A command that a wrapper starts, and its environment."""

    command: tuple[str, ...]
    environ: dict[str, str]


def behind_wrappers(command: Sequence[str], environ: Mapping[str, str]) -> Started:
    """Return the command that is started in the end, as far as that is certain.

    >>> behind_wrappers(["nice", "-n", "5", "env", "A=1", "prog", "-x"], {}).command
    ('prog', '-x')
    >>> behind_wrappers(["mpiexec", "-n", "2", "prog"], {}).command
    ('mpiexec', '-n', '2', 'prog')
    """
    words, variables = list(command), dict(environ)
    while words and (wrapper := _WRAPPERS.get(Path(words[0]).name)) is not None:
        rest = _without_options(words[1:], wrapper)
        if rest is None:
            break
        if Path(words[0]).name == "env":
            while rest and _ASSIGNMENT.match(rest[0]):
                name, _, value = rest.pop(0).partition("=")
                variables[name] = value
        else:
            rest = rest[wrapper.n_operands :]
        if not rest:
            break
        words = rest
    return Started(tuple(words), variables)


def _without_options(words: list[str], wrapper: _Wrapper) -> list[str] | None:
    """Return what follows a wrapper's options; None where one of them is not known."""
    rest = list(words)
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option == "--":
            break
        if option in wrapper.flags:
            continue
        if option in wrapper.valued and rest:
            rest.pop(0)
        elif option[:2] not in wrapper.valued or len(option) == len("-n"):
            return None
    return rest
