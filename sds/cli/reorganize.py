"""``sds reorganize``: build, verify and publish a replica."""

from pathlib import Path
from typing import Annotated

import typer

from sds.cli.options import AsJson, DatasetName, canonical


def reorganize(
    name: DatasetName,
    *,
    order: Annotated[
        str,
        typer.Option(
            metavar="AXES",
            help="Axis order of the replica: its axis i is source axis AXES[i], "
            "as in numpy.transpose; for example 2,0,1.",
        ),
    ],
    chunks: Annotated[
        str | None,
        typer.Option(
            metavar="SHAPE",
            help="Store in chunks of this shape, in the axis order of the replica: for example "
            "64,64,64, or auto; contiguous if not given.",
        ),
    ] = None,
    compress: Annotated[
        str,
        typer.Option(
            metavar="FILTERS",
            help="Filters of the chunks: for example gzip:4 or shuffle,zstd:3; source, for those "
            "of the source; none.",
        ),
    ] = "none",
    region: Annotated[
        str | None,
        typer.Option(
            metavar="SELECTION",
            help="Copy this box of the source only, for example '[0:100, :, :]'.",
        ),
    ] = None,
    memory: Annotated[str, typer.Option(metavar="SIZE", help="Most memory to use.")] = "512M",
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where to write it; SDS_HOME/replicas if not given."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Build a replica of a dataset in another axis order, verify every byte, and publish it.

    From then on programs under SDS read it wherever that is predicted faster. The original is
    only read. A second order, other chunks, filters or region add a replica and leave the first.

    Example: sds reorganize cube.h5:/cube --order 2,0,1
    """
    from sds.catalog.records import ReorganizeRequest
    from sds.cli.client import connect
    from sds.cli.output import print_fields, print_json, progress_bar
    from sds.cli.quantities import (
        format_layout,
        format_order,
        format_seconds,
        format_size,
        parse_chunks,
        parse_order,
        parse_size,
    )
    from sds.dataset import parse_dataset_name
    from sds.home import default_home

    file, dataset = parse_dataset_name(name)
    request = ReorganizeRequest(
        file=canonical(file),
        dataset=dataset,
        order=parse_order(order),
        chunks=None if chunks is None else parse_chunks(chunks),
        compress=compress,
        region=region,
        memory_bytes=parse_size(memory, name="--memory"),
        output=None if output is None else canonical(output),
    )
    with connect(default_home()) as service, progress_bar("Reorganizing") as advance:
        replica = service.reorganize(request, progress=advance)
    if as_json:
        print_json(replica)
        return
    print_fields(
        (
            ("replica", f"{replica.id}, {replica.state}"),
            ("of", f"{replica.file}:{replica.dataset}"),
            ("order", format_order(replica.order)),
            *format_layout(replica),
            ("file", replica.path),
            ("size", format_size(replica.size_bytes)),
            ("took", format_seconds(replica.build_s)),
        )
    )
