"""Programs in C, linked in every way: they print what they print without the connector."""

import re
import shutil
import subprocess
from pathlib import Path

import h5py
import pytest

from tests.hdf5_builds import hdf5_build
from tests.redirected import reads_by_replica, redirected_cube
from tests.under_connector import connector_environment, decisions, native_environment

VERSIONS = ("1.14.6", "2.0.0", "2.2.0")

# H5P_DATASET_XFER_DEFAULT is a variable of the library: the linker has such a program bring it.
PROGRAM = """
#include <hdf5.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    double plane[6 * 7] = {0}, one = 1;
    hsize_t start[3] = {0, 0, 3}, count[3] = {6, 7, 1}, flat[1] = {6 * 7};
    if (argc < 3) return 2;
    printf("missing file: %d\\n", H5Fopen("missing.h5", H5F_ACC_RDONLY, H5P_DEFAULT) < 0);

    hid_t file = H5Fopen(argv[1], H5F_ACC_RDONLY, H5P_DEFAULT);
    hid_t dataset = H5Dopen2(file, "/cube", H5P_DEFAULT);
    hid_t selected = H5Dget_space(dataset), memory = H5Screate_simple(1, flat, NULL);
    H5Sselect_hyperslab(selected, H5S_SELECT_SET, start, NULL, count, NULL);
    for (int i = 0; i < 2; i++) {
        hid_t how = i ? H5P_DATASET_XFER_DEFAULT : H5P_DEFAULT;
        herr_t status = H5Dread(dataset, H5T_IEEE_F64LE, memory, selected, how, plane);
        printf("read: %d, %g, %g\\n", status, plane[0], plane[6 * 7 - 1]);
    }
    H5Sclose(memory);
    H5Sclose(selected);
    H5Dclose(dataset);
    H5Fclose(file);

    file = H5Fcreate(argv[2], H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    memory = H5Screate(H5S_SCALAR);
    dataset = H5Dcreate2(file, "one", H5T_IEEE_F64LE, memory, H5P_DEFAULT, H5P_DEFAULT,
                         H5P_DEFAULT);
    printf("write: %d\\n", H5Dwrite(dataset, H5T_IEEE_F64LE, H5S_ALL, H5S_ALL, H5P_DEFAULT, &one));
    H5Sclose(memory);
    H5Dclose(dataset);
    printf("close: %d\\n", H5Fclose(file));
    return 0;
}
"""
# How it is linked, and what the connector then does.
LINKAGES = {
    "dynamic": ({}, (), ("bound", "exported symbols")),
    "dynamic-fixed-address": ({}, ("-no-pie", "-fno-pie"), ("bound", "exported symbols")),
    "static-exporting": ({"static": True}, (), ("bound", "exported symbols")),
    "static-hiding": (
        {"static": True, "export_dynamic": False}, (), ("bound", "symbol table"),
    ),
    "static-hiding-fixed-address": (
        {"static": True, "export_dynamic": False}, ("-no-pie", "-fno-pie"),
        ("bound", "symbol table"),
    ),
    "static-stripped": ({"static": True, "export_dynamic": False}, ("-s",), ("native", "")),
    "static-without-loader": (
        {"static": True, "export_dynamic": False}, ("-static",), ("untouched", ""),
    ),
    "static-without-loader-anywhere": (
        {"static": True, "export_dynamic": False}, ("-static-pie", "-s"), ("untouched", ""),
    ),
}  # fmt: skip


@pytest.fixture
def cube(tmp_path, home):
    return redirected_cube(tmp_path, home)


