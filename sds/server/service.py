"""Everything that SDS does, as one set of functions: REST and the commands both call these.

A :class:`Service` owns one home. Reading operations need no lock. Those that ingest, build or
publish hold the home's lock while they work, so that one process at a time does; a server holds it
as long as it lives.
"""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Self

from sds.catalog.engine import sqlite_url
from sds.catalog.filesystems import filesystem_of
from sds.catalog.publications import WATCHED_STATES
from sds.catalog.queue import JobQueue
from sds.catalog.records import (
    CalibrateRequest,
    IngestRequest,
    JobRequest,
    JobState,
    RefitRequest,
    ReorganizeRequest,
    ReplicaState,
    SortRequest,
    VerifyRequest,
)
from sds.catalog.replicas import GONE_STATES
from sds.catalog.store import Store
from sds.errors import FileMissingError, NotFoundError, SdsValueError
from sds.home import default_home
from sds.recommender.model import Via
from sds.recommender.traced import change_since
from sds.server import stages
from sds.server.advice import Adviser
from sds.server.builder import Builder
from sds.server.figures import Figures
from sds.server.ingest import Ingester
from sds.server.lock import HomeLock
from sds.server.models import Models, calibration_for
from sds.server.publisher import Publisher
from sds.server.recovery import Recovery
from sds.server.refit import TracedReads, differences
from sds.server.reports import (
    PAGE_LENGTH,
    LeftOutReads,
    Refit,
    RefitReport,
    Replicas,
    VerifyReport,
)
from sds.server.run_mark import begin_run, end_run
from sds.server.settings import load_settings
from sds.server.spool import Spool
from sds.server.stages import run_here
from sds.server.status import status_of
from sds.server.verification import Verifier
from sds.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from sds.catalog import records
    from sds.geometry import SegmentList
    from sds.home import Home
    from sds.plots.kinds import Kind
    from sds.plots.values import FigureData
    from sds.recommender import WhatIf
    from sds.recommender.model import CacheState
    from sds.server import reports
    from sds.server.settings import Settings
    from sds.server.stages import Progress, Runner


log = logging.getLogger(__name__)

_PUBLISHED_AT_ONCE = 64  # sources, in the background


def _to_nobody(share: float, what: str) -> None:
    """Report progress to nobody."""


