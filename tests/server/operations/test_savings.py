"""Savings of replicas: measured, with intervals, beside what was predicted and what they cost."""

import math
from dataclasses import replace

import pytest

from sds.catalog.records import ReplicaState
from sds.server.operations.evaluation.evaluator import build_request
from tests.server.operations.evaluation.test_evaluator import cube, open_service, trace, work

__all__ = ["cube", "open_service", "trace"]  # fixtures

MS = 1_000_000


@pytest.fixture
def built(open_service, trace, cube):
    """Return a service and a replica that it has built and that is in shadow."""
    service = open_service()
    trace(service, cube, took_ns=30 * MS)
    assert service.evaluate().jobs
    (replica,) = work(service)
    return service, replica


def test_a_replica_keeps_what_was_predicted_and_what_was_measured(built, trace, cube):
    service, replica = built
    (planned,) = [one for one in service.events() if one.kind == "planned"]
    assert 0 < replica.predicted_saving_s_per_read < planned.numbers["saves_s_per_day"]
    trace(service, cube, served_by=replica.id, took_ns=1 * MS)
    trace(service, cube, left_by=replica.id, took_ns=30 * MS)
    found = service.savings(str(cube), "/cube")
    (one,) = found.replicas
    assert one.replica == service.replica(replica.id)
    assert one.gain.saved_s == pytest.approx(one.gain.n * 0.029, rel=0.01)
    assert found.saved_s == one.gain.saved_s
    assert found.saved_low_s <= found.saved_s <= found.saved_high_s
    assert found.build_s == one.replica.build_s
    assert found.gone_build_s == 0
    assert one.saved_s_per_day > 0
    missing_s = one.replica.build_s - one.gain.saved_s
    assert one.paid_back_in_days == pytest.approx(max(0.0, missing_s / one.saved_s_per_day))
    assert service.savings("/nowhere.h5").replicas == ()


def test_what_is_gone_still_counts_with_what_it_cost(built, trace, cube):
    service, replica = built
    for _ in range(6):
        trace(service, cube, served_by=replica.id, took_ns=40 * MS)
        trace(service, cube, left_by=replica.id, took_ns=30 * MS)
    assert service.replica(replica.id).state is ReplicaState.REVERTED
    found = service.savings()
    assert found.gone_build_s == found.build_s == service.replica(replica.id).build_s
    assert found.gone_saved_s == found.saved_s == pytest.approx(-0.01 * found.replicas[0].gain.n)
    assert found.replicas[0].saved_s_per_day is None
    assert found.replicas[0].paid_back_in_days is None


def test_a_replica_that_was_advised_by_hand_is_predicted_too(open_service, trace, cube):
    service = open_service(mode="observe")
    trace(service, cube, took_ns=30 * MS)
    service.evaluate()
    (advised,) = service.recommendations(str(cube), "/cube")
    (layout,) = advised.recommendation.layouts
    request = build_request(layout, service.datasets(str(cube))[0])
    by_hand = {"shadow": False, "pinned": True, "predicted_saving_s_per_read": None}
    record = service.reorganize(replace(request, **by_hand))
    assert record.predicted_saving_s_per_read == layout.saved_s_per_read
    assert math.isfinite(record.predicted_saving_s_per_read)
