import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from sds.redirect.launch.original_environment import is_python
from sds.redirect.launch.probe import (
    _LOADER,
    find_python,
    hdf5_version_in,
    is_hdf5_name,
    libraries_of_program,
    libraries_of_python,
)
from tests.under_connector import native_environment

NEW = """
const char text[] = "HDF5 library version: 1.14.6";
int H5VLintrospect_get_cap_flags(void) { return 0; }
int H5open(void) { return 0; }
"""
MAIN = "int H5open(void); int main(void) { return H5open(); }"


@pytest.fixture
def build(tmp_path):
    compiler = shutil.which("cc")
    assert compiler

    def run(source, output, *options):
        text = tmp_path / f"{output}.c"
        text.write_text(source)
        program = tmp_path / output
        subprocess.run([compiler, text, "-o", program, *options], check=True)
        return program

    return run


def python_of(program, **variables):
    return find_python(Path(program), native_environment(**variables))


def of_python(python, **variables):
    return libraries_of_python(Path(python), native_environment(**variables))


def of_program(program, **variables):
    return libraries_of_program(Path(program), native_environment(**variables))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("python", True), ("python3", True), ("python3.11", True), ("python3.14t", True),
        ("python3.11-dbg", True), ("python3.11d", True), ("python3.11 (deleted)", True),
        ("python3-config", False), ("pythontex", False), ("ipython", False), ("bash", False),
    ],
)  # fmt: skip
def test_a_python_is_known_by_its_name(name, expected):
    assert is_python(Path("/usr/bin", name)) is expected


def test_this_python():
    assert python_of(sys.executable) == Path(sys.executable)
    assert {(lib.used_by, lib.version) for lib in of_python(sys.executable)} == {
        ("h5py", "2.0.0"), ("netCDF4", "2.2.0"), ("tables", "1.14.6"),
    }  # fmt: skip


def test_another_python_is_asked(tmp_path):
    other = tmp_path / "python3"
    other.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    other.chmod(0o755)
    assert {lib.used_by for lib in of_python(other)} == {"h5py", "netCDF4", "tables"}


@pytest.mark.parametrize("line", ["#!{python}", "#!/usr/bin/env {name}", "#!{python} -u"])
def test_scripts_name_their_python(line, tmp_path):
    python = Path(sys.executable)
    if " " in str(python) and "{python}" in line:
        pytest.skip("the kernel ends an interpreter's name at a space")
    script = tmp_path / "script"
    script.write_text(line.format(python=python, name=python.name) + "\nprint()\n")
    script.chmod(0o755)
    found = python_of(script, PATH=f"{python.parent}:{os.environ['PATH']}")
    assert found == python


def test_shell_scripts_and_programs_without_hdf5_are_unknown(tmp_path):
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\ntrue\n")
    script.chmod(0o755)
    for program in (script, "/bin/ls"):
        assert python_of(program) is None
        assert of_program(program) == ()


