"""sds.enable() serves a process that already runs, as `sds run` serves one that it starts."""

import os
import subprocess
import sys

import pytest

from tests.under_connector import connector_environment, decisions, native_environment, run_python

PACKAGES = "h5py, netCDF4, tables"
ENABLE = "import sds; sds.enable()\n"
# Reads through each package, and prints what the environment says of HDF5.
READ = """
import os, sys
import h5py, netCDF4, tables
path = sys.argv[1]
with h5py.File(path, "w") as file:
    file["x"] = range(10)
print(h5py.File(path)["x"][3:5].sum(), netCDF4.Dataset(path)["x"][:].sum())
print(tables.open_file(path).root.x[:].sum())
print({name: value for name, value in os.environ.items() if name.startswith("HDF5_")})
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.h5"


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log"


@pytest.fixture
def environment(home, log):
    return native_environment(SDS_HOME=home.root, SDS_DEBUG=log)


def bound(log):
    return [entry[3] for entry in decisions(log) if entry[0] == "bound"]


def test_every_package_is_served_and_reads_what_it_reads_natively(path, log, environment):
    native = run_python(READ, path, env=environment)
    assert bound(log) == []
    served = run_python(ENABLE + READ, path, env=environment)
    assert (served.stdout, served.stderr) == (native.stdout, native.stderr)
    assert bound(log) == ["2.0.0", "2.2.0", "1.14.6"]


def test_what_the_process_starts_is_served(path, log, environment):
    program = ENABLE + (
        "import subprocess, sys\n"
        f"subprocess.run([sys.executable, '-c', {READ!r}, sys.argv[1]], check=True)"
    )
    run_python(program, path, env=environment)
    assert bound(log) == ["2.0.0", "2.2.0", "1.14.6"]


@pytest.mark.parametrize("when", ["before", "between", "after"])
def test_the_plugin_path_is_the_program_s(when, path, log, environment):
    """What replaced it after variables of HDF5 had named the connector crashed with HDF5 2."""
    path_set = "import os; os.environ['HDF5_PLUGIN_PATH'] = '/opt/site/filters'\n"
    parts = {
        "before": (path_set, ENABLE, "import h5py\n"),
        "between": (ENABLE, path_set, "import h5py\n"),
        "after": (ENABLE, "import h5py\n", path_set),
    }[when]
    look = "print([h5py.h5pl.get(i) for i in range(h5py.h5pl.size())])\n"
    program = "".join(parts) + look + READ
    native = run_python(program.replace(ENABLE, ""), path, env=environment)
    served = run_python(program, path, env=environment)
    assert served.stdout == native.stdout
    assert "2.0.0" in bound(log)


@pytest.mark.parametrize("package", PACKAGES.split(", "))
def test_after_an_import_of_hdf5_it_is_refused_in_words(package, log, environment):
    program = f"import {package}, sds\ntry: sds.enable()\nexcept Exception as e: print(repr(e))"
    said = run_python(program, env=environment).stdout
    assert said.startswith("ConfigurationError(")
    assert f"{package} is loaded already" in said
    assert "restart the kernel" in said
    assert bound(log) == []


def test_twice_and_under_sds_run_nothing_more_happens(path, log, environment, home):
    twice = ENABLE + READ + ENABLE
    run_python(twice, path, env=environment)
    assert len(bound(log)) == 3
    log.unlink()
    run_python("import h5py\n" + twice, path, env=connector_environment(home.root, SDS_DEBUG=log))
    assert len(bound(log)) == 3


def test_switched_off_it_does_nothing(path, log, environment):
    before = "import os; before = dict(os.environ)\n"
    after = "assert before == dict(os.environ)\n"
    run_python(before + ENABLE + after + READ, path, env=environment | {"SDS_DISABLE": "1"})
    assert bound(log) == []


def test_another_connector_in_the_environment_is_named(environment):
    program = "import sds\ntry: sds.enable()\nexcept Exception as e: print(repr(e))"
    said = run_python(program, env=environment | {"HDF5_VOL_CONNECTOR": "pass_through"}).stdout
    assert "'pass_through' already names another connector" in said


def test_a_python_without_packages_of_hdf5_is_named(environment):
    program = f"""
        import importlib.util, sys
        found = importlib.util.find_spec
        hidden = {PACKAGES.split(", ")}
        importlib.util.find_spec = lambda name: None if name in hidden else found(name)
        import sds
        try: sds.enable()
        except Exception as e: print(repr(e))
    """
    said = run_python(program, env=environment).stdout
    assert f"{sys.executable} has no package with an HDF5 of its own" in said


def test_an_hdf5_of_a_package_that_is_never_served_does_not_matter(
    tmp_path, path, log, environment
):
    """As that of a wheel which bundles one for itself."""
    library = tmp_path / "libhdf5-of-others.so"
    source = tmp_path / "others.c"
    source.write_text("int others;")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    program = f"import ctypes; ctypes.CDLL({str(library)!r})\n" + ENABLE + READ
    run_python(program, path, env=environment)
    assert len(bound(log)) == 3


def test_two_libraries_of_one_name_are_not_loaded_together(environment):
    """As of modules: a package that is imported alone would get the other's."""
    program = """
        import sds
        from pathlib import Path
        from sds.redirect.launch import running_process
        from sds.redirect.launch.probe import Hdf5Library
        paths = {"h5py": "/opt/h5py/libhdf5.so.310.0", "tables": "/opt/tables/libhdf5.so.310.1"}
        running_process.libraries_of_python = lambda *_: tuple(
            Hdf5Library(used_by=name, path=Path(path), version="1.14.6")
            for name, path in paths.items()
        )
        try: sds.enable()
        except Exception as e: print(repr(e))
    """
    said = run_python(program, env=environment).stdout
    assert "/opt/h5py/libhdf5.so.310.0 and /opt/tables/libhdf5.so.310.1 are both called" in said
    assert "sds run" in said


