"""Collective reads and writes beside those of MPI-IO (ROMIO), of the same regions.

    python -m benchmarks.collective_io [MAP.h5] [--ranks N] [--mib N] [--rounds N]

Patterns: IOR, in which each rank has one segment of the file; BTIO, in which each rank has cells of
a cubic array of five doubles an element, spread diagonally over it (NPB, full subtype; the number
of ranks is a square); and, where
MAP.h5 is named, the decompositions of an E3SM case (github.com/Parallel-NetCDF/E3SM-IO, datasets/),
whose processes are dealt among the ranks, of 20 variables. All ranks are of this machine, so that
each library has one aggregator, with a buffer of 16 MiB; those that wait give their processor to
others. The file is in the page cache, and not synced: what is compared is the exchange. A time
begins with lists of offsets and lengths, of which ROMIO needs a datatype and a file view. Each
library takes its turn in each round; a ratio is the time of ROMIO divided by that of SDS, the
median of the rounds and their range; above 1 SDS is faster. Bytes are compared after every read.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import tempfile
from importlib.metadata import files
from pathlib import Path
from typing import TYPE_CHECKING

import h5py
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from mpi4py import MPI
    from numpy.typing import NDArray

    Regions = tuple[NDArray[np.int64], NDArray[np.int64]]

N_VARIABLES = 20
ELEMENT_BYTES = 5 * 8


def ior(rank: int, n_ranks: int, n_bytes: int) -> Regions:
    """Return the one segment of a rank."""
    each = n_bytes // n_ranks
    return np.array([rank * each]), np.array([each])


def btio(rank: int, n_ranks: int, n_bytes: int) -> Regions:
    """Return the rows of the cells of a rank: one in each layer, shifted along the diagonal."""
    q = math.isqrt(n_ranks)
    side = round((n_bytes / ELEMENT_BYTES) ** (1 / 3)) // q * q
    cell = side // q
    starts = []
    for layer in range(q):
        y, x = (rank // q + layer) % q * cell, (rank % q + layer) % q * cell
        planes = layer * cell + np.arange(cell)
        rows = (planes[:, None] * side + y + np.arange(cell)) * side + x
        starts.append(rows.ravel() * ELEMENT_BYTES)
    offsets = np.concatenate(starts)
    return offsets, np.full(len(offsets), cell * ELEMENT_BYTES)


def e3sm(path: Path, rank: int, n_ranks: int) -> dict[str, Regions]:
    """Return the regions of the processes that a rank stands for, by decomposition."""
    found = {}
    with h5py.File(path) as handle:
        for name in sorted(name.split(".")[0] for name in handle if name.endswith(".nreqs")):
            counts = handle[f"{name}.nreqs"][...]
            owners = np.repeat(np.arange(len(counts)), counts) % n_ranks
            offsets = handle[f"{name}.offsets"][...].astype(np.int64) * 8
            lengths = handle[f"{name}.lengths"][...].astype(np.int64) * 8
            of_variable = int((offsets + lengths).max()) * np.arange(N_VARIABLES)[:, None]
            order = np.flatnonzero(owners == rank)
            order = order[np.argsort(offsets[order], kind="stable")]
            starts = (of_variable + offsets[order]).reshape(-1)
            found[f"E3SM {name}"] = starts, np.tile(lengths[order], N_VARIABLES)
    return found


def timed(world: MPI.Comm, call: Callable[[], object]) -> float:
    """Return the seconds until the last rank has finished."""
    world.Barrier()
    began = _mpi().Wtime()
    call()
    world.Barrier()
    return float(world.bcast(_mpi().Wtime() - began))


def _mpi() -> type:
    from mpi4py import MPI  # noqa: PLC0415

    return MPI


def compare(name: str, regions: Regions, path: Path, rounds: int) -> None:
    """Print the line of a pattern."""
    from sds.organizer.collective import read_all, write_all  # noqa: PLC0415

    mpi = _mpi()
    world = mpi.COMM_WORLD
    offsets, lengths = regions
    n_bytes = int(lengths.sum())
    values = np.random.default_rng(world.rank).integers(0, 256, n_bytes).astype(np.uint8)
    got = np.empty_like(values)
    file = mpi.File.Open(world, str(path), mpi.MODE_CREATE | mpi.MODE_RDWR)

    def by_romio(transfer: Callable[[int, NDArray[np.uint8]], object]) -> None:
        filetype = mpi.BYTE.Create_hindexed(lengths.tolist(), offsets.tolist()).Commit()
        file.Set_view(0, mpi.BYTE, filetype)
        transfer(0, got if transfer == file.Read_at_all else values)
        filetype.Free()

    ways = {
        ("write", "ROMIO"): lambda: by_romio(file.Write_at_all),
        ("write", "SDS"): lambda: write_all(world, path, offsets, lengths, None, None, values),
        ("read", "ROMIO"): lambda: by_romio(file.Read_at_all),
        ("read", "SDS"): lambda: read_all(world, path, offsets, lengths, None, None, got),
    }
    times: dict[tuple[str, str], list[float]] = {way: [] for way in ways}
    for turn in range(rounds + 1):
        for way, call in ways.items():
            got.fill(0)
            seconds = timed(world, call)
            if turn:  # the first makes the file
                times[way].append(seconds)
            if way[0] == "read" and not np.array_equal(got, values):
                raise SystemExit(f"{way[1]} reads other bytes of {name}")
    file.Close()
    total = world.allreduce(n_bytes)
    n_regions = world.allreduce(len(offsets))
    if world.rank:
        return
    for kind in ("write", "read"):
        romio, own = times[kind, "ROMIO"], times[kind, "SDS"]
        ratios = [a / b for a, b in zip(romio, own, strict=True)]
        middle = statistics.median(ratios)
        print(
            f"{name:8} {kind:6} {total / 2**20:7.0f} MiB {n_regions:9} regions "
            f"{statistics.median(romio) * 1e3:9.1f} ms {statistics.median(own) * 1e3:9.1f} ms "
            f"{middle:7.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
            flush=True,
        )


def run_rank(directory: Path, map_file: Path | None, mib: int, rounds: int) -> None:
    """Measure all patterns, on one of the ranks."""
    world = _mpi().COMM_WORLD
    patterns = {
        "IOR": ior(world.rank, world.size, mib << 20),
        "BTIO": btio(world.rank, world.size, mib << 20),
    }
    if map_file is not None:
        patterns |= e3sm(map_file, world.rank, world.size)
    for name, regions in patterns.items():
        compare(name, regions, directory / name.replace(" ", "-"), rounds)


def main() -> None:
    """Start the ranks, which print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("map_file", nargs="?", type=Path, metavar="MAP.h5")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--mib", type=int, default=256, help="of the whole file")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--in", dest="directory", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if math.isqrt(given.ranks) ** 2 != given.ranks:
        parser.error(f"{given.ranks} ranks are no square number")
    if given.directory is not None:
        run_rank(given.directory, given.map_file, given.mib, given.rounds)
        return
    mpiexec = next(path.locate() for path in files("mpich") or () if path.name == "mpiexec")
    print(f"{given.ranks} ranks of one machine, {given.rounds} rounds, in the page cache")
    print(f"{'':51} {'ROMIO':>9} {'SDS':>12}   ROMIO / SDS", flush=True)
    with tempfile.TemporaryDirectory(prefix="sds-bench-") as name:
        subprocess.run(
            [
                str(mpiexec), "-n", str(given.ranks), sys.executable, "-m",
                "benchmarks.collective_io", *sys.argv[1:], "--in", name,
            ],
            check=True,
            env=os.environ | {"MPIR_CVAR_POLLS_BEFORE_YIELD": "1"},
        )  # fmt: skip


if __name__ == "__main__":
    main()
