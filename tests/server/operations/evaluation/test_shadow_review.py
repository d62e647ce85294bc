"""Replicas in shadow: they serve half of their reads until these are measured."""

import contextlib
import itertools
import shutil
from pathlib import Path

import h5py
import pytest

from sds.analyzer.shadow import SHADOW_PERMILLE, WINDOW_READS
from sds.catalog.records import ReplicaState
from sds.catalog.requests import ReorganizeRequest
from sds.errors import BusyError
from sds.redirect.tables import read_table, table_path
from sds.server.operations.service import Service
from tests.server.conftest import EXTENT

pids = itertools.count(2**22 + 1)


@pytest.fixture
def shadow(service, source):
    """Build a replica in shadow, and return it."""
    return service.reorganize(request_of(source))


def request_of(source, **options):
    return ReorganizeRequest(
        file=str(source), dataset="/cube", order=(2, 0, 1), **{"shadow": True} | options
    )


@pytest.fixture
def run(write_spool, service):
    """Trace a program of which some reads went to a replica, others to the original."""

    def run(replica, *, mine_us, others_us, n=20):
        write_spool(n, pid=next(pids), served_by=replica.id, took_ns=mine_us * 1000)
        write_spool(n, pid=next(pids), left_by=replica.id, took_ns=others_us * 1000)
        service.ingest()
        return service.replica(replica.id)

    return run


def shares(home, source):
    """Return what the table says of each replica: the thousandths of reads that it serves."""
    path = table_path(home, str(source))
    if not path.exists():
        return []
    (dataset,) = read_table(home, source).datasets
    return [candidate.shadow_permille for candidate in dataset.candidates]


def test_half_of_the_reads_go_to_a_replica_in_shadow(shadow, home, source):
    assert (shadow.state, shadow.in_shadow) == (ReplicaState.SHADOW, True)
    assert shares(home, source) == [SHADOW_PERMILLE]
    with h5py.File(shadow.path) as replica:
        assert replica["cube"].shape == (EXTENT[2], EXTENT[0], EXTENT[1])


def test_what_is_measured_faster_serves_all_reads(run, shadow, home, source, service):
    after = run(shadow, mine_us=100, others_us=900)
    assert (after.state, after.in_shadow) == (ReplicaState.ACTIVE, False)
    said = "measured faster in shadow: plane fixing axis 2, 20 reads of 100 us on average"
    assert said in after.reason
    assert shares(home, source) == [1000]
    (event,) = [one for one in service.events() if one.kind == "active"]
    assert event.numbers["reads"] == 20
    assert event.numbers["saved_s"] == pytest.approx(20 * 800e-6)
    assert event.reason == after.reason


def test_what_is_measured_slower_goes_and_its_file_with_it(run, shadow, home, source, service):
    assert run(shadow, mine_us=900, others_us=100).state is ReplicaState.SHADOW, "too few reads"
    n = WINDOW_READS
    assert run(shadow, mine_us=900, others_us=100, n=n).state is ReplicaState.SHADOW
    after = run(shadow, mine_us=900, others_us=100)
    assert after.state is ReplicaState.REVERTED
    assert "measured slower in shadow" in after.reason
    assert shares(home, source) == []
    assert not Path(after.path).exists()
    assert service.replicas() == ()
    assert [one.id for one in service.replicas(all_states=True)] == [shadow.id]
    assert service.remove(shadow.id).state is ReplicaState.REVERTED


def test_reads_that_it_did_not_leave_alone_decide_nothing(run, shadow, write_spool):
    """Of before, of programs that have the source open since, or what was in memory anyway."""
    write_spool(5000, pid=next(pids), took_ns=1000)
    write_spool(50, pid=next(pids), left_by=shadow.id + 1, took_ns=1000)
    assert run(shadow, mine_us=200, others_us=900).state is ReplicaState.ACTIVE


