"""``sds env``: the environment that switches the connector on in a shell."""

from __future__ import annotations

import enum
import os
import shlex
from typing import TYPE_CHECKING

from sds.cli.parser import CommandParser

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Shell(enum.StrEnum):
    """Shells whose syntax `sds env` writes."""

    BASH = "bash"
    CSH = "csh"
    FISH = "fish"


def parser() -> CommandParser:
    """Return the parser of the command's words."""
    own = CommandParser(env, "[OPTIONS]")
    own.add_argument(
        "--shell",
        choices=[str(shell) for shell in Shell],
        default=Shell.BASH,
        metavar=f"<{'|'.join(Shell)}>",
        help="Syntax of the lines (default: %(default)s).",
    )
    own.add_argument(
        "--unset", action="store_true", help="Print what takes everything back instead."
    )
    own.add_json()
    return own


def env(words: Sequence[str]) -> None:
    """Print the lines that switch SDS on in a shell: eval "$(sds env)".

    They preload a small library into the programs that the shell starts, and look first whether it
    is there. A copy of it is kept with your data, for shells that outlive an installation.
    SDS_DISABLE=1 switches SDS off for one program, eval "$(sds env --unset)" for the shell.

    --json prints the variables themselves, as for the kernel.json of a notebook; a process that
    already runs calls sds.enable().
    """
    from sds.cli.output import print_json, write_lines
    from sds.home import default_home
    from sds.redirect.launch.connector import switched_off, switched_on

    options = parser().parse_args(words)
    shell = Shell(options.shell)
    if options.unset:
        changes = switched_off(os.environ)
        if options.as_json:
            print_json({"environment": changes})
        else:
            write_lines(*(_change(shell, name, value) for name, value in sorted(changes.items())))
        return
    home = default_home()
    home.create()
    if options.as_json:
        print_json({"environment": switched_on(os.environ)})
        return
    write_lines(*_where_it_is(shell, switched_on(os.environ)))


def _where_it_is(shell: Shell, variables: Mapping[str, str]) -> list[str]:
    """Return lines that set the variables where what they preload is there.

    Each is whole, since some shells join them.
    """
    from sds.redirect.launch.connector import library_of

    lines = [_change(shell, name, value) for name, value in sorted(variables.items())]
    preload = library_of(variables["LD_PRELOAD"].partition(":")[0])
    quoted = _quote(shell, preload)
    if shell is Shell.BASH:
        return [f"if [ -f {quoted} ]; then", *lines, "fi;"]
    if shell is Shell.FISH:
        return [f"if test -f {quoted};", *lines, "end;"]
    return [f"if ( -f {quoted} ) {line}" for line in lines]


def _change(shell: Shell, name: str, value: str | None) -> str:
    """Return the line that exports a variable, or takes it away."""
    if value is None:
        taken = {Shell.BASH: "unset", Shell.FISH: "set -e", Shell.CSH: "unsetenv"}
        return f"{taken[shell]} {name};"
    quoted = _quote(shell, value)
    if shell is Shell.BASH:
        return f"export {name}={quoted};"
    if shell is Shell.FISH:
        return f"set -gx {name} {quoted};"
    return f"setenv {name} {quoted};"


def _quote(shell: Shell, value: str) -> str:
    """Return a value as one word of the shell's language."""
    if shell is Shell.BASH:
        return shlex.quote(value)
    if shell is Shell.FISH:
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    # csh expands ! and cannot continue a line inside quotes
    return "'" + value.replace("'", "'\\''").replace("!", "\\!").replace("\n", "\\\n") + "'"
