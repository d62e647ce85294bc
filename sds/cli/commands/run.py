"""``sds run``: start a program with the connector, and become it."""

from __future__ import annotations

import argparse
from itertools import takewhile
from typing import TYPE_CHECKING, NoReturn

from sds.cli.parser import CommandParser

if TYPE_CHECKING:
    from collections.abc import Sequence


def parser() -> CommandParser:
    """Return the parser of what stands before the program's own words."""
    own = CommandParser(run, "[OPTIONS] [--] COMMAND [ARGUMENT]...")
    flag = argparse.BooleanOptionalAction
    own.add_argument("--trace", action=flag, default=True, help="Record what the program reads.")
    own.add_argument("--redirect", action=flag, default=True, help="Serve reads from replicas.")
    own.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="Say on stderr which HDF5 libraries SDS serves, and which not.",
    )
    return own


def run(words: Sequence[str]) -> NoReturn:
    """Run a program under SDS: its reads are traced, and served from replicas where that is faster.

    Prints nothing of its own, unless --verbose is given. The program takes this process over, so
    that its exit status, signals and output are its own. An HDF5 that SDS cannot serve runs as
    without.

    Example: sds run -- python analysis.py cube.h5

    With a wrapper: sds run -- mpiexec -n 4 ./analysis cube.h5
    """
    from sds.cli.launcher import launch

    own = list(takewhile(lambda word: word.startswith("-") and word != "--", words))
    options = parser().parse_args(own)
    command = [*words[len(own) :]]
    if command[:1] == ["--"]:
        del command[0]
    if not command:
        parser().error("a program is missing: COMMAND")
    launch(command, trace=options.trace, redirect=options.redirect, is_verbose=options.verbose)
