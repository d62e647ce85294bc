"""The job queue: what is to be done, is being done and was done, kept across restarts."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from sqlalchemy import func, select

from sds.catalog.records import JobState
from sds.catalog.rows import JobRow, record_of
from sds.errors import NotFoundError, QueueFullError

if TYPE_CHECKING:
    from pydantic import JsonValue
    from sqlalchemy.orm import Session

    from sds.catalog.database import Database
    from sds.catalog.requests import JobRecord, JobRequest
    from sds.errors import SdsError


SHORT_KINDS = frozenset({"ingest"})
"""Kinds of jobs that take moments: they have a worker of their own."""


class JobQueue:
    """Jobs of one catalog: begun by priority, then in the order in which they came.

    Attributes
    ----------
    submitted
        Set when a job is added here, by whether it is a short one; the worker clears it.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.submitted = {short: threading.Event() for short in (False, True)}

    def submit(
        self, request: JobRequest, *, most: int | None = None, priority: int = 0
    ) -> JobRecord:
        """Add a job to the end of the queue, behind those of its priority.

        Raises
        ------
        QueueFullError
            If `most` jobs wait already.
        """
        waiting = select(func.count()).select_from(JobRow).filter_by(state=JobState.QUEUED)
        with self._database.writing() as session:
            n_waiting = session.scalar(waiting) or 0
            if most is not None and n_waiting >= most:
                message = (
                    f"{n_waiting} jobs wait, and max_queued_jobs is {most}; try again when some "
                    "are done, cancel some, or raise that setting"
                )
                raise QueueFullError(message)
            row = JobRow(
                state=JobState.QUEUED,
                request=request,
                progress=0.0,
                attempts=0,
                error="",
                result=None,
                cancel_requested=False,
                created_ns=time.time_ns(),
                started_ns=None,
                finished_ns=None,
                priority=priority,
            )
            session.add(row)
            session.flush()
            job = _record(row)
        self.submitted[request.kind in SHORT_KINDS].set()
        return job

    def job(self, job_id: int) -> JobRecord:
        """Return one job.

        Raises
        ------
        NotFoundError
            If there never was one of that id.
        """
        with self._database.reading() as session:
            return _record(_row(session, job_id))

    def jobs(self, state: JobState | None = None, limit: int = 1000) -> tuple[JobRecord, ...]:
        """Return jobs, newest first."""
        query = select(JobRow).order_by(JobRow.id.desc()).limit(limit)
        if state is not None:
            query = query.filter_by(state=state)
        with self._database.reading() as session:
            return tuple(_record(row) for row in session.scalars(query))

    def is_at_work(self, priority: int) -> bool:
        """Return whether a job of a priority waits or runs."""
        query = (
            select(JobRow.id)
            .where(JobRow.state.in_((JobState.QUEUED, JobState.RUNNING)))
            .where(JobRow.priority == priority)
            .limit(1)
        )
        with self._database.reading() as session:
            return session.scalar(query) is not None

    def failed(self, priority: int) -> tuple[JobRecord, ...]:
        """Return the jobs of a priority that failed or were cancelled."""
        query = (
            select(JobRow)
            .where(JobRow.state.in_((JobState.FAILED, JobState.CANCELLED)))
            .where(JobRow.priority == priority)
        )
        with self._database.reading() as session:
            return tuple(_record(row) for row in session.scalars(query))

    def counts(self) -> dict[str, int]:
        """Return how many jobs are in each state, states without jobs included."""
        query = select(JobRow.state, func.count()).group_by(JobRow.state)
        with self._database.reading() as session:
            found = {str(state): int(n) for state, n in session.execute(query)}
        return {state.value: found.get(state.value, 0) for state in JobState}

    def is_asked_again(self, job: JobRecord) -> bool:
        """Return whether another job waits or runs that does the same."""
        at_work = (JobState.QUEUED, JobState.RUNNING)
        query = select(JobRow).where(JobRow.state.in_(at_work), JobRow.id != job.id)
        with self._database.reading() as session:
            return any(row.request == job.request for row in session.scalars(query))

    def is_more_urgent_waiting(self, priority: int) -> bool:
        """Return whether a job of a smaller priority number waits that is not a short one."""
        query = select(JobRow).where(JobRow.state == JobState.QUEUED, JobRow.priority < priority)
        with self._database.reading() as session:
            return any(row.request.kind not in SHORT_KINDS for row in session.scalars(query))

    def claim(
        self, *, most_priority: int | None = None, short: bool | None = None
    ) -> JobRecord | None:
        """Begin the oldest queued job of those with the least priority number; None: no job.

        Parameters
        ----------
        most_priority
            Those with a greater number are left; None: none are.
        short
            Of `SHORT_KINDS` alone, or of others alone; None: of all.
        """
        query = select(JobRow).filter_by(state=JobState.QUEUED).order_by(JobRow.priority, JobRow.id)
        if most_priority is not None:
            query = query.where(JobRow.priority <= most_priority)
        with self._database.writing() as session:
            for row in session.scalars(query):
                if short is None or (row.request.kind in SHORT_KINDS) == short:
                    row.state = JobState.RUNNING
                    row.attempts += 1
                    row.progress = 0.0
                    row.error = ""
                    row.started_ns = time.time_ns()
                    return _record(row)
        return None

    def report(self, job_id: int, progress: float) -> bool:
        """Note how far a running job is; return False where it shall stop."""
        with self._database.writing() as session:
            row = _row(session, job_id)
            row.progress = min(max(progress, 0.0), 1.0)
            return not row.cancel_requested

    def is_cancel_requested(self, job_id: int) -> bool:
        """Return whether a job that runs is to stop."""
        with self._database.reading() as session:
            return _row(session, job_id).cancel_requested

    def finish(self, job_id: int, result: dict[str, JsonValue]) -> None:
        """End a job that did its work."""
        self._end(job_id, JobState.DONE, "", result)

    def fail(self, job_id: int, error: SdsError | str) -> None:
        """End a job that could not do its work."""
        text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        self._end(job_id, JobState.FAILED, text, None)

    def stop(self, job_id: int, reason: str = "cancelled while it ran") -> None:
        """End a running job that has stopped, after a request to cancel it or for a reason."""
        self._end(job_id, JobState.CANCELLED, reason, None)

    def put_back(self, job_id: int, reason: str) -> JobRecord:
        """Let a running job that has stopped wait again; this attempt does not count.

        One with a request to cancel it is cancelled.
        """
        with self._database.writing() as session:
            row = _row(session, job_id)
            if row.cancel_requested:
                row.state = JobState.CANCELLED
                row.error = "cancelled while it ran"
                row.finished_ns = time.time_ns()
            else:
                row.state = JobState.QUEUED
                row.error = reason
                row.attempts -= 1
            return _record(row)

    def _end(
        self, job_id: int, state: JobState, error: str, result: dict[str, JsonValue] | None
    ) -> None:
        with self._database.writing() as session:
            row = _row(session, job_id)
            row.state = state
            row.error = error
            row.result = result
            row.finished_ns = time.time_ns()
            if state is JobState.DONE:
                row.progress = 1.0

    def cancel(self, job_id: int) -> JobRecord:
        """Cancel a job: at once where it waits, at its next step where it runs."""
        with self._database.writing() as session:
            row = _row(session, job_id)
            if row.state == JobState.QUEUED:
                row.state = JobState.CANCELLED
                row.error = "cancelled before it ran"
                row.finished_ns = time.time_ns()
            elif row.state == JobState.RUNNING:
                row.cancel_requested = True
            return _record(row)

    def requeue_interrupted(
        self, max_attempts: int, *, short: bool | None = None
    ) -> tuple[JobRecord, ...]:
        """Put jobs that a dead server left running back into the queue; `short`: as of `claim`.

        Jobs that were begun `max_attempts` times fail instead: what they do may be what kills the
        server. Those with a request to cancel are cancelled.
        """
        with self._database.writing() as session:
            running = session.scalars(select(JobRow).filter_by(state=JobState.RUNNING)).all()
            rows = [row for row in running if short in {None, row.request.kind in SHORT_KINDS}]
            for row in rows:
                if row.cancel_requested:
                    row.state = JobState.CANCELLED
                    row.error = "cancelled; the server ended before the job did"
                    row.finished_ns = time.time_ns()
                elif row.attempts >= max_attempts:
                    row.state = JobState.FAILED
                    row.error = (
                        f"the server ended {row.attempts} times while this job ran; "
                        "look for the cause in its log, then submit the job again"
                    )
                    row.finished_ns = time.time_ns()
                else:
                    row.state = JobState.QUEUED
                    row.error = "the server ended while this job ran; it runs again"
            return tuple(_record(row) for row in rows)


def _row(session: Session, job_id: int) -> JobRow:
    row = session.get(JobRow, job_id)
    if row is None:
        message = f"there is no job {job_id}; GET /api/v1/jobs lists those there are"
        raise NotFoundError(message)
    return row


def _record(row: JobRow) -> JobRecord:
    from sds.catalog.requests import JobRecord  # noqa: PLC0415  (what jobs do)

    return record_of(JobRecord, row)
