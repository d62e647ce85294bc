"""``sds reads``: reads that programs are going to make, for advice and for mode auto."""

from typing import TYPE_CHECKING, Annotated

import typer

from sds.cli.command_classes import Command, Group
from sds.cli.names import split_name
from sds.cli.options import AsJson, OptionalName
from sds.errors import SdsValueError

if TYPE_CHECKING:
    from sds.catalog.records import StatedReadsRecord

app = typer.Typer(
    help="List, state and forget reads that are to come.", cls=Group, invoke_without_command=True
)


@app.callback()
def reads(context: typer.Context, *, as_json: AsJson = False) -> None:
    """List, state and forget reads that are to come; alone, list them."""
    if context.invoked_subcommand is None:
        list_reads(None, as_json=as_json)


@app.command("list", cls=Command)
def list_reads(name: OptionalName = None, *, as_json: AsJson = False) -> None:
    """List the reads that were stated; `sds report` lists those that were traced."""
    from sds.cli.output import print_json, print_lines, print_table
    from sds.files import canonical_path
    from sds.home import default_home
    from sds.server.remote_service import connect

    file, dataset = (None, None) if name is None else split_name(name)
    with connect(default_home()) as service:
        found = service.stated_reads(None if file is None else canonical_path(file), dataset)
    if as_json:
        print_json({"stated": found})
        return
    if not found:
        print_lines("no reads are stated")
        return
    print_table(
        ("id>", "of", "selection", "a day>"),
        [
            (str(one.id), f"{one.file}:{one.dataset}", one.selection, str(one.n_reads_per_day))
            for one in found
        ],
    )


@app.command(cls=Command)
def state(
    name: Annotated[str, typer.Argument(metavar="FILE:/DATASET", help="What is to be read.")],
    selection: Annotated[
        str, typer.Argument(metavar="SELECTION", help="A typical read, as [:, :, 3] or lat=40.")
    ],
    *,
    reads: Annotated[
        int, typer.Option("--reads", metavar="N", min=1, help="Such reads a day; 1 if not given.")
    ] = 1,
    as_json: AsJson = False,
) -> None:
    """Say how a dataset is going to be read: advice counts that with what is traced.

    It lies wherever the reads do: a typical one stands for all of its shape. Reads of the same
    selection are replaced. In mode auto the server builds what pays for them, before any program
    has run.

    Example: sds reads state maps.nc:/t2m 'lat=40, lon=7' --reads 500
    """
    from sds.catalog.requests import StatedReadsRequest
    from sds.cli.output import print_json, print_lines
    from sds.cli.quantities import named_selection
    from sds.files import canonical_path
    from sds.home import default_home
    from sds.server.remote_service import connect

    file, dataset = split_name(name)
    if dataset is None:
        message = f"reads are of one dataset: write {name}:/DATASET"
        raise SdsValueError(message)
    request = StatedReadsRequest(
        file=canonical_path(file),
        dataset=dataset,
        selection=named_selection(selection, file, dataset),
        n_reads_per_day=reads,
    )
    with connect(default_home()) as service:
        found = service.state_reads(request)
    if as_json:
        print_json(found)
        return
    print_lines(f"stated reads {found.id}: {_said(found)}")


@app.command(cls=Command)
def forget(
    numbers: Annotated[
        list[int], typer.Argument(metavar="ID...", help="Numbers, as `sds reads` lists them.")
    ],
    *,
    as_json: AsJson = False,
) -> None:
    """Forget reads that were stated."""
    from sds.cli.output import print_json, print_lines
    from sds.home import default_home
    from sds.server.remote_service import connect

    with connect(default_home()) as service:
        found = [service.forget_reads(number) for number in numbers]
    if as_json:
        print_json({"stated": found})
        return
    print_lines(*(f"stated reads {one.id} are forgotten: {_said(one)}" for one in found))


def _said(one: "StatedReadsRecord") -> str:
    return f"{one.selection} of {one.file}:{one.dataset}, {one.n_reads_per_day} a day"