def test_where_the_library_cannot_be_loaded_it_says_so(tmp_path, environment):
    broken = tmp_path / "data" / "sds" / "preload" / os.uname().machine / "sds_preload.so"
    program = f"""
        import sds
        from sds.redirect.launch import connector, running_process
        running_process.library_of = lambda _: {str(broken)!r}
        try: sds.enable()
        except Exception as e: print(repr(e))
    """
    said = run_python(program, env=environment).stdout
    assert said.startswith("ConfigurationError(")
    assert "cannot be loaded" in said


NOW = """
#include <stdlib.h>
static int written = 1;
const char *ask(void) { return getenv("HDF5_VOL_CONNECTOR"); }
void write_data(void) { written++; }
"""
ANSWER = """
char *getenv(const char *name) { (void)name; return "answered"; }
"""


def test_a_library_whose_slots_are_read_only_is_led_there_too(tmp_path):
    """Linked with -z now, the loader makes the page of the slots unwritable."""
    for name, text in (("now", NOW), ("answer", ANSWER)):
        (tmp_path / f"{name}.c").write_text(text)
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-Wl,-z,now,-z,relro", "-o", tmp_path / f"{name}.so",
             tmp_path / f"{name}.c"],
            check=True,
        )  # fmt: skip
    program = """
        import ctypes, sys
        from pathlib import Path
        from sds import _native
        library, answer = sys.argv[1:]
        loaded = ctypes.CDLL(library)
        loaded.ask.restype = ctypes.c_char_p
        def rights():
            lines = Path("/proc/self/maps").read_text().splitlines()
            return [line.split()[1] for line in lines if line.endswith("now.so")]
        before = rights()
        assert loaded.ask() is None
        assert _native.replace_import(library.encode(), "getenv", answer.encode()) == 1
        assert loaded.ask() == b"answered"
        assert rights() == before
        loaded.write_data()
    """
    run_python(program, tmp_path / "now.so", tmp_path / "answer.so", env=native_environment())


def test_memory_is_as_writable_as_before(environment):
    program = """
        import ctypes, sys
        from pathlib import Path
        from sds.redirect.launch.probe import libraries_of_python

        def rights():
            lines = Path("/proc/self/maps").read_text().splitlines()
            return [line.split()[1] for line in lines if "libhdf5" in line]

        for library in libraries_of_python(Path(sys.executable), {}):
            ctypes.CDLL(str(library.path))
        from sds import _native
        from sds.redirect.launch.connector import library_of, preload_entry
        preload = library_of(preload_entry()).encode()
        for library in libraries_of_python(Path(sys.executable), {}):
            before = rights()
            assert _native.replace_import(str(library.path).encode(), "getenv", preload) > 0
            assert rights() == before
        assert len(before) > 3
    """
    run_python(program, env=environment)


def test_a_library_that_does_not_load_is_left_to_the_import(tmp_path, log, environment):
    """As where one that it needs is missing: only who imports its package is concerned."""
    package = tmp_path / "tables"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "libhdf5.so").write_bytes(b"no library")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n" + ENABLE + "import h5py"
    run_python(program, env=environment)
    assert bound(log) == ["2.0.0"]
    assert [entry[1] for entry in decisions(log) if entry[0] == "native"] == [
        str(package / "libhdf5.so")
    ]
