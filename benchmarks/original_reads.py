"""Reads of a contiguous original without any replica: h5py, h5py under the connector, `sds.read`.

``python -m benchmarks.original_reads [PART ...] [--read NAME ...] [--state STATE ...] [--quick]
[--mib N] [--pairs N] [--file PATH] [--calibrate]``. float64, (256, 256, 4096) where it is 2 GiB,
otherwise with another first axis. The readers are processes that take turns in a random order, each
with the same reads at random places, and must give the same bytes. A ratio is the median over the
pairs, with its 95 % bootstrap bounds; a target is met where the bound on its side meets it. SDS
plans by its built-in costs, or by what it measures in a minute, with ``--calibrate``.

Parts: ``gains`` reads in which SDS is to be faster; ``losses`` those in which the connector is not
to be slower; ``one-run`` what a read of one run takes more under the connector; ``files`` one read
of each of many small files by the connector, without a trace and with one; ``scan`` a plane across
the grain beside a scan of the file; ``floor`` cold reads beside the time that the device
takes for as many random blocks (fio, past the page cache, in turns); ``replica`` a plane from a
contiguous replica. All by default.

What a read from a replica takes depends on where its values go. A new array whose memory the
program has not used before costs a page fault for every 4 KiB, which takes longer than to copy
them. So repeated planes from a replica are read in three ways: ``kept``, 20 of them one after the
other into new arrays that are all kept; ``freed``, the same with each array given back before the
next but one read, as in a loop that binds one name; ``same``, into one array. ``single``, the only
way in other states, is one read into a new array after the other readers have had their turns,
whose working sets it finds in the caches. All stand beside plain ``pread`` calls for the same bytes
into arrays of the same kind, and beside h5py reading the replica by its name without SDS: the
limits of `sds.read` and of the connector. States are those of both files. SDS opens a replica with
the first read that comes from it, which is timed in ``first`` and ``cold``; the limits have it open
in all states. Its planes take too short a time to be made a quarter as often for the original's
sake.

States of a read:

first
    The file is in the page cache as reading it in order leaves it there (random reads leave smaller
    pieces, which take longer to map). It is open, and nothing but one element has been read. h5py's
    opening is not timed. `sds.read` has none of its own: what HDF5 finds out in h5py's opening it
    has to find out, too, and remembers as long as the file is the same. So its first read is timed
    where that is known, and this is what the target is held against.
opened
    The same with opening timed, on every side: the first `sds.read` of a file beside h5py's opening
    and first read. It has no target.
soon
    Repeated in a file that stays open, from the third such read on, at other places each time. What
    the engine maps of the file is entered into the page tables with the first loads, so much of it
    is still to be entered. It has no target.
repeated
    Repeated in a file that stays open, and that is mapped: planes across the fastest axis have been
    read before, which come near every byte of it.
cold
    The file is open, as in ``first``, and out of the page cache, which is checked.
again
    Repeated in a file that stays open, as its dataset does, and out of the page cache before each
    read, which is checked. Of ``replica`` alone: it stays open, too.
opened-cold
    The same with opening timed. It has no target.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import h5py
import numpy as np

from benchmarks.read_engine import drop, fio, load, ratio_of
from sds.hdf5.identity import SETTLED_S
from sds.home import Home
from tests.redirected import redirect, settle
from tests.under_connector import ROOT, connector_environment, native_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

MIB = 1 << 20
DATASET = "cube"
SCAN_BYTES = 4 * MIB
PARTS = ("gains", "losses", "one-run", "files", "scan", "floor", "replica")
STATES = ("first", "opened", "soon", "repeated", "cold", "again", "opened-cold")
# A turn takes about so long, and reads that take longer than the other are long.
TURN_S, LONG_S = 5e-3, 0.4
# Where a few percent count, a turn is the least of so many rounds: other programs only add time.
ROUNDS = 20


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """A read, and how many times faster than h5py SDS is to be; None: no target.

    Attributes
    ----------
    index
        The text of a selection in Python, in which i, j and k are a place and n the first extent;
        empty for a thousand random points.
    blocks
        What a device has to give at least of 256 planes: so many blocks of so many bytes.
    """

    name: str
    index: str
    repeated: float | None = None
    first: float | None = None
    cold: float | None = None
    blocks: tuple[int, int] | None = None


PATTERNS = (
    Pattern(name="plane across the fastest axis", index="[:, :, k]", repeated=40, first=6),
    Pattern(name="slab of 8 of them", index="[:, :, k:k + 8]", repeated=30, first=6),
    Pattern(
        name="line across the middle axis", index="[i, :, k]",
        repeated=10, first=3, cold=2.5, blocks=(256, 4096),
    ),
    Pattern(name="line across the slowest axis", index="[:, j, k]", cold=10, blocks=(256, 4096)),
    Pattern(name="1000 random points", index="", repeated=10, first=5, cold=8, blocks=(1000, 4096)),
    Pattern(
        name="unaligned cube of 64",
        index="[i % (n - 64):i % (n - 64) + 64, j % 192:j % 192 + 64, k % 4032 + 1:k % 4032 + 65]",
        repeated=6, first=4, cold=4, blocks=(4096, 4096),
    ),
    Pattern(name="plane across the middle axis", index="[:, j, :]", cold=4, blocks=(256, 32768)),
)  # fmt: skip

# Reads in which HDF5 is not to be beaten: at most 5 % slower warm, 10 % cold. A row is one run.
OTHERS = (
    Pattern(name="row", index="[i, j, :]"),
    Pattern(name="plane across the slowest axis", index="[i]"),
    Pattern(name="every second element of a row", index="[i, j, ::2]"),
    Pattern(name="four rows, every third element", index="[i, j % 252:j % 252 + 4, ::3]"),
    Pattern(name="two planes apart", index="[i % (n // 2)::n // 2]"),
    Pattern(name="every second row of a plane", index="[i, ::2, :]"),
    Pattern(name="every 512th element of a plane", index="[i, :, ::512]"),
)
# Small files, and their extent: 1 MiB of float64.
N_FILES, FILE_SHAPE = 200, (64, 2048)
WARM_LOSS, COLD_LOSS, ONE_RUN_MORE_S, SCAN_RATIO = 1.05, 1.10, 0.5e-6, 1.2
# Planes from a replica, times faster than from the original.
PLANE_TARGETS = {"warm": 3000, "cold": 1000}

WORKER = """
import gc, hashlib, json, os, sys, time
import h5py, numpy as np

