"""What a crash or the course of time left behind: finished, undone, or removed.

Every step can be repeated, and cut off again, without harm.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sds.catalog.records import JobState, ReorganizeRequest, ReplicaState, SortRequest
from sds.catalog.replicas import OPEN_STATES
from sds.errors import SdsError
from sds.server import stages
from sds.server.publisher import current_identity, current_source, outdated, touched
from sds.server.reports import GarbageReport, RecoveryReport

if TYPE_CHECKING:
    from sds.catalog.queue import JobQueue
    from sds.catalog.records import JobRequest, ReplicaRecord
    from sds.catalog.store import Store
    from sds.geometry import SegmentList
    from sds.home import Home
    from sds.organizer.replica import Replica
    from sds.server.builder import Builder
    from sds.server.publisher import Publisher
    from sds.server.stages import Runner

_DAY_S = 86400.0


class Recovery:
    """Puts one home in order."""

    def __init__(
        self,
        home: Home,
        store: Store,
        queue: JobQueue,
        publisher: Publisher,
        builder: Builder,
    ) -> None:
        self._builder = builder
        self._home = home
        self._store = store
        self._queue = queue
        self._publisher = publisher

    def recover(self, *, max_attempts: int) -> RecoveryReport:
        """Finish or undo what was begun, under the home's lock: nobody else is at work."""
        from sds.organizer.journal import recover  # noqa: PLC0415  (h5py)

        interrupted = self._queue.requeue_interrupted(max_attempts)
        finished, dropped = [], []
        again = {_wanted(job.request) for job in interrupted if job.state is JobState.QUEUED}
        for record in self._store.replicas(states=OPEN_STATES):
            key = record.segments if record.sort is None else record.sort.key
            if (record.file, record.dataset, record.order, key) in again:
                continue  # its job runs again, and goes on from what is on disk
            replica = _whole_replica(record)
            if replica is None:
                reason = "the process that built it ended before it was whole"
                retired = self._store.set_replica(record.id, ReplicaState.RETIRED, reason)
                if Path(record.path).is_relative_to(self._home.replicas):
                    self._builder.delete_file(retired)
                dropped.append(record.id)
            else:
                reason = "whole and verified when the process that built it ended"
                self._store.set_replica(record.id, ReplicaState.ACTIVE, reason, replica=replica)
                finished.append(record.id)
        removed = tuple(str(path) for path in recover(self._home))
        published, withdrawn = self._publisher.publish_all()
        self._publisher.publish_measured()
        return RecoveryReport(
            jobs_requeued=tuple(job.id for job in interrupted if job.state is JobState.QUEUED),
            jobs_failed=tuple(job.id for job in interrupted if job.state is JobState.FAILED),
            replicas_finished=tuple(finished),
            replicas_dropped=tuple(dropped),
            files_removed=removed,
            tables_published=published,
            tables_withdrawn=withdrawn,
        )

    def collect_garbage(self, run: Runner, *, keep_days: float) -> GarbageReport:
        """Retire replicas of sources that changed or went; delete spool files long counted.

        A source of which only the ctime changed is compared with its replicas again.
        """
        retired = []
        serving = frozenset({ReplicaState.ACTIVE, ReplicaState.VERIFIED})
        for record in self._store.replicas(states=serving):
            now = current_source(self._home, record.file)
            reason = outdated(record, now)
            if touched(record, now):
                reason = self._compare_again(record, run)
            if reason:
                changed = self._store.set_replica(record.id, ReplicaState.RETIRED, reason)
                self._publisher.publish(record.file)
                retired.append(changed)
        for record in self._store.replicas(states=frozenset({ReplicaState.RETIRED})):
            # What the user placed with --output is the user's to delete.
            if Path(record.path).is_relative_to(self._home.replicas):
                self._builder.delete_file(record)
        return GarbageReport(
            replicas_retired=tuple(retired), spool_files_removed=self._delete_spool(keep_days)
        )

    def _compare_again(self, record: ReplicaRecord, run: Runner) -> str:
        """Let a replica serve its source again if it still equals it; return why not."""
        if record.replica is None:
            return "the catalog does not know what is in its file"
        try:
            identity, report = run(
                stages.compare,
                record.replica,
                self._home.root,
                callbacks={"progress": lambda *_: None},
            )
        except (SdsError, OSError) as error:
            return f"its source changed and could not be compared: {error}"
        if not report.ok:
            return f"its source changed: {'; '.join(report.problems)}"
        self._store.set_replica(
            record.id,
            record.state,
            "the ctime or the file system of its source changed; every byte was compared again",
            replica=replace(record.replica, source_identity=identity),
        )
        self._publisher.publish(record.file)
        return ""

    def _delete_spool(self, keep_days: float) -> tuple[str, ...]:
        """Delete spool files that are counted to their end, some time after that."""
        before_ns = time.time_ns() - int(keep_days * _DAY_S * 1e9)
        removed = []
        for record in self._store.spool_files():
            path = self._home.spool / record.name
            if not record.complete or record.changed_ns > before_ns:
                continue
            now = current_identity(str(path))
            if now is not None and now.inode == record.inode:
                path.unlink()
                removed.append(record.name)
        return tuple(removed)


def _wanted(
    request: JobRequest,
) -> tuple[str, str, tuple[int, ...], str | SegmentList | None] | None:
    """Return source, dataset, order, and key or tiles of what a job builds; None: of nothing."""
    if isinstance(request, SortRequest):
        return str(Path(request.file).resolve()), request.dataset, (0,), request.key
    if isinstance(request, ReorganizeRequest):
        return str(Path(request.file).resolve()), request.dataset, request.order, request.segments
    return None


def _whole_replica(record: ReplicaRecord) -> Replica | None:
    """Return what a file holds that was being built; None where it is not whole."""
    from sds.organizer.replica import describe_replica  # noqa: PLC0415
    from sds.organizer.verify import verify_replica  # noqa: PLC0415  (h5py)

    path = Path(record.path)
    if not path.is_file():
        return None
    try:
        replica = describe_replica(path)
        whole = verify_replica(path).ok
    except SdsError:
        return None
    same = replica.source_identity == record.source_identity and replica.layout == record.layout
    return replica if whole and same else None
