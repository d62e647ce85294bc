"""``sds doctor``: what is loaded, by which HDF5, and why a read is not redirected."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sds.cli.exit_codes import ExitCode
from sds.cli.options import AsJson, split_name

if TYPE_CHECKING:
    from sds.redirect.doctor import Diagnosis


def doctor(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE[:/DATASET]", help="Say why reads of it are redirected, or not."
        ),
    ] = None,
    *,
    python: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Interpreter whose packages to try; the one of sds."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Load the connector into each HDF5 that is installed, and say what keeps SDS from working.

    With a file, reads a little of each dataset that has replicas, and says why they serve it or
    not. Ends with status 1 where there is a problem.
    """
    from sds.cli.output import print_json
    from sds.errors import FileMissingError
    from sds.home import default_home
    from sds.redirect.doctor import diagnose

    file, dataset = (None, None) if name is None else split_name(name)
    for path in (file, python):
        if path is not None and not Path(path).is_file():
            message = f"no such file: {path}; check the name and the directory"
            raise FileMissingError(message)
    home = default_home()
    home.create()
    found = diagnose(file=file, dataset=dataset, python=python, home=home)
    if as_json:
        print_json({"ok": found.is_healthy, **_as_keys(found)})
    else:
        _print_diagnosis(found)
    if not found.is_healthy:
        raise typer.Exit(ExitCode.FAILED)


def _as_keys(found: "Diagnosis") -> dict[str, object]:
    """Return a diagnosis as JSON keys."""
    from dataclasses import asdict

    return asdict(found)


def _print_diagnosis(found: "Diagnosis") -> None:
    """Print what was found, problems with their remedies last."""
    from sds.cli.output import print_fields, print_lines
    from sds.cli.quantities import format_order

    print_fields(
        (
            ("connector", found.plugin or "not installed"),
            ("python", found.python),
            ("home", found.home + (" (switched off)" if found.disabled else "")),
            *((host.package, f"{_verdict(ok=host.loads)}: {host.detail}") for host in found.hosts),
        )
    )
    for dataset in found.datasets:
        orders = "; ".join(map(format_order, dataset.orders)) or "no replica"
        served = "served by a replica" if dataset.served else "read from the original"
        print_lines(f"{dataset.path} ({orders}): {served}: {dataset.reason}")
        if dataset.remedy:
            print_lines(f"  {dataset.remedy}")
    for problem in found.problems:
        print_lines(f"problem: {problem.what}", f"  remedy: {problem.remedy}")
    if found.is_healthy:
        print_lines("no problem found")


def _verdict(*, ok: bool) -> str:
    """Return whether the connector loads, in words."""
    return "loads" if ok else "does not load"
