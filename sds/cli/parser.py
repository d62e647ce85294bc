"""Parse the words of the commands that need no package but NumPy and h5py."""

from __future__ import annotations

import argparse
import inspect
import shutil
import textwrap
from typing import TYPE_CHECKING, NoReturn

from sds.cli.exit_codes import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_HELP_WIDTH = 100


class CommandParser(argparse.ArgumentParser):
    """A parser of one command's words, which raises what is wrong with them.

    Parameters
    ----------
    command
        Its name is the command's, its docstring the help.
    usage
        The words behind the name, as the manual has them.
    """

    def __init__(self, command: Callable[..., object], usage: str) -> None:
        name = f"sds {command.__name__}"
        super().__init__(
            prog=name,
            usage=f"{name} {usage}",
            description=inspect.getdoc(command),
            formatter_class=_Formatter,
            allow_abbrev=False,
        )

    def add_json(self) -> None:
        """Add the option that every command has which prints a result."""
        self.add_argument(
            "--json",
            dest="as_json",
            action="store_true",
            help="Print the result alone, as JSON, on stdout.",
        )

    def error(self, message: str) -> NoReturn:
        """Raise UsageError."""
        raise UsageError(f"{message}; see {self.prog} --help")


class _Formatter(argparse.HelpFormatter):
    """Fill each paragraph of a description by itself."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=min(_HELP_WIDTH, shutil.get_terminal_size().columns - 2))

    def add_usage(
        self,
        usage: str | None,
        actions: Iterable[argparse.Action],
        groups: Iterable[argparse._MutuallyExclusiveGroup],
        prefix: str | None = None,
    ) -> None:
        super().add_usage(usage, actions, groups, prefix or "Usage: ")

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        filled = (
            textwrap.fill(" ".join(paragraph.split()), width, initial_indent=indent,
                          subsequent_indent=indent)
            for paragraph in text.split("\n\n")
        )  # fmt: skip
        return "\n\n".join(filled)
