"""Workloads of datasets: catalog, files and models brought together."""

from __future__ import annotations

import logging
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sds.analyzer import recurring_segments, stated_pattern
from sds.calibration.models_in_use import comparable_models
from sds.catalog.records import LIVE_STATES
from sds.catalog.replica_records import ReplicaRecord
from sds.catalog.replicas import GONE_STATES
from sds.errors import DatasetNotFoundError, SdsError, SdsValueError, UnsupportedError
from sds.files import canonical_path
from sds.hdf5.chunk_extents import decode_seconds_per_byte
from sds.hdf5.dataset import DatasetDescription, describe_dataset, get_dataset, open_hdf5
from sds.hdf5.identity import identity_of
from sds.organizer.plans.reorganization_plan import check_reorganizable
from sds.organizer.replica_file.filters import parse_filters
from sds.recommender.candidates.dataset_reads import DatasetReads
from sds.recommender.models.read_cost import StoredArray
from sds.server.operations.build_rates import measured_build_rates
from sds.text import counted

if TYPE_CHECKING:
    from sds.analyzer import AccessPattern, ReadTrail
    from sds.catalog.store import Store
    from sds.geometry import ReplicaLayout, SegmentList
    from sds.recommender.candidates.replica_cost import BuildRates
    from sds.recommender.models.cost_model import CostModel
    from sds.server.operations.advice_reports import Counts, Selections
    from sds.server.operations.file_system_models import Models
    from sds.server.operations.recent_reads import RecentReads
    from sds.server.operations.stages import Progress

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDataset:
    """A dataset as it is now, and its reads.

    Attributes
    ----------
    file
        Canonical path.
    replicas
        That serve it.
    """

    file: str
    described: DatasetDescription
    reads: DatasetReads
    replicas: tuple[ReplicaRecord, ...]


