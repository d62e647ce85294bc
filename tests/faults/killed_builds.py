"""Builds in processes of their own, killed at chosen steps and in between."""

import subprocess
import sys
import time

from tests.waiting import PATIENCE_S

# What a build of BUILD passes to reorganize as its progress. At the step named it says so, and
# waits for a line; when it is done, `done()` says how many steps there were.
PROGRESS = """
import signal, sys

signal.alarm(300)  # what hangs ends
n_steps, stop_at = 0, int(sys.argv[1])

def progress(*_):
    global n_steps
    n_steps += 1
    if n_steps == stop_at:
        print("reached", flush=True)
        sys.stdin.readline()

def done():
    print(n_steps, flush=True)
"""


def count_steps(build, *arguments):
    """Run a build to its end, and return how many steps it reports."""
    command = [sys.executable, "-c", PROGRESS + build, "0", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    return int(done.stdout)


def kill_at(step, build, *arguments, after_s=None):
    """Kill a build at a step of it.

    Parameters
    ----------
    after_s
        Seconds that it goes on before the kill; None: none.

    Returns
    -------
    bool
        False where the build was done before.
    """
    command = [sys.executable, "-c", PROGRESS + build, str(step), *arguments]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        is_reached = process.stdout.readline() == "reached\n"
        if is_reached and after_s is not None:
            process.stdin.write("\n")
            process.stdin.flush()
            time.sleep(after_s)  # a moment like any other
        if is_reached:
            process.kill()
        process.communicate(timeout=PATIENCE_S)
    assert is_reached or process.returncode == 0
    return is_reached and process.returncode != 0
