"""Reads of datasets in chunks: ``sds.read`` beside h5py, the same bytes.

``python -m benchmarks.chunked_reads [MIB] [ROUNDS]``. A float64 cube of (256, 256, N) in chunks of
(64, 64, 64): raw, and with the filters that people use. h5py reads from a file that it keeps open
("kept"), and from one opened for each read ("opened"); ``sds.read`` is given the name of the file
each time, and "first" is such a read when nothing is known of the file. Each way has its own copy:
what is open twice in one process shares HDF5's caches. They take turns, every round elsewhere in
the cube; ratios are of one round's, and shown are their median and quartiles. Cold: the file was
dropped from the page cache before, and is not mapped, for mapped pages cannot be dropped.
"""

from __future__ import annotations

import functools
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import hdf5plugin
import numpy as np

import sds

if TYPE_CHECKING:
    from collections.abc import Callable

CHUNK = (64, 64, 64)
FILTERS: dict[str, dict[str, Any]] = {
    "raw": {},
    "gzip": {"compression": "gzip", "compression_opts": 1},
    "shuffle+gzip": {"compression": "gzip", "compression_opts": 1, "shuffle": True},
    "lz4": dict(hdf5plugin.LZ4()),
    "blosc-zstd": dict(hdf5plugin.Blosc(cname="zstd", clevel=3)),
}
N_POINTS = 1000


def make_cube(path: Path, filters: dict[str, Any], n: int) -> None:
    """Write smooth values with noise in their last digits, as detectors and models have them."""
    rng = np.random.default_rng(1)
    x, y, z = (np.linspace(0, length, length * 64) for length in (4, 4, n // 64))
    with h5py.File(path, "w") as handle:
        cube = handle.create_dataset("cube", (256, 256, n), "f8", chunks=CHUNK, **filters)
        for begin in range(0, n, 64):
            wave = np.sin(z[begin : begin + 64])
            block = np.sin(x)[:, None, None] * np.cos(y)[:, None] * wave
            cube[:, :, begin : begin + 64] = np.round(block + rng.normal(0, 0.01, block.shape), 3)
    then = path.stat().st_mtime_ns - 10**10
    os.utime(path, ns=(then, then))


def patterns(rng: np.random.Generator, n: int) -> dict[str, Any]:
    """Return one selection of each kind, somewhere in the cube."""
    i, j = (int(at) for at in rng.integers(0, 256, 2))
    k = int(rng.integers(0, n))
    a, b = (int(at) for at in rng.integers(0, 192, 2))
    c = int(rng.integers(0, n - 63))
    mask = np.zeros((256, 256, n), bool)
    mask.reshape(-1)[rng.integers(0, mask.size, N_POINTS)] = True
    return {
        "element": np.s_[i, j, k : k + 1],
        "line [:, j, k]": np.s_[:, j, k],
        "line [i, j, :]": np.s_[i, j, :],
        "plane [i]": np.s_[i],
        "plane [:, :, k]": np.s_[:, :, k],
        "cube 64^3": np.s_[a : a + 64, b : b + 64, c : c + 64],
        "strided [::64, :, ::8]": np.s_[i % 64 :: 64, :, ::8],
        f"{N_POINTS} points": mask,
    }


def evict(path: Path) -> None:
    """Write a file to disk and drop it from the page cache."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def timed(path: Path, read: Callable[[], Any], *, cold: bool) -> tuple[float, Any]:
    """Return the seconds of a read, and what it read."""
    if cold:
        evict(path)
    began = time.perf_counter()
    values = read()
    return time.perf_counter() - began, values


def compare(
    paths: dict[str, Path], kind: str, n: int, rounds: int, *, cold: bool
) -> dict[str, list[float]]:
    """Return the seconds of each way, round by round; the bytes are compared."""
    seconds: dict[str, list[float]] = {name: [] for name in paths}
    with h5py.File(paths["kept"]) as handle:

        def read(name: str, selection: Any) -> Any:  # noqa: ANN401
            if name == "kept":
                return handle["cube"][selection]
            if name == "opened":
                with h5py.File(paths[name]) as again:
                    return again["cube"][selection]
            return sds.read(paths[name], "cube", selection)

        for index in range(rounds + 1):
            selection = patterns(np.random.default_rng(index), n)[kind]
            found = {}
            names = list(paths)[index % len(paths) :] + list(paths)[: index % len(paths)]
            for name in names:
                if name == "first":
                    sds.forget(paths[name])
                way = functools.partial(read, name, selection)
                took_s, found[name] = timed(paths[name], way, cold=cold)
                if index > 0:  # the first one warms up
                    seconds[name].append(took_s)
            if any(not np.array_equal(values, found["kept"]) for values in found.values()):
                raise AssertionError(f"{kind}: not what h5py reads")
    return seconds


def spread(numerators: list[float], denominators: list[float]) -> str:
    """Return the median and the quartiles of ratios."""
    ratios = [a / b for a, b in zip(numerators, denominators, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return f"{middle:5.2f} ({low:.2f} to {high:.2f})"


def main() -> None:
    """Print the table."""
    n_mib = int(sys.argv[1]) if len(sys.argv) > 1 else 512
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 7
    chosen = sys.argv[3].split(",") if len(sys.argv) > 3 else list(FILTERS)
    n = max(128, n_mib * (1 << 20) // (256 * 256 * 8) // 64 * 64)
    print(f"float64 (256, 256, {n}), chunks {CHUNK}, {len(os.sched_getaffinity(0))} CPUs")
    print("| filters | cache | selection | h5py, ms | sds, ms | kept/sds | opened/first |")
    print("|---|---|---|---|---|---|---|")
    for name in chosen:
        with tempfile.TemporaryDirectory(dir=os.environ.get("SDS_BENCH_DIR")) as folder:
            paths = {way: Path(folder, f"{way}.h5") for way in ("kept", "opened", "sds", "first")}
            make_cube(paths["kept"], FILTERS[name], n)
            for way, path in paths.items():
                if way != "kept":
                    shutil.copy2(paths["kept"], path)
            for cold in (False, True):
                sds.forget()
                os.environ["SDS_MMAP"] = "0" if cold else "1"
                for kind in patterns(np.random.default_rng(0), n):
                    took = compare(paths, kind, n, rounds, cold=cold)
                    print(
                        f"| {name} | {'cold' if cold else 'warm'} | {kind} "
                        f"| {statistics.median(took['kept']) * 1e3:.2f} "
                        f"| {statistics.median(took['sds']) * 1e3:.2f} "
                        f"| {spread(took['kept'], took['sds'])} "
                        f"| {spread(took['opened'], took['first'])} |",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
