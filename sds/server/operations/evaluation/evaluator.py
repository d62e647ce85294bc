"""Evaluation of what was read: advice is kept ready, and in mode auto it is built.

Replicas that nothing reads any more go, and others where a new one saves more in their room.

What is built so is in shadow at first.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sds.catalog.replica_records import ReplicaRecord
from sds.catalog.requests import JobRecord, ReorganizeRequest
from sds.errors import QueueFullError, SdsError
from sds.geometry.least_memory import DEFAULT_MEMORY_BYTES, least_process_bytes
from sds.hdf5.identity import identity_of
from sds.mounts import look_at
from sds.server.operations.evaluation.kept_advice import keep_advice
from sds.server.operations.evaluation.modes import Modes, is_within
from sds.server.operations.evaluation.room import Removable, Space
from sds.server.operations.evaluation.tried_layouts import (
    OF_PEOPLE,
    PRIORITY,
    Attempt,
    TriedLayouts,
)
from sds.server.operations.replica_budgets import replica_budgets
from sds.text import time_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sds.catalog.job_queue import JobQueue
    from sds.catalog.records import DatasetRecord
    from sds.catalog.store import Store
    from sds.recommender.portfolio.evictions import HeldReplica
    from sds.recommender.portfolio.values import PortfolioLayout
    from sds.server.operations.advice_reports import Advice
    from sds.server.settings import Settings

log = logging.getLogger(__name__)

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
    removed
        Replicas that nothing reads any more, or in whose room others are to be built.
    """

    jobs: tuple[JobRecord, ...]
    is_final: bool
    removed: tuple[ReplicaRecord, ...] = ()

    def joined(self, other: Evaluation) -> Evaluation:
        """Return the outcome of both."""
        return Evaluation(
            jobs=self.jobs + other.jobs,
            is_final=self.is_final and other.is_final,
            removed=self.removed + other.removed,
        )


class _PutOffError(Exception):
    """Raised where something may be built later, but not now."""


