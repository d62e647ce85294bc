"""``sds doctor``: what is loaded, by which HDF5, and why a read is not redirected."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from sds.cli.exit_codes import ExitCode
from sds.cli.names import split_name
from sds.cli.parser import CommandParser

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sds.redirect.doctor.diagnosis import Diagnosis


def parser() -> CommandParser:
    """Return the parser of what stands before ``--``."""
    usage = "[OPTIONS] [FILE[:/DATASET] [SELECTION]] [-- COMMAND [ARGUMENT]...]"
    own = CommandParser(doctor, usage)
    own.add_argument(
        "name",
        nargs="?",
        metavar="FILE[:/DATASET]",
        help="Say why reads of it are redirected, or not.",
    )
    own.add_argument(
        "selection",
        nargs="?",
        metavar="SELECTION",
        help="Of the dataset: read this, for example '[:, 3, ::2]'.",
    )
    own.add_argument(
        "--python",
        metavar="PATH",
        type=Path,
        help="Interpreter whose packages are checked; that of sds if not given.",
    )
    own.add_argument(
        "--run",
        action="store_true",
        help="Run COMMAND, and report what was decided on what it read.",
    )
    own.add_json()
    return own


def doctor(words: Sequence[str]) -> ExitCode:
    """Load the connector into each HDF5 that is installed, and say what keeps SDS from working.

    With a file, reads a little of each dataset that has replicas, and says why they serve it or
    not. With a command behind --, looks at the HDF5 of that program; --run runs it. Ends with
    status 1 where there is a problem, and 3 where there is no such file or dataset.

    Example: sds doctor run.h5:/entry/cube '[:, 3, :]' -- ./analysis
    """
    from sds.cli.output import print_json
    from sds.errors import FileMissingError, PermissionDeniedError
    from sds.home import become_own_process, default_home
    from sds.redirect.doctor.diagnosis import diagnose

    at = words.index("--") if "--" in words else len(words)
    command = words[at + 1 :]
    parse = parser()
    options = parse.parse_intermixed_args(words[:at])
    file, dataset = (None, None) if options.name is None else split_name(options.name)
    if options.python is not None and shutil.which(options.python) is None:
        message = f"no such program: {options.python}; name a Python interpreter"
        raise FileMissingError(message)
    if options.selection is not None and dataset is None:
        parse.error(f"the selection {options.selection} needs a dataset: FILE:/DATASET SELECTION")
    if options.run and not command:
        parse.error("--run needs a command: sds doctor --run -- COMMAND")
    if options.python is not None and command:
        parse.error("--python and a command are two things to look at; give one of them")
    environ = dict(os.environ)
    # What it names is for the doctor's children to meet.
    become_own_process()
    if file is not None:
        _check_target(file, dataset)
    selection = options.selection
    if selection is not None and file is not None and dataset is not None:
        selection = _index_of(selection, file, dataset)
    home = default_home()
    with suppress(PermissionDeniedError):  # the examination says what is wrong with it
        home.create()
    found = diagnose(
        file=file,
        dataset=dataset,
        selection=selection,
        python=options.python,
        command=command or None,
        runs_command=options.run,
        home=home,
        environ=environ,
    )
    if options.as_json:
        print_json({"ok": found.is_healthy, **asdict(found)})
    else:
        _print_diagnosis(found)
    return ExitCode.SUCCESS if found.is_healthy else ExitCode.FAILED


def _index_of(selection: str, file: str, dataset: str) -> str | None:
    """Return a selection as an index; None where the file is too damaged to tell."""
    from sds.cli.quantities import named_selection
    from sds.errors import FormatError, NotHdf5Error

    try:
        return named_selection(selection, file, dataset)
    except NotHdf5Error:
        raise
    except FormatError:
        return None


def _check_target(file: str, dataset: str | None) -> None:
    """Raise an error where there is no such file or dataset, or the file is none of HDF5."""
    from sds.errors import FormatError, NotHdf5Error
    from sds.hdf5.dataset import get_dataset, open_hdf5

    try:
        with open_hdf5(file) as handle:
            if dataset is not None:
                get_dataset(handle, dataset)
    except NotHdf5Error:
        raise
    except FormatError:
        return  # damaged or being written: the examination tells it, beside all else that it finds


def _print_diagnosis(found: Diagnosis) -> None:
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


def _tables_line(found: Diagnosis) -> str:
    """Return the table of the file that was named, or how many there are."""
    if found.file is None:
        unused = sum(bool(table.problem) for table in found.tables)
        return f"{len(found.tables)} found" + (f", {unused} of no use" if unused else "")
    if not found.tables:
        return f"none of {found.file}"
    (table,) = found.tables
    return f"{table.path} ({', '.join(table.datasets) or 'not readable'})"
