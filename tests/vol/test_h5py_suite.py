"""h5py's own tests fail under the connector nowhere that they do not fail natively."""

import re
import subprocess
import sys

from benchmarks.conformance.python_suites import without_configuration
from tests.under_connector import connector_environment, native_environment


def start_suite(env, directory):
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", "--pyargs", "h5py", "-q", "-rfE", "-p", "no:cacheprovider",
         "-W", "default", f"--basetemp={directory / 'files'}"],
        env={**env, **without_configuration(directory), "TMPDIR": str(directory)}, cwd=directory,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def outcome(suite):
    output, _ = suite.communicate(timeout=600)
    failures = set(re.findall(r"^((?:FAILED|ERROR) \S+)", output, re.MULTILINE))
    counted = re.search(r"(\d+) passed", output)
    assert counted, output[-4000:]
    return failures, int(counted.group(1))


def test_no_failure_that_native_does_not_have(tmp_path):
    home = tmp_path / "home"
    (home / "spool").mkdir(parents=True)
    directories = [tmp_path / "native", tmp_path / "connector"]
    for directory in directories:
        directory.mkdir()
    native = start_suite(native_environment(), directories[0])
    connector = start_suite(connector_environment(home), directories[1])
    native_failures, native_passed = outcome(native)
    failures, passed = outcome(connector)
    assert failures <= native_failures
    assert passed >= native_passed
    assert passed > 500, "the suite was not run"
