"""Rows of a range of energies, of ten million: sds.query, h5py with NumPy, PyTables' index.

``python -m benchmarks.query [--rows N] [--pairs N] [--cache STATE] [--share S]
[--directory DIR] [--prepare [--gzip LEVEL]]``. A group of four columns (energy float32, x and y
float64, id int64) is written by h5py, and the same rows as a table of PyTables with a completely
sorted index on the energy; both with gzip where ``--gzip`` is given. A query wants energy > t, x
and id of the rows, in the order of the file. Each of

- h5py: ``mask = energy[:] > t``, then ``x[:][mask]``, ``id[:][mask]``,
- PyTables: ``table.read_where("energy > t")``, with the index, put in the order of the file,
- sds.query by a scan, from the sorted replica, and as it chooses

is timed in turns, warm (read before) and cold (dropped from the page cache). Ratios are to h5py in
the same turn; median and 95 % bootstrap bounds. Every answer is compared. ``--prepare`` writes the
files, builds the index and the replica, and prints what those took; without it files that are
there already are used.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import h5py
import numpy as np
import tables
from numpy.typing import NDArray

import sds
from benchmarks.chunk_advice import bounds
from sds.catalog.requests import SortRequest
from sds.demo import page_cache
from sds.home import Home
from sds.server.operations.service import Service

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Rows = tuple[NDArray[np.float64], NDArray[np.int64]]
_SHARES = (1e-6, 1e-4, 1e-2, 1e-1)
_COLUMNS = ["energy", "x", "id"]


class Files:
    """What is compared, in one directory."""

    def __init__(self, directory: Path) -> None:
        self.source = directory / "particles.h5"
        self.table = directory / "pytables.h5"
        self.home = Home(directory / "home")

    def prepare(self, n_rows: int, gzip: int | None = None) -> None:
        """Write the rows twice, index the one, sort the other; print what that takes."""
        rng = np.random.default_rng(20261122)
        rows = {
            "energy": rng.exponential(size=n_rows).astype(np.float32),
            "x": rng.random(n_rows),
            "y": rng.random(n_rows),
            "id": np.arange(n_rows),
        }
        with h5py.File(self.source, "w") as file:
            for name, values in rows.items():
                file.create_dataset(
                    f"particles/{name}",
                    data=values,
                    compression=None if gzip is None else "gzip",
                    compression_opts=gzip,
                )
        description = np.dtype([(name, values.dtype) for name, values in rows.items()])
        with tables.open_file(self.table, "w") as file:
            filters = tables.Filters(complevel=gzip or 0, complib="zlib", shuffle=False)
            made = file.create_table(
                "/", "particles", description, filters=filters, expectedrows=n_rows
            )
            for first in range(0, n_rows, 1 << 20):
                part = np.empty(min(1 << 20, n_rows - first), description)
                for name, values in rows.items():
                    part[name] = values[first : first + len(part)]
                made.append(part)
            began_s = time.perf_counter()
            made.cols.energy.create_csindex()
            print(f"index of PyTables: {time.perf_counter() - began_s:.1f} s")
        time.sleep(2.5)  # a source is sorted once its last write is two seconds old
        with Service.open(self.home) as service:
            began_s = time.perf_counter()
            request = SortRequest(file=str(self.source), dataset="/particles", key="energy")
            record = service.reorganize(request)
            print(f"sorted replica: {time.perf_counter() - began_s:.1f} s, verified")
        sizes = (self.source, self.table, Path(record.path))
        print("sizes, MB:", ", ".join(f"{path.stat().st_size / 1e6:.0f}" for path in sizes))

    @property
    def replica(self) -> Path:
        """The sorted replica."""
        (path,) = self.home.replicas.rglob("*-sorted_energy-*.h5")
        return path

    def by_h5py(self, threshold: float) -> Rows:
        """Scan as programs do."""
        with h5py.File(self.source) as file:
            group = file["particles"]
            mask = group["energy"][:] > threshold
            return group["x"][:][mask], group["id"][:][mask]

    def by_pytables(self, threshold: float) -> Rows:
        """Ask the index."""
        with tables.open_file(self.table) as file:
            found = file.root.particles.read_where("energy > t", {"t": threshold})
        found = found[np.argsort(found["id"], kind="stable")]
        return found["x"], found["id"]

    def by_sds(self, threshold: float, strategy: str = "auto") -> Rows:
        """Ask sds.query."""
        found = sds.query(
            self.source,
            f"energy > {threshold!r}",
            table="/particles",
            columns=["x", "id"],
            strategy=strategy,
        )
        return found["x"], found["id"]


def measure(files: Files, n_pairs: int, caches: Sequence[str], shares: Sequence[float]) -> None:
    """Time every way in turns, and print ratios."""
    with h5py.File(files.source) as file:
        energy = np.sort(file["particles/energy"][:])
    ways: dict[str, Callable[[float], Rows]] = {
        "h5py": files.by_h5py,
        "PyTables": files.by_pytables,
        "sds scan": lambda t: files.by_sds(t, "scan"),
        "sds sorted": lambda t: files.by_sds(t, "sorted"),
        "sds auto": files.by_sds,
    }
    paths = [files.source, files.table, files.replica]
    print(f"{len(energy)} rows, {n_pairs} turns; ratios are h5py over the others")
    print(f"{'cache':6}{'share':>8}  {'h5py, s':>9}  " + "".join(f"{w:>24}" for w in [*ways][1:]))
    for cache in caches:
        page_cache.fill(paths)
        for share in shares:
            at = min(len(energy) - 1, int(len(energy) * (1 - share)))
            threshold = float(energy[at])
            print(_line(cache, share, times_of(ways, threshold, paths, cache, n_pairs)), flush=True)


def times_of(
    ways: dict[str, Callable[[float], Rows]],
    threshold: float,
    paths: list[Path],
    cache: str,
    n_pairs: int,
) -> dict[str, list[float]]:
    """Return the seconds of each way, taken in turns; the answers are compared."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for turn in range(n_pairs + 1):
        answers = []
        for name, ask in ways.items():
            if cache == "cold":
                state = page_cache.empty(paths)
                if "not emptied" in state:
                    raise RuntimeError(state)
            began_s = time.perf_counter()
            answers.append(ask(threshold))
            if turn:  # the first turn loads libraries
                seconds[name].append(time.perf_counter() - began_s)
        for answer in answers[1:]:
            for found, expected in zip(answer, answers[0], strict=True):
                if not np.array_equal(found, expected):
                    raise RuntimeError("the answers differ")
    return seconds


