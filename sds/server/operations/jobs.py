"""The server's background: threads that run jobs, look into the spool, verify and evaluate.

Work is done outside the catalog's transactions, and each step of it leaves the catalog in a state
from which a start goes on. So the threads may be cut off at any point, by SIGTERM or kill -9.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sqlalchemy.exc import OperationalError

from sds.catalog.records import JobState, as_json
from sds.errors import BusyError, InsufficientSpaceError, RequestTimeoutError, SdsError
from sds.extras import missing_extra
from sds.server.child import run_in_child
from sds.server.operations.evaluation.modes import is_within
from sds.server.operations.evaluation.tried_layouts import OF_PEOPLE
from sds.server.operations.process_pool import run_operation
from sds.server.operations.stages import CutOffError
from sds.text import DAY_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from sds.catalog.requests import JobRecord
    from sds.server.operations.advice_reports import Advice
    from sds.server.operations.service import Service
    from sds.server.operations.stages import Result, Runner

log = logging.getLogger(__name__)

_REPORT_EVERY_S = 0.25
_CANCEL_POLL_S = 1.0
_CANCEL_LOOKS = 5  # in which a stage may come to its next step and clean up by itself
_SHARE_OF_COPY = 0.5  # of the progress of a build; the rest is to verify it
_SOURCES_AT_ONCE = 16  # that are looked at after each look into the spool
_RETRY_S = 1.0
_EVALUATION_LIMIT_S = 600.0
_PATIENCE = 3  # intervals until what was put off is evaluated again
_TRIED_AGAIN_S = 60.0  # what could not be looked at


class JobCancelledError(Exception):
    """Raised through a job that a user cancelled."""


class _MakeWayError(CutOffError):
    """Raised through a job that goes on later from what is on disk."""


_here = threading.local()
"""Thread-local `check` of the worker's job, called while a stage runs in another process."""


def child_runner(stop: threading.Event) -> Runner:
    """Return a runner that gives each stage a process of its own.

    It is ended when `stop` is set, or when the job of this thread is cancelled and the stage does
    not come to its next step in time, as on a file system that hangs.
    """

    def poll() -> None:
        if stop.is_set():
            raise CutOffError
        check: Callable[[], None] | None = getattr(_here, "check", None)
        if check is not None:
            check()

    def run(
        work: Callable[..., Result], *args: object, callbacks: Mapping[str, Callable[..., None]]
    ) -> Result:
        return run_in_child(work, *args, callbacks=callbacks, poll=poll)

    return run


