"""``sds run``: start a program with the connector, and become it."""

import os
import sys
from typing import Annotated

import typer

from sds.cli.exit_codes import ExitCode
from sds.errors import SdsError


def run(
    context: typer.Context,
    command: Annotated[
        list[str],
        typer.Argument(metavar="[--] COMMAND [ARGUMENT]...", help="The program to run."),
    ],
    *,
    trace: Annotated[
        bool, typer.Option("--trace/--no-trace", help="Record what the program reads.")
    ] = True,
    redirect: Annotated[
        bool, typer.Option("--redirect/--no-redirect", help="Serve reads from replicas.")
    ] = True,
) -> None:
    """Run a program under SDS: its reads are traced, and served from replicas where that is faster.

    Prints nothing on stdout. The program takes this process over, so that its exit status,
    signals and output are its own. Where the connector cannot be used, a line on stderr says so
    and the program runs without it.

    Example: sds run -- python analysis.py cube.h5
    """
    from sds.home import default_home
    from sds.redirect.connector import environment

    words = [*command, *context.args]
    chosen = dict(os.environ)
    home = default_home()
    try:
        home.create()
        chosen |= environment(home, chosen)
    except (SdsError, OSError) as error:
        sys.stderr.write(f"sds: {error}; running {words[0]} without SDS\n")
    if not trace:
        chosen["SDS_TRACE"] = "0"
    if not redirect:
        chosen["SDS_REDIRECT"] = "0"
    raise typer.Exit(_become(words, chosen))


def _become(words: list[str], environment: dict[str, str]) -> int:
    """Replace this process by a program; return an exit status where that is impossible."""
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvpe(words[0], words, environment)  # noqa: S606  (to run what was asked for)
    except FileNotFoundError:
        sys.stderr.write(f"sds: error: {words[0]}: command not found\n")
        return ExitCode.COMMAND_NOT_FOUND
    except OSError as error:
        sys.stderr.write(f"sds: error: cannot run {words[0]}: {error.strerror}\n")
        return ExitCode.NOT_EXECUTABLE
