"""Wait for what another process, thread or the kernel is about to do."""

import time
from pathlib import Path

PATIENCE_S = 300  # for what hangs: a busy machine is not it
INTERVAL_S = 0.01


def is_stopped(pid):
    """Return whether every thread of a process is stopped (SIGSTOP)."""
    states = [
        stat.read_text(errors="replace").rpartition(")")[2].split()[0]
        for stat in Path(f"/proc/{pid}/task").glob("*/stat")
    ]
    return bool(states) and set(states) == {"T"}


def wait_until(condition, expected, *, limit_s=PATIENCE_S, interval_s=INTERVAL_S):
    """Call a condition until it returns something true, and return that.

    Parameters
    ----------
    condition
        A function without arguments. What it raises ends the wait.
    expected
        What is waited for, for the message of a failure; a function is called when that is written.
    limit_s, interval_s
        Longest wait and time between two calls, seconds.

    Raises
    ------
    AssertionError
        If the condition does not hold within the limit.
    """
    give_up_s = time.monotonic() + limit_s
    while not (found := condition()):
        if time.monotonic() > give_up_s:
            text = expected() if callable(expected) else expected
            raise AssertionError(f"not within {limit_s} s: {text}")
        time.sleep(interval_s)
    return found
