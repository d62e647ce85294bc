"""``sds demo``: the whole loop, on files made for it."""

import shlex
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from sds.cli.options import AsJson

if TYPE_CHECKING:
    from sds.demo.comparison import Row, Spread
    from sds.demo.driver import Outcome


def demo(
    *,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the server running and the files in place.")
    ] = False,
    size: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Size of both files together; 1.75G if not given, or what fits on disk and in "
            "memory.",
        ),
    ] = None,
    runs: Annotated[
        int,
        typer.Option(metavar="N", min=1, help="Runs of each program per variant and cache state."),
    ] = 3,
    directory: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Where to put the files; the current directory if not given."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(metavar="PNG", help="Where to draw the result; ./sds-demo.png if left out."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Let a server make two ordinary programs fast by itself, and measure them before and after.

    Makes an image cube and a climate grid (1 to 2 GiB), starts a server, and runs an h5py and a
    netCDF4 program that know nothing of SDS. The server in mode auto builds what it advises, and
    proves it. Takes about three minutes, and removes the files that it made. Fails where any
    variant of a program reads other bytes.
    """
    from sds.cli.output import note, print_json, progress_bar
    from sds.cli.quantities import parse_size
    from sds.demo.driver import run_demo
    from sds.errors import VerificationError

    signal.signal(signal.SIGTERM, _terminated)
    stream = sys.stderr if as_json else sys.stdout

    def say(line: str) -> None:
        stream.write(f"{line}\n")
        stream.flush()

    outcome = run_demo(
        size_bytes=None if size is None else parse_size(size, name="--size"),
        n_rounds=runs,
        directory=directory,
        figure=output,
        keep=keep,
        say=say,
        bar=progress_bar,
    )
    if as_json:
        print_json(outcome)
    else:
        _print_outcome(outcome)
    if keep:
        kept_in = shlex.quote(str(outcome.directory))
        kept_home = shlex.quote(str(outcome.directory / "home"))
        note(f"kept: server {outcome.server}, files in {outcome.directory}")
        note(f"to use it:   export SDS_HOME={kept_home}")
        note(f"to stop it:  kill {outcome.server_pid}")
        note(f"to clean up: rm -r {kept_in}")
    if not outcome.ok:
        message = "the variants of a program read different bytes; see the column `bytes`"
        raise VerificationError(message)


def _terminated(_signal: int, _frame: object) -> NoReturn:
    """Leave by way of everything that cleans up."""
    raise SystemExit(128 + signal.SIGTERM)


def _print_outcome(outcome: "Outcome") -> None:
    """Print the tables."""
    from sds.cli.output import print_lines, print_prose, print_table
    from sds.cli.quantities import format_order, format_seconds, format_size
    from sds.text import factor_text

    print_lines("", "After the file is open: median (range) of the runs, which took turns")
    print_table(
        ("read", "cache", "program", "time per read", "original / this", "bytes"),
        [line for row in outcome.rows for line in _lines(row)],
    )
    print_prose(*(f"{row.selection}, {row.state}: {row.cache}" for row in outcome.rows))
    print_lines("", "Gain, predicted by the advice and measured")
    print_table(
        ("read", "predicted>", "measured cold>", "measured warm>"),
        [
            (
                gain.selection,
                f"{factor_text(gain.predicted)}x" + ("" if gain.calibrated else " (uncalibrated)"),
                f"{factor_text(gain.measured_cold)}x",
                f"{factor_text(gain.measured_warm)}x",
            )
            for gain in outcome.gains
        ],
    )
    print_prose(
        *(
            f"replica   {built.dataset} in order {format_order(built.order)}: "
            f"{format_size(built.size_bytes)}, {format_seconds(built.build_s)} to build and "
            "verify, "
            + (
                "does not pay"
                if built.pays_after_reads is None
                else f"pays after {built.pays_after_reads} cold reads"
            )
            for built in outcome.builds
        )
    )
    print_lines(
        f"figure    {outcome.figure}",
        f"server    {outcome.server}" + ("" if outcome.kept else " (stopped; --keep leaves it)"),
        f"took      {format_seconds(outcome.elapsed_s)}",
    )


def _lines(row: "Row") -> tuple[tuple[str, ...], ...]:
    """Return the lines of the table for one kind of read: original, connector alone, replica."""
    same = "equal" if row.equal else "DIFFERENT"
    return (
        (row.selection, row.state, "original", _times(row.original_s), "", same),
        ("", "", "connector alone", _times(row.connector_s), _ratio(row.connector_ratio), same),
        ("", "", "with replica", _times(row.replica_s), _ratio(row.ratio), same),
    )


def _times(spread: "Spread") -> str:
    """Return a median and its range, in one unit."""
    from sds.text import times_text

    median, low, high = times_text((spread.median, spread.low, spread.high))
    return f"{median} ({low}-{high})"


def _ratio(spread: "Spread") -> str:
    """Return a median ratio and its range."""
    return f"{spread.median:.3g}x ({spread.low:.3g}-{spread.high:.3g})"