path, how = sys.argv[1:3]
if how == "pread":
    offset = int(sys.argv[3])
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
    def read_into(self, out, index):
        self.data.read_direct(out, index)
    def read(self, index, chosen):
        if chosen is None:
            return self.data[index]
        out = np.empty(len(chosen))
        space = self.data.id.get_space()
        space.select_elements(chosen)
        self.data.id.read(h5py.h5s.create_simple(out.shape), space, out)
        return out
    def prepared(self, index):
        start, count = zip(*((i.start, i.stop - i.start) if isinstance(i, slice) else (i, 1)
                             for i in index))
        out, space = np.empty(count), self.data.id.get_space()
        space.select_hyperslab(start, count)
        memory = h5py.h5s.create_simple(count)
        return lambda: self.data.id.read(memory, space, out)
    def close(self):
        self.file.close()

def timed(read):
    begin = time.perf_counter()
    for _ in range(100):
        read()
    return (time.perf_counter() - begin) / 100

class Direct:
    def read(self, index, chosen):
        if chosen is None:
            return sds.read(path, "/cube", index)
        return sds.read(path, "/cube", points=chosen)
    def read_into(self, out, index):
        sds.read(path, "/cube", index, out)
    def close(self):
        sds.forget()

class Planes:
    # [:, :, k] of a replica, by one call
    def __init__(self):
        self.fd = os.open(path, os.O_RDONLY)
    def read(self, index, chosen):
        out = np.empty(shape)
        if chosen is None and index != (0, 0, 0):
            self.read_into(out, index)
        return out
    def read_into(self, out, index):
        if os.preadv(self.fd, [out], offset + index[2] * out.nbytes) != out.nbytes:
            raise OSError("a short read")
    def close(self):
        os.close(self.fd)

