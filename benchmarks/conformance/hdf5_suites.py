"""Tests in C from full source trees: those of HDF5's API, library and tools, and netCDF-C's.

The API tests are compiled against the same builds of HDF5 as the tests in C of this repository.
Version 1.14's serve for HDF5 2 as well (api_tests_on_hdf5_2.h). The others are built by the CMake
files of their trees and run by ctest.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.conformance.outcomes import SuiteRun, api_test_outcomes, junit_outcomes
from benchmarks.conformance.running import measured
from tests.hdf5_builds import (
    CRATES,
    cached_build,
    compiler,
    crate_sources,
    mpich_program,
    program_of_wheel,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SHIM = Path(__file__).with_name("api_tests_on_hdf5_2.h")
TOOLS = ("h5copy", "h5diff", "h5dump", "h5ls", "h5repack", "h5stat")
HDF5_OPTIONS = (
    "-DCMAKE_POLICY_VERSION_MINIMUM=3.18", "-DBUILD_SHARED_LIBS=ON", "-DBUILD_STATIC_LIBS=OFF",
    "-DBUILD_TESTING=ON", "-DHDF5_BUILD_TOOLS=ON", "-DHDF5_BUILD_EXAMPLES=OFF",
    "-DHDF5_BUILD_HL_LIB=ON", "-DHDF5_ENABLE_Z_LIB_SUPPORT=ON", "-DHDF5_ENABLE_ZLIB_SUPPORT=ON",
    "-DHDF5_ENABLE_SZIP_SUPPORT=OFF", "-DHDF5_NO_PACKAGES=ON", "-DHDF5_ENABLE_PLUGIN_SUPPORT=OFF",
    "-DHDF5_ENABLE_NONSTANDARD_FEATURE_FLOAT16=OFF",
)  # fmt: skip
# Nothing is read from servers of the Internet.
NETCDF_OPTIONS = ("-DNETCDF_ENABLE_DAP=OFF", "-DNETCDF_ENABLE_REMOTE_FUNCTIONALITY=OFF")


def run(command: Sequence[str | Path], *, cwd: Path | None = None) -> str:
    """Run a command that must succeed; return what it says."""
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, check=False, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace",
    )  # fmt: skip
    if done.returncode != 0:
        message = f"{command[0]} failed with status {done.returncode}:\n{done.stdout[-4000:]}"
        raise RuntimeError(message)
    return done.stdout


def version_of_source(source: Path) -> str:
    """Return the version of HDF5 in a source tree.

    Raises
    ------
    ValueError
        If the tree is not a full one.
    """
    for needed in ("src/H5public.h", "test/API/H5_api_test.c", "tools/lib/h5tools.c"):
        if not (source / needed).is_file():
            message = (
                f"{source} lacks {needed}: the API and tool tests need HDF5's full source tree "
                "(scripts/debian-source fetches one)"
            )
            raise ValueError(message)
    header = (source / "src" / "H5public.h").read_text()
    return ".".join(
        re.findall(rf"#define H5_VERS_{part}\s+(\d+)", header)[0]
        for part in ("MAJOR", "MINOR", "RELEASE")
    )


@dataclass(frozen=True, kw_only=True)
class ApiSuite:
    """h5_api_test, compiled against one version of HDF5; its parallel sibling on two ranks."""

    source: Path
    cache: Path
    version: str
    ranks: int = 1

    @property
    def name(self) -> str:
        """Return its short name."""
        return f"api-{self.version}" + (f"-{self.ranks}ranks" if self.ranks > 1 else "")

    @property
    def title(self) -> str:
        """Return what it is."""
        if self.ranks > 1:
            return f"HDF5: `h5_api_test_parallel`, {self.ranks} ranks"
        return "HDF5: `h5_api_test`"

    @property
    def program(self) -> Path:
        """Return where its program is kept."""
        sources = hashlib.sha256(f"{self.source}{SHIM.read_text()}".encode()).hexdigest()[:12]
        return self.cache / f"{self.name}-{sources}" / "h5_api_test"

    def prepare(self) -> str:
        """Compile the tests; return the versions that are tested."""
        told = f"HDF5 {self.version} (tests of {version_of_source(self.source)})"
        if self.program.exists():
            return told
        parallel = self.ranks > 1
        variant = "parallel" if parallel else "serial"
        hdf5 = cached_build(self.version, variant)
        private = crate_sources(self.version) / "src"
        folders = [self.source / "test", *([self.source / "testpar"] if parallel else [])]
        work = self.program.parent
        work.mkdir(parents=True, exist_ok=True)
        (work / "H5_api_test_config.h").write_text(
            '#include "hdf5.h"\n#define DART_TESTING_TIMEOUT 1200\n'
        )
        (work / "H5srcdir_str.h").write_text(
            f'static const char *config_srcdir = "{folders[0]}";\n'
        )
        sources = [
            *(folders[0] / name for name in ("h5test.c", "testframe.c")),
            *sorted(folders[-1].glob("API/*.c")),
            *([folders[0] / "API" / "H5_api_test_util.c"] if parallel else []),
        ]
        sources = [source for source in sources if "async" not in source.name]
        includes = [work, hdf5.include, private, private / "H5FDsubfiling",
                    *(path for folder in folders for path in (folder, folder / "API"))]  # fmt: skip
        options = ["-O1", "-w", "-D_GNU_SOURCE", "-DH5_USE_114_API_DEFAULT", f"-include{SHIM}",
                   *(f"-I{path}" for path in includes)]  # fmt: skip

        def compiled(source: Path) -> Path:
            output = work / f"{source.stem}.o"
            run([compiler(variant), *options, "-c", source, "-o", output])
            return output

        with ThreadPoolExecutor(os.cpu_count()) as workers:
            objects = list(workers.map(compiled, sources))
        # The parallel tests define counters that h5test.c, a shared library in HDF5's own build,
        # defines as well.
        run([compiler(variant), *objects, f"-L{hdf5.lib}", f"-Wl,-rpath,{hdf5.lib}", "-lhdf5",
             "-lm", "-Wl,-z,muldefs", "-o", self.program])  # fmt: skip
        return told

    def run(self, directory: Path, env: Mapping[str, str]) -> SuiteRun:
        """Run the suite in a fresh directory."""
        launcher: list[str | Path] = []
        if self.ranks > 1:
            launcher = [mpich_program("mpiexec"), "-n", str(self.ranks)]
        done = measured([*launcher, self.program], cwd=directory, env=env)
        return done.run(api_test_outcomes(done.output))


@dataclass(frozen=True, kw_only=True)
class CtestSuite:
    """Tests that a source tree builds with CMake and runs with ctest.

    Attributes
    ----------
    versions
        What is tested.
    configuration
        CMake options.
    hdf5
        Version of the installed HDF5 that it is built against; none: its own.
    chosen
        Regular expression of the tests that are run.
    native_only
        What no connector can pass that the environment switches on; docs/reference/conformance.md
        says why.
    """

    name: str
    title: str
    versions: str
    source: Path
    build: Path
    configuration: tuple[str, ...]
    hdf5: str = ""
    chosen: str = "."
    native_only: frozenset[str] = frozenset()

    def prepare(self) -> str:
        """Build everything; return the versions that are tested."""
        built = self.build / "built-for-conformance"
        if not built.exists():
            cmake = program_of_wheel("cmake", "CMAKE_BIN_DIR")
            ninja = program_of_wheel("ninja", "BIN_DIR")
            installed = [cached_build(self.hdf5, "serial").prefix] if self.hdf5 else []
            run([cmake, "-G", "Ninja", "-S", self.source, "-B", self.build, *self.configuration,
                 *(f"-DCMAKE_PREFIX_PATH={prefix}" for prefix in installed),
                 f"-DCMAKE_MAKE_PROGRAM={ninja}", "-DCMAKE_BUILD_TYPE=Release"])  # fmt: skip
            run([cmake, "--build", self.build])
            built.touch()
        return self.versions

    def run(self, directory: Path, env: Mapping[str, str]) -> SuiteRun:
        """Run the suite; its files lie in the build."""
        report = directory / "junit.xml"
        done = measured(
            [program_of_wheel("cmake", "CMAKE_BIN_DIR").with_name("ctest"),
             "--test-dir", self.build, "-R", self.chosen, "--output-junit", report],
            cwd=directory, env=env,
        )  # fmt: skip
        return done.run(junit_outcomes(report))


def build_directory(cache: Path, name: str, source: Path) -> Path:
    """Return where a source tree is built."""
    return cache / f"{name}-{hashlib.sha256(str(source).encode()).hexdigest()[:12]}"


def tool_suite(cache: Path, source: Path) -> CtestSuite:
    """Return the tests of HDF5's tools."""
    source = source.resolve()
    return CtestSuite(
        name="tools",
        title="HDF5 tools: ctest of " + ", ".join(TOOLS),
        versions=f"HDF5 {version_of_source(source)}",
        source=source,
        build=build_directory(cache, "hdf5", source),
        configuration=HDF5_OPTIONS,
        chosen=f"^H5({'|'.join(tool.removeprefix('h5').upper() for tool in TOOLS)})",
        native_only=frozenset({"H5REPACK-family", "H5REPACK-family_DFF", "H5DUMP-filter_fail"}),
    )


