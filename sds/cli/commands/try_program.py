"""``sds try``: run a program, and say what its reads took and what would make them faster."""

import signal
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


# Shells add this to the number of the signal that ended a program.
_BY_SIGNAL = 128


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
    from contextlib import redirect_stdout

    from sds.cli.output import note
    from sds.errors import SdsError
    from sds.home import default_home
    from sds.redirect.launch.untraced import untraced_sentences
    from sds.text import time_text

    home = default_home()
    before = _traces(home)
    began_s, began_ns = time.monotonic(), time.time_ns()
    status = _run(command)
    if status in {ExitCode.NOT_EXECUTABLE, ExitCode.COMMAND_NOT_FOUND}:
        return status
    took = time_text(time.monotonic() - began_s)
    reads = program_reads(_traces(home) - before, since_ns=began_ns)
    was_ended = status > _BY_SIGNAL
    # What the program prints may go into a pipe.
    with redirect_stdout(sys.stderr):
        untraced = untraced_sentences(home.spool, since_s=began_ns / 1e9)
        _print_reads(command[0], f"took {took} and {_ending(status)}", reads, untraced)
        try:
            commands = _advise(reads) if reads.n_reads else []
        except SdsError as error:
            note(f"no advice: {error}")
            return status
        wanted = commands and not was_ended and (yes or _wants_to_build(len(commands)))
        if wanted and not _build(commands):
            return ExitCode.FAILED
    return status


def _ending(status: int) -> str:
    """Return how a program ended, in words."""
    if status <= _BY_SIGNAL:
        return f"ended with status {status}"
    try:
        name = signal.Signals(status - _BY_SIGNAL).name
    except ValueError:
        return f"ended with status {status}"
    return f"ended with status {status}, as by {name}; what it read last may not be traced"


def _run(command: "Sequence[str]") -> int:
    """Run a program as ``sds run`` does; return its status, of a signal as shells number it.

    Signals of the terminal are the program's to answer; those that end this process end it.
    """
    from sds.home import users_environment

    running: subprocess.Popen[bytes] | None = None

    def forward(number: int, _: object) -> None:
        if running is not None and number in {signal.SIGTERM, signal.SIGHUP}:
            running.send_signal(number)

    caught = [signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP]
    # What is ignored, as under nohup, stays so for the program.
    before = {n: signal.getsignal(n) for n in caught if signal.getsignal(n) != signal.SIG_IGN}
    for number in before:
        signal.signal(number, forward)
    try:
        running = subprocess.Popen(  # noqa: S603  (the user's own command)
            [sys.executable, "-P", "-m", "sds.cli", "run", "--", *command],
            env=users_environment(),
        )
        status = running.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return status if status >= 0 else _BY_SIGNAL - status


def _print_reads(
    program: str, how_it_ended: str, reads: ProgramReads, untraced: "Sequence[str]"
) -> None:
    """Print how a program ended, what its reads took, and of which HDF5 there is no trace."""
    from sds.cli.output import print_prose
    from sds.text import counted, size_text, time_text

    print_prose("", f"{program} {how_it_ended}.")
    for sentence in untraced:
        print_prose(f"{sentence[0].upper()}{sentence[1:]}.")
    if not reads.n_reads and untraced:
        return
    if not reads.n_reads:
        print_prose(
            "No read of it was traced. It may have read no HDF5 file, or with an HDF5 that cannot "
            f"be served: sds run --verbose -- {program} ... says which it has."
        )
        return
    files = dict.fromkeys(file for file, _ in reads.datasets)
    print_prose(
        f"It read {size_text(reads.bytes_read)} of {counted(len(reads.datasets), 'dataset')} in "
        f"{counted(len(files), 'file')}, in {counted(reads.n_reads, 'HDF5 read')} that took "
        f"{time_text(reads.seconds)}: {reads.by_replicas:,} from replicas, "
        f"{reads.by_engine:,} by the read engine."
    )


def _traces(home: "Home") -> "set[Path]":
    from sds.trace import SUFFIX

    return set(home.spool.glob(f"*{SUFFIX}"))


def program_reads(traces: "set[Path]", *, since_ns: int) -> ProgramReads:
    """Return what traces hold of processes that began since a time.

    A trace that a server has counted and removed meanwhile is left out.

    Parameters
    ----------
    since_ns
        Nanoseconds since the epoch.
    """
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
        if found.process.start_ns < since_ns:
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


def _advise(reads: ProgramReads) -> "list[str]":
    """Print the advice on the files of a program that are still there; return what builds it."""
    from pathlib import Path

    from sds.cli.commands.advise import count_traces, print_advice
    from sds.cli.output import note
    from sds.home import default_home
    from sds.server.operations.advice_reports import AdviceRequest, NamedDataset
    from sds.server.remote_service import connect

    named = dict.fromkeys(file for file, _ in reads.datasets)
    files = [file for file in named if Path(file).exists()]
    for file in named:
        if file not in files:
            note(f"no advice on {file}: it is no longer there")
    if not files:
        return []
    request = AdviceRequest(datasets=tuple(NamedDataset(file=file) for file in files))
    with connect(default_home()) as service:
        count_traces(service)
        advice = service.advise(request)
    print_advice(advice, "reads")
    return [layout.command for layout in advice.portfolio.layouts]


def _wants_to_build(n_replicas: int) -> bool:
    """Ask on a terminal whether to build what is advised; no, elsewhere."""
    from sds.text import counted

    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    return typer.confirm(f"Build {counted(n_replicas, 'replica')} now?", default=False, err=True)


def _build(commands: "Sequence[str]") -> bool:
    """Run the commands that advice prints; return whether all succeeded, up to the first."""
    import shlex

    from sds.cli.output import print_lines

    for command in commands:
        print_lines(f"$ {command}")
        sys.stderr.flush()
        own = [sys.executable, "-P", "-m", "sds.cli", *shlex.split(command)[1:]]
        if subprocess.run(own, check=False, stdout=sys.stderr).returncode:  # noqa: S603  (ours)
            return False
    return True
