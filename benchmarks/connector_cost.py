"""What the connector costs a program: ratios to native HDF5, beside HDF5's own pass_through.

``python -m benchmarks.connector_cost [PAIRS] [--hdf5 VERSION] [--only WORK|h5py]``

Programs that do the same work natively, under the connector and under pass_through take turns, so
that a machine that slows down slows down for all. Everything read is in the page cache and nothing
waits for a device; ratios are of processor time, which other programs on the machine disturb less,
and those of elapsed time stand beside them. A ratio is the median of its pairs, with the 95 %
bootstrap bound that a target has to meet; of fewer than 20 pairs, none is said to be met. Each
pair is of processes of its own. Of one library and kind of work (``--hdf5 1.14.6 --only turn2000``,
or ``--only h5py``) the ratios take a minute or a few; of all, half an hour.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import h5py
import numpy as np

from sds.home import Home
from sds.redirect.launch.activation import environment
from sds.trace import read_spool
from tests.hdf5_builds import CRATES, CannotBuildError, cached_build
from tests.redirected import redirect, settle

if TYPE_CHECKING:
    from collections.abc import Iterable

MIB = 1 << 20
LEAST_PAIRS = 20  # below which nothing is said of a target
N_READS = 100_000
N_DATASETS = 1000

H5PY_WORKER = """
import sys, time, h5py
file = h5py.File(sys.argv[1])
rows = file["rows"]
for line in sys.stdin:
    n = int(line.split()[1])
    processor_ns, begun_ns = time.process_time_ns(), time.perf_counter_ns()
    for i in range(n):
        rows[i % 1000, 8:16]
    elapsed_ns = time.perf_counter_ns() - begun_ns
    print(elapsed_ns, time.process_time_ns() - processor_ns, flush=True)
"""


@dataclass(frozen=True, kw_only=True)
class Way:
    """A way to run a program."""

    name: str
    variables: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Target:
    """The most that a way may cost in one kind of work."""

    way: str
    ratio: float


@dataclass(frozen=True, kw_only=True)
class Work:
    """What is timed: a command of the worker, done n times a round.

    Attributes
    ----------
    most_more_ns
        The most that SDS may add to each, where that is judged and not the ratio.
    is_warm
        False: the first round of a process is timed, and its only one.
    """

    title: str
    command: str
    n: int
    targets: tuple[Target, ...] = ()
    most_more_ns: int | None = None
    is_warm: bool = True


NATIVE = "native"
UNTRACED = "SDS, no trace"
TRACED = "SDS, trace"
PASS_THROUGH = "pass_through"  # noqa: S105  (a connector's name)

WORKS = (
    Work(
        title="read 8 elements",
        command="read",
        n=N_READS,
        targets=(Target(way=UNTRACED, ratio=1.10), Target(way=TRACED, ratio=1.30)),
    ),
    Work(
        title="open and close a dataset",
        command="open",
        n=N_DATASETS,
        targets=(Target(way=UNTRACED, ratio=1.05), Target(way=TRACED, ratio=1.05)),
    ),
    Work(
        title="H5Aexists",
        command="exists",
        n=N_READS,
        targets=(Target(way=UNTRACED, ratio=1.25), Target(way=TRACED, ratio=1.25)),
    ),
    *(
        Work(
            title=f"read in turn of {n:,} open datasets",
            command=f"turn{n}",
            n=N_READS,
            targets=(Target(way=UNTRACED, ratio=1.10), Target(way=TRACED, ratio=1.30)),
        )
        for n in (100, 2000, 20_000)
    ),
)
H5PY_WORK = Work(
    title="h5py: d[i, 8:16]",
    command="read",
    n=20_000,
    targets=(Target(way=TRACED, ratio=1.05),),
)
ONLY_H5PY = "h5py"  # names that work where others are left out
ONLY_LONG_TRACE = "long-trace"  # and this
TABLE_WORK = Work(title="read 8 elements, with a table, of the original", command="read", n=N_READS)
N_SMALL_FILES = 1000  # of a round; as many warm up
SMALL_WORKS = {
    "small": Work(
        title="open, read and close a small file",
        command="small",
        n=N_SMALL_FILES,
        most_more_ns=15_000,
    ),
    "first": Work(
        title="first read of a process", command="read", n=1, most_more_ns=100_000, is_warm=False
    ),
}
TABLED_WORKS = {
    "file": Work(
        title="open and close a file with a table", command="file", n=200, most_more_ns=50_000
    ),
    "plane": Work(
        title="open a file with a table, read by a replica, close", command="plane", n=200
    ),
}
MOST_READ_NS = 1000
MOST_PRIVATE_BYTES = 8 * MIB
MANY_READS = 100_000_000
MOST_TRACE_BYTES = MIB


class Worker:
    """A process that does work at command."""

    def __init__(self, command: list[str | Path], variables: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            list(map(str, command)),
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, work: str, n: int) -> tuple[int, int]:
        """Return elapsed and processor time, ns."""
        assert self._process.stdin  # noqa: S101  (it is a pipe)
        assert self._process.stdout  # noqa: S101
        self._process.stdin.write(f"{work} {n}\n")
        self._process.stdin.flush()
        elapsed_ns, processor_ns = map(int, self._process.stdout.readline().split())
        return elapsed_ns, processor_ns

    def private_bytes(self) -> int:
        """Return the private memory that it has written to."""
        rollup = Path(f"/proc/{self._process.pid}/smaps_rollup").read_text()
        fields = dict(line.split(":") for line in rollup.splitlines()[1:])
        return int(fields["Private_Dirty"].split()[0]) * 1024

    def peak_bytes(self) -> int:
        """Return the most memory that it has had resident, shared memory included."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024

    def close(self) -> None:
        """End it as a program ends by itself."""
        self._process.communicate()
        if self._process.returncode != 0:
            message = f"a worker ended with status {self._process.returncode}"
            raise RuntimeError(message)


