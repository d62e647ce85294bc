"""Results on stdout, everything else on stderr."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import textwrap
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sds.text import printable, time_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import TextIO

    from rich.console import Console
    from rich.table import Table

_PIPE_WIDTH = 200
# Of a table: no path or name may be broken there, since programs look for them.
_PIPED_TABLE_WIDTH = 1 << 16
# Text that has less room is left to the terminal.
_LEAST_WIDTH = 40
LINE_EVERY_S = 30.0
"""Seconds between lines of progress where there is no terminal."""


def print_json(value: object) -> None:
    """Print a record, or a dict of records, as one JSON object on stdout."""
    json.dump(value, sys.stdout, indent=2, allow_nan=False, default=_jsonable)
    sys.stdout.write("\n")
    sys.stdout.flush()


def _jsonable(value: object) -> object:
    """Return what JSON has for a value that the module json does not know."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value)


def console() -> Console:
    """Return the console of stdout; where that is no terminal, wide enough not to wrap."""
    from rich.console import Console

    return Console(
        file=sys.stdout,
        width=None if sys.stdout.isatty() else _PIPE_WIDTH,
        highlight=False,
        markup=False,
        emoji=False,
    )


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; columns whose name ends in ``>`` are set to the right.

    In a terminal that is too narrow for it the columns move together, and where words would have to
    be broken all the same, each row is printed as names and values instead.
    """
    from rich.measure import Measurement

    screen = console()
    piped = screen.options.update_width(_PIPED_TABLE_WIDTH)
    if not sys.stdout.isatty():
        screen.width = _PIPED_TABLE_WIDTH
    spacious, dense = (_table(columns, rows, gap=gap) for gap in (1, 0))
    if Measurement.get(screen, piped, spacious).maximum <= screen.width:
        table = spacious
    elif Measurement.get(screen, piped, dense).minimum <= screen.width:
        around = Measurement.get(screen, piped, dense).maximum - sum(_natural_widths(columns, rows))
        table = _table(columns, rows, gap=0, widths=_widths(columns, rows, screen.width - around))
    else:
        _print_rows(columns, rows)
        return
    with screen.capture() as captured:
        screen.print(table)
    write_lines(*(line.rstrip() for line in captured.get().splitlines()))


def _natural_widths(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    """Return how wide columns are where nothing is broken."""
    names = [column.rstrip(">") for column in columns]
    return [max(map(len, cells)) for cells in zip(names, *rows, strict=True)]


def _widths(columns: Sequence[str], rows: Sequence[Sequence[str]], room: int) -> list[int]:
    """Return widths that fit: the widest columns give way first, none breaks a word."""
    widths = _natural_widths(columns, rows)
    names = [column.rstrip(">") for column in columns]
    words = [
        max(len(word) for cell in cells for word in cell.split(" "))
        for cells in zip(names, *rows, strict=True)
    ]
    while sum(widths) > room:
        at = max(range(len(widths)), key=lambda i: (widths[i] > words[i], widths[i]))
        if widths[at] <= words[at]:
            break
        widths[at] -= 1
    return widths


def _table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    gap: int,
    widths: Sequence[int] | None = None,
) -> Table:
    """Return a table with `gap` blanks before each column and two behind it."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, gap))
    for i, column in enumerate(columns):
        table.add_column(
            column.rstrip(">"),
            justify="right" if column.endswith(">") else "left",
            overflow="fold",
            width=None if widths is None else widths[i],
        )
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return table


def _print_rows(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print the rows of a table one below the other, without their empty cells."""
    for row in rows:
        print_lines("")
        print_fields(
            [(column.rstrip(">"), cell) for column, cell in zip(columns, row, strict=True) if cell]
        )
    print_lines("")


def print_fields(fields: Sequence[tuple[str, str]]) -> None:
    """Print names and values, one per line, aligned.

    In a terminal, values take as many lines as they need; not those that name a path, which are to
    be copied whole.
    """
    width = max((len(name) for name, _ in fields), default=0)
    for name, value in fields:
        head = f"{name:<{width}}  "
        names_path = any(word.startswith("/") for word in value.split())
        shown = printable(value)
        write_lines(head + shown if names_path else _fitted(shown, sys.stdout, head, width + 2))


def print_lines(*lines: str) -> None:
    """Print lines on stdout, each on one. Sentences are better off with `print_prose`."""
    write_lines(*map(printable, lines))


def write_lines(*lines: str) -> None:
    """Print lines as they are: what holds tabs, colours, or text for a shell."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def print_prose(*sentences: str) -> None:
    """Print sentences on stdout, each on a line, in a terminal on as many as it needs."""
    for sentence in sentences:
        text = printable(sentence).lstrip(" ")
        head = " " * (len(printable(sentence)) - len(text))
        write_lines(_fitted(text, sys.stdout, head, len(head) + 2))


def note(message: str) -> None:
    """Print a remark on stderr, in a terminal on as many lines as it needs."""
    sys.stderr.write(_fitted(f"sds: {printable(message)}", sys.stderr, "", 2) + "\n")
    sys.stderr.flush()


def _fitted(text: str, stream: TextIO, head: str, behind: int) -> str:
    """Return text after a head; in a terminal broken between words, lines set in by `behind`.

    As it is where the terminal is too narrow for lines of words.
    """
    line = head + text
    if not stream.isatty():
        return line
    width = _width_of(stream)
    if len(line) <= width or width - behind < _LEAST_WIDTH:
        return line
    return textwrap.fill(
        text,
        width,
        initial_indent=head,
        subsequent_indent=" " * behind,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _width_of(terminal: TextIO) -> int:
    """Return the columns of a terminal; COLUMNS goes before what it says itself."""
    given = os.environ.get("COLUMNS", "")
    return int(given) if given.isdigit() else os.get_terminal_size(terminal.fileno()).columns or 80


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[float, str], None]]:
    """Yield a function that shows the share done (0 to 1) and what is being done.

    A bar on stderr if that is a terminal; else, as in the log of a batch job, a line now and then.
    """
    if not sys.stderr.isatty():
        yield _Lines(title).advance
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=Console(file=sys.stderr),
        transient=True,
    ) as progress:
        task = progress.add_task(title, total=1.0)

        def advance(share: float, what: str) -> None:
            progress.update(task, completed=share, description=what or title)

        yield advance


class _Lines:
    """Progress as lines on stderr: none for what takes less than the time between two."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._begun_s = self._written_s = time.monotonic()
        self._begun_share: float | None = None  # of work that goes on where an earlier one ended

    def advance(self, share: float, what: str) -> None:
        """Write a line if the last one is old enough."""
        now_s = time.monotonic()
        if self._begun_share is None:
            self._begun_share = share
        if now_s - self._written_s < LINE_EVERY_S:
            return
        self._written_s = now_s
        text = f"{self._title}: {what}, " if what else f"{self._title}: "
        text += f"{share:.0%} done"
        done = share - self._begun_share
        if done > 0:
            text += f", {time_text((now_s - self._begun_s) * (1 - share) / done)} left"
        with contextlib.suppress(OSError, ValueError):  # nobody reads it; the work goes on
            note(text)
