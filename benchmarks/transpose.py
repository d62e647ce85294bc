"""Transposition to HDF5, side by side with what scientists use, and with cp.

``python -m benchmarks.transpose [MIB] [ROUNDS] [ORDER ...]``. Every way runs in a process of its
own, begins with the source out of the page cache and ends with the result synced to disk; it may
take 512 MiB for elements. They take turns, so that a device that drifts drifts for all; ratios are
of pairs of one round. SDS compares every byte with the source before it publishes; its row "copy"
is without that, as the others are. A peak is that of one process: of ranks, of the largest.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import h5py
import numpy as np

from sds.home import Home
from sds.organizer import plan_reorganization, reorganize

MEMORY_BYTES = 512 << 20
ORDERS = ("2,1,0", "2,0,1", "1,0,2")
_ELEMENT = np.dtype("f8")
_PLANES = 256


def make_source(path: Path, n_mib: int) -> None:
    """Write an array (256, 256, n) of random float64, contiguous."""
    length = n_mib * (1 << 20) // (_PLANES * _PLANES * _ELEMENT.itemsize)
    rng = np.random.default_rng(1)
    with h5py.File(path, "w") as handle:
        cube = handle.create_dataset("cube", (_PLANES, _PLANES, length), _ELEMENT)
        for x in range(_PLANES):
            cube[x] = rng.random((_PLANES, length))
    then = path.stat().st_mtime_ns - 10**10
    os.utime(path, ns=(then, then))


def evict(path: Path) -> None:
    """Write a file to disk and drop it from the page cache."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def sync(path: Path) -> None:
    """Write a file, or all files of a folder, to disk."""
    for place in path.rglob("*") if path.is_dir() else [path]:
        descriptor = os.open(place, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def h5py_blocks(source: Path, target: Path, order: tuple[int, ...]) -> None:
    """Copy in blocks of the memory allowed, as a careful user writes it."""
    with h5py.File(source, "r") as original, h5py.File(target, "w") as copy:
        cube = original["cube"]
        out = copy.create_dataset("cube", tuple(cube.shape[a] for a in order), cube.dtype)
        planes = max(1, MEMORY_BYTES // 2 // (cube.nbytes // cube.shape[1]))
        for y in range(0, cube.shape[1], planes):
            where = [slice(None)] * 3
            where[order.index(1)] = slice(y, y + planes)
            out[tuple(where)] = cube[:, y : y + planes, :].transpose(order)


def dask_to_hdf5(source: Path, target: Path, order: tuple[int, ...]) -> None:
    """Store a transposed dask array in HDF5; dask chooses the chunks."""
    import dask.array  # noqa: PLC0415

    with h5py.File(source, "r") as original, h5py.File(target, "w") as copy:
        cube = original["cube"]
        out = copy.create_dataset("cube", tuple(cube.shape[a] for a in order), cube.dtype)
        turned = dask.array.from_array(cube, chunks="64 MiB").transpose(order)
        dask.array.store(turned, out, lock=True, scheduler="threads")


def dask_to_zarr(source: Path, target: Path, order: tuple[int, ...]) -> None:
    """Store a transposed dask array in zarr, which need not write in one file."""
    import dask  # noqa: PLC0415
    import dask.array  # noqa: PLC0415

    with h5py.File(source, "r") as original, dask.config.set(scheduler="threads"):
        turned = dask.array.from_array(original["cube"], chunks="64 MiB").transpose(order)
        turned.to_zarr(str(target), component="cube")


def cp(source: Path, target: Path, _: tuple[int, ...]) -> None:
    """Copy the file as it is."""
    shutil.copyfile(source, target)


def sds(source: Path, target: Path, order: tuple[int, ...], n_ranks: int = 1) -> float:
    """Build a replica; return the seconds of the copy alone."""
    home = Home(target.with_name(f"{target.name}.home"))
    plan = plan_reorganization(
        source, "/cube", order=order, output=target, home=home, memory_bytes=MEMORY_BYTES
    )
    return reorganize(plan, home=home, n_ranks=n_ranks).build_s


def sds_on_2_ranks(source: Path, target: Path, order: tuple[int, ...]) -> float:
    """Build a replica by two ranks of an MPI program; return the seconds of the copy alone."""
    return sds(source, target, order, n_ranks=2)


WAYS = {
    "cp": cp,
    "h5py blocks": h5py_blocks,
    "dask to HDF5": dask_to_hdf5,
    "dask to zarr": dask_to_zarr,
    "SDS": sds,
    "SDS, 2 ranks": sds_on_2_ranks,
}


def run_way(name: str, source: Path, target: Path, order: tuple[int, ...]) -> dict[str, float]:
    """Run a way in this process; return its seconds and the most memory that it took."""
    began = time.perf_counter()
    copy_s = WAYS[name](source, target, order)
    sync(target)
    seconds = time.perf_counter() - began
    status = Path("/proc/self/status").read_text(encoding="ascii")
    anonymous = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    of_ranks = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    peak_kib = max(int(anonymous.split()[1]), of_ranks)
    found = {"seconds": seconds, "peak_mib": peak_kib / 1024}
    return found if copy_s is None else found | {"copy_s": copy_s}


def measure(name: str, source: Path, directory: Path, order: str) -> dict[str, float]:
    """Run a way in a process of its own, cold."""
    target = directory / "target"
    evict(source)
    command = [sys.executable, "-m", "benchmarks.transpose", "--way", name, source, target, order]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    for made in directory.glob("target*"):
        shutil.rmtree(made) if made.is_dir() else made.unlink()
    return dict(json.loads(done.stdout))


def interval(values: list[float], unit: str) -> str:
    """Return median and range."""
    middle = statistics.median(values)
    return f"{middle:.2f} {unit} ({min(values):.2f} to {max(values):.2f})"


def compare(source: Path, directory: Path, order: str, rounds: int) -> None:
    """Print the table of one axis order."""
    seconds: dict[str, list[float]] = {}
    peaks: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name in WAYS:
            found = measure(name, source, directory, order)
            if "copy_s" in found:
                seconds.setdefault(f"{name}, copy", []).append(found["copy_s"])
            seconds.setdefault(name, []).append(found["seconds"])
            peaks.setdefault(name, []).append(found["peak_mib"])
    size = source.stat().st_size
    print(f"{size >> 20} MiB (256, 256, n) float64 to order ({order}), cold, {rounds} rounds")
    head = ("way", "time", "MB/s", "time / SDS, copy", "time / SDS", "peak")
    print(f"  {head[0]:18} {head[1]:26} {head[2]:>6} {head[3]:24} {head[4]:24} {head[5]}")
    for way, times in seconds.items():
        ratios = [
            interval([a / b for a, b in zip(times, seconds[of], strict=True)], "x")
            for of in ("SDS, copy", "SDS")
        ]
        speed = size / 1e6 / statistics.median(times)
        peak = f"{max(peaks[way]):.0f} MiB" if way in peaks else ""
        row = f"  {way:18} {interval(times, 's'):26} {speed:6.0f} {ratios[0]:24} {ratios[1]:24}"
        print(f"{row} {peak}".rstrip())


def main() -> None:
    """Print one table per axis order."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mib", nargs="?", type=int, default=512, help="of the source")
    parser.add_argument("rounds", nargs="?", type=int, default=5)
    parser.add_argument("orders", nargs="*", default=ORDERS, metavar="ORDER")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sds-bench-") as name:
        source = Path(name) / "source.h5"
        make_source(source, given.mib)
        for order in given.orders:
            compare(source, Path(name), order, given.rounds)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--way"]:
        _way, _source, _target, _order = sys.argv[2:]
        _axes = tuple(map(int, _order.split(",")))
        print(json.dumps(run_way(_way, Path(_source), Path(_target), _axes)))
    else:
        main()
