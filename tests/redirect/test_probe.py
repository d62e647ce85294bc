import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from sds.redirect.probe import Binding, ProgramKind, _is_hdf5_name, probe_program
from tests.under_connector import native_environment

OLD = 'const char text[] = "HDF5 library version: 1.12.2"; int H5open(void) { return 0; }'
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


def probe(*command, **variables):
    return probe_program(list(map(str, command)), native_environment(**variables))


def test_this_python():
    found = probe(sys.executable)
    assert found.kind is ProgramKind.PYTHON
    assert {(lib.used_by, lib.version, lib.can_bind) for lib in found.libraries} == {
        ("h5py", "2.0.0", True), ("netCDF4", "2.2.0", True), ("tables", "1.14.6", True),
    }  # fmt: skip
    (filters,) = found.filter_directories
    assert filters.name == "plugins"


def test_another_python_is_asked(tmp_path):
    other = tmp_path / "python3"
    other.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    other.chmod(0o755)
    assert {lib.used_by for lib in probe(other).libraries} == {"h5py", "netCDF4", "tables"}


@pytest.mark.parametrize("line", ["#!{python}", "#!/usr/bin/env {name}", "#!{python} -u"])
def test_scripts_name_their_python(line, tmp_path):
    python = Path(sys.executable)
    if " " in str(python) and "{python}" in line:
        pytest.skip("the kernel ends an interpreter's name at a space")
    script = tmp_path / "script"
    script.write_text(line.format(python=python, name=python.name) + "\nprint()\n")
    script.chmod(0o755)
    found = probe(script, PATH=f"{python.parent}:{os.environ['PATH']}")
    assert found.kind is ProgramKind.PYTHON
    assert all(library.can_bind for library in found.libraries)


def test_shell_scripts_and_programs_without_hdf5_are_unknown(tmp_path):
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\ntrue\n")
    script.chmod(0o755)
    for command in (script, "/bin/ls"):
        found = probe(command)
        assert found.libraries == ()


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
            assert probe(program).kind is ProgramKind.OTHER
        program.chmod(0o755)
        assert probe(program).kind is ProgramKind.ELF


def test_a_pipe_is_not_waited_for(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o755)
    assert probe(pipe).kind is ProgramKind.OTHER


def test_the_first_lines_of_pip_for_long_names(tmp_path):
    directory = tmp_path / "a name with spaces"
    directory.mkdir()
    python = directory / "python3"
    python.symlink_to(sys.executable)
    script = tmp_path / "script"
    quotes = "'" * 3
    script.write_text(f'#!/bin/sh\n{quotes}exec\' "{python}" "$0" "$@"\n\' {quotes}\n')
    script.chmod(0o755)
    assert probe(script).program == python


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
    found = {lib.used_by: lib for lib in probe(python, PYTHONPATH=tmp_path).libraries}
    assert found["vtkmodules"].path == package / "libvtkhdf5.so"
    assert found["vtkmodules"].binding is Binding.EXPORTED
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
    assert _is_hdf5_name(Path(name)) is is_it


def test_a_missing_program():
    assert probe("no-such-program").kind is ProgramKind.MISSING


@pytest.mark.parametrize(("source", "can_bind"), [(OLD, False), (NEW, True)])
def test_a_linked_library(source, can_bind, build, tmp_path):
    build(source, "libhdf5.so", "-shared", "-fPIC")
    program = build(MAIN, "program", f"-L{tmp_path}", "-lhdf5", f"-Wl,-rpath,{tmp_path}")
    found = probe(program)
    (library,) = found.libraries
    assert (found.kind, library.can_bind) == (ProgramKind.ELF, can_bind)
    assert ("1.12.2" in library.problem) == (not can_bind)


def test_a_program_of_the_directory_that_one_is_in(build, tmp_path, monkeypatch):
    """As it is mostly typed; a name without a slash the loader looks for among libraries."""
    build(NEW, "libhdf5.so", "-shared", "-fPIC")
    build(MAIN, "program", f"-L{tmp_path}", "-lhdf5", f"-Wl,-rpath,{tmp_path}")
    monkeypatch.chdir(tmp_path)
    (library,) = probe("./program").libraries
    assert library.can_bind


@pytest.mark.parametrize(
    ("options", "binding"),
    [
        (["-rdynamic"], Binding.EXPORTED),
        ([], Binding.SYMBOL_TABLE),
        (["-s"], Binding.NONE),
        (["-static"], Binding.NONE),
        (["-static-pie"], Binding.NONE),
    ],
)
def test_hdf5_inside_the_program(options, binding, build):
    main = NEW + "int main(void) { return H5VLintrospect_get_cap_flags() + H5open() + text[0]; }"
    (library,) = probe(build(main, "program", *options)).libraries
    assert library.binding is binding
    assert bool(library.problem) == (binding is Binding.NONE)


@pytest.mark.parametrize(("version", "known"), [("2.2.7", True), ("2.3.0", False)])
def test_a_newer_version_is_not_assumed_to_be_the_same(version, known, build, tmp_path):
    build(NEW.replace("1.14.6", version), "libhdf5.so", "-shared", "-fPIC")
    program = build(MAIN, "program", f"-L{tmp_path}", "-lhdf5")
    assert probe(program).libraries == ()  # the loader does not find it
    (library,) = probe(program, LD_LIBRARY_PATH=tmp_path).libraries
    assert (library.can_bind, version in library.problem) == (known, not known)


def test_a_file_that_is_cut_off_is_of_no_use(build):
    program = build("int main(void) { return 0; }", "program")
    program.write_bytes(program.read_bytes()[:200])
    assert probe(program).libraries == ()
