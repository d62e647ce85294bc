"""``sds policy``: what the server makes of the reads of a directory, a file or a dataset."""

from typing import TYPE_CHECKING, Annotated

import typer

from sds.cli.command_classes import Command, Group
from sds.cli.names import split_name
from sds.cli.options import AsJson
from sds.errors import SdsValueError

if TYPE_CHECKING:
    from sds.catalog.records import Mode, PolicyRecord

app = typer.Typer(
    help="List, set and unset modes and budgets of directories, files and datasets.", cls=Group,
    invoke_without_command=True,
)  # fmt: skip

_Name = Annotated[
    str, typer.Argument(metavar="PATH", help="A directory, a file, or FILE:/DATASET.")
]


@app.callback()
def policy(context: typer.Context, *, as_json: AsJson = False) -> None:
    """List, set and unset modes and budgets of directories, files, datasets; alone, list them."""
    if context.invoked_subcommand is None:
        list_policies(as_json=as_json)


@app.command("list", cls=Command)
def list_policies(*, as_json: AsJson = False) -> None:
    """List the modes that are set; everywhere else the setting `mode` counts."""
    from sds.cli.output import print_json, print_lines, print_table
    from sds.home import default_home
    from sds.server.remote_service import connect

    with connect(default_home()) as service:
        found = service.policies()
        mode = service.status().mode
    if as_json:
        print_json({"mode": mode, "policies": found})
        return
    if found:
        rows = [(one.mode, _budget(one), one.name) for one in found]
        print_table(("mode", "budget>", "of"), rows)
    print_lines(f"{mode} everywhere{' else' if found else ''} (the setting mode)")


@app.command("set", cls=Command)
def set_policy(
    name: _Name,
    mode: Annotated[
        str,
        typer.Argument(
            metavar="MODE",
            help="off: nothing is made of its reads; observe: advice is kept; auto: what is "
            "advised is built, in shadow.",
        ),
    ],
    *,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Space for all replicas of it, such as 200G; no limit of its own if not given.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Set what the server makes of reads, and how much space their replicas may take.

    Of modes the more specific wins; of budgets all are kept.

    Example: sds policy set /data/project auto --budget 200G
    """
    from sds.catalog.requests import PolicyRequest
    from sds.cli.output import print_json, print_lines
    from sds.files import canonical_path
    from sds.home import default_home
    from sds.server.remote_service import connect

    path, dataset = split_name(name)
    request = PolicyRequest(
        path=canonical_path(path),
        dataset=dataset,
        mode=_mode(mode),
        budget_bytes=_bytes(budget),
    )
    with connect(default_home()) as service:
        found = service.set_policy(request)
    if as_json:
        print_json(found)
        return
    said = "" if found.budget_bytes is None else f", its replicas within {_budget(found)}"
    print_lines(f"{found.name} is {found.mode} from now on{said}")


@app.command("unset", cls=Command)
def unset_policy(name: _Name, *, as_json: AsJson = False) -> None:
    """Forget a mode: what is less specific counts again."""
    from sds.cli.output import print_json, print_lines
    from sds.files import canonical_path
    from sds.home import default_home
    from sds.server.remote_service import connect

    path, dataset = split_name(name)
    with connect(default_home()) as service:
        found = service.unset_policy(canonical_path(path), dataset)
    if as_json:
        print_json(found)
        return
    print_lines(f"{found.name} was {found.mode}, and has no policy of its own now")


def _mode(text: str) -> "Mode":
    """Return a mode by name; SdsValueError for another word."""
    from sds.catalog.records import as_mode

    mode = as_mode(text)
    if mode is None:
        message = f"mode {text!r}: name off, observe or auto"
        raise SdsValueError(message)
    return mode


def _bytes(budget: str | None) -> int | None:
    from sds.cli.quantities import parse_size

    if budget is None:
        return None
    return 0 if budget.strip() == "0" else parse_size(budget, name="--budget")


def _budget(found: "PolicyRecord") -> str:
    from sds.cli.quantities import format_size

    return "-" if found.budget_bytes is None else format_size(found.budget_bytes)
