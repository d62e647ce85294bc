"""Reads through the connector with replicas beside the file, against the same reads without.

``python -m benchmarks.beside_replicas [--pairs N] [--mib N] [--read NAME ...] [--state STATE]``. A
contiguous float64 dataset, (256, 256, 1024) where it is 512 MiB, and replicas of it in the orders
1,2,0 and 1,0,2. Both sides run under the connector; one has its replicas turned off
(``SDS_REDIRECT=0``), so that the engine or HDF5 reads the original. Each pair runs two new
processes in a random order: where the memory of one lies changes its speed by a factor of 0.7 to
1.3, which stays as long as it runs. Both must give the same bytes.

States: ``warm``, source and replicas in the page cache, the median of 40 reads at random places;
``cold``, nothing of them in it, the first read. A ratio is the time without replicas by the time
with them, the median over pairs with its 95 % bootstrap bounds; the target is 0.95 for every read.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np

from benchmarks.read_engine import drop, load, ratio_of
from sds.home import Home
from tests.redirected import redirect, settle
from tests.under_connector import ROOT, connector_environment

TARGET = 0.95
WARM_READS = 40
READS = {
    "first-axis plane": "(i % n0, slice(None), slice(None))",
    "middle plane": "(slice(None), i % n1, slice(None))",
    "last-axis plane": "(slice(None), slice(None), i % n2)",
    "line, first axis": "(slice(None), i % n1, i % n2)",
    "line, middle axis": "(i % n0, slice(None), i % n2)",
    "line, last axis": "(i % n0, i % n1, slice(None))",
    "cube of 64": "tuple(slice(i % (n - 63), i % (n - 63) + 64) for n in (n0, n1, n2))",
    "cube of 16": "tuple(slice(i % (n - 15), i % (n - 15) + 16) for n in (n0, n1, n2))",
    "8 middle planes": "(slice(None), slice(i % (n1 - 7), i % (n1 - 7) + 8), slice(None))",
    "every 8th row": "(i % n0, slice(i % 8, None, 8), slice(None))",
    "every 4th column": "(i % n0, slice(None), slice(i % 4, None, 4))",
    "strided box": "(slice(i % 8, None, 8), slice(i % 4, None, 4), slice(0, 256))",
    "256 points": "np.random.default_rng(i).integers(0, (n0, n1, n2), (256, 3))",
}

PROGRAM = """
import hashlib, json, random, sys, time
import h5py, numpy as np

def read(data, index):
    if isinstance(index, tuple):
        return data[index]
    space, out = data.id.get_space(), np.empty(len(index), data.dtype)
    space.select_elements(index)
    data.id.read(h5py.h5s.create_simple(out.shape), space, out)
    return out

path, expression, n_reads, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
rng, digest, times = random.Random(seed), hashlib.sha256(), []
with h5py.File(path) as file:
    data = file["cube"]
    n0, n1, n2 = data.shape
    for _ in range(n_reads):
        i = rng.randrange(1 << 30)
        index = eval(expression)
        begin = time.perf_counter()
        values = read(data, index)
        times.append(time.perf_counter() - begin)
        digest.update(values.tobytes())
times.sort()
print(json.dumps([times[len(times) // 2], digest.hexdigest()]))
"""


def run(
    path: Path, read: str, n_reads: int, seed: int, environment: dict[str, str]
) -> list[object]:
    """Return the seconds of a read in a new process, and the digest of what it read."""
    command = [sys.executable, "-c", PROGRAM, str(path), READS[read], str(n_reads), str(seed)]
    done = subprocess.run(
        command, env=environment, cwd=ROOT, check=True, capture_output=True, text=True
    )
    found: list[object] = json.loads(done.stdout)
    return found


def measure(
    files: list[Path], home: Path, read: str, *, state: str, pairs: int
) -> list[tuple[float, float]]:
    """Return pairs of seconds: with the replicas, and without them."""
    sides = {
        "with": connector_environment(home),
        "without": connector_environment(home, SDS_REDIRECT="0"),
    }
    found = []
    for pair in range(pairs):
        seconds, digests = {}, set()
        names = list(sides)
        random.shuffle(names)
        for name in names:
            for file in files:
                (drop if state == "cold" else load)(file)
            n_reads = 1 if state == "cold" else WARM_READS
            took, digest = run(files[0], read, n_reads, pair, sides[name])
            seconds[name] = float(str(took))
            digests.add(digest)
        if len(digests) != 1:
            raise SystemExit(f"{read}, {state}: replicas give other bytes")
        found.append((seconds["with"], seconds["without"]))
    return found


def main() -> None:
    """Print a row for each read and state."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.beside_replicas")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--read", action="append", choices=READS)
    parser.add_argument("--state", action="append", choices=("warm", "cold"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sds-bench-") as name:
        path, home = Path(name) / "source.h5", Home(Path(name) / "home")
        shape = (max(64, given.mib // 2), 256, 1024)
        with h5py.File(path, "w") as file:
            cube = file.create_dataset("cube", shape, "f8")
            for k in range(shape[0]):
                cube[k] = np.random.default_rng(k).random(shape[1:])
        settle(path)
        table = redirect(path, [("/cube", (1, 2, 0)), ("/cube", (1, 0, 2))], home, always=False)
        files = [path, *(one.path for one in table.datasets[0].candidates)]
        print(
            f"| read, {given.pairs} pairs | state | with, ms | without, ms | ratio (95 %) | met |"
        )
        print("|---|---|---|---|---|---|")
        for read in given.read or READS:
            for state in given.state or ("warm", "cold"):
                pairs = measure(files, home.root, read, state=state, pairs=given.pairs)
                ratio = ratio_of([b for _, b in pairs], [a for a, _ in pairs])
                beside, alone = (
                    sorted(side)[len(side) // 2] * 1e3 for side in zip(*pairs, strict=True)
                )
                print(
                    f"| {read} | {state} | {beside:.3f} | {alone:.3f} | {ratio.median:.2f} "
                    f"[{ratio.low:.2f}, {ratio.high:.2f}] | "
                    f"{'yes' if ratio.median >= TARGET else 'NO'} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
