"""Readings beside other programs: what was stopped meanwhile is read again."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.precedence import noting_stops, unstopped

ROOT = Path(__file__).parents[2]

# Stops a process, and lets it go on once it stands still.
_STOPS = """
import os
from pathlib import Path

from tests.waiting import wait_until

def state():
    return Path("/proc/{0}/stat").read_text().rpartition(")")[2].split()[0]

os.kill({0}, 19)
try:
    wait_until(lambda: state() == "T", "the process is stopped")
finally:
    os.kill({0}, 18)
"""


def test_a_reading_that_was_stopped_is_taken_again():
    before = signal.getsignal(signal.SIGCONT)
    readings = []

    def read():
        if not readings:
            stops = [sys.executable, "-c", _STOPS.format(os.getpid())]
            subprocess.run(stops, check=True, cwd=ROOT)
        readings.append(float(len(readings)))
        return readings[-1]

    with noting_stops() as stopped:
        assert unstopped(read, stopped) == 1.0
        assert len(readings) == 2
        assert unstopped(read, stopped) == 2.0
    assert signal.getsignal(signal.SIGCONT) == before


_PRECEDES = """
import os
from pathlib import Path
from benchmarks.precedence import SLICE_NS, own_slice_ns, precedence

def nice():
    file = Path("/proc/self/autogroup")
    group = file.read_text() if file.exists() else ""
    return [str(os.getpriority(os.PRIO_PROCESS, 0)), (group or "-").split()[-1]]

os.setsid()
before = nice()
with precedence():
    during = nice()
    slices = own_slice_ns()
print(*during, before == nice(), slices == SLICE_NS)
"""

# What the kernel cuts off is not what was asked for, as before Linux 6.12 nothing is.
_IS_REFUSED = """
import os
import sys
from pathlib import Path
from benchmarks import precedence

precedence._OF_SESSION = Path(sys.argv[1])
precedence.SLICE_NS = 50_000
before = os.getpriority(os.PRIO_PROCESS, 0)
try:
    with precedence.precedence():
        print("served first")
except OSError as error:
    print(error, os.getpriority(os.PRIO_PROCESS, 0) == before, sep="; ")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may take precedence")
def test_precedence_is_over_other_sessions_as_well():
    done = subprocess.run(
        [sys.executable, "-c", _PRECEDES], capture_output=True, text=True, check=False
    )
    if "slices" in done.stderr:
        pytest.skip("this kernel gives no short slices")
    assert done.returncode == 0, done.stderr
    nice, of_session, is_as_before, has_its_slices = done.stdout.split()
    assert nice == "-20"
    assert of_session in {"-20", "-"}
    assert is_as_before == has_its_slices == "True"


# A process that is in no group of a session reads nothing there.
@pytest.mark.parametrize("group", ["/proc/self/autogroup", os.devnull])
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may take precedence")
def test_slices_that_the_kernel_does_not_give_are_told_and_nothing_is_left_changed(group):
    done = subprocess.run(
        [sys.executable, "-c", _IS_REFUSED, group], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"Linux .* gives slices of \d+ ns where 50000 .*; True\n", done.stdout)
