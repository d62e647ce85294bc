"""List I/O by every strategy, on the patterns of Ching 2002 and on real lists of requests.

``python -m benchmarks.list_io [MAP.h5] [--mib N] [--rounds N] [--cold] [--short]``. MAP.h5 is a
decomposition of E3SM-IO (github.com/Parallel-NetCDF/E3SM-IO, datasets/). Strategies take turns; a
time is the median of the rounds. With ``--cold`` each read begins with its file out of the page
cache, but for what the disk itself keeps. Bytes are compared with what copying them one by one
gives, once for each pattern and strategy. "multiple" and "sieve" read most or most often: they may
take long.

With ``--short`` lists of 1 to 350 regions stand beside a loop of ``pread`` in C, called through
ctypes, in turns: by a descriptor against the loop on an open descriptor, by a path against the loop
with the file opened for it and closed, as nothing less tells what a path leads to. A ratio is how
many times as fast `sds.read_list` is: the median of the pairs, with 95 % bootstrap bounds. Warm, a
time is the least of a few calls in a row, after some have been made; cold, that of one call, of a
file that an earlier call has left open.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import sds
from benchmarks._list_patterns import (
    TILES,
    Pattern,
    block_block,
    cyclic,
    decomposition,
    display_tile,
    flash_checkpoint,
    places,
)
from benchmarks.read_engine import ratio_of, size
from sds import _native

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

STRATEGIES = ("multiple", "sieve", "list", "pmd", "auto")
# Ching 2002 goes to a million accesses of a client.
ACCESSES = (1_000, 10_000, 100_000, 400_000)
CYCLIC_CLIENTS = (8, 32)
BLOCK_CLIENTS = (4, 9, 16)
SETTLED_S = 2.1
SHORT = (1, 2, 5, 18, 50, 100, 350)
SHORT_REGION_BYTES = 64
SHORT_GAPS = (64, 16 << 10, 512 << 10)
# Warm calls of a turn, and those before the first turn.
CALLS, CALLS_BEFORE = 8, 30


def make_file(path: Path, n_bytes: int) -> None:
    """Write random bytes, and wait until the file counts as settled."""
    rng = np.random.default_rng(n_bytes)
    with path.open("wb") as stream:
        for first in range(0, n_bytes, 1 << 26):
            stream.write(rng.bytes(min(1 << 26, n_bytes - first)))
        os.fsync(stream.fileno())
    time.sleep(SETTLED_S)


def evict(path: Path) -> None:
    """Drop a file from the page cache."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def compare(path: Path, pattern: Pattern, *, rounds: int, is_cold: bool) -> None:
    """Print a row per strategy."""
    out = np.zeros(pattern.memory_bytes, np.uint8)
    content = np.memmap(path, np.uint8, "r", shape=(pattern.file_bytes,))
    expected = pattern.expected(content)
    del content
    reports = {}
    seconds: dict[str, list[float]] = {strategy: [] for strategy in STRATEGIES}
    for strategy in STRATEGIES:
        out[:] = 0
        reports[strategy] = sds.read_list(path, *pattern.lists, out, strategy)
        if not np.array_equal(out, expected):
            message = f"{pattern.name} by {strategy}: other bytes than one by one"
            raise AssertionError(message)
    for _ in range(rounds):
        for strategy in STRATEGIES:
            if is_cold:
                sds.forget()  # and the mapping, whose pages stay
                evict(path)
            begun_s = time.perf_counter()
            reports[strategy] = sds.read_list(path, *pattern.lists, out, strategy)
            seconds[strategy].append(time.perf_counter() - begun_s)
    n_regions = len(pattern.file_offsets)
    region_bytes = reports["auto"].bytes_useful // n_regions
    print(f"\n{pattern.name}: {n_regions:,} file regions of {region_bytes:,} bytes")
    for strategy, report in reports.items():
        median_s = statistics.median(seconds[strategy])
        print(
            f"  {strategy:9s} {median_s * 1e3:10.2f} ms {report.requests:9,} requests "
            f"{report.bytes_read / 1e6:10.2f} MB read {report.memory_bytes / 1e6:7.2f} MB memory "
            f"{report.executor:7s} {report.cache}",
            flush=True,
        )


