"""HDF5 libraries of the versions and kinds that programs in C bring, built from source.

The sources come with the crate hdf5-metno-src, which cargo fetches into its own cache; each of its
versions holds one of HDF5. What was built stays in a cache of its own, SDS_TEST_CACHE or else
~/.cache/sds-tests. By hand, to have a build's folder printed:

    python -m tests.hdf5_builds 2.2.0 parallel
"""

import argparse
import dataclasses
import fcntl
import functools
import hashlib
import importlib
import importlib.metadata
import inspect
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

# The crate's version for each of HDF5.
CRATES = {"1.14.6": "0.9.5", "2.0.0": "0.10.0", "2.2.0": "0.10.3"}
COMMON_OPTIONS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DCMAKE_INSTALL_LIBDIR=lib",
    # Programs name the MPI library: a build outlives the environment that it was made in.
    "-DCMAKE_SKIP_RPATH=ON",
    "-DBUILD_SHARED_LIBS=ON",
    "-DBUILD_STATIC_LIBS=OFF",
    "-DBUILD_TESTING=OFF",
    "-DHDF5_BUILD_TOOLS=OFF",
    "-DHDF5_BUILD_EXAMPLES=OFF",
    "-DHDF5_BUILD_UTILS=OFF",
    "-DHDF5_DISABLE_COMPILER_WARNINGS=ON",
    "-DHDF5_ENABLE_NONSTANDARD_FEATURE_FLOAT16=OFF",
    "-DHDF5_ENABLE_PLUGIN_SUPPORT=OFF",
    "-DHDF5_ENABLE_SZIP_SUPPORT=OFF",
    "-DHDF5_NO_PACKAGES=ON",
)
# Costs are measured against the serial builds; the others are to be there soon.
FAST = ("-DCMAKE_C_FLAGS_RELEASE=-O2 -DNDEBUG",)
SOON = ("-DCMAKE_C_FLAGS_RELEASE=-O1 -DNDEBUG",)
# 1.14 calls it Z_LIB.
ZLIB = ("-DHDF5_ENABLE_Z_LIB_SUPPORT=ON", "-DHDF5_ENABLE_ZLIB_SUPPORT=ON")
NO_ZLIB = ("-DHDF5_ENABLE_Z_LIB_SUPPORT=OFF", "-DHDF5_ENABLE_ZLIB_SUPPORT=OFF")
NO_HL = ("-DHDF5_BUILD_HL_LIB=OFF",)
VARIANTS = {
    "serial": (*FAST, *ZLIB, "-DHDF5_BUILD_HL_LIB=ON"),
    "threadsafe": (*SOON, *NO_ZLIB, *NO_HL, "-DHDF5_ENABLE_THREADSAFE=ON"),
    "parallel": (*SOON, *NO_ZLIB, *NO_HL, "-DHDF5_ENABLE_PARALLEL=ON"),
}
BUILD_TIMEOUT_S = 1800


class CannotBuildError(Exception):
    """Something that a build needs is not on this machine."""


@dataclasses.dataclass(frozen=True)
class Hdf5Build:
    """A shared and a static HDF5 library."""

    version: str
    variant: str
    prefix: Path

    @property
    def include(self):
        return self.prefix / "include"

    @property
    def lib(self):
        return self.prefix / "lib"

    def compile(self, source, output, *options, static=False, export_dynamic=True):
        """Compile and link a program in C, and return where it is.

        static
            Link HDF5 statically.
        export_dynamic
            Show the symbols of a statically linked HDF5 to plugins.
        """
        names = [name for name in ("hdf5_hl", "hdf5") if (self.lib / f"lib{name}.a").exists()]
        if static:
            linked = [str(self.lib / f"lib{name}.a") for name in names]
            if self.variant == "serial":
                linked.append("-lz")
            linked += ["-rdynamic"] if export_dynamic else []
        else:
            linked = [f"-L{self.lib}", f"-Wl,-rpath,{self.lib}", *(f"-l{name}" for name in names)]
        run(
            compiler(self.variant), "-std=c11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Werror",
            "-pthread", f"-I{self.include}", source, "-o", output, *options, *linked, "-lm", "-ldl",
        )  # fmt: skip
        return Path(output)


def hdf5_build(version, variant="serial"):
    """Return a build of HDF5, made first where there is none yet.

    Leaves the test out, or fails it in CI, where this machine cannot build it.
    """
    try:
        return cached_build(version, variant)
    except CannotBuildError as error:
        leave_out(f"HDF5 {version} {variant}: {error}")


def leave_out(reason):
    (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"left out: {reason}")


def cached_build(version, variant):
    recipe = (version, COMMON_OPTIONS, VARIANTS[variant], inspect.getsource(build))
    recipe += (importlib.metadata.version("mpich"),) if variant == "parallel" else ()
    key = hashlib.sha256(repr(recipe).encode()).hexdigest()[:12]
    cache = cache_directory() / "hdf5"
    prefix = cache / f"{version}-{variant}-{key}"
    if not prefix.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / f"{prefix.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not prefix.exists():
                if ZLIB[0] in VARIANTS[variant]:
                    require_header("zlib.h", package="zlib1g-dev")
                with tempfile.TemporaryDirectory(dir=cache, prefix=".building-") as work:
                    build(version, variant, Path(work)).rename(prefix)
    return Hdf5Build(version=version, variant=variant, prefix=prefix)


