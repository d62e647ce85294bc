"""The connector's own declarations of HDF5's interface match HDF5's headers.

Headers come with the sources of the crate hdf5-metno-src, one version of HDF5 each; where cargo
has fetched some, or HDF5_HEADER_DIRECTORIES names others, they are compared.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.under_connector import ROOT

VOL = ROOT / "sds" / "redirect" / "vol"
# What a build of HDF5 would write for this machine, as far as its headers read it.
CONFIGURATION = """
#define H5_HAVE_STDINT_H 1
#define H5_HAVE_SYS_TYPES_H 1
#define H5_HAVE_UNISTD_H 1
#define H5_SIZEOF_SIZE_T 8
#define H5_SIZEOF_LONG 8
#define H5_SIZEOF_LONG_LONG 8
#define H5_SIZEOF_INT 4
#define H5_SIZEOF_OFF_T 8
"""


def header_directories():
    named = os.environ.get("HDF5_HEADER_DIRECTORIES")
    if named:
        return [Path(entry) for entry in named.split(os.pathsep)]
    cargo = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    return sorted(
        directory
        for directory in cargo.glob("registry/src/*/hdf5-metno-src-*/ext/hdf5/src")
        if "H5VLintrospect_get_cap_flags" in (directory / "H5VLconnector_passthru.h").read_text()
    )


def layout(tmp_path, *options):
    compiler = shutil.which("c++")
    assert compiler
    program = tmp_path / "layout"
    built = subprocess.run(
        [compiler, "-std=c++17", "-Wno-invalid-offsetof", f"-I{VOL}", *options,
         ROOT / "tests" / "vol" / "abi_layout.cpp", "-o", program],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    return subprocess.run([program], check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("headers", header_directories() or [None])
def test_own_declarations_match(headers, tmp_path):
    if headers is None:
        pytest.skip("no HDF5 headers at hand; HDF5_HEADER_DIRECTORIES names some")
    (tmp_path / "H5pubconf.h").write_text(CONFIGURATION)
    real = layout(tmp_path, "-DSDS_REAL_HDF5_HEADERS", f"-I{tmp_path}", f"-I{headers}",
                  f"-I{headers / 'H5FDsubfiling'}")  # fmt: skip
    assert layout(tmp_path) == real
