"""Random programs that read an original: h5py under the connector against h5py without SDS.

``python -m benchmarks.never_worse [--seed N] [--workloads N] [--only N ...] [--mib LOW HIGH]
[--full] [--compressed] [--state cold|warm ...] [--pairs N] [--results FILE] [--seconds N]``

A workload is a file with one dataset and a program that reads 10 to 40 selections of it in a loop:
planes, ranges of columns, strided rows or boxes of a contiguous or chunked array of two to four
axes, in turn or at random places. All is drawn from the seed. Each run is a process of its own,
forked from one that has imported h5py, and timed from opening the file to closing it. Runs with and
without the connector take turns, each of the two first in every second pair. "Cold": the file is
dropped from the page cache before each run; "warm": it is read before each pair. A ratio is the
median over the pairs of the connector's time divided by HDF5's, with its 95 % bootstrap bounds. No
ratio is to be above 1.05. The bytes of both are compared once for each workload.

With ``--results``, workloads are kept in a file, those that it has are not measured again, and
``--seconds`` begins none after so long: so they are measured in short turns. ``--full`` draws the
files from 200 to 700 MB instead of from 48 to 160. With ``--compressed`` all arrays are in chunks,
deflated, half of them shuffled before.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import math
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import h5py
import numpy as np

from benchmarks.read_engine import drop, load, ratio_of
from sds.home import Home
from tests.under_connector import ROOT, connector_environment, native_environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MB = 1_000_000
ALLOWED = 1.05
DATASET = "x"
KINDS = ("plane", "columns", "rows", "box")
STATES = ("cold", "warm")
SIDES = ("native", "sds")
READS = (10, 40)
WRITTEN_AT_ONCE = 16 * MB
BLOCK_BYTES = 512  # of getrusage(2)
CHUNK_BYTES = (64 << 10, 2 << 20)
# A drawn read is at most this part of the array, and a program reads at most so many arrays' worth.
MOST_OF_ARRAY, MOST_ARRAYS = 0.3, 3


@dataclass(frozen=True, kw_only=True)
class Workload:
    """An array and the selections that a program reads in turn.

    Attributes
    ----------
    chunk
        Shape of the chunks; empty where the array is contiguous.
    selections
        Start, stop and step of each axis.
    is_compressed, is_shuffled
        Whether the chunks are deflated, and shuffled before.
    """

    number: int
    kind: str
    shape: tuple[int, ...]
    dtype: str
    chunk: tuple[int, ...]
    in_turn: bool
    selections: tuple[tuple[tuple[int, int, int], ...], ...]
    is_compressed: bool = False
    is_shuffled: bool = False

    def __str__(self) -> str:
        first = ", ".join(
            f"{start}:{stop}" + (f":{step}" if step > 1 else "")
            for start, stop, step in self.selections[0]
        )
        stored = f"chunks {self.chunk}" if self.chunk else "contiguous"
        stored += " shuffled" * self.is_shuffled + " deflated" * self.is_compressed
        walk = "in turn" if self.in_turn else "random"
        return (
            f"{self.dtype} {self.shape} {stored}, "
            f"{len(self.selections)} x {self.kind} [{first}] {walk}"
        )


def draw_shape(rng: random.Random, n_elements: int) -> tuple[int, ...]:
    """Return two to four extents of about so many elements in all."""
    rank = rng.randint(2, 4)
    parts = [rng.uniform(0.5, 1.5) for _ in range(rank)]
    shape = [max(2, round(n_elements ** (part / sum(parts)))) for part in parts]
    shape[0] = max(2, round(n_elements / math.prod(shape[1:])))
    return tuple(shape)


def draw_chunk(rng: random.Random, shape: Sequence[int], element_bytes: int) -> tuple[int, ...]:
    """Return the shape of chunks of a usual size."""
    wanted = math.exp(rng.uniform(*(math.log(n) for n in CHUNK_BYTES))) / element_bytes
    chunk = list(shape)
    while math.prod(chunk) > wanted:
        axis = rng.randrange(len(chunk))
        chunk[axis] = max(1, chunk[axis] // 2)
    return tuple(chunk)


def draw_extents(rng: random.Random, kind: str, shape: Sequence[int]) -> list[tuple[int, int]]:
    """Return how many places each axis of a selection has, and their distance."""
    extents = [(extent, 1) for extent in shape]
    if kind == "plane":
        extents[rng.randrange(len(shape))] = (1, 1)
    elif kind == "columns":
        width = min(shape[-1], round(math.exp(rng.uniform(0, math.log(256)))))
        extents[-1] = (width, 1)
    elif kind == "rows":
        axis = rng.randrange(len(shape) - 1)
        step = rng.randint(2, 16)
        extents[axis] = (max(1, shape[axis] // step // rng.randint(1, 4)), step)
        if rng.random() < 0.5:
            extents[-1] = (max(1, shape[-1] // rng.randint(1, 8)), 1)
    else:
        extents = [(max(1, round(n * rng.uniform(0.05, 0.6))), 1) for n in shape]
    return extents


def draw(rng: random.Random, number: int, sizes_mb: tuple[float, float]) -> Workload:
    """Draw a workload."""
    kind = rng.choice(KINDS)
    dtype = rng.choice(("float32", "float64"))
    element_bytes = np.dtype(dtype).itemsize
    n_bytes = math.exp(rng.uniform(*(math.log(size * MB) for size in sizes_mb)))
    shape = draw_shape(rng, round(n_bytes / element_bytes))
    chunk = draw_chunk(rng, shape, element_bytes) if rng.random() < 0.4 else ()
    extents = draw_extents(rng, kind, shape)
    while math.prod(n for n, _ in extents) > MOST_OF_ARRAY * math.prod(shape):
        widest = max(range(len(shape)), key=lambda axis: extents[axis][0])
        extents[widest] = (max(1, extents[widest][0] // 2), extents[widest][1])
    part = math.prod(n for n, _ in extents) / math.prod(shape)
    n_reads = max(READS[0], min(rng.randint(*READS), int(MOST_ARRAYS / part)))
    in_turn = rng.random() < 0.5
    spans = [(n - 1) * step + 1 for n, step in extents]
    room = [extent - span for extent, span in zip(shape, spans, strict=True)]
    starts = [rng.randint(0, most) for most in room]
    selections = []
    for _ in range(n_reads):
        selections.append(
            tuple(
                (start, start + span, step)
                for start, span, (_, step) in zip(starts, spans, extents, strict=True)
            )
        )
        if in_turn:
            starts = [
                (start + n) % (most + 1) if most else 0
                for start, most, (n, _) in zip(starts, room, extents, strict=True)
            ]
        else:
            starts = [rng.randint(0, most) for most in room]
    return Workload(
        number=number, kind=kind, shape=shape, dtype=dtype, chunk=chunk,
        in_turn=in_turn, selections=tuple(selections),
    )  # fmt: skip


def workloads(seed: int, n: int, sizes_mb: tuple[float, float]) -> list[Workload]:
    """Return what a seed stands for: the first of them are the same for every number."""
    return [draw(random.Random(f"{seed}/{i}"), i, sizes_mb) for i in range(n)]  # noqa: S311


def compressed(seed: int, workload: Workload) -> Workload:
    """Return the same workload on deflated chunks."""
    rng = random.Random(f"{seed}/{workload.number}/filters")  # noqa: S311
    shape, itemsize = workload.shape, np.dtype(workload.dtype).itemsize
    chunk = workload.chunk or draw_chunk(rng, shape, itemsize)
    return replace(workload, chunk=chunk, is_compressed=True, is_shuffled=rng.random() < 0.5)


def write(path: Path, workload: Workload) -> None:
    """Write its file: every element has another value, as far as the type goes."""
    dtype = np.dtype(workload.dtype)
    row_elements = math.prod(workload.shape[1:])
    rows = max(1, WRITTEN_AT_ONCE // (row_elements * dtype.itemsize))
    with h5py.File(path, "w") as file:
        data = file.create_dataset(
            DATASET, workload.shape, dtype, chunks=workload.chunk or None,
            compression="gzip" if workload.is_compressed else None, shuffle=workload.is_shuffled,
        )  # fmt: skip
        for first in range(0, workload.shape[0], rows):
            n = min(rows, workload.shape[0] - first)
            values = np.arange(first * row_elements, (first + n) * row_elements, dtype=dtype)
            data[first : first + n] = values.reshape(n, *workload.shape[1:])
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


# ---- the programs


def run_program(request: dict[str, Any]) -> dict[str, Any]:
    """Read all selections; in a process of its own."""
    selections = [tuple(slice(*axis) for axis in selection) for selection in request["selections"]]
    digest = hashlib.sha256() if request["is_checked"] else None
    begun_s = time.perf_counter()
    with h5py.File(request["path"], "r") as file:
        data = file[DATASET]
        for selection in selections:
            values = data[selection]
            if digest:
                digest.update(values)
    seconds = time.perf_counter() - begun_s
    from_device_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_inblock * BLOCK_BYTES
    return {
        "seconds": seconds,
        "from_device_bytes": from_device_bytes,
        "digest": digest.hexdigest() if digest else "",
    }


def serve() -> None:
    """Run a program in a fork for every line of the input."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            print(json.dumps(run_program(json.loads(line))), flush=True)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            raise RuntimeError(f"the program ended with status {status}")


