"""The command line: ``sds``. One file per command group; importing this loads nothing heavy."""

from __future__ import annotations

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line and end the process with its status."""
    words = sys.argv[1:]
    # Each program under SDS waits for this: without options, nothing has to be parsed.
    if len(words) > 1 and words[0] == "run":
        command = words[2:] if words[1] == "--" else words[1:]
        if command and (words[1] == "--" or not command[0].startswith("-")):
            from sds.cli.launcher import launch

            launch(command)
    from sds.cli.command_line import main as run_any

    run_any(words)
