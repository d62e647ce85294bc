"""Room in mode auto: idle replicas go, and others where a new one saves more."""

import time
from dataclasses import replace
from pathlib import Path

import h5py
import pytest

from sds.catalog.records import ReplicaState
from sds.catalog.requests import PolicyRequest, ReorganizeRequest
from sds.errors import InsufficientSpaceError, NotFoundError, OverBudgetError
from sds.server.operations.evaluation import evaluator, modes, tried_layouts
from sds.text import DAY_S
from tests.organizer.sources import settle
from tests.server.operations.evaluation.test_evaluator import (
    cube,
    open_service,
    trace,
    work,
    write_cube,
)

__all__ = ["cube", "open_service", "trace"]  # fixtures


@pytest.fixture
def other(tmp_path):
    return write_cube(tmp_path / "other.h5")


@pytest.fixture
def build(trace):
    """Have a replica built by the evaluator, and measured faster."""

    def build(service, source, took_ns=30_000_000):
        trace(service, source, took_ns=took_ns)
        assert service.evaluate().jobs
        (replica,) = work(service)
        trace(service, source, served_by=replica.id, took_ns=1_000_000)
        trace(service, source, left_by=replica.id, took_ns=took_ns)
        replica = service.replica(replica.id)
        assert (replica.state, replica.pinned) == (ReplicaState.ACTIVE, False)
        return replica

    return build


@pytest.fixture
def full(open_service, build, cube):
    """Return a service and the replica that takes all of its budget."""

    def full(**how):
        replica = build(open_service(), cube, **how)
        return open_service(replica_budget_bytes=replica.stored_bytes + 4096), replica

    return full


@pytest.fixture
def later(monkeypatch):
    """Let days pass for what is recent."""

    def later(days):
        now_s = time.time() + days * DAY_S
        monkeypatch.setattr(modes.time, "time_ns", lambda: int(now_s * 1e9))

    return later


def test_a_replica_goes_for_one_that_saves_much_more(full, trace, other):
    service, replica = full()
    trace(service, other, took_ns=300_000_000)
    evaluated = service.evaluate()
    assert [one.id for one in evaluated.removed] == [replica.id]
    gone = service.replica(replica.id)
    assert gone.state is ReplicaState.RETIRED
    assert gone.reason.startswith(f"room for sds reorganize {other}:/cube --order 2,")
    assert "(predicted); of what is still read this one saves" in gone.reason
    assert not Path(replica.path).exists()
    (built,) = work(service)
    assert built.file == str(other)
    assert service.evaluate().jobs == (), "on the same day it is not built again"


def test_a_replica_stays_for_what_saves_little_more(full, trace, other):
    service, replica = full(took_ns=300_000_000)
    trace(service, other, took_ns=300_000_000)
    evaluated = service.evaluate()
    assert (evaluated.jobs, evaluated.removed) == ((), ())
    assert service.replica(replica.id).state is ReplicaState.ACTIVE


def test_a_replica_whose_reads_have_ended_goes_for_any_that_pays(full, trace, other, later):
    service, replica = full(took_ns=300_000_000)
    in_days_ns = [time.time_ns() + int(days * DAY_S * 1e9) for days in range(8)]
    later(days=2)
    trace(service, other, took_ns=100_000_000, first_ns=in_days_ns[2])
    assert service.evaluate().removed == (), "reads pause for less than three days"
    later(days=4)
    trace(service, other, took_ns=100_000_000, first_ns=in_days_ns[4])
    evaluated = service.evaluate()
    assert [one.id for one in evaluated.removed] == [replica.id]
    assert "this one saves 0 s (measured)" in service.replica(replica.id).reason


@pytest.mark.parametrize("was_read", [False, True])
def test_a_replica_in_shadow_goes_only_where_its_reads_have_ended(
    open_service, trace, cube, other, later, *, was_read
):
    service = open_service()
    trace(service, cube, took_ns=300_000_000)
    assert service.evaluate().jobs
    (replica,) = work(service)
    if was_read:
        trace(service, cube, left_by=replica.id, took_ns=300_000_000)
    assert service.replica(replica.id).state is ReplicaState.SHADOW
    service = open_service(replica_budget_bytes=replica.stored_bytes + 4096)
    now_ns = time.time_ns()
    for days, goes in ((2, False), (4, True)):
        later(days)
        trace(service, other, took_ns=100_000_000, first_ns=now_ns + int(days * DAY_S * 1e9))
        assert [one.id for one in service.evaluate().removed] == [replica.id] * goes


def test_reads_that_paused_before_have_not_ended(full, trace, cube, other, later):
    service, replica = full(took_ns=300_000_000)
    in_days_ns = [time.time_ns() + int(days * DAY_S * 1e9) for days in range(8)]
    trace(service, cube, served_by=replica.id, took_ns=1_000_000, first_ns=in_days_ns[2])
    later(days=6)  # a pause of two days, and one of not quite four
    trace(service, other, took_ns=100_000_000, first_ns=in_days_ns[6] - int(3600e9))
    assert service.evaluate().removed == ()


