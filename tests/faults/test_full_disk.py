"""A disk that is full can be freed by removing replicas, with a server and without."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sds.catalog.records import ReplicaState
from sds.catalog.requests import ReorganizeRequest
from sds.errors import InsufficientSpaceError, NotFoundError
from sds.home import Home
from sds.redirect.tables import read_table
from sds.server.operations.service import Service
from sds.server.settings import Settings
from tests.organizer.sources import make_cube


def fill(disk):
    """Write until not a byte is left."""
    with (disk / "filler").open("wb", buffering=0) as filler:
        for size in (1 << 20, 4096, 1):
            try:
                while True:
                    filler.write(bytes(size))
            except OSError:
                continue


@pytest.fixture
def full(tmp_path, small_disk):
    """Return a home on a full disk, its source, and the replica there."""
    cube, home = tmp_path / "cube.h5", Home(small_disk / "home")
    make_cube(cube, (64, 64, 128), "<f4")  # 2 MiB
    with Service.open(home) as service:
        request = ReorganizeRequest(file=str(cube), dataset="/cube", order=(2, 0, 1))
        built = service.reorganize(request)
    fill(small_disk)
    return home, cube, built


@pytest.mark.parametrize("name", ["file", "dataset", "replica", "number"])
def test_the_command_frees_the_disk(name, full):
    home, cube, built = full
    words = {
        "file": cube, "dataset": f"{cube}:/cube", "replica": built.path, "number": built.id
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "sds.cli", "replicas", "remove", str(words[name])],
        env=os.environ | {"SDS_HOME": str(home.root)},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert not Path(built.path).exists()
    with Service.open(home) as service:
        assert service.replicas() == ()
    with pytest.raises(NotFoundError):
        read_table(home, cube)


def test_a_service_that_is_open_frees_the_disk(tmp_path, small_disk):
    cube, home = tmp_path / "cube.h5", Home(small_disk / "home")
    make_cube(cube, (64, 64, 128), "<f4")
    with Service.open(home, Settings(lock_wait_s=0.2)) as service:
        request = ReorganizeRequest(file=str(cube), dataset="/cube", order=(2, 0, 1))
        built = service.reorganize(request)
        fill(small_disk)
        with pytest.raises(InsufficientSpaceError):
            service.reorganize(ReorganizeRequest(file=str(cube), dataset="/cube", order=(1, 2, 0)))
        assert service.remove(built.id).state is ReplicaState.RETIRED
        assert not Path(built.path).exists()
        assert service.replicas() == ()