def outcome(program, *arguments, env):
    result = subprocess.run(
        [program, *map(str, arguments)],
        env=env, cwd="/", capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    return result.returncode, result.stdout, result.stderr


def without_line_numbers(errors):
    """HDF5 prints where in its sources a file could not be opened; that tells connectors apart."""
    return re.sub(r" line \d+ ", " ", errors)


def compiled(version, tmp_path, text=PROGRAM, *options, **linkage):
    source = tmp_path / "program.c"
    source.write_text(text)
    return hdf5_build(version).compile(source, tmp_path / "program", *options, **linkage)


def compare(program, cube, home):
    """Run natively and under the connector, and return the connector's log."""
    written = cube.with_name("written.h5")
    log = cube.with_name("log")
    native = outcome(program, cube, written, env=native_environment())
    assert native[0] == 0, native
    assert native[1].count("read: 0, 3, 331") == 2
    env = connector_environment(home.root, SDS_DEBUG=log)
    under = outcome(program, cube, written, env=env)
    assert under[:2] == native[:2]
    assert without_line_numbers(under[2]) == without_line_numbers(native[2])
    with h5py.File(written) as file:
        assert file["one"][()] == 1
    return decisions(log)


@pytest.mark.parametrize("linkage", LINKAGES)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_program_is_served_or_left_alone(version, linkage, tmp_path, cube, home):
    how, options, (event, binding) = LINKAGES[linkage]
    program = compiled(version, tmp_path, PROGRAM, *options, **how)
    log = compare(program, cube, home)
    if event == "untouched":  # without a loader nothing is preloaded
        assert log == []
        assert reads_by_replica(home) == {}
        return
    assert log[0][0] == event
    if event == "bound":
        assert log[0][2:] == (binding, version)
        assert reads_by_replica(home) == {1: 2}
    else:
        assert [entry[0] for entry in log] == ["native"]
        assert reads_by_replica(home) == {}


def test_a_program_whose_file_was_replaced_is_left_alone(tmp_path, cube, home):
    # The table of symbols in the new file is not that of the program that runs.
    program = compiled(
        "2.2.0", tmp_path, PROGRAM.replace("if (argc < 3)", "remove(argv[0]); if (argc < 3)"),
        static=True, export_dynamic=False,
    )  # fmt: skip
    log = tmp_path / "log"
    env = connector_environment(home.root, SDS_DEBUG=log)
    status, output, _ = outcome(program, cube, tmp_path / "written.h5", env=env)
    assert (status, output.count("read: 0, 3, 331")) == (0, 2)
    # /proc/self/exe still leads to the old file.
    assert decisions(log)[0][::2] == ("bound", "symbol table")


@pytest.mark.parametrize("version", ["2.3.0", "3.0.0", "1.13.1"])
def test_a_version_that_is_not_known_is_left_alone(version, tmp_path, cube, home):
    build = hdf5_build("2.2.0")
    archive = tmp_path / "libhdf5.a"
    objcopy = shutil.which("objcopy")
    assert objcopy
    subprocess.run(
        [
            objcopy, "--redefine-sym", "H5get_libversion=H5get_real_libversion",
            build.lib / "libhdf5.a", archive,
        ],
        check=True,
    )  # fmt: skip
    major, minor, release = version.split(".")
    source = tmp_path / "program.c"
    source.write_text(
        PROGRAM
        + "herr_t H5get_libversion(unsigned *a, unsigned *b, unsigned *c)"
        + f"{{ *a = {major}; *b = {minor}; *c = {release}; return 0; }}"
    )
    program = tmp_path / "program"
    subprocess.run(
        [
            shutil.which("cc"), f"-I{build.include}", source, archive, "-o", program, "-rdynamic",
            "-lz", "-lm", "-ldl", "-pthread",
        ],
        check=True,
    )  # fmt: skip
    log = compare(program, cube, home)
    assert [entry[0] for entry in log] == ["native"]
    assert version in log[0][3]
    assert reads_by_replica(home) == {}


def test_a_library_is_not_taken_for_another_one(tmp_path, cube, home):
    """A program that hides its own HDF5 and uses a library that needs another one."""
    other = hdf5_build("1.14.6")
    plugin = tmp_path / "libother.so"
    source = tmp_path / "other.c"
    source.write_text(
        "#include <hdf5.h>\nint other(void) { unsigned a, b, c; "
        "H5get_libversion(&a, &b, &c); return (int)(a * 100 + b); }"
    )
    other.compile(source, plugin, "-shared", "-fPIC")
    text = "int other(void);\n" + PROGRAM.replace(
        "if (argc < 3) return 2;", 'printf("other: %d\\n", other());'
    )
    program = compiled(
        "2.2.0", tmp_path, text, str(plugin), f"-Wl,-rpath,{tmp_path}",
        "-Wl,--exclude-libs,ALL", static=True, export_dynamic=False,
    )  # fmt: skip
    log = compare(program, cube, home)
    bound = {entry[3]: Path(entry[1]).name for entry in log if entry[0] == "bound"}
    assert bound["2.2.0"] == "exe"
    assert "1.14.6" not in bound or bound["1.14.6"].startswith("libhdf5")
    assert reads_by_replica(home) == {1: 2}
