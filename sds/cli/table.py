"""``sds table``: look into redirect tables."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Look into redirect tables.", no_args_is_help=True)


@app.callback()
def table() -> None:
    """Look into redirect tables."""


@app.command()
def show(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A source file, or a table itself (.sdst).")
    ],
) -> None:
    """Print the redirect table of a file as JSON: its replicas, and what a read costs."""
    raise NotImplementedError
