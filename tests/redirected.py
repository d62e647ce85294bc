"""Files whose reads are redirected: real replicas, and tables that say what the test wants."""

import dataclasses
import os

import h5py

from sds.dataset import describe_open_dataset
from sds.geometry import LOCAL_DISK_RAID, LOCAL_DISK_STRIPES
from sds.identity import identity_of
from sds.organizer import plan_reorganization, reorganize
from sds.recommender import models_for_table
from sds.redirect.tables import (
    RedirectTable,
    TableCandidate,
    TableDataset,
    TableModel,
    publish_table,
)
from sds.redirect.type_digest import type_crc32c
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


def table_of(source, replicas):
    """Return the table of a source with these (number, replica)s, under the built-in models."""

    def stored(model):
        return TableModel(
            kind=model.kind.code,
            gap=model.gap.code,
            calibrated=model.calibrated,
            coefficients=model.coefficients,
            floor_s=model.floor_s,
        )

    layout = {"stripes": LOCAL_DISK_STRIPES, "raid": LOCAL_DISK_RAID}
    original, from_replica = map(stored, models_for_table(None))
    datasets = []
    with h5py.File(source) as handle:
        for path in dict.fromkeys(replica.dataset_path for _, replica in replicas):
            found = handle[path]
            described = describe_open_dataset(found, source)
            file_type = found.id.get_type()
            candidates = tuple(
                TableCandidate(
                    replica_id=number,
                    path=replica.path,
                    identity=replica.identity,
                    data_offset_bytes=replica.data_offset_bytes,
                    metadata_crc32c=replica.metadata_crc32c,
                    order=replica.order,
                    model=from_replica,
                    **layout,
                )
                for number, replica in replicas
                if replica.dataset_path == path
            )
            datasets.append(
                TableDataset(
                    path=path,
                    extent=described.extent,
                    element_size_bytes=described.element_size_bytes,
                    type_crc32c=type_crc32c(file_type),
                    type_class=int(file_type.get_class()),
                    data_offset_bytes=described.data_offset_bytes,
                    model=original,
                    candidates=candidates,
                    chunk_shape=described.chunk_shape,
                    stored_bytes=described.stored_bytes if described.chunk_shape else 0,
                    **layout,
                )
            )
    return RedirectTable(
        source_path=source, source_identity=identity_of(source), datasets=tuple(datasets)
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
    table = table_of(source, replicas)
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
