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

    from sds.cli.launch import launch

    try:
        probed = shlex.split(probe) if probe is not None else None
    except ValueError as error:
        message = f"--probe {probe!r} is not a command: {error}"
        raise typer.BadParameter(message) from None
    launch(
        [*command, *context.args],
        trace=trace,
        redirect=redirect,
        probed=probed,
        is_verbose=verbose,
    )