class Service:
    """The operations on one home.

    Parameters
    ----------
    home, settings, store
        What to work on; see :meth:`open`.
    run
        How long stages are run: here, or in a process of their own.
    """

    def __init__(
        self, home: Home, settings: Settings, store: Store, *, run: Runner = run_here
    ) -> None:
        self.home = home
        self.settings = settings
        self.lock = HomeLock(home, wait_s=settings.lock_wait_s)
        self.queue = JobQueue(store)
        self._is_recovered = False
        self._store = store
        self._run = run
        self._models = Models(store, settings)
        self._publisher = Publisher(home, store, self._models)
        self._builder = Builder(
            home, store, self._publisher, budget_bytes=settings.replica_budget_bytes
        )
        self._figures = Figures()
        self._adviser = Adviser(home, store, self._models, settings)
        self._spool = Spool(home, store)
        self._ingester = Ingester(self._spool, store, self._models, idle_s=settings.spool_idle_s)
        self._verifier = Verifier(home, store, self._publisher)
        self._recovery = Recovery(
            home,
            store,
            self.queue,
            self._publisher,
            builder=self._builder,
            verifier=self._verifier,
            spool=self._spool,
        )

    @classmethod
    def open(
        cls,
        home: Home | None = None,
        settings: Settings | None = None,
        *,
        run: Runner = run_here,
    ) -> Self:
        """Open a home, creating it and its catalog where they are missing.

        Parameters
        ----------
        home
            None: the one that SDS_HOME names.
        settings
            None: from the home's config.toml and the environment.

        Raises
        ------
        PermissionDeniedError
            If the home cannot be created.
        CatalogError
            If the catalog is of another revision or on a network file system.
        ConfigurationError
            If a setting is wrong.
        """
        home = home or default_home()
        settings = settings or load_settings(home)
        home.create()
        store = Store.open(settings.database_url or sqlite_url(home.database))
        return cls(home, settings, store, run=run)

    def close(self) -> None:
        """Close the catalog."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def ingest(self, *, every_file: bool = True) -> reports.IngestReport:
        """Count the traces that the spool holds and that were not counted before.

        Parameters
        ----------
        every_file
            False: of the files that are counted to the end, look at some only; the next calls look
            at the others.
        """
        with self.lock.held():
            return self._ingester.ingest(every_file=every_file)

    def datasets(self, file: str | None = None) -> tuple[records.DatasetRecord, ...]:
        """Return datasets, those that lose most time first; of one file, or all."""
        return self._store.datasets(_canonical(file))

    def patterns(
        self, file: str | None = None, dataset: str | None = None
    ) -> tuple[records.PatternRecord, ...]:
        """Return access patterns, those that lose most time first."""
        return self._store.patterns(_canonical(file), dataset)

    def advise(
        self,
        file: str,
        dataset: str | None = None,
        *,
        selection: reports.Selections = None,
        n_reads: reports.Counts = None,
        progress: Progress | None = None,
    ) -> reports.Advice:
        """Return recommendations for a dataset, or for each dataset of a file that was read.

        Errors as :meth:`sds.server.advice.Adviser.advise`.
        """
        return self._adviser.advise(
            file, dataset, selection=selection, n_reads=n_reads, progress=progress or _to_nobody
        )

    def advise_queries(
        self, request: reports.QueriedTable, progress: Progress | None = None
    ) -> reports.QueryAdvice:
        """Return what each sorted replica of a table would save of stated queries, by itself.

        Errors as :meth:`sds.server.advice.Adviser.advise_queries`.
        """
        return self._adviser.advise_queries(request, progress=progress or _to_nobody)

    def portfolio(
        self, request: reports.PortfolioRequest, progress: Progress | None = None
    ) -> reports.PortfolioAdvice:
        """Return the replicas to build, of several datasets and tables, under one budget of space.

        Errors as :meth:`sds.server.advice.Adviser.portfolio`.
        """
        return self._adviser.portfolio(request, progress=progress or _to_nobody)

    def what_if(self, request: reports.WhatIfRequest, progress: Progress | None = None) -> WhatIf:
        """Return what reads would take with other replicas.

        Errors as :meth:`sds.server.advice.Adviser.what_if`.
        """
        return self._adviser.what_if(request, progress=progress or _to_nobody)

    def recurring(self, request: reports.RecurringTiles) -> SegmentList:
        """Return the tiles of a dataset that are read again and again, in segments.

        Errors as of :meth:`sds.server.advice.Adviser.recurring`.
        """
        return self._adviser.recurring(request)

    def recommendations(
        self, file: str | None = None, dataset: str | None = None
    ) -> tuple[records.RecommendationRecord, ...]:
        """Return the newest advice that was given for each dataset."""
        return self._store.recommendations(_canonical(file), dataset)

    def query_recommendations(
        self, file: str | None = None, table: str | None = None
    ) -> tuple[records.QueryRecommendationRecord, ...]:
        """Return the newest advice that was given on sorting each table."""
        return self._store.query_recommendations(_canonical(file), table)

    def reorganize(
        self, request: ReorganizeRequest | SortRequest, progress: Progress | None = None
    ) -> records.ReplicaRecord:
        """Build a replica, compare every byte with its source, and let it serve."""
        with self._in_order():
            return self._builder.reorganize(request, self._run, progress or _to_nobody)

    def replicas(
        self,
        file: str | None = None,
        dataset: str | None = None,
        *,
        path: str | None = None,
        all_states: bool = False,
    ) -> tuple[records.ReplicaRecord, ...]:
        """Return replicas, oldest first; those that are gone only with `all_states`.

        With `path`, those that have or had this file.
        """
        return self._store.replicas(
            _canonical(file), dataset, path=path, states=_listed_states(all_states=all_states)
        )

    def replica_page(
        self,
        file: str | None = None,
        dataset: str | None = None,
        *,
        path: str | None = None,
        all_states: bool = False,
        after: int = 0,
        limit: int = PAGE_LENGTH,
    ) -> reports.Replicas:
        """Return no more than `limit` of the same replicas, those behind the one numbered `after`.

        Each replica that there is throughout comes on one page, whatever is built or removed
        between pages.
        """
        source, states = _canonical(file), _listed_states(all_states=all_states)
        found = self._store.replicas(
            source, dataset, path=path, states=states, after=after, limit=limit + 1
        )
        return Replicas(
            replicas=found[:limit],
            total=self._store.count_replicas(source, dataset, path=path, states=states),
            next=found[limit - 1].id if len(found) > limit else None,
        )

    def replica(self, replica_id: int) -> records.ReplicaRecord:
        """Return one replica; NotFoundError where there never was one of that id."""
        return self._store.replica(replica_id)

    def verify(
        self, replica_id: int | None = None, progress: Progress | None = None
    ) -> reports.VerifyReport:
        """Verify one replica, or all: those that are sound serve, others do not."""
        with self._in_order():
            chosen = (
                self._store.replicas(states=WATCHED_STATES)
                if replica_id is None
                else (self._store.replica(replica_id),)
            )
            checks = self._verifier.verify(chosen, self._run, progress or _to_nobody)
            # A table that was damaged is written anew, too.
            self._publisher.publish_each(sorted({record.file for record in chosen}))
            return VerifyReport(ok=all(check.ok for check in checks), checks=checks)

    def verify_due(self) -> bool:
        """Verify, when no one waits, what is due or was reported; False where nothing was."""
        with self._in_order():
            return self._verifier.verify_due(
                self._run, interval_days=self.settings.verify_interval_days
            )

    def begin_run(self) -> None:
        """Begin to serve: what an earlier server left without warning is to be verified."""
        if self.settings.verify_reads:
            self.home.verify_reads.touch(mode=0o600)
        else:
            self.home.verify_reads.unlink(missing_ok=True)
        ended = begin_run(self.home)
        if ended is not None:
            since_ns = 0 if ended.of_machine else ended.started_ns
            n_due = self._store.forget_verified(since_ns=since_ns)
            what = "machine" if ended.of_machine else "server"
            reason = f"the {what} ended without warning: {counted(n_due, 'replica')} to be verified"
            log.warning("%s", reason)
            self._store.add_event("server", None, "unclean end", reason)

    def end_run(self) -> None:
        """End to serve, in good order."""
        end_run(self.home)

    def remove(self, replica_id: int) -> records.ReplicaRecord:
        """Stop serving a replica and delete its file."""
        with self._in_order():
            return self._builder.remove(replica_id)

    def calibrate(
        self, request: CalibrateRequest, progress: Progress | None = None
    ) -> records.CalibrationRecord:
        """Measure a file system; predictions for files on it use the result from then on."""
        directory = Path(request.path).absolute()
        if not directory.is_dir():
            message = f"no such directory: {directory}; name one on the file system to measure"
            raise FileMissingError(message)
        with self.lock.held():
            calibration = self._run(
                stages.measure, request, callbacks={"progress": progress or _to_nobody}
            )
            record = self._store.add_calibration(
                mount_point=str(filesystem_of(directory).mount_point),
                device=directory.stat().st_dev,
                calibration=calibration,
            )
            self._publisher.publish_outdated()
            self._publisher.publish_measured()
            return record

    def refit(
        self, path: str | None = None, progress: Progress | None = None
    ) -> reports.RefitReport:
        """Compare traced reads with calibrations, and fit their models to them as well.

        Of a file system that has changed since, the models stay, and that is said: with the reads
        of two file systems no model fits.

        Parameters
        ----------
        path
            A directory of the file system; None: all that were calibrated.

        Raises
        ------
        NotFoundError
            If the file system of the path was never calibrated.
        """
        with self.lock.held():
            found = [
                self._refit(record, progress or _to_nobody)
                for record in self._calibrations_of(path)
            ]
            if any(entry.refitted for entry in found):
                self._publisher.publish_outdated()
        return RefitReport(file_systems=tuple(found))

    def _calibrations_of(self, path: str | None) -> tuple[records.CalibrationRecord, ...]:
        known = self._store.calibrations()
        if path is None:
            return known
        mount_point = str(filesystem_of(Path(path)).mount_point)
        mine = tuple(record for record in known if record.mount_point == mount_point)
        if not mine:
            raise NotFoundError(
                f"{mount_point}, the file system of {path}, was never calibrated: "
                f"run sds calibrate {path}"
            )
        return mine[:1]

    def _refit(self, record: records.CalibrationRecord, progress: Progress) -> reports.Refit:
        before = record.calibration
        traced = TracedReads(self.home, self._store, self._models)
        reads = traced.on(record)
        counts = traced.left_out
        since_ns = int(datetime.fromisoformat(before.created).timestamp() * 1e9)
        changed = differences(record)
        if not changed:
            change = change_since(before, [read for read in reads if read.start_ns >= since_ns])
            changed = "" if change is None else change.text
        n_reads = sum(read.n_reads for read in reads)
        n_fitted = 0
        after = before
        if changed:
            if self._store.calibration_changes().get(record.id) != changed:
                log.warning(
                    "%s has changed since it was calibrated: %s", record.mount_point, changed
                )
                self._store.add_event("calibration", record.id, "changed", changed)
        else:
            after, not_fitted = self._run(
                stages.fit_to_traces, before, reads, callbacks={"progress": progress}
            )
            counts += Counter(not_fitted)
            n_fitted = n_reads - sum(not_fitted.values())
            if after != before:
                self._store.replace_calibration(record.id, after)
        return Refit(
            mount_point=record.mount_point,
            n_reads=n_reads,
            n_fitted=n_fitted,
            changed=changed,
            refitted=after != before,
            left_out=tuple(
                LeftOutReads(n_reads=n, reason=str(reason), remedy=reason.remedy)
                for reason, n in counts.most_common()
            ),
        )

    def calibration_notes(self) -> tuple[str, ...]:
        """Return which file systems have changed since they were calibrated, and what to do."""
        return self._models.change_notes()

    def calibrations(self) -> tuple[records.CalibrationRecord, ...]:
        """Return the newest calibration of each file system."""
        return self._store.calibrations()

    def mount_point(self, path: str) -> str:
        """Return where the file system of a path is mounted; SdsValueError where it is no path."""
        try:
            there = next(place for place in (Path(path), *Path(path).parents) if place.exists())
            return str(filesystem_of(there).mount_point)
        except (OSError, ValueError) as error:
            message = f"path {path!r} cannot be looked at ({error}); name one that exists"
            raise SdsValueError(message) from error

    def plot(
        self,
        kind: Kind,
        path: str | None = None,
        *,
        via: Via = Via.HDF5,
        cache: CacheState | None = None,
        model: str | None = None,
    ) -> FigureData:
        """Return what a figure shows of the models of a file system.

        Parameters
        ----------
        kind
            Which figure.
        path
            On the file system; None: of the only one that is calibrated.
        via, cache, model
            Which reads and which model, as :func:`sds.plots.data.figure_data`, which see also for
            errors. Figures are kept as long as the calibration is the same.

        Raises
        ------
        NotFoundError
            If the file system is not calibrated.
        """
        record = calibration_for(None if path is None else Path(path), self.calibrations())
        return self._figures.of(record, kind, via=via, cache=cache, model=model)

    def events(self, limit: int = 100) -> tuple[records.EventRecord, ...]:
        """Return what happened last, newest first."""
        return self._store.events(limit)

    def status(self) -> reports.Status:
        """Return the state of the home."""
        return status_of(self.home, self._store, self.queue, self._spool)

    def recover(self) -> reports.RecoveryReport:
        """Finish or undo what a crash cut off, and make the tables equal to the catalog."""
        with self.lock.held():
            self._is_recovered = True
            return self._recovery.recover(max_attempts=self.settings.job_attempts)

    @contextmanager
    def _in_order(self) -> Iterator[None]:
        """Hold the lock, having put in order what earlier processes left."""
        with self.lock.held():
            if not self._is_recovered:
                self.recover()
            yield

    def collect_garbage(self, n_sources: int | None = None) -> reports.GarbageReport:
        """Retire replicas whose source is gone or changed; delete what is of no use any more.

        Parameters
        ----------
        n_sources
            Look at the next so many sources only; each call goes on where the last one ended.
        """
        with self.lock.held():
            return self._recovery.collect_garbage(
                self._run, keep_days=self.settings.spool_keep_days, n_sources=n_sources
            )

    def catch_up(self) -> bool:
        """Publish some of what an older SDS or other settings published.

        Returns
        -------
        Whether there is more of it.
        """
        with self.lock.held():
            self._publisher.publish_outdated(_PUBLISHED_AT_ONCE)
            return self._publisher.has_outdated

    def submit(self, request: JobRequest) -> records.JobRecord:
        """Put work into the queue, for the server to do."""
        return self.queue.submit(request, most=self.settings.max_queued_jobs)

    def jobs(self, state: JobState | None = None) -> tuple[records.JobRecord, ...]:
        """Return jobs, newest first."""
        return self.queue.jobs(state)

    def job(self, job_id: int) -> records.JobRecord:
        """Return one job; NotFoundError where there never was one of that id."""
        return self.queue.job(job_id)

    def cancel(self, job_id: int) -> records.JobRecord:
        """Cancel a job: at once where it waits, at its next step where it runs."""
        return self.queue.cancel(job_id)

    def perform(
        self, request: JobRequest, progress: Progress
    ) -> (
        records.ReplicaRecord
        | reports.IngestReport
        | reports.VerifyReport
        | records.CalibrationRecord
        | reports.RefitReport
    ):
        """Do what a job asks for."""
        match request:
            case ReorganizeRequest() | SortRequest():
                return self.reorganize(request, progress)
            case VerifyRequest():
                return self.verify(request.replica_id, progress)
            case CalibrateRequest():
                return self.calibrate(request, progress)
            case RefitRequest():
                return self.refit(request.path, progress)
            case IngestRequest():
                return self.ingest()


def _listed_states(*, all_states: bool) -> frozenset[ReplicaState]:
    """Return the states of replicas that are listed."""
    return frozenset(ReplicaState) if all_states else frozenset(ReplicaState) - GONE_STATES


def _canonical(file: str | None) -> str | None:
    """Return the path under which the catalog knows a file."""
    if file is None:
        return None
    try:
        return str(Path(file).resolve())
    except ValueError as error:  # a null byte
        message = f"file {file!r} is no path ({error}); send one that the system can have"
        raise SdsValueError(message) from error
