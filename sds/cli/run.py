"""``sds run``: start a program with the connector, and become it."""

from typing import Annotated

import typer


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
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose", "-v", help="Say on stderr which HDF5 libraries SDS serves, and which not."
        ),
    ] = False,
) -> None:
    """Run a program under SDS: its reads are traced, and served from replicas where that is faster.

    Prints nothing of its own, unless --verbose is given. The program takes this process over, so
    that its exit status, signals and output are its own. An HDF5 that SDS cannot serve runs as
    without.

    Example: sds run -- python analysis.py cube.h5

    With a wrapper: sds run -- mpiexec -n 4 ./analysis cube.h5
    """
    from sds.cli.launch import launch

    launch(
        [*command, *context.args],
        trace=trace,
        redirect=redirect,
        is_verbose=verbose,
    )
