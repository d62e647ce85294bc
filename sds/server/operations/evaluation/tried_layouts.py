"""Layouts that mode auto does not build again while their source is as it is.

Layouts that are alike, but for what they hold and the lengths of their chunks, are not tried twice
on one state of their source: not where one was not measured faster, not where a person removed it,
and for a day not where one was built or failed.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from sds.catalog.records import ReplicaState
from sds.catalog.replicas import REMOVED
from sds.catalog.requests import ReorganizeRequest
from sds.errors import OverBudgetError
from sds.text import DAY_S

if TYPE_CHECKING:
    from sds.catalog.job_queue import JobQueue
    from sds.catalog.records import DatasetRecord
    from sds.catalog.replica_records import ReplicaRecord
    from sds.catalog.store import Store
    from sds.geometry import ReplicaLayout
    from sds.hdf5.identity import FileIdentity

OF_PEOPLE, PRIORITY = 0, 1
"""Priorities of jobs: those of people come before the evaluator's."""
AGAIN_S = DAY_S
"""Seconds after which what failed, or went for another, may be built again."""


class _Failed(NamedTuple):
    """A build that failed, when it began and ended, ns since 1970."""

    request: ReorganizeRequest
    begun_ns: int
    ended_ns: int
    is_over_budget: bool


class Attempt(NamedTuple):
    """A layout to be built of a dataset, and its source as it is now."""

    record: DatasetRecord
    layout: ReplicaLayout
    source: FileIdentity


class TriedLayouts:
    """Finds what was tried in one home: replicas of all states, and builds that failed.

    It knows what there was when it was first asked about a dataset.
    """

    def __init__(self, store: Store, queue: JobQueue) -> None:
        self._store = store
        self._queue = queue
        self._failed: list[_Failed] | None = None
        self._replicas: dict[tuple[str, str], tuple[ReplicaRecord, ...]] = {}

    def objection(self, attempt: Attempt, *, takes_room: bool = False) -> str:
        """Return why a layout is not built again, in words; empty where it may be.

        What failed takes no other's room again (`takes_room`) while its source is as it was; where
        there is room as it is, it is tried again after a day. What there was no room for, because
        those that were built with it took more than was planned, may be planned again at once.
        """
        now_s = time.time()
        return self._objection_of_replicas(attempt, now_s) or self._objection_of_builds(
            attempt, now_s, takes_room=takes_room
        )

    def _objection_of_replicas(self, attempt: Attempt, now_s: float) -> str:
        """Return which replica like it, of the source as it is now, is there or has failed."""
        layout = attempt.layout
        for each in self._replicas_of(attempt.record):
            if not _is_like(each.layout, layout) or each.source_identity.difference(attempt.source):
                continue
            if is_final(each):
                return f"replica {each.id}, which was like it, is {each.state}: {each.reason}"
            if each.layout == layout and each.state is not ReplicaState.RETIRED:
                return f"it is replica {each.id}"
            if now_s - each.changed_ns * 1e-9 < AGAIN_S:
                return f"replica {each.id}, which is like it, was built or went within a day"
        return ""

    def _replicas_of(self, record: DatasetRecord) -> tuple[ReplicaRecord, ...]:
        name = (record.file, record.path)
        if name not in self._replicas:
            self._replicas[name] = self._store.replicas(*name, states=frozenset(ReplicaState))
        return self._replicas[name]

    def _objection_of_builds(self, attempt: Attempt, now_s: float, *, takes_room: bool) -> str:
        source = attempt.source
        changed_ns = max(source.mtime_ns, source.ctime_ns)
        since_ns = 0 if takes_room else int((now_s - AGAIN_S) * 1e9)
        kind = _kind_of_layout(attempt.record, attempt.layout)
        for each in self._failed_builds():
            is_of_now = each.begun_ns > changed_ns and each.ended_ns >= since_ns
            is_to_blame = takes_room or not each.is_over_budget
            if is_of_now and is_to_blame and kind == _kind_of_request(each.request):
                return "a build like it failed or was cancelled"
        return ""

    def _failed_builds(self) -> list[_Failed]:
        """Return what the evaluator asked for and failed, or was cancelled.

        One that its source's change cut off says nothing of what the source is now, so it counts
        from when it began; what never began was cancelled, and counts from then.
        """
        if self._failed is None:
            self._failed = [
                _Failed(
                    job.request,
                    job.started_ns or job.finished_ns,
                    job.finished_ns,
                    job.was_ended_by(OverBudgetError),
                )
                for job in self._queue.failed(PRIORITY)
                if isinstance(job.request, ReorganizeRequest) and job.finished_ns is not None
            ]
        return self._failed


def is_final(record: ReplicaRecord) -> bool:
    """Return whether a replica was not measured faster, or a person did not want it."""
    return record.state is ReplicaState.REVERTED or (
        record.state is ReplicaState.RETIRED and record.reason == REMOVED
    )


def _is_like(a: ReplicaLayout, b: ReplicaLayout) -> bool:
    """Return whether two layouts differ at most in what they hold, and in their chunks' lengths.

    These follow the reads, and change with each.
    """
    return (a.order, a.storage) == (b.order, b.storage)


def _kind_of_layout(record: DatasetRecord, layout: ReplicaLayout) -> tuple[object, ...]:
    """Return what like layouts of a dataset have in common."""
    return record.file, record.path, layout.order, layout.chunk_shape is not None


def _kind_of_request(request: ReorganizeRequest) -> tuple[object, ...]:
    """Return the same of the layout that a request builds."""
    is_chunked = request.chunks not in {None, "contiguous"}
    return request.file, request.dataset, request.order, is_chunked
