"""Check of calibrations by traces: whether they still hold, and models fitted to traces as well.

Traces are read from the spool, as long as they are kept there (`spool_keep_days`). Nothing is
remembered of which reads were used: the same spool gives the same models.
"""

from __future__ import annotations

import logging
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from sds.analyzer.read_records import SELECT_ALL, SELECT_HYPERSLAB
from sds.analyzer.read_times import BY_ENGINE, BY_HDF5
from sds.calibration.trace_fit import LeftOut, TracedRead, change_since
from sds.errors import (
    FormatError,
    FormatVersionError,
    NotFoundError,
    SdsError,
    UnreachableError,
)
from sds.geometry import Hyperslab
from sds.mounts import filesystem_of
from sds.recommender.models.cost_model import Via
from sds.recommender.models.read_cost import StoredArray, features_as_stored, features_in_replica
from sds.server.operations import stages
from sds.server.operations.dataset_workloads import holds_all
from sds.server.operations.reports import LeftOutReads, Refit
from sds.server.operations.spool import records_of, spool_paths
from sds.trace import read_spool

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sds.analyzer import ReadRecords
    from sds.catalog.model_records import CalibrationRecord
    from sds.catalog.store import Store
    from sds.geometry import BlockFeatures
    from sds.home import Home
    from sds.organizer.replica_file.replica import Replica
    from sds.server.operations.file_system_models import Models
    from sds.server.operations.stages import Progress, Runner
    from sds.trace import TraceDataset

log = logging.getLogger(__name__)

# Newest spool files, and records of each, that are looked at.
_MOST_FILES = 400
_RECORDS_PER_FILE = 20_000
# Reads of one kind in one file: more say the same.
_READS_OF_A_KIND = 9
# sds_storage_kind of native/include/sds/trace_format.h
_CONTIGUOUS = 1


class TracedReads:
    """Reads of a home's spool, as calibrations can compare them with predictions."""

    def __init__(self, home: Home, store: Store, models: Models) -> None:
        self._home = home
        self._store = store
        self._models = models
        self._replicas: dict[int, Replica | None] = {}
        self._mounts: dict[str, str] = {}
        self.left_out: Counter[LeftOut] = Counter()
        """Reads that `on` did not return, by the reason: as many as their records stand for."""

    def on(self, record: CalibrationRecord) -> list[TracedRead]:
        """Return the reads of files on a calibrated file system.

        Those of contiguous datasets, by HDF5 or by the engine, from the original or from a
        contiguous replica; of regular selections, and not collective: of others it is not known
        what they touched.
        """
        paths = sorted(spool_paths(self._home), key=lambda entry: -entry[1].mtime_ns)
        reads: list[TracedRead] = []
        for path, _ in paths[:_MOST_FILES]:
            try:
                spool = read_spool(path, max_records=_RECORDS_PER_FILE)
            except (FileNotFoundError, PermissionError):
                continue  # deleted since it was listed, or not ours to read
            except (FormatError, FormatVersionError) as error:
                log.info("not used to fit models: %s", error)
                continue
            for dataset, records in records_of(spool).items():
                reads += self._of_dataset(record, dataset, records)
        return reads

    def _of_dataset(
        self, record: CalibrationRecord, dataset: TraceDataset, records: ReadRecords
    ) -> Iterator[TracedRead]:
        if dataset.storage != _CONTIGUOUS or dataset.n_filters or dataset.data_offset_bytes < 0:
            self.left_out[LeftOut.LAYOUT] += int(records.n_calls.sum())
            return
        if not self._mount_of(dataset.file):  # it does not answer
            self.left_out[LeftOut.ELSEWHERE] += int(records.n_calls.sum())
            return
        array = StoredArray(
            extent=dataset.extent,
            element_size_bytes=dataset.element_bytes,
            data_offset_bytes=dataset.data_offset_bytes,
            stripes=record.calibration.settings.stripes or self._models.stripes_of(dataset.file),
            raid=record.calibration.settings.raid,
        )
        n_calls = records.n_calls.tolist()
        seen: Counter[str] = Counter()
        for i in range(len(records)):
            kind = int(records.selection_kind[i])
            if kind not in {SELECT_ALL, SELECT_HYPERSLAB} or records.collective[i]:
                collective = bool(records.collective[i])
                reason = LeftOut.COLLECTIVE if collective else LeftOut.SELECTION
                self.left_out[reason] += n_calls[i]
                continue
            slab = (
                Hyperslab.all(dataset.extent)
                if kind == SELECT_ALL
                else Hyperslab(
                    start=tuple(map(int, records.start[i])),
                    stride=tuple(map(int, records.stride[i])),
                    count=tuple(map(int, records.count[i])),
                    block=tuple(map(int, records.block[i])),
                )
            )
            served_by = int(records.served_by[i])
            group = (
                f"{dataset.file}:{dataset.path} {slab.count} of {slab.block} every {slab.stride}, "
                f"served by {served_by}"
            )
            seen[group] += 1
            if seen[group] > _READS_OF_A_KIND:
                self.left_out[LeftOut.ENOUGH] += n_calls[i]
                continue
            if 0 in slab.count or 0 in slab.block:
                self.left_out[LeftOut.SELECTION] += n_calls[i]
                continue
            try:
                features = self._features(record, dataset, array, slab, served_by)
            except SdsError as error:
                log.info("%s: not used to fit models: %s", group, error)
                self.left_out[LeftOut.UNCOUNTED] += n_calls[i]
                continue
            if features is None:
                of_replica = served_by not in {BY_HDF5, BY_ENGINE}
                reason = LeftOut.REPLICA if of_replica else LeftOut.ELSEWHERE
                self.left_out[reason] += n_calls[i]
                continue
            yield TracedRead(
                group=group,
                start_ns=int(records.start_ns[i]),
                seconds=float(records.elapsed_ns[i]) * 1e-9 / n_calls[i],
                n_reads=n_calls[i],
                via=Via.HDF5 if served_by == BY_HDF5 else Via.ENGINE,
                features=features,
            )

    def _features(
        self,
        record: CalibrationRecord,
        dataset: TraceDataset,
        array: StoredArray,
        slab: Hyperslab,
        served_by: int,
    ) -> BlockFeatures | None:
        """Return what a read touched on the file system of a record; None: it read elsewhere."""
        if served_by in {BY_HDF5, BY_ENGINE}:
            here = self._mount_of(dataset.file) == record.mount_point
            return features_as_stored(array, slab) if here else None
        found = self._replica_of(served_by, record.mount_point)
        if found is None:
            return None
        return features_in_replica(
            array, slab, found.order, data_offset_bytes=found.data_offset_bytes
        )

    def _replica_of(self, replica_id: int, mount_point: str) -> Replica | None:
        """Return a replica if it is contiguous, of a whole dataset, and on a file system."""
        if replica_id not in self._replicas:
            self._replicas[replica_id] = None
            try:
                found = self._store.replica(replica_id)
            except NotFoundError:
                return None  # its record is older than the catalog
            if (
                found.chunk_shape is None
                and found.replica is not None
                and holds_all(found)
                and self._mount_of(str(found.replica.path)) == mount_point
            ):
                self._replicas[replica_id] = found.replica
        return self._replicas[replica_id]

    def _mount_of(self, file: str) -> str:
        directory = str(Path(file).parent)
        if directory not in self._mounts:
            try:
                self._mounts[directory] = str(filesystem_of(Path(directory)).mount_point)
            except UnreachableError as error:
                log.warning("reads of %s are left out: %s", file, error)
                self._mounts[directory] = ""
        return self._mounts[directory]


