"""``sds trace``: look into spool files."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Look into trace files.", no_args_is_help=True)


@app.callback()
def trace() -> None:
    """Look into trace files."""


@app.command()
def show(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="SPOOL-FILE", help="A trace; the newest in the spool if not given."),
    ] = None,
    *,
    limit: Annotated[int, typer.Option(min=0, help="Most records to print; 0: all.")] = 1000,
) -> None:
    """Print a trace as JSON: the process, its datasets, its reads."""
    raise NotImplementedError
