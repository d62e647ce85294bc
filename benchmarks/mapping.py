"""Small warm runs of a contiguous dataset: from a kept mapping, by calls, through h5py.

``python -m benchmarks.mapping [--file FILE.h5] [--megabytes N] [--repeats N]``

One float64 array of 256 x 256 x n, stored contiguously and cached; one thread. Each row is one
selection; columns: the first read after opening the file (which makes the mapping and fills the
process's page tables), later ones, one call per run, and h5py; then h5py / first, h5py / later and
calls / later. Medians of alternating runs at positions that differ; every result is compared with
h5py's. The last lines tell what a mapped read costs besides its loads.

How the kernel holds the cache shows in the first reads: a file that was read or written in order is
cached in large pieces, whose entries are filled together.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import h5py
import numpy as np

from sds import _native

ITEM = 8
SIDE = 256
Place = tuple[int, int, int]


@dataclass(frozen=True)
class Case:
    """One selection: a box by its shape, None for a whole axis; or points."""

    name: str
    shape: tuple[int | None, int | None, int | None] | None
    n_points: int = 0


CASES = (
    Case("plane across the fastest axis", (None, None, 1)),
    Case("slab of 8 such planes", (None, None, 8)),
    Case("line across the middle axis", (1, None, 1)),
    Case("line across the slowest axis", (None, 1, 1)),
    Case("64 x 64 x 64, unaligned", (64, 64, 64)),
    Case("1,000 random points", None, 1000),
)


def milliseconds(call: Callable[[], object]) -> float:
    """Return how long a call takes."""
    begin = time.perf_counter()
    call()
    return (time.perf_counter() - begin) * 1e3


def write_array(path: Path, megabytes: int) -> None:
    """Write the array, plane after plane, which leaves it in the page cache."""
    fastest = megabytes * 2**20 // (SIDE * SIDE * ITEM)
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("a", (SIDE, SIDE, fastest), "f8")
        for i in range(SIDE):
            dataset[i] = np.random.default_rng(i).random((SIDE, fastest))


class Reader:
    """Reads boxes and points of the array with the engine."""

    def __init__(self, path: Path, offset: int, extent: Place) -> None:
        self.path = path
        self.offset = offset
        self.extent = extent
        self.strides = (extent[1] * extent[2] * ITEM, extent[2] * ITEM, ITEM)
        self.file = _native.ReadFile(path)

    def reopen(self) -> None:
        """Begin anew, without a mapping."""
        self.file = _native.ReadFile(self.path)

    def read_box(self, start: Place, shape: Place, out: np.ndarray, strategy: str) -> str:
        """Fill out; return what carried the read out."""
        first = self.offset + sum(s * stride for s, stride in zip(start, self.strides, strict=True))
        levels = [(n, s) for n, s in zip(shape[:2], self.strides[:2], strict=True) if n > 1]
        if len(levels) == 2 and levels[0][1] == levels[1][0] * levels[1][1]:
            levels = [(levels[0][0] * levels[1][0], levels[1][1])]
        counts = tuple(n for n, _ in levels)
        steps = tuple(s for _, s in levels)
        report = self.file.read_runs(first, shape[2] * ITEM, counts, steps, out, strategy)
        return report["executor"]

    def read_points(self, points: np.ndarray, out: np.ndarray, strategy: str) -> str:
        """Fill out with single elements."""
        offsets = self.offset + points @ np.array(self.strides)
        report = _native.read_list(
            self.file, offsets, ITEM, None, ITEM * len(points), out, strategy
        )
        return report["executor"]


@dataclass(frozen=True)
class Read:
    """One selection at one place: by the engine with a strategy, and through h5py."""

    by_engine: Callable[[str], str]
    by_h5py: Callable[[], object]
    out: np.ndarray
    expected: np.ndarray


def points_at_random(
    n: int, reader: Reader, dataset: h5py.Dataset, generator: np.random.Generator
) -> Read:
    """Return a read of single elements, in the order of the file."""
    points = generator.integers(0, reader.extent, (n, 3))
    points = points[np.lexsort(points.T[::-1])]
    out, expected = np.empty(n), np.empty(n)
    space, memory = dataset.id.get_space(), h5py.h5s.create_simple((n,))
    space.select_elements(points)
    return Read(
        lambda strategy: reader.read_points(points, out, strategy),
        lambda: dataset.id.read(memory, space, expected),
        out,
        expected,
    )


def box_at_random(
    case: Case, reader: Reader, dataset: h5py.Dataset, generator: np.random.Generator
) -> Read:
    """Return a read of a box."""
    shape = tuple(n or whole for n, whole in zip(case.shape or (), reader.extent, strict=True))
    start = tuple(
        int(generator.integers(0, whole - n + 1))
        for n, whole in zip(shape, reader.extent, strict=True)
    )
    index = tuple(slice(s, s + n) for s, n in zip(start, shape, strict=True))
    out, expected = np.empty(shape), np.empty(shape)
    return Read(
        lambda strategy: reader.read_box(start, shape, out, strategy),
        lambda: dataset.read_direct(expected, index),
        out,
        expected,
    )


def measure(case: Case, reader: Reader, dataset: h5py.Dataset, repeats: int) -> str:
    """Return one row of the table."""
    generator = np.random.default_rng(1)
    times: dict[str, list[float]] = {"first": [], "later": [], "calls": [], "h5py": []}
    executors: set[str] = set()
    for _ in range(repeats):
        read = (
            points_at_random(case.n_points, reader, dataset, generator)
            if case.shape is None
            else box_at_random(case, reader, dataset, generator)
        )
        reader.reopen()
        times["first"].append(milliseconds(partial(read.by_engine, "auto")))
        read.by_engine("auto")
        for _ in range(5):
            times["later"].append(milliseconds(partial(read.by_engine, "auto")))
        executors.add(read.by_engine("auto"))
        times["calls"].append(milliseconds(partial(read.by_engine, "multiple")))
        read.by_engine("auto")
        times["h5py"].append(milliseconds(read.by_h5py))
        if not np.array_equal(read.out, read.expected):
            message = f"{case.name}: not what h5py reads"
            raise AssertionError(message)
    first, later, calls, through_h5py = (float(np.median(t)) for t in times.values())
    return (
        f"{case.name:<30} {first:9.3f} {later:9.4f} {calls:9.3f} {through_h5py:9.3f}"
        f" {through_h5py / first:10.1f} {through_h5py / later:10.1f} {calls / later:11.1f}"
        f"   {', '.join(sorted(executors))}"
    )


def cost_of_reading_nothing(reader: Reader, repeats: int = 20000) -> str:
    """Return a line: a mapped read of two runs, from the second time on."""
    out = np.empty(4)
    for _ in range(100):
        executor = reader.read_box((0, 0, 0), (1, 4, 1), out, "auto")
    begin = time.perf_counter()
    for _ in range(repeats):
        reader.read_box((0, 0, 0), (1, 4, 1), out, "auto")
    each_us = (time.perf_counter() - begin) / repeats * 1e6
    return f"four runs, by {executor}: {each_us:.2f} us a read, Python's part included"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", type=Path, help="keep the array here, and use one that is there")
    parser.add_argument("--megabytes", type=int, default=2048, help="size of the array")
    parser.add_argument("--repeats", type=int, default=7, help="positions per row")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.file or Path(folder) / "array.h5"
        if not path.exists():
            write_array(path, arguments.megabytes)
        with path.open("rb") as raw:
            while raw.read(8 << 20):
                pass
        with h5py.File(path, "r") as file:
            dataset = file["a"]
            reader = Reader(path, dataset.id.get_offset(), dataset.shape)
            print(f"{dataset.shape}, float64, cached")
            print(
                f"{'ms':<30} {'first':>9} {'later':>9} {'calls':>9} {'h5py':>9}"
                f" {'h5py/first':>10} {'h5py/later':>10} {'calls/later':>11}   later by"
            )
            for case in CASES:
                print(measure(case, reader, dataset, arguments.repeats), flush=True)
            print(cost_of_reading_nothing(reader))


if __name__ == "__main__":
    main()
