"""``sds try``: run a program, and say what its reads took and what would make them faster."""

import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from sds.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sds.home import Home
    from sds.server.operations.advice_reports import Advice


@dataclass(frozen=True, kw_only=True)
class ProgramReads:
    """Reads of the processes of a program under SDS.

    Attributes
    ----------
    datasets
        File and HDF5 path of each, sorted.
    n_reads, by_engine, by_replicas
        HDF5 reads in all, those that the engine carried out on an original, and those that came
        from replicas.
    bytes_read, seconds
        Elements selected; time within the reads, summed over processes.
    """

    datasets: tuple[tuple[str, str], ...]
    n_reads: int
    by_engine: int
    by_replicas: int
    bytes_read: int
    seconds: float


def try_program(
    command: Annotated[
        list[str],
        typer.Argument(metavar="COMMAND [ARGUMENT]...", help="The program, best behind --."),
    ],
    *,
    yes: Annotated[
        bool, typer.Option("-y", "--yes", help="Build what is advised, without a question.")
    ] = False,
) -> int:
    """Run a program under SDS, say what its reads took, and offer to build what is advised.

    The program runs as by sds run. Then follows what sds advise says of the files that it read,
    and on a terminal the question whether to build it.

    Example: sds try -- python analysis.py cube.h5
    """
    from sds.cli.output import print_prose
    from sds.home import default_home, users_environment
    from sds.text import counted, size_text, time_text

    home = default_home()
    before = _traces(home)
    began_s = time.monotonic()
    status = subprocess.run(  # noqa: S603  (the user's own command)
        [sys.executable, "-m", "sds.cli", "run", "--", *command],
        check=False,
        env=users_environment(),
    ).returncode
    if status < 0:  # by a signal, as shells number it
        status = 128 - status
    took = time_text(time.monotonic() - began_s)
    reads = program_reads(_traces(home) - before)
    print_prose("", f"{command[0]} took {took} and ended with status {status}.")
    if not reads.n_reads:
        print_prose(
            "No read of it was traced. It may have read no HDF5 file, or with an HDF5 that cannot "
            f"be served: sds run --verbose -- {command[0]} ... says which it has."
        )
        return status
    files = dict.fromkeys(file for file, _ in reads.datasets)
    print_prose(
        f"It read {size_text(reads.bytes_read)} of {counted(len(reads.datasets), 'dataset')} in "
        f"{counted(len(files), 'file')}, in {counted(reads.n_reads, 'HDF5 read')} that took "
        f"{time_text(reads.seconds)}: {reads.by_replicas:,} from replicas, "
        f"{reads.by_engine:,} by the read engine."
    )
    advice = _advise(reads)
    commands = [layout.command for layout in advice.portfolio.layouts]
    if commands and (yes or _wants_to_build(len(commands))) and not _build(commands):
        return ExitCode.FAILED
    return status


def _traces(home: "Home") -> "set[Path]":
    from sds.trace import SUFFIX

    return set(home.spool.glob(f"*{SUFFIX}"))


def program_reads(traces: "set[Path]") -> ProgramReads:
    """Return what traces hold; one that a server has counted and removed meanwhile is left out."""
    import numpy as np

    from sds.errors import SdsError
    from sds.trace import read_spool

    datasets: set[tuple[str, str]] = set()
    totals = np.zeros(5, np.int64)
    for path in traces:
        try:
            found = read_spool(path)
        except (SdsError, OSError):
            continue
        records = found.records
        sizes = {each.id: each.element_bytes for each in found.datasets}
        names = {each.id: (each.file, each.path) for each in found.datasets}
        read = np.unique(records.dataset_id).tolist()
        datasets.update(names[number] for number in read)
        element_bytes = np.array(
            [sizes[number] for number in records.dataset_id.tolist()], np.int64
        )
        totals += [
            int(records.n_reads.sum()),
            int(records.n_reads[records.served_by == -1].sum()),
            int(records.n_reads[records.served_by > 0].sum()),
            int((records.n_elements * records.n_reads * element_bytes).sum()),
            int(records.elapsed_ns.sum()),
        ]
    n_reads, by_engine, by_replicas, bytes_read, elapsed_ns = totals.tolist()
    return ProgramReads(
        datasets=tuple(sorted(datasets)),
        n_reads=n_reads,
        by_engine=by_engine,
        by_replicas=by_replicas,
        bytes_read=bytes_read,
        seconds=elapsed_ns * 1e-9,
    )


def _advise(reads: ProgramReads) -> "Advice":
    """Print the advice on the files of a program."""
    from sds.cli.commands.advise import count_traces, print_advice
    from sds.home import default_home
    from sds.server.operations.advice_reports import AdviceRequest, NamedDataset
    from sds.server.remote_service import connect

    files = dict.fromkeys(file for file, _ in reads.datasets)
    request = AdviceRequest(datasets=tuple(NamedDataset(file=file) for file in files))
    with connect(default_home()) as service:
        count_traces(service)
        advice = service.advise(request)
    print_advice(advice, "reads")
    return advice


def _wants_to_build(n_replicas: int) -> bool:
    """Ask on a terminal whether to build what is advised; no, elsewhere."""
    from sds.text import counted

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    return typer.confirm(f"Build {counted(n_replicas, 'replica')} now?", default=False)


def _build(commands: "Sequence[str]") -> bool:
    """Run the commands that advice prints; return whether all succeeded, up to the first."""
    import shlex

    from sds.cli.output import print_lines

    for command in commands:
        print_lines(f"$ {command}")
        own = [sys.executable, "-m", "sds.cli", *shlex.split(command)[1:]]
        if subprocess.run(own, check=False).returncode:  # noqa: S603  (a command of ours)
            return False
    return True
