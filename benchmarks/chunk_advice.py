"""Chunk advice: the portfolio that SDS advises beside the chunkings that people use, in real time.

``python -m benchmarks.chunk_advice [--quick] [--rounds N] [--only NAME]``. Two datasets, float32,
read half in maps and half in series: a (time, lat, lon) grid (one step, one place) and an image
cube (one energy, one spectrum). Each chunking is an HDF5 file of its own, without filters, read by
h5py in a process that keeps it open. The portfolio is chosen by the recommender for a contiguous
original and such reads, without calibration, built, and read by the same h5py program under the
connector (``sds run``), and by ``sds.read``.

Rules: *h5py* is ``chunks=True``; *netCDF* what the netCDF-4 library gives a variable with a filter
and no chunk sizes, which nccopy leaves as it is; *balanced* as many chunks for a map as for a
series, of 1 MiB (Unidata's advice; ``nccopy -c`` with it); *square* the same length on every axis,
of 1 MiB (as dask's ``auto`` cuts); *maps* and *series* one chunk, up to 1 MiB, along one of the
two; *fitted* the one chunk shape that SDS fits to both.

In every round each file is read at the same random places: cold (dropped from the page cache before
each read, and not mapped), then warm. A round's figure is the time of its map and its series
together. Ratios are to the portfolio in the same round: their median and its 95 % bootstrap bounds.
SDS is ahead of a rule where the lower bound is above 1.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import zlib
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import h5py
import netCDF4
import numpy as np

import sds
from sds.analyzer import stated_pattern
from sds.catalog.requests import ReorganizeRequest
from sds.home import NATIVE, Home
from sds.recommender.candidates.chunk_shapes import ChunkCosts, WeightedRead, fit_chunk_shape
from sds.recommender.candidates.dataset_reads import DatasetReads
from sds.recommender.models.cost_model import builtin_model
from sds.recommender.models.read_cost import StoredArray
from sds.recommender.portfolio.portfolio_selection import choose_portfolio
from sds.server.operations.service import Service

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

MIB = 1 << 20
ITEM_BYTES = 4
SDS_BY_CONNECTOR, SDS_BY_READ = "SDS, h5py under it", "SDS, sds.read"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A dataset that is read along one set of axes (maps) and along the others (series)."""

    name: str
    extent: tuple[int, int, int]
    series_axis: int

    def selections(self, rng: np.random.Generator) -> tuple[str, str]:
        """Return a map and a series somewhere."""
        at = [int(rng.integers(n)) for n in self.extent]
        one = [":" if axis != self.series_axis else str(at[axis]) for axis in range(3)]
        other = [":" if axis == self.series_axis else str(at[axis]) for axis in range(3)]
        return f"[{', '.join(one)}]", f"[{', '.join(other)}]"


WORKLOADS = {
    False: (
        Workload(name="time, lat, lon", extent=(3650, 180, 360), series_axis=0),
        Workload(name="image cube", extent=(256, 256, 2048), series_axis=2),
    ),
    True: (
        Workload(name="time, lat, lon", extent=(1460, 90, 180), series_axis=0),
        Workload(name="image cube", extent=(128, 128, 1024), series_axis=2),
    ),
}


