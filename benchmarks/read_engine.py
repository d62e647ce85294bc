"""The read engine: its choice against every single strategy, and against the device.

``python -m benchmarks.read_engine [PART ...] [--file PATH] [--mib N] [--pairs N] [--quick]
[--results FILE] [--seconds N]``

Parts: ``table`` runs of 8 B to 64 KiB at gaps of 64 B to 1 MiB; ``scenarios`` those of Chen 2014,
mixed, sparse and dense; ``stream`` contiguous reads against fio and against a loop of preads;
``random`` small runs far apart against fio. All by default. With ``--results``, cells of ``table``
and ``scenarios`` are kept in a file, and those that it has are not measured again; ``--seconds``
begins no cell after so long. So a table is measured in short turns on a machine that others want,
too; ``report`` prints what the file has.

Ways take turns, so that a device that drifts drifts for all. A ratio is the median of its pairs,
with its 95 % bootstrap bounds; "A/A" are those of the engine's choice to itself, timed as another
way would be. Cold: the file is dropped from the page cache before each read and opened anew. The
file is filled with random bytes where it is not there.

"Ceiling", cold: how many times as fast as the worse of "multiple" and "sieve" a read could be, had
it only to wait for the device at its best rates. "Private": what the process takes at most for one
read, output included.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sds import _native

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

KIB, MIB = 1 << 10, 1 << 20
FIRST_BYTE = 4096
SIEVE_BUFFER_BYTES = 32 * MIB
MOST_RUNS = 8192
MOST_SPAN_BYTES = 512 * MIB
RUNS = (8, 64, 512, 4 * KIB, 64 * KIB)
GAPS = (64, KIB, 4 * KIB, 32 * KIB, 128 * KIB, MIB)
AUTO, AGAIN = "auto", "auto again"
PAGE_BYTES = 4 * KIB
NOISE_BYTES = MIB  # of what is known of a process's memory
FOURFOLD = 4
WARM_ALLOWED, COLD_ALLOWED = 1.05, 1.15
STRATEGIES = ("multiple", "sieve", "list", "pmd")
EXECUTORS = ("pread", "sieve", "vector", "mapped", "list", "direct")


@dataclass(frozen=True, kw_only=True)
class Way:
    """A way to read."""

    strategy: str = AUTO
    executor: str = "any"


STREAM_JOBS = [
    ("--rw=read", f"--bs={block}", f"--iodepth={depth}")
    for block, depth in (("256k", 16), ("512k", 8), ("1m", 4), ("1m", 8), ("4m", 4))
]
# How contiguous reads are timed cold: what memory they find, the way, whether it was touched.
STREAMS = (
    ("memory touched before, as fio's", AUTO, True),
    ("memory as it is found", AUTO, False),
    ("memory as it is found, past the page cache", "by direct", False),
)
RANDOM_JOBS = [("--rw=randread", "--bs=4k", f"--iodepth={depth}") for depth in (64, 128, 256)]

WAYS = {
    AUTO: Way(),
    AGAIN: Way(),
    **{name: Way(strategy=name) for name in STRATEGIES},
    **{f"by {name}": Way(executor=name) for name in EXECUTORS},
}


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """The median of paired ratios, and its 95 % bootstrap bounds."""

    low: float
    median: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} [{self.low:.2f}, {self.high:.2f}]"


def ratio_of(numerators: Sequence[float], denominators: Sequence[float]) -> Ratio:
    """Return the ratio of what was timed in turns."""
    ratios = np.asarray(numerators) / np.asarray(denominators)
    drawn = np.random.default_rng(1).integers(0, len(ratios), (2000, len(ratios)))
    low, high = np.quantile(np.median(ratios[drawn], axis=1), (0.025, 0.975))
    return Ratio(low=float(low), median=float(np.median(ratios)), high=float(high))


def make_file(path: Path, n_bytes: int) -> None:
    """Fill a file with random bytes where it is not as long already."""
    if path.exists() and path.stat().st_size >= n_bytes:
        return
    rng = np.random.default_rng(1)
    with path.open("wb") as file:
        for begin in range(0, n_bytes, 64 * MIB):
            file.write(rng.bytes(min(64 * MIB, n_bytes - begin)))
        os.fsync(file.fileno())


def drop(path: Path) -> None:
    """Drop a file from the page cache."""
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def load(path: Path) -> None:
    """Read a file into the page cache."""
    with path.open("rb", buffering=0) as file:
        while file.read(16 * MIB):
            pass


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is read: equal runs, or any."""

    name: str
    offsets: NDArray[np.int64]
    lengths: NDArray[np.int64]
    stride: int = 0  # 0: they are no progression

    @property
    def n_bytes(self) -> int:
        """What is wanted."""
        return int(self.lengths.sum())


