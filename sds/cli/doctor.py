"""``sds doctor``: what is loaded, by which HDF5, and why a read is not redirected."""

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sds.cli.commands import Command
from sds.cli.exit_codes import ExitCode
from sds.cli.options import AsJson, split_name

if TYPE_CHECKING:
    from sds.redirect.doctor import Diagnosis


_COMMAND = "sds.cli.doctor.command"


class WithCommandBehind(Command):
    """A command whose line may end in ``-- COMMAND [ARGUMENT]...``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401  (typer's own)
        """Take the words behind ``--`` as they are; none of them is an argument of this one."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[_COMMAND] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ANN401  (typer's own)
        """Name the words behind ``--`` too."""
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND [ARGUMENT]...]"]


def doctor(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE[:/DATASET]", help="Say why reads of it are redirected, or not."
        ),
    ] = None,
    selection: Annotated[
        str | None,
        typer.Argument(
            metavar="SELECTION", help="Of the dataset: read this, for example '[:, 3, ::2]'."
        ),
    ] = None,
    *,
    python: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", help="Interpreter whose packages are checked; that of sds if not given."
        ),
    ] = None,
    run: Annotated[
        bool,
        typer.Option("--run", help="Run COMMAND, and report what was decided on what it read."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Load the connector into each HDF5 that is installed, and say what keeps SDS from working.

    With a file, reads a little of each dataset that has replicas, and says why they serve it or
    not. With a command behind --, looks at the HDF5 of that program; --run runs it. Ends with
    status 1 where there is a problem, and 3 where there is no such file or dataset.

    Example: sds doctor run.h5:/entry/cube '[:, 3, :]' -- ./analysis
    """
    from sds.cli.output import print_json
    from sds.errors import FileMissingError, PermissionDeniedError
    from sds.home import NATIVE, default_home
    from sds.redirect.doctor import diagnose

    command: list[str] | None = context.meta.get(_COMMAND)
    file, dataset = (None, None) if name is None else split_name(name)
    if python is not None and shutil.which(python) is None:
        message = f"no such program: {python}; name a Python interpreter"
        raise FileMissingError(message)
    if selection is not None and dataset is None:
        message = f"the selection {selection} needs a dataset: FILE:/DATASET SELECTION"
        raise typer.BadParameter(message)
    if run and not command:
        message = "--run needs a command: sds doctor --run -- COMMAND"
        raise typer.BadParameter(message)
    if python is not None and command:
        message = "--python and a command are two things to look at; give one of them"
        raise typer.BadParameter(message)
    environ = dict(os.environ)
    # What it names is for the doctor's children to meet.
    os.environ |= NATIVE
    if file is not None:
        _check_target(file, dataset)
    home = default_home()
    with suppress(PermissionDeniedError):  # the examination says what is wrong with it
        home.create()
    found = diagnose(
        file=file,
        dataset=dataset,
        selection=selection,
        python=python,
        command=command,
        runs_command=run,
        home=home,
        environ=environ,
    )
    if as_json:
        print_json({"ok": found.is_healthy, **_as_keys(found)})
    else:
        _print_diagnosis(found)
    if not found.is_healthy:
        raise typer.Exit(ExitCode.FAILED)


def _check_target(file: str, dataset: str | None) -> None:
    """Raise an error where there is no such file or dataset, or the file is none of HDF5."""
    from sds.dataset import get_dataset, open_hdf5
    from sds.errors import FormatError, NotHdf5Error

    try:
        with open_hdf5(file) as handle:
            if dataset is not None:
                get_dataset(handle, dataset)
    except NotHdf5Error:
        raise
    except FormatError:
        return  # damaged or being written: the examination tells it, beside all else that it finds


def _as_keys(found: "Diagnosis") -> dict[str, object]:
    """Return a diagnosis as JSON keys."""
    from dataclasses import asdict

    return asdict(found)


def _print_diagnosis(found: "Diagnosis") -> None:
    """Print what was found, problems with their remedies last."""
    from sds.cli.output import print_fields, print_lines, print_prose
    from sds.cli.quantities import format_order

    examined = (
        ("command", " ".join(found.command)) if found.command else ("python", found.python or "")
    )
    print_fields(
        (
            ("connector", found.plugin or "not installed"),
            examined,
            ("home", found.home + (" (switched off)" if found.disabled else "")),
            ("tables", _tables_line(found)),
        )
    )
    for table in found.tables:
        if table.problem:
            print_prose(f"{table.path}: {table.problem}")
    for host in found.hosts:
        verdict = f"loads, by {host.binding}" if host.loads else "does not load"
        print_prose(f"{host.package}: {verdict}: {host.detail}")
        print_lines(f"  {host.library}")
    for dataset in found.datasets:
        orders = f" ({'; '.join(map(format_order, dataset.orders))})" if dataset.orders else ""
        served = "served by a replica" if dataset.served else "read from the original"
        if dataset.by_engine:
            served += ", and the original by SDS's engine" if dataset.served else " by SDS's engine"
        print_prose(f"{dataset.path}{orders}: {served}: {dataset.reason}")
        if dataset.remedy:
            print_prose(f"  {dataset.remedy}")
    for problem in found.problems:
        print_prose(f"problem: {problem.what}", f"  remedy: {problem.remedy}")
    if found.is_healthy:
        print_lines("no problem found")


def _tables_line(found: "Diagnosis") -> str:
    """Return the table of the file that was named, or how many there are."""
    if found.file is None:
        unused = sum(bool(table.problem) for table in found.tables)
        return f"{len(found.tables)} found" + (f", {unused} of no use" if unused else "")
    if not found.tables:
        return f"none of {found.file}"
    (table,) = found.tables
    return f"{table.path} ({', '.join(table.datasets) or 'not readable'})"
