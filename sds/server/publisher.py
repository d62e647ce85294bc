"""Keeps redirect tables and lists of sorted replicas equal to the catalog.

What is active is served, nothing else is.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sds.catalog.records import ReplicaState
from sds.chunks import decode_seconds_per_byte
from sds.engine import MeasuredFileSystem, publish_measured
from sds.errors import FormatError, NotFoundError, PermissionDeniedError, UnsupportedError
from sds.identity import identity_of, source_identity, trusted_directories
from sds.redirect.sorted_replicas import (
    SortedReplica,
    SortedReplicas,
    publish_sorted,
    sorted_path,
    withdraw_sorted,
)
from sds.redirect.tables import (
    RedirectTable,
    TableCandidate,
    TableDataset,
    TableModel,
    publish_table,
    table_path,
    withdraw_table,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sds.catalog.records import ReplicaRecord
    from sds.catalog.store import Store
    from sds.home import Home
    from sds.identity import FileIdentity
    from sds.organizer import Replica
    from sds.organizer.layout import SortOrder
    from sds.recommender import CostModel
    from sds.server.models import Models

log = logging.getLogger(__name__)

_ACTIVE = frozenset({ReplicaState.ACTIVE})


class Publisher:
    """Writes and withdraws the tables of one home.

    A table is a function of the catalog and of the files, so that publishing again after a crash
    repairs whatever the crash left.
    """

    def __init__(self, home: Home, store: Store, models: Models) -> None:
        self._home = home
        self._store = store
        self._models = models
        # What is read from the catalog must be what is published last.
        self._one_at_a_time = threading.Lock()

    def publish(self, file: str) -> bool:
        """Make the table of one source say what the catalog says.

        Returns
        -------
        Whether the source has a table now.
        """
        with self._one_at_a_time:
            by_dataset = defaultdict(list)
            of_tables = []
            identity = current_source(self._home, file)
            for record in self._store.replicas(file, states=_ACTIVE):
                state, reason = _obstacle(record, identity)
                if state is not None:
                    self._store.set_replica(record.id, state, reason)
                elif record.replica is None or record.source_identity != identity:
                    continue
                elif record.replica.sort is not None:
                    of_tables.append(_sorted_replica(record.replica, record.replica.sort))
                else:
                    by_dataset[record.dataset].append((record.id, record.replica))
            try:
                self._publish_list(file, identity, of_tables)
            finally:  # a list that finds no room keeps no table from being right
                has_table = self._publish_table(file, identity, by_dataset)
            return has_table

    def _publish_list(
        self, file: str, identity: FileIdentity | None, of_tables: Sequence[SortedReplica]
    ) -> None:
        """Put the list of sorted replicas of one source in place, or remove it."""
        if identity is None:
            withdraw_sorted(self._home, file)
            return
        listed = SortedReplicas(
            source_path=Path(file), source_identity=identity, replicas=tuple(of_tables)
        )
        try:
            publish_sorted(self._home, listed)
        except (OSError, PermissionDeniedError):
            # The old list may name what must not answer any more.
            withdraw_sorted(self._home, file)
            raise

    def _publish_table(
        self,
        file: str,
        identity: FileIdentity | None,
        by_dataset: Mapping[str, list[tuple[int, Replica]]],
    ) -> bool:
        """Put the table of one source in place, or remove it; return whether there is one now."""
        if not by_dataset or identity is None:
            withdraw_table(self._home, file)
            return False
        offsets = {d.path: d.data_offset_bytes for d in self._store.datasets(file)}
        table = RedirectTable(
            source_path=Path(file),
            source_identity=identity,
            datasets=tuple(
                self._dataset(file, offsets[path], replicas)
                for path, replicas in sorted(by_dataset.items())
            ),
        )
        publish_table(self._home, table)
        return True

    def publish_all(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Make every table say what the catalog says.

        Returns
        -------
        The sources that have a table now, and the tables that were removed because no active
        replica stands behind them.
        """
        files = sorted({record.file for record in self._store.replicas(states=_ACTIVE)})
        published = tuple(file for file in files if self.publish(file))
        expected = {table_path(self._home, file).name for file in published}
        lists = {sorted_path(self._home, file) for file in files}
        for path in set(self._home.sorted.glob("*")) - lists:
            path.unlink(missing_ok=True)
        withdrawn = []
        for path in sorted(self._home.tables.iterdir()):
            if path.name not in expected:
                path.unlink(missing_ok=True)
                withdrawn.append(path.name)
        return published, tuple(withdrawn)

    def publish_measured(self) -> None:
        """Make what programs find about file systems say what the catalog says.

        Of several calibrations of one mount point, as on several hosts, the newest.
        """
        with self._one_at_a_time:
            publish_measured(
                self._home,
                [
                    MeasuredFileSystem(
                        mount_point=record.mount_point,
                        kind=record.calibration.engine.kind,
                        parameters=record.calibration.engine.parameters,
                    )
                    for record in self._store.calibrations()
                    if record.calibration.engine is not None
                ],
            )

    def _dataset(
        self, file: str, data_offset_bytes: int | None, replicas: list[tuple[int, Replica]]
    ) -> TableDataset:
        """Return the entry of one dataset with its replicas."""
        _, first = replicas[0]
        crc32c, type_class = _stored_type(first)
        chunk_shape, stored_bytes, decode_s_per_byte = _chunks_of(
            file, [replica for _, replica in replicas]
        )
        return TableDataset(
            path=first.dataset_path,
            extent=first.extent,
            element_size_bytes=first.element_size_bytes,
            type_crc32c=crc32c,
            type_class=type_class,
            data_offset_bytes=data_offset_bytes,
            stripes=self._models.stripes_of(file),
            raid=self._models.raid,
            model=_table_model(self._models.for_table(file, first.path)[0]),
            candidates=tuple(
                self._candidate(file, replica_id, replica) for replica_id, replica in replicas
            ),
            chunk_shape=chunk_shape,
            stored_bytes=stored_bytes,
            decode_s_per_byte=decode_s_per_byte,
        )

    def _candidate(self, file: str, replica_id: int, replica: Replica) -> TableCandidate:
        chunked = replica.chunk_shape is not None
        _, model = self._models.for_table(file, replica.path, chunked=chunked)
        return TableCandidate(
            replica_id=replica_id,
            path=replica.path,
            identity=replica.identity,
            data_offset_bytes=replica.data_offset_bytes,
            metadata_crc32c=replica.metadata_crc32c,
            order=replica.order,
            stripes=self._models.stripes_of(replica.path),
            raid=self._models.raid,
            model=_table_model(model),
            chunk_shape=replica.chunk_shape,
            stored_bytes=replica.stored_bytes if chunked else 0,
            decode_s_per_byte=replica.decode_s_per_byte,
            region=replica.region,
            segments=replica.segments,
        )


