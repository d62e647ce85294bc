"""A look at a file ends in time, whatever its file system does."""

import os
import threading
from pathlib import Path

import pytest

from sds import mounts as module
from sds.errors import NotHdf5Error, UnreachableError
from sds.mounts import filesystem_of, look_at, parse_mounts, resolved
from tests.waiting import wait_until

MOUNTS = """\
22 1 8:1 / / rw - ext4 /dev/sda1 rw
40 22 0:50 / /remote rw - nfs4 server:/export rw
41 22 0:51 / /sshfs rw - fuse.sshfs host: rw
"""


@pytest.fixture
def mounts(tmp_path):
    path = tmp_path / "mountinfo"
    path.write_text(MOUNTS)
    return path


@pytest.mark.parametrize("path", ["/local/a.h5", "/remote/a.h5", "/sshfs/a.h5"])
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
    assert look_at("/sshfs/a.h5", lambda: 1, mountinfo=mounts) == 1
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


@pytest.mark.parametrize("path", ["/remote/local/a.h5", "/remote/later/a.h5", "/home/me/a.h5"])
def test_what_lies_behind_one_that_may_hang_is_looked_at_in_a_thread(path, tmp_path):
    table = tmp_path / "mountinfo"
    more = ("42 40 8:2 / /remote/local rw - ext4 /dev/sdb rw", "43 22 0:9 / /home rw - autofs x rw")
    table.write_text(MOUNTS + "\n".join(more))
    here = threading.current_thread()
    assert look_at(path, threading.current_thread, mountinfo=table) is not here


def test_another_file_system_in_the_place_of_one_that_hangs_is_looked_at(tmp_path):
    table = tmp_path / "mountinfo"
    table.write_text("40 22 0:50 / /other rw - nfs4 server:/export rw")
    answers = threading.Event()
    with pytest.raises(UnreachableError):
        look_at("/other/a.h5", answers.wait, within_s=0.01, mountinfo=table)
    table.write_text("51 22 0:60 / /other rw - nfs4 server:/export rw")
    assert look_at("/other/a.h5", lambda: 4, mountinfo=table) == 4
    answers.set()


def test_links_are_followed_wherever_they_lead_and_in_time(mounts, tmp_path, monkeypatch):
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "target")
    assert resolved(link, mountinfo=mounts) == os.path.realpath(tmp_path / "target")
    answers = threading.Event()
    monkeypatch.setattr(module.os.path, "realpath", lambda _: answers.wait())
    with pytest.raises(UnreachableError):
        resolved(link, within_s=0.01, mountinfo=mounts)
    answers.set()


def test_where_a_look_may_have_no_thread_it_has_none(mounts, monkeypatch):
    def refuse(*_, **__):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(module.threading.Thread, "start", refuse)
    here = threading.current_thread()
    assert look_at("/remote/a.h5", threading.current_thread, mountinfo=mounts) is here


@pytest.mark.parametrize("name", ["a\x0bb", "a\x1cb", "a\u2028b", "a\rb", "a\x85b"])
def test_a_mount_point_of_any_name_is_read(name, tmp_path):
    line = f"40 22 0:50 / /mnt/{name} rw - fuse.sshfs host: rw"
    (found,) = parse_mounts(line)
    assert str(found.mount_point) == f"/mnt/{name}"
    (tmp_path / "mountinfo").write_bytes(f"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n{line}\n".encode())
    assert filesystem_of(tmp_path, tmp_path / "mountinfo").kind == "ext4"


def test_where_the_system_does_not_tell_the_kind_is_unknown(tmp_path):
    assert filesystem_of(tmp_path, tmp_path / "none").kind == "unknown"
    (tmp_path / "mountinfo").write_text("40 22 0:50 / /elsewhere rw - ext4 /dev/sda rw\n")
    assert filesystem_of(tmp_path, tmp_path / "mountinfo").kind == "unknown"
