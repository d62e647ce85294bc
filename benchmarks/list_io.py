"""List I/O by every strategy, on the patterns of Ching 2002 and on real lists of requests.

``python -m benchmarks.list_io [MAP.h5] [--mib N] [--rounds N] [--cold]``. MAP.h5 is a decomposition
of E3SM-IO (github.com/Parallel-NetCDF/E3SM-IO, datasets/). Strategies take turns; a time is the
median of the rounds. With ``--cold`` each read begins with its file out of the page cache, but for
what the disk itself keeps. Bytes are compared with what copying them one by one gives, once for
each pattern and strategy. "multiple" and "sieve" read most or most often: they may take long.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
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
from sds import _native

if TYPE_CHECKING:
    from collections.abc import Sequence

STRATEGIES = ("multiple", "sieve", "list", "pmd", "auto")
# Ching 2002 goes to a million accesses of a client.
ACCESSES = (1_000, 10_000, 100_000, 400_000)
CYCLIC_CLIENTS = (8, 32)
BLOCK_CLIENTS = (4, 9, 16)
SETTLED_S = 2.1


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
    given = parser.parse_args(arguments)
    real = [] if given.map is None else decomposition(given.map, n_variables=given.variables)
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
