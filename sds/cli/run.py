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
    probe: Annotated[
        str | None,
        typer.Option(
            metavar="PROGRAM", help="What COMMAND starts, where it is a wrapper such as mpiexec."
        ),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Say on stderr whether SDS is used.")
    ] = False,
) -> None:
    """Run a program under SDS: its reads are traced, and served from replicas where that is faster.

    Prints nothing of its own, unless --verbose is given. The program takes this process over, so
    that its exit status, signals and output are its own. Where its HDF5 cannot load the connector,
    it runs without.

    Example: sds run -- python analysis.py cube.h5

    With a wrapper: sds run --probe ./analysis -- mpiexec -n 4 ./analysis cube.h5
    """
    import shlex

    from sds.home import default_home
    from sds.redirect.activate import log_native, program_environment, run_program

    words = [*command, *context.args]
    home = default_home()
    try:
        probed = shlex.split(probe) if probe is not None else None
    except ValueError as error:
        message = f"--probe {probe!r} is not a command: {error}"
        raise typer.BadParameter(message) from None
    try:
        home.create()
        chosen = program_environment(
            words, home, os.environ, trace=trace, redirect=redirect, probed=probed
        )
        variables, problem = chosen.variables, chosen.problem
    except (SdsError, OSError) as error:
        variables, problem = dict(os.environ), str(error)
    if problem:
        log_native(os.environ, words[0], problem)
    if verbose:
        how = f"without SDS: {problem}" if problem else "under SDS"
        sys.stderr.write(f"sds: running {words[0]} {how}\n")
    try:
        run_program(words, variables)
    except FileNotFoundError:
        sys.stderr.write(f"sds: error: {words[0]}: command not found\n")
        raise typer.Exit(ExitCode.COMMAND_NOT_FOUND) from None
    except OSError as error:
        sys.stderr.write(f"sds: error: cannot run {words[0]}: {error.strerror}\n")
        raise typer.Exit(ExitCode.NOT_EXECUTABLE) from None