class KnownReads:
    """Finds what is known of datasets, for one piece of advice.

    Parameters
    ----------
    recent
        Patterns that it does not hold are left out; None: all count.
    """

    def __init__(self, store: Store, models: Models, *, recent: RecentReads | None = None) -> None:
        self._store = store
        self._models = models
        self._recent = recent
        self._for_advice: dict[int | None, tuple[CostModel, CostModel]] = {}
        self._build_rates: dict[str, BuildRates] = {}  # by source

    def of(
        self,
        file: str,
        dataset: str | None,
        *,
        selection: Selections,
        n_reads: Counts,
        progress: Progress,
    ) -> tuple[list[KnownDataset], list[str]]:
        """Return the datasets of a file that are read, and notes on those that are not.

        Parameters
        ----------
        file, dataset
            Dataset None: every dataset of the file that was read.
        selection
            A typical read, or several, stated; with a dataset only. None: what was traced.
        n_reads
            Reads per day of each stated selection, or of all alike; None: 1.

        Raises
        ------
        SdsValueError
            If a selection is stated without a dataset, or numbers of reads without as many
            selections.
        FileMissingError, NotHdf5Error, DatasetNotFoundError, SelectionError
            As the file, the dataset and the selection are at fault.
        """
        if selection is not None and dataset is None:
            message = f"a selection needs a dataset: write {file}:/path, not {file}"
            raise SdsValueError(message)
        given = stated(selection, n_reads)
        canonical = canonical_path(file)
        with open_hdf5(canonical):
            pass  # a file that cannot be read is refused here, before anything is said about it
        names = self._read_datasets(canonical) if dataset is None else [dataset]
        found: list[KnownDataset] = []
        notes = list(self._models.change_notes(canonical))
        if not names:
            notes.append(f"no read of {file} was traced: run a program with `sds run`")
        for i, name in enumerate(names):
            progress(i / len(names), f"rank layouts of {name}")
            described = _described(canonical, name, notes, is_named=dataset is not None)
            if described is None:
                continue
            if given:
                patterns = _stated_patterns(given, described)
            else:
                kept = self._kept(canonical, described, notes)
                patterns = (*self._traced(canonical, described, notes, quiet=bool(kept)), *kept)
            if patterns:
                found.append(self._known(canonical, described, patterns, notes))
        return found, notes

    def _read_datasets(self, file: str) -> list[str]:
        """Return the datasets of a file that were read."""
        # One that was reached by reference alone may have been traced without its path.
        read = [one.path for one in self._store.datasets(file) if one.n_reads and one.path]
        stated = [one.dataset for one in self._store.stated_reads(file)]
        return list(dict.fromkeys((*read, *stated)))

    def _kept(
        self, file: str, described: DatasetDescription, notes: list[str]
    ) -> tuple[AccessPattern, ...]:
        """Return the reads that people stated of a dataset; add those that fit it no more."""
        found: list[AccessPattern] = []
        for one in self._store.stated_reads(file, described.path):
            what = f"{described.path}: {one.selection}, {one.n_reads_per_day} a day (stated)"
            try:
                found += _stated_patterns([(one.selection, one.n_reads_per_day)], described)
            except SdsError as error:
                notes.append(f"{what}: left out: {error}; sds reads forget {one.id}")
        return tuple(found)

    def _traced(
        self, file: str, described: DatasetDescription, notes: list[str], *, quiet: bool
    ) -> tuple[AccessPattern, ...]:
        """Return the traced patterns that fit a dataset as it is now; add why there are none."""
        traced = [record.pattern for record in self._store.patterns(file, described.path)]
        fitting = tuple(
            pattern
            for pattern in traced
            if pattern.extent == described.extent
            and pattern.element_size_bytes == described.element_size_bytes
        )
        if self._recent is not None:
            return tuple(pattern for pattern in fitting if self._recent.hold(pattern))
        if quiet:  # there is something else to go by
            return fitting
        if not traced:
            notes.append(
                f"{described.path}: no read was traced; run a program with `sds run`, "
                "or state a selection"
            )
        elif not fitting:
            shape = "x".join(map(str, described.extent))
            notes.append(f"{described.path}: read in the past, before its extent became {shape}")
        return fitting

    def _known(
        self,
        file: str,
        described: DatasetDescription,
        patterns: tuple[AccessPattern, ...],
        notes: list[str],
    ) -> KnownDataset:
        if file not in self._build_rates:
            self._build_rates[file] = measured_build_rates(self._store, file)
        found = self._store.replicas(file, described.path, states=LIVE_STATES)
        active = [record for record in found if record.sort is None]  # others serve no reads
        now = identity_of(file)
        layouts = []
        ids: dict[ReplicaLayout, list[int]] = defaultdict(list)
        for record in active:
            changed = record.source_identity.difference(now)
            if changed:
                notes.append(
                    f"replica {record.id} of {described.path} serves no read: {file} has changed "
                    f"since ({changed}); build it again, or remove it (sds replicas remove "
                    f"{record.id})"
                )
            elif record.replica is not None:
                layouts.append(record.layout)
                ids[record.layout].append(record.id)
        # What was measured of those that are gone says what others like them would take.
        for record in self._store.replicas(file, described.path, states=GONE_STATES):
            if record.sort is None and not record.source_identity.difference(now):
                ids[record.layout].append(record.id)
        stripes = self._models.stripes_of(file)
        try:
            filters = parse_filters("source", described.filters)
        except UnsupportedError as error:
            filters = ()
            notes.append(f"{described.path}: no filtered layout to advise: {error}")
        reads = DatasetReads(
            target=f"{file}:{described.path}",
            array=StoredArray(
                extent=described.extent,
                element_size_bytes=described.element_size_bytes,
                chunks=described.chunk_shape,
                data_offset_bytes=described.data_offset_bytes or 0,
                filters=filters,
                stored_bytes=described.stored_bytes if described.filters else None,
                decode_s_per_byte=_decode_s_per_byte(file, described),
                stripes=stripes,
                raid=self._models.raid,
            ),
            patterns=patterns,
            models=self._models_of(file),
            parameters=self._models.io_parameters(file),
            existing=tuple(sorted(layouts, key=lambda x: x.describe(described.extent))),
            replica_ids={layout: tuple(sorted(of_it)) for layout, of_it in ids.items()},
            trail=None if all(one.stated for one in patterns) else self.trail_of(file, described),
            build_rates=self._build_rates[file],
        )
        return KnownDataset(file=file, described=described, reads=reads, replicas=tuple(active))

    def trail_of(self, file: str, described: DatasetDescription) -> ReadTrail | None:
        """Return where the newest reads of a dataset as it is now lay; None where none is known."""
        trail = self._store.trail(file, described.path)
        return None if trail is None or trail.extent != described.extent else trail

    def recurring(
        self, file: str, described: DatasetDescription, tiles: tuple[int, ...], min_reads: int
    ) -> SegmentList:
        """Return the tiles of a dataset that are read again and again, in segments.

        Raises
        ------
        LayoutError
            If the dataset cannot be cut so, or more tiles recur than a replica can hold.
        SdsValueError
            If no trail of it is known, or nothing recurs.
        """
        target = f"{file}:{described.path}"
        trail = self.trail_of(file, described)
        if trail is None:
            raise SdsValueError(
                f"where {target} is read is not known: run programs with sds run, then sds ingest "
                "(of reads counted by an older SDS, and of another extent, no places are known)"
            )
        segments = recurring_segments(
            trail,
            tiles,
            element_size_bytes=described.element_size_bytes,
            min_reads=min_reads,
        )
        if segments is None:
            raise SdsValueError(
                f"no tile of {','.join(map(str, tiles))} elements was read {min_reads} times or "
                f"more in the last {counted(len(trail), 'read')} of {target}: name larger tiles "
                "(--tiles), or fewer reads (--min-reads)"
            )
        return segments

    def _models_of(self, file: str) -> tuple[CostModel, CostModel]:
        """Return the models of a file, the same ones for all files of one file system."""
        record = self._models.calibration_record(file)
        number = None if record is None else record.id
        if number not in self._for_advice:
            self._for_advice[number] = comparable_models(
                None if record is None else record.calibration
            )
        return self._for_advice[number]