class Refitter:
    """Compares traced reads with calibrations, and fits the models of these to them as well."""

    def __init__(self, home: Home, store: Store, models: Models, run: Runner) -> None:
        self._home = home
        self._store = store
        self._models = models
        self._run = run

    def refit(self, record: CalibrationRecord, progress: Progress) -> Refit:
        """Refit one calibration, unless its file system has changed since; say what was done."""
        before = record.calibration
        traced = TracedReads(self._home, self._store, self._models)
        reads = traced.on(record)
        counts = traced.left_out
        since_ns = int(datetime.fromisoformat(before.created).timestamp() * 1e9)
        changed = differences(record)
        if not changed:
            change = change_since(before, [read for read in reads if read.start_ns >= since_ns])
            changed = "" if change is None else change.text
        n_reads = sum(read.n_reads for read in reads)
        n_fitted = 0
        after = before
        if changed:
            if self._store.calibration_changes().get(record.id) != changed:
                log.warning(
                    "%s has changed since it was calibrated: %s", record.mount_point, changed
                )
                self._store.add_event("calibration", record.id, "changed", changed)
        else:
            after, not_fitted = self._run(
                stages.fit_to_traces, before, reads, callbacks={"progress": progress}
            )
            counts += Counter(not_fitted)
            n_fitted = n_reads - sum(not_fitted.values())
            if after != before:
                self._store.replace_calibration(record.id, after)
        return Refit(
            mount_point=record.mount_point,
            n_reads=n_reads,
            n_fitted=n_fitted,
            changed=changed,
            refitted=after != before,
            left_out=tuple(
                LeftOutReads(n_reads=n, reason=str(reason), remedy=reason.remedy)
                for reason, n in counts.most_common()
            ),
        )


def calibrations_at(
    path: str | None, known: tuple[CalibrationRecord, ...]
) -> tuple[CalibrationRecord, ...]:
    """Return the calibration of the file system that a path lies on; all with None.

    Raises
    ------
    NotFoundError
        If it was never calibrated.
    """
    if path is None:
        return known
    mount_point = str(filesystem_of(Path(path)).mount_point)
    mine = tuple(record for record in known if record.mount_point == mount_point)
    if not mine:
        raise NotFoundError(
            f"{mount_point}, the file system of {path}, was never calibrated: "
            f"run sds calibrate {path}"
        )
    return mine[:1]


def differences(record: CalibrationRecord) -> str:
    """Return in what the mounted file system is another than the one measured; empty: in nothing.

    That its files are the same is not known from that: a remounted one keeps its name.
    """
    measured = record.calibration.file_system
    now = filesystem_of(Path(measured.mount_point))
    if str(now.mount_point) != measured.mount_point:
        return f"nothing is mounted at {measured.mount_point} any more"
    found = []
    if now.kind != measured.kind:
        found.append(f"its kind was {measured.kind} and is {now.kind}")
    if now.source != measured.source:
        found.append(f"its source was {measured.source} and is {now.source}")
    return " and ".join(found)
