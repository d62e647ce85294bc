"""Components of a service, which do its work."""

from __future__ import annotations

import threading
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from sds.catalog.job_queue import JobQueue
from sds.server.lock import HomeLock
from sds.server.operations.spool import Spool
from sds.server.operations.stages import run_here

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sds.catalog.replica_records import ReplicaRecord
    from sds.catalog.store import Store
    from sds.home import Home
    from sds.plots.figure_values import FigureData
    from sds.server.operations.advice import Adviser
    from sds.server.operations.builder import Builder
    from sds.server.operations.evaluation.evaluator import Evaluator
    from sds.server.operations.evaluation.shadow_review import ShadowReviewer
    from sds.server.operations.file_system_models import Models
    from sds.server.operations.ingest import Ingester
    from sds.server.operations.publisher import Publisher
    from sds.server.operations.recovery import Recovery
    from sds.server.operations.stages import Runner
    from sds.server.operations.verification import Verifier
    from sds.server.settings import Settings


_MOST_FIGURES = 64  # of a few models and cache states of each kind


class ServiceComponents:
    """Components of a service on one home, each made when it is first needed: they import much.

    Parameters
    ----------
    home, settings, store
        What to work on; see :meth:`sds.server.operations.service.Service.open`.
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
        # Set where there may be something to evaluate, as at the start; the evaluator clears it.
        self.to_evaluate = threading.Event()
        self.to_evaluate.set()
        self._is_review_due = True  # an earlier process may have counted reads, and no more
        self._store = store
        self._run = run

    @cached_property
    def _models(self) -> Models:
        from sds.server.operations.file_system_models import Models  # noqa: PLC0415

        return Models(self._store, self.settings)

    @cached_property
    def _publisher(self) -> Publisher:
        from sds.server.operations.publisher import Publisher  # noqa: PLC0415

        return Publisher(self.home, self._store, self._models)

    @cached_property
    def _builder(self) -> Builder:
        from sds.server.operations.builder import Builder  # noqa: PLC0415

        budget_bytes = self.settings.replica_budget_bytes
        return Builder(self.home, self._store, self._publisher, budget_bytes=budget_bytes)

    @cached_property
    def _figure_data(self) -> Callable[..., FigureData]:
        """`figure_data`, which takes seconds to fit; results are kept by calibration and model."""
        from sds.plots.figure_values import figure_data  # noqa: PLC0415

        return lru_cache(maxsize=_MOST_FIGURES)(figure_data)

    @cached_property
    def _adviser(self) -> Adviser:
        from sds.server.operations.advice import Adviser  # noqa: PLC0415

        return Adviser(self.home, self._store, self._models, self.settings)

    @cached_property
    def _evaluator(self) -> Evaluator:
        from sds.server.operations.evaluation.evaluator import Evaluator  # noqa: PLC0415

        return Evaluator(self._store, self.queue, self.settings, evict=self._evict)

    def _evict(self, reasons: Mapping[int, str]) -> tuple[ReplicaRecord, ...]:
        with self.lock.held():
            return self._builder.evict(reasons)

    @cached_property
    def _spool(self) -> Spool:
        return Spool(self.home, self._store)

    @cached_property
    def _ingester(self) -> Ingester:
        from sds.server.operations.ingest import Ingester  # noqa: PLC0415

        idle_s = self.settings.spool_idle_s
        return Ingester(self._spool, self._store, self._models, idle_s=idle_s)

    @cached_property
    def _shadow_reviewer(self) -> ShadowReviewer:
        from sds.server.operations.evaluation.shadow_review import ShadowReviewer  # noqa: PLC0415

        return ShadowReviewer(self._store, self._publisher, self._builder)

    @cached_property
    def _verifier(self) -> Verifier:
        from sds.server.operations.verification import Verifier  # noqa: PLC0415

        return Verifier(self.home, self._store, self._publisher, self._spool)

    @cached_property
    def _recovery(self) -> Recovery:
        from sds.server.operations.recovery import Recovery  # noqa: PLC0415

        return Recovery(
            self.home,
            self._store,
            self.queue,
            self._publisher,
            builder=self._builder,
            verifier=self._verifier,
            spool=self._spool,
        )
