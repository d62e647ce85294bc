"""Poisoned items among good ones: whatever is wrong with them, the good are counted and served."""

import os
import socket
from contextlib import closing
from pathlib import Path

import h5py
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sds import _native, _spool_writer
from sds.catalog.records import ReplicaState
from sds.catalog.requests import ReorganizeRequest
from sds.home import DAMAGE_SUFFIX, Home
from sds.redirect.tables import read_table, table_path
from sds.server.operations.service import Service
from sds.server.settings import Settings
from tests.server.conftest import add_planes, make_source
from tests.sizes import repeated

N_READS = 16
MODE_NOBODY = 0


class Item:
    """A source with a replica, a table and a trace, one of which goes bad."""

    def __init__(self, service, folder, number):
        folder.mkdir()
        self.folder = folder
        self.source = make_source(folder / "source.h5")
        self.replica = Path(build(service, self.source, (1, 2, 0)).path)
        self.table = table_path(service.home, self.source)
        self.spool = service.home.spool
        self.pid = 2**22 + 9 + number

    def write_trace(self, **named):
        write_trace(self.spool, self.pid, self.source, 3, **named)
        return self.spool / f"{socket.gethostname()}-{self.pid}-5{_native.TRACE_SUFFIX}"


def write_trace(spool, pid, source, n_reads, **named):
    host = socket.gethostname()
    with closing(
        _spool_writer.SpoolWriter(spool, pid=pid, start_ns=5, host=host, executable="x")
    ) as writer:
        add_planes(writer, source, n_reads, **named)


def build(service, source, order):
    request = ReorganizeRequest(file=str(source), dataset="/cube", order=order)
    return service.reorganize(request)


def remove(path):
    path.unlink(missing_ok=True)


def replace_by(make):
    def change(path):
        remove(path)
        make(path)

    return change


def write_other_hdf5(path):
    with h5py.File(path, "w") as file:
        file["other"] = [1, 2, 3]


def write_old(content):
    def write(path):
        path.write_bytes(content)
        os.utime(path, (1e9, 1e9))

    return write


def set_size(size_of):
    return lambda path: os.truncate(path, size_of(path.stat().st_size))


def flip_bits(path):
    content = bytearray(path.read_bytes())
    content[::97] = bytes(byte ^ 0x40 for byte in content[::97])
    path.write_bytes(content)


def set_time(time_s):
    return lambda path: os.utime(path, (0, time_s))


CHANGES = {
    "is gone": remove,
    "is a directory": replace_by(lambda path: path.mkdir()),
    "is a pipe": replace_by(os.mkfifo),
    "links to itself": replace_by(lambda path: path.symlink_to(path)),
    "holds another dataset": replace_by(write_other_hdf5),
    "is text": replace_by(write_old(b"no HDF5 at all")),
    "is empty": replace_by(write_old(b"")),
    "is cut": set_size(lambda size: size * 2 // 3),
    "is a terabyte long": set_size(lambda _: 1 << 40),
    "is flipped": flip_bits,
    "is of 1960": set_time(-315_000_000),
    "is of 2300": set_time(10_414_000_000),
    "may not be read": lambda path: path.chmod(MODE_NOBODY),
}


def named_in_trace(**named):
    return lambda item: item.write_trace(**named)


def leave_odd_trace(item):
    name = os.fsdecode(b"\xe9-1-2" + _native.TRACE_SUFFIX.encode())
    (item.spool / name).write_bytes(bytes(64))


def leave_report(name, make):
    return lambda item: make(item.spool / f"{name}{DAMAGE_SUFFIX}")


def move_folder(item):
    item.folder.rename(item.folder.with_suffix(".moved"))


def replace_folder_by_file(item):
    move_folder(item)
    item.folder.touch()


POISONS = {
    "source": {
        **{how: lambda item, change=change: change(item.source) for how, change in CHANGES.items()},
        "has no folder": move_folder,
        "has a file for its folder": replace_folder_by_file,
    },
    "replica": {
        how: lambda item, change=change: change(item.replica) for how, change in CHANGES.items()
    },
    "table": {
        how: lambda item, change=change: change(item.table) for how, change in CHANGES.items()
    },
    "trace": {
        **{
            how: lambda item, change=change: change(item.write_trace())
            for how, change in CHANGES.items()
        },
        "names a file with a newline": named_in_trace(file="/data/a\nb\t.h5"),
        "names a file that is not UTF-8": named_in_trace(file=os.fsdecode(b"/data/\xe9.h5")),
        "names a dataset that is not UTF-8": named_in_trace(path=os.fsdecode(b"/\xe9")),
        "holds long names": named_in_trace(file="/data/" + "x" * 250, path="/" + "y" * 4000),
        "names a dataset that is not there": named_in_trace(path="/elsewhere"),
        "has a name that is not UTF-8": leave_odd_trace,
    },
    "report": {
        "names no replica": leave_report("no number", lambda path: path.touch()),
        "names one that never was": leave_report("99999", lambda path: path.touch()),
        "is a directory": leave_report("77", lambda path: path.mkdir()),
    },
}
ALL = [(what, how) for what, poisons in POISONS.items() for how in poisons]


def check_that_the_good_is_served(directory, poisons):
    """Poison one item each, have SDS do all that it does, and look at what was not poisoned."""
    good = make_source(directory / "good.h5")
    home = Home(directory / "home")
    chosen = Settings(ingest_interval_s=0.05, lock_wait_s=0.2)
    with Service.open(home, chosen) as service:
        first = build(service, good, (2, 0, 1))
        items = [Item(service, directory / f"item{i}", i) for i in range(len(poisons))]
        for item, (what, how) in zip(items, poisons, strict=True):
            POISONS[what][how](item)
        write_trace(home.spool, 2**22 + 1, good, N_READS)
        service.ingest()
    with Service.open(home, chosen) as service:
        service.recover()
        second = build(service, good, (1, 0, 2))
        service.ingest()
        service.collect_garbage()
        for _ in range(4):
            service.verify_due()
        service.verify()
        service.collect_garbage()
        service.status()
        service.events(limit=1000)
        ids = {first.id, second.id}
        listed = {replica.id: replica for replica in service.replicas()}
        assert {listed[number].state for number in ids} == {ReplicaState.ACTIVE}
        (dataset,) = read_table(home, good).datasets
        assert {candidate.replica_id for candidate in dataset.candidates} == ids
        counted = [record.pattern.n_calls for record in service.patterns(str(good))]
        assert sum(counted) == N_READS


@pytest.mark.parametrize("what", POISONS)
def test_what_is_wrong_with_some_stops_no_other(what, tmp_path):
    check_that_the_good_is_served(tmp_path, [(what, how) for how in POISONS[what]])


@pytest.mark.long
@pytest.mark.parametrize(("what", "how"), ALL)
def test_what_is_wrong_with_one_stops_no_other(what, how, tmp_path):
    check_that_the_good_is_served(tmp_path, [(what, how)])


@pytest.mark.long
@settings(max_examples=repeated(1, 100), suppress_health_check=list(HealthCheck))
@given(poisons=st.lists(st.sampled_from(ALL), min_size=2, max_size=6, unique=True))
def test_any_of_them_together_stop_no_other(tmp_path_factory, poisons):
    check_that_the_good_is_served(tmp_path_factory.mktemp("poisoned"), poisons)
