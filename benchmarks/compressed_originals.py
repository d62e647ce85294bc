"""Programs that read compressed files of common kinds, natively, under SDS, and beside zarr.

``python -m benchmarks.compressed_originals [--pairs N] [--state cold|warm ...] [--only TEXT]``

There is no replica, no table and no server: the connector decodes chunks of the files themselves
(docs/decisions/0034). Files, all written here, by the libraries that such files come from:

- maps: netCDF-4, float32 (365, 181, 360), deflate 4 and shuffle, one map to a chunk;
- cells: h5ad, gzip, a sparse matrix (CSR) of 20,000 by 2,000 with a tenth filled, and a dense one;
- movie: as in NWB, uint16 (3000, 128, 128), gzip 4, in chunks that h5py chooses;
- frames: as of an Eiger detector, uint32 (60, 1062, 1028), a frame to a chunk, by bitshuffle and
  LZ4; and the same by LZF, Zstd and gzip.

A program is timed in a process of its own from before it opens the file until it has its values,
with its libraries imported. Sides take turns, in a random order: "native"; "1 thread" and "threads"
under SDS, without and with other threads than the program's; "zarr", zarr-python on the same
values, in chunks of the same shape and codec (for bitshuffle, Blosc's; for LZF, LZ4). Ratios are
medians over pairs of the native time by the other, with 95 % bootstrap bounds. "Cold": files are
dropped from the page cache before each run; "warm": read before. Traces are written, as by default.
anndata is no dependency of the project's: where it is not installed, its programs are named and
left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import h5py
import hdf5plugin
import netCDF4
import numcodecs
import numpy as np
import scipy.sparse
import zarr

from benchmarks.read_engine import drop, load, ratio_of
from sds.home import Home
from tests.redirected import settle
from tests.under_connector import ROOT, connector_environment, native_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STATES = ("cold", "warm")
SIDES = ("native", "1 thread", "threads", "zarr")
TIMED = """
import sys, time, warnings
warnings.simplefilter("ignore")
import {modules}
path = sys.argv[1]
begin = time.perf_counter()
{body}
print(time.perf_counter() - begin)
"""


@dataclass(frozen=True, kw_only=True)
class Program:
    """Statements that are timed, natively and by zarr-python, if that has the like."""

    title: str
    file: str
    modules: str
    body: str
    zarr: str = ""


def with_h5py(title: str, file: str, *reads: str) -> Program:
    """Return a program of h5py, whose reads zarr-python understands as well."""
    lines = "\n".join(reads)
    modules = "h5py, hdf5plugin, numpy as np" if file.startswith("frames") else "h5py, numpy as np"
    return Program(
        title=title, file=file, modules=modules,
        body=f"data = h5py.File(path)['data']\n{lines}",
        zarr=f"data = zarr.open_array(path + '.zarr', mode='r')\n{lines}",
    )  # fmt: skip


PROGRAMS = [
    with_h5py("h5py: all maps", "maps.nc", "data[...]"),
    with_h5py("h5py: the series of a point", "maps.nc", "data[:, 90, 180]"),
    with_h5py("h5py: a map after another", "maps.nc", "for i in range(365): data[i]"),
    Program(
        title="netCDF4: a region of all maps", file="maps.nc", modules="netCDF4",
        body="netCDF4.Dataset(path)['data'][:, 60:120, 100:200]",
        zarr="zarr.open_array(path + '.zarr', mode='r')[:, 60:120, 100:200]",
    ),
    Program(
        title="xarray: mean of all maps", file="maps.nc", modules="xarray, netCDF4",
        body="xarray.open_dataset(path, engine='netcdf4').data.mean('time').values",
        zarr="zarr.open_array(path + '.zarr', mode='r')[...].mean(axis=0)",
    ),
    Program(
        title="anndata: read a sparse file", file="sparse.h5ad", modules="anndata",
        body="anndata.read_h5ad(path)",
    ),
    Program(
        title="anndata: dense rows, 1,000 by 1,000", file="dense.h5ad", modules="anndata",
        body="cells = anndata.read_h5ad(path, backed='r')\n"
             "for i in range(0, 20000, 1000): cells.X[i : i + 1000]",
    ),
    with_h5py("h5py: movie, 100 frames by 100", "movie.nwb",
              "for i in range(0, 3000, 100): data[i : i + 100]"),
    with_h5py("h5py: movie, a region of interest", "movie.nwb", "data[:, 40:60, 40:60]"),
    with_h5py("h5py: movie, one frame after another", "movie.nwb",
              "for i in range(0, 300): data[i]"),
    *(
        with_h5py(f"h5py: frames in {codec}, ten by ten", f"frames-{codec}.h5",
                  "for i in range(0, 60, 10): data[i : i + 10]")
        for codec in ("bslz4", "lzf", "zstd", "gzip")
    ),
    with_h5py("h5py: frames in bslz4, one by one", "frames-bslz4.h5",
              "for i in range(0, 60): data[i]"),
]  # fmt: skip


def maps() -> np.ndarray:
    """Return smooth fields that change slowly, rounded to three digits."""
    rng = np.random.default_rng(1)
    time, y, x = np.ogrid[:365, :181, :360]
    field = np.sin(x / 57.3 + time / 20) * np.cos(y / 28.6) * 20 + rng.normal(
        0, 0.3, (365, 181, 360)
    )
    return np.round(field, 1).astype("f4")


def movie() -> np.ndarray:
    """Return counts of photons."""
    y, x = np.ogrid[:128, :128]
    light = 40 + 30 * np.sin(x / 9) * np.cos(y / 11)
    return np.random.default_rng(2).poisson(np.broadcast_to(light, (3000, 128, 128))).astype("u2")


def frames() -> np.ndarray:
    """Return counts of a detector of which most pixels see little."""
    return np.random.default_rng(3).poisson(0.7, (60, 1062, 1028)).astype("u4")


def write(path: Path, values: np.ndarray, *, compressors: object, **how: object) -> None:
    """Write a dataset by h5py, and an array of such chunks by zarr."""
    with h5py.File(path, "w") as file:
        data = file.create_dataset("data", data=values, **how)
        chunks = data.chunks
    zarr.create_array(f"{path}.zarr", data=values, chunks=chunks, zarr_format=2, **compressors)


def write_maps(path: Path) -> None:
    """Write maps as netCDF-4."""
    values = maps()
    write(
        path, values, chunks=(1, 181, 360),
        compressors={"filters": [numcodecs.Shuffle(4)], "compressors": numcodecs.Zlib(4)},
    )  # fmt: skip
    with netCDF4.Dataset(path, "w") as file:
        for name, n in zip(("time", "lat", "lon"), values.shape, strict=True):
            file.createDimension(name, n)
        data = file.createVariable(
            "data", "f4", ("time", "lat", "lon"), zlib=True, complevel=4, shuffle=True,
            chunksizes=(1, 181, 360),
        )  # fmt: skip
        data[:] = values


def write_movie(path: Path) -> None:
    """Write a movie."""
    write(path, movie(), compression="gzip", compressors={"compressors": numcodecs.GZip(4)})


def write_frames(path: Path) -> None:
    """Write frames of a detector."""
    codec = path.stem.removeprefix("frames-")
    filters = {
        "bslz4": hdf5plugin.Bitshuffle(),
        "lzf": {"compression": "lzf"},
        "zstd": hdf5plugin.Zstd(),
        "gzip": {"compression": "gzip"},
    }
    compressors = {
        "bslz4": numcodecs.Blosc("lz4", shuffle=numcodecs.Blosc.BITSHUFFLE),
        "lzf": numcodecs.LZ4(),
        "zstd": numcodecs.Zstd(3),
        "gzip": numcodecs.GZip(4),
    }
    write(
        path, frames(), chunks=(1, 1062, 1028), **filters[codec],
        compressors={"compressors": compressors[codec]},
    )  # fmt: skip


def write_cells(path: Path) -> None:
    """Write cells by anndata."""
    import anndata  # noqa: PLC0415

    rng = np.random.default_rng(4)
    if path.stem == "sparse":
        counts = scipy.sparse.random(20000, 2000, 0.1, "csr", "f4", rng)
        counts.data = np.floor(counts.data * 30) + 1
    else:
        counts = rng.poisson(0.5, (20000, 2000)).astype("f4")
    anndata.settings.allow_write_nullable_strings = True  # as pandas 3 has names of rows
    anndata.AnnData(counts).write_h5ad(path, compression="gzip")


WRITERS: dict[str, Callable[[Path], None]] = {
    "maps.nc": write_maps, "sparse.h5ad": write_cells, "dense.h5ad": write_cells,
    "movie.nwb": write_movie,
}  # fmt: skip


def files_of(path: Path) -> Iterator[Path]:
    """Yield the file and those of the array beside it."""
    yield path
    for found in Path(f"{path}.zarr").rglob("*"):
        if found.is_file():
            yield found


def run(path: Path, program: Program, side: str, environment: dict[str, str]) -> float:
    """Return the seconds that a program takes in a new process."""
    modules, body = program.modules, program.body
    if side == "zarr":
        modules, body = "zarr, numpy as np", program.zarr
    done = subprocess.run(
        [sys.executable, "-c", TIMED.format(modules=modules, body=body), str(path)],
        env=environment, cwd=path.parent, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return float(done.stdout)


def row(path: Path, program: Program, sides: dict[str, dict[str, str]], *, pairs: int,
        state: str) -> str:  # fmt: skip
    """Time a program by all sides in turns."""
    asked = [side for side in sides if side != "zarr" or program.zarr]
    seconds: dict[str, list[float]] = {side: [] for side in asked}
    for _ in range(pairs):
        for side in random.sample(asked, len(asked)):
            for file in files_of(path):
                drop(file) if state == "cold" else load(file)
            seconds[side].append(run(path, program, side, sides[side]))
    cells = [program.title, state, f"{statistics.median(seconds['native']) * 1e3:.1f}"]
    for side in SIDES[1:]:
        if side not in seconds:
            cells.append("")
            continue
        ratio = ratio_of(seconds["native"], seconds[side])
        cells.append(f"{ratio.median:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]")
    return f"| {' | '.join(cells)} |"


def is_there(program: Program) -> bool:
    """Whether the program's libraries are installed."""
    names = [name.split(" as ")[0].strip() for name in program.modules.split(",")]
    missing = [name for name in names if not importlib.util.find_spec(name)]
    if missing:
        print(f"Left out, since {', '.join(missing)} is not installed: {program.title}")
    return not missing