def cache_directory():
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sds-tests"
    return Path(os.environ.get("SDS_TEST_CACHE") or default)


def build(version, variant, work):
    """Build in a folder, and return the folder within it to be kept."""
    tree, kept = work / "tree", work / "kept"
    cmake = program_of_wheel("cmake", "CMAKE_BIN_DIR")
    run(
        cmake, "-G", "Ninja", "-S", crate_sources(version), "-B", tree, *COMMON_OPTIONS,
        *VARIANTS[variant], f"-DCMAKE_C_COMPILER={program('cc')}",
        *([f"-DMPI_C_COMPILER={mpich_program('mpicc')}"] if variant == "parallel" else []),
        f"-DCMAKE_MAKE_PROGRAM={program_of_wheel('ninja', 'BIN_DIR')}",
        f"-DCMAKE_INSTALL_PREFIX={kept}",
    )  # fmt: skip
    run(cmake, "--build", tree)
    run(cmake, "--install", tree)
    # The shared library's objects serve the static one too: nothing is compiled twice.
    for folder, name in (("src", "hdf5"), ("hl/src", "hdf5_hl")):
        objects = sorted((tree / folder / "CMakeFiles" / f"{name}-shared.dir").rglob("*.o"))
        if objects:
            run(program("ar"), "qcs", kept / "lib" / f"lib{name}.a", *objects)
    return kept


def run(*command):
    done = subprocess.run(
        [str(part) for part in command], check=False, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace", timeout=BUILD_TIMEOUT_S,
    )  # fmt: skip
    assert done.returncode == 0, f"{command[0]} failed:\n{done.stdout[-4000:]}"


def compiler(variant):
    return mpich_program("mpicc") if variant == "parallel" else program("cc")


def program(name):
    found = shutil.which(name)
    if found is None:
        raise CannotBuildError(f"no program '{name}' was found")
    return Path(found)


def require_header(name, package):
    found = subprocess.run(
        [program("cc"), "-E", "-x", "c", "-"], input=f"#include <{name}>\n", check=False,
        capture_output=True, text=True,
    )  # fmt: skip
    if found.returncode != 0:
        raise CannotBuildError(f"there is no header {name} (on Debian or Ubuntu: {package})")


def mpich_program(name):
    """Return where the wheel of MPICH put a program."""
    try:
        files = importlib.metadata.files("mpich") or ()
    except importlib.metadata.PackageNotFoundError:
        files = ()
    found = next((file for file in files if file.match(f"bin/{name}")), None)
    if found is None:
        raise CannotBuildError(f"the package mpich, which has {name}, is not installed")
    return Path(found.locate()).resolve()


def program_of_wheel(name, where):
    """Return a tool that came as a wheel: the system's CMake may be too old for HDF5 2."""
    try:
        return Path(getattr(importlib.import_module(name), where)) / name
    except ImportError:
        raise CannotBuildError(f"the package {name} is not installed") from None


def crate_sources(version):
    """Return HDF5's sources, which cargo fetches where it has not yet."""
    crate = f"hdf5-metno-src-{CRATES[version]}"
    cargo = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")
    if not (found := sorted(cargo.glob(f"registry/src/*/{crate}/ext/hdf5"))):
        fetch_crate(CRATES[version])
        found = sorted(cargo.glob(f"registry/src/*/{crate}/ext/hdf5"))
    return found[0]


def fetch_crate(version):
    if trouble := trouble_of_fetching(version):
        raise CannotBuildError(f"cargo cannot fetch hdf5-metno-src {version}: {trouble}")


@functools.cache  # what failed once is not waited for again by each of the tests
def trouble_of_fetching(version):
    """Have cargo fetch a crate; return what it says last where it cannot."""
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "Cargo.toml").write_text(
            '[package]\nname = "sources"\nversion = "0.0.0"\nedition = "2021"\n'
            f'[lib]\npath = "lib.rs"\n[dependencies]\nhdf5-metno-src = "={version}"\n'
        )
        (Path(directory) / "lib.rs").touch()
        try:
            done = subprocess.run(
                [program("cargo"), "fetch"], cwd=directory, capture_output=True, text=True,
                timeout=120, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            return str(error)
    if done.returncode == 0:
        return ""
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    return lines[-1] if lines else f"exit status {done.returncode}"


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description="Build HDF5 and print the build's folder.")
    arguments.add_argument("version", choices=CRATES)
    arguments.add_argument("variant", choices=VARIANTS, default="serial", nargs="?")
    chosen = arguments.parse_args()
    print(cached_build(chosen.version, chosen.variant).prefix)  # noqa: T201
