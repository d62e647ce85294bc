"""Files whose reads are redirected: real replicas, and tables that say what the test wants."""

import dataclasses
import os

from sds.geometry import LOCAL_DISK_RAID, LOCAL_DISK_STRIPES
from sds.organizer import plan_reorganization, reorganize
from sds.organizer.publish import build_table
from sds.recommender import models_for_table
from sds.redirect.tables import publish_table
from sds.trace import read_spool


def settle(path):
    """Date a file back, so that its identity counts at once."""
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns - 10**10))


def with_models(table, *, original_s, replica_s):
    """Return the table with predictions that are the same for every read."""

    def constant(seconds):
        return dataclasses.replace(
            table.datasets[0].model, coefficients=(0.0, 0.0, 0.0), floor_s=seconds
        )

    return dataclasses.replace(
        table,
        datasets=tuple(
            dataclasses.replace(
                dataset,
                model=constant(original_s),
                candidates=tuple(
                    dataclasses.replace(candidate, model=constant(replica_s))
                    for candidate in dataset.candidates
                ),
            )
            for dataset in table.datasets
        ),
    )


def redirect(source, orders, home, *, always=True):
    """Build a replica per (dataset path, order), publish them, and return the table.

    always
        Let every read be predicted cheaper from the replica.
    """
    replicas = [
        (number, reorganize(plan_reorganization(source, path, order=order, home=home), home=home))
        for number, (path, order) in enumerate(orders, start=1)
    ]
    table = build_table(
        source,
        replicas,
        models=models_for_table(None),
        stripes=LOCAL_DISK_STRIPES,
        raid=LOCAL_DISK_RAID,
    )
    if always:
        table = with_models(table, original_s=1.0, replica_s=0.0)
    publish_table(home, table)
    return table


def reads_by_replica(home):
    """Return how many reads each replica served, 0 standing for the originals."""
    served = {}
    for path in home.spool.iterdir():
        records = read_spool(path).records
        for replica, n in zip(records.served_by.tolist(), records.n_reads.tolist(), strict=True):
            served[replica] = served.get(replica, 0) + n
    return served
