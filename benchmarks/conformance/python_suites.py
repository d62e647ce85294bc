"""The tests of the Python packages that bring an HDF5 of their own."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from benchmarks.conformance.outcomes import Outcome, SuiteRun, junit_outcomes, numbered
from benchmarks.conformance.running import measured

if TYPE_CHECKING:
    from collections.abc import Mapping

HDF5_VERSIONS = {
    "h5py": "import h5py; print(h5py.version.hdf5_version)",
    "netCDF4": "import netCDF4; print(netCDF4.__hdf5libversion__)",
    "tables": "import tables; print(tables.hdf5_version)",
}


def versions_of(*packages: str) -> str:
    """Return the packages' versions, and those of the HDF5 libraries that they bring."""
    told = []
    for package in packages:
        text = f"{package} {importlib.metadata.version(package)}"
        if package in HDF5_VERSIONS:
            hdf5 = subprocess.run(
                [sys.executable, "-c", HDF5_VERSIONS[package]],
                check=True, capture_output=True, text=True,
            ).stdout.strip()  # fmt: skip
            text += f" (HDF5 {hdf5})"
        told.append(text)
    return ", ".join(told)


def without_configuration(directory: Path) -> dict[str, str]:
    """Return what has pytest heed no project's configuration, nor that which tests start.

    Where the packages are installed in a folder of this repository, theirs would be ours.
    """
    empty = directory / "pytest.ini"
    empty.write_text("[pytest]\n")
    return {"PYTEST_ADDOPTS": f"-c {shlex.quote(str(empty))}"}


@dataclass(frozen=True, kw_only=True)
class PytestSuite:
    """Tests that pytest finds in an installed package.

    Attributes
    ----------
    selection
        pytest's words that choose them.
    packages
        Whose versions matter.
    """

    name: str
    title: str
    selection: tuple[str, ...]
    packages: tuple[str, ...]

    def prepare(self) -> str:
        """Return the versions that are tested."""
        return versions_of(*self.packages)

    def run(self, directory: Path, env: Mapping[str, str]) -> SuiteRun:
        """Run the suite in a fresh directory."""
        done = measured(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *self.selection,
             f"--rootdir={directory}", f"--basetemp={directory / 'files'}",
             f"--junitxml={directory / 'junit.xml'}"],
            cwd=directory, env={**env, **without_configuration(directory)},
        )  # fmt: skip
        return done.run(junit_outcomes(directory / "junit.xml"))


@dataclass(frozen=True, kw_only=True)
class PyTablesSuite:
    """What ``python -m tables.tests.test_all`` runs."""

    name: str = "pytables"
    title: str = "PyTables: `tables.tests.test_all`"

    def prepare(self) -> str:
        """Return the versions that are tested."""
        return versions_of("tables")

    def run(self, directory: Path, env: Mapping[str, str]) -> SuiteRun:
        """Run the suite in a fresh directory."""
        result = directory / "result.json"
        program = Path(__file__).with_name("pytables_suite.py")
        done = measured([sys.executable, program, result], cwd=directory, env=env)
        outcomes = json.loads(result.read_text()) if result.exists() else []
        return done.run(numbered((name, Outcome(outcome)) for name, outcome in outcomes))


def download_source(package: str, directory: Path) -> Path:
    """Return the unpacked source distribution of an installed package.

    pip asks a source distribution what building it needs, which netCDF4 answers only where it
    finds headers. Nothing is built, so it is shown some that say no more than it looks for.
    """
    version = importlib.metadata.version(package)
    kept = directory / f"{package.lower()}-{version}"
    if kept.is_dir():
        return kept
    directory.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=directory) as name:
        scratch = Path(name)
        headers = scratch / "headers" / "include"
        headers.mkdir(parents=True)
        (headers / "netcdf.h").write_text("nc_inq_compound\n")
        for header in ("hdf5.h", "H5pubconf.h", "H5public.h"):
            (headers / header).write_text('#define H5_VERS_INFO "HDF5 library version: 2.2.0"\n')
        shown = {"NETCDF4_DIR": headers.parent, "HDF5_DIR": headers.parent, "USE_NCCONFIG": 0}
        subprocess.run(
            [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "download",
             "--no-deps", "--no-binary", package, "--dest", scratch, f"{package}=={version}"],
            check=True, env=os.environ | {key: str(value) for key, value in shown.items()},
        )  # fmt: skip
        (archive,) = scratch.glob("*.tar.gz")
        with tarfile.open(archive) as tar:
            tar.extractall(scratch / "unpacked", filter="data")
        (unpacked,) = (scratch / "unpacked").iterdir()
        unpacked.rename(kept)
    return kept


@dataclass(frozen=True, kw_only=True)
class NetCdf4Suite:
    """The folder ``test`` of netCDF4-python's source distribution, on the installed wheel.

    Without test_dap.py, which reads from servers of the Internet.
    """

    cache: Path
    name: str = "netcdf4"
    title: str = "netCDF4-python: `test/` of its source distribution, without `test_dap.py`"

    def prepare(self) -> str:
        """Fetch the tests; return the versions that are tested."""
        download_source("netCDF4", self.cache)
        return versions_of("netCDF4")

    def run(self, directory: Path, env: Mapping[str, str]) -> SuiteRun:
        """Run the suite in a copy of its folder, into which it writes."""
        folder = directory / "test"
        shutil.copytree(download_source("netCDF4", self.cache) / "test", folder)
        report = directory / "junit.xml"
        done = measured(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
             "--ignore=test_dap.py", f"--rootdir={folder}", f"--junitxml={report}"],
            cwd=folder, env=env,
        )  # fmt: skip
        return done.run(junit_outcomes(report))


def python_suites(cache: Path) -> list[PytestSuite | PyTablesSuite | NetCdf4Suite]:
    """Return the suites of the Python packages."""
    return [
        PytestSuite(
            name="h5py",
            title="h5py: `pytest --pyargs h5py`",
            selection=("--pyargs", "h5py"),
            packages=("h5py",),
        ),
        PyTablesSuite(),
        NetCdf4Suite(cache=cache),
        PytestSuite(
            name="xarray",
            title="xarray: `xarray/tests/test_backends.py -k 'netcdf or h5netcdf'`",
            selection=("--pyargs", "xarray.tests.test_backends", "-k", "netcdf or h5netcdf"),
            packages=("xarray", "h5netcdf", "h5py", "netCDF4"),
        ),
        PytestSuite(
            name="h5netcdf",
            title="h5netcdf: `pytest --pyargs h5netcdf`",
            selection=("--pyargs", "h5netcdf"),
            packages=("h5netcdf", "h5py"),
        ),
    ]