def _line(cache: str, share: float, seconds: dict[str, list[float]]) -> str:
    of_h5py = np.array(seconds["h5py"])
    cells = []
    for name, of_way in seconds.items():
        if name != "h5py":
            ratios = of_h5py / np.array(of_way)
            median, low, high = bounds(ratios)
            cells.append(f"{median:8.2f} ({low:.2f} to {high:.2f})".rjust(24))
    return f"{cache:6}{share:8.0e}  {np.median(of_h5py):9.4f}  {''.join(cells)}"


def main() -> None:
    """Prepare, or measure what was prepared."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--directory", type=Path, default=Path("/tmp/sds-query"))  # noqa: S108
    parser.add_argument("--prepare", action="store_true")
    parser.add_argument("--gzip", type=int, choices=range(10), help="level, with --prepare")
    parser.add_argument("--cache", choices=("warm", "cold"), action="append")
    parser.add_argument("--share", type=float, action="append", help="of the rows that match")
    given = parser.parse_args()
    given.directory.mkdir(parents=True, exist_ok=True)
    files = Files(given.directory)
    os.environ["SDS_HOME"] = str(files.home.root)
    if given.prepare or not files.source.exists():
        files.prepare(given.rows, given.gzip)
    if not given.prepare:
        measure(files, given.pairs, given.cache or ("warm", "cold"), given.share or _SHARES)


if __name__ == "__main__":
    main()
