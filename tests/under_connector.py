"""Runs programs with and without the connector, each in a process of its own."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from sds.home import Home
from sds.redirect.connector import environment, plugin_path

ROOT = Path(__file__).parents[1]


def native_environment(**extra):
    """Return this environment without anything that concerns the connector."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SDS_", "HDF5_")) and name != "PYTHONPATH"
    }
    return kept | {name: str(value) for name, value in extra.items()}


def connector_environment(home, **extra):
    """Return this environment with the connector switched on.

    SDS_TEST_PLUGIN_DIRECTORY names the directory of another build of it than the installed one.
    """
    native = native_environment()
    switched_on = environment(Home(Path(home)), native)
    if other := os.environ.get("SDS_TEST_PLUGIN_DIRECTORY"):
        installed = str(plugin_path().parent)
        entries = switched_on["HDF5_PLUGIN_PATH"].split(os.pathsep)
        switched_on["HDF5_PLUGIN_PATH"] = os.pathsep.join(
            other if entry == installed else entry for entry in entries
        )
    return native | switched_on | {k: str(v) for k, v in extra.items()}


def run_python(source, *arguments, env, cwd=None, check=True, timeout=300):
    """Run a program given as text; its stdout and stderr are captured."""
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source), *map(str, arguments)],
        env=env, cwd=cwd or "/", check=False, capture_output=True, text=True, timeout=timeout,
    )  # fmt: skip
    if check:
        assert result.returncode == 0, result.stdout + result.stderr
    return result


def decisions(log):
    """Return the lines of an SDS_DEBUG log as (event, file, dataset, reason)."""
    path = Path(log)
    if not path.exists():
        return []
    return [tuple(line.split("\t")[1:]) for line in path.read_text().splitlines()]
