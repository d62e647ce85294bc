"""Find the command, and turn errors into messages and exit statuses.

Three commands need NumPy and h5py alone, as does the list of all commands; `sds.cli.typer_app`
has the others.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

from sds.cli.command_list import ABOUT, BASE, BEYOND_BASE, base_module
from sds.cli.exit_codes import ExitCode, UsageError, exit_code_of
from sds.errors import SdsError
from sds.home import become_own_process

if TYPE_CHECKING:
    from collections.abc import Sequence

# After which the callback has returned that a signal was lost in.
_AGAIN_S = 0.01


class _EndedError(BaseException):
    """Raised by a signal that ends the process, so that what is half done is cleaned up."""


def main(words: Sequence[str]) -> NoReturn:
    """Run the command line and end the process with its status, or as a signal would."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end)
            sys.unraisablehook = _raise_again
    try:
        sys.exit(run_command(list(words)))
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


def run_command(words: list[str]) -> int:
    """Run one command and return its exit status."""
    try:
        returned = _dispatch(words or ["--help"])
        sys.stdout.flush()
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):  # typer's own answer to it
            return _reader_gone()
        raise
    except KeyboardInterrupt:
        returned = ExitCode.INTERRUPTED
    except (UsageError, SdsError, OSError) as error:
        return _fail(error, as_json=_wants_json(words))
    except ModuleNotFoundError as error:
        from sds.extras import missing_extra

        explained = missing_extra(error)
        if explained is None:
            raise
        return _fail(explained, as_json=_wants_json(words))
    if returned == ExitCode.INTERRUPTED:
        return _interrupted()
    return returned if isinstance(returned, int) else ExitCode.SUCCESS


def _dispatch(words: list[str]) -> object:
    name, *behind = words
    if name in BASE:
        command = getattr(base_module(name), name)
        try:
            returned: object = command(behind)
        except SystemExit as ended:  # argparse has printed the help
            return ended.code
        return returned
    if name == "--version":
        from sds import __version__

        sys.stdout.write(f"sds {__version__}\n")
        return ExitCode.SUCCESS
    become_own_process()
    try:
        from sds.cli.typer_app import run_app
    except ModuleNotFoundError:
        if name in {"-h", "--help"}:
            return _print_base_help()
        if any(name in names for names in BEYOND_BASE.values()):
            raise
        raise UsageError(f"No such command '{name}'; see sds --help") from None
    return run_app(words)


def _print_base_help() -> ExitCode:
    """Print what can be run without the packages of any extra, and what installs the others."""
    from sds.cli.output import write_lines
    from sds.extras import pip_install

    summaries = [
        f"  {name:<8}{(getattr(base_module(name), name).__doc__ or '').splitlines()[0]}"
        for name in BASE
    ]
    others = [f"  {heading}: {', '.join(names)}" for heading, names in BEYOND_BASE.items()]
    write_lines(
        "Usage: sds [OPTIONS] COMMAND [ARGS]...", "", *ABOUT.splitlines(), "",
        *summaries, "", f"With the packages that {pip_install('all')} brings:", *others,
    )  # fmt: skip
    return ExitCode.SUCCESS


def _wants_json(given: list[str]) -> bool:
    """Return whether --json was given, also where the rest cannot be understood."""
    own = given[: given.index("--")] if "--" in given else given
    return "--json" in own and own[:1] != ["run"]


def _fail(error: Exception, *, as_json: bool) -> int:
    """Say what went wrong and return the exit status."""
    from sds.cli.output import note, print_json

    if isinstance(error, BrokenPipeError):
        return _reader_gone()
    kind, message, code = type(error).__name__, str(error), exit_code_of(error)
    if isinstance(error, OSError) and not isinstance(error, SdsError) and error.strerror:
        message = ": ".join(filter(None, (os.fsdecode(error.filename or ""), error.strerror)))
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
