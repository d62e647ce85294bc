"""``sds machine``: time reads by several processes, and fit a described machine to them."""

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sds.cli.command_classes import Command, Group
from sds.cli.names import check_output, check_place, text_of, write_output
from sds.cli.options import AsJson

if TYPE_CHECKING:
    from sds.machines.fit import MachineFit, PredictedRead

app = typer.Typer(
    help="Fit a simulated machine to timed reads, for `sds simulate`.",
    cls=Group,
    no_args_is_help=True,
)

# Of the reads that were predicted worst.
_N_WORST = 5

Times = Annotated[
    Path, typer.Argument(metavar="TIMES", help="Timed reads, a line of JSON for each.")
]


@app.callback()
def machine() -> None:
    """Fit a simulated machine to timed reads, for `sds simulate`."""


@app.command(cls=Command)
def measure(
    directory: Annotated[
        Path, typer.Argument(metavar="DIRECTORY", help="A directory of the file system.")
    ],
    times: Times,
    *,
    size: Annotated[str, typer.Option(metavar="SIZE", help="Size of the test file.")] = "256M",
    budget: Annotated[
        float, typer.Option(metavar="SECONDS", help="Start no timed read after this time.")
    ] = 120.0,
    processes: Annotated[
        str, typer.Option(metavar="N,N,...", help="Numbers of processes that share a read.")
    ] = "1,2,4,8",
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the random reads.")] = 1,
) -> None:
    """Time lines, planes and cubes, cold, from two axis orders, and add them to TIMES.

    The test file is removed afterwards. What was timed is kept if it is interrupted.
    """
    from sds.cli.output import note, print_lines, progress_bar
    from sds.cli.quantities import parse_size
    from sds.errors import SdsValueError
    from sds.files import open_regular
    from sds.machines.measurement import MeasureSettings, time_reads
    from sds.machines.timed_reads import median_times
    from sds.text import counted

    numbers = [part.strip() for part in processes.split(",")]
    if not all(part.isascii() and part.isdigit() for part in numbers):
        raise SdsValueError(f"--processes {processes!r}; give numbers, for example 1,2,4,8")
    settings = MeasureSettings(
        space_bytes=parse_size(size, name="--size"),
        budget_s=budget,
        processes=tuple(map(int, numbers)),
        seed=seed,
    )
    timed = []
    check_place(times)
    descriptor = open_regular(times, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with (
        os.fdopen(descriptor, "a", encoding="utf-8", buffering=1) as out,
        progress_bar("Timing reads") as advance,
    ):
        for read in time_reads(directory, settings, advance):
            out.write(read.line() + "\n")
            timed.append(read)
    n, wanted = len(median_times(timed)), settings.n_reads
    print_lines(f"{counted(len(timed), 'timed read')}, {n:,} of them different, in {times}")
    if n < wanted:
        note(f"the time ended before all {wanted} were read; a larger --budget reads them all")


@app.command(cls=Command)
def fit(
    described: Annotated[
        Path, typer.Argument(metavar="MACHINE", help="What the storage is made of, as TOML.")
    ],
    times: Times,
    *,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where to write the fitted machine."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE.")] = False,
    as_json: AsJson = False,
) -> None:
    """Find the numbers of a machine from timed reads, and tell how far it errs on others.

    Takes half a minute to some minutes: all reads are simulated some thousand times, which takes
    milliseconds to seconds for each read.
    """
    from sds.cli.output import note, print_json, progress_bar
    from sds.machines.fit import fit_to_reads
    from sds.machines.machine_file import format_machine, parse_machine
    from sds.machines.timed_reads import parse_timed_reads

    if output is not None:
        check_output(output, force=force)
    start = parse_machine(text_of(described), name=str(described)).parameters
    reads = parse_timed_reads(text_of(times).splitlines(), name=str(times))
    with progress_bar("Fitting"):
        found = fit_to_reads(reads, start)
    # What minutes were spent on is printed first: the file may find no room.
    if as_json:
        print_json(
            {
                "machine": found.machine,
                "reads": [
                    {
                        "pattern": one.read.pattern,
                        "layout": one.read.layout,
                        "measured_s": one.read.seconds,
                        "predicted_s": one.predicted_s,
                        "left_out": one.left_out,
                    }
                    for one in found.reads
                ],
            }
        )
    else:
        _print_fit(found)
    if output is not None:
        write_output(output, format_machine(found.machine).encode(), force=force)
    elif not as_json:
        note("nothing is kept: name a file with --output, for `sds simulate --machine`")


def _print_fit(found: "MachineFit") -> None:
    """Print the numbers found, the errors by process count and layout, and the worst reads."""
    from sds.cli.output import print_fields, print_table
    from sds.cli.quantities import format_seconds
    from sds.simulator.parameter_fit import searched

    machine = found.machine
    error = (
        f"x{math.exp(machine.median_error):.2f} in the median, "
        f"x{math.exp(machine.p95_error):.2f} in 95 %, {machine.n_left_out} reads"
    )
    parameters = machine.parameters
    numbers = [(name, f"{getattr(parameters, name):.4g}") for name in searched(parameters)]
    print_fields(
        (
            *numbers,
            ("fitted to", f"{machine.n_fitted} reads"),
            ("error on reads left out", error),
        )
    )
    groups: dict[tuple[int, str], list[PredictedRead]] = {}
    for one in found.reads:
        groups.setdefault((one.read.n_processes, one.read.layout), []).append(one)
    print_table(
        ("processes>", "order", "reads>", "predicted / measured: median>", "within 20 %>"),
        [
            (str(n), layout, str(len(some)), *_error_cells(some))
            for (n, layout), some in sorted(groups.items())
        ],
    )
    worst = sorted(found.reads, key=lambda one: -abs(one.log_error))[:_N_WORST]
    print_table(
        ("predicted worst", "order", "measured>", "predicted>", "left out"),
        [
            (
                one.read.pattern,
                one.read.layout,
                format_seconds(one.read.seconds),
                format_seconds(one.predicted_s),
                "yes" if one.left_out else "",
            )
            for one in worst
        ],
    )


def _error_cells(some: "list[PredictedRead]") -> tuple[str, str]:
    import statistics

    median = math.exp(statistics.median(one.log_error for one in some))
    near = sum(abs(one.log_error) <= math.log(1.2) for one in some)
    return f"x{median:.2f}", f"{near / len(some):.0%}"
