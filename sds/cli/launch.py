"""Start a program under SDS, and become it: what ``sds run`` does once its options are known."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

from sds.cli.exit_codes import ExitCode
from sds.errors import SdsError
from sds.home import default_home
from sds.redirect.activate import log_native, program_environment, run_program

if TYPE_CHECKING:
    from collections.abc import Sequence


def launch(
    command: Sequence[str],
    *,
    trace: bool = True,
    redirect: bool = True,
    probed: Sequence[str] | None = None,
    is_verbose: bool = False,
) -> NoReturn:
    """Become the program, under SDS where its HDF5 can load the connector, else without.

    Parameters
    ----------
    trace, redirect, probed
        As for :func:`sds.redirect.activate.program_environment`.
    is_verbose
        Say on stderr which.
    """
    home = default_home()
    try:
        home.create()
        chosen = program_environment(
            command, home, os.environ, trace=trace, redirect=redirect, probed=probed
        )
        variables, problem = chosen.variables, chosen.problem
    except (SdsError, OSError) as error:
        variables, problem = dict(os.environ), str(error)
    except KeyboardInterrupt:
        # As the program would end that was about to start.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
        sys.exit(ExitCode.INTERRUPTED)
    if problem:
        log_native(os.environ, command[0], problem)
    if is_verbose:
        how = f"without SDS: {problem}" if problem else "under SDS"
        sys.stderr.write(f"sds: running {command[0]} {how}\n")
    try:
        run_program(command, variables)
    except FileNotFoundError:
        sys.stderr.write(f"sds: error: {command[0]}: command not found\n")
        sys.exit(ExitCode.COMMAND_NOT_FOUND)
    except OSError as error:
        sys.stderr.write(f"sds: error: cannot run {command[0]}: {error.strerror}\n")
        sys.exit(ExitCode.NOT_EXECUTABLE)