def along(extent: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    """Return a chunk that is long on some axes and 1 on the others, of at most 1 MiB."""
    shape = [n if axis in axes else 1 for axis, n in enumerate(extent)]
    while math.prod(shape) * ITEM_BYTES > MIB:
        longest = shape.index(max(shape))
        shape[longest] = -(-shape[longest] // 2)
    return tuple(shape)


def balanced(workload: Workload) -> tuple[int, ...]:
    """Return 1 MiB chunks of which a map takes as many as a series."""
    extent, axis = workload.extent, workload.series_axis
    n_chunks = max(1.0, math.prod(extent) * ITEM_BYTES / MIB)
    root = math.sqrt(n_chunks)
    cuts = [root if a == axis else math.sqrt(root) for a in range(3)]
    return tuple(max(1, round(n / cut)) for n, cut in zip(extent, cuts, strict=True))


def square(extent: Sequence[int]) -> tuple[int, ...]:
    """Return 1 MiB chunks of the same length on every axis, as far as the axes go."""
    left, chunk = MIB / ITEM_BYTES, [0] * len(extent)
    for position, axis in enumerate(sorted(range(len(extent)), key=lambda a: extent[a])):
        chunk[axis] = min(extent[axis], int(left ** (1 / (len(extent) - position))))
        left /= chunk[axis]
    return tuple(chunk)


def of_netcdf(extent: Sequence[int]) -> tuple[int, ...]:
    """Return the chunk sizes that the netCDF-4 library chooses."""
    with netCDF4.Dataset("memory.nc", "w", diskless=True) as dataset:
        names = [dataset.createDimension(f"d{i}", n).name for i, n in enumerate(extent)]
        chunking = dataset.createVariable("v", "f4", names, compression="zlib").chunking()
        return tuple(int(length) for length in chunking)


def of_h5py(extent: Sequence[int]) -> tuple[int, ...]:
    """Return the chunk shape that h5py guesses."""
    with h5py.File("memory.h5", "w", driver="core", backing_store=False) as handle:
        found: tuple[int, ...] = handle.create_dataset("d", extent, "f4", chunks=True).chunks
        return found


def fitted(workload: Workload) -> tuple[int, ...]:
    """Return the one chunk shape that SDS fits to maps and series."""
    array = StoredArray(extent=workload.extent, element_size_bytes=ITEM_BYTES)
    costs = ChunkCosts.of(builtin_model(), array, decode_s_per_byte=0.0, stored_share=1.0)
    texts = workload.selections(np.random.default_rng(0))
    reads = [
        WeightedRead(
            slab=stated_pattern(text, extent=workload.extent, element_size_bytes=ITEM_BYTES).call,
            weight=1.0,
            now_s=math.inf,
        )
        for text in texts
    ]
    shape = fit_chunk_shape(reads, workload.extent, ITEM_BYTES, costs=costs)
    if shape is None:
        raise AssertionError("no chunk shape for an ordinary dataset")
    return shape


def rules(workload: Workload) -> dict[str, tuple[int, ...] | None]:
    """Return the chunk shape of each rule; None: contiguous."""
    maps = [axis for axis in range(3) if axis != workload.series_axis]
    return {
        "contiguous": None,
        "h5py": of_h5py(workload.extent),
        "netCDF": of_netcdf(workload.extent),
        "balanced": balanced(workload),
        "square": square(workload.extent),
        "maps": along(workload.extent, maps),
        "series": along(workload.extent, [workload.series_axis]),
        "fitted": fitted(workload),
    }


def write(path: Path, workload: Workload, chunks: tuple[int, ...] | None) -> None:
    """Write the dataset."""
    step = max(1, 64 * MIB // (ITEM_BYTES * math.prod(workload.extent[1:])))
    if chunks is not None:
        step = -(-step // chunks[0]) * chunks[0]  # each chunk is written once
    rng = np.random.default_rng(1)
    values = rng.random(workload.extent[1:], np.float32)
    with h5py.File(path, "w") as handle:
        data = handle.create_dataset("d", workload.extent, "f4", chunks=chunks)
        for begin in range(0, workload.extent[0], step):
            end = min(begin + step, workload.extent[0])
            steps = np.arange(begin, end, dtype=np.float32)
            data[begin:end] = steps[:, None, None] + values
    with path.open("rb") as written:
        os.fsync(written.fileno())
    then = path.stat().st_mtime_ns - 10**10
    os.utime(path, ns=(then, then))


def evict(paths: Sequence[Path]) -> None:
    """Drop files from the page cache."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def serve_reads(path: str, *, by_sds: bool) -> None:
    """Read what standard input names; tell the seconds and a checksum of each."""
    handle = None if by_sds else h5py.File(path)
    data = None if handle is None else handle["d"]
    for line in sys.stdin:
        index = tuple(slice(*p) if isinstance(p, list) else p for p in json.loads(line))
        began = time.perf_counter()
        values = sds.read(path, "d", index) if data is None else data[index]
        seconds = time.perf_counter() - began
        print(json.dumps([seconds, zlib.crc32(values.tobytes())]), flush=True)


def _part(text: str) -> int | list[int | None]:
    """Return an index, or first and last of a slice."""
    if ":" not in text:
        return int(text)
    return [int(end) if end else None for end in text.split(":")]


@dataclass(slots=True, kw_only=True)
class Reader:
    """A program that reads one file, cold or warm."""

    name: str
    chunks: str
    space_bytes: int
    paths: tuple[Path, ...]
    command: list[str]
    environment: dict[str, str]
    processes: dict[bool, subprocess.Popen[str]] = field(default_factory=dict)
    seconds: dict[bool, list[tuple[float, float]]] = field(
        default_factory=lambda: {False: [], True: []}
    )

    def __enter__(self) -> Self:
        for cold in (True, False):
            environment = {**self.environment, "SDS_MMAP": "0" if cold else "1"}
            self.processes[cold] = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
                text=True,
            )
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            process.communicate(timeout=60)

    def read(self, selection: str, *, cold: bool) -> tuple[float, int]:
        """Return the seconds and the checksum of a read."""
        if cold:
            evict(self.paths)
        process = self.processes[cold]
        parts = [_part(text.strip()) for text in selection[1:-1].split(",")]
        if process.stdin is None or process.stdout is None:
            raise AssertionError("the reader has no pipes")
        process.stdin.write(json.dumps(parts) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"the reader {self.name} ended: status {process.wait()}")
        seconds, checksum = json.loads(line)
        return float(seconds), int(checksum)


def reader(name: str, paths: Sequence[Path], **options: Any) -> Reader:  # noqa: ANN401
    """Return a reader of the first file."""
    by_sds, home = options.pop("by_sds", False), options.pop("home", None)
    command = [sys.executable, "-m", "benchmarks.chunk_advice", "--read", str(paths[0])]
    environment = dict(os.environ)
    if home is None:
        environment |= NATIVE
    else:
        environment |= {"SDS_HOME": str(home), "SDS_TRACE": "0"}
        if by_sds:
            command.append("--by-sds")
        else:
            command = [sys.executable, "-m", "sds.cli", "run", "--", *command]
    return Reader(
        name=name,
        paths=tuple(paths),
        space_bytes=sum(path.stat().st_size for path in paths),
        command=command,
        environment=environment,
        **options,
    )


def build_portfolio(home: Path, source: Path, workload: Workload) -> tuple[list[Path], str]:
    """Build what is advised for as many maps as series; return the files, and how they are laid."""
    patterns = tuple(
        stated_pattern(
            text, extent=workload.extent, element_size_bytes=ITEM_BYTES, n_reads_per_day=1000
        )
        for text in workload.selections(np.random.default_rng(0))
    )
    reads = DatasetReads(
        target=f"{source}:/d",
        array=StoredArray(extent=workload.extent, element_size_bytes=ITEM_BYTES),
        patterns=patterns,
    )
    portfolio = choose_portfolio([reads])
    paths, names = [source], ["contiguous"]
    with Service.open(Home(home)) as service:
        for layout in portfolio.layouts:
            request = ReorganizeRequest(
                file=str(source),
                dataset="/d",
                order=layout.layout.order,
                chunks=layout.layout.chunk_shape,
            )
            paths.append(Path(service.reorganize(request).path))
            names.append(layout.name)
    return paths, " and ".join(names)


def measure(readers: Sequence[Reader], workload: Workload, rounds: int) -> None:
    """Let every reader read a map and a series at the same places, cold and warm, in turns."""
    rng = np.random.default_rng(7)
    for turn in range(rounds + 1):
        texts = workload.selections(rng)
        first = turn % len(readers)
        checksums = set()
        for each in (*readers[first:], *readers[:first]):
            for cold in (True, False):
                if not cold:
                    for text in texts:
                        each.read(text, cold=False)  # into the page cache
                results = [each.read(text, cold=cold) for text in texts]
                checksums.add(tuple(checksum for _, checksum in results))
                if turn:  # the first one warms up
                    each.seconds[cold].append((results[0][0], results[1][0]))
        if len(checksums) != 1:
            raise AssertionError(f"{workload.name}: readers read different bytes of {texts}")


def bounds(ratios: NDArray[np.float64]) -> tuple[float, float, float]:
    """Return the median and its 95 % bootstrap bounds."""
    rng = np.random.default_rng(3)
    medians = np.median(rng.choice(ratios, (4000, len(ratios))), axis=1)
    low, high = np.quantile(medians, (0.025, 0.975))
    return float(np.median(ratios)), float(low), float(high)


def compare(readers: Sequence[Reader], ours: str) -> dict[bool, bool]:
    """Print a table; return per cache state whether SDS is ahead of every rule."""
    ahead = {}
    print(f"\nRatios to {ours}.\n")
    print("| cache | chunks by | chunks | MiB | map, ms | series, ms | both / SDS |")
    print("|---|---|---|---|---|---|---|")
    for cold in (True, False):
        state = "cold" if cold else "warm"
        by_name = {each.name: np.array(each.seconds[cold]) for each in readers}
        base = by_name[ours].sum(axis=1)
        lowest = math.inf
        for each in readers:
            median, low, high = bounds(by_name[each.name].sum(axis=1) / base)
            if each.name not in {SDS_BY_CONNECTOR, SDS_BY_READ}:
                lowest = min(lowest, low)
            maps, series = np.median(by_name[each.name], axis=0) * 1e3
            print(
                f"| {state} | {each.name} | {each.chunks} | {each.space_bytes / MIB:.0f} "
                f"| {maps:.2f} | {series:.2f} | {median:.2f} ({low:.2f} to {high:.2f}) |"
            )
        ahead[cold] = lowest > 1.0
        verdict = "ahead of all" if ahead[cold] else "not ahead of all"
        print(f"| {state} | {verdict} | | | | | least lower bound {lowest:.2f} |", flush=True)
    return ahead


def run(workload: Workload, rounds: int, directory: Path) -> None:
    """Measure one workload."""
    size = math.prod(workload.extent) * ITEM_BYTES / MIB
    shape = ", ".join(map(str, workload.extent))
    print(f"\n### {workload.name} ({shape}) float32, {size:.0f} MiB", flush=True)
    found: list[Reader] = []
    source = directory / "contiguous.h5"
    for name, chunks in rules(workload).items():
        path = directory / f"{name}.h5"
        write(path, workload, chunks)
        shown = "none" if chunks is None else "x".join(map(str, chunks))
        found.append(reader(name, [path], chunks=shown))
    home = directory / "home"
    time.sleep(2.1)  # a file must be that old before its identity is sure
    paths, layouts = build_portfolio(home, source, workload)
    found.append(reader(SDS_BY_CONNECTOR, paths, chunks=layouts, home=home))
    found.append(reader(SDS_BY_READ, paths, chunks=layouts, home=home, by_sds=True))
    with ExitStack() as stack:
        readers = [stack.enter_context(each) for each in found]
        measure(readers, workload, rounds)
    compare(found, SDS_BY_CONNECTOR)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description="Chunk advice against the rules of today.")
    parser.add_argument("--quick", action="store_true", help="small datasets")
    parser.add_argument("--rounds", type=int, default=20, help="pairs per cache state; 20")
    parser.add_argument("--only", choices=("grid", "cube"), help="one of the two datasets")
    parser.add_argument("--read", help=argparse.SUPPRESS)
    parser.add_argument("--by-sds", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.read is not None:
        serve_reads(given.read, by_sds=given.by_sds)
        return
    if given.rounds < 5:
        parser.error(f"--rounds {given.rounds}: at least 5, for bounds of a median")
    print(f"{len(os.sched_getaffinity(0))} CPUs, {given.rounds} rounds")
    for name, workload in zip(("grid", "cube"), WORKLOADS[given.quick], strict=True):
        if given.only not in {None, name}:
            continue
        with tempfile.TemporaryDirectory(dir=os.environ.get("SDS_BENCH_DIR")) as folder:
            run(workload, given.rounds, Path(folder))


if __name__ == "__main__":
    main()
