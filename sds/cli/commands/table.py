"""``sds table``: look into redirect tables."""

from pathlib import Path
from typing import Annotated

import typer

from sds.cli.command_classes import Command, Group

app = typer.Typer(help="Look into redirect tables.", cls=Group, no_args_is_help=True)


@app.callback()
def table() -> None:
    """Look into redirect tables."""


@app.command(cls=Command)
def show(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A source file, or a table itself (.sdst).")
    ],
    *,
    as_json: Annotated[  # noqa: ARG001  (taken like everywhere; there is no other output)
        bool, typer.Option("--json", help="Accepted; the output is always JSON.")
    ] = True,
) -> None:
    """Print the redirect table of a file as JSON: its replicas, and what a read costs."""
    from sds import _native
    from sds.cli.output import print_json
    from sds.errors import FormatError, NotFoundError, PermissionDeniedError
    from sds.files import read_regular
    from sds.home import default_home
    from sds.redirect.tables import table_path

    path = file
    if file.suffix != ".sdst":
        path = table_path(default_home(), file)
    try:
        content = read_regular(path)
    except FileNotFoundError as error:
        message = (
            f"no redirect table of {file}: it has no replica that serves reads; "
            "`sds replicas list` shows those that there are"
        )
        raise NotFoundError(message) from error
    except PermissionError as error:
        message = f"may not read the redirect table {path}; ask its owner, or set SDS_HOME"
        raise PermissionDeniedError(message) from error
    try:
        found = _native.decode_table(content)
    except FormatError as error:
        message = (
            f"the redirect table {path} is damaged ({error}); programs read the original; "
            "remove it and run `sds replicas verify`, which writes it anew"
        )
        raise type(error)(message) from error
    print_json({"table": str(path), **found})
