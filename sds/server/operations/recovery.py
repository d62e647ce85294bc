"""Crash recovery and garbage collection.

Builds that a crash cut off are finished or rolled back, stale replicas retired, and spool files
deleted that are counted. Every step can be repeated, and cut off again, without harm.
"""

from __future__ import annotations

import logging
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING

from sds.catalog.publications import WATCHED_STATES
from sds.catalog.records import JobState, ReplicaState
from sds.catalog.replicas import OPEN_STATES
from sds.errors import SdsError, UnreachableError
from sds.hdf5.identity import trusted_directories
from sds.server.operations.builder import is_wanted, wanted_replica
from sds.server.operations.publisher import current_identity, current_source, level_of, outdated
from sds.server.operations.replica_reports import GarbageReport
from sds.server.operations.reports import RecoveryReport
from sds.server.operations.verification import wants_verification
from sds.text import DAY_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sds.catalog.job_queue import JobQueue
    from sds.catalog.records import WatchedSource
    from sds.catalog.replica_records import ReplicaRecord
    from sds.catalog.store import Store
    from sds.home import Home
    from sds.organizer.replica_file.replica import Replica
    from sds.server.operations.builder import Builder
    from sds.server.operations.publisher import Publisher
    from sds.server.operations.spool import Spool
    from sds.server.operations.stages import Runner
    from sds.server.operations.verification import Verifier

log = logging.getLogger(__name__)

_SOURCES_AT_ONCE = 64  # that a command looks at beyond its own
_AT_ONCE = 256
_SPOOL_EVERY_S = 60.0