def _described(
    file: str, name: str, notes: list[str], *, is_named: bool
) -> DatasetDescription | None:
    """Return a dataset as it is now; None, and a note, where there is no layout to advise for it.

    One that a user has named has to be there: DatasetNotFoundError.
    """
    try:
        described = describe_dataset(file, name)
    except DatasetNotFoundError as error:
        if is_named:
            raise
        notes.append(f"{name}: read once, but not there now ({error})")
        return None
    if described.extent:  # a scalar is ranked: its one layout is the answer
        try:
            check_reorganizable(described)
        except UnsupportedError as error:
            notes.append(f"no layout to advise: {error}")
            return None
    return described


def _stated_patterns(
    given: list[tuple[str, int]], described: DatasetDescription
) -> tuple[AccessPattern, ...]:
    """Return stated selections as the patterns of a dataset; SelectionError where one is none."""
    return tuple(
        stated_pattern(
            text,
            extent=described.extent,
            element_size_bytes=described.element_size_bytes,
            n_reads_per_day=n,
        )
        for text, n in given
    )


def stated(selection: Selections, n_reads: Counts) -> list[tuple[str, int]]:
    """Return stated selections, each with its reads a day.

    Raises
    ------
    SdsValueError
        If there are numbers of reads, but no selections, or not as many.
    """
    texts = [selection] if isinstance(selection, str) else list(selection or ())
    if n_reads is None:
        n_reads = 1
    elif not texts:
        message = f"{n_reads} reads without a selection: state one, for example '[:, 3]'"
        raise SdsValueError(message)
    numbers = [n_reads] * len(texts) if isinstance(n_reads, int) else list(n_reads)
    if len(numbers) != len(texts):
        message = (
            f"{len(numbers)} numbers of reads for {len(texts)} selections: give one for each, "
            "or one for all"
        )
        raise SdsValueError(message)
    return list(zip(texts, numbers, strict=True))


def holds_all(record: ReplicaRecord) -> bool:
    """Return whether a replica that was built holds all of its dataset."""
    return record.replica is not None and record.layout.holds_all(record.replica.extent)


def _decode_s_per_byte(file: str, described: DatasetDescription) -> float:
    """Return how long undoing a dataset's filters takes; 0 where this HDF5 cannot.

    Then the original looks cheaper than it is, and stays.
    """
    if not described.filters:
        return 0.0
    with open_hdf5(file) as handle:
        try:
            return decode_seconds_per_byte(get_dataset(handle, described.path))
        except UnsupportedError as error:
            log.info("%s:%s: %s", file, described.path, error)
            return 0.0