@pytest.mark.parametrize("others", ["damage", "ask by name", "remove"])
def test_what_others_do_meanwhile_stands(run, shadow, service, monkeypatch, others):
    """Between the look at a test and what follows from it."""
    store = service._store
    tests = store.shadow_tests()

    def meanwhile():
        monkeypatch.undo()
        if others == "damage":
            store.set_replica(shadow.id, ReplicaState.DAMAGED, "a block is wrong")
        elif others == "ask by name":
            service.reorganize(request_of(shadow.file, shadow=False))
        else:
            service.remove(shadow.id)
        return tests

    monkeypatch.setattr(store, "shadow_tests", meanwhile)
    run(shadow, mine_us=100, others_us=900)
    expected = {"damage": "damaged", "ask by name": "active", "remove": "retired"}[others]
    assert service.replica(shadow.id).state == expected
    for _ in range(3):
        run(shadow, mine_us=900, others_us=100, n=WINDOW_READS)
    assert service.replica(shadow.id).state == expected


def test_what_was_counted_before_a_crash_is_looked_at_after_it(
    shadow, home, write_spool, service, monkeypatch
):
    write_spool(30, pid=next(pids), served_by=shadow.id, took_ns=100_000)
    write_spool(30, pid=next(pids), left_by=shadow.id, took_ns=900_000)
    with monkeypatch.context() as crash:
        crash.setattr(service._store, "shadow_tests", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            service.ingest()
    service.close()
    with Service.open(home) as again:
        assert again.ingest().reads == 0
        assert again.replica(shadow.id).state is ReplicaState.ACTIVE


def test_a_build_that_is_found_whole_after_a_crash_is_in_shadow(service, source, home, monkeypatch):
    """Killed between the end of the build and the catalog's note of it."""
    set_replica = service._store.set_replica

    def killed(number, state, *_args, **_options):
        if state is ReplicaState.SHADOW:
            raise KeyboardInterrupt
        return set_replica(number, ReplicaState.BUILDING, "building")

    monkeypatch.setattr(service._store, "set_replica", killed)
    with pytest.raises(KeyboardInterrupt):
        service.reorganize(request_of(source))
    service.close()
    with Service.open(home) as again:
        again.recover()
        (replica,) = again.replicas()
        assert (replica.state, replica.in_shadow) == (ReplicaState.SHADOW, True)
        assert shares(home, source) == [SHADOW_PERMILLE]


@pytest.mark.parametrize(("mine_us", "expected"), [(100, "active"), (900, "reverted")])
@pytest.mark.parametrize("others", ["build", "verify"])
def test_an_end_that_comes_while_others_are_at_work_stands(  # noqa: PLR0917  (fixtures)
    run, shadow, service, monkeypatch, others, mine_us, expected
):
    """They looked at the replica before."""
    run(shadow, mine_us=900, others_us=800, n=WINDOW_READS)
    set_replica = service._store.set_replica

    def after_the_test(number, state, reason, **options):
        monkeypatch.undo()
        run(shadow, mine_us=mine_us, others_us=500)
        return set_replica(number, state, reason, **options)

    monkeypatch.setattr(service._store, "set_replica", after_the_test)
    if others == "build":
        went = expected == "reverted"
        with pytest.raises(BusyError) if went else contextlib.nullcontext():
            service.reorganize(request_of(shadow.file))
    else:
        Path(shadow.path).touch()
        service.verify(shadow.id)
    assert service.replica(shadow.id).state == expected
    assert service._store.shadow_tests() == ()


@pytest.mark.parametrize("moment", ["announced", "built"])
def test_a_replica_that_is_asked_for_by_name_is_not_reverted_meanwhile(
    run, shadow, service, monkeypatch, moment
):
    """Its test is over with the request, whatever is counted while it is built."""
    run(shadow, mine_us=900, others_us=100, n=WINDOW_READS)
    name = {"announced": "begin_replica", "built": "set_replica"}[moment]
    method = getattr(service._store, name)

    def then_count(*args, **options):
        found = method(*args, **options) if moment == "announced" else None
        monkeypatch.undo()
        run(shadow, mine_us=900, others_us=100)
        return found or method(*args, **options)

    monkeypatch.setattr(service._store, name, then_count)
    after = service.reorganize(request_of(shadow.file, shadow=False))
    assert (after.id, after.state) == (shadow.id, ReplicaState.ACTIVE)
    assert Path(after.path).exists()


def test_a_build_whose_replica_is_removed_meanwhile_leaves_nothing(shadow, service, monkeypatch):
    set_replica = service._store.set_replica

    def after_a_removal(*args, **options):
        monkeypatch.undo()
        service.remove(shadow.id)
        shutil.copy(shadow.path + ".kept", shadow.path)  # as the build may write it again
        return set_replica(*args, **options)

    shutil.copy(shadow.path, shadow.path + ".kept")
    monkeypatch.setattr(service._store, "set_replica", after_a_removal)
    with pytest.raises(BusyError, match="went while it was built: removed by request"):
        service.reorganize(request_of(shadow.file, shadow=False))
    assert not Path(shadow.path).exists()
    assert service.replica(shadow.id).reason == "removed by request"


@pytest.mark.parametrize("state", [ReplicaState.REVERTED, ReplicaState.RETIRED])
def test_what_is_gone_stays_as_it_is(shadow, service, state):
    """So that it is known why."""
    service._store.set_replica(shadow.id, state, "first")
    for other in (ReplicaState.ACTIVE, ReplicaState.RETIRED, ReplicaState.DAMAGED):
        found = service._store.set_replica(shadow.id, other, "second")
        assert (found.state, found.reason) == (state, "first")
    assert service.verify(shadow.id).ok


def test_a_second_request_leaves_the_test_where_it_was(run, shadow, source, service):
    run(shadow, mine_us=900, others_us=100, n=WINDOW_READS)
    ((_, before),) = service._store.shadow_tests()
    assert before.window == 2
    again = service.reorganize(request_of(source))
    assert again.state is ReplicaState.SHADOW
    ((_, after),) = service._store.shadow_tests()
    assert after == before


def test_a_test_goes_on_in_another_process(run, shadow, service, home):
    run(shadow, mine_us=900, others_us=100, n=WINDOW_READS)
    service.close()
    with Service.open(home) as again:
        again.recover()
        assert again.replica(shadow.id).state is ReplicaState.SHADOW


def test_asked_for_by_name_it_serves_all_reads_whatever_is_measured(run, shadow, source, service):
    again = service.reorganize(request_of(source, shadow=False))
    assert (again.id, again.state, again.in_shadow) == (shadow.id, ReplicaState.ACTIVE, False)
    for _ in range(2):
        run(again, mine_us=900, others_us=100, n=2 * WINDOW_READS)
    assert service.replica(again.id).state is ReplicaState.ACTIVE


def test_a_replica_that_serves_stays_when_it_is_asked_for_in_shadow(service, source, home):
    first = service.reorganize(request_of(source, shadow=False))
    again = service.reorganize(request_of(source))
    assert (again.id, again.state) == (first.id, ReplicaState.ACTIVE)
    assert shares(home, source) == [1000]


def test_a_damaged_replica_in_shadow_goes_on_in_shadow_once_it_is_mended(shadow, service):
    path = Path(shadow.path)
    kept = path.with_suffix(".kept")
    shutil.copy2(path, kept)
    content = bytearray(path.read_bytes())
    content[shadow.replica.data_offset_bytes] ^= 0xFF
    path.write_bytes(content)
    assert not service.verify(shadow.id).ok
    assert service.replica(shadow.id).state is ReplicaState.DAMAGED
    kept.replace(path)
    assert service.verify(shadow.id).ok
    assert service.replica(shadow.id).state is ReplicaState.SHADOW


def test_a_source_that_changes_ends_the_test(service, own_source):
    replica = service.reorganize(request_of(own_source))
    with h5py.File(own_source, "r+") as file:
        file["cube"][0, 0, 0] = 7
    service.collect_garbage()
    assert service.replica(replica.id).state is ReplicaState.RETIRED
    assert not service.replica(replica.id).in_shadow
