"""Reads of a contiguous original without any replica: h5py, h5py under the connector, `sds.read`.

``python -m benchmarks.original_reads [--mib N] [--pairs N] [--directory DIR]``. float64, (256, 256,
4096) where it is 2 GiB, otherwise with another first axis. The readers are processes that take
turns, each with the same read at a random place, and must give the same bytes. Warm, the file is in
the page cache: the first read after it was opened, and repeated ones in a file that stays open and
in which all of these reads have been made before, at other places. Cold, it is out of the page
cache and closed: opening it counts. A ratio is the median over the pairs, with its 95 % bootstrap
bounds; it is met where the median is.

Then what a read of one run takes more under the connector, what other reads take that gain nothing,
a scan of the file, and a plane across the grain from a contiguous replica.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import mmap
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import h5py
import numpy as np

from benchmarks.read_engine import drop, load, ratio_of
from sds.home import Home
from tests.redirected import redirect, settle
from tests.under_connector import ROOT, connector_environment, native_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

MIB = 1 << 20
DATASET = "cube"
SCAN_BYTES = 4 * MIB


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """A read, and how many times faster than h5py SDS is to be; None: no target.

    Attributes
    ----------
    index
        The text of a selection in Python, in which i, j and k are a place and n the first extent;
        empty for a thousand random points.
    """

    name: str
    index: str
    repeated: float | None = None
    first: float | None = None
    cold: float | None = None


PATTERNS = (
    Pattern(name="plane across the fastest axis", index="[:, :, k]", repeated=40, first=6),
    Pattern(name="slab of 8 of them", index="[:, :, k:k + 8]", repeated=30, first=6),
    Pattern(name="line across the middle axis", index="[i, :, k]", repeated=10, first=3, cold=2.5),
    Pattern(name="line across the slowest axis", index="[:, j, k]", cold=10),
    Pattern(name="1000 random points", index="", repeated=10, first=5, cold=8),
    Pattern(
        name="unaligned cube of 64",
        index="[i % (n - 64):i % (n - 64) + 64, j % 192:j % 192 + 64, k % 4032 + 1:k % 4032 + 65]",
        repeated=6, first=4, cold=4,
    ),
    Pattern(name="plane across the middle axis", index="[:, j, :]", cold=4),
)  # fmt: skip

# Reads in which HDF5 is not to be beaten: at most 5 % slower warm, 10 % cold.
OTHERS = (
    Pattern(name="row", index="[i, j, :]"),
    Pattern(name="plane across the slowest axis", index="[i]"),
    Pattern(name="every second element of a row", index="[i, j, ::2]"),
    Pattern(name="four rows, every third element", index="[i, j % 252:j % 252 + 4, ::3]"),
    Pattern(name="two planes apart", index="[i % (n // 2)::n // 2]"),
    Pattern(name="every second row of a plane", index="[i, ::2, :]"),
)
WARM_LOSS, COLD_LOSS, ONE_RUN_MORE_S, SCAN_RATIO = 1.05, 1.10, 0.5e-6, 1.2

WORKER = """
import hashlib, json, sys, time
import h5py, numpy as np

path, how = sys.argv[1:3]
if how == "sds.read":
    import sds

def points(seed, shape):
    random = np.random.default_rng(seed)
    return np.stack([random.integers(0, length, 1000) for length in shape], axis=1)

class Place:
    def __getitem__(self, index):
        return index

class Opened:
    def __init__(self):
        self.file = h5py.File(path, "r")
        self.data = self.file["cube"]
    def read(self, index, chosen):
        if chosen is None:
            return self.data[index]
        out = np.empty(len(chosen))
        space = self.data.id.get_space()
        space.select_elements(chosen)
        self.data.id.read(h5py.h5s.create_simple(out.shape), space, out)
        return out
    def close(self):
        self.file.close()

class Direct:
    def read(self, index, chosen):
        if chosen is None:
            return sds.read(path, "/cube", index)
        return sds.read(path, "/cube", points=chosen)
    def close(self):
        sds.forget()

