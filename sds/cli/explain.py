"""``sds explain``: what one read touches, and what it costs."""

from typing import Annotated

import typer

from sds.cli.options import AsJson, DatasetName


def explain(
    name: DatasetName,
    selection: Annotated[
        str, typer.Argument(metavar="SELECTION", help="As in NumPy, for example '[:, 3, ::2]'.")
    ],
    *,
    order: Annotated[
        str | None,
        typer.Option(metavar="AXES", help="What if the dataset had this axis order; e.g. 2,0,1."),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Striping and RAID of a known system: hopper."),
    ] = None,
    stripe_size: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Lustre stripe size.")
    ] = None,
    stripe_count: Annotated[int | None, typer.Option(min=1, help="Lustre stripe count.")] = None,
    raid_disks: Annotated[
        int | None, typer.Option(min=1, help="Data disks of a RAID, without parity.")
    ] = None,
    raid_unit: Annotated[
        str | None, typer.Option(metavar="SIZE", help="RAID stripe unit: bytes on one disk.")
    ] = None,
    raid_min_request: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Smallest request to a disk; the unit if not given."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what one read touches in the file and what it is predicted to cost.

    Nothing is read but the file's metadata. docs/reference/semantics.md defines each quantity.
    """
    raise NotImplementedError
