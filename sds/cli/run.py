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
    from sds.redirect.activate import program_environment, run_program

    words = [*command, *context.args]
    home = default_home()
    try:
        home.create()
        chosen = program_environment(words, home, os.environ, trace=trace, redirect=redirect)
        variables, problem = chosen.variables, chosen.problem
    except (SdsError, OSError) as error:
        variables, problem = dict(os.environ), str(error)
    if problem:
        sys.stderr.write(f"sds: {problem}; running {words[0]} without SDS\n")
    try:
        run_program(words, variables)
    except FileNotFoundError:
        sys.stderr.write(f"sds: error: {words[0]}: command not found\n")
        raise typer.Exit(ExitCode.COMMAND_NOT_FOUND) from None
    except OSError as error:
        sys.stderr.write(f"sds: error: cannot run {words[0]}: {error.strerror}\n")
        raise typer.Exit(ExitCode.NOT_EXECUTABLE) from None
