"""Times reads of the engine, executor by executor, and fits its parameters to them.

Like `sds.calibration.run`, but in one process and by the way of reading instead of by
the shape in an array: this is about what a request costs, not about which layout needs fewer.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from sds import _native
from sds.calibration.engine_fit import EngineSample, best_depth, fit_parameters
from sds.calibration.results import EngineMeasurement
from sds.calibration.scratch_file import evict
from sds.engine import Cache, Executor, builtin_parameters
from sds.geometry.storage_layout import KIB, MIB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

DEPTHS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_ROUNDS = 3
# Of the file's pages: what is written must not be what is read.
_N_WRITES = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRead:
    """Runs of one length at one distance, by one executor."""

    executor: Executor
    run_bytes: int
    stride_bytes: int
    n_runs: int
    is_mapped: bool = False
    queue_depth: int = 0


def warm_reads() -> tuple[EngineRead, ...]:
    """Return reads of what the page cache holds: calls, holes, bytes, pages, each dear in one."""
    calls = ((8, 64 * KIB, 1000), (4 * KIB, 64 * KIB, 1000), (64 * KIB, 128 * KIB, 400))
    dense = ((8, 64, 100_000), (8, KIB, 20_000), (512, KIB, 20_000), (512, 4 * KIB, 8000))
    holes = ((4 * KIB, 4 * KIB + 64, 4000), (4 * KIB, 8 * KIB, 4000), (64 * KIB, 68 * KIB, 400))
    loads = (
        (8, 64, 100_000),
        (8, 4 * KIB, 16_000),
        (8, 32 * KIB, 4000),
        (4 * KIB, 8 * KIB, 8000),
        # What a read from a mapping takes however few its pieces are: nothing else tells.
        (8, 4 * KIB, 16),
        (8, 32 * KIB, 64),
    )
    return (
        *(
            EngineRead(executor=Executor.PREAD, run_bytes=r, stride_bytes=s, n_runs=n)
            for r, s, n in calls
        ),
        EngineRead(executor=Executor.PREAD, run_bytes=32 * MIB, stride_bytes=0, n_runs=1),
        *(
            EngineRead(executor=Executor.SIEVE, run_bytes=r, stride_bytes=s, n_runs=n)
            for r, s, n in dense
        ),
        *(
            EngineRead(executor=Executor.VECTOR, run_bytes=r, stride_bytes=s, n_runs=n)
            for r, s, n in holes
        ),
        *(
            EngineRead(
                executor=Executor.MAPPED, run_bytes=r, stride_bytes=s, n_runs=n, is_mapped=is_mapped
            )
            for r, s, n in loads
            for is_mapped in (False, True)
        ),
        EngineRead(executor=Executor.LIST, run_bytes=4 * KIB, stride_bytes=64 * KIB, n_runs=500),
    )


def cold_reads() -> tuple[EngineRead, ...]:
    """Return reads of what the page cache does not hold: start-ups one at a time, and streams."""
    apart = ((4 * KIB, MIB, 100), (64 * KIB, MIB, 100))
    streams = ((8, 4 * KIB, 8000), (512, KIB, 32_000))
    return (
        *(
            EngineRead(executor=Executor.PREAD, run_bytes=r, stride_bytes=s, n_runs=n)
            for r, s, n in apart
        ),
        EngineRead(executor=Executor.PREAD, run_bytes=32 * MIB, stride_bytes=0, n_runs=1),
        *(
            EngineRead(executor=Executor.SIEVE, run_bytes=r, stride_bytes=s, n_runs=n)
            for r, s, n in streams
        ),
        EngineRead(executor=Executor.LIST, run_bytes=4 * KIB, stride_bytes=256 * KIB, n_runs=500),
        EngineRead(executor=Executor.LIST, run_bytes=64 * KIB, stride_bytes=256 * KIB, n_runs=250),
        EngineRead(executor=Executor.LIST, run_bytes=32 * MIB, stride_bytes=0, n_runs=1),
        EngineRead(executor=Executor.DIRECT, run_bytes=32 * MIB, stride_bytes=0, n_runs=1),
        EngineRead(
            executor=Executor.DIRECT, run_bytes=64 * KIB, stride_bytes=128 * KIB, n_runs=400
        ),
    )


def measure_engine(
    file: Path,
    *,
    can_evict: bool,
    is_cached: bool = True,
    budget_s: float,
    seed: int,
    progress: Callable[[float, str], None],
) -> EngineMeasurement:
    """Time the engine's ways to read a file, and fit its parameters.

    Parameters
    ----------
    file
        Of the file system to measure; larger than any of the reads where possible: those that do
        not fit are cut. It is read, and another one is written beside it and removed.
    can_evict
        Whether the page cache can be emptied of it: without that, nothing is measured cold.
    is_cached
        Whether the page cache ever holds any of it: without that, nothing is measured warm.
    budget_s
        No round is begun after this.
    """
    begin_s = time.monotonic()
    run = _Run(file, random=np.random.default_rng(seed))
    samples: dict[tuple[EngineRead, Cache], list[float]] = {}
    depths: dict[int, list[float]] = {}
    plan = [(read, Cache.WARM) for read in warm_reads()] if is_cached else []
    if can_evict:
        plan += [(read, Cache.COLD) for read in cold_reads()]
    for turn in range(_ROUNDS):
        for i, (read, cache) in enumerate(plan):
            if turn > 0 and time.monotonic() - begin_s > budget_s:
                break
            progress((turn * len(plan) + i) / (_ROUNDS * len(plan)), f"{read.executor}, {cache}")
            fitted = run.fitted(read)
            samples.setdefault((fitted, cache), []).append(run.time(fitted, cache))
        for depth in DEPTHS if can_evict else ():
            if turn > 0 and time.monotonic() - begin_s > budget_s:
                break
            read = run.fitted(
                EngineRead(
                    executor=Executor.LIST,
                    run_bytes=4 * KIB,
                    stride_bytes=256 * KIB,
                    n_runs=500,
                    queue_depth=depth,
                )
            )
            depths.setdefault(depth, []).append(run.time(read, Cache.COLD) / read.n_runs)
    queue = {depth: median(seconds) for depth, seconds in depths.items()}
    start = builtin_parameters()
    if queue:
        start = replace(start, queue_depth=best_depth(queue))
    fit = fit_parameters(
        [
            EngineSample(
                run_bytes=read.run_bytes,
                stride_bytes=read.stride_bytes,
                n_runs=read.n_runs,
                executor=read.executor,
                cache=cache,
                is_mapped=read.is_mapped,
                seconds=median(seconds),
            )
            for (read, cache), seconds in samples.items()
        ],
        start=start,
    )
    startup_s, s_per_byte = _time_writes(file.parent)
    writes = replace(start.writes, startup_s=startup_s, cud_s_per_byte=s_per_byte)
    return EngineMeasurement(
        kind=run.kind,
        parameters=replace(fit.parameters, writes=writes),
        queue=tuple(sorted(queue.items())),
        n_reads=sum(map(len, samples.values())) + sum(map(len, depths.values())),
        median_log_error=fit.median_log_error,
        p95_log_error=fit.p95_log_error,
    )


class _Run:
    """The reads of one calibration."""

    def __init__(self, file: Path, *, random: np.random.Generator) -> None:
        self.file = file
        self.size_bytes = file.stat().st_size
        self.random = random
        self.out: NDArray[np.uint8] = np.empty(32 * MIB, np.uint8)
        self.out.fill(0)  # its pages are there before anything is timed
        with self.opened() as engine:
            self.kind = engine.file_system_type

    @contextmanager
    def opened(self) -> Iterator[_native.ReadFile]:
        """Open the file by a new handle, of which nothing is mapped yet."""
        yield _native.ReadFile(os.fspath(self.file))

    def fitted(self, read: EngineRead) -> EngineRead:
        """Return the read, as many of its runs as fit into half the file."""
        room = self.size_bytes // 2
        run_bytes = min(read.run_bytes, room)
        n_runs = 1 + min(read.n_runs - 1, (room - run_bytes) // max(read.stride_bytes, 1))
        return replace(read, run_bytes=run_bytes, n_runs=n_runs)

    def time(self, read: EngineRead, cache: Cache) -> float:
        """Return the seconds of one read, begun anywhere in the file."""
        span = (read.n_runs - 1) * read.stride_bytes + read.run_bytes
        first = int(self.random.integers(0, (self.size_bytes - span) // 4096 + 1)) * 4096
        out = self.out[: read.run_bytes * read.n_runs].data
        counts = (read.n_runs,) if read.n_runs > 1 else ()
        strides = (read.stride_bytes,) if read.n_runs > 1 else ()
        with self.opened() as engine:

            def read_once() -> float:
                begin_ns = time.perf_counter_ns()
                engine.read_runs(
                    first,
                    read.run_bytes,
                    counts,
                    strides,
                    out,
                    executor=read.executor,
                    cache=cache,
                    queue_depth=read.queue_depth,
                )
                return (time.perf_counter_ns() - begin_ns) * 1e-9

            if cache is Cache.COLD:
                evict(engine.fileno())
                return read_once()
            self._warm(engine, first, span)
            if read.is_mapped:
                read_once()
            return read_once()

    def _warm(self, engine: _native.ReadFile, first: int, span: int) -> None:
        """Fill the page cache with a range, without a trace of how it is read later."""
        done = 0
        while done < span:
            n = len(os.pread(engine.fileno(), min(8 * MIB, span - done), first + done))
            if n == 0:
                break
            done += n


def _time_writes(directory: Path) -> tuple[float, float]:
    """Return the seconds of one small write more, and of a byte, on disk when they return."""
    path = directory / "writes"
    block = np.full(MIB, 7, np.uint8).data
    page = block[: 4 * KIB]
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        begin_s = time.perf_counter()
        for i in range(32):
            os.pwrite(fd, block, i * MIB)
        os.fdatasync(fd)
        s_per_byte = (time.perf_counter() - begin_s) / (32 * MIB)
        begin_s = time.perf_counter()
        for i in range(_N_WRITES):
            os.pwrite(fd, page, i * 256 * KIB)
        os.fdatasync(fd)
        startup_s = (time.perf_counter() - begin_s) / _N_WRITES - len(page) * s_per_byte
    finally:
        os.close(fd)
        path.unlink()
    return max(startup_s, 0.0), s_per_byte