@pytest.mark.parametrize("why", ["pinned", "asked for by name", "observe"])
def test_what_people_decided_on_stays(full, trace, cube, other, why):
    service, replica = full()
    if why == "pinned":
        assert service.pin(replica.id).pinned
    elif why == "observe":
        service.set_policy(PolicyRequest(path=str(cube), mode="observe"))
    else:
        chunks = replica.chunk_shape
        asked = ReorganizeRequest(
            file=str(cube), dataset="/cube", order=replica.order, chunks=chunks
        )
        assert service.reorganize(asked).id == replica.id
    trace(service, other, took_ns=300_000_000)
    evaluated = service.evaluate()
    assert (evaluated.jobs, evaluated.removed) == ((), ())
    assert service.replica(replica.id).state is ReplicaState.ACTIVE
    if why == "pinned":
        service.unpin(replica.id)
        assert [one.id for one in service.evaluate().removed] == [replica.id]


def test_what_is_pinned_between_look_and_removal_stays(open_service, build, cube):
    service = open_service()
    replica = build(service, cube)
    service.pin(replica.id)
    assert service._builder.evict({replica.id: "no reason"}) == ()
    assert service.replica(replica.id).state is ReplicaState.ACTIVE
    assert Path(replica.path).exists()


def test_what_nothing_reads_any_more_goes(open_service, build, cube, later):
    service = open_service(recent_days=5)
    replica = build(service, cube)
    later(days=4.9)
    assert service.evaluate().removed == ()
    later(days=5.1)
    assert [one.id for one in service.evaluate().removed] == [replica.id]
    assert (
        service.replica(replica.id).reason
        == "it served no traced read in the last 5 days (recent_days)"
    )
    assert not Path(replica.path).exists()
    assert service.evaluate().jobs == (), "nothing is built of reads that are no longer recent"


def test_reads_that_a_replica_serves_keep_it(open_service, build, trace, cube, later):
    service = open_service(recent_days=5)
    replica = build(service, cube)
    in_three_days_ns = time.time_ns() + int(3 * DAY_S * 1e9)
    trace(service, cube, served_by=replica.id, took_ns=1_000_000, first_ns=in_three_days_ns)
    later(days=7)
    assert service.evaluate().removed == ()
    later(days=9)
    assert service.evaluate().removed


def test_nothing_goes_while_people_wait_for_what_they_asked_for(full, trace, cube, other):
    """It would take the room that is made."""
    service, replica = full()
    trace(service, other, took_ns=300_000_000)
    asked = service.submit(
        ReorganizeRequest(file=str(cube), dataset="/cube", order=(1, 0, 2), chunks=None)
    )
    evaluated = service.evaluate()
    assert (evaluated.jobs, evaluated.removed, evaluated.is_final) == ((), (), False)
    service.cancel(asked.id)
    assert [one.id for one in service.evaluate().removed] == [replica.id]


def test_nothing_goes_for_a_source_that_is_being_written_and_it_is_looked_at_again(
    full, open_service, trace, other
):
    service, replica = full()
    trace(service, other, took_ns=300_000_000)
    budget = service.settings.replica_budget_bytes
    other.touch()
    evaluated = open_service(replica_budget_bytes=budget, quiet_source_s=3600.0).evaluate()
    assert (evaluated.jobs, evaluated.removed, evaluated.is_final) == ((), (), False)
    assert service.replica(replica.id).state is ReplicaState.ACTIVE


def test_nothing_goes_again_for_what_has_failed(full, trace, cube, other, monkeypatch):
    service, first = full()
    trace(service, other, took_ns=300_000_000)
    evaluated = service.evaluate()
    assert [one.id for one in evaluated.removed] == [first.id]
    service.queue.claim()
    service.queue.fail(evaluated.jobs[0].id, "as ever")
    again = service.reorganize(
        ReorganizeRequest(
            file=str(cube), dataset="/cube", order=first.order, chunks=first.chunk_shape,
            region=str(first.region),
        )
    )  # fmt: skip
    service.unpin(again.id)
    trace(service, cube, served_by=again.id, took_ns=1_000_000)
    monkeypatch.setattr(tried_layouts, "AGAIN_S", 0.0)
    evaluated = service.evaluate()
    assert (evaluated.jobs, evaluated.removed) == ((), ())


