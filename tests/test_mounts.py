"""A look at a file ends in time, whatever its file system does."""

import threading
from pathlib import Path

import pytest

from sds.errors import NotHdf5Error, UnreachableError
from sds.mounts import look_at
from tests.waiting import wait_until

MOUNTS = """\
22 1 8:1 / / rw - ext4 /dev/sda1 rw
40 22 0:50 / /remote rw - nfs4 server:/export rw
41 40 0:51 / /remote/other rw - fuse.sshfs host: rw
"""


@pytest.fixture
def mounts(tmp_path):
    path = tmp_path / "mountinfo"
    path.write_text(MOUNTS)
    return path


@pytest.mark.parametrize("path", ["/local/a.h5", "/remote/a.h5", "/remote/other/a.h5"])
def test_what_a_look_finds_or_raises_is_passed_on(path, mounts):
    def fail():
        message = "it is no HDF5 file"
        raise NotHdf5Error(message)

    assert look_at(path, lambda: 42, mountinfo=mounts) == 42
    with pytest.raises(NotHdf5Error, match="no HDF5 file"):
        look_at(path, fail, mountinfo=mounts)


def test_only_where_another_may_have_to_answer_a_look_has_a_thread(mounts):
    here = threading.current_thread()
    assert look_at("/local/a.h5", threading.current_thread, mountinfo=mounts) is here
    assert look_at("/remote/a.h5", threading.current_thread, mountinfo=mounts) is not here


def test_a_look_that_gets_no_answer_ends_and_so_does_each_after_it_until_there_is_one(mounts):
    answers = threading.Event()
    looks = []

    def wait():
        looks.append("begun")
        answers.wait()
        looks.append("ended")

    with pytest.raises(UnreachableError, match=r"/remote/a.h5 is on /remote, which does not answ"):
        look_at("/remote/a.h5", wait, within_s=0.01, mountinfo=mounts)
    for _ in range(3):
        with pytest.raises(UnreachableError):
            look_at("/remote/b.h5", lambda: looks.append("again"), mountinfo=mounts)
    assert look_at("/remote/other/a.h5", lambda: 1, mountinfo=mounts) == 1
    assert look_at("/local/a.h5", lambda: 2, mountinfo=mounts) == 2
    assert looks == ["begun"]
    answers.set()

    def is_looked_at():
        try:
            return look_at("/remote/a.h5", lambda: True, mountinfo=mounts)
        except UnreachableError:
            return False

    wait_until(is_looked_at, "the file system is looked at again")
    assert looks == ["begun", "ended"]


def test_where_no_mounts_are_known_a_look_is_taken_at_once(tmp_path):
    assert look_at(Path("/remote/a.h5"), lambda: 3, mountinfo=tmp_path / "none") == 3
