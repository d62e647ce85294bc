"""A mounted array of disks that makes reads wait, and whether it waits as long as it should.

``python -m benchmarks.disk_array [--mount DIR]``

`disk_array.c` is a FUSE file system over files of this machine: it deals every read to the disks of
a striped array and returns when the slowest of them would. So experiments that need an array whose
stripes are known run on any Linux machine with /dev/fuse, libfuse 3 and a C compiler (Debian:
``apt-get install fuse3 libfuse3-dev pkg-config``). The disks are emulated; the waits are real.

Without --mount, the table compares reads through the mount with the time that the disks were busy
with them, and with what the law of the disks says of such reads: sequential ones, random ones, and
random ones many at a time. With --mount, the array stays mounted in DIR until interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sds.geometry import RaidLayout, StripeLayout

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(__file__).with_suffix(".c")
MIB = 1 << 20
FILE_BYTES = 1 << 30
_MOUNTING_S = 10.0


class NotMountedError(Exception):
    """The array cannot be mounted here; says why and what to do."""


@dataclass(frozen=True, kw_only=True)
class DiskArray:
    """A striped array of disks; times and rates of one disk, divided by `speed`.

    The default is two OSTs of four data disks, of the kind that turns 7,200 times a minute
    (settling 1 ms, full stroke 16 ms, half a turn 4.17 ms, 60 MB/s near the hub), 64 KiB dealt to
    each in turn, twice as fast, so that experiments end. More or faster disks than these would
    wait less than the file system itself takes.
    """

    n_osts: int = 2
    data_disks: int = 4
    stripe_bytes: int = MIB
    unit_bytes: int = 64 << 10
    min_request_bytes: int = 4 << 10
    settle_s: float = 1e-3
    stroke_s: float = 16e-3
    rotation_s: float = 4.17e-3
    bytes_per_s: int = 60_000_000
    capacity_bytes: int = 64 << 30
    speed: float = 2.0

    @property
    def stripes(self) -> StripeLayout:
        """How the files are striped."""
        return StripeLayout(stripe_size_bytes=self.stripe_bytes, stripe_count=self.n_osts)

    @property
    def raid(self) -> RaidLayout:
        """How an OST deals bytes to its disks."""
        return RaidLayout(
            unit_bytes=self.unit_bytes,
            data_disks=self.data_disks,
            min_request_bytes=self.min_request_bytes,
        )

    def seek_s(self, distance_bytes: int) -> float:
        """Return the seconds from one place of a disk to another."""
        share = min(1.0, distance_bytes / self.capacity_bytes)
        stroke_s = self.settle_s + (self.stroke_s - self.settle_s) * share**0.5
        return (stroke_s + self.rotation_s) / self.speed

    def options(self, backing: Path) -> list[str]:
        """Return the program's options."""
        return [
            f"--backing={backing}",
            f"--osts={self.n_osts}",
            f"--disks={self.data_disks}",
            f"--stripe={self.stripe_bytes}",
            f"--unit={self.unit_bytes}",
            f"--min-request={self.min_request_bytes}",
            f"--settle-us={self.settle_s * 1e6}",
            f"--stroke-us={self.stroke_s * 1e6}",
            f"--rotation-us={self.rotation_s * 1e6}",
            f"--rate={self.bytes_per_s}",
            f"--capacity={self.capacity_bytes}",
            f"--speed={self.speed}",
        ]


@cache
def build(directory: Path) -> Path:
    """Compile the file system; return the program."""
    tools = [shutil.which(name) for name in ("pkg-config", "fusermount3")]
    query = [tools[0] or "false", "--cflags", "--libs", "fuse3"]
    flags = subprocess.run(query, capture_output=True, text=True, check=False)
    if flags.returncode or tools[1] is None:
        raise NotMountedError("libfuse 3 is missing: apt-get install fuse3 libfuse3-dev pkg-config")
    program = directory / "disk_array"
    command = [os.environ.get("CC", "cc"), "-std=c17", "-O2", str(SOURCE), "-o", str(program)]
    subprocess.run([*command, *flags.stdout.split(), "-lm", "-lpthread"], check=True)
    return program