def hdf5_suites(cache: Path, source: Path) -> list[ApiSuite | CtestSuite]:
    """Return the suites that a full source tree of HDF5 holds."""
    source = source.resolve()
    api = [
        ApiSuite(source=source, cache=cache, version=version, ranks=ranks)
        for ranks in (1, 2)
        for version in CRATES
    ]
    tools = tool_suite(cache, source)
    library = dataclasses.replace(
        tools,
        name="hdf5",
        title="HDF5: ctest of `test/` and `hl/test/`",
        chosen="^(H5TEST|HL_)",
        native_only=frozenset({"H5TEST-cache_tagging"}),
    )
    return [*api, tools, library]


def netcdf_suites(cache: Path, source: Path) -> list[CtestSuite]:
    """Return netCDF-C's tests on two versions of HDF5."""
    source = source.resolve()
    cmake_lists = (source / "CMakeLists.txt").read_text()
    found = re.search(r"project\(netCDF\s[^)]*VERSION ([\d.]+)", cmake_lists)
    if found is None:
        raise ValueError(
            f"{source} is no source tree of netCDF-C: its CMakeLists.txt has no version"
        )
    return [
        CtestSuite(
            name=f"netcdf-c-{hdf5}",
            title="netCDF-C: ctest",
            versions=f"netCDF-C {found[1]}, HDF5 {hdf5}",
            source=source,
            build=build_directory(cache, f"netcdf-hdf5-{hdf5}", source),
            configuration=NETCDF_OPTIONS,
            hdf5=hdf5,
        )
        for hdf5 in ("1.14.6", "2.2.0")
    ]
