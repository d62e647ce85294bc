import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import h5py
import pytest

import sds
from sds.home import Home
from sds.redirect.launch import connector
from sds.redirect.launch.connector import PLUGIN_NAME
from sds.trace import read_spool

MODULEFILES = Path(__file__).parents[2] / "deploy" / "modulefiles"
LMOD = "/usr/share/lmod/lmod/libexec/lmod"


@pytest.fixture
def prefix(tmp_path):
    """A prefix in which SDS is installed, as far as the modulefile and programs look."""
    package = tmp_path / "sds" / "lib" / "python3.12" / "site-packages" / "sds" / "redirect"
    for part in ("plugin", "preload"):
        shutil.copytree(connector.plugin_path().parents[1] / part, package / part)
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


def test_loading_switches_the_connector_on_and_changes_no_variable_of_hdf5(tool, prefix, tmp_path):
    given = {"SDS_PREFIX": str(prefix), "LD_PRELOAD": "libm.so.6", "XDG_DATA_HOME": str(tmp_path)}
    answer, after = module(tool, "load", "sds", **given)
    package = prefix / "lib" / "python3.12" / "site-packages" / "sds" / "redirect"
    entry = f"{package}/preload/{connector._platform()}/sds_preload.so"
    assert after["LD_PRELOAD"] == f"{entry}:libm.so.6", answer.stderr
    assert after["SDS_CONNECTOR"] == str(package / "plugin" / PLUGIN_NAME)
    assert after["PATH"].split(":")[0] == str(prefix / "bin")
    assert not [name for name in after if name.startswith("HDF5_") or name == "SDS_HOME"]


def test_the_first_program_is_traced(tool, prefix, tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = range(10)
    data = tmp_path / "it has spaces and $ signs"
    _, after = module(tool, "load", "sds", SDS_PREFIX=str(prefix), XDG_DATA_HOME=str(data))
    home = Home(data / "sds")
    assert stat.S_IMODE(home.spool.stat().st_mode) == 0o700
    program = "import sys, h5py; print(h5py.File(sys.argv[1])['x'][3:5].sum())"
    read = [sys.executable, "-c", program, tmp_path / "a.h5"]
    result = subprocess.run(read, env=after, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "7\n", "")
    (trace,) = home.spool.iterdir()
    assert read_spool(trace).records.n_reads.sum() == 1


def test_a_site_may_name_a_home(tool, prefix, tmp_path):
    site = str(tmp_path / "scratch")
    _, after = module(tool, "load", "sds", SDS_PREFIX=str(prefix), SDS_SITE_HOME=site)
    assert after["SDS_HOME"] == site


def test_unloading_takes_everything_back(tool, prefix, tmp_path):
    given = {
        "SDS_PREFIX": str(prefix), "LD_PRELOAD": "libm.so.6", "XDG_DATA_HOME": str(tmp_path),
    }  # fmt: skip
    _, loaded = module(tool, "load", "sds", **given)
    _, after = module(tool, "unload", "sds", **loaded)
    assert not {"ASAN_OPTIONS", "SDS_CONNECTOR"} & set(after)
    assert after["LD_PRELOAD"] == "libm.so.6"


def test_without_the_plugin_nothing_is_exported(tool, tmp_path):
    answer, after = module(tool, "load", "sds", SDS_PREFIX=str(tmp_path))
    assert "is not installed in" in answer.stderr
    assert PLUGIN_NAME in answer.stderr
    assert not {"LD_PRELOAD", "SDS_CONNECTOR"} & set(after)


def test_another_connector_is_not_replaced(tool, prefix):
    answer, after = module(
        tool, "load", "sds", SDS_PREFIX=str(prefix), HDF5_VOL_CONNECTOR="async under_vol=0"
    )
    assert "already names another connector" in " ".join(answer.stderr.split())
    assert after["HDF5_VOL_CONNECTOR"] == "async under_vol=0"
