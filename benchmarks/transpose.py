"""Transposition to HDF5, side by side: SDS, a block copy with h5py, and cp as the yardstick.

``python -m benchmarks.transpose [MIB] [ROUNDS]``. Every way starts with the source out of the page
cache and ends with the result synced to disk. They take turns, so that a device that drifts drifts
for all; ratios are of pairs of one round. SDS compares every byte with the source before it
publishes; its row "copy" is without that, as the others are.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import h5py
import numpy as np

from sds.home import Home
from sds.organizer import plan_reorganization, reorganize

if TYPE_CHECKING:
    from collections.abc import Callable

    from sds.organizer import ReorganizationPlan

MEMORY_BYTES = 512 << 20
ORDERS = ((2, 0, 1), (2, 1, 0))


def make_source(path: Path, n_mib: int) -> None:
    """Write a cube (x, y, energy) of random float32."""
    n_energies = n_mib * (1 << 20) // (256 * 256 * 4)
    rng = np.random.default_rng(1)
    with h5py.File(path, "w") as handle:
        cube = handle.create_dataset("cube", (256, 256, n_energies), "f4")
        for x in range(256):
            cube[x] = rng.random((256, n_energies), dtype=np.float32)
    then = path.stat().st_mtime_ns - 10**10
    os.utime(path, ns=(then, then))


def evict(path: Path) -> None:
    """Write a file to disk and drop it from the page cache."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def sync(path: Path) -> None:
    """Write a file to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def h5py_blocks(source: Path, target: Path, order: tuple[int, ...]) -> float:
    """Copy in blocks of the same memory, as a careful user writes it; return the seconds."""
    began = time.perf_counter()
    with h5py.File(source, "r") as original, h5py.File(target, "w") as copy:
        cube = original["cube"]
        out = copy.create_dataset("cube", tuple(cube.shape[a] for a in order), cube.dtype)
        planes = max(1, MEMORY_BYTES // 2 // (cube.nbytes // cube.shape[1]))
        for y in range(0, cube.shape[1], planes):
            block = cube[:, y : y + planes, :].transpose(order)
            where = [slice(None)] * 3
            where[order.index(1)] = slice(y, y + planes)
            out[tuple(where)] = block
    sync(target)
    return time.perf_counter() - began


def cp(source: Path, target: Path) -> float:
    """Copy the file as it is; return the seconds."""
    began = time.perf_counter()
    shutil.copyfile(source, target)
    sync(target)
    return time.perf_counter() - began


def sds(plan: ReorganizationPlan, home: Home) -> tuple[float, float]:
    """Return the seconds of the copy and of everything: copied, compared, published."""
    began = time.perf_counter()
    replica = reorganize(plan, home=home, rebuild=True)
    return replica.build_s, time.perf_counter() - began


def interval(values: list[float], unit: str) -> str:
    """Return median and range."""
    middle = statistics.median(values)
    return f"{middle:.2f} {unit} ({min(values):.2f} to {max(values):.2f})"


def main(n_mib: int = 512, rounds: int = 5) -> None:
    """Print one table per axis order."""
    with tempfile.TemporaryDirectory(prefix="sds-bench-") as name:
        directory = Path(name)
        source, target = directory / "source.h5", directory / "target.h5"
        make_source(source, n_mib)
        home = Home(directory / "home")
        for order in ORDERS:
            plan = plan_reorganization(
                source, "/cube", order=order, home=home, memory_bytes=MEMORY_BYTES
            )
            seconds: dict[str, list[float]] = {}
            for _ in range(rounds):
                ways: tuple[tuple[str, Callable[[], float]], ...] = (
                    ("cp", lambda: cp(source, target)),
                    ("h5py blocks", lambda order=order: h5py_blocks(source, target, order)),
                )
                for way, run in ways:
                    evict(source)
                    seconds.setdefault(way, []).append(run())
                    target.unlink()
                evict(source)
                copied, whole = sds(plan, home)
                seconds.setdefault("SDS, copy", []).append(copied)
                seconds.setdefault("SDS, copy and comparison", []).append(whole)
            print(f"{n_mib} MiB (256, 256, n) float32 to order {order}, {rounds} rounds")
            print(f"  {'way':26} {'time':30} time / that of SDS, copy")
            for way, times in seconds.items():
                pairs = zip(times, seconds["SDS, copy"], strict=True)
                ratios = [its / ours for its, ours in pairs]
                print(f"  {way:26} {interval(times, 's'):30} {interval(ratios, 'x')}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
