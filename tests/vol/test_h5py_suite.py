"""h5py's own tests fail under the connector nowhere that they do not fail natively."""

import re
import subprocess
import sys
import time
from pathlib import Path

import h5py
import pytest

from benchmarks.conformance.python_suites import without_configuration
from tests.under_connector import connector_environment, native_environment
from tests.waiting import PATIENCE_S, wait_until

PACKAGE = Path(h5py.__file__).parent


class Suite:
    """h5py's tests, or those with these names, as they run in a process and directory of its own.

    A line is written for each test: where none is for five minutes, one hangs.
    """

    def __init__(self, env, directory, names=()):
        directory.mkdir()
        self._output = directory / "output"
        with self._output.open("w") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "pytest", *(names or ("--pyargs", "h5py")), "-v", "-rfE",
                 "-p", "no:cacheprovider", "-W", "default", f"--basetemp={directory / 'files'}"],
                env={**env, **without_configuration(directory), "TMPDIR": str(directory)},
                cwd=directory, stdout=output, stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip

    def outcome(self):
        """Return the names of the tests that failed, and how many passed."""
        grown_s, n_bytes = time.monotonic(), 0

        def is_over():
            nonlocal grown_s, n_bytes
            before, n_bytes = n_bytes, self._output.stat().st_size
            if n_bytes > before:
                grown_s = time.monotonic()
            assert time.monotonic() - grown_s < PATIENCE_S, self._output.read_text()[-4000:]
            return self._process.poll() is not None

        try:
            wait_until(is_over, "the suite ends", limit_s=20 * PATIENCE_S, interval_s=0.1)
        finally:
            self._process.kill()
            self._process.wait()
        output = self._output.read_text()
        failures = set(re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", output, re.MULTILINE))
        counted = re.search(r"(\d+) (?:passed|failed|error)", output)
        assert counted, output[-4000:]
        passed = re.search(r"(\d+) passed", output)
        return failures, int(passed[1]) if passed else 0


@pytest.mark.long
def test_no_failure_that_native_does_not_have(tmp_path):
    home = tmp_path / "home"
    (home / "spool").mkdir(parents=True)
    native = Suite(native_environment(), tmp_path / "native")
    connector = Suite(connector_environment(home), tmp_path / "connector")
    try:
        native_failures, native_passed = native.outcome()
    finally:
        failures, passed = connector.outcome()
    # Some of h5py's tests fail by chance: what is new is run again, alone.
    if new := sorted(failures - native_failures):
        names = [str(PACKAGE / name[name.index("tests/") :]) for name in new]
        _, passed_again = Suite(connector_environment(home), tmp_path / "again", names).outcome()
        assert passed_again == len(new), new
        passed += passed_again
    assert passed >= native_passed
    assert passed > 500, "the suite was not run"