class Turned(Opened):
    # [:, :, k] of a replica, by h5py
    def read(self, index, chosen):
        return self.data[index[2]]
    def read_into(self, out, index):
        self.data.read_direct(out, (index[2],))

def once(name, k):
    begin = time.perf_counter()
    with h5py.File(name, "r") as file:
        data = file["cube"]
        opened = time.perf_counter()
        values = data[:, k]
        end = time.perf_counter()
    return values, end - opened, time.perf_counter() - begin

def opened_now():
    return {"sds.read": Direct, "pread": Planes, "turned": Turned}.get(how, Opened)()

opened = None
shape = (1,)
gc.disable()
for line in sys.stdin:
    asked = json.loads(line)
    if asked["close"]:
        if opened is not None:
            opened.close()
        opened = None
        gc.collect()
        print("{}", flush=True)
        continue
    if asked["open"]:
        opened = opened_now()
        opened.read((0, 0, 0), None)
        print("{}", flush=True)
        continue
    reads = [
        (eval("Place()" + asked["index"], {"Place": Place, **place}), None) if asked["index"]
        else (None, points(place["i"], asked["shape"]))
        for place in asked["places"]
    ]
    if asked["files"]:
        found, seconds, whole = zip(*(once(name, reads[0][0][2]) for name in asked["files"]))
        digest = hashlib.blake2b(np.concatenate(found)).hexdigest()
        print(json.dumps({"seconds": float(np.median(seconds)), "digest": digest,
                          "whole": float(np.median(whole))}), flush=True)
        continue
    if asked["again_and_again"]:
        read = opened.prepared(reads[0][0])
        seconds = min(timed(read) for _ in range(asked["rounds"]))
        print(json.dumps({"seconds": seconds, "digest": ""}), flush=True)
        continue
    shape = asked["shape"][:2]
    if asked["into"] == "same":
        found = [np.zeros(shape)]
        begin = time.perf_counter()
        for index, _ in reads:
            opened.read_into(found[0], index)
        rounds = [(time.perf_counter() - begin) / len(reads)]
    elif asked["into"] == "freed":
        begin = time.perf_counter()
        for index, _ in reads:
            values = opened.read(index, None)
        rounds = [(time.perf_counter() - begin) / len(reads)]
        found = [values]
        del values
    else:
        rounds = []
    while len(rounds) < asked["rounds"]:
        found = []
        begin = time.perf_counter()
        if opened is None:
            opened = opened_now()
        for index, chosen in reads:
            found.append(opened.read(index, chosen))
        rounds.append((time.perf_counter() - begin) / len(reads))
    seconds = min(rounds)
    digest = hashlib.blake2b()
    if asked["into"]:
        del found[:-1]
    for values in found:
        digest.update(np.ascontiguousarray(values))
    found.clear()
    print(json.dumps({"seconds": seconds, "digest": digest.hexdigest()}), flush=True)
