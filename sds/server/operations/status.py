"""The state of a home in one value."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import sds
from sds.catalog.records import ReplicaState
from sds.redirect.launch.untraced import untraced_sentences
from sds.server.lock import read_address
from sds.server.operations.evaluation.kept_advice import kept_advice
from sds.server.operations.reports import Status

if TYPE_CHECKING:
    from sds.catalog.job_queue import JobQueue
    from sds.catalog.store import Store
    from sds.home import Home
    from sds.server.operations.spool import Spool
    from sds.server.settings import Settings

_PROBLEMS = 100


def status_of(
    home: Home, store: Store, queue: JobQueue, spool: Spool, settings: Settings
) -> Status:
    """Return the state of a home as its catalog and its files tell it.

    What there is of everything comes from sums, so that it takes no longer in a large home.
    """
    address = read_address(home)
    if address is not None and address.pid != os.getpid():
        # Left by a server that was killed: a live one answers for itself.
        address = None
    totals = store.read_totals()
    replicas = store.replica_counts()
    n_spool_files, pending_bytes = spool.pending()
    return Status(
        version=sds.__version__,
        home=str(home.root),
        database=store.engine.url.render_as_string(),
        server=None if address is None else address.shown,
        server_pid=None if address is None else address.pid,
        enabled=not home.disabled.exists(),
        spool_files=n_spool_files,
        spool_pending_bytes=pending_bytes,
        datasets=totals.n_datasets,
        reads=totals.n_reads,
        elapsed_s=totals.elapsed_s,
        time_lost_s=totals.time_lost_s,
        replicas=replicas.by_state,
        replica_bytes=replicas.stored_bytes,
        tiles=replicas.tiles,
        jobs=queue.counts(),
        mode=settings.mode,
        advice=kept_advice(store),
        calibrated=store.calibrated_mount_points(),
        problems=(
            *store.spool_problems(_PROBLEMS),
            *untraced_sentences(home.spool),
            *(
                f"replica {record.id} of {record.file}:{record.dataset} is damaged: {record.reason}"
                for record in store.replicas(
                    states=frozenset({ReplicaState.DAMAGED}), limit=_PROBLEMS
                )
            ),
        ),
    )
