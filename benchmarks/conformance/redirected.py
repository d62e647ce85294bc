"""Peers' programs on files that have replicas, with every read predicted cheaper from them.

The suites of the peers write their own files, of which there are no replicas. Here the files come
first: those on which HDF5's tools are tested, and files as netCDF4 and h5py write them. Under the
connector each has a table and replicas of several axis orders. What a program prints, and the
values of what it writes, must be those of the native run byte for byte.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import h5py

from benchmarks.conformance.hdf5_suites import CtestSuite
from benchmarks.conformance.outcomes import Outcome, SuiteRun
from benchmarks.conformance.python_suites import versions_of
from benchmarks.conformance.running import measured, native_environment
from sds.errors import SdsError
from sds.hdf5.type_digest import type_crc32c
from sds.home import Home
from sds.organizer import plan_reorganization
from tests import peer_readers
from tests.redirected import redirect, settle

if TYPE_CHECKING:
    from collections.abc import Mapping

# Files with more would print for minutes: some of the tools' files have datasets of 2^32 elements.
MOST_BYTES = 20_000
# Of one file; the others of its datasets are read from the original.
MOST_DATASETS = 1


def digest(text: str) -> str:
    """Return what tells one output from another.

    h5dump and h5ls print the references of HDF5 1.12 and later as addresses in their own memory,
    which are others in every run.
    """
    told = re.sub(r"\b([A-Z_]+(?:-\d+:| ))\d{10,}", r"\1", text)
    return hashlib.sha256(told.encode()).hexdigest()


def orders_of(path: Path) -> list[tuple[str, tuple[int, ...]]]:
    """Return (dataset, order) of two replicas for datasets of several axes in a file."""
    orders = []
    n_bytes = 0

    def add(name: str, item: object) -> None:
        nonlocal n_bytes
        if not isinstance(item, h5py.Dataset):
            return
        n_bytes += (item.size or 0) * item.id.get_type().get_size()
        if item.ndim > 1 and len(orders) < 2 * MOST_DATASETS:
            axes = tuple(range(item.ndim))
            orders.extend((f"/{name}", order) for order in sorted({axes[::-1], (*axes[1:], 0)}))

    with h5py.File(path) as file:
        file.visititems(add)
    return orders if n_bytes <= MOST_BYTES else []


def replicable(path: Path) -> list[tuple[str, tuple[int, ...]]]:
    """Return those of :func:`orders_of` that an organizer makes.

    None of a file that h5py cannot read, or whose values would take minutes to print.
    """
    try:
        wanted = orders_of(path)
    except (OSError, RuntimeError, TypeError, KeyError):
        return []  # written to be unreadable, or by a driver that h5py is not told of
    made = []
    with h5py.File(path) as file:
        for dataset, order in wanted:
            # OSError: its filter is not installed.
            with contextlib.suppress(SdsError, OSError):
                plan_reorganization(path, dataset, order=order, home=Home(path.parent))
                type_crc32c(file[dataset].id.get_type())
                file[dataset][()]
                made.append((dataset, order))
    return made


def box_options(shape: tuple[int, ...]) -> list[str]:
    """Return h5dump's options for a box that is in no piece of a contiguous dataset."""
    last = len(shape) - 1
    start = [1 if axis == last and length > 1 else 0 for axis, length in enumerate(shape)]
    count = [length - begin for length, begin in zip(shape, start, strict=True)]
    return ["-s", ",".join(map(str, start)), "-c", ",".join(map(str, count))]


