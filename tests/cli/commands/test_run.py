"""``sds run`` becomes the program: its output, status, signals and arguments are its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from sds.redirect.launch.connector import is_switched_on

SDS = (sys.executable, "-m", "sds.cli")


def run(*words):
    return subprocess.run(
        [*SDS, *map(str, words)], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("SDS_HOME", str(tmp_path / "home"))


@pytest.mark.parametrize("status", [0, 1, 3, 77])
def test_the_status_is_the_programs(status):
    result = run("run", "--", "sh", "-c", f"echo out; echo err >&2; exit {status}")
    assert (result.returncode, result.stdout, result.stderr) == (status, "out\n", "err\n")


def test_arguments_arrive_as_they_are():
    words = ["--json", "-x", "--", "a b", "", "*", "--help"]
    show = "import sys, json; print(json.dumps(sys.argv[1:]))"
    for separator in ([], ["--"]):
        result = run("run", *separator, sys.executable, "-c", show, *words)
        assert json.loads(result.stdout) == words


def test_the_environment_has_the_connector_and_keeps_the_rest(monkeypatch, tmp_path):
    monkeypatch.setenv("HDF5_PLUGIN_PATH", "/somewhere/plugins")
    show = "import os, json; print(json.dumps(dict(os.environ)))"
    found = json.loads(run("run", "--", sys.executable, "-c", show).stdout)
    assert is_switched_on(found)
    assert found["HDF5_PLUGIN_PATH"] == "/somewhere/plugins"
    assert "HDF5_VOL_CONNECTOR" not in found
    assert found["SDS_HOME"] == str(tmp_path / "home")
    assert (tmp_path / "home" / "spool").is_dir()
    assert not {"SDS_TRACE", "SDS_VERBOSE"} & set(found)
    quiet = run("run", "--no-trace", "--no-redirect", sys.executable, "-c", show)
    assert json.loads(quiet.stdout)["SDS_TRACE"] == "0"
    assert json.loads(quiet.stdout)["SDS_REDIRECT"] == "0"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_signals_reach_the_program(number):
    with subprocess.Popen(
        [*SDS, "run", "--", "sh", "-c", "echo $$; exec sleep 60"],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert int(process.stdout.readline()) == process.pid
        time.sleep(0.1)
        os.kill(process.pid, number)
        assert process.wait(120) == -number


def test_a_program_that_is_not_there(tmp_path, monkeypatch):
    # Executing a directory is refused, as searching one of another user's is.
    (tmp_path / "no-such-program").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for words in ((), ("--verbose",)):
        result = run("run", *words, "--", "no-such-program")
        assert (result.returncode, result.stdout) == (127, "")
        assert result.stderr == "sds: error: no-such-program: command not found\n"


def test_a_program_that_cannot_be_executed(tmp_path):
    script = tmp_path / "plain"
    script.write_text("text")
    result = run("run", "--", script)
    assert (result.returncode, result.stdout) == (126, "")
    assert str(script) in result.stderr


def test_a_home_that_cannot_be_made_does_not_stop_the_program(monkeypatch):
    monkeypatch.setenv("SDS_HOME", "/proc/no/home")
    result = run("run", "--", "echo", "done")
    assert (result.returncode, result.stdout, result.stderr) == (0, "done\n", "")
    result = run("run", "--verbose", "--", "echo", "done")
    assert (result.returncode, result.stdout) == (0, "done\n")
    assert "without SDS" in result.stderr


def test_another_connector_is_left_alone(monkeypatch):
    monkeypatch.setenv("HDF5_VOL_CONNECTOR", "other under_vol=0;under_info={}")
    result = run("run", "-v", "--", "sh", "-c", "echo $HDF5_VOL_CONNECTOR")
    assert result.stdout.startswith("other ")
    assert "already names another connector" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_what_is_used_is_said_only_when_asked(tmp_path, monkeypatch):
    monkeypatch.setenv("HDF5_PLUGIN_PRELOAD", "::")
    log = tmp_path / "log"
    monkeypatch.setenv("SDS_DEBUG", str(log))
    result = run("run", "--", "true")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert log.read_text().split("\t")[1:3] == ["native", "true"]
    assert "HDF5_PLUGIN_PRELOAD" in run("run", "-v", "--", "true").stderr


def test_verbose_names_what_is_served_and_nothing_else():
    """The program itself says so: nobody knows before which HDF5 it loads."""
    assert run("run", "-v", "--", "true").stderr == ""
    read = "import h5py, netCDF4; print(h5py.version.hdf5_version)"
    result = run("run", "-v", "--", "sh", "-c", f"{sys.executable} -c '{read}'")
    assert (result.returncode, result.stdout) == (0, "2.0.0\n")
    found = re.findall(
        r"^sds: HDF5 (\S+) runs under SDS: /.*libhdf5.*$", result.stderr, re.MULTILINE
    )
    assert found == ["2.0.0", "2.2.0"]
    assert len(result.stderr.splitlines()) == 2


def test_nothing_is_parsed_where_there_are_no_options():
    show = "import os; print(os.environ['SDS_CONNECTOR'])"
    for words in (["--"], [], ["--trace", "--"]):
        python = [sys.executable, "-X", "importtime"]
        result = subprocess.run(
            [*python, *SDS[1:], "run", *words, sys.executable, "-c", show],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert result.stdout.endswith("libh5sds_vol.so\n")
        imported = {line.split("|")[-1].strip() for line in result.stderr.splitlines()}
        assert ("sds.cli.parser" in imported) == (words == ["--trace", "--"])
        assert "sds.redirect.launch.connector" in imported
        assert imported.isdisjoint({"numpy", "h5py", "sds._native"})


def test_help_loads_nothing_heavy():
    heavy = ("sqlalchemy", "fastapi", "h5py", "statsmodels", "sklearn", "matplotlib", "numpy")
    program = (
        "import sys\nfrom sds.cli.command_line import run_command\nrun_command(['--help'])\n"
        f"print(*[m for m in {heavy!r} if m in sys.modules], file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stderr.split() == []


def test_a_reader_that_goes_away_ends_the_command_quietly():
    with subprocess.Popen(
        [*SDS, "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        process.stdout.close()
        assert process.wait(120) == 141
        assert process.stderr.read() == ""


def test_ctrl_c_ends_as_shells_expect(tmp_path):
    fifo = tmp_path / "fifo.h5"
    os.mkfifo(fifo)
    program = (
        "import signal, os, time\n"
        "from sds.cli import command_line\n"
        "import sds.server.remote_service\n"
        "import sds.home\n"
        "def work():\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    time.sleep(600)\n"
        "sds.home.default_home = work\n"
        "command_line.main(['status'])\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert result.returncode == -signal.SIGINT
    assert result.stderr.strip() == "sds: interrupted"
