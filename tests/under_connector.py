"""Runs programs with and without the connector, each in a process of its own."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from sds.home import Home
from sds.redirect.launch.connector import PLUGIN_NAME, environment

ROOT = Path(__file__).parents[1]


def native_environment(**extra):
    """Return this environment without anything that concerns the connector."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SDS_", "HDF5_")) and name not in {"LD_PRELOAD", "PYTHONPATH"}
    }
    return kept | {name: str(value) for name, value in extra.items()}


def connector_environment(home, **extra):
    """Return this environment with the connector switched on.

    SDS_TEST_PLUGIN_DIRECTORY names the directory of another build of it than the installed one.
    """
    given = native_environment(**extra)
    switched_on = environment(Home(Path(home)), given)
    if other := os.environ.get("SDS_TEST_PLUGIN_DIRECTORY"):
        switched_on["SDS_CONNECTOR"] = str(Path(other) / PLUGIN_NAME)
    composed = {name: switched_on[name] for name in ("ASAN_OPTIONS", "LD_PRELOAD")}
    return switched_on | given | composed


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
