"""Keeps redirect tables and lists of sorted replicas equal to the catalog.

What is active is served, and a share of the reads of what is in shadow; nothing else is.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import sds
from sds import _native
from sds.analyzer.shadow import SHADOW_PERMILLE
from sds.catalog.publications import WATCHED_STATES, is_pending
from sds.catalog.records import LIVE_STATES, ReplicaState
from sds.engine import MeasuredFileSystem, publish_measured
from sds.errors import (
    FormatError,
    NotFoundError,
    PermissionDeniedError,
    SdsError,
    SdsValueError,
    UnreachableError,
    UnsupportedError,
)
from sds.hdf5.chunk_extents import decode_seconds_per_byte
from sds.hdf5.identity import identity_of, source_identity, trusted_directories
from sds.mounts import look_at
from sds.organizer.replica_file.replica import Replica, describe_replica
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
from sds.redirect.write_permissions import OTHERS_MAY_WRITE, check_trusted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sds.catalog.replica_records import ReplicaRecord
    from sds.catalog.store import Store
    from sds.geometry.replica_layout import SortOrder
    from sds.hdf5.identity import FileIdentity
    from sds.home import Home
    from sds.recommender.models.cost_model import CostModel
    from sds.server.operations.file_system_models import Models

log = logging.getLogger(__name__)

_DIRECTORIES = "published"  # name of the stamp of the directories that are published into
_TABLE, _LIST = "t", "s"  # what there is of a source, behind what it was made by
_AT_ONCE = 16  # sources that are published before others may


class Publisher:
    """Writes and withdraws the tables of one home.

    The catalog says which replicas serve; what a table says of one is read from its file. So
    publishing again after a crash repairs whatever the crash left, and a catalog that is wrong
    about a replica takes it out of service. The catalog also knows what has to be published
    (`sds.catalog.publications`), and the times of the directories tell whether anybody else changed
    what is in them: nothing here goes through all sources unless all changed.
    """

    def __init__(self, home: Home, store: Store, models: Models) -> None:
        self._home = home
        self._store = store
        self._models_now = models
        self._models = models  # while something is published, a snapshot
        # What is read from the catalog must be what is published last.
        self._one_at_a_time = threading.Lock()
        made_by = f"{sds.__version__} {models.table_settings}"
        self._made_by = hashlib.sha256(made_by.encode()).hexdigest()[:16]

    def publish(self, file: str) -> bool:
        """Make the table of one source say what the catalog says.

        Returns
        -------
        Whether the source has a table now.
        """
        return bool(self.publish_each((file,)))

    def publish_each(self, files: Sequence[str]) -> tuple[str, ...]:
        """Make the tables of some sources say what the catalog says; return those that have one."""
        with_table = []
        for i in range(0, len(files), _AT_ONCE):
            with self._one_at_a_time:
                in_order = self._is_in_order()
                self._models = self._models_now.snapshot()
                done = [*self._publish_reachable(files[i : i + _AT_ONCE])]
                # What others changed is found as long as the stamp is not of now.
                stamps = {_DIRECTORIES: self._stamp()} if in_order else {}
                self._store.set_published(done, stamps)
            with_table += [file for file, _, now in done if _TABLE in _kinds(now)]
        return tuple(with_table)

    def _publish_reachable(
        self, files: Sequence[str]
    ) -> Iterator[tuple[str, str | None, str | None]]:
        """Publish sources; yield each with its publication before and after.

        What cannot be looked at now, or has a directory in the place of its table, stays marked.
        """
        trusted = trusted_directories(self._home)
        for file in files:
            try:
                identity = current_source(file, trusted)
            except OSError as error:  # of its disk or server
                log.log(level_of(error), "%s cannot be looked at now: %s", file, error)
                continue
            try:
                yield file, *self._publish(file, identity)
            except UnreachableError as error:
                log.log(level_of(error), "%s is not published now: %s", file, error)
            except IsADirectoryError as error:
                log.warning("%s is not published: %s; remove what is there", file, error)

    def _publish(self, file: str, identity: FileIdentity | None) -> tuple[str | None, str | None]:
        """Publish one source; return its publication before and after."""
        before = self._store.published(file)
        watched = self._store.replicas(file, states=WATCHED_STATES)
        active = [record for record in watched if record.state in LIVE_STATES]
        by_dataset = defaultdict(list)
        of_tables = []
        is_changed = False
        for record in active:
            found = _servable(record, identity)
            if not isinstance(found, Replica):
                state, reason = found
                log.warning("replica %s is %s from now on: %s", record.id, state, reason)
                self._store.set_replica(record.id, state, reason)
                is_changed = True
            elif record.source_identity != identity:
                continue
            elif found.sort is not None:
                of_tables.append(_sorted_replica(found, found.sort))
            else:
                by_dataset[record.dataset].append((record, found))
        if is_changed:
            return self._publish(file, identity)  # the source is marked anew
        try:
            try:
                self._publish_list(file, identity, of_tables)
            finally:  # a list that finds no room keeps no table from being right
                has_table = self._publish_table(file, identity, by_dataset)
        except SdsValueError as error:
            # What no table can hold, as times after 2262, concerns this source alone.
            log.warning("%s", error)
            reason = f"programs are not redirected to it: {error}"
            for record in active:
                self._store.set_replica(record.id, ReplicaState.VERIFIED, reason)
            return self._publish(file, identity)
        if not watched:
            return before, None
        return before, f"{self._made_by}{_TABLE * has_table}{_LIST * bool(of_tables)}"

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
        by_dataset: Mapping[str, list[tuple[ReplicaRecord, Replica]]],
    ) -> bool:
        """Put the table of one source in place, or remove it; return whether there is one now."""
        if not by_dataset or identity is None:
            withdraw_table(self._home, file)
            return False
        offsets = self._store.data_offsets(file)
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

    def publish_marked(self) -> tuple[str, ...]:
        """Publish the sources whose replicas changed since; return those that have a table now."""
        return self.publish_each(self._store.marked_sources())

    def publish_outdated(self, limit: int | None = None) -> tuple[str, ...]:
        """Publish sources whose tables were made by another SDS, settings or calibrations.

        Returns
        -------
        Those, `limit` at most, that have a table now.
        """
        return self.publish_each(self._store.outdated_sources(self._made_by, limit))

    def catch_up(self, limit: int, unreachable: set[str]) -> bool:
        """Publish some of what `publish_outdated` would.

        Parameters
        ----------
        unreachable
            Sources to leave out; those are added that cannot be looked at now, and stay outdated.

        Returns
        -------
        Whether there is more of it.
        """
        found = self._outdated(limit, unreachable)
        self.publish_each(found)
        unreachable |= {*found}.intersection(
            self._store.outdated_sources(self._made_by, limit + len(unreachable))
        )
        return bool(self._outdated(1, unreachable))

    def _outdated(self, limit: int, unreachable: set[str]) -> list[str]:
        found = self._store.outdated_sources(self._made_by, limit + len(unreachable))
        return [file for file in found if file not in unreachable][:limit]

    def tidy(self) -> tuple[str, ...]:
        """Remove published files that the catalog does not know, and publish missing ones again.

        Nothing is compared unless others changed the published directories.

        Returns
        -------
        The tables that were removed because no active replica stands behind them.
        """
        with self._one_at_a_time:
            if self._is_in_order():
                return ()
            stamp = self._stamp()
            unknown, missing = self._differences()
            for path in unknown:
                path.unlink(missing_ok=True)
            if not unknown and not missing:
                self._store.set_published((), {_DIRECTORIES: stamp})
        self.publish_each(sorted(missing))
        if unknown or missing:
            self.tidy()
        return tuple(sorted(path.name for path in unknown if path.parent == self._home.tables))

    def _differences(self) -> tuple[set[Path], set[str]]:
        """Return published files that the catalog does not know, and sources that lack theirs."""
        unknown: set[Path] = set()
        missing: set[str] = set()
        published = self._store.published_sources()
        for directory, path_of, kind in (
            (self._home.tables, table_path, _TABLE),
            (self._home.sorted, sorted_path, _LIST),
        ):
            with os.scandir(directory) as entries:
                is_directory = {
                    Path(entry.path): entry.is_dir(follow_symlinks=False) for entry in entries
                }
            there = set(is_directory)
            for file, what in published:
                path = path_of(self._home, file)
                if path not in there and kind in _kinds(what):
                    missing.add(file)
                if kind in _kinds(what) or is_pending(what):
                    there.discard(path)
            unknown |= {path for path in there if not is_directory[path]}
        return unknown, missing

    def _is_in_order(self) -> bool:
        """Return whether this class alone added, replaced or removed files."""
        return self._store.stamp(_DIRECTORIES) == self._stamp()

    def _stamp(self) -> str:
        """Return what tells the published directories from themselves after a change."""
        found = [path.stat() for path in (self._home.tables, self._home.sorted)]
        return " ".join(f"{one.st_ino}:{one.st_mtime_ns}" for one in found)

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
        self,
        file: str,
        data_offset_bytes: int | None,
        replicas: list[tuple[ReplicaRecord, Replica]],
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
                self._candidate(file, record, replica) for record, replica in replicas
            ),
            chunk_shape=chunk_shape,
            stored_bytes=stored_bytes,
            decode_s_per_byte=decode_s_per_byte,
        )

    def _candidate(self, file: str, record: ReplicaRecord, replica: Replica) -> TableCandidate:
        chunked = replica.chunk_shape is not None
        _, model = self._models.for_table(file, replica.path, chunked=chunked)
        return TableCandidate(
            replica_id=record.id,
            shadow_permille=SHADOW_PERMILLE if record.state is ReplicaState.SHADOW else 1000,
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


def _servable(
    record: ReplicaRecord, source: FileIdentity | None
) -> Replica | tuple[ReplicaState, str]:
    """Return what the file of a replica says, or the state, and its reason, of one not to serve."""
    try:
        now = current_identity(record.path)
        gone = "" if now is not None else f"its file {record.path} is gone"
        if now is None or record.replica is None or (gone := outdated(record, source)):
            return ReplicaState.RETIRED, gone or "the catalog does not know what is in its file"
        if changed := record.replica.identity.difference(now):
            return ReplicaState.DAMAGED, (
                f"its file {record.path} was touched or changed ({changed}): it serves again once "
                f"every block was compared with its checksum, by the server or by "
                f"sds replicas verify {record.id}"
            )
        found = describe_replica(Path(record.path))
        if wrong := written_by_others(record) or contradiction(record, found):
            return ReplicaState.DAMAGED, wrong
        if found.sort is None:
            _stored_type(found)
            _require_little_metadata(found)
    except UnreachableError:
        raise
    except UnsupportedError as error:
        return ReplicaState.VERIFIED, f"programs are not redirected to it: {error}"
    except (SdsError, OSError) as error:
        return ReplicaState.DAMAGED, str(error)
    return found


def _require_little_metadata(replica: Replica) -> None:
    """Raise UnsupportedError for a contiguous replica of which programs would check too much."""
    if replica.chunk_shape is None and replica.metadata_bytes > _native.MAX_METADATA_BYTES:
        message = (
            f"{replica.path} holds {replica.metadata_bytes} bytes besides its elements, and at "
            f"most {_native.MAX_METADATA_BYTES} are checked before a replica serves"
        )
        raise UnsupportedError(message)


def written_by_others(record: ReplicaRecord) -> str:
    """Return why no program trusts the file of a replica; empty where they do.

    Raises
    ------
    OSError
        If it, or its source, is gone.
    """
    path, source = Path(record.path), Path(record.file)
    found, owner = path.stat(), source.stat().st_uid
    try:
        check_trusted(path, found, owner)
    except PermissionError as error:
        remedy = (
            f"chmod go-w {path}"
            if found.st_mode & OTHERS_MAY_WRITE
            else f"remove it with sds replicas remove {record.id}, and build it anew"
        )
        return f"{error}, for programs do not read it ({remedy})"
    return ""


def contradiction(record: ReplicaRecord, found: Replica) -> str:
    """Return where the file of a replica says otherwise than the catalog; empty where nowhere."""
    said = (record.file, record.dataset, record.layout)
    facts = (str(found.source_path), found.dataset_path, found.layout)
    for what, catalog, file in zip(("source", "dataset", "layout"), said, facts, strict=True):
        if catalog != file:
            return (
                f"the catalog has {catalog} for the {what} of {record.path}, the file itself "
                f"{file}: remove the replica and build it again"
            )
    return ""


def _kinds(published: str | None) -> str:
    """Return which files there are of a source; empty where that is not known, or none are."""
    return (
        "" if published is None or is_pending(published) else published.lstrip("0123456789abcdef")
    )


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

    from sds.hdf5.type_digest import type_crc32c  # noqa: PLC0415

    try:
        with h5py.File(replica.path, "r", locking=False) as handle:
            stored = handle[replica.dataset_path].id.get_type()
            return type_crc32c(stored), int(stored.get_class())
    except (OSError, KeyError) as error:
        message = f"its file {replica.path} cannot be read: {error}"
        raise FormatError(message) from error


def _chunks_of(file: str, replicas: Sequence[Replica]) -> tuple[tuple[int, ...] | None, int, float]:
    """Return chunk shape, stored bytes and decoding time of an original; (None, 0, 0) without.

    Its replicas know them. The original itself is read where all are of the first format; where it
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


