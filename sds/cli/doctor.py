"""``sds doctor``: what is loaded, by which HDF5, and why a read is not redirected."""

from typing import Annotated

import typer

from sds.cli.options import AsJson, split_name


def doctor(
    name: Annotated[
        str | None,
        typer.Argument(metavar="FILE[:/DATASET]", help="Say why it is (not) redirected."),
    ] = None,
    *,
    python: Annotated[
        str | None, typer.Option(help="Probe this Python's HDF5 libraries.", metavar="PATH")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check the installation, and say why reads of a file are redirected or not."""
    from sds.redirect.doctor import diagnose

    file, dataset = (None, None) if name is None else split_name(name)
    diagnosis = diagnose(file=file, dataset=dataset, python=python)
    raise NotImplementedError