@dataclass(frozen=True, kw_only=True)
class Timings:
    """Of one way: a round's elapsed and processor time, ns per time that the work was done."""

    elapsed_ns: np.ndarray
    processor_ns: np.ndarray


def take_turns(
    command: list[str | Path], ways: Iterable[Way], work: Work, rounds: int
) -> dict[str, Timings]:
    """Return timings of the ways, of rounds that they ran in turn.

    Each round is of processes of its own: where one lies in memory makes a percent of difference,
    which rounds of the same processes would share.
    """
    ways = list(ways)
    times: dict[str, list[tuple[int, int]]] = {way.name: [] for way in ways}
    for turn in range(rounds):
        workers = [Worker(command, way.variables) for way in ways]
        for worker in workers if work.is_warm else ():
            worker.run(work.command, work.n)
        for place in range(len(ways)):
            one = (turn + place) % len(ways)
            times[ways[one].name].append(workers[one].run(work.command, work.n))
        for worker in workers:
            worker.close()
    return {
        name: Timings(
            elapsed_ns=np.array(pairs)[:, 0] / work.n, processor_ns=np.array(pairs)[:, 1] / work.n
        )
        for name, pairs in times.items()
    }


def high_bound(values: np.ndarray) -> float:
    """Return the upper 95 % bootstrap bound of the median."""
    draws = np.random.default_rng(0).choice(values, (2000, len(values)))
    return float(np.quantile(np.median(draws, axis=1), 0.95))


def verdict(values: np.ndarray, most: float) -> str:
    """Return the word for figures of which the median may be at most so much."""
    if len(values) < LEAST_PAIRS:
        return f"not told by {len(values)} pairs"
    return "met" if high_bound(values) <= most else "missed"


