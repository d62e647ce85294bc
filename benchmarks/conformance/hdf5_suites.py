"""HDF5's own tests, from a full source tree: those of its API, and those of its tools.

The API tests are compiled against the same builds of HDF5 as the tests in C of this repository.
Version 1.14's serve for HDF5 2 as well (api_tests_on_hdf5_2.h). The tools are those of the tree,
built by its own CMake files, and tested by ctest.
"""

from __future__ import annotations

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
# What their tests run and read besides the tools.
TOOL_TEST_TARGETS = (
    "dynlibadd", "dynlibcopy", "dynlibdiff", "dynlibdump", "dynlibls", "dynlibvers",
    "h5copy_files", "h5diff_files", "h5dump_pbits_files", "h5dump_std_files", "h5dump_vds_files",
    "h5dump_xml_files", "h5ls_files", "h5ls_vds_files", "h5repack_files", "h5repacktest",
    "h5stat_files", "testh5repack_detect_szip",
)  # fmt: skip


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
                "(scripts/hdf5-source fetches one)"
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
class ToolSuite:
    """The tests of HDF5's tools.

    Attributes
    ----------
    native_only
        What no connector can pass that the environment switches on; docs/reference/conformance.md
        says why.
    """

    source: Path
    cache: Path
    native_only: frozenset[str] = frozenset(
        {"H5REPACK-family", "H5REPACK-family_DFF", "H5DUMP-filter_fail"}
    )
    name: str = "tools"
    title: str = "HDF5 tools: ctest of " + ", ".join(TOOLS)

    @property
    def build(self) -> Path:
        """Return where HDF5 and its tools are built."""
        return self.cache / f"tools-{hashlib.sha256(str(self.source).encode()).hexdigest()[:12]}"

    def prepare(self) -> str:
        """Build the tools; return the version that is tested."""
        version = version_of_source(self.source)
        built = self.build / "built-for-conformance"
        if built.exists():
            return f"HDF5 {version}"
        cmake = program_of_wheel("cmake", "CMAKE_BIN_DIR")
        ninja = program_of_wheel("ninja", "BIN_DIR")
        run([
            cmake, "-G", "Ninja", "-S", self.source, "-B", self.build,
            f"-DCMAKE_MAKE_PROGRAM={ninja}", "-DCMAKE_BUILD_TYPE=Release",
            "-DCMAKE_POLICY_VERSION_MINIMUM=3.18", "-DBUILD_SHARED_LIBS=ON",
            "-DBUILD_STATIC_LIBS=OFF", "-DBUILD_TESTING=ON", "-DHDF5_BUILD_TOOLS=ON",
            "-DHDF5_BUILD_EXAMPLES=OFF", "-DHDF5_BUILD_HL_LIB=ON",
            "-DHDF5_ENABLE_Z_LIB_SUPPORT=ON", "-DHDF5_ENABLE_ZLIB_SUPPORT=ON",
            "-DHDF5_ENABLE_SZIP_SUPPORT=OFF", "-DHDF5_NO_PACKAGES=ON",
            "-DHDF5_ENABLE_PLUGIN_SUPPORT=OFF", "-DHDF5_ENABLE_NONSTANDARD_FEATURE_FLOAT16=OFF",
        ])  # fmt: skip
        run([cmake, "--build", self.build, "--target", *TOOLS, *TOOL_TEST_TARGETS])
        built.touch()
        return f"HDF5 {version}"

    def run(self, directory: Path, env: Mapping[str, str]) -> SuiteRun:
        """Run the suite; its files lie in the build."""
        names = "|".join(tool.removeprefix("h5").upper() for tool in TOOLS)
        report = directory / "junit.xml"
        done = measured(
            [program_of_wheel("cmake", "CMAKE_BIN_DIR").with_name("ctest"),
             "--test-dir", self.build, "-R", f"^H5({names})", "--output-junit", report],
            cwd=directory, env=env,
        )  # fmt: skip
        return done.run(junit_outcomes(report))


def hdf5_suites(cache: Path, source: Path) -> list[ApiSuite | ToolSuite]:
    """Return the suites that a full source tree of HDF5 holds."""
    source = source.resolve()
    api = [
        ApiSuite(source=source, cache=cache, version=version, ranks=ranks)
        for ranks in (1, 2)
        for version in CRATES
    ]
    return [*api, ToolSuite(source=source, cache=cache)]