@dataclass(frozen=True, kw_only=True)
class RedirectedTools:
    """h5dump, h5ls, h5diff, h5repack and h5copy on the files of their tests, with replicas."""

    cache: Path
    tools: CtestSuite
    name: str = "redirected-tools"
    title: str = "HDF5 tools on files with replicas, outputs compared"

    @property
    def folder(self) -> Path:
        """Return where the files are."""
        return self.cache / f"{self.tools.build.name}-files"

    def prepare(self) -> str:
        """Collect the files that can have replicas; return the versions that are tested."""
        version = self.tools.prepare()
        if not self.folder.exists():
            kept = self.folder.with_suffix(".new")
            shutil.rmtree(kept, ignore_errors=True)
            kept.mkdir(parents=True)
            for path in sorted(self.tools.source.glob("tools/test/*/testfiles/*.h5")):
                if not (kept / path.name).exists() and replicable(path):
                    shutil.copy(path, kept / path.name)
                    settle(kept / path.name)
            kept.rename(self.folder)
        return version

    def commands(self, path: Path, out: Path) -> list[list[str | Path]]:
        """Return what is run on a file; out is where a command may write."""
        found: list[list[str | Path]] = [
            ["h5dump", path],
            ["h5ls", "-rvd", path],
            ["h5diff", "-v", path, path],
            ["h5repack", "-f", "GZIP=1", path, out],
        ]
        datasets = list(dict.fromkeys(name for name, _ in replicable(path)))
        with h5py.File(path) as file:
            found += [
                ["h5dump", "-d", dataset, *box_options(file[dataset].shape), path]
                for dataset in datasets
                if 0 not in file[dataset].shape
            ]
        found.append(
            ["h5copy", "-p", "-i", path, "-o", out, "-s", datasets[0], "-d", "/copied/dataset"]
        )
        return found

    def run(self, directory: Path, env: Mapping[str, str]) -> SuiteRun:
        """Run every tool on every file."""
        files = sorted(self.folder.glob("*.h5"))
        if "SDS_HOME" in env:
            for path in files:
                redirect(path, replicable(path), Home(Path(env["SDS_HOME"])))
        binaries = self.tools.build / "bin"
        outputs, wall_s, cpu_s = {}, 0.0, 0.0
        out = directory / "out.h5"
        for path in files:
            for command in self.commands(path, Path(out.name)):
                done = measured([binaries / command[0], *command[1:]], cwd=directory, env=env)
                wall_s, cpu_s = wall_s + done.wall_s, cpu_s + done.cpu_s
                told = f"{done.exit_status}\n{done.output}".replace(str(directory), "DIRECTORY")
                if out.exists():
                    # Read back natively: addresses and times of objects may differ, values not.
                    read = measured([binaries / "h5dump", out.name], cwd=directory,
                                    env=native_environment())  # fmt: skip
                    told += read.output.replace(str(directory), "DIRECTORY")
                    out.unlink()
                words = (word.name if isinstance(word, Path) else word for word in command)
                outputs[" ".join(words)] = digest(told)
        return SuiteRun(
            outcomes=dict.fromkeys(outputs, Outcome.PASSED), exit_status=0,
            wall_s=wall_s, cpu_s=cpu_s, outputs=outputs,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RedirectedReaders:
    """h5py, netCDF4, PyTables and xarray on files with replicas."""

    cache: Path
    name: str = "redirected-readers"
    title: str = "h5py, netCDF4, PyTables, xarray on files with replicas, values compared"

    @property
    def folder(self) -> Path:
        """Return where the files are."""
        return self.cache / "redirected-files"

    def prepare(self) -> str:
        """Write the files; return the versions that are tested."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        for path in peer_readers.make_files(self.folder):
            settle(path)
        return versions_of("h5py", "netCDF4", "tables", "xarray", "h5netcdf")

    def run(self, directory: Path, env: Mapping[str, str]) -> SuiteRun:
        """Let every reader read every file that it can."""
        files = sorted(self.folder.iterdir())
        if "SDS_HOME" in env:
            home = Home(Path(env["SDS_HOME"]))
            for path in files:
                redirect(path, peer_readers.replica_orders(path), home)
        outputs, outcomes, wall_s, cpu_s = {}, {}, 0.0, 0.0
        for reader, suffixes in peer_readers.READERS.items():
            for path in files:
                if path.suffix not in suffixes:
                    continue
                done = measured(
                    [sys.executable, peer_readers.__file__, reader, path], cwd=directory, env=env
                )
                wall_s, cpu_s = wall_s + done.wall_s, cpu_s + done.cpu_s
                test = f"{reader} {path.name}"
                outputs[test] = digest(done.output)
                outcomes[test] = Outcome.FAILED if done.exit_status else Outcome.PASSED
        return SuiteRun(
            outcomes=outcomes, exit_status=0, wall_s=wall_s, cpu_s=cpu_s, outputs=outputs
        )