def print_ratios(work: Work, timings: dict[str, Timings]) -> None:
    """Print one row per way."""
    native = timings[NATIVE]
    for name, timing in timings.items():
        ratios = timing.processor_ns / native.processor_ns
        elapsed = timing.elapsed_ns / native.elapsed_ns
        bound = high_bound(ratios)
        spread = np.quantile(ratios, [0.25, 0.75])
        most = [target.ratio for target in work.targets if target.way == name]
        target = f"{most[0]:.2f} {verdict(ratios, most[0])}" if most else ""
        print(
            f"| {work.title} | {name} | {np.median(timing.processor_ns):,.0f} "
            f"| {np.median(ratios):.3f} (< {bound:.3f}; {spread[0]:.3f} to {spread[1]:.3f}) "
            f"| {np.median(elapsed):.3f} | {target} |",
            flush=True,
        )


def print_trace_cost(work: Work, timings: dict[str, Timings]) -> None:
    """Print what tracing adds to a read, as a row of its own."""
    more = timings[TRACED].processor_ns - timings[UNTRACED].processor_ns
    print(
        f"| {work.title} | trace alone | {np.median(more):,.0f} | | |"
        f" {MOST_READ_NS:,} ns {verdict(more, MOST_READ_NS)} |",
        flush=True,
    )


def print_head() -> None:
    """Print the head of a table of ratios."""
    print(
        "| work | way | ns each | processor time / native (bound; quartiles) | elapsed | target |"
    )
    print("|---|---|---|---|---|---|")


def print_head_of_more() -> None:
    """Print the head of a table of added times."""
    print(
        "\n| work | way | us each | processor time beyond native, us (bound; quartiles) "
        "| elapsed | at most |"
    )
    print("|---|---|---|---|---|---|")


def make_source(path: Path) -> None:
    """Write what the workers read."""
    with h5py.File(path, "w") as file:
        file["rows"] = np.arange(64_000, dtype="f8").reshape(1000, 64)
        file["rows"].attrs["units"] = "m"
        file["cube"] = np.arange(128 * 128 * 512, dtype="f4").reshape(128, 128, 512)
        group = file.create_group("many")
        for i in range(N_DATASETS):
            group[f"{i:04d}"] = np.arange(4.0)
    small = Path(f"{path}.d")
    small.mkdir()
    for i in range(2 * N_SMALL_FILES):
        with h5py.File(small / f"{i:05d}.h5", "w") as file:
            file["d"] = np.arange(256.0)
    settle(path)


def ways_under(home: Home) -> list[Way]:
    """Return the ways of a program in C; reads are redirected where the home has a table."""
    kept = {n: v for n, v in os.environ.items() if not n.startswith(("SDS_", "HDF5_"))}
    pass_through = {"HDF5_VOL_CONNECTOR": "pass_through under_vol=0;under_info={}"}
    return [
        Way(name=NATIVE, variables=kept),
        Way(name=UNTRACED, variables=environment(home, kept, trace=False)),
        Way(name=TRACED, variables=environment(home, kept)),
        Way(name=PASS_THROUGH, variables=kept | pass_through),
    ]


def print_more(work: Work, timings: dict[str, Timings]) -> None:
    """Print what each way adds to the time of native work, in microseconds."""
    native = timings[NATIVE]
    for name, timing in timings.items():
        more = timing.processor_ns - native.processor_ns
        elapsed = timing.elapsed_ns - native.elapsed_ns
        spread = np.quantile(more, [0.25, 0.75]) / 1e3
        is_judged = work.most_more_ns is not None and name in (UNTRACED, TRACED)
        target = (
            f"{work.most_more_ns / 1e3:.0f} {verdict(more, work.most_more_ns)}" if is_judged else ""
        )
        print(
            f"| {work.title} | {name} | {np.median(timing.processor_ns) / 1e3:.1f} "
            f"| {np.median(more) / 1e3:.1f} (< {high_bound(more) / 1e3:.1f};"
            f" {spread[0]:.1f} to {spread[1]:.1f}) | {np.median(elapsed) / 1e3:.1f} | {target} |",
            flush=True,
        )


