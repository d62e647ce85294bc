"""Count the work of a call instead of its time, which depends on the machine and on others."""

import sys
import threading

from tests.waiting import PATIENCE_S


def count_calls(function, *arguments, **options):
    """Return what a function returns, and how many functions of Python and of C it called."""
    n_calls = 0

    def count(_frame, event, _argument):
        nonlocal n_calls
        n_calls += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        result = function(*arguments, **options)
    finally:
        sys.setprofile(before)
    return result, n_calls


def finish(function, *arguments, **options):
    """Return what a function of the core returns or raises; fail where it does not end.

    It runs in a thread that does not keep the process, as it would if it went on for years.
    """
    outcome = []

    def run():
        try:
            outcome.append((function(*arguments, **options), None))
        except Exception as error:  # noqa: BLE001 - raised below
            outcome.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert outcome, f"not within {PATIENCE_S} s: the end of {function.__name__}"
    result, error = outcome[0]
    if error is not None:
        raise error
    return result
