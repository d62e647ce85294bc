"""Evaluation of what was read: advice is kept ready, and in mode auto it is built.

What is built so is in shadow at first. A layout is not tried twice on one state of its source: not
where it was not measured faster, not where a person removed it, and for a day not where its build
failed.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sds.catalog.records import JobState, ReplicaState
from sds.catalog.requests import JobRecord, ReorganizeRequest
from sds.errors import QueueFullError, SdsError
from sds.geometry.least_memory import DEFAULT_MEMORY_BYTES, least_process_bytes
from sds.hdf5.identity import identity_of
from sds.mounts import look_at
from sds.server.operations.builder import REMOVED
from sds.text import DAY_S

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sds.catalog.job_queue import JobQueue
    from sds.catalog.records import DatasetRecord
    from sds.catalog.store import Store
    from sds.hdf5.identity import FileIdentity
    from sds.recommender.portfolio.values import PortfolioLayout
    from sds.server.operations.advice_reports import Advice
    from sds.server.settings import Settings

log = logging.getLogger(__name__)

PRIORITY = 1
"""Priority of the evaluator's jobs: those of people come first."""
_AGAIN_S = DAY_S
_UNDER_WAY = frozenset({JobState.QUEUED, JobState.RUNNING})


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


NOTHING_TO_BUILD = Evaluation(jobs=(), is_final=True)


class _PutOffError(Exception):
    """Raised where something may be built later, but not now."""


class Evaluator:
    """Acts on advice in one home."""

    def __init__(self, store: Store, queue: JobQueue, settings: Settings) -> None:
        self._store = store
        self._queue = queue
        self._settings = settings

    def build(self, advice: Advice) -> Evaluation:
        """Queue what is advised and was not tried yet."""
        jobs = []
        is_final = True
        layouts = advice.portfolio.layouts
        records = (
            {f"{one.file}:{one.path}": one for one in self._store.datasets()} if layouts else {}
        )
        for layout in layouts:
            try:
                jobs.append(self._queue_build(layout, records))
            except _PutOffError as reason:
                is_final = False
                log.info("%s is not built now: %s", layout.command, reason)
        return Evaluation(jobs=tuple(filter(None, jobs)), is_final=is_final)

    def _queue_build(
        self, layout: PortfolioLayout, records: Mapping[str, DatasetRecord]
    ) -> JobRecord | None:
        """Queue the build of a layout; return None where it is under way, or was tried."""
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
        if now_s - source.mtime_ns * 1e-9 < self._settings.quiet_source_s:
            raise _PutOffError(f"{record.file} was written a moment ago (quiet_source_s)")
        request = build_request(layout, record)
        if self._is_known(request, now_s):
            return None
        try:
            job = self._queue.submit(
                request, most=self._settings.max_queued_jobs, priority=PRIORITY
            )
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
            if each.layout != layout.layout or each.source_identity.difference(source):
                continue
            is_final = each.state is not ReplicaState.RETIRED or each.reason == REMOVED
            if is_final or now_s - each.changed_ns * 1e-9 < _AGAIN_S:
                return True
        return False

    def _is_known(self, request: ReorganizeRequest, now_s: float) -> bool:
        """Return whether a job that builds the same waits, runs, or failed in the last day."""
        return any(
            job.request == request
            and (
                job.state in _UNDER_WAY
                or (
                    job.state is not JobState.DONE
                    and job.finished_ns is not None
                    and now_s - job.finished_ns * 1e-9 < _AGAIN_S
                )
            )
            for job in self._queue.jobs()
        )


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
