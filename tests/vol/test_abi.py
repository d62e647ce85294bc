"""The connector's own declarations of HDF5's interface match HDF5's headers.

HDF5_HEADER_DIRECTORIES names headers to compare besides those of the versions that tests build.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.hdf5_builds import CRATES, CannotBuildError, crate_sources, leave_out
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


def headers_of(version):
    try:
        return crate_sources(version) / "src"
    except CannotBuildError as error:
        leave_out(f"headers of HDF5 {version}: {error}")


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


def compare(headers, tmp_path):
    (tmp_path / "H5pubconf.h").write_text(CONFIGURATION)
    real = layout(tmp_path, "-DSDS_REAL_HDF5_HEADERS", f"-I{tmp_path}", f"-I{headers}",
                  f"-I{headers / 'H5FDsubfiling'}")  # fmt: skip
    assert layout(tmp_path) == real


@pytest.mark.parametrize("version", CRATES)
def test_own_declarations_match(version, tmp_path):
    compare(headers_of(version), tmp_path)


def test_own_declarations_match_named_headers(tmp_path):
    for named in filter(None, os.environ.get("HDF5_HEADER_DIRECTORIES", "").split(os.pathsep)):
        compare(Path(named), tmp_path)
