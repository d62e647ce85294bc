"""Start a program under SDS, and become it: what ``sds run`` does once its options are known."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

from sds.cli.exit_codes import ExitCode
from sds.errors import SdsError
from sds.home import default_home
from sds.redirect.launch.activation import environment, log_native, run_program

if TYPE_CHECKING:
    from collections.abc import Sequence


def launch(
    command: Sequence[str],
    *,
    trace: bool = True,
    redirect: bool = True,
    is_verbose: bool = False,
) -> NoReturn:
    """Become the program, with the connector switched on where that is possible.

    Parameters
    ----------
    trace, redirect
        As for :func:`sds.redirect.launch.activation.environment`.
    is_verbose
        Have each HDF5 of the program said on stderr, and whether it runs under SDS.
    """
    home = default_home()
    variables, problem = dict(os.environ), ""
    try:
        home.create()
        variables = environment(home, os.environ, trace=trace, redirect=redirect)
    except (SdsError, OSError) as error:
        problem = str(error)
    except KeyboardInterrupt:
        # As the program would end that was about to start.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
        sys.exit(ExitCode.INTERRUPTED)
    if problem:
        log_native(os.environ, command[0], problem)
    if is_verbose and problem:
        _say(f"sds: running {command[0]} without SDS: {problem}")
    elif is_verbose:
        variables["SDS_VERBOSE"] = "1"
    try:
        run_program(command, variables)
    except FileNotFoundError:
        _say(f"sds: error: {command[0]}: command not found")
        sys.exit(ExitCode.COMMAND_NOT_FOUND)
    except OSError as error:
        _say(f"sds: error: cannot run {command[0]}: {error.strerror}")
        sys.exit(ExitCode.NOT_EXECUTABLE)


def _say(line: str) -> None:
    if sys.stderr is not None:  # closed when this process was started
        sys.stderr.write(f"{line}\n")