class Recovery:
    """Puts one home in order."""

    def __init__(
        self,
        home: Home,
        store: Store,
        queue: JobQueue,
        publisher: Publisher,
        *,
        builder: Builder,
        verifier: Verifier,
        spool: Spool,
    ) -> None:
        self._spool = spool
        self._builder = builder
        self._verifier = verifier
        self._home = home
        self._store = store
        self._queue = queue
        self._publisher = publisher
        self._watched: int | None = None  # the source that was looked at last
        self._next_spool_s = 0.0

    def recover(self, *, max_attempts: int) -> RecoveryReport:
        """Finish or undo what was begun, under the home's lock: no other process is at work.

        That takes as long as there is to do. Of the rest of the home some is looked at, never all.
        """
        from sds.organizer.journal import recover  # noqa: PLC0415  (h5py)

        interrupted = self._queue.requeue_interrupted(max_attempts)
        finished, dropped = [], []
        # What was put back before the server ended waits as well.
        waiting = (*interrupted, *self._queue.jobs(JobState.QUEUED))
        again = [wanted_replica(job.request) for job in waiting if job.state is JobState.QUEUED]
        for record in self._store.replicas(states=OPEN_STATES):
            if any(one is not None and is_wanted(record, one) for one in again):
                continue  # its job runs again, and goes on from what is on disk
            try:
                replica = None if current_identity(record.path) is None else _whole_replica(record)
            except UnreachableError as error:
                log.warning("replica %s is left as it is: %s", record.id, error)
                continue
            if replica is None:
                reason = "the process that built it ended before it was whole"
                retired = self._store.set_replica(record.id, ReplicaState.RETIRED, reason)
                if self._home.holds_replica(record.path):
                    self._builder.delete_file(retired)
                dropped.append(record.id)
            else:
                reason = "whole and verified when the process that built it ended"
                state = ReplicaState.SHADOW if record.in_shadow else ReplicaState.ACTIVE
                self._store.set_replica(record.id, state, reason, replica=replica)
                finished.append(record.id)
        removed = tuple(str(path) for path in recover(self._home))
        withdrawn = self._publisher.tidy()
        published = self._publisher.publish_marked()
        published += self._publisher.publish_outdated(_SOURCES_AT_ONCE)
        trusted = trusted_directories(self._home)
        for watched in self._watched_next(_SOURCES_AT_ONCE):
            if _differs(watched, trusted):
                self._publisher.publish(watched.file)
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

    def collect_garbage(
        self, run: Runner, *, keep_days: float, n_sources: int | None = None
    ) -> GarbageReport:
        """Retire replicas of sources that changed or went; delete spool files long counted.

        What was only touched, a replica or its source, is verified again. With `n_sources` only
        the next `n_sources` sources are checked, spool files once every `_SPOOL_EVERY_S`, and what
        was touched is left to `Verifier.verify_due`, which may take hours.
        """
        retired = []
        trusted = trusted_directories(self._home)
        for watched in self._watched_next(n_sources):
            if _differs(watched, trusted):
                try:
                    retired += self._look_after(watched.file, run, verifies=n_sources is None)
                except UnreachableError as error:
                    log.warning("%s is looked at later: %s", watched.file, error)
        for record in self._store.uncollected_replicas(n_sources):
            self._builder.collect(record)
        removed: tuple[str, ...] = ()
        if n_sources is None or time.monotonic() >= self._next_spool_s:
            self._next_spool_s = time.monotonic() + _SPOOL_EVERY_S
            self._publisher.tidy()
            self._publisher.publish_marked()
            removed = self._delete_spool(keep_days)
        return GarbageReport(replicas_retired=tuple(retired), spool_files_removed=removed)

    def _watched_next(self, n_sources: int | None) -> Iterator[WatchedSource]:
        """Yield the next sources that replicas serve, each once, from the first behind the last.

        None: all of them.
        """
        if self._watched is None:
            # Commands end before they have seen all: each begins somewhere.
            self._watched = random.randrange(self._store.last_watched() + 1)  # noqa: S311
        first, is_past_end = self._watched, False
        left = n_sources
        while left is None or left > 0:
            found = self._store.watched(self._watched, min(left or _AT_ONCE, _AT_ONCE))
            for watched in found:
                if is_past_end and watched.id > first:
                    return
                self._watched = watched.id
                yield watched
            if not found:
                if is_past_end:
                    return
                self._watched, is_past_end = 0, True
            left = None if left is None else left - len(found)

    def _look_after(self, file: str, run: Runner, *, verifies: bool) -> list[ReplicaRecord]:
        """Retire replicas of a source that changed or went, verify what was touched, or note it.

        Returns
        -------
        The replicas that were retired.
        """
        retired = []
        is_news = verifies
        trusted = trusted_directories(self._home)
        for record in self._store.replicas(file, states=WATCHED_STATES):
            reason = outdated(record, current_source(record.file, trusted))
            if reason and record.state is not ReplicaState.DAMAGED:
                is_news = True
                retired.append(self._store.set_replica(record.id, ReplicaState.RETIRED, reason))
            elif reason or not wants_verification(self._home, record):
                continue
            elif not verifies:
                is_news |= self._verifier.note_touched(record.id)
            else:
                (check,) = self._verifier.verify((record,), run, lambda *_: None)
                if check.replica.state is ReplicaState.RETIRED:
                    retired.append(check.replica)
        if is_news:
            self._publisher.publish(file)
        return retired

    def _delete_spool(self, keep_days: float) -> tuple[str, ...]:
        """Delete spool files that are counted to their end, some time after that."""
        before_ns = time.time_ns() - int(keep_days * DAY_S * 1e9)
        removed = []
        for record in self._spool.counted():
            if not record.complete or record.changed_ns > before_ns:
                continue
            path = self._home.spool / record.name
            if path.parent != self._home.spool or path.name in {"", ".."}:
                continue  # a name that leads elsewhere, of a catalog that somebody wrote
            now = current_identity(str(path))
            if now is not None and now.inode == record.inode:
                path.unlink()
                removed.append(record.name)
        return tuple(removed)


def _differs(watched: WatchedSource, trusted: Sequence[Path]) -> bool:
    """Return whether a source or one of its replicas is another file than the catalog knows."""
    try:
        source = current_source(watched.file, trusted)
        return any(
            before != source or built is None or built != current_identity(path)
            for path, before, built in watched.replicas
        )
    except OSError as error:  # of a disk or server
        log.log(
            level_of(error),
            "%s or a replica of it cannot be looked at now: %s",
            watched.file,
            error,
        )
        return False


def _whole_replica(record: ReplicaRecord) -> Replica | None:
    """Return what a file holds that was being built; None where it is not whole."""
    from sds.organizer.replica_file.replica import describe_replica  # noqa: PLC0415
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