class Evaluator:
    """Acts on advice in one home."""

    def __init__(
        self,
        store: Store,
        queue: JobQueue,
        settings: Settings,
        evict: Callable[[Mapping[int, str]], tuple[ReplicaRecord, ...]],
    ) -> None:
        self._store = store
        self._queue = queue
        self._settings = settings
        self._evict = evict

    def evaluate(self, advise: Callable[..., Advice]) -> Evaluation | None:
        """Keep advice on all that was read, and queue what to build of what is in mode auto.

        While a job of the evaluator waits or runs nothing more is queued: what it builds counts in
        the budget once it is there. None where nothing was read, or all is in mode off.

        advise: `sds.server.operations.service.Service.advise_all`.
        """
        modes = Modes(self._store.policies(), self._settings.mode)
        is_read = self._store.read_totals().n_reads or self._store.newest_statement_ns()
        if modes.are_all_off or not is_read:
            return None
        removable = Removable(self._store, modes, self._settings)
        removed = self._remove_idle(removable.idle)
        is_busy = self._queue.is_at_work(PRIORITY)
        if is_busy or not modes.is_any_auto:
            keep_advice(self._store, advise(mode="observe").portfolio)
            # What waits for its hours changes nothing until they begin.
            is_final = not (is_busy and modes.is_any_auto and is_within(self._settings.build_hours))
            return Evaluation(jobs=(), is_final=is_final, removed=removed)
        # What people have asked for counts in the budget once it is there.
        held = [] if self._queue.is_at_work(OF_PEOPLE) else removable.held
        room = removable if held else None
        of_auto = advise(mode="auto", may_go=removable.may_go if held else {})
        found = self._build(of_auto, room)
        if held and of_auto.portfolio.layouts:
            of_auto = advise(mode="auto")  # of the room that there is
            if not found.jobs:
                found = found.joined(self._build(of_auto, None))
        advice = of_auto if modes.are_all_auto else advise(mode="observe")
        keep_advice(self._store, advice.portfolio)
        is_final = len(held) == len(removable.held)
        return Evaluation(jobs=(), is_final=is_final, removed=removed).joined(found)

    def objection_to(self, job: JobRecord) -> str:
        """Return why a job of its own is not wanted any more; empty where it is, or a person's."""
        request = job.request
        if job.priority == OF_PEOPLE or not isinstance(request, ReorganizeRequest):
            return ""
        modes = Modes(self._store.policies(), self._settings.mode)
        if modes.of(request.file, request.dataset) == "auto":
            return ""
        return f"{request.file}:{request.dataset} is not in mode auto any more"

    def _build(self, advice: Advice, removable: Removable | None) -> Evaluation:
        """Queue what is advised and was not tried yet, in the room of what may go if need be."""
        jobs: list[JobRecord] = []
        removed: list[ReplicaRecord] = []
        is_final = True
        layouts = advice.portfolio.layouts
        known = self._store.datasets() if layouts else ()
        records = {f"{one.file}:{one.path}": one for one in known}
        tried = TriedLayouts(self._store, self._queue)
        # What is advised where nothing may go fits the budgets.
        space = None
        if removable is not None:
            total = advice.portfolio.budget_bytes or 0
            space = Space(removable, replica_budgets(self._store, None), total)
        for layout in layouts:
            record = records.get(layout.target)
            if record is None:
                continue
            going = () if space is None else space.going(layout, record, self._settings)
            if going is None:
                continue
            try:
                request = self._request(layout, record, tried, takes_room=bool(going))
                if request is None:
                    continue
                # Before it is queued: a build looks at what the others take.
                removed += self._remove_for(layout, going)
                if space is not None and going:
                    space.free(going)
                    tried = TriedLayouts(self._store, self._queue)
                jobs.append(self._queue_build(layout, request))
            except _PutOffError as reason:
                is_final = False
                log.info("%s is not built now: %s", layout.command, reason)
                continue
            if space is not None:
                space.take(record, layout.size_bytes)
        return Evaluation(jobs=tuple(jobs), is_final=is_final, removed=tuple(removed))

    def _remove_idle(self, idle: Mapping[int, str]) -> tuple[ReplicaRecord, ...]:
        """Remove replicas, each for a reason; one that cannot be stays for now."""
        removed: list[ReplicaRecord] = []
        for replica_id, reason in idle.items():
            try:
                removed += self._remove({replica_id: reason})
            except (_PutOffError, SdsError, OSError) as error:
                log.warning("replica %s is not removed now: %s", replica_id, error)
        return tuple(removed)

    def _remove_for(
        self, layout: PortfolioLayout, going: Sequence[HeldReplica]
    ) -> tuple[ReplicaRecord, ...]:
        """Remove what goes for a layout; nothing where not all may go any more."""
        if not going:
            return ()
        if not is_within(self._settings.build_hours):
            raise _PutOffError("others go for it once it can be built (build_hours)")
        new = (
            f"room for {layout.command}, which is to save {time_text(layout.saving.seconds)} a "
            "day (predicted); of what is still read this one saves"
        )
        reasons = {one.id: f"{new} {time_text(one.saves_s_per_day)} (measured)" for one in going}
        try:
            return self._remove(reasons)
        except (SdsError, OSError) as error:
            raise _PutOffError(str(error)) from error

    def _remove(self, reasons: Mapping[int, str]) -> tuple[ReplicaRecord, ...]:
        """Remove replicas, or none where people have decided otherwise meanwhile."""
        modes = Modes(self._store.policies(), self._settings.mode)
        for replica_id in reasons:
            record = self._store.replica(replica_id)
            if modes.of(record.file, record.dataset) != "auto":
                raise _PutOffError(f"{record.file}:{record.dataset} is not in mode auto any more")
        removed = self._evict(reasons)
        if not removed:
            raise _PutOffError(f"one of replicas {', '.join(map(str, reasons))} is pinned, or gone")
        return removed

    def _request(
        self,
        layout: PortfolioLayout,
        record: DatasetRecord,
        tried: TriedLayouts,
        *,
        takes_room: bool,
    ) -> ReorganizeRequest | None:
        """Return the request to build a layout; None where it, or one like it, was tried."""
        if layout.layout.sort is not None:
            return None
        try:
            source = look_at(record.file, lambda: identity_of(record.file))
        except (SdsError, OSError) as error:
            raise _PutOffError(str(error)) from error
        attempt = Attempt(record, layout.layout, source)
        if tried.objection(attempt, takes_room=takes_room):
            return None
        now_s = time.time()
        if 0 <= now_s - source.mtime_ns * 1e-9 < self._settings.quiet_source_s:
            raise _PutOffError(f"{record.file} was written a moment ago (quiet_source_s)")
        return build_request(layout, record)

    def _queue_build(self, layout: PortfolioLayout, request: ReorganizeRequest) -> JobRecord:
        """Queue the build of a layout."""
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
        pinned=False,
        predicted_saving_s_per_read=advised.saved_s_per_read,
    )
