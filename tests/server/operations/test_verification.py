"""What was only touched serves again once it is verified; what contradicts itself never serves."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from sqlalchemy import update

from sds.catalog.records import ReplicaState
from sds.catalog.requests import ReorganizeRequest, SortRequest
from sds.catalog.rows import ReplicaRow
from sds.hdf5.identity import identity_of, source_identity
from sds.redirect.sorted_replicas import find_sorted
from sds.redirect.tables import read_table, table_path
from sds.server.operations import stages
from tests.accounts import NOBODY, becomes_nobody
from tests.server.conftest import make_source

KINDS = {
    "contiguous": {},
    "chunked": {"chunks": (4, 5, 6), "compress": "gzip:1"},
}


def build(service, source, **kind):
    return service.reorganize(
        ReorganizeRequest(file=str(source), dataset="/cube", order=(2, 0, 1), **kind)
    )


def chmod(path):
    path.chmod(0o400)


def copy_back(path):
    """Restore a file from a copy that kept what it can: the inode and the ctime are new."""
    kept = path.with_suffix(".backup")
    subprocess.run(["cp", "-a", path, kept], check=True)
    path.unlink()
    subprocess.run(["cp", "-a", kept, path], check=True)
    kept.unlink()


def link_and_unlink(path):
    os.link(path, path.with_suffix(".second"))
    path.with_suffix(".second").unlink()


def copy_without_times(path):
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content)
    os.utime(path, (1e9, 1e9))


TOUCHES = [chmod, copy_back, link_and_unlink, copy_without_times]


def served(service, source):
    if not table_path(service.home, source).exists():
        return []
    table = read_table(service.home, source)
    assert table.source_identity == source_identity(source)
    return [(c.replica_id, c.identity) for d in table.datasets for c in d.candidates]


@pytest.mark.parametrize("touch", TOUCHES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("by", ["garbage", "verify", "publish, then verify"])
def test_a_replica_that_was_touched_is_verified_stamped_and_served_again(
    service, source, touch, kind, by
):
    record = build(service, source, **KINDS[kind])
    path = Path(record.path)
    touch(path)
    if by.startswith("publish"):
        service.recover()
        assert not table_path(service.home, source).exists()
        held = service.replica(record.id)
        assert held.state is ReplicaState.DAMAGED
        assert f"sds replicas verify {record.id}" in held.reason
    if by == "garbage":
        service.collect_garbage()
    else:
        assert service.verify().ok
    again = service.replica(record.id)
    assert again.state is ReplicaState.ACTIVE
    assert "touched, not changed" in again.reason
    assert served(service, source) == [(record.id, identity_of(path))]
    assert service.events(limit=1)[0].reason == again.reason
    before = service.events(limit=1000)
    service.collect_garbage()
    assert service.events(limit=1000) == before


@pytest.mark.parametrize("kind", KINDS)
def test_a_touched_replica_with_a_flipped_bit_is_damaged_once_and_with_its_reason(
    service, source, kind
):
    record = build(service, source, **KINDS[kind])
    path = Path(record.path)
    before = path.stat()
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    service.collect_garbage()
    held = service.replica(record.id)
    assert held.state is ReplicaState.DAMAGED
    assert "damaged" in held.reason
    assert served(service, source) == []
    before = service.events(limit=1000)
    service.collect_garbage()  # looks at no file twice that did not change
    assert service.events(limit=1000) == before
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    service.collect_garbage()
    assert service.replica(record.id).state is ReplicaState.ACTIVE
    assert [number for number, _ in served(service, source)] == [record.id]


def test_the_replica_of_other_bytes_put_back_from_a_backup_never_serves(service, own_source):
    record = build(service, own_source)
    shutil.copy2(record.path, own_source.with_suffix(".old"))
    with own_source.open("r+b") as stream:
        stream.seek(-4, os.SEEK_END)
        stream.write(b"\1\2\3\4")
    os.utime(own_source, (1e9, 1e9))
    newer = build(service, own_source)
    shutil.copy2(own_source.with_suffix(".old"), newer.path)
    service.collect_garbage()
    held = service.replica(newer.id)
    assert held.state is ReplicaState.RETIRED
    assert "changed" in held.reason
    assert served(service, own_source) == []
    assert record.id != newer.id


@pytest.mark.parametrize("touch", [chmod, copy_back, link_and_unlink])
@pytest.mark.parametrize("too", [None, chmod, copy_back])
def test_a_source_that_was_touched_is_compared_again(service, own_source, touch, too):
    record = build(service, own_source)
    os.utime(own_source, (1e9, 1e9))
    service.collect_garbage()
    record = build(service, own_source)
    touch(own_source)
    if too is not None:
        too(Path(record.path))
    assert service.collect_garbage().replicas_retired == ()
    again = service.replica(record.id)
    assert again.state is ReplicaState.ACTIVE
    assert "every byte was compared again" in again.reason
    assert served(service, own_source) == [(record.id, identity_of(again.path))]
    # The file still names the source as it was copied; the catalog knows what it was compared with.
    chmod(Path(record.path))
    service.collect_garbage()
    assert served(service, own_source) == [(record.id, identity_of(again.path))]


def test_a_sorted_replica_that_was_touched_answers_again(service, tmp_path):
    import h5py
    import numpy as np

    path = tmp_path / "rows.h5"
    with h5py.File(path, "w") as file:
        file["table/key"] = np.array([3.0, 1.0, 2.0])
    os.utime(path, (1e9, 1e9))
    record = service.reorganize(SortRequest(file=str(path), dataset="/table", key="key"))
    chmod(Path(record.path))
    service.recover()
    assert find_sorted(service.home, path, path.stat()) == ()
    service.collect_garbage()
    (listed,) = find_sorted(service.home, path, path.stat())
    assert listed.identity == identity_of(record.path)


@pytest.mark.parametrize("column", ["layout", "replica"])
def test_a_table_never_says_of_a_replica_what_its_file_does_not(service, source, column):
    """The catalog says 2,1,0 of a replica in order 2,0,1 and equally long axes."""
    record = build(service, source)
    from dataclasses import replace

    layout = replace(record.layout, order=(2, 1, 0))
    wrong = layout if column == "layout" else replace(record.replica, order=(2, 1, 0))
    with service._store.writing() as session:
        session.execute(
            update(ReplicaRow).where(ReplicaRow.id == record.id).values({column: wrong})
        )
    for publish in (service.recover, service.verify, service.collect_garbage):
        publish()
        orders = [
            c.order
            for d in (read_table(service.home, source).datasets if served(service, source) else ())
            for c in d.candidates
        ]
        assert orders in ([], [(2, 0, 1)])
    held = service.replica(record.id)
    if column == "layout":
        assert held.state is ReplicaState.DAMAGED
        assert "(2, 1, 0)" in held.reason
        assert "(2, 0, 1)" in held.reason
    else:
        assert held.state is ReplicaState.ACTIVE


def test_a_retired_replica_stays_retired_when_it_is_verified(service, tmp_path):
    source = make_source(tmp_path / "run.h5")
    os.utime(source, (1e9, 1e9))
    output = tmp_path / "mine.h5"
    record = build(service, source, output=str(output))
    service._store.set_replica(record.id, ReplicaState.RETIRED, "for the test")
    assert service.verify(record.id).ok
    assert service.replica(record.id).state is ReplicaState.RETIRED
    output.unlink()
    assert not service.verify(record.id).ok


@pytest.mark.parametrize("mode", [0o666, 0o660])
@pytest.mark.parametrize("kind", KINDS)
def test_a_replica_that_others_may_write_is_not_called_sound(service, source, mode, kind):
    """No program reads it: what says so names the remedy, after which it serves again."""
    record = build(service, source, **KINDS[kind])
    path = Path(record.path)
    path.chmod(mode)
    (check,) = service.verify().checks
    assert not check.ok
    for reason in (check.problem, service.replica(record.id).reason):
        assert "may be written by others" in reason
        assert f"chmod go-w {path}" in reason
    assert service.replica(record.id).state is ReplicaState.DAMAGED
    assert served(service, source) == []
    service.collect_garbage()
    assert served(service, source) == []
    path.chmod(0o600)
    service.collect_garbage()
    assert service.replica(record.id).state is ReplicaState.ACTIVE
    assert [number for number, _ in served(service, source)] == [record.id]


@becomes_nobody
def test_a_replica_of_another_account_is_to_be_built_anew(service, source):
    """Its mode is not at fault: chmod would not help, and only root changes the owner."""
    record = build(service, source)
    os.chown(record.path, NOBODY, -1)
    (check,) = service.verify().checks
    assert "belongs to neither" in check.problem
    assert f"sds replicas remove {record.id}" in check.problem
    assert "chmod" not in check.problem


def test_one_that_cannot_be_read_keeps_no_other_from_being_verified(service, source, tmp_path):
    record = build(service, source)
    loop = tmp_path / "loop.h5"
    loop.symlink_to(loop)
    closed, sound = stages.check((loop, Path(record.path)), progress=lambda *_: None)
    assert (closed.ok, sound.ok) == (False, True)
    assert "no such file" in closed.problems[0]
