"""``sds demo``: the whole loop, on data made for it."""

from pathlib import Path
from typing import Annotated

import typer

from sds.cli.options import AsJson


def demo(
    *,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the server running and the files in place.")
    ] = False,
    size: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Bytes of both files together; 1.25G, or what fits."),
    ] = None,
    runs: Annotated[
        int, typer.Option(min=1, help="Measured runs of each program, each variant.")
    ] = 3,
    directory: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Where to put the files; a new directory below the current one."
        ),
    ] = None,
    output: Annotated[Path, typer.Option(metavar="PNG", help="Where to draw the result.")] = Path(
        "sds-demo.png"
    ),
    as_json: AsJson = False,
) -> None:
    """Trace two ordinary programs, build what is advised, and measure them before and after.

    Makes an image cube and a climate grid (1 to 2 GiB), starts a server, and runs an h5py and a
    netCDF4 program that know nothing of SDS. Takes about two minutes; removes what it made.
    """
    raise NotImplementedError
