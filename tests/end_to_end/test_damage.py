"""What is damaged, changed or gone is found or passed by; the program reads the original."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import h5py
import pytest

from sds import _native
from tests.end_to_end.conftest import native, settle

ENERGIES = (3, 1000, 512)


@pytest.fixture(name="replica")
def _replica(sds, cube):
    """Return a replica that serves planes."""
    return Path(sds("reorganize", f"{cube}:/image/cube", "--order", "2,0,1", "--json").json["path"])


def table_of(sds, cube):
    return sds.home.tables / _native.table_name(str(cube))


def flip(path, offset, *, keep_times):
    """Change one byte of a file."""
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(offset)
        (byte,) = file.read(1)
        file.seek(offset)
        file.write(bytes([byte ^ 0x40]))
    if keep_times:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def restamp(sds, cube, path):
    """Publish a table that takes the file as it is for the one that was verified.

    As a disk that changes bytes behind the file system's back leaves it.
    """
    table = table_of(sds, cube)
    content = _native.decode_table(table.read_bytes())
    found = path.stat()
    for dataset in content["datasets"]:
        for candidate in dataset["candidates"]:
            candidate["identity"] = {
                "inode": found.st_ino,
                "size_bytes": found.st_size,
                "mtime_ns": found.st_mtime_ns,
                "ctime_ns": found.st_ctime_ns,
            }
    content.pop("version", None)
    table.write_bytes(_native.encode_table(content))


@pytest.mark.usefixtures("replica")
def test_it_is_served_while_nothing_is_wrong(sds, cube, program):
    printed, decisions = sds.read(program, cube, *ENERGIES)
    assert printed == native(program, cube, *ENERGIES)
    assert "served" in decisions


def test_a_replica_with_a_flipped_byte_in_its_header_is_not_served(sds, cube, program, replica):
    flip(replica, 40, keep_times=True)
    restamp(sds, cube, replica)
    printed, decisions = sds.read(program, cube, *ENERGIES)
    assert printed == native(program, cube, *ENERGIES)
    assert "served" not in decisions


def test_a_flipped_byte_in_the_data_is_found_and_no_longer_served(sds, cube, program, replica):
    with h5py.File(replica) as file:
        offset = file["image/cube"].id.get_offset()
    flip(replica, offset + 12345, keep_times=True)
    checked = sds("replicas", "verify", "--json")
    assert checked.code == 4
    assert checked.json["ok"] is False
    assert checked.json["checks"][0]["problem"]
    printed, decisions = sds.read(program, cube, *ENERGIES)
    assert printed == native(program, cube, *ENERGIES)
    assert "served" not in decisions
    again = sds("reorganize", f"{cube}:/image/cube", "--order", "2,0,1", "--json")
    assert again.json["state"] == "active"
    printed, decisions = sds.read(program, cube, *ENERGIES)
    assert printed == native(program, cube, *ENERGIES)
    assert "served" in decisions


@pytest.mark.usefixtures("replica")
@pytest.mark.parametrize("damage", ["flipped", "truncated", "emptied", "writable by others"])
def test_a_damaged_table_is_passed_by(sds, cube, program, damage):
    table = table_of(sds, cube)
    content = table.read_bytes()
    if damage == "flipped":
        flip(table, len(content) // 2, keep_times=False)
    elif damage == "truncated":
        table.write_bytes(content[:-9])
    elif damage == "emptied":
        table.write_bytes(b"")
    else:
        table.chmod(0o666)
    printed, decisions = sds.read(program, cube, *ENERGIES)
    assert printed == native(program, cube, *ENERGIES)
    assert "served" not in decisions
    if damage != "writable by others":
        shown = sds("table", "show", cube)
        assert shown.code == 4
        assert str(table) in shown.err


def test_a_truncated_trace_is_counted_as_far_as_it_is_whole(sds, cube, program):
    sds.read(program, cube, *ENERGIES)
    (trace,) = sds.home.spool.iterdir()
    content = trace.read_bytes()
    trace.write_bytes(content[: len(content) - 5])
    noise = sds.home.spool / f"noise{trace.suffix}"
    noise.write_bytes(b"\x00noise" * 50)
    os.utime(noise, (0, 0))  # a young file may still be in the making
    report = sds("ingest", "--json")
    assert report.code == 0
    assert any("noise" in problem for problem in report.json["problems"])
    assert sds.read(program, cube, *ENERGIES)[0] == native(program, cube, *ENERGIES)
    assert sds("ingest", "--json").json["reads"] > 0


@pytest.mark.usefixtures("replica")
@pytest.mark.parametrize("change", ["written", "replaced", "touched"])
def test_a_source_that_changed_is_read_itself(sds, cube, program, change):
    if change == "written":
        with h5py.File(cube, "r+") as file:
            file["image/cube"][:, :, 512] = 1.0
    elif change == "replaced":
        other = cube.with_suffix(".new")
        other.write_bytes(cube.read_bytes())
        with h5py.File(other, "r+") as file:
            file["image/cube"][:, :, 512] = 1.0
        settle(other)
        other.replace(cube)
    else:
        cube.touch()
    printed, decisions = sds.read(program, cube, *ENERGIES)
    assert printed == native(program, cube, *ENERGIES)
    assert "served" not in decisions


@pytest.mark.parametrize("way", ["replica deleted", "disabled file", "SDS_DISABLE"])
def test_what_is_gone_or_switched_off_is_not_served(sds, cube, program, replica, way):
    variables = {}
    if way == "replica deleted":
        replica.unlink()
    elif way == "disabled file":
        sds.home.disabled.touch()
    else:
        variables = {"SDS_DISABLE": "1"}
    log = sds.directory / "log"
    variables["SDS_DEBUG"] = log
    result = sds("run", "--", sys.executable, program, cube, *ENERGIES, **variables)
    assert (result.code, result.err) == (0, "")
    assert result.out == native(program, cube, *ENERGIES)
    assert not log.exists() or "\tserved\t" not in log.read_text()


def test_replicas_that_may_not_be_written_are_an_error_and_lose_nothing(sds, cube, program):
    sds.read(program, cube, *ENERGIES)
    sds.home.replicas.chmod(0o500)
    result = sds("reorganize", f"{cube}:/image/cube", "--order", "2,0,1")
    assert result.code == 6
    assert str(sds.home.replicas) in result.err
    printed, decisions = sds.read(program, cube, *ENERGIES)
    assert printed == native(program, cube, *ENERGIES)
    assert "served" not in decisions
    assert sds("replicas", "--json").json["replicas"] == []
    sds.home.replicas.chmod(0o700)
    assert sds("reorganize", f"{cube}:/image/cube", "--order", "2,0,1").code == 0


def test_the_original_is_never_written(sds, cube, program):
    before = cube.stat(), cube.read_bytes()
    sds.read(program, cube, *ENERGIES)
    assert sds("reorganize", f"{cube}:/image/cube", "--order", "2,0,1").code == 0
    assert "served" in sds.read(program, cube, *ENERGIES)[1]
    assert sds("replicas", "verify").code == 0
    assert sds("replicas", "remove", cube).code == 0
    after = cube.stat()
    assert (after.st_mtime_ns, after.st_ctime_ns) == (before[0].st_mtime_ns, before[0].st_ctime_ns)
    assert cube.read_bytes() == before[1]
