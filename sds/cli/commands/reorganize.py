"""``sds reorganize``: build, verify and publish a replica."""

import os
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sds.cli.options import AsJson, DatasetName
from sds.cli.quantities import named_order, named_selection
from sds.errors import ConfigurationError, SdsValueError
from sds.files import canonical_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sds.catalog.replica_records import ReplicaRecord
    from sds.server.operations.advice_reports import RecurringTilesRequest


class Engine(StrEnum):
    """Processes that build a replica."""

    AUTO = "auto"
    SERIAL = "serial"
    MPI = "mpi"


def reorganize(
    name: DatasetName,
    *,
    order: Annotated[
        str | None,
        typer.Option(
            metavar="AXES",
            help="Axis order of the replica: its axis i is source axis AXES[i], "
            "as in numpy.transpose; for example 2,0,1, or lat,lon,time by names of dimensions.",
        ),
    ] = None,
    sort: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Instead of an axis order: sort the rows of a table (a group of equally long "
            "datasets, or a compound dataset) by this column, for sds query.",
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Columns of the sorted replica, for example energy,x,y; all if not given.",
        ),
    ] = None,
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
    tiles: Annotated[
        str | None,
        typer.Option(
            metavar="SHAPE",
            help="Gather only the tiles of this shape, in the axes of the source, that traced "
            "programs read again and again; for example 1,64,64. sds advise names it.",
        ),
    ] = None,
    min_reads: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="With --tiles: those read at least N times; 2 if not given."
        ),
    ] = None,
    memory: Annotated[str, typer.Option(metavar="SIZE", help="Most memory to take.")] = "512M",
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where to write it; SDS_HOME/replicas if not given."),
    ] = None,
    engine: Annotated[
        Engine,
        typer.Option(
            help="Who builds it: one process (serial), or the ranks of an MPI program that is "
            "started for it (mpi); auto: ranks where --ranks names several."
        ),
    ] = Engine.AUTO,
    ranks: Annotated[
        int | None,
        typer.Option(
            "-n",
            "--ranks",
            metavar="N",
            min=1,
            help="Ranks of the MPI program; --memory is of each.",
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Build it also beyond replica_budget_bytes and budgets of sds policy."
        ),
    ] = False,
    shadow: Annotated[
        bool,
        typer.Option(
            "--shadow",
            help="Let it serve half of its reads until they are measured: faster, and it serves "
            "all; else none, and its file in SDS_HOME is deleted.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Build a replica of a dataset in another axis order, or of a table with its rows sorted.

    Every byte is verified before it is published. From then on programs under SDS read it wherever
    that is predicted faster, and sds query a sorted one. The original is only read. A second
    order, other chunks, filters, region or tiles, another column add a replica and leave the first.

    Example: sds reorganize cube.h5:/cube --order 2,0,1, or run.h5:/particles --sort energy
    """
    from sds.catalog.requests import ReorganizeRequest, SortRequest
    from sds.cli.output import note, print_fields, print_json, progress_bar
    from sds.cli.quantities import (
        describe_order,
        format_layout,
        format_seconds,
        format_size,
        parse_chunks,
        parse_size,
    )
    from sds.hdf5.dataset import parse_dataset_name
    from sds.home import default_home
    from sds.queries.column_names import parse_columns
    from sds.server.remote_service import connect

    n_ranks = number_of_ranks(engine, ranks)
    if n_ranks == 0:
        note("another process of this MPI program builds")
        return
    file, dataset = parse_dataset_name(name)
    memory_bytes = parse_size(memory, name="--memory")
    written = None if output is None else canonical_path(output)
    filters = None if compress == "none" else compress
    recurring = None
    request: ReorganizeRequest | SortRequest
    if sort is not None:
        _refuse_with(
            "--sort",
            "a sorted replica holds whole columns, one behind the other",
            {
                "--order": order,
                "--chunks": chunks,
                "--compress": filters,
                "--region": region,
                "--tiles": tiles,
                "--min-reads": min_reads,
            },
        )
        if shadow:
            message = "--shadow measures reads of programs, and a sorted replica answers queries"
            raise SdsValueError(message)
        request = SortRequest(
            file=canonical_path(file),
            dataset=dataset,
            key=sort,
            columns=None if columns is None else parse_columns(columns),
            memory_bytes=memory_bytes,
            output=written,
            force=force,
            n_ranks=n_ranks,
        )
    elif order is None or columns is not None:
        message = "name --order AXES for a dataset, or --sort COLUMN for a table (with --columns)"
        raise SdsValueError(message)
    else:
        if tiles is not None:
            _refuse_with(
                "--tiles",
                "tiles are stored contiguously, one behind the other",
                {"--chunks": chunks, "--compress": filters, "--region": region},
            )
        recurring = named_tiles(canonical_path(file), dataset, tiles, min_reads)
        request = ReorganizeRequest(
            file=canonical_path(file),
            dataset=dataset,
            order=named_order(order, file, dataset),
            chunks=None if chunks is None else parse_chunks(chunks),
            compress=compress,
            region=None if region is None else named_selection(region, file, dataset),
            memory_bytes=memory_bytes,
            output=written,
            force=force,
            n_ranks=n_ranks,
            shadow=shadow,
        )
    with connect(default_home()) as service, progress_bar("Reorganizing") as advance:
        if recurring is not None and isinstance(request, ReorganizeRequest):
            request = replace(request, segments=service.recurring(recurring))
        replica = service.reorganize(request, progress=advance)
    if as_json:
        print_json(replica)
        return
    print_fields(
        (
            ("replica", f"{replica.id}, {replica.state}"),
            ("of", f"{replica.file}:{replica.dataset}"),
            ("order", describe_order(replica)),
            *format_layout(replica),
            ("file", replica.path),
            ("size", format_size(replica.size_bytes)),
            ("took", format_seconds(replica.build_s)),
            *(() if sort else (("programs", _probe(replica)),)),
        )
    )


def number_of_ranks(engine: Engine, ranks: int | None) -> int:
    """Return how many ranks build; 0 where another process of this MPI program sees to it.

    Raises
    ------
    SdsValueError
        If engine and number contradict each other.
    """
    if engine is Engine.SERIAL and ranks not in {None, 1}:
        raise SdsValueError(f"--engine serial is one process; leave --ranks {ranks} out")
    if engine is not Engine.MPI:
        return ranks or 1
    rank, size = _place_in_mpi_program()
    if ranks is None and size > 1:
        ranks = size
    elif ranks is None:
        ranks = int(os.environ.get("SLURM_NTASKS", len(os.sched_getaffinity(0))))
    return ranks if rank == 0 else 0


def _place_in_mpi_program() -> tuple[int, int]:
    """Return rank and size of the MPI program that this process was started as a part of."""
    for rank, size in (
        ("PMI_RANK", "PMI_SIZE"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ):
        found = os.environ.get(rank, ""), os.environ.get(size, "")
        if found[0].isdigit() and found[1].isdigit():
            return int(found[0]), int(found[1])
    return 0, 1


def _probe(replica: "ReplicaRecord") -> str:
    """Return what a program reads across the grain now, and why, if that is not a replica."""
    from sds.home import default_home
    from sds.redirect.doctor.diagnosis import probe

    home = default_home()
    if home.disabled.exists():
        return f"read the original: {home.disabled} switches SDS off; remove it"
    try:
        found = probe(Path(replica.file), replica.dataset, home=home)
    except ConfigurationError as error:
        return f"read the original: {error}"
    if found is None:
        return f"read the original: {replica.reason}"
    if replica.state == "shadow":
        return "are served half of the reads for which it is chosen, until these are measured"
    if found.served:
        return "read across the grain from a replica"
    remedy = found.remedy or f"sds doctor {replica.file}:{replica.dataset} may tell more"
    return f"read the original: {found.reason}; {remedy}"


def named_tiles(
    file: str, dataset: str, tiles: str | None, min_reads: int | None
) -> "RecurringTilesRequest | None":
    """Return what --tiles and --min-reads ask for; SdsValueError for the second alone."""
    from sds.cli.quantities import parse_tiles
    from sds.server.operations.advice_reports import RecurringTilesRequest

    if tiles is None:
        if min_reads is not None:
            message = f"--min-reads {min_reads} without tiles: name their shape by --tiles"
            raise SdsValueError(message)
        return None
    shape = parse_tiles(tiles)
    if min_reads is None:
        return RecurringTilesRequest(file=file, dataset=dataset, tiles=shape)
    return RecurringTilesRequest(file=file, dataset=dataset, tiles=shape, min_reads=min_reads)


def _refuse_with(option: str, why: str, others: "Mapping[str, object]") -> None:
    """Raise SdsValueError where one of the options is given that another has no use for."""
    named = [name for name, value in others.items() if value is not None]
    if named:
        message = f"{', '.join(named)} and {option} exclude each other: {why}"
        raise SdsValueError(message)