@contextlib.contextmanager
def as_an_ordinary_user():
    """Give up, for a while, that root may read every file."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


def test_a_program_that_may_not_be_read_is_unknown():
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        program = Path(folder, "secret")
        shutil.copy("/bin/true", program)
        program.chmod(0o111)
        with as_an_ordinary_user():
            assert python_of(program) is None
            assert of_program(program) == ()


def test_a_pipe_is_not_waited_for(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o755)
    assert python_of(pipe) is None
    assert of_program(pipe) == ()


def test_the_first_lines_of_pip_for_long_names(tmp_path):
    directory = tmp_path / "a name with spaces"
    directory.mkdir()
    python = directory / "python3"
    python.symlink_to(sys.executable)
    script = tmp_path / "script"
    quotes = "'" * 3
    script.write_text(f'#!/bin/sh\n{quotes}exec\' "{python}" "$0" "$@"\n\' {quotes}\n')
    script.chmod(0o755)
    assert python_of(script) == python


def test_a_library_inside_of_a_package(build, tmp_path):
    package = tmp_path / "vtkmodules"
    package.mkdir()
    (package / "__init__.py").touch()
    names = NEW.replace("H5", "vtkhdf5_H5")
    build(names, "libvtkhdf5.so", "-shared", "-fPIC").rename(package / "libvtkhdf5.so")
    build(names, "libvtkhdf5_hl.so", "-shared", "-fPIC").rename(package / "libvtkhdf5_hl.so")
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    found = {lib.used_by: lib for lib in of_python(python, PYTHONPATH=tmp_path)}
    assert found["vtkmodules"].path == package / "libvtkhdf5.so"
    assert found["vtkmodules"].version == "1.14.6"
    assert set(found) == {"h5py", "netCDF4", "tables", "vtkmodules"}


@pytest.mark.parametrize(
    ("name", "is_it"),
    [
        ("libhdf5.so", True), ("libhdf5.so.320.2.0", True), ("libhdf5-34cf00cd.so.320.2.0", True),
        ("libhdf5_serial.so.103", True), ("libhdf5_openmpi.so.103.3.0", True),
        ("libhdf5_hl-d4b518f2.so.320.0.3", False), ("libhdf5_serial_hl.so.100", False),
        ("libhdf5_cpp.so.320", False), ("libhdf5.a", False), ("libvtkhdf5_hl.so", False),
    ],
)  # fmt: skip
def test_names_of_the_library(name, is_it):
    assert is_hdf5_name(Path(name)) is is_it


def test_a_linked_library(build, tmp_path):
    build(NEW, "libhdf5.so", "-shared", "-fPIC")
    program = build(MAIN, "program", f"-L{tmp_path}", "-lhdf5", f"-Wl,-rpath,{tmp_path}")
    (library,) = of_program(program)
    assert (library.path, library.version) == (tmp_path / "libhdf5.so", "1.14.6")


def test_the_loader_looks_where_it_is_told(build, tmp_path):
    build(NEW, "libhdf5.so", "-shared", "-fPIC")
    program = build(MAIN, "program", f"-L{tmp_path}", "-lhdf5")
    assert of_program(program) == ()
    assert len(of_program(program, LD_LIBRARY_PATH=tmp_path)) == 1


def test_a_program_of_the_directory_that_one_is_in(build, tmp_path, monkeypatch):
    """As it is mostly typed; a name without a slash the loader looks for among libraries."""
    build(NEW, "libhdf5.so", "-shared", "-fPIC")
    build(MAIN, "program", f"-L{tmp_path}", "-lhdf5", f"-Wl,-rpath,{tmp_path}")
    monkeypatch.chdir(tmp_path)
    assert len(of_program("program")) == 1


@pytest.mark.parametrize("options", [["-static"], ["-static-pie"], []])
def test_of_what_is_linked_into_a_program_nothing_is_told(options, build):
    main = NEW + "int main(void) { return H5VLintrospect_get_cap_flags() + H5open() + text[0]; }"
    assert of_program(build(main, "program", *options)) == ()


def test_a_library_that_is_empty_has_no_version(tmp_path):
    (tmp_path / "libhdf5.so").touch()
    assert hdf5_version_in(tmp_path / "libhdf5.so") == ""


@pytest.mark.parametrize(
    ("path", "is_it"),
    [
        ("/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", True),
        ("/a folder/ld-2.31.so", True),
        ("/lib/ld-musl-x86_64.so.1", True),
        ("/home/u/ld-study/bin/python3.11", False),
        ("/home/u/ld-study.so/bin/python3.11", False),
        ("/home/u/ld-data.h5", False),
    ],
)
def test_only_the_loader_is_run(path, is_it):
    mapped = "7f0000000000-7f0000001000 {} 00000000 fd:01 1234      {}\n"
    found = _LOADER.search(mapped.format("r-xp", "/bin/true") + mapped.format("r-xp", path))
    assert (found and found[1]) == (path if is_it else None)
    assert _LOADER.search(mapped.format("r--p", path)) is None


def test_a_file_that_is_cut_off_is_of_no_use(build):
    program = build("int main(void) { return 0; }", "program")
    program.write_bytes(program.read_bytes()[:200])
    assert of_program(program) == ()
