"""Evaluation of what was read: advice is kept ready, and in mode auto it is built.

What is built so is in shadow at first. Layouts that are alike, but for what they hold and the
lengths of their chunks, are not tried twice on one state of their source: not where one was not
measured faster, not where a person removed it, and for a day not where one was built or failed.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sds.catalog.records import ReplicaState
from sds.catalog.requests import JobRecord, ReorganizeRequest
from sds.errors import QueueFullError, SdsError
from sds.geometry.least_memory import DEFAULT_MEMORY_BYTES, least_process_bytes
from sds.hdf5.identity import identity_of
from sds.mounts import look_at
from sds.server.operations.builder import REMOVED
from sds.server.operations.kept_advice import keep_advice
from sds.server.operations.modes import Modes
from sds.text import DAY_S

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sds.catalog.job_queue import JobQueue
    from sds.catalog.records import DatasetRecord
    from sds.catalog.replica_records import ReplicaRecord
    from sds.catalog.store import Store
    from sds.geometry import ReplicaLayout
    from sds.hdf5.identity import FileIdentity
    from sds.recommender.portfolio.values import PortfolioLayout
    from sds.server.operations.advice_reports import Advice
    from sds.server.settings import Settings

log = logging.getLogger(__name__)

PRIORITY = 1
"""Priority of the evaluator's jobs: those of people come first."""
_AGAIN_S = DAY_S
_SHARE_OF_QUEUE = 2  # one part of so many; the rest is for people


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Outcome of one evaluation.

    Attributes
    ----------
    jobs
        That were queued to build what is advised.
    is_final
        False where something was put off: its source is being written, or cannot be looked at.
    """

    jobs: tuple[JobRecord, ...]
    is_final: bool


class _PutOffError(Exception):
    """Raised where something may be built later, but not now."""


class Evaluator:
    """Acts on advice in one home."""

    def __init__(self, store: Store, queue: JobQueue, settings: Settings) -> None:
        self._store = store
        self._queue = queue
        self._settings = settings

    def evaluate(self, advise: Callable[..., Advice]) -> Evaluation | None:
        """Keep advice on all that was read, and queue what to build of what is in mode auto.

        While a job of the evaluator waits or runs nothing more is queued: what it builds counts in
        the budget once it is there. None where nothing was read, or all is in mode off.

        advise: `sds.server.operations.service.Service.advise_all`.
        """
        modes = Modes(self._store.policies(), self._settings.mode)
        if modes.are_all_off or not self._store.read_totals().n_reads:
            return None
        is_busy = self._queue.is_at_work(PRIORITY)
        of_auto = advise(mode="auto") if modes.is_any_auto and not is_busy else None
        advice = of_auto if of_auto and modes.are_all_auto else advise(mode="observe")
        keep_advice(self._store, advice.portfolio)
        if of_auto is not None:
            return self.build(of_auto)
        return Evaluation(jobs=(), is_final=not (is_busy and modes.is_any_auto))

    def build(self, advice: Advice) -> Evaluation:
        """Queue what is advised and was not tried yet."""
        jobs = []
        is_final = True
        layouts = advice.portfolio.layouts
        known = self._store.datasets() if layouts else ()
        records = {f"{one.file}:{one.path}": one for one in known}
        failed = self._failed_requests() if layouts else []
        for layout in layouts:
            try:
                jobs.append(self._queue_build(layout, records, failed))
            except _PutOffError as reason:
                is_final = False
                log.info("%s is not built now: %s", layout.command, reason)
        return Evaluation(jobs=tuple(filter(None, jobs)), is_final=is_final)

    def _queue_build(
        self,
        layout: PortfolioLayout,
        records: Mapping[str, DatasetRecord],
        failed: Sequence[tuple[ReorganizeRequest, int]],
    ) -> JobRecord | None:
        """Queue the build of a layout; return None where it, or one like it, was tried."""
        record = records.get(layout.target)
        if record is None or layout.layout.sort is not None:
            return None
        try:
            source = look_at(record.file, lambda: identity_of(record.file))
        except (SdsError, OSError) as error:
            raise _PutOffError(str(error)) from error
        now_s = time.time()
        if self._was_tried(layout, record, source, now_s):
            return None
        if 0 <= now_s - source.mtime_ns * 1e-9 < self._settings.quiet_source_s:
            raise _PutOffError(f"{record.file} was written a moment ago (quiet_source_s)")
        request = build_request(layout, record)
        changed_ns = max(source.mtime_ns, source.ctime_ns)
        kind = _kind_of(request)
        if any(kind == _kind_of(each) and begun_ns > changed_ns for each, begun_ns in failed):
            return None
        try:
            most = max(1, self._settings.max_queued_jobs // _SHARE_OF_QUEUE)
            job = self._queue.submit(request, most=most, priority=PRIORITY)
        except QueueFullError as error:
            raise _PutOffError(str(error)) from error
        self._store.add_event(
            "job",
            job.id,
            "planned",
            f"{layout.command} --shadow: {layout.reason}",
            {"saves_s_per_day": layout.saving.seconds, "size_bytes": float(layout.size_bytes)},
        )
        return job

    def _was_tried(
        self,
        layout: PortfolioLayout,
        record: DatasetRecord,
        source: FileIdentity,
        now_s: float,
    ) -> bool:
        """Return whether a replica like this of the source as it is now is there or has failed."""
        for each in self._store.replicas(record.file, record.path, states=frozenset(ReplicaState)):
            if not _is_like(each.layout, layout.layout) or each.source_identity.difference(source):
                continue
            is_retired = each.state is ReplicaState.RETIRED
            if is_final(each) or (each.layout == layout.layout and not is_retired):
                return True
            if now_s - each.changed_ns * 1e-9 < _AGAIN_S:
                return True
        return False

    def _failed_requests(self) -> list[tuple[ReorganizeRequest, int]]:
        """Return what the evaluator asked for and failed, or was cancelled, in the last day.

        With when each began, ns since 1970: one that its source's change cut off says nothing of
        what the source is now. What never began was cancelled; then, when it was.
        """
        since_ns = time.time_ns() - int(_AGAIN_S * 1e9)
        return [
            (job.request, job.started_ns or job.finished_ns)
            for job in self._queue.failed_since(since_ns)
            if job.priority == PRIORITY
            and isinstance(job.request, ReorganizeRequest)
            and job.finished_ns is not None
        ]


def is_final(record: ReplicaRecord) -> bool:
    """Return whether a replica was not measured faster, or a person did not want it."""
    return record.state is ReplicaState.REVERTED or (
        record.state is ReplicaState.RETIRED and record.reason == REMOVED
    )


def _is_like(a: ReplicaLayout, b: ReplicaLayout) -> bool:
    """Return whether two layouts differ at most in what they hold, and in their chunks' lengths.

    These follow the reads, and change with each.
    """
    return (a.order, a.storage, a.segments is None) == (b.order, b.storage, b.segments is None)


def _kind_of(request: ReorganizeRequest) -> tuple[object, ...]:
    """Return what like requests have in common."""
    is_chunked = request.chunks not in {None, "contiguous"}
    return request.file, request.dataset, request.order, is_chunked, request.segments is None


def build_request(advised: PortfolioLayout, record: DatasetRecord) -> ReorganizeRequest:
    """Return the request that builds a layout of a dataset in shadow."""
    layout = advised.layout
    is_part = layout.segments is None and not layout.holds_all(record.extent)
    least_bytes = least_process_bytes(layout, record.chunk_shape, record.element_size_bytes)
    return ReorganizeRequest(
        file=record.file,
        dataset=record.path,
        order=layout.order,
        chunks=layout.chunk_shape,
        compress="source" if layout.filters else "none",
        region=str(layout.region) if is_part else None,
        segments=layout.segments,
        memory_bytes=max(DEFAULT_MEMORY_BYTES, least_bytes),
        shadow=True,
    )
