"""What is loaded into programs runs with glibc 2.28 (manylinux_2_28), wherever it was built."""

import fcntl
import os
import re
import shutil
import subprocess
from pathlib import Path

import h5py
import pytest

from sds import _native
from sds.redirect.launch.connector import plugin_path
from tests.hdf5_builds import cache_directory, leave_out
from tests.under_connector import connector_environment, decisions, native_environment

OLDEST = (2, 28)
# Debian 11 has glibc 2.31, and a Python that runs with it. Newer ones do not.
PACKAGES = (
    "libc6", "libexpat1", "libffi7", "libpython3.9-minimal", "libpython3.9-stdlib", "libssl1.1",
    "python3.9-minimal", "zlib1g",
)  # fmt: skip
READ = """
import ctypes, os, sys
number = ctypes.c_int64
hdf5 = ctypes.CDLL(sys.argv[1])
hdf5.H5Fopen.restype = hdf5.H5Dopen2.restype = number
dataset = hdf5.H5Dopen2(number(hdf5.H5Fopen(sys.argv[2].encode(), 0, number(0))), b"x", number(0))
values, integer = (ctypes.c_int * 3)(), number.in_dll(hdf5, "H5T_NATIVE_INT_g")
status = hdf5.H5Dread(number(dataset), integer, number(0), number(0), number(0), values)
print(os.confstr("CS_GNU_LIBC_VERSION"), status, sum(values), hdf5.H5close())
"""


def libraries():
    preload = plugin_path().parents[1] / "preload"
    return [Path(_native.__file__), plugin_path(), *sorted(preload.glob("*/sds_preload.so"))]


def read_elf(option, library):
    return subprocess.run(
        ["readelf", "-W", option, library], check=True, capture_output=True, text=True
    ).stdout


@pytest.mark.parametrize("library", libraries(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_version_of_a_symbol_is_newer(library):
    needed = re.findall(r"Name: GLIBC_([0-9.]+)", read_elf("--version-info", library))
    newer = [text for text in needed if tuple(map(int, text.split("."))) > OLDEST]
    assert newer == [], f"{library}: add the functions to native/src/base/old_glibc.h"
    assert bool(needed) == (library.name != "sds_preload.so")


def test_functions_that_have_moved_are_found_where_they_were():
    """glibc before 2.34 has them in these libraries; which newer ones still bring, empty."""
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", read_elf("--dynamic", plugin_path()))
    assert {"libpthread.so.0", "libdl.so.2"} <= set(needed)


def test_the_binding_brings_its_own_libstdcxx():
    """An older system's lacks what a new compiler's headers call."""
    needed = re.findall(r"\(NEEDED\).*\[(.*?)\.so", read_elf("--dynamic", _native.__file__))
    assert set(needed) <= {"libc", "libm", "libgcc_s", "libpthread", "libdl", "ld-linux-x86-64"}


@pytest.mark.parametrize("library", libraries()[2:], ids=lambda path: path.parent.name)
def test_what_is_preloaded_needs_nothing(library):
    assert "NEEDED" not in read_elf("--dynamic", library)
    undefined = re.findall(r"(\S+) +\S+ +UND (\S+)", read_elf("--dyn-syms", library))
    assert {binding for binding, _ in undefined} <= {"WEAK"}
    assert library.stat().st_size < 10240


@pytest.fixture(scope="module")
def old_root():
    """The root directory of programs with an older glibc, unpacked once."""
    root = cache_directory() / "debian-11"
    root.parent.mkdir(parents=True, exist_ok=True)
    with root.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.exists():
            unpack(root)
    return root


def unpack(root):
    if not shutil.which("apt-get"):
        leave_out("there is no apt-get, which fetches an older glibc")
    work = root.with_suffix(".part")
    shutil.rmtree(work, ignore_errors=True)
    for folder in ("lists/partial", "cache/archives/partial", "root"):
        (work / folder).mkdir(parents=True)
    keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
    (work / "sources.list").write_text(
        f"deb [signed-by={keys}] http://deb.debian.org/debian bullseye main\n"
    )
    own = {
        "Dir::Etc::sourcelist": work / "sources.list", "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": work / "lists", "Dir::Cache": work / "cache",
        "Acquire::Check-Valid-Until": "false", "APT::Sandbox::User": "root",
    }  # fmt: skip
    apt_get = ["apt-get", "-q", *(f"-o{name}={value}" for name, value in own.items())]
    for words in (["update"], ["download", *(f"{name}/bullseye" for name in PACKAGES)]):
        done = subprocess.run(
            [*apt_get, *words], cwd=work, capture_output=True, text=True, check=False, timeout=300
        )
        if done.returncode:
            leave_out(f"an older glibc cannot be had: {done.stderr.strip()[-300:]}")
    for package in work.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", package, work / "root"], check=True)
    (work / "root").rename(root)
    shutil.rmtree(work)


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="left out: written for x86-64")
@pytest.mark.parametrize("way", ["preloaded", "named", "preloaded, but gone"])
def test_programs_with_an_older_glibc_are_served(way, old_root, home, tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", data=[1, 2, 3], dtype="i4")
    (library,) = (Path(h5py.__file__).parents[1] / "h5py.libs").glob("libhdf5-*.so*")
    loader = old_root / "lib/x86_64-linux-gnu/ld-2.31.so"
    found = [library.parent, loader.parent, old_root / "usr/lib/x86_64-linux-gnu"]
    variables = {
        "LD_LIBRARY_PATH": ":".join(map(str, found)), "PYTHONHOME": old_root / "usr",
        "SDS_DEBUG": tmp_path / "log",
    }  # fmt: skip
    env = connector_environment(home.root, **variables)
    if way == "named":
        del env["LD_PRELOAD"]
        env |= {"HDF5_VOL_CONNECTOR": "sds", "HDF5_PLUGIN_PATH": str(plugin_path().parent)}
    elif way == "preloaded, but gone":
        env["SDS_CONNECTOR"] = "/none"
    command = [loader, old_root / "usr/bin/python3.9", "-c", READ, library, tmp_path / "x.h5"]
    for given in (env, native_environment(**variables)):
        result = subprocess.run(command, env=given, capture_output=True, text=True, check=False)
        assert (result.returncode, result.stdout, result.stderr) == (0, "glibc 2.31 0 6 0\n", "")
    events = [entry[0] for entry in decisions(tmp_path / "log")]
    assert events[:1] == ([] if way == "preloaded, but gone" else ["bound"])
