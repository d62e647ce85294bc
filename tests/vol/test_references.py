"""References that know their file: stored as HDF5 stores them natively, byte for byte."""

import subprocess
from pathlib import Path

import pytest

from tests.hdf5_builds import CRATES, hdf5_build
from tests.under_connector import connector_environment, native_environment

SOURCE = Path(__file__).with_name("references.c")


@pytest.mark.parametrize("n_open", [0, 600])  # objects besides: more than have wrappers
@pytest.mark.parametrize("version", CRATES)
def test_references_are_stored_as_natively(version, n_open, tmp_path, home):
    program = hdf5_build(version).compile(SOURCE, tmp_path / "program")
    found = []
    for environment in (native_environment(), connector_environment(home.root)):
        directory = tmp_path / f"turn{len(found)}"
        directory.mkdir()
        done = subprocess.run(
            [program, str(n_open)], cwd=directory, env=environment, capture_output=True,
            text=True, timeout=60, check=True,
        )  # fmt: skip
        files = [(directory / name).read_bytes() for name in ("here.h5", "there.h5")]
        found.append((done.stdout, done.stderr, *files))
    assert found[0][0].count("data of") == 4
    assert found[1][:2] == found[0][:2]
    assert found[1][2] == found[0][2]
    assert found[1][3] == found[0][3]
