"""Reads of a dataset in chunks by programs that give HDF5 a chunk cache, natively and under SDS.

``python -m benchmarks.chunk_caches [--pairs N]``. A float32 cube (256, 256, 256) in gzip chunks of
64^3, a replica of it in the order 2,0,1 in such chunks, all in the page cache. Each pair runs two
new processes in a random order, natively and under the connector, which read the same; a ratio is
the native time by the time under SDS, the median over pairs with its 95 % bootstrap bounds. HDF5
decodes a chunk once while its cache holds it, and 512 MiB hold all.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np

from benchmarks.read_engine import ratio_of
from sds.home import Home
from tests.redirected import settle
from tests.under_connector import ROOT, connector_environment, native_environment

TARGET = 0.95
LARGE, USUAL = 512, 1  # MiB
PROGRAMS = {
    "planes along the grain, three times": (LARGE, "for i in range(768): d[i % 256]"),
    "planes along the grain": (LARGE, "for i in range(256): d[i]"),
    "one plane across": (LARGE, "d[:, :, 100]"),
    "planes across, every eighth": (LARGE, "for i in range(0, 256, 8): d[:, :, i]"),
    "lines along the last axis": (LARGE, "for i in range(2000): d[i % 250, i * 7 % 256]"),
    "one plane across, usual cache": (USUAL, "d[:, :, 100]"),
    "planes across, every eighth, usual cache": (
        USUAL, "for i in range(0, 256, 8): d[:, :, i]",
    ),
}  # fmt: skip
SOURCE = """
import sys, time, h5py
with h5py.File(sys.argv[1], rdcc_nbytes={cache} << 20, rdcc_nslots=10007) as file:
    d = file["d"]
    begin = time.perf_counter()
    {body}
    print(time.perf_counter() - begin)
"""


def run(path: Path, program: str, environment: dict[str, str]) -> float:
    """Return the seconds that the reads of a program take in a new process."""
    cache, body = PROGRAMS[program]
    source = SOURCE.format(cache=cache, body=body)
    done = subprocess.run(
        [sys.executable, "-c", source, str(path)],
        env=environment, cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return float(done.stdout)


def main() -> None:
    """Print a row for each program."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chunk_caches")
    parser.add_argument("--pairs", type=int, default=15)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sds-bench-") as name:
        path, home = Path(name) / "source.h5", Home(Path(name) / "home")
        steps = np.random.default_rng(1).integers(-3, 4, (256, 256, 256))
        with h5py.File(path, "w") as file:
            file.create_dataset(
                "d", data=np.cumsum(steps, axis=2).astype("f4"), chunks=(64, 64, 64),
                compression="gzip",
            )  # fmt: skip
        settle(path)
        build = ["reorganize", f"{path}:/d", "--order", "2,0,1", "--chunks", "64,64,64"]
        subprocess.run(
            [sys.executable, "-m", "sds.cli", *build], cwd=ROOT, check=True, capture_output=True,
            env=native_environment(SDS_HOME=home.root),
        )  # fmt: skip
        sides = {
            "native": native_environment(),
            "sds": connector_environment(home.root, SDS_TRACE="0"),
        }
        print(f"| program, {given.pairs} pairs | native, ms | under SDS, ms | ratio (95 %) | met |")
        print("|---|---|---|---|---|")
        for program in PROGRAMS:
            seconds: dict[str, list[float]] = {"native": [], "sds": []}
            for _ in range(given.pairs):
                for side in random.sample(sorted(sides), 2):
                    seconds[side].append(run(path, program, sides[side]))
            ratio = ratio_of(seconds["native"], seconds["sds"])
            native, sds = (sorted(side)[len(side) // 2] * 1e3 for side in seconds.values())
            print(
                f"| {program} | {native:.1f} | {sds:.1f} | {ratio.median:.2f} "
                f"[{ratio.low:.2f}, {ratio.high:.2f}] | "
                f"{'yes' if ratio.median >= TARGET else 'NO'} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