def _obstacle(
    record: ReplicaRecord, source: FileIdentity | None
) -> tuple[ReplicaState | None, str]:
    """Return the state, and its reason, of a replica that may not serve; (None, "") if it may."""
    state: ReplicaState | None = None
    reason = outdated(record, source)
    now = current_identity(record.path)
    if reason:
        state = ReplicaState.RETIRED
    elif now is None or record.replica is None:
        state, reason = ReplicaState.RETIRED, f"its file {record.path} is gone"
    elif changed := record.replica.identity.difference(now):
        state, reason = ReplicaState.DAMAGED, f"its file {record.path} was changed ({changed})"
    elif record.sort is None:
        try:
            _stored_type(record.replica)
        except UnsupportedError as error:
            state, reason = ReplicaState.VERIFIED, f"programs are not redirected to it: {error}"
        except FormatError as error:
            state, reason = ReplicaState.DAMAGED, str(error)
    return state, reason


def _sorted_replica(replica: Replica, sort: SortOrder) -> SortedReplica:
    return SortedReplica(
        path=replica.path,
        identity=replica.identity,
        table=replica.dataset_path,
        key=sort.key,
        columns=sort.columns,
    )


def _stored_type(replica: Replica) -> tuple[int, int]:
    """Return checksum and class of a replica's stored type, which is its source's.

    Raises
    ------
    UnsupportedError
        If datasets of the type are never redirected.
    FormatError
        If the replica cannot be read.
    """
    import h5py  # noqa: PLC0415  (listing replicas needs no HDF5)

    from sds.redirect.type_digest import type_crc32c  # noqa: PLC0415

    try:
        with h5py.File(replica.path, "r", locking=False) as handle:
            stored = handle[replica.dataset_path].id.get_type()
            return type_crc32c(stored), int(stored.get_class())
    except (OSError, KeyError) as error:
        message = f"its file {replica.path} cannot be read: {error}"
        raise FormatError(message) from error


def _chunks_of(file: str, replicas: Sequence[Replica]) -> tuple[tuple[int, ...] | None, int, float]:
    """Return chunk shape, stored bytes and decoding time of an original; (None, 0, 0) without.

    Its replicas know them. The original itself is asked where all are of the first format; where it
    cannot be read here, nothing is known of what a read costs, and its reads are not redirected.
    """
    import h5py  # noqa: PLC0415

    for replica in replicas:
        if replica.source_chunk_shape is not None:
            return (
                replica.source_chunk_shape,
                replica.source_stored_bytes,
                replica.source_decode_s_per_byte,
            )
    path = replicas[0].dataset_path
    try:
        with h5py.File(file, "r", locking=False) as handle:
            dataset = handle[path]
            if dataset.chunks is None:
                return None, 0, 0.0
            return (
                tuple(int(n) for n in dataset.chunks),
                int(dataset.id.get_storage_size()),
                decode_seconds_per_byte(dataset),
            )
    except (OSError, KeyError, UnsupportedError) as error:
        log.warning("reads of %s:%s are not redirected: %s", file, path, error)
        return None, 0, 0.0


def _table_model(model: CostModel) -> TableModel:
    return TableModel(
        kind=model.kind.code,
        gap=model.gap.code,
        calibrated=model.calibrated,
        coefficients=model.coefficients,
        floor_s=model.floor_s,
    )


def current_identity(file: str) -> FileIdentity | None:
    """Return a file's identity; None where it cannot be reached."""
    try:
        return identity_of(file)
    except (NotFoundError, PermissionDeniedError):
        return None


def current_source(home: Home, file: str) -> FileIdentity | None:
    """Return the identity of a source with its instance; None where it cannot be reached."""
    try:
        return source_identity(file, trusted=trusted_directories(home))
    except (NotFoundError, PermissionDeniedError):
        return None


def outdated(record: ReplicaRecord, now: FileIdentity | None) -> str:
    """Return why a replica can never serve its source again; empty where it can."""
    if now is None:
        return f"its source {record.file} is gone"
    if touched(record, now):
        return ""
    changed = record.source_identity.difference(now)
    return f"its source {record.file} changed ({changed})" if changed else ""


def touched(record: ReplicaRecord, now: FileIdentity | None) -> bool:
    """Return whether nothing but the ctime of a source changed, or the instance of its file system.

    A chmod, a rename, or a trick; a restart of the machine, or another image in the same place. The
    replica does not serve until every byte is compared again.
    """
    before = record.source_identity
    return now is not None and before != now == replace(
        before, ctime_ns=now.ctime_ns, instance=now.instance
    )