def measure_memory(command: list[str | Path], ways: list[Way]) -> None:
    """Print how much more private memory a process has that reads and is served."""
    private: dict[str, tuple[int, int]] = {}
    for way in ways:
        worker = Worker(command, way.variables)
        worker.run("read", N_READS)
        worker.run("slab", 3)
        private[way.name] = worker.private_bytes(), worker.peak_bytes()
        worker.close()
    for name in (UNTRACED, TRACED):
        now, peak = (a - b for a, b in zip(private[name], private[NATIVE], strict=True))
        print(
            f"private memory, {name}: {now / MIB:.1f} MiB more than native after reads, at most"
            f" {peak / MIB:.1f} MiB while slabs of 16 MiB are served (at most"
            f" {MOST_PRIVATE_BYTES // MIB}: {'met' if peak <= MOST_PRIVATE_BYTES else 'missed'})"
        )


def measure_long_trace(command: list[str | Path], home: Home) -> None:
    """Print how large the trace of very many reads of one pattern is, and how many it tells of."""
    (traced,) = (way for way in ways_under(home) if way.name == TRACED)
    before = set(home.spool.iterdir())
    worker = Worker(command, traced.variables)
    worker.run("read", MANY_READS)
    worker.close()
    (path,) = set(home.spool.iterdir()) - before
    n_reads = int(read_spool(path).records.n_reads.sum())
    size = path.stat().st_size
    met = n_reads == MANY_READS and size <= MOST_TRACE_BYTES
    print(
        f"trace of {MANY_READS:,} reads of one pattern: {size:,} bytes, tells of {n_reads:,}"
        f" (all, in at most {MOST_TRACE_BYTES:,} bytes: {'met' if met else 'missed'})"
    )


def measure_versions(
    directory: Path, source: Path, rounds: int, versions: Iterable[str], only: str | None
) -> None:
    """Print the tables of programs in C; only: the command of one kind of work, or all."""
    plain, tabled = Home(directory / "plain"), Home(directory / "tabled")
    for home in (plain, tabled):
        home.create()
    redirect(source, [("rows", (1, 0)), ("cube", (2, 0, 1))], tabled)
    for version in versions:
        try:
            build = cached_build(version, "serial")
        except CannotBuildError as error:
            print(f"HDF5 {version}: left out: {error}")
            continue
        program = Path(__file__).with_suffix(".c")
        worker = build.compile(program, directory / f"worker-{version}", "-O2")
        command: list[str | Path] = [worker, source]
        print(f"\nHDF5 {version}, program in C\n")
        if only == ONLY_LONG_TRACE:
            measure_long_trace(command, plain)
            continue
        measure_ratios(command, ways_under(plain), rounds, only)
        measure_more(command, (plain, tabled), rounds, only)
        if only is not None:
            continue
        print()
        print_head()
        print_ratios(TABLE_WORK, take_turns(command, ways_under(tabled), TABLE_WORK, rounds))
        print()
        measure_memory(command, ways_under(tabled))
        measure_long_trace(command, plain)


def measure_ratios(
    command: list[str | Path], ways: list[Way], rounds: int, only: str | None
) -> None:
    """Print the table of work that is judged by its ratio."""
    works = [work for work in WORKS if only in (None, work.command)]
    if works:
        print_head()
    for work in works:
        timings = take_turns(command, ways, work, rounds)
        print_ratios(work, timings)
        if work.command.startswith(("read", "turn")):
            print_trace_cost(work, timings)