@contextmanager
def mounted(array: DiskArray, *, at: Path | None = None) -> Iterator[Path]:
    """Mount an array, empty, in a folder of its own or at `at`; unmount and remove it after.

    Raises
    ------
    NotMountedError
        If this machine has no FUSE, or may not mount.
    """
    with tempfile.TemporaryDirectory(prefix="sds-disk-array-") as made:
        directory = Path(made)
        program = build(directory)
        backing, mount = directory / "files", at or directory / "mounted"
        backing.mkdir()
        mount.mkdir(exist_ok=True)
        log = directory / "log"
        with log.open("w") as said:
            server = subprocess.Popen(
                [program, *array.options(backing), "-f", str(mount)], stdout=said, stderr=said
            )
        try:
            _wait_for(mount, server, log)
            yield mount
        finally:
            unmount = [shutil.which("fusermount3") or "umount", "-q", "-u", "-z", str(mount)]
            subprocess.run(unmount, check=False)
            with suppress(subprocess.TimeoutExpired):
                server.wait(_MOUNTING_S)
            server.kill()
            server.wait()


def _wait_for(mount: Path, server: subprocess.Popen[bytes], log: Path) -> None:
    """Return once the array is mounted."""
    end = time.monotonic() + _MOUNTING_S
    while not (mount / ".disks").exists():
        if server.poll() is not None or time.monotonic() > end:
            said = log.read_text().strip() or "it did not appear"
            raise NotMountedError(f"the disk array cannot be mounted in {mount}: {said}")
        time.sleep(0.02)


@dataclass(frozen=True)
class DiskCount:
    """What one disk did."""

    ost: int
    disk: int
    requests: int
    seeks: int
    bytes: int
    busy_s: float


def disk_counts(mount: Path) -> list[DiskCount]:
    """Return what every disk did since it was mounted."""
    return [DiskCount(**entry) for entry in json.loads((mount / ".disks").read_text())]


def busy_s(mount: Path) -> np.ndarray:
    """Return the seconds that each disk has been busy."""
    return np.array([disk.busy_s for disk in disk_counts(mount)])


@dataclass(frozen=True)
class Reads:
    """Offsets read, of a length, some at a time."""

    name: str
    offsets: list[int]
    length: int
    at_a_time: int = 1


def designed(array: DiskArray, n: int) -> list[Reads]:
    """Return the reads of the table."""
    random = np.random.default_rng(1)
    units = FILE_BYTES // array.unit_bytes
    places = [int(u) * array.unit_bytes for u in random.permutation(units)[:n]]
    whole = [i * MIB for i in range(n)]
    return [
        Reads("sequential, 1 MiB", whole, MIB),
        Reads("random, 4 KiB", places, 4 << 10),
        Reads("random, 64 KiB", places, 64 << 10),
        Reads("random, 4 KiB, 32 at a time", places, 4 << 10, 32),
    ]


def measure(mount: Path, file: Path, reads: Reads) -> tuple[float, float]:
    """Return the seconds that reads took, and that the busiest disk was busy with them."""
    before = busy_s(mount)
    descriptor = os.open(file, os.O_RDONLY)
    try:
        begin = time.perf_counter()
        with ThreadPoolExecutor(reads.at_a_time) as pool:
            for got in pool.map(lambda at: os.pread(descriptor, reads.length, at), reads.offsets):
                if len(got) != reads.length:
                    raise RuntimeError(f"{reads.name}: a short read of {len(got)} bytes")
        elapsed_s = time.perf_counter() - begin
    finally:
        os.close(descriptor)
    busy = busy_s(mount) - before
    return elapsed_s, float(busy.sum() if reads.at_a_time == 1 else busy.max())


def print_table(n: int, repeats: int) -> None:
    """Compare reads through the mount with what its disks did."""
    array = DiskArray()
    with mounted(array) as mount:
        file = mount / "data"
        with file.open("wb") as out:
            out.truncate(FILE_BYTES)
        print(f"{array}\n")
        print("| reads | seconds each | disks busy, seconds each | ratio |")
        print("|---|---|---|---|")
        for reads in designed(array, n):
            pairs = [measure(mount, file, reads) for _ in range(repeats)]
            elapsed_s = statistics.median(pair[0] for pair in pairs) / n
            # One request of 1 MiB keeps all disks of an OST busy at one time.
            disks_each = array.data_disks if reads.length == MIB else 1
            disks_s = statistics.median(pair[1] for pair in pairs) / n / disks_each
            print(
                f"| {reads.name} | {elapsed_s:.6f} | {disks_s:.6f} | {elapsed_s / disks_s:.2f} |",
                flush=True,
            )


def main() -> None:
    """Print the table, or keep the array mounted."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--mount", type=Path, metavar="DIR")
    parser.add_argument("--reads", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    if options.mount is None:
        print_table(options.reads, options.repeats)
        return
    with mounted(DiskArray(), at=options.mount) as mount:
        print(f"mounted in {mount}; end with Ctrl-C")
        with suppress(KeyboardInterrupt):
            signal.pause()


if __name__ == "__main__":
    main()