def main() -> None:
    """Print a row for each program and state of the page cache."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compressed_originals")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--state", nargs="+", choices=STATES, default=list(STATES))
    parser.add_argument("--only", default="", help="programs whose title holds this")
    given = parser.parse_args()
    programs = [p for p in PROGRAMS if given.only in p.title and is_there(p)]
    with tempfile.TemporaryDirectory(prefix="sds-bench-", dir=os.environ.get("TMPDIR")) as name:
        home = Home(Path(name) / "home")
        home.create()
        native = native_environment()
        python_path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        sides = {
            side: environment | {"PYTHONPATH": python_path}
            for side, environment in {
                "native": native,
                "1 thread": connector_environment(home.root, SDS_THREADS=1),
                "threads": connector_environment(home.root),
                "zarr": native,
            }.items()
        }
        print(
            f"| program, {given.pairs} pairs | cache | native, ms | " + " | ".join(SIDES[1:]) + " |"
        )
        print("|" + "---|" * (2 + len(SIDES)))
        for program in programs:
            path = Path(name) / program.file
            if not path.exists():
                WRITERS.get(program.file, write_frames)(path)
                settle(path)
            for state in given.state:
                print(row(path, program, sides, pairs=given.pairs, state=state), flush=True)
            if not any(
                later.file == program.file for later in programs[programs.index(program) + 1 :]
            ):
                path.unlink()
                shutil.rmtree(f"{path}.zarr", ignore_errors=True)


if __name__ == "__main__":
    main()
