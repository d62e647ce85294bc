"""The variables that switch the connector on in shells and processes, and take that back."""

import json
import os
import shutil
import stat
import subprocess
import sys

import pytest

from sds.errors import ConfigurationError
from sds.home import Home
from sds.redirect.launch import connector
from sds.redirect.launch.connector import switched_off, switched_on
from tests.robustness.conftest import needs_root
from tests.under_connector import native_environment


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """An installation that can be removed."""
    place = tmp_path / "installed"
    for part in ("plugin", "preload"):
        shutil.copytree(connector.plugin_path().parents[1] / part, place / part)
    plugin = place / "plugin" / connector.PLUGIN_NAME
    monkeypatch.setattr(connector, "plugin_path", lambda: plugin)
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
        {"LD_PRELOAD": "libjemalloc.so.2:/site/libdarshan.so", "ASAN_OPTIONS": "verbosity=0"},
        {"HDF5_PLUGIN_PATH": "/own/filters", "SDS_HOME": "relative"},
    ],
)
def test_what_was_there_comes_back(before):
    once = apply(before, switched_on(before))
    assert connector.is_switched_on(once)
    assert {name: once[name] for name in before if name.startswith(("HDF5_", "SDS_"))} == {
        name: before[name] for name in before if name.startswith(("HDF5_", "SDS_"))
    }
    assert apply(once, switched_on(once)) == once
    assert apply(once, switched_off(once)) == before


def test_what_the_user_preloads_meanwhile_stays():
    shell = switched_on({})
    shell["LD_PRELOAD"] += ":libnew.so"
    shell = apply(shell, switched_on(shell))
    assert shell["LD_PRELOAD"].split(":")[1:] == ["libnew.so"]
    assert apply(shell, switched_off(shell)) == {"LD_PRELOAD": "libnew.so"}


def test_a_shell_that_never_switched_on_is_left_alone():
    assert switched_off({"HDF5_VOL_CONNECTOR": "other", "LD_PRELOAD": "libother.so"}) == {}


@pytest.mark.parametrize("variable", ["HDF5_VOL_CONNECTOR", "LD_PRELOAD", "SDS_CONNECTOR"])
def test_a_shell_without_one_of_the_variables_is_switched_off(variable):
    shell = switched_on({})
    shell[variable] = "native" if variable == "HDF5_VOL_CONNECTOR" else ""
    if variable == "SDS_CONNECTOR":
        del shell[variable]
    assert not connector.is_switched_on(shell)


def test_the_copy_is_renewed_only_where_it_differs(installed, data):
    copy = data / "sds" / "preload" / os.uname().machine / connector.PRELOAD_NAME
    library = installed / "preload" / os.uname().machine / connector.PRELOAD_NAME
    assert connector.preload_entry().startswith(f"{data}/")
    assert copy.read_bytes() == library.read_bytes()
    first = copy.stat().st_ino
    connector.preload_entry()
    assert copy.stat().st_ino == first
    library.write_bytes(library.read_bytes() + b"newer")
    connector.preload_entry()
    assert copy.read_bytes() == library.read_bytes()
    assert [path.name for path in copy.parent.iterdir()] == [copy.name]


def test_no_copy_goes_where_others_could_change_it(installed, data):
    """Through a directory on the way that is not SDS's own: who owns it has to close it."""
    data.mkdir()
    data.chmod(0o777)
    assert connector.preload_entry().startswith(f"{installed}/")
    assert list(data.rglob(connector.PRELOAD_NAME)) == []
    data.chmod(0o1777)
    assert connector.preload_entry().startswith(f"{data}/")


@needs_root("gives a directory to another account")
@pytest.mark.parametrize("of_other", ["sds", "sds/preload", f"sds/preload/{os.uname().machine}"])
def test_no_copy_goes_into_a_directory_of_another_account(of_other, installed, data):
    place = data / "sds" / "preload" / os.uname().machine
    place.mkdir(parents=True)
    os.chown(data / of_other, 65534, 65534)
    assert connector.preload_entry().startswith(f"{installed}/")
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o022, 0o077])
@pytest.mark.usefixtures("installed")
def test_directories_of_sds_are_closed_whatever_the_umask(umask, data, tmp_path):
    home = Home(tmp_path / "new" / "home")
    before = os.umask(umask)
    try:
        assert connector.preload_entry().startswith(f"{data}/")
        home.create()
    finally:
        os.umask(before)
    made = [*(data / "sds").rglob("*"), data / "sds", home.root.parent, home.root, home.tables]
    assert {stat.S_IMODE(path.stat().st_mode) for path in made if path.is_dir()} == {0o700}
    assert not any(path.stat().st_mode & 0o022 for path in made)


@pytest.mark.usefixtures("installed")
def test_what_an_earlier_version_left_open_is_closed(data):
    """And a library that others could have changed is replaced."""
    assert connector.preload_entry().startswith(f"{data}/")
    place = data / "sds" / "preload" / os.uname().machine
    copy = place / connector.PRELOAD_NAME
    for path in (data / "sds", place.parent, place, copy):
        path.chmod(0o777)
    first = copy.stat().st_ino
    assert connector.preload_entry().startswith(f"{data}/")
    assert copy.stat().st_ino != first
    assert not any(
        path.stat().st_mode & 0o022 for path in (data / "sds", place.parent, place, copy)
    )


@pytest.mark.parametrize("data_home", ["/proc/none", "a home", "a:b", "dollar$"])
def test_without_a_fit_place_for_a_copy_the_installed_library_is_named(
    data_home, installed, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / data_home))
    assert connector.preload_entry().startswith(f"{installed}/")


def test_a_path_that_the_loader_would_cut_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "a home"))
    monkeypatch.setattr(connector, "plugin_path", lambda: tmp_path / "a b" / "plugin" / "x.so")
    with pytest.raises(ConfigurationError, match="a b"):
        switched_on({})


@pytest.mark.parametrize("quotes", ['"', ""])
def test_lines_kept_for_later_name_nothing_that_is_gone(quotes, tmp_path, data):
    lines = tmp_path / "profile"
    command = [sys.executable, "-m", "sds.cli", "env"]
    lines.write_bytes(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    script = f'eval {quotes}$(cat {lines}){quotes}; echo "${{LD_PRELOAD:-none}}"'

    def preloaded():
        shown = subprocess.run(
            ["sh", "-c", script], env={"PATH": os.environ["PATH"]}, check=True,
            capture_output=True, text=True,
        )  # fmt: skip
        assert shown.stderr == ""
        return shown.stdout.strip()

    assert preloaded().endswith("/sds_preload.so")
    shutil.rmtree(data)
    assert preloaded() == "none"


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
        assert shown.stderr == ""
        return json.loads(shown.stdout)

    switched = variables(on, native)
    assert connector.is_switched_on(switched)
    off = subprocess.run(
        [*sds, "--unset"], check=True, capture_output=True, text=True, env=switched
    ).stdout
    left = variables(off, switched)
    ours = ("ASAN_", "HDF5_", "LD_PRELOAD", "SDS_")
    assert not [key for key in left if key.startswith(ours)]
