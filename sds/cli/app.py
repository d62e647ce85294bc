"""Put the commands together, and turn errors into messages and exit statuses."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

import typer

from sds.cli import (
    advise,
    calibrate,
    demo,
    doctor,
    env,
    explain,
    ingest,
    machine,
    plot,
    query,
    reorganize,
    replicas,
    run,
    simulate,
    status,
    table,
    trace,
)
from sds.cli.commands import Command, Group
from sds.cli.exit_codes import ExitCode, exit_code_of
from sds.errors import SdsError
from sds.home import NATIVE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_WATCH = "Run programs under SDS"
_CHOOSE = "Find a better layout"
_BUILD = "Build and keep replicas"
_LOOK = "Look inside"

app = typer.Typer(
    name="sds",
    cls=Group,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

_COMMANDS: tuple[tuple[Callable[..., object], str, str], ...] = (
    (run.run, "run", _WATCH),
    (env.env, "env", _WATCH),
    (doctor.doctor, "doctor", _WATCH),
    (status.status, "status", _WATCH),
    (ingest.ingest, "ingest", _CHOOSE),
    (advise.advise, "advise", _CHOOSE),
    (advise.what_if, "what-if", _CHOOSE),
    (explain.explain, "explain", _CHOOSE),
    (simulate.simulate, "simulate", _CHOOSE),
    (calibrate.calibrate, "calibrate", _CHOOSE),
    (plot.plot, "plot", _CHOOSE),
    (reorganize.reorganize, "reorganize", _BUILD),
    (query.query, "query", _BUILD),
    (demo.demo, "demo", _LOOK),
)
_PASS_ON = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "allow_interspersed_args": False,
}

for function, name, panel in _COMMANDS:
    app.command(
        name,
        rich_help_panel=panel,
        context_settings=_PASS_ON if name == "run" else None,
        cls=doctor.WithCommandBehind if name == "doctor" else Command,
    )(function)
app.add_typer(machine.app, name="machine", rich_help_panel=_CHOOSE)
app.add_typer(replicas.app, name="replicas", rich_help_panel=_BUILD)
app.add_typer(trace.app, name="trace", rich_help_panel=_LOOK)
app.add_typer(table.app, name="table", rich_help_panel=_LOOK)

# The class of every complaint about options and arguments, whichever package typer keeps it in.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]


def _show_version(*, value: bool) -> None:
    """Print the version and end."""
    if value:
        from sds import __version__

        sys.stdout.write(f"sds {__version__}\n")
        raise typer.Exit


@app.callback()
def sds(
    *,
    version: bool = typer.Option(
        False, "--version", help="Print the version.", is_eager=True, callback=_show_version
    ),
) -> None:
    """Make reading large HDF5 files fast, without changing the programs that read them.

    Run a program under `sds run`; ask `sds advise` what would make its reads cheap; build that
    with `sds reorganize`; run the program again. Originals are only ever read.
    """


# After which the callback has returned that a signal was lost in.
_AGAIN_S = 0.01


class _EndedError(BaseException):
    """Raised by a signal that ends the process, so that what is half done is cleaned up."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and end the process with its status, or as a signal would."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end)
            sys.unraisablehook = _raise_again
    try:
        sys.exit(_run(given))
    except _EndedError as ended:
        os.kill(os.getpid(), ended.args[0])
        raise


def _raise_again(lost: sys.UnraisableHookArgs) -> None:
    """Raise a second time what ends the process, where Python could not pass it on.

    A signal may come while a callback of a weak reference runs, from which nothing is raised.
    """
    if not isinstance(lost.exc_value, _EndedError):
        sys.__unraisablehook__(lost)
        return
    number = lost.exc_value.args[0]
    signal.signal(signal.SIGALRM, lambda *_: _end(number, None))
    signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)


def _end(number: int, _: object) -> NoReturn:
    signal.signal(number, signal.SIG_DFL)  # a second one ends at once
    raise _EndedError(number)


def _run(given: list[str]) -> int:
    """Run one command and return its exit status."""
    if given[:1] not in (["run"], ["env"], ["doctor"]):
        # What these commands read themselves is the original, and no trace of a user's program.
        os.environ |= NATIVE
    try:
        returned = app(given or ["--help"], prog_name="sds", standalone_mode=False)
        sys.stdout.flush()
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):  # typer's own answer to it
            return _reader_gone()
        raise
    except (KeyboardInterrupt, typer.Abort):
        returned = ExitCode.INTERRUPTED
    except (_UsageError, SdsError, OSError) as error:
        return _fail(error, as_json=_wants_json(given))
    if returned == ExitCode.INTERRUPTED:
        return _interrupted()
    return returned if isinstance(returned, int) else ExitCode.SUCCESS


def _wants_json(given: list[str]) -> bool:
    """Return whether --json was given, also where the rest cannot be understood."""
    own = given[: given.index("--")] if "--" in given else given
    return "--json" in own and own[:1] != ["run"]


def _usage_message(error: Exception) -> str:
    """Return what is wrong with the arguments, and where to read about them."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "sds"
    said = getattr(error, "format_message", error.__str__)().replace(": Value error, ", ": ", 1)
    return f"{said.rstrip('.')}; see {command} --help"


def _fail(error: Exception, *, as_json: bool) -> int:
    """Say what went wrong and return the exit status."""
    from sds.cli.output import note, print_json

    if isinstance(error, BrokenPipeError):
        return _reader_gone()
    kind, message, code = type(error).__name__, str(error), exit_code_of(error)
    if isinstance(error, OSError) and not isinstance(error, SdsError) and error.strerror:
        message = ": ".join(filter(None, (os.fsdecode(error.filename or ""), error.strerror)))
    if isinstance(error, _UsageError):
        kind, message, code = "UsageError", _usage_message(error), ExitCode.USAGE
    note(f"error: {message}")
    if as_json:
        print_json({"error": {"kind": kind, "message": message, "exit_code": int(code)}})
    return code


def _reader_gone() -> int:
    """End quietly; Python would complain once more when it flushes stdout at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno() if sys.__stdout__ else 1)
    return ExitCode.BROKEN_PIPE


def _interrupted() -> int:
    """End as programs end that are interrupted: a shell's loop ends with them."""
    sys.stderr.write("\nsds: interrupted\n")
    sys.stderr.flush()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)
    return ExitCode.INTERRUPTED