def measure_more(
    command: list[str | Path], homes: tuple[Home, Home], rounds: int, only: str | None
) -> None:
    """Print the table of work that is judged by what is added, without and with a table."""
    works = [
        (home, work)
        for home, named in zip(homes, (SMALL_WORKS, TABLED_WORKS), strict=True)
        for name, work in named.items()
        if only in (None, name)
    ]
    if works:
        print_head_of_more()
    for home, work in works:
        print_more(work, take_turns(command, ways_under(home), work, rounds))


def measure_h5py(directory: Path, source: Path, rounds: int) -> None:
    """Print the table of h5py."""
    home = Home(directory / "h5py")
    home.create()
    print(f"\nh5py {h5py.version.version}, HDF5 {h5py.version.hdf5_version}\n")
    print_head()
    command: list[str | Path] = [sys.executable, "-c", H5PY_WORKER, source]
    print_ratios(H5PY_WORK, take_turns(command, ways_under(home), H5PY_WORK, rounds))


def measure_start(directory: Path, rounds: int) -> None:
    """Print what a program pays that uses no HDF5."""
    home = Home(directory / "plain")
    ways = [way for way in ways_under(home) if way.name in (NATIVE, TRACED)]
    elapsed: dict[str, list[float]] = {way.name: [] for way in ways}
    for _ in range(rounds):
        for way in ways:
            elapsed[way.name].append(processor_seconds([sys.executable, "-c", ""], way))
    native, traced = np.array(elapsed[NATIVE]), np.array(elapsed[TRACED])
    print(
        f"\npython -c '' in the environment of sds run: {1e3 * np.median(traced):.1f} ms,"
        f" {np.median(traced / native):.3f} times native (< {high_bound(traced / native):.3f})"
    )


def processor_seconds(command: list[str], way: Way) -> float:
    """Return what a program costs from start to end."""
    process = subprocess.Popen(command, env=way.variables)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        message = f"{command} ended with status {process.returncode}"
        raise RuntimeError(message)
    return usage.ru_utime + usage.ru_stime


def number_of_pairs(text: str) -> int:
    """Return an argument's number from 1."""
    pairs = int(text)
    if pairs < 1:
        message = f"{pairs} pairs: give a number from 1, or from {LEAST_PAIRS} to judge targets"
        raise argparse.ArgumentTypeError(message)
    return pairs


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.connector_cost",
        description="Measure what the connector costs a program.",
    )
    parser.add_argument("pairs", nargs="?", type=number_of_pairs, default=100, metavar="PAIRS")
    parser.add_argument("--hdf5", choices=CRATES, help="programs in C with this version alone")
    works = [*(work.command for work in WORKS), *SMALL_WORKS, *TABLED_WORKS]
    works += [ONLY_LONG_TRACE, ONLY_H5PY]
    parser.add_argument(
        "--only",
        choices=works,
        help="of programs in C, this work alone, or the size of a long trace; or h5py: a program of"
        " h5py, with the HDF5 of its wheel, alone",
    )
    chosen = parser.parse_args()
    if chosen.only == ONLY_H5PY and chosen.hdf5 is not None:
        parser.error(
            f"--hdf5 {chosen.hdf5} is for programs in C, and h5py brings an HDF5 of its own:"
            " leave out one of --hdf5 and --only h5py"
        )
    load = os.getloadavg()[0]
    print(f"{chosen.pairs} pairs, {os.cpu_count()} processors, load {load:.1f} at the start")
    with tempfile.TemporaryDirectory(prefix="sds-bench-") as name:
        directory = Path(name)
        source = directory / "source.h5"
        make_source(source)
        if chosen.only != ONLY_H5PY:
            versions = CRATES if chosen.hdf5 is None else (chosen.hdf5,)
            measure_versions(directory, source, chosen.pairs, versions, chosen.only)
        if chosen.hdf5 is None and chosen.only in (None, ONLY_H5PY):
            measure_h5py(directory, source, chosen.pairs)
        if chosen.hdf5 is None and chosen.only is None:
            measure_start(directory, chosen.pairs)


if __name__ == "__main__":
    main()
