"""``sds reorganize`` says whether programs read from what it built."""

import h5py
import numpy as np
import pytest

from tests.redirected import settle


@pytest.fixture
def cube(tmp_path):
    path = tmp_path / "cube.h5"
    with h5py.File(path, "w") as file:
        file["d"] = np.zeros((64, 64, 256), "f4")
        file["t/key"] = np.arange(5.0)
    settle(path)
    return path


def programs(sds, *words):
    done = sds("reorganize", *words)
    assert done.code == 0, done
    return [line.split(maxsplit=1)[1] for line in done.out.splitlines() if line[:8] == "programs"]


def test_a_read_by_a_program_shows_that_the_replica_serves(sds, cube):
    (said,) = programs(sds, f"{cube}:/d", "--order", "2,0,1")
    assert said == "read across the grain from a replica"


def test_why_programs_read_the_original_is_said_with_the_remedy(sds, home, cube):
    home.mkdir(exist_ok=True, mode=0o700)
    (home / "disabled").touch()
    (said,) = programs(sds, f"{cube}:/d", "--order", "2,0,1")
    assert said.startswith("read the original: ")
    assert f"{home}/disabled" in said


def test_of_a_sorted_replica_which_serves_no_program_nothing_is_said(sds, cube):
    assert programs(sds, f"{cube}:/t", "--sort", "key") == []
