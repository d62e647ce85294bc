"""A server without the extra for models counts reads where a file system was calibrated."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from sds.calibration.scratch_file import file_system_of
from sds.server.operations.service import Service
from tests.plots.evidence import calibration, keep
from tests.waiting import PATIENCE_S

BLOCKED = """
import sys
sys.modules.update(dict.fromkeys(("sklearn", "scipy", "statsmodels")))
import json, logging, threading, time
from pathlib import Path
from sds.home import Home
from sds.server.operations.jobs import Background
from sds.server.operations.service import Service
from sds.server.settings import Settings
home = Home(Path(sys.argv[1]))
"""
INGEST = """
with Service.open(home) as service:
    print(service.ingest().reads)
"""
INTERVAL_S = 0.2
SERVE = f"""
logging.basicConfig(level=logging.WARNING)
n_failures = 0

def count(record):
    global n_failures
    n_failures += record.getMessage().startswith("refit failed")
    return True

logging.getLogger().handlers[0].addFilter(count)

def is_served():
    counted = sum(pattern.pattern.n_calls for pattern in service.patterns())
    return counted >= 16 and n_failures >= 3

settings = Settings(ingest_interval_s=0.02, refit_interval_s={INTERVAL_S})
began_s = time.monotonic()
with Service.open(home, settings) as service:
    stop = threading.Event()
    background = Background(service, stop)
    background.start()
    while time.monotonic() - began_s < {PATIENCE_S} and background.alive and not is_served():
        time.sleep(0.05)
    alive = background.alive
    background.end({PATIENCE_S})
    counted = sum(pattern.pattern.n_calls for pattern in service.patterns())
print(json.dumps({{"alive": alive, "counted": counted, "seconds": time.monotonic() - began_s}}))
"""


@pytest.fixture
def run(home, write_spool):
    with Service.open(home) as service:
        found = replace(calibration(), file_system=file_system_of(home.root))
        keep(service, home, found)
    write_spool(16)

    def run(script):
        done = subprocess.run(
            [sys.executable, "-c", BLOCKED + script, str(home.root)],
            capture_output=True,
            text=True,
            check=False,
            timeout=2 * PATIENCE_S,
        )
        assert done.returncode == 0, done.stderr
        return done

    return run


def test_ingest_needs_no_extra(run):
    assert run(INGEST).stdout == "16\n"


def test_the_server_counts_on_and_says_once_an_interval_that_it_cannot_refit(run):
    served = run(SERVE)
    found = json.loads(served.stdout)
    assert (found["alive"], found["counted"]) == (True, 16)
    failures = served.stderr.count("refit failed")
    assert 3 <= failures <= found["seconds"] / INTERVAL_S
    assert served.stderr.count("pip install 'sds-hdf5[models]'") == failures
