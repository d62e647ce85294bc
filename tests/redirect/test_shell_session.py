"""A shell that switched SDS on: it gets back what it had, and outlives SDS."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from sds.redirect import connector
from sds.redirect.shell_session import UNDO, switched_off, switched_on
from tests.under_connector import native_environment, run_python

THREE_PACKAGES = """
    import sys
    import h5py, netCDF4, tables
    for name in ("h5py", "netCDF4", "tables"):
        path = f"{sys.argv[1]}/{name}.h5"
        if name == "h5py":
            with h5py.File(path, "w") as file:
                file["x"] = [1, 2, 3]
        elif name == "netCDF4":
            with netCDF4.Dataset(path, "w") as file:
                file.createDimension("x", 1000)
                file.createVariable("v", "i4", ("x",), compression="zstd")[:] = range(1000)
        else:
            with tables.open_file(path, "w") as file:
                file.create_array("/", "x", [1, 2, 3])
        with h5py.File(path) as file:
            print(name, list(file))
        try:
            h5py.File("/missing")
        except OSError as error:
            print(type(error).__name__)
"""


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """An installation of the connector that can be removed."""
    place = tmp_path / "installed" / connector.PLUGIN_NAME
    place.parent.mkdir()
    shutil.copy2(connector.plugin_path(), place)
    monkeypatch.setattr(connector, "plugin_path", lambda: place)
    return place


def apply(environ, changes):
    changed = dict(environ)
    for name, value in changes.items():
        if value is None:
            changed.pop(name, None)
        else:
            changed[name] = value
    return changed


@pytest.mark.parametrize(
    "before",
    [
        {},
        {"HDF5_PLUGIN_PATH": "/own/filters:/others"},
        {"HDF5_PLUGIN_PATH": "/usr/local/hdf5/lib/plugin", "SDS_HOME": "relative"},
    ],
)
def test_what_was_there_comes_back(before, home):
    once = apply(before, switched_on(home, before))
    assert once["HDF5_VOL_CONNECTOR"].startswith("sds ")
    assert apply(once, switched_on(home, once)) == once
    assert apply(once, switched_off(once)) == before


def test_what_the_user_adds_meanwhile_stays(home):
    shell = switched_on(home, {})
    shell["HDF5_PLUGIN_PATH"] += ":/new"
    shell = apply(shell, switched_on(home, shell))
    assert apply(shell, switched_off(shell)) == {"HDF5_PLUGIN_PATH": "/new"}


def test_a_shell_that_never_switched_on_is_left_alone():
    assert switched_off({"HDF5_PLUGIN_PATH": "/own", "HDF5_VOL_CONNECTOR": "other"}) == {}


def test_a_memory_that_was_changed_is_no_reason_to_fail(home):
    shell = switched_on(home, {}) | {UNDO: "garbage"}
    assert "HDF5_VOL_CONNECTOR" not in apply(shell, switched_off(shell))


def test_the_copy_is_renewed_only_where_it_differs(installed):
    directory = connector.keep_plugin()
    copy = directory / connector.PLUGIN_NAME
    assert copy.read_bytes() == installed.read_bytes()
    first = copy.stat().st_ino
    assert connector.keep_plugin() == directory
    assert copy.stat().st_ino == first
    os.utime(installed)
    connector.keep_plugin()
    assert copy.stat().st_ino != first
    assert [path.name for path in directory.iterdir()] == [copy.name]


def test_no_copy_goes_where_others_could_change_it(data, installed):
    assert installed.exists()
    (data / "sds" / "plugin").mkdir(parents=True)
    (data / "sds" / "plugin").chmod(0o777)
    assert connector.keep_plugin() is None


def test_without_room_for_a_copy_there_is_none(monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", "/proc/none")
    assert connector.keep_plugin() is None


def test_programs_of_an_open_shell_outlive_the_installation(installed, home, tmp_path):
    native = native_environment()
    shell = apply(native, switched_on(home, native, kept_plugin=connector.keep_plugin()))
    before = run_python(THREE_PACKAGES, tmp_path, env=native)
    shutil.rmtree(installed.parent)
    after = run_python(THREE_PACKAGES, tmp_path, env=shell)
    assert (after.stdout, after.stderr) == (before.stdout, before.stderr)


@pytest.mark.parametrize("quotes", ['"', ""])
def test_lines_kept_for_later_name_nothing_that_is_gone(quotes, tmp_path, data):
    lines = tmp_path / "profile"
    command = [sys.executable, "-m", "sds.cli", "env"]
    lines.write_bytes(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    script = f'eval {quotes}$(cat {lines}){quotes}; echo "${{HDF5_VOL_CONNECTOR:-none}}"'

    def connector_named():
        return subprocess.run(
            ["sh", "-c", script], env={"PATH": os.environ["PATH"]}, check=True,
            capture_output=True, text=True,
        ).stdout.strip()  # fmt: skip

    assert connector_named().startswith("sds ")
    shutil.rmtree(data)
    assert connector_named() == "none"


@pytest.mark.parametrize(("name", "shell"), [("sh", "bash"), ("csh", "csh"), ("fish", "fish")])
def test_each_shell_understands_its_lines(name, shell, tmp_path, data, tool):
    program = tool(name)
    sds = [sys.executable, "-m", "sds.cli", "env", "--shell", shell]
    native = native_environment(XDG_DATA_HOME=data)
    on = subprocess.run(sds, check=True, capture_output=True, text=True, env=native).stdout
    show = f"{sys.executable} -c 'import json, os; print(json.dumps(dict(os.environ)))'"

    def variables(script, env):
        path = tmp_path / "script"
        path.write_text(script + show + "\n")
        shown = subprocess.run([program, path], check=True, capture_output=True, text=True, env=env)
        return json.loads(shown.stdout)

    switched = variables(on, native)
    assert switched["HDF5_VOL_CONNECTOR"] == connector.CONNECTOR
    off = subprocess.run(
        [*sds, "--unset"], check=True, capture_output=True, text=True, env=switched
    ).stdout
    left = variables(off, switched)
    assert not [key for key in left if key.startswith(("SDS_", "HDF5_"))]
