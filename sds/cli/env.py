"""``sds env``: the environment that switches the connector on."""

import enum
import os
import shlex
from typing import Annotated

import typer

from sds.cli.options import AsJson


class Shell(enum.StrEnum):
    """Shells whose syntax `sds env` writes."""

    BASH = "bash"
    CSH = "csh"
    FISH = "fish"


def env(
    *,
    shell: Annotated[Shell, typer.Option(help="Syntax of the lines.")] = Shell.BASH,
    as_json: AsJson = False,
) -> None:
    """Print the lines that switch SDS on in a shell: eval "$(sds env)".

    Checks first that the connector is where the lines say. Do not put the lines themselves into
    a profile: HDF5 2 crashes where they name a connector that has gone. Switch off with
    SDS_DISABLE=1, or unset HDF5_VOL_CONNECTOR.
    """
    from sds.cli.output import print_json, print_lines
    from sds.home import default_home
    from sds.redirect.connector import environment

    home = default_home()
    home.create()
    variables = environment(home, os.environ)
    if as_json:
        print_json({"environment": variables})
        return
    print_lines(*(_assignment(shell, name, value) for name, value in sorted(variables.items())))


def _assignment(shell: Shell, name: str, value: str) -> str:
    """Return the line that exports a variable, quoted for its shell."""
    if shell is Shell.BASH:
        return f"export {name}={shlex.quote(value)}"
    if shell is Shell.FISH:
        quoted = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"set -gx {name} '{quoted}';"
    # csh expands ! and cannot continue a line inside quotes
    quoted = value.replace("'", "'\\''").replace("!", "\\!").replace("\n", "\\\n")
    return f"setenv {name} '{quoted}';"