def test_what_others_left_no_room_for_is_planned_anew_at_once(open_service, trace, cube, other):
    service = open_service(replica_budget_bytes=1 << 30)
    trace(service, cube)
    trace(service, other)
    first, second = service.evaluate().jobs
    least = open_service(replica_budget_bytes=1)
    for job in (first, second):
        service.queue.claim()
        with pytest.raises(OverBudgetError) as raised:
            least.perform(job.request, lambda *_: None)
        service.queue.fail(job.id, raised.value)
    assert service.job(first.id).error.startswith("OverBudgetError: a replica of ")
    assert [one.request for one in service.evaluate().jobs] == [first.request, second.request]


def test_nothing_goes_that_people_have_taken_out_of_mode_auto_meanwhile(full, trace, cube, other):
    service, replica = full()
    trace(service, other, took_ns=300_000_000)

    def advise(**given):
        service.set_policy(PolicyRequest(path=str(cube), mode="observe"))
        return service.advise_all(**given)

    evaluated = service.evaluate(advise)
    assert (evaluated.jobs, evaluated.removed, evaluated.is_final) == ((), (), False)
    assert service.replica(replica.id).state is ReplicaState.ACTIVE


def test_a_replica_of_mode_auto_that_is_damaged_goes(open_service, build, cube):
    service = open_service()
    replica = build(service, cube)
    service._store.set_replica(replica.id, ReplicaState.DAMAGED, "a byte has changed")
    assert [one.id for one in service.evaluate().removed] == [replica.id]
    assert not Path(replica.path).exists()


def test_a_pin_outlives_a_change_of_the_source(open_service, build, trace, cube):
    service = open_service()
    first = build(service, cube)
    service.pin(first.id)
    with h5py.File(cube, "r+") as file:
        file["cube"][0, 0, 0] = 7
    settle(cube)
    service.collect_garbage()
    assert service.replica(first.id).state is ReplicaState.RETIRED
    with pytest.raises(NotFoundError, match="is retired"):
        service.pin(first.id)
    trace(service, cube)
    assert service.evaluate().jobs
    (again,) = work(service)
    assert (again.layout, again.pinned) == (first.layout, True)


@pytest.fixture
def limited(open_service, cube):
    """Return a service where the replicas of one file may take so many bytes."""

    def limited(budget_bytes, **settings):
        service = open_service(**settings)
        request = PolicyRequest(path=str(cube), mode="auto", budget_bytes=budget_bytes)
        assert service.set_policy(request).budget_bytes == budget_bytes
        return service

    return limited


def test_the_budget_of_a_policy_bounds_what_is_advised_and_built(limited, trace, cube, other):
    service = limited(4096)
    trace(service, cube, took_ns=300_000_000)
    trace(service, other)
    evaluated = service.evaluate()
    assert {job.request.file for job in evaluated.jobs} == {str(other)}
    (kept,) = service.recommendations(str(cube), "/cube")
    reason = kept.recommendation.declined[0].reason
    assert f"more than the whole budget of sds policy {cube}" in reason
    work(service)
    asked = ReorganizeRequest(file=str(cube), dataset="/cube", order=(2, 0, 1))
    with pytest.raises(InsufficientSpaceError, match=f"sds policy {cube} allows 4096"):
        service.reorganize(asked)
    assert service.reorganize(replace(asked, force=True)).state is ReplicaState.ACTIVE


def test_replicas_go_for_others_under_the_budget_of_their_policy(
    open_service, build, trace, cube, other
):
    service = open_service()
    mine, others = build(service, cube), build(service, other)
    room = mine.stored_bytes + 4096
    service.set_policy(PolicyRequest(path=str(cube), mode="auto", budget_bytes=room))
    trace(service, cube, axis=1, took_ns=3_000_000_000)
    evaluated = service.evaluate()
    assert [one.id for one in evaluated.removed] == [mine.id]
    assert service.replica(others.id).state is ReplicaState.ACTIVE
    (built,) = work(service)
    assert (built.file, built.order != mine.order) == (str(cube), True)


def test_what_is_not_built_again_takes_no_space_of_others(open_service, build, trace, cube, other):
    service = open_service()
    replica = build(service, cube, took_ns=300_000_000)
    service.remove(replica.id)
    service = open_service(replica_budget_bytes=replica.stored_bytes + 4096)
    trace(service, other)
    (job,) = service.evaluate().jobs
    assert job.request.file == str(other)
    (kept,) = service.recommendations(str(cube), "/cube")
    assert any(
        f"replica {replica.id}, which was like it, is retired" in one.reason
        for one in kept.recommendation.declined
    )


def test_nothing_goes_before_its_room_can_be_built_in(full, trace, other, monkeypatch):
    service, replica = full()
    monkeypatch.setattr(evaluator, "is_within", lambda _: False)
    trace(service, other, took_ns=300_000_000)
    evaluated = service.evaluate()
    assert (evaluated.jobs, evaluated.removed, evaluated.is_final) == ((), (), False)
    monkeypatch.setattr(evaluator, "is_within", lambda _: True)
    assert [one.id for one in service.evaluate().removed] == [replica.id]
