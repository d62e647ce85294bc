import os
import shutil
import signal
import subprocess
import sys
import textwrap

import pytest

from sds.errors import ConfigurationError
from sds.redirect import connector
from sds.redirect.activate import environment, program_environment
from tests.under_connector import connector_environment, native_environment, run_python

RUN = """
import os, sys
from pathlib import Path
from sds.home import Home
from sds.redirect.activate import program_environment, run_program
chosen = program_environment(sys.argv[2:], Home(Path(sys.argv[1])), os.environ)
run_program(sys.argv[2:], chosen.variables)
"""


def build_old(program):
    """Build a program with an HDF5 1.12 in it, as far as a launcher can see."""
    source = program.with_suffix(".c")
    source.write_text(
        'const char t[] = "HDF5 library version: 1.12.2"; int main(void) { return t[0]; }'
    )
    subprocess.run([shutil.which("cc"), source, "-o", program], check=True)


def start(home, *command):
    return subprocess.Popen(
        [sys.executable, "-c", RUN, home.root, *command],
        env=native_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_the_paths_that_were_there_are_kept(home):
    base = {"HDF5_PLUGIN_PATH": "/own/filters:/others", "PATH": "/bin"}
    variables = environment(home, base)
    paths = variables["HDF5_PLUGIN_PATH"].split(":")
    assert paths[0] == str(connector.plugin_path().parent)
    assert paths[1:3] == ["/own/filters", "/others"]
    assert paths[3].endswith("netCDF4/plugins")
    assert paths[-1] == "/usr/local/hdf5/lib/plugin"
    assert variables["PATH"] == "/bin"
    assert variables["SDS_HOME"] == str(home.root)
    assert environment(home, variables) == variables
    assert base == {"HDF5_PLUGIN_PATH": "/own/filters:/others", "PATH": "/bin"}


def test_parts_are_switched_off(home):
    variables = environment(home, {}, trace=False, redirect=False)
    assert (variables["SDS_TRACE"], variables["SDS_REDIRECT"]) == ("0", "0")


def test_another_connector_is_left_alone(home):
    base = {"HDF5_VOL_CONNECTOR": "async under_vol=0;under_info={}"}
    with pytest.raises(ConfigurationError, match="async"):
        environment(home, base)
    chosen = program_environment(["python3"], home, base | {"PATH": os.environ["PATH"]})
    assert chosen.variables["HDF5_VOL_CONNECTOR"].startswith("async")
    assert "async" in chosen.problem


def test_forbidden_plugins_are_respected(home):
    base = {"HDF5_PLUGIN_PRELOAD": "::", "PATH": os.environ["PATH"]}
    chosen = program_environment([sys.executable], home, base)
    assert chosen.variables == base
    assert "HDF5_PLUGIN_PRELOAD" in chosen.problem


def test_the_command_behind_a_wrapper_is_probed_where_it_is_named(home, tmp_path):
    old = tmp_path / "old"
    build_old(old)
    script = tmp_path / "wrapper"
    script.write_text(f"#!/bin/sh\nexec {old}\n")
    script.chmod(0o755)
    unknown = program_environment([str(script)], home, native_environment())
    assert "HDF5_VOL_CONNECTOR" in unknown.variables
    known = program_environment([str(script)], home, native_environment(), probed=[str(old)])
    assert "HDF5_VOL_CONNECTOR" not in known.variables


def test_programs_find_the_plugins_that_they_find_without_it(home):
    chosen = program_environment([sys.executable], home, native_environment())
    entries = chosen.variables["HDF5_PLUGIN_PATH"].split(":")
    assert entries[0] == str(connector.plugin_path().parent)
    # Compiled into the libraries of netCDF4 and h5py.
    assert {"/usr/local/lib/hdf5/plugin", "/usr/local/lib/plugin"} <= set(entries)


def test_a_connector_that_is_not_there(home, monkeypatch):
    monkeypatch.setattr(connector, "PLUGIN_NAME", "libgone.so")
    with pytest.raises(ConfigurationError, match="not installed"):
        connector.plugin_path()
    chosen = program_environment([sys.executable], home, native_environment())
    assert "HDF5_VOL_CONNECTOR" not in chosen.variables
    assert "not installed" in chosen.problem


def test_a_program_that_cannot_load_it_stays_native(home, tmp_path):
    program = tmp_path / "old"
    build_old(program)
    chosen = program_environment([str(program)], home, native_environment())
    assert chosen.variables == native_environment()
    assert "1.12.2" in chosen.problem


def test_exit_status_and_output_are_the_programs(home):
    running = start(home, sys.executable, "-c", "import sys; print('out'); sys.exit(7)")
    assert running.communicate(timeout=60) == ("out\n", "")
    assert running.returncode == 7


def test_signals_are_the_programs(home):
    program = """
        import signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(42))
        print("ready", flush=True)
        time.sleep(60)
    """
    running = start(home, sys.executable, "-c", textwrap.dedent(program))
    assert running.stdout.readline() == "ready\n"
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=60)
    assert running.returncode == 42


def test_a_killed_program_is_seen_as_killed(home):
    program = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    running = start(home, sys.executable, "-c", program)
    running.communicate(timeout=60)
    assert running.returncode == -signal.SIGKILL


def test_netcdf4_keeps_its_filters(home, tmp_path):
    program = """
        import sys, netCDF4, numpy as np
        with netCDF4.Dataset(sys.argv[1] + "/z.nc", "w") as file:
            file.createDimension("x", 1000)
            file.createVariable("v", "i4", ("x",), compression="zstd")[:] = np.arange(1000)
        with netCDF4.Dataset(sys.argv[1] + "/z.nc") as file:
            print(int(file["v"][:].sum()))
    """
    env = connector_environment(home.root)
    assert run_python(program, tmp_path, env=env).stdout == "499500\n"