def level_of(error: OSError) -> int:
    """Return at which level to log: that a mount does not answer is logged once, by `look_at`."""
    return logging.DEBUG if isinstance(error, UnreachableError) else logging.WARNING


def current_identity(file: str) -> FileIdentity | None:
    """Return a file's identity; None where it is gone, or closed to this account.

    Raises
    ------
    UnreachableError
        If its file system does not answer.
    """
    try:
        return look_at(file, lambda: identity_of(file))
    except (NotFoundError, PermissionDeniedError):
        return None


def current_source(file: str, trusted: Sequence[Path]) -> FileIdentity | None:
    """Return the identity of a source with its instance; else as `current_identity`.

    `trusted`: directories that the user vouches for.
    """
    try:
        return look_at(file, lambda: source_identity(file, trusted=trusted))
    except (NotFoundError, PermissionDeniedError):
        return None


def outdated(record: ReplicaRecord, now: FileIdentity | None) -> str:
    """Return why a replica can never serve its source again; empty where it can."""
    if now is None:
        return f"its source {record.file} is gone"
    if identity_changed_only(record, now):
        return ""
    changed = record.source_identity.difference(now)
    return f"its source {record.file} changed ({changed})" if changed else ""


def identity_changed_only(record: ReplicaRecord, now: FileIdentity | None) -> bool:
    """Return whether a source differs in its identity, but not in size and mtime.

    A chmod, a rename, a copy, or a trick; a restart of the machine, or another image in the same
    place. The replica does not serve until every byte is compared again.
    """
    before = record.source_identity
    return (
        now is not None
        and before != now
        and (before.size_bytes, before.mtime_ns) == (now.size_bytes, now.mtime_ns)
    )
