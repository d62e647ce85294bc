"""Put the commands together that need packages of extras, by typer."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import typer

from sds.cli.command_classes import Command, Group
from sds.cli.command_list import ABOUT, BASE, BEYOND_BASE, base_module
from sds.cli.commands import (
    advise,
    calibrate,
    demo,
    events,
    explain,
    ingest,
    machine,
    plot,
    policy,
    query,
    reads,
    reorganize,
    replicas,
    report,
    simulate,
    status,
    table,
    trace,
    try_program,
)
from sds.cli.exit_codes import ExitCode, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

app = typer.Typer(
    name="sds",
    cls=Group,
    help=ABOUT,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

_FUNCTIONS: dict[str, Callable[..., object]] = {
    "try": try_program.try_program,
    "status": status.status,
    "report": report.report,
    "ingest": ingest.ingest,
    "advise": advise.advise,
    "what-if": advise.what_if,
    "explain": explain.explain,
    "simulate": simulate.simulate,
    "calibrate": calibrate.calibrate,
    "plot": plot.plot,
    "reorganize": reorganize.reorganize,
    "query": query.query,
    "events": events.events,
    "demo": demo.demo,
}
_GROUPS = {
    "machine": machine.app,
    "replicas": replicas.app,
    "policy": policy.app,
    "reads": reads.app,
    "trace": trace.app,
    "table": table.app,
}


@app.callback()
def _sds(
    *,
    version: bool = typer.Option(False, "--version", help="Print the version."),
) -> None: ...


def _listed() -> None:
    """Stand for a command of the base in the list; `sds.cli.command_line` has run it."""


for _name in BASE:
    _own = getattr(base_module(_name), _name)
    app.command(_name, rich_help_panel=next(iter(BEYOND_BASE)), help=inspect.getdoc(_own))(_listed)
for _heading, _names in BEYOND_BASE.items():
    for _name in _names:
        if _name in _GROUPS:
            app.add_typer(_GROUPS[_name], name=_name, rich_help_panel=_heading)
        else:
            # What stands behind the name of a program to try is its own.
            own_words = {"allow_interspersed_args": _name != "try"}
            app.command(_name, rich_help_panel=_heading, cls=Command, context_settings=own_words)(
                _FUNCTIONS[_name]
            )

# The class of every complaint about options and arguments, whichever package typer keeps it in.
_TyperUsageError: type[Exception] = typer.BadParameter.__mro__[1]


def run_app(words: list[str]) -> object:
    """Run one command and return what it returns, or its exit status."""
    try:
        return app(words, prog_name="sds", standalone_mode=False)
    except typer.Abort:
        return ExitCode.INTERRUPTED
    except _TyperUsageError as error:
        raise UsageError(_usage_message(error)) from error


def _usage_message(error: Exception) -> str:
    """Return what is wrong with the arguments, and where to read about them."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "sds"
    said = getattr(error, "format_message", error.__str__)().replace(": Value error, ", ": ", 1)
    return f"{said.rstrip('.')}; see {command} --help"