def plan_cost(pattern: Pattern, rounds: int) -> None:
    """Print what cutting, sorting and planning a list takes."""
    seconds = []
    for _ in range(rounds):
        begun_s = time.perf_counter()
        plan = _native.plan_list(*as_native(pattern), pattern.memory_bytes)
        seconds.append(time.perf_counter() - begun_s)
    n_regions = len(pattern.file_offsets) + (
        0 if pattern.mem_offsets is None else len(pattern.mem_offsets)
    )
    print(
        f"  planned in {statistics.median(seconds) * 1e9 / n_regions:.0f} ns a region: "
        f"{plan['requests']:,} requests by {plan['executor']}"
    )


def write_checkpoint(path: Path, rounds: int) -> None:
    """Print what writing FLASH's checkpoint takes: what list I/O was made for."""
    pattern = flash_checkpoint(1, 4)
    data = np.random.default_rng(0).integers(0, 256, pattern.memory_bytes, np.uint8)
    seconds = []
    for _ in range(rounds):
        begun_s = time.perf_counter()
        report = sds.write_list(path, *pattern.lists, data)
        seconds.append(time.perf_counter() - begun_s)
    out = np.zeros(pattern.memory_bytes, np.uint8)
    sds.read_list(path, *pattern.lists, out)
    written = np.zeros(pattern.memory_bytes, bool)
    written[places(pattern.mem_offsets, pattern.mem_lengths)] = True
    if not np.array_equal(out[written], data[written]):
        raise AssertionError("what was written is not what is read")
    print(
        f"\n{pattern.name}, written: {statistics.median(seconds) * 1e3:.2f} ms, "
        f"{report.pieces:,} pieces of memory, {report.requests:,} requests, not synced"
    )


def short_lists(real: Sequence[Pattern]) -> list[Pattern]:
    """Return equal regions at equal gaps, and the first regions of real lists."""
    equal = [
        Pattern(
            name=f"{n} of {SHORT_REGION_BYTES} B at {size(gap)}",
            file_offsets=np.arange(n, dtype=np.int64) * (gap + SHORT_REGION_BYTES),
            file_lengths=np.full(n, SHORT_REGION_BYTES, np.int64),
            file_bytes=n * (gap + SHORT_REGION_BYTES),
            memory_bytes=n * SHORT_REGION_BYTES,
        )
        for gap in SHORT_GAPS
        for n in SHORT
    ]
    firsts = [
        replace(
            whole,
            name=f"{n} first of {whole.name}",
            file_offsets=whole.file_offsets[:n].copy(),
            file_lengths=np.broadcast_to(whole.file_lengths, whole.file_offsets.shape)[:n].copy(),
            memory_bytes=int(
                np.broadcast_to(whole.file_lengths, whole.file_offsets.shape)[:n].sum()
            ),
        )
        for whole in real
        for n in SHORT
        if n <= len(whole.file_offsets)
    ]
    return equal + firsts


def pread_loop(folder: Path) -> ctypes.CDLL:
    """Compile the loop in C."""
    library = folder / "pread_loop.so"
    source = Path(__file__).with_name("pread_loop.c")
    compiler = shutil.which("cc")
    if compiler is None:
        sys.exit("no C compiler (cc) on PATH")
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", source, "-o", library], check=True)
    loop = ctypes.CDLL(str(library))
    pointers = [ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    loop.pread_regions.argtypes = [ctypes.c_int, *pointers]
    loop.pread_regions_of.argtypes = [ctypes.c_char_p, *pointers]
    return loop


def least_s(call: Callable[[], object], n: int) -> float:
    """Return what the fastest of some calls takes."""
    times = []
    for _ in range(n):
        begun_s = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun_s)
    return min(times)