class Background:
    """The threads of one server.

    Parameters
    ----------
    service
        Its runner must be a :func:`child_runner` of the same event.
    stop
        Set to end all threads.
    """

    def __init__(self, service: Service, stop: threading.Event) -> None:
        self._service = service
        self._stop = stop
        self._threads = [
            threading.Thread(target=self._guard, args=(work,), name=f"sds-{name}", daemon=True)
            for name, work in (
                ("jobs", self._run_jobs),
                ("short-jobs", self._run_short_jobs),
                ("ingest", self._watch_spool),
                ("verify", self._verify_replicas),
                ("evaluate", self._evaluate),
            )
        ]

    @property
    def alive(self) -> bool:
        """True while all threads do their work."""
        return all(thread.is_alive() for thread in self._threads)

    def start(self) -> None:
        """Start all threads."""
        for thread in self._threads:
            thread.start()

    def end(self, timeout_s: float) -> None:
        """Stop all threads and wait for them."""
        self._stop.set()
        for submitted in self._service.queue.submitted.values():
            submitted.set()
        for thread in self._threads:
            thread.join(timeout_s)

    def _guard(self, work: Callable[[], None]) -> None:
        name = threading.current_thread().name
        while not self._stop.is_set():
            try:
                work()
            except (OperationalError, InsufficientSpaceError, BusyError) as error:
                # A full disk under the catalog: the next round may find it mended.
                reason = error.orig if isinstance(error, OperationalError) else error
                log.warning("%s: the catalog cannot be written, tried again: %s", name, reason)
                self._stop.wait(timeout=_RETRY_S)
            except CutOffError:  # the server ends
                return
            except Exception:
                # /healthz tells that the thread is gone; the log, why.
                log.exception("background thread %s ended", name)
                raise

    def _run_jobs(self) -> None:
        self._work(short=False)

    def _run_short_jobs(self) -> None:
        self._work(short=True)

    def _work(self, *, short: bool) -> None:
        """Run jobs of one of the two kinds, one after the other."""
        # This is the only worker of these: what runs now was cut off.
        queue = self._service.queue
        queue.requeue_interrupted(self._service.settings.job_attempts, short=short)
        while not self._stop.is_set():
            most_priority = None if self._may_build() else OF_PEOPLE
            job = queue.claim(most_priority=most_priority, short=short)
            if job is None:
                queue.submitted[short].wait(timeout=1.0)
                queue.submitted[short].clear()
            else:
                self._run(job)

    def _run(self, job: JobRecord) -> None:
        queue = self._service.queue
        log.info("job %s %s begins, attempt %s", job.id, job.request.kind, job.attempts)
        _here.share = 0.0
        _here.check = self._check(job)
        try:
            if objection := self._service.objection_to(job):
                log.info("job %s is not done: %s", job.id, objection)
                queue.stop(job.id, objection)
                self._service.abandon(queue.job(job.id))
                return
            done = self._service.perform(job.request, self._reporter(job.id))
        except _MakeWayError as reason:
            log.info("job %s waits again: %s", job.id, reason)
            if (after := queue.put_back(job.id, str(reason))).state is JobState.CANCELLED:
                self._service.abandon(after)
        except CutOffError:
            log.info("job %s is cut off; it runs again at the next start", job.id)
        except JobCancelledError:
            queue.stop(job.id)
        except Exception as error:
            explained = missing_extra(error) or error
            if isinstance(explained, SdsError):
                log.warning("job %s failed: %s", job.id, explained)
                queue.fail(job.id, explained)
            else:
                log.exception("job %s failed", job.id)
                queue.fail(job.id, f"unexpected {type(error).__name__}; see the server's log")
        else:
            queue.finish(job.id, as_json(done))
            log.info("job %s done", job.id)
        finally:
            _here.check = None

    def _may_build(self) -> bool:
        return is_within(self._service.settings.build_hours)

    def _check(self, job: JobRecord) -> Callable[[], None]:
        """Return a check that raises an error where a job is to stop.

        JobCancelledError some time after it was cancelled; _MakeWayError where it is the
        evaluator's, and one of people waits, or its hours have ended and it has not come to verify
        what it wrote: that begins anew each time.
        """
        queue = self._service.queue
        next_look_s = time.monotonic() + _CANCEL_POLL_S
        looks_left = _CANCEL_LOOKS

        def check() -> None:
            nonlocal next_look_s, looks_left
            if time.monotonic() < next_look_s:
                return
            next_look_s = time.monotonic() + _CANCEL_POLL_S
            if queue.is_cancel_requested(job.id):
                looks_left -= 1
                if looks_left == 0:
                    raise JobCancelledError
            elif queue.is_more_urgent_waiting(job.priority):
                raise _MakeWayError("a more urgent job came first; it goes on from where it was")
            elif (
                job.priority > OF_PEOPLE and _here.share < _SHARE_OF_COPY and not self._may_build()
            ):
                raise _MakeWayError("its hours have ended (build_hours); it goes on in the next")

        return check

    def _reporter(self, job_id: int) -> Callable[[float, str], None]:
        """Return a progress callback that stores now and then, and stops what was cancelled."""
        last_s = -_REPORT_EVERY_S

        def report(share: float, what: str) -> None:  # noqa: ARG001
            nonlocal last_s
            now_s = time.monotonic()
            _here.share = share
            if now_s - last_s >= _REPORT_EVERY_S:
                last_s = now_s
                if not self._service.queue.report(job_id, share):
                    raise JobCancelledError

        return report

    def _watch_spool(self) -> None:
        service = self._service
        next_refit_s = time.monotonic() + service.settings.refit_interval_s
        unreachable: set[str] = set()
        next_try_s = 0.0
        while not self._stop.wait(timeout=service.settings.ingest_interval_s):
            with _log_failure("ingest failed, tried again in a moment"):
                service.ingest(every_file=False)
                service.collect_garbage(_SOURCES_AT_ONCE)
                if time.monotonic() >= next_try_s:
                    next_try_s = time.monotonic() + _TRIED_AGAIN_S
                    unreachable.clear()
                while not self._stop.is_set() and service.catch_up(unreachable):
                    pass
            if time.monotonic() >= next_refit_s:
                next_refit_s = time.monotonic() + service.settings.refit_interval_s
                with _log_failure("refit failed, tried again after refit_interval_s"):
                    service.refit()

    def _evaluate(self) -> None:
        service = self._service
        interval_s = service.settings.evaluate_interval_s
        next_s = time.monotonic()
        due_s = next_s + DAY_S  # what is idle goes, whether anything happens or not
        stated_ns = 0
        while not self._stop.wait(timeout=service.settings.ingest_interval_s):
            now_s = time.monotonic()
            if now_s < next_s:
                continue
            newest_ns = service.newest_statement_ns()  # of another process, which sets no event
            if now_s < due_s and newest_ns == stated_ns and not service.to_evaluate.is_set():
                continue
            due_s = now_s + DAY_S
            stated_ns = newest_ns
            service.to_evaluate.clear()
            is_final = False
            try:
                with _log_failure("what was read is not evaluated now"):
                    found = service.evaluate(self._advise_in_child)
                    is_final = found is None or found.is_final
            finally:
                if not is_final:
                    service.to_evaluate.set()
            next_s = time.monotonic() + interval_s * (1 if is_final else _PATIENCE)

    def _advise_in_child(self, **given: str | Mapping[tuple[str, str], int]) -> Advice:
        service = self._service
        until_s = time.monotonic() + _EVALUATION_LIMIT_S

        def poll() -> None:
            if self._stop.is_set():
                raise CutOffError
            if time.monotonic() >= until_s:
                message = f"no advice within {_EVALUATION_LIMIT_S:g} s: a file may not answer"
                raise RequestTimeoutError(message)

        home, settings = service.home.root, service.settings
        return run_in_child(  # type: ignore[no-any-return]
            run_operation, home, settings, "advise_all", given, callbacks={}, poll=poll
        )

    def _verify_replicas(self) -> None:
        service = self._service
        while not self._stop.wait(timeout=service.settings.ingest_interval_s):
            with _log_failure("replicas are not verified now, but in a moment"):
                while not self._stop.is_set() and service.verify_due():
                    pass


@contextmanager
def _log_failure(failed: str) -> Iterator[None]:
    """Log the failure of a round: a full disk or a missing extra may be mended by the next."""
    try:
        yield
    except (SdsError, OSError, ModuleNotFoundError) as error:
        explained = missing_extra(error) or error
        if isinstance(explained, ModuleNotFoundError):
            raise
        log.warning("%s: %s", failed, explained)
