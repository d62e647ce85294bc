"""The state of a home in one value."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import sds
from sds.catalog.records import ReplicaState
from sds.server.lock import read_address
from sds.server.reports import Status
from sds.server.spool import spool_paths

if TYPE_CHECKING:
    from sds.catalog.queue import JobQueue
    from sds.catalog.store import Store
    from sds.home import Home


def status_of(home: Home, store: Store, queue: JobQueue) -> Status:
    """Return the state of a home as its catalog and its files tell it."""
    address = read_address(home)
    if address is not None and address.pid != os.getpid():
        # Left by a server that was killed: one that lives is asked itself.
        address = None
    datasets = store.datasets()
    replicas = store.replicas()
    counted = {(record.name, record.inode): record for record in store.spool_files()}
    pending = 0
    waiting = spool_paths(home)
    for path, found in waiting:
        record = counted.get((path.name, found.inode))
        pending += found.size_bytes - (0 if record is None else record.settled_bytes)
    return Status(
        version=sds.__version__,
        home=str(home.root),
        database=store.engine.url.render_as_string(),
        server=None if address is None else address.url,
        server_pid=None if address is None else address.pid,
        enabled=not home.disabled.exists(),
        spool_files=len(waiting),
        spool_pending_bytes=pending,
        datasets=len(datasets),
        reads=sum(record.n_reads for record in datasets),
        elapsed_s=sum(record.elapsed_s for record in datasets),
        time_lost_s=sum(record.time_lost_s for record in datasets),
        replicas={
            state.value: sum(record.state is state for record in replicas) for state in ReplicaState
        },
        replica_bytes=sum(
            record.size_bytes if record.stored_bytes is None else record.stored_bytes
            for record in replicas
        ),
        tiles=sum(len(record.segments.tiles) for record in replicas if record.segments),
        jobs=queue.counts(),
        calibrated=tuple(record.mount_point for record in store.calibrations()),
        problems=(
            *(f"{record.name}: {record.problem}" for record in counted.values() if record.problem),
            *(
                f"replica {record.id} of {record.file}:{record.dataset} is damaged: {record.reason}"
                for record in store.replicas(states=frozenset({ReplicaState.DAMAGED}))
            ),
        ),
    )