"""

Places: TypeAlias = "list[dict[str, int]]"


class Reader:
    """A process that reads as it is told."""

    def __init__(
        self,
        path: Path,
        how: str,
        env: Mapping[str, str],
        shape: tuple[int, ...],
        *more: object,
    ) -> None:
        self._shape = shape
        self._process = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(path), how, *map(str, more)],
            env=dict(env) | {"PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def _ask(self, **asked: object) -> dict[str, object]:
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the reader has no pipes")
        self._process.stdin.write(
            json.dumps({"close": False, "open": False, "files": []} | asked) + "\n"
        )
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"a reader ended with {self._process.wait()}")
        return dict(json.loads(answer))

    def read(
        self,
        index: str,
        places: Places,
        *,
        rounds: int = 1,
        again_and_again: bool = False,
        into: str = "",
    ) -> tuple[float, str]:
        """Return the seconds of a read and a digest of all values.

        Where the file is not open, opening it counts. Of several rounds, it is the least time that
        does. Again and again: one read by HDF5's function alone. Into ``kept``, ``freed`` or
        ``same`` arrays: planes across the fastest axis, of which the last one makes the digest.
        """
        answer = self._ask(
            index=index, places=places, rounds=rounds, again_and_again=again_and_again,
            shape=self._shape, into=into,
        )  # fmt: skip
        return float(str(answer["seconds"])), str(answer["digest"])

    def read_files(self, files: Sequence[Path], place: dict[str, int]) -> tuple[float, float, str]:
        """Return the median seconds of one read of each, with opening and closing; a digest."""
        answer = self._ask(
            index="[i, j, k]", places=[place], again_and_again=False, shape=self._shape,
            files=list(map(str, files)),
        )  # fmt: skip
        return float(str(answer["seconds"])), float(str(answer["whole"])), str(answer["digest"])

    def open_file(self) -> None:
        """Open the file, and read one element."""
        self._ask(open=True)

    def close_file(self) -> None:
        """Close the file."""
        self._ask(close=True)

    def end(self) -> None:
        """End the process."""
        self._process.communicate()


@dataclass(frozen=True, kw_only=True)
class Bench:
    """The file, its readers by name, and how often each read is made.

    Attributes
    ----------
    long_pairs
        How often reads are made at most that take long.
    replicas
        Files that are cached where the original is.
    """

    path: Path
    shape: tuple[int, ...]
    readers: dict[str, Reader]
    pairs: int
    long_pairs: int
    random: random.Random
    replicas: tuple[Path, ...] = ()

    def places(self, n: int = 1) -> Places:
        """Return random places."""
        found = []
        for _ in range(n):
            i, j, k = (self.random.randrange(length) for length in self.shape)
            found.append({"i": i, "j": j, "k": min(k, self.shape[2] - 8), "n": self.shape[0]})
        return found

    def take_turns(
        self,
        read: Callable[[Reader, Places], tuple[float, str]],
        pairs: int | None = None,
        n_places: int = 1,
    ) -> dict[str, list[float]]:
        """Return the seconds of each reader, all at the same places, in a random order."""
        seconds: dict[str, list[float]] = {name: [] for name in self.readers}
        pairs = pairs or self.pairs
        while len(seconds["h5py"]) < pairs:
            places = self.places(n_places)
            digests = set()
            for name in self.random.sample(list(self.readers), len(self.readers)):
                took, digest = read(self.readers[name], places)
                seconds[name].append(took)
                digests.add(digest)
            if len(digests) > 1:
                raise AssertionError(f"the readers differ at {places}")
            if seconds["h5py"][0] * n_places > LONG_S:
                pairs = min(pairs, self.long_pairs)
        return seconds

    def close(self) -> None:
        """Close the file in every reader: what one has mapped stays in the page cache."""
        for reader in self.readers.values():
            reader.close_file()

    def cache(self) -> None:
        """Have the page cache hold the files as they are read in order."""
        self.close()
        self.empty_cache()
        for path in (self.path, *self.replicas):
            load(path)

    def empty_cache(self) -> None:
        """Drop the files from the page cache."""
        for path in (self.path, *self.replicas):
            evict(path)

    def map(self) -> None:
        """Have all of the file read that the engine maps."""
        self.take_turns(lambda reader, places: reader.read("[:, :, k]", places), 3)

    def repeated(self, index: str, *, rounds: int = 1) -> dict[str, list[float]]:
        """Time reads of a file that is open and cached."""
        native = self.take_turns(lambda reader, places: reader.read(index, places), 2)["h5py"]
        n_places = max(1, min(50, int(TURN_S / min(native))))
        return self.take_turns(
            lambda reader, places: reader.read(index, places, rounds=rounds), n_places=n_places
        )

    def soon(self, index: str) -> dict[str, list[float]]:
        """Time reads of a file that was opened not long ago."""

        def read(reader: Reader, places: Places) -> tuple[float, str]:
            reader.close_file()
            reader.open_file()
            reader.read(index, places[:2])
            return reader.read(index, places[2:])

        return self.take_turns(read, n_places=4)

    def repeated_into(self, index: str, into: str, n_places: int) -> dict[str, list[float]]:
        """Time repeated planes in arrays of a kind, of which h5py reads the last one alone."""
        self.close()
        self.take_turns(lambda reader, places: reader.read(index, places), 1)

        def read(reader: Reader, places: Places) -> tuple[float, str]:
            if reader is self.readers["h5py"]:
                places = places[-1:]
            return reader.read(index, places, into=into)

        return self.take_turns(read, n_places=n_places)

    def first(self, index: str, *, open_counts: bool = False) -> dict[str, list[float]]:
        """Time the first read of a cached file."""

        def read(reader: Reader, places: Places) -> tuple[float, str]:
            reader.close_file()
            if not open_counts:
                reader.open_file()
            return reader.read(index, places)

        return self.take_turns(read)

    def cold(self, index: str, *, open_counts: bool = False) -> dict[str, list[float]]:
        """Time the first read of a file that is not cached."""

        def read(reader: Reader, places: Places) -> tuple[float, str]:
            self.close()
            if not open_counts:
                reader.open_file()
            self.empty_cache()
            return reader.read(index, places)

        return self.take_turns(read)

    def again(self, index: str) -> dict[str, list[float]]:
        """Time reads of a file that stays open and is not cached."""
        self.close()
        self.take_turns(lambda reader, places: reader.read(index, places), 1)

        def read(reader: Reader, places: Places) -> tuple[float, str]:
            self.empty_cache()
            return reader.read(index, places)

        return self.take_turns(read)


def pages_in_cache(path: Path) -> int:
    """Return how many pages of a file are in the page cache, without a look that loads any."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    n_bytes = path.stat().st_size
    state = ctypes.create_string_buffer(math.ceil(n_bytes / mmap.PAGESIZE))
    with path.open("rb") as file:
        address = libc.mmap(None, n_bytes, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
    if address == ctypes.c_void_p(-1).value or libc.mincore(address, n_bytes, state) != 0:
        raise OSError(ctypes.get_errno(), f"cannot see what of {path} is cached")
    libc.munmap(address, n_bytes)
    return int(np.count_nonzero(np.frombuffer(state, np.uint8)[: len(state)] & 1))


def evict(path: Path) -> None:
    """Drop a file from the page cache, with what is still on its way there."""
    give_up_s = time.monotonic() + 10
    drop(path)
    while n := pages_in_cache(path):
        if time.monotonic() > give_up_s:
            raise RuntimeError(
                f"{n} pages of {path} stay in the page cache: end what has it mapped, or writes it"
            )
        time.sleep(0.01)
        drop(path)


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
        verdict = "" if target is None else judged(ratio.low, least=target)
        print(
            f"| {pattern.name} | {state} | {name} | {statistics.median(native) * 1e3:.3f} | "
            f"{statistics.median(taken) * 1e3:.3f} | {ratio} | {target or ''} | {verdict} |",
            flush=True,
        )


def print_loss(pattern: Pattern, state: str, bound: float, seconds: dict[str, list[float]]) -> None:
    """Print how much longer than h5py the connector takes."""
    native, connected = seconds["h5py"], seconds["connector"]
    ratio = ratio_of(connected, native)
    more_s = float(np.median(np.subtract(connected, native)))
    is_within = ratio.high <= bound or (pattern.name == "row" and more_s <= ONE_RUN_MORE_S)
    print(
        f"| {pattern.name} | {state} | {statistics.median(native) * 1e6:.1f} | "
        f"{statistics.median(connected) * 1e6:.1f} | {ratio} | {bound} | "
        f"{'met' if is_within else 'missed'} |",
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


def print_gains(bench: Bench, patterns: Sequence[Pattern], states: Collection[str]) -> None:
    """Print the table of reads in which SDS is to be faster."""
    print("\n| read | state | reader | h5py, ms | ms | times faster | target | |")
    print("|---|---|---|---|---|---|---|---|")
    ways: dict[str, Callable[[str], dict[str, list[float]]]] = {
        "first": bench.first,
        "opened": lambda index: bench.first(index, open_counts=True),
        "soon": bench.soon,
        "repeated": bench.repeated,
        "cold": bench.cold,
        "opened-cold": lambda index: bench.cold(index, open_counts=True),
    }
    for state, measure in ways.items():
        if state not in states:
            continue
        if "cold" not in state:
            bench.cache()
        if state == "repeated":
            bench.map()
        for pattern in patterns:
            targets = {
                "first": pattern.first, "repeated": pattern.repeated, "cold": pattern.cold
            }  # fmt: skip
            print_gain(pattern, state, targets.get(state), measure(pattern.index))


def print_losses(bench: Bench, patterns: Sequence[Pattern], states: Collection[str]) -> None:
    """Print the table of reads in which the connector is not to be slower."""
    print("\n| read | state | h5py, us | connector, us | ratio | bound | |")
    print("|---|---|---|---|---|---|---|")
    if "repeated" in states:
        bench.cache()
        for pattern in patterns:
            print_loss(pattern, "repeated", WARM_LOSS, bench.repeated(pattern.index, rounds=ROUNDS))
    if "cold" in states:
        for pattern in patterns:
            print_loss(pattern, "cold", COLD_LOSS, bench.cold(pattern.index))


def print_one_run(bench: Bench) -> None:
    """Print what a read of one run takes more."""
    bench.cache()
    for name in ("h5py", "connector"):
        bench.readers[name].close_file()
        bench.readers[name].open_file()
    seconds: dict[str, list[float]] = {"h5py": [], "connector": []}
    for _ in range(bench.pairs):
        places = bench.places()
        for name in bench.random.sample(list(seconds), len(seconds)):
            took, _ = bench.readers[name].read(
                "[i, j, k // 2:k // 2 + 512]", places, rounds=10 * ROUNDS, again_and_again=True
            )
            seconds[name].append(took)
    more = np.subtract(seconds["connector"], seconds["h5py"])
    drawn = np.random.default_rng(1).integers(0, len(more), (2000, len(more)))
    low, high = np.quantile(np.median(more[drawn], axis=1), (0.025, 0.975)) * 1e6
    median = float(np.median(more))
    print(
        f"\na read of one run, 4 KiB: {statistics.median(seconds['h5py']) * 1e6:.2f} us natively, "
        f"{median * 1e6:+.2f} us [{low:+.2f}, {high:+.2f}] under the connector, at most "
        f"+{ONE_RUN_MORE_S * 1e6} us: {judged(high, most=ONE_RUN_MORE_S * 1e6)}"
    )


def print_files(bench: Bench, home: Home, directory: Path) -> None:
    """Print what one read of each of many small files takes more under the connector."""
    files = [directory / f"{number}.h5" for number in range(N_FILES)]
    generator = np.random.default_rng(20261122)
    for each in files:
        with h5py.File(each, "w") as file:
            file[DATASET] = generator.random(FILE_SHAPE)
        settle(each)
    ways = {
        "h5py": native_environment(),
        "without a trace": connector_environment(home.root, SDS_TRACE=0),
        "with a trace": connector_environment(home.root),
    }
    reads: dict[str, list[float]] = {name: [] for name in ways}
    whole: dict[str, list[float]] = {name: [] for name in ways}
    with readers_of(files[0], FILE_SHAPE, ways) as readers:
        for turn in range(-2, bench.pairs):  # two to get warm
            place = {"i": 0, "j": 0, "k": bench.random.randrange(FILE_SHAPE[1])}
            digests = set()
            for name in bench.random.sample(list(ways), len(ways)):
                read_s, whole_s, digest = readers[name].read_files(files, place)
                digests.add(digest)
                if turn >= 0:
                    reads[name].append(read_s)
                    whole[name].append(whole_s)
            if len(digests) > 1:
                raise AssertionError(f"the readers differ at {place}")
    print(
        f"\n[:, k] of each of {N_FILES} files of {FILE_SHAPE}: "
        f"{statistics.median(reads['h5py']) * 1e6:.1f} us natively, with opening and closing "
        f"{statistics.median(whole['h5py']) * 1e6:.1f}"
    )
    for name in list(ways)[1:]:
        ratio = ratio_of(reads[name], reads["h5py"])
        print(
            f"under the connector, {name}: {statistics.median(reads[name]) * 1e6:.1f} us, {ratio}, "
            f"at most {WARM_LOSS}: {judged(ratio.high, most=WARM_LOSS)}; with opening and closing "
            f"{ratio_of(whole[name], whole['h5py'])}"
        )


def print_scan(bench: Bench) -> None:
    """Print a cold plane across the fastest axis beside a scan of the file."""
    scans: list[float] = []
    planes: dict[str, list[float]] = {name: [] for name in bench.readers}
    for _ in range(max(5, bench.pairs // 4)):
        bench.close()
        evict(bench.path)
        scans.append(scan_s(bench.path))
        places = bench.places()
        for name, reader in bench.readers.items():
            bench.close()
            reader.open_file()
            evict(bench.path)
            planes[name].append(reader.read("[:, :, k]", places)[0])
    print(f"\na scan of the file past the page cache: {statistics.median(scans) * 1e3:.0f} ms")
    for name, taken in planes.items():
        ratio = ratio_of(taken, scans)
        verdict = "" if name == "h5py" else f", at most {SCAN_RATIO}: " + judged(
            ratio.high, most=SCAN_RATIO
        )  # fmt: skip
        print(f"plane across the fastest axis, cold, {name}: {ratio} of a scan{verdict}")


def print_floors(bench: Bench, patterns: Sequence[Pattern]) -> None:
    """Print cold reads beside what the device takes for as many random blocks."""
    print("\n| read | device, ms | h5py / device | target | reader / device | |")
    print("|---|---|---|---|---|---|")
    one = replace(bench, pairs=1)
    for pattern in patterns:
        if pattern.blocks is None or pattern.cold is None:
            continue
        n, block = pattern.blocks
        job = ("--rw=randread", f"--bs={block}", f"--io_size={max(32 * MIB, n * block)}")
        floors: list[float] = []
        seconds: dict[str, list[float]] = {name: [] for name in bench.readers}
        for _ in range(bench.pairs):
            for name, taken in one.cold(pattern.index).items():
                seconds[name] += taken
            rates = [
                fio(bench.path, *job, f"--iodepth={depth}")["requests"] for depth in (64, 128, 256)
            ]
            floors.append(n / max(rates))
        ceiling = ratio_of(seconds["h5py"], floors)
        readers = ", ".join(
            f"{name} {ratio_of(taken, floors)}" for name, taken in seconds.items() if name != "h5py"
        )
        verdict = "in reach" if ceiling.low >= pattern.cold else "beyond the device"
        print(
            f"| {pattern.name} | {statistics.median(floors) * 1e3:.2f} | {ceiling} | "
            f"{pattern.cold} | {readers} | {verdict} |",
            flush=True,
        )


def print_replica(bench: Bench, home: Home, states: Collection[str]) -> None:
    """Print a plane from a contiguous replica beside the original through h5py."""
    table = redirect(bench.path, [(f"/{DATASET}", (2, 0, 1))], home, always=False)
    (replica,) = (c for dataset in table.datasets for c in dataset.candidates)
    time.sleep(SETTLED_S)  # a table that was written just now is looked up at every read
    limits = {
        "h5py on the replica": Reader(replica.path, "turned", native_environment(), bench.shape),
        "pread": Reader(
            replica.path, "pread", native_environment(), bench.shape, replica.data_offset_bytes
        ),
    }
    bench = replace(
        bench,
        readers=bench.readers | limits,
        replicas=(replica.path,),
        long_pairs=bench.pairs,
    )
    print("\n| plane of a replica | cache | into | pairs | original, ms | reader | us ", end="")
    print("| times faster | target | |\n|---|---|---|---|---|---|---|---|---|---|")
    plane = "[:, :, k]"
    bench.cache()
    if "first" in states:
        print_planes("first", "warm", "single", bench.first(plane))
    if "repeated" in states:
        for into in ("kept", "freed", "same"):
            print_planes("repeated", "warm", into, bench.repeated_into(plane, into, 20))
        print_planes("repeated", "warm", "single", bench.repeated_into(plane, "kept", 1))
    if "cold" in states:
        print_planes("first", "cold", "single", bench.cold(plane))
    if "again" in states:
        print_planes("again", "cold", "single", bench.again(plane))
    for reader in limits.values():
        reader.end()


def print_planes(state: str, cache: str, into: str, seconds: dict[str, list[float]]) -> None:
    """Print how much faster planes come from a replica than from the original through h5py."""
    native, target = seconds["h5py"], PLANE_TARGETS[cache]
    for name in ("connector", "sds.read", "h5py on the replica", "pread"):
        ratio = ratio_of(native, seconds[name])
        is_limit = name not in ("connector", "sds.read")
        verdict = "the limit" if is_limit else judged(ratio.low, least=target)
        print(
            f"| {state} | {cache} | {into} | {len(native)} | {statistics.median(native) * 1e3:.0f} "
            f"| {name} | {statistics.median(seconds[name]) * 1e6:.1f} | {ratio} | {target} "
            f"| {verdict} |",
            flush=True,
        )


def chosen(patterns: Sequence[Pattern], names: Sequence[str] | None) -> list[Pattern]:
    """Return those whose names hold one of these."""
    return [each for each in patterns if names is None or any(n in each.name for n in names)]


def calibrate(directory: str | None, env: Mapping[str, str]) -> None:
    """Have a directory's file system measured, where one is given, as users do."""
    if directory is not None:
        subprocess.run(
            [sys.executable, "-m", "sds.cli", "calibrate", directory], env=env, check=True
        )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", nargs="*", help=f"of {', '.join(PARTS)}; all by default")
    parser.add_argument("--read", action="append", metavar="NAME", help="whose names hold this")
    parser.add_argument("--state", action="append", choices=STATES, help="all by default")
    parser.add_argument("--mib", type=int, default=2048, help="size of the original")
    parser.add_argument(
        "--pairs", type=int, default=20, help="of each read; long ones a quarter, but for replicas"
    )
    parser.add_argument("--quick", action="store_true", help="5 pairs, states with targets alone")
    parser.add_argument("--file", type=Path, help="the original, kept; written where it is not")
    parser.add_argument("--calibrate", action="store_true", help="plan by measured costs")
    options = parser.parse_args()
    parts = options.part or PARTS
    if unknown := set(parts) - set(PARTS):
        parser.error(f"no part is called {unknown.pop()!r}; there are {', '.join(PARTS)}")
    states = options.state or (("first", "repeated", "cold", "again") if options.quick else STATES)
    shape = (max(66, math.ceil(options.mib / 8)), 256, 4096)
    with tempfile.TemporaryDirectory(dir=options.file and options.file.parent) as directory:
        path = options.file or Path(directory, "original.h5")
        home = Home(Path(directory, "home"))
        home.create()
        if not path.exists():
            make_file(path, shape)
        with h5py.File(path) as file:
            shape = file[DATASET].shape
        ways = {
            "h5py": native_environment(),
            "connector": connector_environment(home.root),
            "sds.read": native_environment(SDS_HOME=home.root),
        }
        calibrate(directory if options.calibrate else None, ways["sds.read"])
        pairs = 5 if options.quick else options.pairs
        print(
            f"float64 {shape}, {path.stat().st_size / (1 << 30):.2f} GiB, {pairs} pairs, load "
            f"{', '.join(f'{n:.1f}' for n in os.getloadavg())}"
        )
        with readers_of(path, shape, ways) as readers:
            bench = Bench(
                path=path, shape=shape, readers=readers, pairs=pairs,
                long_pairs=max(5, pairs // 4),
                random=random.Random(1),  # noqa: S311 - places to read
            )  # fmt: skip
            if "gains" in parts:
                print_gains(bench, chosen(PATTERNS, options.read), states)
            if "losses" in parts:
                print_losses(bench, chosen(OTHERS, options.read), states)
            if "one-run" in parts:
                print_one_run(bench)
            if "files" in parts:
                print_files(bench, home, Path(directory))
            if "scan" in parts:
                print_scan(bench)
            if "floor" in parts:
                print_floors(bench, chosen(PATTERNS, options.read))
            if "replica" in parts:
                print_replica(bench, home, states)


if __name__ == "__main__":
    main()