def compare_short(loop: ctypes.CDLL, path: Path, pattern: Pattern, rounds: int) -> None:
    """Print a row per state: by a descriptor, and by a path."""
    offsets, lengths = pattern.file_offsets, pattern.file_lengths
    out = np.zeros(pattern.memory_bytes, np.uint8)
    pointers = len(offsets), offsets.ctypes.data, np.asarray(lengths).ctypes.data, out.ctypes.data
    name, encoded = str(path), os.fsencode(path)
    descriptor = os.open(path, os.O_RDONLY)
    ways = {
        "by descriptor": (
            lambda: loop.pread_regions(descriptor, *pointers),
            lambda: sds.read_list(descriptor, offsets, lengths, None, None, out),
        ),
        "by path": (
            lambda: loop.pread_regions_of(encoded, *pointers),
            lambda: sds.read_list(name, offsets, lengths, None, None, out),
        ),
    }
    for state in ("warm", "cold"):
        cells = []
        for label, pair in ways.items():
            times: tuple[list[float], list[float]] = ([], [])
            for call in pair * (CALLS_BEFORE if state == "warm" else 0):
                call()
            for _ in range(rounds):
                for call, into in zip(pair, times, strict=True):
                    if state == "cold":
                        sds.forget()  # and the mapping, whose pages stay
                        sds.read_list(name, offsets[:1], lengths[:1], None, None, out)
                        evict(path)
                    into.append(least_s(call, CALLS if state == "warm" else 1))
            ratio = ratio_of(*times)
            own_us, loop_us = (statistics.median(each) * 1e6 for each in reversed(times))
            cells.append(f"{label} {loop_us:9.1f} {own_us:9.1f} us {ratio!s:18s}")
        print(f"  {pattern.name:44s} {state} {'  '.join(cells)}", flush=True)
    os.close(descriptor)
    sds.forget()


def as_native(pattern: Pattern) -> tuple[object, object, object, object]:
    """Return lists as the binding takes them."""
    mem_lengths = 0 if pattern.mem_lengths is None else pattern.mem_lengths
    return pattern.file_offsets, pattern.file_lengths, pattern.mem_offsets, mem_lengths


def patterns_of_the_paper() -> list[Pattern]:
    """Return both applications of Ching 2002."""
    corner = TILES[0] - 1, TILES[1] - 1
    return [flash_checkpoint(1, 4), display_tile(0, 0), display_tile(*corner)]


def sweeps(file_bytes: int) -> list[Pattern]:
    """Return its sweeps over the number of accesses, for the first client."""
    return [
        made(file_bytes, n_clients, n_accesses)
        for made, clients in ((cyclic, CYCLIC_CLIENTS), (block_block, BLOCK_CLIENTS))
        for n_clients in clients
        for n_accesses in ACCESSES
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare all patterns."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.list_io")
    parser.add_argument("map", nargs="?", type=Path, help="decomposition of E3SM-IO")
    parser.add_argument("--mib", type=int, default=1024, help="file of the sweeps; 0: none")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--variables", type=int, default=1, help="read at once, of a decomposition")
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--short", action="store_true", help="short lists alone")
    given = parser.parse_args(arguments)
    real = [] if given.map is None else decomposition(given.map, n_variables=given.variables)
    if given.short:
        patterns = short_lists([one for one in real if "process 0" in one.name])
        with tempfile.TemporaryDirectory(dir=".") as folder:
            path = Path(folder).resolve() / "file"
            make_file(path, max(pattern.file_bytes for pattern in patterns))
            print("us of the loop in C and of sds.read_list, and how many times as fast it is")
            for pattern in patterns:
                compare_short(pread_loop(Path(folder)), path, pattern, given.rounds)
        return
    groups = [patterns_of_the_paper(), real, sweeps(given.mib << 20) if given.mib else []]
    print("cold" if given.cold else "warm", "reads; one process")
    with tempfile.TemporaryDirectory(dir=".") as folder:
        path = Path(folder) / "file"
        for patterns in groups:
            if not patterns:
                continue
            make_file(path, max(pattern.file_bytes for pattern in patterns))
            for pattern in patterns:
                compare(path, pattern, rounds=given.rounds, is_cold=given.cold)
                plan_cost(pattern, given.rounds)
            if not given.cold and patterns is groups[0]:
                write_checkpoint(path, given.rounds)
            sds.forget()


if __name__ == "__main__":
    main()
