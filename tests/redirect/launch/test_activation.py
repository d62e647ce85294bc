import signal
import subprocess
import sys
import textwrap

import pytest

from sds.errors import ConfigurationError
from sds.redirect.launch import connector
from sds.redirect.launch.activation import environment
from tests.under_connector import native_environment

RUN = """
import os, sys
from pathlib import Path
from sds.home import Home
from sds.redirect.launch.activation import environment, run_program
run_program(sys.argv[2:], environment(Home(Path(sys.argv[1])), os.environ))
"""


def start(home, *command):
    return subprocess.Popen(
        [sys.executable, "-c", RUN, home.root, *command],
        env=native_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_parts_are_switched_off(home):
    variables = environment(home, {}, trace=False, redirect=False)
    assert (variables["SDS_TRACE"], variables["SDS_REDIRECT"]) == ("0", "0")


@pytest.mark.parametrize(
    ("base", "named"),
    [
        ({"HDF5_VOL_CONNECTOR": "async under_vol=0;under_info={}"}, "async"),
        ({"HDF5_PLUGIN_PRELOAD": "::"}, "HDF5_PLUGIN_PRELOAD"),
    ],
)
def test_another_connector_and_forbidden_plugins_are_respected(base, named, home):
    with pytest.raises(ConfigurationError, match=named):
        environment(home, base)


def test_a_connector_that_is_not_there(home, monkeypatch):
    monkeypatch.setattr(connector, "PLUGIN_NAME", "libgone.so")
    with pytest.raises(ConfigurationError, match="not installed"):
        environment(home, {})


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