opened = None
for line in sys.stdin:
    asked = json.loads(line)
    if asked["close"]:
        if opened is not None:
            opened.close()
        opened = None
        print("{}", flush=True)
        continue
    index = chosen = None
    if asked["index"]:
        index = eval("Place()" + asked["index"], {"Place": Place, **asked["place"]})
    else:
        chosen = points(asked["place"]["i"], asked["shape"])
    if opened is None and not asked["open_counts"]:
        opened = Direct() if how == "sds.read" else Opened()
        if how != "sds.read":
            opened.data.shape
    begin = time.perf_counter()
    if opened is None:
        opened = Direct() if how == "sds.read" else Opened()
    for _ in range(asked["times"]):
        found = opened.read(index, chosen)
    seconds = (time.perf_counter() - begin) / asked["times"]
    digest = hashlib.blake2b(np.ascontiguousarray(found)).hexdigest()
    print(json.dumps({"seconds": seconds, "digest": digest}), flush=True)
"""


class Reader:
    """A process that reads as it is told."""

    def __init__(
        self, path: Path, how: str, env: Mapping[str, str], shape: tuple[int, ...]
    ) -> None:
        self._shape = shape
        self._process = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(path), how],
            env=dict(env) | {"PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def _ask(self, **asked: object) -> dict[str, object]:
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the reader has no pipes")
        self._process.stdin.write(json.dumps({"close": False} | asked) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"a reader ended with {self._process.wait()}")
        return dict(json.loads(answer))

    def read(
        self, index: str, place: Mapping[str, int], *, times: int = 1, open_counts: bool = False
    ) -> tuple[float, str]:
        """Return the seconds of a read and a digest of its values."""
        answer = self._ask(
            index=index, place=place, times=times, open_counts=open_counts, shape=self._shape
        )
        return float(str(answer["seconds"])), str(answer["digest"])

    def close_file(self) -> None:
        """Close the file; the next read opens it."""
        self._ask(close=True)

    def end(self) -> None:
        """End the process."""
        self._process.communicate()


@dataclass(frozen=True, kw_only=True)
class Bench:
    """The file, its readers by name, and how often each read is made."""

    path: Path
    shape: tuple[int, ...]
    readers: dict[str, Reader]
    pairs: int
    random: random.Random

    def place(self) -> dict[str, int]:
        """Return a random place."""
        i, j, k = (self.random.randrange(length) for length in self.shape)
        return {"i": i, "j": j, "k": min(k, self.shape[2] - 8), "n": self.shape[0]}

    def take_turns(
        self, read: Callable[[Reader, dict[str, int]], tuple[float, str]], pairs: int
    ) -> dict[str, list[float]]:
        """Return the seconds of each reader, all at the same places, in a random order."""
        seconds: dict[str, list[float]] = {name: [] for name in self.readers}
        for _ in range(pairs):
            place = self.place()
            digests = set()
            for name in self.random.sample(list(self.readers), len(self.readers)):
                took, digest = read(self.readers[name], place)
                seconds[name].append(took)
                digests.add(digest)
            if len(digests) > 1:
                raise AssertionError(f"the readers differ at {place}")
        return seconds

    def repeated(self, index: str, *, times: int = 1) -> dict[str, list[float]]:
        """Time reads of a file that is open and cached, after one that does not count."""
        self.take_turns(lambda reader, place: reader.read(index, place), 1)
        return self.take_turns(
            lambda reader, place: reader.read(index, place, times=times), self.pairs
        )

    def first(self, index: str) -> dict[str, list[float]]:
        """Time the first read after opening a cached file."""

        def read(reader: Reader, place: dict[str, int]) -> tuple[float, str]:
            reader.close_file()
            return reader.read(index, place)

        return self.take_turns(read, self.pairs)

    def cold(self, index: str) -> dict[str, list[float]]:
        """Time opening and reading a file that is not cached."""

        def read(reader: Reader, place: dict[str, int]) -> tuple[float, str]:
            for each in self.readers.values():
                each.close_file()
            drop(self.path)
            return reader.read(index, place, open_counts=True)

        return self.take_turns(read, max(5, self.pairs // 2))


def judged(value: float, *, least: float = -math.inf, most: float = math.inf) -> str:
    """Return what a table says of a target."""
    return "met" if least <= value <= most else "missed"


def print_gain(
    pattern: Pattern, state: str, target: float | None, seconds: dict[str, list[float]]
) -> None:
    """Print how much faster than h5py each reader is."""
    native = seconds["h5py"]
    for name, taken in seconds.items():
        if name == "h5py":
            continue
        ratio = ratio_of(native, taken)
        verdict = "" if target is None else judged(ratio.median, least=target)
        print(
            f"| {pattern.name} | {state} | {name} | {statistics.median(native) * 1e3:.3f} | "
            f"{statistics.median(taken) * 1e3:.3f} | {ratio} | {target or ''} | {verdict} |",
            flush=True,
        )


def print_loss(pattern: Pattern, state: str, bound: float, seconds: dict[str, list[float]]) -> None:
    """Print how much longer than h5py the connector takes."""
    native, connected = seconds["h5py"], seconds["connector"]
    ratio = ratio_of(connected, native)
    print(
        f"| {pattern.name} | {state} | {statistics.median(native) * 1e6:.1f} | "
        f"{statistics.median(connected) * 1e6:.1f} | {ratio} | {bound} | "
        f"{judged(ratio.median, most=bound)} |",
        flush=True,
    )


def scan_s(path: Path) -> float:
    """Return the seconds of reading a file past the page cache, two parts at a time."""
    n_bytes = path.stat().st_size

    def read(parity: int) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
        with contextlib.closing(mmap.mmap(-1, SCAN_BYTES)) as buffer:
            for offset in range(parity * SCAN_BYTES, n_bytes, 2 * SCAN_BYTES):
                os.preadv(descriptor, [buffer], offset)
        os.close(descriptor)

    begin = time.perf_counter()
    threads = [threading.Thread(target=read, args=(parity,)) for parity in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - begin


def make_file(path: Path, shape: tuple[int, ...]) -> None:
    """Write the original, a plane at a time."""
    generator = np.random.default_rng(20261121)
    with h5py.File(path, "w") as file:
        data = file.create_dataset(DATASET, shape, "f8")
        for i in range(shape[0]):
            data[i] = generator.random(shape[1:])
    with path.open("rb") as file:
        os.fsync(file.fileno())
    settle(path)


@contextlib.contextmanager
def readers_of(
    path: Path, shape: tuple[int, ...], ways: Mapping[str, Mapping[str, str]]
) -> Iterator[dict[str, Reader]]:
    """Start the readers and end them."""
    readers = {
        name: Reader(path, "sds.read" if name == "sds.read" else "h5py", env, shape)
        for name, env in ways.items()
    }
    try:
        yield readers
    finally:
        for reader in readers.values():
            reader.end()


def print_gains(bench: Bench, *, is_cold: bool) -> None:
    """Print the table of reads in which SDS is to be faster."""
    print("| read | state | reader | h5py, ms | ms | times faster | target | |")
    print("|---|---|---|---|---|---|---|---|")
    for pattern in PATTERNS:
        if is_cold:
            print_gain(pattern, "cold", pattern.cold, bench.cold(pattern.index))
        else:
            print_gain(pattern, "first", pattern.first, bench.first(pattern.index))
    if is_cold:
        return
    for pattern in PATTERNS:
        bench.take_turns(lambda reader, place, p=pattern: reader.read(p.index, place), 2)
    for pattern in PATTERNS:
        print_gain(pattern, "repeated", pattern.repeated, bench.repeated(pattern.index))


def print_losses(bench: Bench, *, is_cold: bool) -> None:
    """Print the table of reads in which the connector is not to be slower."""
    print("\n| read | state | h5py, us | connector, us | ratio | bound | |")
    print("|---|---|---|---|---|---|---|")
    for pattern in OTHERS:
        if is_cold:
            print_loss(pattern, "cold", COLD_LOSS, bench.cold(pattern.index))
        else:
            seconds = bench.repeated(pattern.index, times=20)
            print_loss(pattern, "repeated", WARM_LOSS, seconds)


def print_one_run(bench: Bench) -> None:
    """Print what a read of one run takes more."""
    seconds = bench.repeated("[i, j, k // 2:k // 2 + 512]", times=5000)
    more = [a - b for a, b in zip(seconds["connector"], seconds["h5py"], strict=True)]
    low, high = np.quantile(more, (0.25, 0.75))
    median = statistics.median(more)
    print(
        f"\na read of one run, 4 KiB: {statistics.median(seconds['h5py']) * 1e6:.2f} us natively, "
        f"{median * 1e6:+.2f} us under the connector (quartiles {low * 1e6:+.2f}, "
        f"{high * 1e6:+.2f}), at most +{ONE_RUN_MORE_S * 1e6} us: "
        f"{judged(median, most=ONE_RUN_MORE_S)}"
    )


def print_scan(bench: Bench) -> None:
    """Print a cold plane across the fastest axis beside a scan of the file."""
    ratios = []
    for _ in range(max(3, bench.pairs // 4)):
        drop(bench.path)
        scanned = scan_s(bench.path)
        seconds = bench.take_turns(
            lambda reader, place: (
                [each.close_file() for each in bench.readers.values()],
                drop(bench.path),
                reader.read("[:, :, k]", place, open_counts=True),
            )[-1],
            1,
        )
        ratios.append((scanned, seconds["connector"][0]))
    scans, planes = zip(*ratios, strict=True)
    ratio = ratio_of(planes, scans)
    verdict = judged(ratio.median, most=SCAN_RATIO)
    print(
        f"\nplane across the fastest axis, cold, under the connector: {ratio} of a scan of the "
        f"file ({statistics.median(scans) * 1e3:.0f} ms), at most {SCAN_RATIO}: {verdict}"
    )


def print_replica(bench: Bench, home: Home) -> None:
    """Print a plane from a contiguous replica beside the original through h5py."""
    table = redirect(bench.path, [(f"/{DATASET}", (2, 0, 1))], home)
    (replica,) = (c.path for dataset in table.datasets for c in dataset.candidates)
    load(Path(replica))
    bench.readers["connector"].close_file()  # it finds the table when it opens the file
    bench.readers["sds.read"].close_file()
    seconds = bench.repeated("[:, :, k]")
    warm = ratio_of(seconds["h5py"], seconds["connector"])

    def read(reader: Reader, place: dict[str, int]) -> tuple[float, str]:
        for each in bench.readers.values():
            each.close_file()
        drop(bench.path)
        drop(Path(replica))
        return reader.read("[:, :, k]", place, open_counts=True)

    seconds = bench.take_turns(read, max(5, bench.pairs // 2))
    cold = ratio_of(seconds["h5py"], seconds["connector"])
    print(
        f"\na contiguous replica's plane over the original through h5py: warm {warm}, at least "
        f"3000: {judged(warm.median, least=3000)}; cold {cold}, at least 1000: "
        f"{judged(cold.median, least=1000)}"
    )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--mib", type=int, default=2048, help="size of the original")
    parser.add_argument("--pairs", type=int, default=15, help="of each read; cold half as many")
    parser.add_argument("--directory", type=Path, help="where to write; else a temporary one")
    parser.add_argument("--no-cold", action="store_true", help="leave the device alone")
    parser.add_argument("--no-replica", action="store_true", help="originals alone")
    options = parser.parse_args()
    shape = (max(66, math.ceil(options.mib / 8)), 256, 4096)
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        path, home = Path(directory, "original.h5"), Home(Path(directory, "home"))
        home.create()
        make_file(path, shape)
        load(path)
        ways = {
            "h5py": native_environment(),
            "connector": connector_environment(home.root),
            "sds.read": native_environment(SDS_HOME=home.root),
        }
        print(
            f"float64 {shape}, {path.stat().st_size / (1 << 30):.2f} GiB, {options.pairs} pairs\n"
        )
        with readers_of(path, shape, ways) as readers:
            bench = Bench(
                path=path, shape=shape, readers=readers, pairs=options.pairs,
                random=random.Random(1),  # noqa: S311 - places to read
            )  # fmt: skip
            print_gains(bench, is_cold=False)
            print_losses(bench, is_cold=False)
            print_one_run(bench)
            if not options.no_cold:
                print()
                print_gains(bench, is_cold=True)
                print_losses(bench, is_cold=True)
                print_scan(bench)
                load(path)
            if not options.no_replica:
                print_replica(bench, home)


if __name__ == "__main__":
    main()
