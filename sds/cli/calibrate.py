"""``sds calibrate``: measure a file system."""

from pathlib import Path
from typing import Annotated

import typer

from sds.cli.options import AsJson


def calibrate(
    path: Annotated[
        Path, typer.Argument(metavar="DIRECTORY", help="A directory of the file system.")
    ],
    *,
    size: Annotated[
        str | None,
        typer.Option(help="Size of the test file, for example 512M; chosen if not given."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Time reads of known shape with 1, 2 and 4 processes, and fit the cost models to them.

    Until a file system is calibrated, a built-in conservative model decides. The test file is
    removed afterwards.
    """
    from sds.catalog.records import CalibrateRequest
    from sds.cli.client import connect
    from sds.cli.output import print_json, progress_bar
    from sds.cli.quantities import parse_size
    from sds.home import default_home

    request = CalibrateRequest(
        path=str(path.absolute()),
        size_bytes=None if size is None else parse_size(size, name="--size"),
    )
    with connect(default_home()) as service, progress_bar("Calibrating") as advance:
        record = service.calibrate(request, progress=advance)
    if as_json:
        print_json(record)
        return
    raise NotImplementedError
