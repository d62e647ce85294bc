"""The connector's own declarations of HDF5's interface match HDF5's headers.

HDF5_HEADER_DIRECTORIES names headers to compare besides those of the versions that tests build.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.hdf5_builds import CRATES, CannotBuildError, crate_sources, leave_out
from tests.under_connector import ROOT

ABI = ROOT / "sds" / "redirect" / "vol" / "abi"
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


def declared(headers, tmp_path):
    """Return the names of all functions that the headers declare for this configuration."""
    source = tmp_path / "headers.cpp"
    source.write_text("#include <hdf5.h>\n#include <H5VLconnector_passthru.h>\n")
    text = subprocess.run(
        ["c++", "-std=c++17", "-E", *include_options(headers, tmp_path), source],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    return set(re.findall(r"\b(H5\w+)\(", text))


def write_what_to_compare(headers, tmp_path):
    """Name all functions that are called, and all callbacks, for `abi_layout.cpp`."""
    listed = re.findall(
        r"^(REQUIRED|OPTIONAL)\(.*?(H5\w+), \(",
        (ABI / "hdf5_functions.inc").read_text(),
        re.MULTILINE,
    )
    known = declared(headers, tmp_path)
    assert not {name for kind, name in listed if kind == "REQUIRED"} - known
    lines = [f"FUNCTION({name});" for _, name in listed if name in known]
    for struct, members in re.findall(
        r"^struct (H5VL_\w*class_t) {\n(.*?)^};",
        (ABI / "hdf5_abi.h").read_text(),
        re.MULTILINE | re.DOTALL,
    ):
        lines += [f"CALLBACK({struct}, {name});" for name in re.findall(r"\(\*(\w+)\)\(", members)]
    assert len(lines) > 180
    (tmp_path / "functions_to_compare.inc").write_text("\n".join(lines))


def include_options(headers, tmp_path):
    return [f"-I{tmp_path}", f"-I{headers}", f"-I{headers / 'H5FDsubfiling'}"]


def layout(tmp_path, *options):
    compiler = shutil.which("c++")
    assert compiler
    program = tmp_path / "layout"
    built = subprocess.run(
        [compiler, "-std=c++17", "-Wno-invalid-offsetof", f"-I{tmp_path}", f"-I{ABI}", *options,
         ROOT / "tests" / "vol" / "abi_layout.cpp", "-o", program],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    return subprocess.run([program], check=True, capture_output=True, text=True).stdout


def differences(headers, tmp_path):
    """Return the lines of both layouts that the other one has not."""
    (tmp_path / "H5pubconf.h").write_text(CONFIGURATION)
    write_what_to_compare(headers, tmp_path)
    real = layout(tmp_path, "-DSDS_REAL_HDF5_HEADERS", *include_options(headers, tmp_path))
    return set(layout(tmp_path).splitlines()) ^ set(real.splitlines())


@pytest.mark.parametrize("version", CRATES)
def test_own_declarations_match(version, tmp_path):
    assert not differences(headers_of(version), tmp_path)


@pytest.mark.parametrize("version", CRATES)
def test_the_function_that_is_not_public_is_what_it_is_called_as(version):
    private = (headers_of(version) / "H5VLnative_private.h").read_text()
    declaration = (
        r"herr_t H5VL_native_get_file_struct\(void \*\w+, H5I_type_t \w+, H5F_t \*\*\w+\);"
    )
    assert re.search(declaration, private)
    called_as = "OPTIONAL(herr_t, H5VL_native_get_file_struct, (void *, H5I_type_t, void **))"
    assert called_as in (ABI / "hdf5_functions.inc").read_text()


def test_own_declarations_match_named_headers(tmp_path):
    for named in filter(None, os.environ.get("HDF5_HEADER_DIRECTORIES", "").split(os.pathsep)):
        assert not differences(Path(named), tmp_path)


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("H5Fclose", "(herr_t, H5Fclose, (hid_t))", "(herr_t, H5Fclose, (int))"),
        ("H5Tget_size", "(size_t, H5Tget_size, (hid_t))", "(int, H5Tget_size, (hid_t))"),
        ("H5Fopen", "H5Fopen, (const char *, unsigned, hid_t)", "H5Fopen, (const char *, hid_t)"),
    ],
)
def test_a_wrong_declaration_is_seen(name, right, wrong, tmp_path):
    functions = (ABI / "hdf5_functions.inc").read_text()
    assert right in functions
    (tmp_path / "hdf5_functions.inc").write_text(functions.replace(right, wrong))
    different = differences(headers_of("2.2.0"), tmp_path)
    assert len(different) == 2
    assert {line.split()[0] for line in different} == {name}
