"""What the benchmark of the connector's cost can be told to measure."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Return how the benchmark ended."""
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.connector_cost", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_h5py_alone_prints_its_table_and_no_other() -> None:
    """One row for each way, and a verdict on none: so few pairs tell nothing."""
    done = run("1", "--only", "h5py")
    assert done.returncode == 0, done.stderr
    rows = [line.split("|")[1:3] for line in done.stdout.splitlines() if line.startswith("| h5py:")]
    ways = ["native", "SDS, no trace", "SDS, trace", "pass_through"]
    assert [way.strip() for _, way in rows] == ways
    assert "program in C" not in done.stdout
    assert "python -c" not in done.stdout
    assert "not told by 1 pairs" in done.stdout


def test_h5py_alone_with_a_library_for_programs_in_c_is_refused() -> None:
    """The wheel has one HDF5: a version beside it would be ignored."""
    done = run("--only", "h5py", "--hdf5", "1.14.6")
    assert done.returncode == 2
    assert "--hdf5 1.14.6" in done.stderr
    assert "leave out one" in done.stderr
