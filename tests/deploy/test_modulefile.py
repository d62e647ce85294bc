import os
import subprocess
from pathlib import Path

import pytest

import sds
from sds.redirect.connector import CONNECTOR, HDF5_DEFAULT_PLUGIN_DIRECTORY, PLUGIN_NAME

MODULEFILES = Path(__file__).parents[2] / "deploy" / "modulefiles"
LMOD = "/usr/share/lmod/lmod/libexec/lmod"


@pytest.fixture
def prefix(tmp_path):
    """A prefix in which SDS and netCDF4 are installed, as far as the modulefile looks."""
    packages = tmp_path / "sds" / "lib" / "python3.12" / "site-packages"
    (packages / "sds" / "redirect" / "plugin").mkdir(parents=True)
    (packages / "sds" / "redirect" / "plugin" / PLUGIN_NAME).touch()
    (packages / "netCDF4" / "plugins").mkdir(parents=True)
    return tmp_path / "sds"


def module(tool, *arguments, **environment):
    """Return what a shell has after `module ...`: Lmod's answer, and the variables."""
    ask = [tool(LMOD), "bash", *arguments]
    clean = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    variables = clean | {"MODULEPATH": str(MODULEFILES), "LMOD_CMD": LMOD} | environment
    answer = subprocess.run(ask, env=variables, capture_output=True, text=True, check=False)
    shown = subprocess.run(
        ["bash", "--noprofile", "--norc", "-c", answer.stdout + "\nenv -0"],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    after = dict(line.split("=", 1) for line in shown.stdout.split("\0") if "=" in line)
    return answer, after


def test_it_is_lua(tool):
    for path in MODULEFILES.rglob("*.lua"):
        subprocess.run([tool("luac5.3"), "-p", path], check=True)


def test_the_version_is_that_of_the_package():
    assert [path.stem for path in MODULEFILES.rglob("*.lua")] == [sds.__version__]


def test_loading_switches_the_connector_on_and_keeps_every_filter(tool, prefix):
    answer, after = module(
        tool, "load", "sds", SDS_PREFIX=str(prefix), HDF5_PLUGIN_PATH="/site/filters"
    )
    packages = prefix / "lib" / "python3.12" / "site-packages"
    assert after["HDF5_VOL_CONNECTOR"] == CONNECTOR, answer.stderr
    assert after["HDF5_PLUGIN_PATH"].split(":") == [
        str(packages / "sds" / "redirect" / "plugin"),
        str(packages / "netCDF4" / "plugins"),
        "/site/filters",
        str(HDF5_DEFAULT_PLUGIN_DIRECTORY),
        "/usr/local/lib/hdf5/plugin",
        "/usr/local/lib/plugin",
    ]
    assert after["PATH"].split(":")[0] == str(prefix / "bin")
    assert "SDS_HOME" not in after


def test_a_site_may_name_a_home(tool, prefix):
    _, after = module(tool, "load", "sds", SDS_PREFIX=str(prefix), SDS_SITE_HOME="/scratch/sds")
    assert after["SDS_HOME"] == "/scratch/sds"


def test_unloading_takes_everything_back(tool, prefix):
    given = {"SDS_PREFIX": str(prefix), "HDF5_PLUGIN_PATH": "/site/filters"}
    _, loaded = module(tool, "load", "sds", **given)
    _, after = module(tool, "unload", "sds", **loaded)
    assert "HDF5_VOL_CONNECTOR" not in after
    assert after["HDF5_PLUGIN_PATH"] == "/site/filters"


def test_without_the_plugin_nothing_is_exported(tool, tmp_path):
    answer, after = module(tool, "load", "sds", SDS_PREFIX=str(tmp_path))
    assert "is not installed in" in answer.stderr
    assert PLUGIN_NAME in answer.stderr
    assert "HDF5_VOL_CONNECTOR" not in after
    assert "HDF5_PLUGIN_PATH" not in after


def test_another_connector_is_not_replaced(tool, prefix):
    answer, after = module(
        tool, "load", "sds", SDS_PREFIX=str(prefix), HDF5_VOL_CONNECTOR="async under_vol=0"
    )
    assert "already names another connector" in " ".join(answer.stderr.split())
    assert after["HDF5_VOL_CONNECTOR"] == "async under_vol=0"
