import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sds.redirect.probe import ProgramKind, probe_program
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
    assert found.can_bind
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
    assert (found.kind, found.can_bind) == (ProgramKind.PYTHON, True)


def test_shell_scripts_and_programs_without_hdf5_are_unknown(tmp_path):
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\ntrue\n")
    script.chmod(0o755)
    for command in (script, "/bin/ls"):
        found = probe(command)
        assert found.can_bind is None
        assert found.problem == ""


def test_a_missing_program():
    assert probe("no-such-program").kind is ProgramKind.MISSING


@pytest.mark.parametrize(("source", "can_bind"), [(OLD, False), (NEW, True)])
def test_a_linked_library(source, can_bind, build, tmp_path):
    build(source, "libhdf5.so", "-shared", "-fPIC")
    program = build(MAIN, "program", f"-L{tmp_path}", "-lhdf5", f"-Wl,-rpath,{tmp_path}")
    found = probe(program)
    assert (found.kind, found.can_bind) == (ProgramKind.ELF, can_bind)
    assert ("1.12.2" in found.problem) == (not can_bind)


@pytest.mark.parametrize("visible", [True, False])
def test_hdf5_inside_the_program(visible, build):
    main = NEW + "int main(void) { return H5VLintrospect_get_cap_flags() + H5open() + text[0]; }"
    found = probe(build(main, "program", *(["-rdynamic"] if visible else [])))
    assert found.can_bind is visible