class Side:
    """A process that runs programs, with the connector or without it."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.never_worse", "--serve"],
            env=environment | {"PYTHONPATH": str(ROOT)}, cwd=ROOT, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self.requests = cast("IO[str]", self.process.stdin)
        self.answers = cast("IO[str]", self.process.stdout)

    def run(self, path: Path, workload: Workload, *, is_checked: bool = False) -> dict[str, Any]:
        """Run a workload's program once."""
        request = {
            "path": str(path), "selections": workload.selections, "is_checked": is_checked,
        }  # fmt: skip
        print(json.dumps(request), file=self.requests, flush=True)
        answer: dict[str, Any] = json.loads(self.answers.readline())
        return answer

    def close(self) -> None:
        """End the process."""
        self.requests.close()
        self.process.wait()


@contextlib.contextmanager
def both_sides(folder: Path) -> Iterator[dict[str, Side]]:
    """Start both processes."""
    home = Home(folder / "home")
    home.create()
    sides = {
        "native": Side(native_environment()),
        "sds": Side(connector_environment(home.root)),
    }
    try:
        yield sides
    finally:
        for side in sides.values():
            side.close()


def measure(
    sides: dict[str, Side], path: Path, workload: Workload, states: Sequence[str], pairs: int
) -> dict[str, dict[str, list[float]]]:
    """Return the seconds of each state and side."""
    digests = {side: sides[side].run(path, workload, is_checked=True)["digest"] for side in SIDES}
    if len(set(digests.values())) != 1:
        raise AssertionError(f"other bytes under the connector: {workload}")
    found: dict[str, dict[str, list[float]]] = {}
    for state in states:
        found[state] = {side: [] for side in SIDES}
        found[state] |= {f"{side} device": [] for side in SIDES}
        for pair in range(pairs):
            if state == "warm" and pair == 0:
                load(path)
            for side in SIDES if pair % 2 == 0 else SIDES[::-1]:
                if state == "cold":
                    drop(path)
                answer = sides[side].run(path, workload)
                found[state][side].append(answer["seconds"])
                found[state][f"{side} device"].append(answer["from_device_bytes"])
    return found


