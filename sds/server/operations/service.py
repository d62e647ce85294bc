"""Everything that SDS does, as one set of functions: REST and the commands both call these.

A :class:`Service` owns one home. Reading operations need no lock. Those that ingest, build or
publish hold the home's lock while they work, so that one process at a time does; a server holds it
as long as it lives.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Self

from sds.catalog.database import sqlite_url
from sds.catalog.publications import WATCHED_STATES
from sds.catalog.records import ReplicaState
from sds.catalog.replicas import GONE_STATES
from sds.catalog.store import Store
from sds.errors import SdsValueError, UnreachableError
from sds.files import canonical_path
from sds.home import default_home
from sds.mounts import filesystem_of
from sds.redirect.launch.untraced import drop_old_notes
from sds.server.operations import stages
from sds.server.operations.preferences import Preferences
from sds.server.operations.reports import PAGE_LENGTH, RefitReport
from sds.server.operations.stages import run_here
from sds.server.operations.status import status_of
from sds.server.run_mark import begin_run, end_run
from sds.server.settings import load_settings
from sds.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType

    from sds.catalog import records
    from sds.catalog.model_records import (
        CalibrationRecord,
        PatternRecord,
        RecommendationRecord,
    )
    from sds.catalog.replica_records import ReplicaRecord
    from sds.catalog.requests import (
        CalibrateRequest,
        JobRecord,
        JobRequest,
        ReorganizeRequest,
        SortRequest,
    )
    from sds.geometry import SegmentList
    from sds.home import Home
    from sds.plots import Kind
    from sds.plots.figure_values import FigureData
    from sds.recommender.models.cost_model import CacheState, Via
    from sds.recommender.portfolio.what_if import WhatIf
    from sds.server.operations import reports
    from sds.server.operations.advice_reports import (
        Advice,
        AdviceRequest,
        Calibrations,
        RecurringTilesRequest,
        WhatIfRequest,
    )
    from sds.server.operations.evaluation.evaluator import Evaluation
    from sds.server.operations.replica_reports import GarbageReport, Replicas, VerifyReport
    from sds.server.operations.reports import PageLength
    from sds.server.operations.savings import Savings
    from sds.server.operations.stages import Progress, Runner
    from sds.server.settings import Settings


log = logging.getLogger(__name__)

_PUBLISHED_AT_ONCE = 64  # sources, in the background


def _ignore_progress(share: float, what: str) -> None:
    """Discard a report of progress."""


class Service(Preferences):
    """The operations on one home; parameters as of `ServiceComponents`."""

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

        What they say of replicas in shadow is acted on.

        Parameters
        ----------
        every_file
            False: of the files that are counted to the end, look at some only; the next calls look
            at the others.
        """
        with self.lock.held():
            drop_old_notes(self.home.spool)
            report = self._ingester.ingest(every_file=every_file)
            self._is_review_due |= report.reads > 0
            if self._is_review_due:
                if self._store.shadow_tests():
                    with self._in_order():
                        self._shadow_reviewer.review()
                self._is_review_due = False
            if report.reads:
                self.to_evaluate.set()
            return report

    def datasets(
        self, file: records.AbsolutePath | None = None
    ) -> tuple[records.DatasetRecord, ...]:
        """Return datasets, those that lose most time first; of one file, or all."""
        return self._store.datasets(_canonical(file))

    def patterns(
        self, file: records.AbsolutePath | None = None, dataset: str | None = None
    ) -> tuple[PatternRecord, ...]:
        """Return access patterns, those that lose most time first."""
        return self._store.patterns(_canonical(file), dataset)

    def advise(self, request: AdviceRequest, progress: Progress | None = None) -> Advice:
        """Return the replicas to build, of several datasets and tables, under one budget of space.

        Raises
        ------
        SdsError
            As :meth:`sds.server.operations.advice.Adviser.advise`.
        """
        return self._adviser.advise(request, progress=progress or _ignore_progress)

    def advise_all(
        self,
        *,
        mode: records.Mode = "off",
        may_go: Mapping[tuple[str, str], int] = MappingProxyType({}),
    ) -> Advice:
        """Return the replicas to build of all that was read, under the budget of the home.

        Parameters
        ----------
        mode, may_go
            As :meth:`sds.server.operations.advice.Adviser.advise_all`; off: of all datasets.
        """
        return self._adviser.advise_all(mode=mode, may_go=may_go, progress=_ignore_progress)

    def evaluate(self, advise: Callable[..., Advice] | None = None) -> Evaluation | None:
        """Advise on all that was read, keep that, and queue what to build of what is in mode auto.

        Parameters
        ----------
        advise
            Calls `advise_all` elsewhere, since it opens users' files; None: here.

        Returns
        -------
        None where nothing was read, or all is in mode off.
        """
        return self._evaluator.evaluate(advise or self.advise_all)

    def what_if(self, request: WhatIfRequest, progress: Progress | None = None) -> WhatIf:
        """Return what reads would take with a replica that is not there, or without one that is.

        Raises
        ------
        SdsError
            As :meth:`sds.server.operations.advice.Adviser.what_if`.
        """
        return self._adviser.what_if(request, progress=progress or _ignore_progress)

    def recurring(self, request: RecurringTilesRequest) -> SegmentList:
        """Return the tiles of a dataset that are read again and again, in segments.

        They are what a job ``reorganize`` takes as ``segments``.

        Raises
        ------
        SdsError
            As :meth:`sds.server.operations.advice.Adviser.recurring`.
        """
        return self._adviser.recurring(request)

    def recommendations(
        self, file: records.AbsolutePath | None = None, dataset: str | None = None
    ) -> tuple[RecommendationRecord, ...]:
        """Return the newest advice that was given for each dataset and table."""
        return self._store.recommendations(_canonical(file), dataset)

    def reorganize(
        self, request: ReorganizeRequest | SortRequest, progress: Progress | None = None
    ) -> ReplicaRecord:
        """Build a replica, compare every byte with its source, and let it serve."""
        with self._in_order():
            return self._builder.reorganize(request, self._run, progress or _ignore_progress)

    def replicas(
        self,
        file: str | None = None,
        dataset: str | None = None,
        *,
        path: str | None = None,
        all_states: bool = False,
    ) -> tuple[ReplicaRecord, ...]:
        """Return replicas, oldest first; those that are gone only with `all_states`.

        With `path`, those that have or had this file.
        """
        return self._store.replicas(
            _canonical(file), dataset, path=path, states=_listed_states(all_states=all_states)
        )

    def replica_page(
        self,
        file: records.AbsolutePath | None = None,
        dataset: str | None = None,
        *,
        path: records.AbsolutePath | None = None,
        all_states: bool = False,
        after: records.After = 0,
        limit: PageLength = PAGE_LENGTH,
    ) -> Replicas:
        """Return a page of replicas, oldest first; those that are gone only with `all_states`.

        `path` names a replica file. The next page begins `after` what this one says is `next`. Each
        replica that there is throughout comes on one page, whatever is built or removed between
        pages.
        """
        source, states = _canonical(file), _listed_states(all_states=all_states)
        found = self._store.replicas(
            source, dataset, path=path, states=states, after=after, limit=limit + 1
        )
        from sds.server.operations.replica_reports import Replicas  # noqa: PLC0415

        return Replicas(
            replicas=found[:limit],
            total=self._store.count_replicas(source, dataset, path=path, states=states),
            next=found[limit - 1].id if len(found) > limit else None,
        )

    def savings(
        self, file: records.AbsolutePath | None = None, dataset: str | None = None
    ) -> Savings:
        """Return what replicas saved, as measured, and what building them took."""
        from sds.server.operations.savings import savings_of  # noqa: PLC0415  (NumPy)

        return savings_of(self._store, _canonical(file), dataset)

    def replica(self, replica_id: records.Id) -> ReplicaRecord:
        """Return one replica.

        Raises
        ------
        NotFoundError
            If there never was one of that id.
        """
        return self._store.replica(replica_id)

    def verify(
        self, replica_id: int | None = None, progress: Progress | None = None
    ) -> VerifyReport:
        """Verify one replica, or all: those that are sound serve, others do not."""
        from sds.server.operations.replica_reports import VerifyReport  # noqa: PLC0415

        with self._in_order():
            chosen = (
                self._store.replicas(states=WATCHED_STATES)
                if replica_id is None
                else (self._store.replica(replica_id),)
            )
            checks = self._verifier.verify(chosen, self._run, progress or _ignore_progress)
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

    def remove(self, replica_id: records.Id) -> ReplicaRecord:
        """Stop serving a replica and delete its file."""
        with self._in_order():
            try:
                return self._builder.remove(replica_id)
            finally:
                self.to_evaluate.set()

    def calibrate(
        self, request: CalibrateRequest, progress: Progress | None = None
    ) -> CalibrationRecord:
        """Measure a file system; predictions for files on it use the result from then on."""
        with self.lock.held():
            calibration = self._run(
                stages.measure, request, callbacks={"progress": progress or _ignore_progress}
            )
            record = self._store.add_calibration(
                mount_point=calibration.file_system.mount_point,
                device=calibration.file_system.device,
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
        from sds.server.operations.refit import Refitter, calibrations_at  # noqa: PLC0415

        with self.lock.held():
            refitter = Refitter(self.home, self._store, self._models, self._run)
            found = []
            for record in calibrations_at(path, self._store.calibrations()):
                try:
                    found.append(refitter.refit(record, progress or _ignore_progress))
                except UnreachableError as error:
                    if path is not None:
                        raise
                    log.warning("%s is not refitted now: %s", record.mount_point, error)
            if any(entry.refitted for entry in found):
                self._publisher.publish_outdated()
        return RefitReport(file_systems=tuple(found))

    def calibration_report(self) -> Calibrations:
        """Return the newest calibration of each file system, and what has changed since."""
        from sds.server.operations.advice_reports import Calibrations  # noqa: PLC0415

        return Calibrations(calibrations=self.calibrations(), notes=self._models.change_notes())

    def calibrations(self) -> tuple[CalibrationRecord, ...]:
        """Return the newest calibration of each file system."""
        return self._store.calibrations()

    def mount_point(self, path: str) -> str:
        """Return where the file system of a path is mounted; SdsValueError where it is no path."""
        try:
            there = next(place for place in (Path(path), *Path(path).parents) if place.exists())
            return str(filesystem_of(there).mount_point)
        except UnreachableError:
            raise
        except (OSError, ValueError) as error:
            message = f"path {path!r} cannot be looked at ({error}); name one that exists"
            raise SdsValueError(message) from error

    def plot(
        self,
        kind: Kind,
        path: str | None = None,
        *,
        via: Via | None = None,
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
            Which reads and which model, as :func:`sds.plots.figure_values.figure_data`, which see
            also for errors. Figures are kept as long as the calibration is the same.

        Raises
        ------
        NotFoundError
            If the file system is not calibrated.
        """
        from sds.recommender.models.cost_model import Via  # noqa: PLC0415
        from sds.server.operations.file_system_models import calibration_for  # noqa: PLC0415

        record = calibration_for(None if path is None else Path(path), self.calibrations())
        return self._figure_data(
            kind, record.calibration, via=via or Via.HDF5, cache=cache, model=model
        )

    def events(self, limit: reports.EventLimit = 100) -> tuple[records.EventRecord, ...]:
        """Return what happened last, newest first."""
        return self._store.events(limit)

    def status(self) -> reports.Status:
        """Return the state of the home."""
        return status_of(self.home, self._store, self.queue, self._spool, self.settings)

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

    def collect_garbage(self, n_sources: int | None = None) -> GarbageReport:
        """Retire replicas whose source is gone or changed; delete what is of no use any more.

        Parameters
        ----------
        n_sources
            Check only this many sources; each call continues where the last one ended.
        """
        with self.lock.held():
            found = self._recovery.collect_garbage(
                self._run, keep_days=self.settings.spool_keep_days, n_sources=n_sources
            )
            if found.replicas_retired:
                self.to_evaluate.set()
            return found

    def catch_up(self, unreachable: set[str]) -> bool:
        """Publish some of what an older SDS or other settings published.

        Parameters
        ----------
        unreachable
            Empty at first; from call to call, the sources that cannot be looked at now.

        Returns
        -------
        Whether there is more of it.
        """
        with self.lock.held():
            return self._publisher.catch_up(_PUBLISHED_AT_ONCE, unreachable)

    def submit(self, request: JobRequest) -> JobRecord:
        """Put work into the queue; ask for the job to see how far it is."""
        return self.queue.submit(request, most=self.settings.max_queued_jobs)

    def jobs(self, state: records.JobState | None = None) -> tuple[JobRecord, ...]:
        """Return jobs, newest first."""
        return self.queue.jobs(state)

    def job(self, job_id: records.Id) -> JobRecord:
        """Return one job.

        Raises
        ------
        NotFoundError
            If there never was one of that id.
        """
        return self.queue.job(job_id)

    def cancel(self, job_id: records.Id) -> JobRecord:
        """Cancel a job: at once where it waits, at its next step where it runs."""
        job = self.queue.cancel(job_id)
        if job.state == "cancelled":
            self.abandon(job)
        return job

    def abandon(self, job: JobRecord) -> None:
        """Retire what a job has begun that was cancelled while it waited to go on."""
        if not self.queue.is_asked_again(job):
            with self.lock.held():
                self._builder.abandon(job.request, f"not built: {job.error}")

    def objection_to(self, job: JobRecord) -> str:
        """Return why a job of the evaluator is not wanted any more; empty where it is."""
        return self._evaluator.objection_to(job)

    def perform(
        self, request: JobRequest, progress: Progress
    ) -> (
        ReplicaRecord
        | reports.IngestReport
        | VerifyReport
        | CalibrationRecord
        | reports.RefitReport
    ):
        """Do what a job asks for."""
        from sds.catalog.requests import (  # noqa: PLC0415
            CalibrateRequest,
            IngestRequest,
            RefitRequest,
            ReorganizeRequest,
            SortRequest,
            VerifyRequest,
        )

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
    return None if file is None else canonical_path(file)