def progression(run_bytes: int, gap_bytes: int, n_bytes: int, most: int = MOST_RUNS) -> Case:
    """Return runs at equal gaps, as many as a file of so many bytes holds."""
    stride = run_bytes + gap_bytes
    n = max(2, min(most, (n_bytes - FIRST_BYTE - run_bytes) // stride + 1))
    return Case(
        name=f"{size(run_bytes)} at {size(gap_bytes)}",
        offsets=FIRST_BYTE + stride * np.arange(n, dtype=np.int64),
        lengths=np.full(n, run_bytes, np.int64),
        stride=stride,
    )


def contiguous(length: int) -> Case:
    """Return one long run."""
    return Case(
        name=size(length),
        offsets=np.array([FIRST_BYTE]),
        lengths=np.array([length]),
        stride=length,
    )


def size(n_bytes: int) -> str:
    """Return a size in words."""
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if n_bytes >= unit and n_bytes % unit == 0:
            return f"{n_bytes // unit} {name}"
    return f"{n_bytes} B"


def read(
    file: _native.ReadFile, case: Case, out: NDArray[np.uint8], way: Way
) -> _native.ReadReport:
    """Read a case in one way."""
    if case.stride:
        return file.read_runs(
            int(case.offsets[0]),
            int(case.lengths[0]),
            (len(case.offsets),),
            (case.stride,),
            out,
            strategy=way.strategy,
            executor=way.executor,
        )
    return _native.read_list(
        file, case.offsets, case.lengths, None, case.n_bytes, out, strategy=way.strategy
    )


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What was measured of a case, warm or cold.

    Attributes
    ----------
    seconds
        Of each way, in turns.
    planned_bytes
        What the engine said that its buffers take.
    private_bytes
        What the process took at most for one read, output included.
    least_s
        The least that the device takes, cold; 0: not known.
    """

    part: str
    state: str
    name: str
    n_runs: int
    n_bytes: int
    executor: str
    seconds: dict[str, list[float]]
    planned_bytes: int
    private_bytes: int
    least_s: float

    def median_s(self, way: str) -> float:
        """Return the median of a way."""
        return float(np.median(self.seconds[way]))

    def ratio(self, way: str, other: str) -> Ratio:
        """Return the time of one way over that of another."""
        return ratio_of(self.seconds[way], self.seconds[other])

    @property
    def better(self) -> str:
        """The better of reading run by run and conventional sieving."""
        return min(("multiple", "sieve"), key=self.median_s)

    @property
    def worse(self) -> str:
        """The other of the two."""
        return max(("sieve", "multiple"), key=self.median_s)

    @property
    def fastest(self) -> str:
        """The fastest way that was asked for by name."""
        return min((way for way in self.seconds if way not in (AUTO, AGAIN)), key=self.median_s)

    @property
    def ceiling(self) -> float:
        """How many times as fast as the worse of the two a read could be."""
        return self.median_s(self.worse) / self.least_s if self.least_s else 0

    @property
    def is_fourfold(self) -> bool:
        """Whether the engine is at least four times as fast as the worse of the two."""
        return self.ratio(self.worse, AUTO).low >= FOURFOLD

    def faults(self) -> list[str]:
        """Say which laws do not hold: speed against the better of two, and memory."""
        noise = self.ratio(AGAIN, AUTO)
        allowed = max(WARM_ALLOWED if self.state == "warm" else COLD_ALLOWED, noise.high)
        allowed = max(allowed, 1 / noise.low)
        against = self.ratio(AUTO, self.better)
        memory = max(self.private_bytes - NOISE_BYTES, self.n_bytes + self.planned_bytes)
        found = []
        if against.high > allowed:
            found.append(
                f"{'slower' if against.low > allowed else 'may be slower'} than the better"
            )
        if memory > max(2 * self.n_bytes, SIEVE_BUFFER_BYTES):
            found.append("too much memory")
        return found

    def print(self) -> None:
        """Print the times, and whether the laws hold."""
        times = ", ".join(
            f"{way} {self.median_s(way) / self.n_runs * 1e6:.3g}"
            for way in self.seconds
            if way != AGAIN
        )
        print(f"{self.state} | {self.name} x {self.n_runs} | {self.executor} | us a run: {times}")
        ceiling = f", ceiling {self.ceiling:.1f}" if self.least_s else ""
        print(
            f"    auto/{self.better} {self.ratio(AUTO, self.better)}, "
            f"A/A {self.ratio(AGAIN, AUTO)}, "
            f"auto/{self.fastest} {self.ratio(AUTO, self.fastest)}, "
            f"{self.worse}/auto {self.ratio(self.worse, AUTO)}{ceiling}, "
            f"private {self.private_bytes / MIB:.2f} MiB for {self.n_bytes / MIB:.2f}: "
            f"{', '.join(self.faults()) or 'holds'}",
            flush=True,
        )


def time_case(
    path: Path, case: Case, ways: Iterable[str], *, is_cold: bool, pairs: int
) -> tuple[dict[str, list[float]], _native.ReadReport]:
    """Read a case in several ways in turns; every way has to read the same bytes."""
    out = np.ones(case.n_bytes, np.uint8)
    expected: NDArray[np.uint8] | None = None
    names = list(ways)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    report: _native.ReadReport | None = None
    kept = None if is_cold else _native.ReadFile(os.fspath(path))
    for turn in range(pairs + (0 if is_cold else 1)):
        for name in names if turn % 2 else reversed(names):
            if is_cold:
                drop(path)
            file = kept or _native.ReadFile(os.fspath(path))
            out[:: max(1, case.n_bytes // 64)] ^= 0xFF
            begun = time.perf_counter()
            told = read(file, case, out, WAYS[name])
            elapsed = time.perf_counter() - begun
            if is_cold or turn > 0:  # the first makes what is kept of a file
                seconds[name].append(elapsed)
            if expected is None:
                expected = out.copy()
            elif not np.array_equal(out, expected):
                sys.exit(f"{case.name}: {name} read other bytes")
            if name == AUTO:
                report = told
            del file
    if report is None:
        sys.exit("auto has to be among the ways")
    return seconds, report


def possible_ways(case: Case, *, is_cold: bool) -> list[str]:
    """Leave out what cannot be (lists name no executor), or takes a thousand times as long."""
    left_out = {"by list", "by direct"} if not is_cold else {"by mapped"}
    left_out.add("by pread")  # the same requests as "multiple"
    if not case.stride:
        left_out |= {name for name in WAYS if name.startswith("by ")}
    if case.stride and int(case.lengths[0]) * 256 < case.stride:
        left_out |= {"by vector"}
    return [name for name in WAYS if name not in left_out]


def memory_bytes(name: str) -> int:
    """Return a line of /proc/self/status."""
    text = Path("/proc/self/status").read_text(encoding="ascii")
    return int(text.split(f"{name}:")[1].split()[0]) * KIB


def private_bytes(path: Path, case: Case, *, is_cold: bool) -> int:
    """Return what the process takes at most for one read, output included.

    Not what is resident of the mapped file: it is the page cache's. Within some 100 KiB.
    """
    ctypes.CDLL(None).malloc_trim(0)  # what was freed before would hide what is taken
    file = _native.ReadFile(os.fspath(path))
    if is_cold:
        drop(path)
    before, of_files = memory_bytes("VmRSS"), memory_bytes("RssFile")
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak begins anew
    out = np.empty(case.n_bytes, np.uint8)
    read(file, case, out, WAYS[AUTO])
    return memory_bytes("VmHWM") - before - max(0, memory_bytes("RssFile") - of_files)


@dataclass(frozen=True, kw_only=True)
class BestRates:
    """What the device gives at its best."""

    bytes_per_s: float
    requests_per_s: float

    def least_s(self, case: Case) -> float:
        """Return the least time that the pages of a case take: each group of them, or the span."""
        first = case.offsets // PAGE_BYTES
        last = (case.offsets + case.lengths - 1) // PAGE_BYTES
        n_groups = 1 + int(np.count_nonzero(first[1:] > last[:-1] + 1))
        shared = int(np.count_nonzero(first[1:] == last[:-1]))
        n_pages = int((last - first + 1).sum()) - shared
        span_bytes = int(last[-1] - first[0] + 1) * PAGE_BYTES
        waits_s = min(n_groups / self.requests_per_s, span_bytes / self.bytes_per_s)
        return max(n_pages * PAGE_BYTES / self.bytes_per_s, waits_s)


def best_rates(path: Path, n_bytes: int) -> BestRates:
    """Return the best of three of fio and of the engine, contiguous and random."""
    length = min(256 * MIB, n_bytes - MIB)
    whole = contiguous(length)
    pages = progression(4 * KIB, 252 * KIB, n_bytes, most=4096)
    ways = [Way(executor=name) for name in ("pread", "list", "direct")]
    streams = [length / cold_s(path, whole, way) for way in ways for _ in range(3)]
    randoms = [len(pages.offsets) / cold_s(path, pages, way) for way in ways[1:] for _ in range(3)]
    if shutil.which("fio"):
        for _ in range(3):
            streams += [fio(path, *job, f"--size={length}")["bytes"] for job in STREAM_JOBS]
            randoms += [
                fio(path, *job, f"--size={n_bytes}", f"--io_size={32 * MIB}")["requests"]
                for job in RANDOM_JOBS
            ]
    return BestRates(bytes_per_s=max(streams), requests_per_s=max(randoms))


def measure_cell(path: Path, case: Case, part: str, best: BestRates | None, *, pairs: int) -> Cell:
    """Time a case; cold where the device's best rates are given."""
    is_cold = best is not None
    ways = possible_ways(case, is_cold=is_cold)
    seconds, report = time_case(path, case, ways, is_cold=is_cold, pairs=pairs)
    return Cell(
        part=part,
        state="cold" if is_cold else "warm",
        name=case.name,
        n_runs=len(case.offsets),
        n_bytes=case.n_bytes,
        executor=report["executor"],
        seconds=seconds,
        planned_bytes=report["memory_bytes"],
        private_bytes=private_bytes(path, case, is_cold=is_cold),
        least_s=best.least_s(case) if best is not None else 0,
    )


@dataclass(frozen=True, kw_only=True)
class Cells:
    """Cells that are measured, and those that were."""

    path: Path
    pairs: int
    results: Path | None
    until_s: float

    def kept(self) -> list[Cell]:
        """Return what the file of results has."""
        if self.results is None or not self.results.exists():
            return []
        return [Cell(**json.loads(line)) for line in self.results.read_text().splitlines()]

    def measure(self, part: str, cases: Sequence[Case]) -> None:
        """Measure cases warm and cold, as far as they are not kept and there is time."""
        for state in ("warm", "cold"):
            known = {cell.name for cell in self.kept() if (cell.part, cell.state) == (part, state)}
            missing = [case for case in cases if case.name not in known]
            if not missing or time.monotonic() > self.until_s:
                continue
            cells = list(self._measure_state(part, state, missing))
            if self.results is None:
                print_verdict(state, cells)
            elif len(cells) < len(missing):
                print(f"{part}, {state}: {len(missing) - len(cells)} cells are left")

    def _measure_state(self, part: str, state: str, cases: Sequence[Case]) -> Iterator[Cell]:
        best = None
        if state == "warm":
            load(self.path)
        else:
            best = best_rates(self.path, self.path.stat().st_size)
            print(
                f"cold | the device's best: {best.bytes_per_s:.4g} bytes a second, "
                f"{best.requests_per_s:.4g} random pages a second"
            )
        pairs = self.pairs if state == "warm" else max(5, self.pairs // 2)
        for case in cases:
            if time.monotonic() > self.until_s:
                return
            cell = measure_cell(self.path, case, part, best, pairs=pairs)
            cell.print()
            if self.results is not None:
                with self.results.open("a") as file:
                    file.write(json.dumps(asdict(cell)) + "\n")
            yield cell


def print_verdict(state: str, cells: Sequence[Cell]) -> None:
    """Print how many cells reach what."""
    n = len(cells)
    n_lawful = sum(not cell.faults() for cell in cells)
    print(f"{state}: of {n} cells {n_lawful} hold; ", end="")
    print(f"{sum(cell.is_fourfold for cell in cells)} are {FOURFOLD} times as fast as the worse")
    allowed = [cell for cell in cells if cell.ceiling >= FOURFOLD]
    if allowed:
        n_reached = sum(cell.is_fourfold for cell in allowed)
        print(
            f"{state}: the device allows that in {len(allowed)}, and {n_reached} of them reach it"
        )


def report(cells: Sequence[Cell]) -> None:
    """Print what was kept, and the verdicts."""
    for cell in cells:
        cell.print()
    for part, state in itertools.product(("table", "scenarios"), ("warm", "cold")):
        found = [cell for cell in cells if (cell.part, cell.state) == (part, state)]
        if found:
            print(f"{part}, ", end="")
            print_verdict(state, found)


def scenario_cases(n_bytes: int) -> list[Case]:
    """Return Chen 2014's scenarios: sizes drawn from a seed."""
    rng = np.random.default_rng(2014)
    cases = []
    for name, runs, holes in (
        ("1: mixed", (64, 64 * KIB), (64, MIB)),
        ("2: sparse", (64, 4 * KIB), (256 * KIB, 2 * MIB)),
        ("3: dense", (KIB, 16 * KIB), (64, KIB)),
    ):
        n = 4096
        lengths = np.exp(rng.uniform(*np.log(runs), n)).astype(np.int64)
        gaps = np.exp(rng.uniform(*np.log(holes), n)).astype(np.int64)
        offsets = FIRST_BYTE + np.cumsum(lengths + gaps) - lengths - gaps
        fits = offsets + lengths <= n_bytes
        cases.append(Case(name=name, offsets=offsets[fits], lengths=lengths[fits]))
    return cases


def fio(path: Path, *options: str) -> dict[str, float]:
    """Run one job of fio past the page cache; return bytes and requests a second."""
    command = ["fio", "--name=job", "--thread", f"--filename={path}", "--ioengine=io_uring"]
    done = subprocess.run(
        [*command, "--direct=1", "--readonly", "--output-format=json", *options],
        capture_output=True,
        text=True,
        check=True,
    )
    told = json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]["read"]
    return {"bytes": told["bw_bytes"], "requests": told["iops"]}


@dataclass(frozen=True, kw_only=True)
class Device:
    """How fast the device is at its best: by fio, or by the engine where fio is missing."""

    path: Path
    job: tuple[str, ...]
    measure: str

    @property
    def name(self) -> str:
        """What it is measured by."""
        if not self.job:
            return "the engine past the page cache (fio is missing: apt-get install fio)"
        return "fio " + " ".join(self.job)

    def seconds(self, case: Case, amount: str, units: float) -> float:
        """Return what so many bytes or requests take."""
        if not self.job:
            return cold_s(self.path, case, WAYS["by direct"])
        return units / fio(self.path, *self.job, amount)[self.measure]


def find_device(path: Path, jobs: Sequence[tuple[str, ...]], amount: str, measure: str) -> Device:
    """Return the job with which fio is fastest: the best of three each."""
    job: tuple[str, ...] = ()
    if shutil.which("fio"):
        job = max(jobs, key=lambda job: max(fio(path, *job, amount)[measure] for _ in range(3)))
    return Device(path=path, job=job, measure=measure)


def stream(path: Path, n_bytes: int, pairs: int) -> None:
    """Contiguous reads: cold against fio, warm against a loop of preads into the same buffer.

    fio reads into a small buffer that it keeps. Like for like is therefore a read that finds as
    much memory as it takes, for its result and for the page cache, touched just before; what
    programs get is memory as it is found. Past the page cache, none is taken but the result's.
    """
    for length in sorted({min(n, n_bytes - MIB) for n in (64 * MIB, 256 * MIB, n_bytes)}):
        case = contiguous(length)
        amount = f"--size={length}"
        device = find_device(path, STREAM_JOBS, amount, "bytes")
        for memory, way, has_memory in STREAMS:
            ours, theirs = take_turns(
                partial(cold_s, path, case, WAYS[way], has_memory=has_memory),
                partial(device.seconds, case, amount, length),
                pairs,
            )
            title = f"cold, {memory} | {case.name}"
            print_rate(title, device.name, theirs, ours, length, target=0.85)
        load(path)
        with path.open("rb", buffering=0) as file:
            ours, theirs = take_turns(*warm_readers(file.fileno(), path, case), max(pairs, 20))
        print_rate(f"warm | {case.name}", "a loop of preads", theirs, ours, length, target=0.8)


def cold_s(path: Path, case: Case, way: Way, *, has_memory: bool = False) -> float:
    """Return the seconds of one cold read.

    A virtual machine may have given free memory back to its host ("free page reporting"), which
    gives it again page by page when the page cache grows, and takes longer than the device does.
    has_memory: as much as the read takes is touched just before, and given back.
    """
    out = np.ones(case.n_bytes, np.uint8)
    drop(path)
    if has_memory:
        np.ones(case.n_bytes, np.uint8)
    file = _native.ReadFile(os.fspath(path))
    begun = time.perf_counter()
    read(file, case, out, way)
    return time.perf_counter() - begun


def warm_readers(
    descriptor: int, path: Path, case: Case
) -> tuple[Callable[[], float], Callable[[], float]]:
    """Return the engine, and a loop of preads, into the same buffer."""
    out = np.ones(case.n_bytes, np.uint8)
    view = memoryview(out)
    file = _native.ReadFile(os.fspath(path))

    def by_engine() -> float:
        begun = time.perf_counter()
        read(file, case, out, WAYS[AUTO])
        return time.perf_counter() - begun

    def by_preads() -> float:
        begun, done = time.perf_counter(), 0
        while done < len(view):
            done += os.preadv(descriptor, [view[done:]], FIRST_BYTE + done)
        return time.perf_counter() - begun

    return by_engine, by_preads


def take_turns(
    one: Callable[[], float], other: Callable[[], float], pairs: int
) -> tuple[list[float], list[float]]:
    """Return the seconds of both."""
    ones, others = [], []
    for turn in range(pairs):
        if turn % 2:
            others.append(other())
            ones.append(one())
        else:
            ones.append(one())
            others.append(other())
    return ones, others


def print_rate(
    title: str, what: str, theirs: list[float], ours: list[float], n: float, *, target: float
) -> None:
    """Print how near to another's rate the engine comes."""
    share = ratio_of(theirs, ours)
    verdict = "holds" if share.low >= target else "does not hold"
    print(
        f"{title} | {n / np.median(ours):.4g} a second, {what} {n / np.median(theirs):.4g}: "
        f"share {share}, target {target}: {verdict}",
        flush=True,
    )


def random_runs(path: Path, n_bytes: int, pairs: int) -> None:
    """Small runs far apart, cold, against the device's best rate of random reads."""
    most = 8192
    jobs = [(*job, f"--size={n_bytes}") for job in RANDOM_JOBS]
    device = find_device(path, jobs, f"--io_size={4096 * most}", "requests")
    for run_bytes, gap_bytes in itertools.product((64, 512, 4 * KIB), (64 * KIB, 256 * KIB, MIB)):
        case = progression(run_bytes, gap_bytes, n_bytes, most=most)
        n = len(case.offsets)
        ours, theirs = take_turns(
            partial(cold_s, path, case, WAYS[AUTO]),
            partial(device.seconds, case, f"--io_size={4096 * n}", n),
            pairs,
        )
        print_rate(f"cold | {case.name} x {n}", device.name, theirs, ours, n, target=0.8)


def table_cases(n_bytes: int, *, is_quick: bool) -> list[Case]:
    """Return the table of run lengths and gaps."""
    runs, gaps = (RUNS, GAPS) if not is_quick else (RUNS[::2], GAPS[::2])
    span_bytes = min(n_bytes, MOST_SPAN_BYTES)
    return [progression(run, gap, span_bytes) for run, gap in itertools.product(runs, gaps)]


def main() -> None:
    """Run the parts that were asked for."""
    parts = ("table", "scenarios", "stream", "random", "report")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(parts))
    parser.add_argument("--file", type=Path, help="made where missing; default: a temporary one")
    parser.add_argument("--mib", type=int, default=2048, help="of the file")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="256 MiB, 5 pairs, a coarser table")
    parser.add_argument("--results", type=Path, help="cells are kept here, and measured once")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no cell after that")
    asked = parser.parse_args()
    if "report" in asked.parts and asked.results is None:
        parser.error("report prints a file of results: name it by --results")
    if unknown := set(asked.parts) - set(parts):
        parser.error(f"no part is called {', '.join(sorted(unknown))}; there are {parts}")
    pairs, n_bytes = (5, 256 * MIB) if asked.quick else (asked.pairs, asked.mib * MIB)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        path = asked.file or Path(folder) / "random.bin"
        wanted = asked.parts or parts[:-1]
        cells = Cells(
            path=path,
            pairs=pairs,
            results=asked.results,
            until_s=time.monotonic() + asked.seconds,
        )
        if wanted != ["report"]:
            make_file(path, n_bytes)
        if "table" in wanted:
            cells.measure("table", table_cases(n_bytes, is_quick=asked.quick))
        if "scenarios" in wanted:
            cells.measure("scenarios", scenario_cases(n_bytes))
        if "report" in wanted:
            report(cells.kept())
        if "stream" in wanted:
            stream(path, n_bytes, max(5, pairs // 2))
        if "random" in wanted:
            random_runs(path, n_bytes, max(5, pairs // 2))


if __name__ == "__main__":
    main()