# ---- what was found


def describe(workload: Workload, state: str, seconds: dict[str, list[float]]) -> str:
    """Return a line of the table."""
    ratio = ratio_of(seconds["sds"], seconds["native"])
    mark = "  SLOWER" if ratio.median > ALLOWED else ""
    native_ms, sds_ms = (float(np.median(seconds[side])) * 1e3 for side in SIDES)
    native_mb, sds_mb = (float(np.median(seconds[f"{side} device"])) / MB for side in SIDES)
    return (
        f"{workload.number:3d} {state} {ratio!s:18s} {native_ms:8.1f} {sds_ms:8.1f} ms "
        f"{native_mb:6.1f} {sds_mb:6.1f} MB  "
        f"{workload}{mark}"
    )


def summarize(results: dict[str, dict[str, dict[str, list[float]]]]) -> None:
    """Print how many are slower and faster."""
    for state in STATES:
        ratios = [
            ratio_of(found[state]["sds"], found[state]["native"])
            for found in results.values()
            if state in found
        ]
        if not ratios:
            continue
        print(
            f"{state}: {len(ratios)} workloads, "
            f"{sum(ratio.median > ALLOWED for ratio in ratios)} slower than {ALLOWED} "
            f"({sum(ratio.low > ALLOWED for ratio in ratios)} by the lower bound), "
            f"{sum(ratio.median < 0.5 for ratio in ratios)} faster than twice, "
            f"worst {max(ratios, key=lambda ratio: ratio.median)}, "
            f"geometric mean {math.exp(np.mean([math.log(ratio.median) for ratio in ratios])):.2f}"
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the workloads of a seed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.never_worse")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workloads", type=int, default=40)
    parser.add_argument("--only", type=int, nargs="*", help="these alone")
    parser.add_argument("--mib", type=float, nargs=2, default=(48.0, 160.0), help=argparse.SUPPRESS)
    parser.add_argument("--full", action="store_true", help="files of 200 to 700 MB")
    parser.add_argument("--compressed", action="store_true", help="deflated chunks")
    parser.add_argument("--state", choices=STATES, nargs="*", default=STATES)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--results", type=Path)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--list", action="store_true", help="print the workloads alone")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.serve:
        serve()
        return
    sizes = (200.0, 700.0) if given.full else tuple(given.mib)
    drawn = workloads(given.seed, given.workloads, sizes)
    if given.compressed:
        drawn = [compressed(given.seed, workload) for workload in drawn]
    if given.list:
        print(*(f"{workload.number:3d} {workload}" for workload in drawn), sep="\n")
        return
    results = {}
    if given.results and given.results.exists():
        results = json.loads(given.results.read_text())
    begun_s = time.monotonic()
    with tempfile.TemporaryDirectory(dir=".") as name, both_sides(Path(name)) as sides:
        path = Path(name).resolve() / "array.h5"
        for workload in drawn:
            if given.only and workload.number not in given.only:
                continue
            if str(workload.number) not in results and time.monotonic() - begun_s < given.seconds:
                write(path, workload)
                results[str(workload.number)] = measure(
                    sides, path, workload, given.state, given.pairs
                )
                if given.results:
                    given.results.write_text(json.dumps(results))
            for state, seconds in results.get(str(workload.number), {}).items():
                print(describe(workload, state, seconds), flush=True)
    summarize(results)


if __name__ == "__main__":
    main()
