"""Reads a selection from a replica where that is predicted faster, as the connector does.

Whatever stands against a replica (none, stale, damaged, owned by someone else, slower) means the
original, and is told in the log.

What finding that out costs is kept for the next read of the same file: the table, what was decided
for reads of a shape, and the replicas, open; of those in chunks, where these lie. Every read looks
whether all that still holds: at the table, at its source and at the replica, in any case after its
bytes were read. Boxes from contiguous replicas are read without a step in Python, of shapes that
were read before and, once the dataset was looked up in the table, also of others
(`native/binding/repeated_reads.cpp`).
"""

from __future__ import annotations

import enum
import logging
import math
import os
import stat
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from sds import _native
from sds.chunk_reader import ChunkedSource, describe_chunked, find_chunks, read_chunked
from sds.chunks import chunk_extents
from sds.dataset import Storage, describe_open_dataset
from sds.engine import load_measured
from sds.errors import NotFoundError, SdsError
from sds.geometry import (
    chunk_features,
    chunks_touched,
    extent_features,
)
from sds.home import damage_report, default_home, is_redirection_off, verifies_reads
from sds.identity import SETTLED_S, FileIdentity, identity_of, is_same_source
from sds.redirect.tables import (
    RedirectTable,
    TableCandidate,
    TableDataset,
    read_table,
    table_path,
)
from sds.redirect.type_digest import type_crc32c

if TYPE_CHECKING:
    from pathlib import Path

    import h5py
    from numpy.typing import NDArray

    from sds.dataset import DatasetDescription
    from sds.geometry import BlockFeatures, Hyperslab
    from sds.home import Home
    from sds.redirect.tables import TableModel

log = logging.getLogger(__name__)

FEATURES_BUDGET_S = 0.001
"""For deciding about one read; past it, bounds decide."""

_FEATURES_BUDGET_NS = 1_000_000

USES_PER_DECISION = 64
"""Reads of one shape that are decided alike; where they start hardly matters to the prediction."""

_VARIABLES = (
    "SDS_HOME", "XDG_DATA_HOME", "HOME", "SDS_DISABLE", "SDS_REDIRECT", "SDS_SERVICE_UID",
    "SDS_VERIFY_READS",
)  # fmt: skip
"""What the environment says of where replicas are, and whether and whose are used."""

_MAX_DECISIONS = 64
_MAX_REPLICAS = 4
_MAX_CHECKED = 128
_MAX_METADATA_BYTES = 1 << 20
_ACTIVE_PERMILLE = 1000
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH

_Stamp: TypeAlias = tuple[int, int, int, int, int]

_checked: set[tuple[FileIdentity, int]] = set()
"""Replicas whose metadata this process found intact."""

_damaged: set[FileIdentity] = set()
"""Replicas of which this process found a block that differs from its checksum."""


class Outcome(enum.Enum):
    """What became of a read that a replica might serve."""

    SERVED = enum.auto()
    ORIGINAL = enum.auto()
    """The original is to be read."""
    UNKNOWN = enum.auto()
    """Nothing can be said before the source is opened anew, through HDF5."""


@dataclass(slots=True, kw_only=True, eq=False)
class _ContiguousRead:
    """How reads of one shape are done from a contiguous replica, wherever they start.

    Attributes
    ----------
    base_offset
        Of a read that starts at index 0 of every axis of the source.
    index_bytes
        What one index further along an axis of the source adds to it.
    run_bytes, counts, strides_bytes
        As :func:`sds._native.runs` returns them.
    stored_shape
        Elements per axis of the replica; None where they lie there in the order of the source.
    """

    base_offset: int
    index_bytes: tuple[int, ...]
    run_bytes: int
    counts: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    stored_shape: tuple[int, ...] | None

    def first_offset(self, start: tuple[int, ...]) -> int:
        """Return where the first run of a read begins, bytes."""
        return self.base_offset + sum(
            index * n_bytes for index, n_bytes in zip(start, self.index_bytes, strict=True)
        )

    def run_from(self, start: tuple[int, ...]) -> tuple[int, int] | None:
        """Return the offset and bytes of a read that is one run, None of others."""
        return None if self.counts else (self.first_offset(start), self.run_bytes)


@dataclass(slots=True, kw_only=True, eq=False)
class _Entry:
    """What a table says of one dataset, and the same as the core takes it."""

    dataset: TableDataset
    native: _native.TableEntry


@dataclass(slots=True, kw_only=True, eq=False)
class _Decision:
    """What reads of one shape are served from; None: the original."""

    candidate: TableCandidate | None
    plan: _ContiguousRead | None = None
    number: int = 0  # of the candidate in the table
    uses: _native.Uses = field(default_factory=lambda: _native.Uses(USES_PER_DECISION))


@dataclass(slots=True, kw_only=True, eq=False)
class _OpenReplica:
    """A replica that was found to be good, and is open.

    Attributes
    ----------
    chunked
        Of one in chunks that was read: what it takes to read it without HDF5, if that can be done.
    announced
        Of one of segments: how often each segment was announced to the kernel in part.
    """

    engine: _native.ReadFile
    stamp: _Stamp
    chunked: ChunkedSource | None = None
    announced: bytearray = field(default_factory=bytearray)


@dataclass(slots=True, kw_only=True, eq=False)
class _Known:
    """A table that was read, and what was found out with it.

    Attributes
    ----------
    stamp
        Of the table's file when it was read.
    is_of_source
        Whether it was made from the bytes that the source has.
    repeated
        By the paths of datasets: what reads them from `replicas` again, in shapes that were read
        before.
    replicas
        Those that are open, by the `id` of their candidate in `table`: a table that is wrong may
        give one number to several.
    datasets
        Its entries by the paths of those datasets that they describe; None: it does not.
    """

    table: RedirectTable
    stamp: _Stamp
    is_of_source: bool
    datasets: dict[str, _Entry | None] = field(default_factory=dict)
    decisions: dict[tuple[object, ...], _Decision] = field(default_factory=dict)
    replicas: dict[int, _OpenReplica] = field(default_factory=dict)
    repeated: dict[str, _native.RepeatedReads] = field(default_factory=dict)

    def keep_replicas(self, replicas: dict[int, _OpenReplica]) -> None:
        """Keep these replicas open, and no others for repeated reads either."""
        if any(replicas.get(key) is not one for key, one in self.replicas.items()):
            self.repeated = {}
        self.replicas = replicas


class Redirection:
    """The replicas of one source file, as long as its bytes are the same.

    Several threads may use one at a time: what is kept is only ever added to, or replaced whole.

    Parameters
    ----------
    source, found
        Its path, and what stat(2) said of it when its datasets were described.
    """

    def __init__(self, source: str | Path, found: os.stat_result) -> None:
        self._source = source
        self._found = found
        self._stamp = _stamp_of(found)  # the comparison that every read makes
        self._owner = found.st_uid
        self._home: tuple[Home, str, str] | None = None  # its table of the source, and its switch
        self._known: _Known | None = None

    def may_serve(self, home: Home) -> bool:
        """Return whether there is a redirect table of the source, good or not."""
        return self._known is not None or os.access(self._paths(home)[0], os.F_OK)

    def _paths(self, home: Home) -> tuple[str, str]:
        """Return where the table of the source is, and the file that turns all replicas off."""
        if self._home is None or self._home[0] is not home:
            table = os.fspath(table_path(home, self._source))
            self._home = (home, table, os.fspath(home.disabled))
            self._known = None
        return self._home[1:]

    def learn(self, home: Home, described: DatasetDescription, dataset: h5py.Dataset) -> None:
        """Look an open dataset up in the table, so that :meth:`repeat` can do without it."""
        try:
            table, disabled = self._paths(home)
            known = self._find_table(home, table)
            entry = _find_entry(known, dataset, described)
            if entry is None or is_redirection_off(os.environ) or os.access(disabled, os.F_OK):
                return
            source_stamp = _stamp_of(os.stat(self._source))  # noqa: PTH116
            if known.is_of_source and source_stamp == self._stamp:
                self._repeats_of(known, described, entry, source_stamp)
        except (SdsError, OSError) as error:  # the read that would be served tells the user
            log.debug("%s is not looked up: %s", described.path, error)

    def drop_unlinked(self) -> None:
        """Close replicas that were deleted: their space is needed."""
        known = self._known
        if known is not None:
            linked = {key: one for key, one in known.replicas.items() if one.engine.is_linked()}
            if len(linked) < len(known.replicas):
                known.keep_replicas(linked)

    def may_repeat(self, path: str) -> bool:
        """Return whether :meth:`repeat` may serve reads of a dataset."""
        return self._known is not None and path in self._known.repeated

    def repeat(self, path: str, index: object, out: NDArray[Any] | None) -> NDArray[Any] | None:
        """Return a selection that a replica serves by what is known; None where it is not enough.

        All that counts is looked at, except what only clients of a file's host know, and HDF5.
        `out` may be partly filled where None is returned.
        """
        known = self._known
        reads = None if known is None else known.repeated.get(path)
        if known is None or reads is None:
            return None
        return reads.read(
            index,
            out,
            lambda number, *run: self._open_to_repeat(known, path, number, run),
        )

    def _open_to_repeat(
        self, known: _Known, path: str, number: int, run: tuple[int, int]
    ) -> tuple[_native.ReadFile, _Stamp] | None:
        """Return the open replica of a candidate, None where it is not good, or not kept open."""
        entry = known.datasets.get(path)
        if entry is None or self._home is None:
            return None
        candidate = entry.dataset.candidates[number]
        try:
            replica = self._find_replica(self._home[0], known, candidate, entry.dataset, run)
        except (SdsError, OSError) as error:  # the read that follows tells the user
            log.debug("replica %s is not opened: %s", candidate.path, error)
            return None
        if known.replicas.get(id(candidate)) is not replica:
            return None
        return replica.engine, replica.stamp

    def serve(
        self,
        home: Home,
        described: DatasetDescription,
        slab: Hyperslab,
        result: NDArray[Any],
        *,
        dataset: h5py.Dataset | None = None,
        engine_serves_original: bool,
    ) -> Outcome:
        """Fill an array from a replica if there is a good one predicted faster.

        Parameters
        ----------
        described
            The original.
        slab
            What to read, in the axis order of the original; not empty.
        result
            C-contiguous, of the elements of `slab`; may be partly filled where it was not served.
        dataset
            The original, open; None: do without what only HDF5 knows.
        engine_serves_original
            Whether the original would be read by the same engine as a replica.
        """
        if is_redirection_off(os.environ):
            return Outcome.ORIGINAL
        try:
            table, disabled = self._paths(home)
            if os.access(disabled, os.F_OK):
                return Outcome.ORIGINAL
            return self._serve(
                home,
                table,
                described,
                slab,
                result,
                dataset=dataset,
                engine_serves_original=engine_serves_original,
            )
        except NotFoundError:
            self._known = None
            return Outcome.ORIGINAL  # nothing was reorganized, or it was withdrawn
        except (SdsError, OSError) as error:
            log.warning("reading %s:%s from the original: %s", self._source, described.path, error)
            return Outcome.ORIGINAL

    def _serve(
        self,
        home: Home,
        table: str,
        described: DatasetDescription,
        slab: Hyperslab,
        result: NDArray[Any],
        *,
        dataset: h5py.Dataset | None,
        engine_serves_original: bool,
    ) -> Outcome:
        known = self._find_table(home, table)
        if not known.is_of_source:
            return Outcome.ORIGINAL
        if dataset is None and described.path not in known.datasets:
            return Outcome.UNKNOWN
        entry = _find_entry(known, dataset, described)
        if entry is None:
            return Outcome.ORIGINAL
        decision = _find_decision(
            known, entry, dataset, described, slab, engine_serves_original=engine_serves_original
        )
        if decision is None:
            return Outcome.UNKNOWN
        decision.uses.n_left -= 1
        candidate, plan = decision.candidate, decision.plan
        if candidate is None:
            return Outcome.ORIGINAL
        run = None if plan is None else plan.run_from(slab.start)
        replica = self._find_replica(home, known, candidate, entry.dataset, run)
        try:
            _read(replica, entry, decision, slab, result)
        except SdsError:
            if replica.engine.is_damaged:
                _note_damage(home, candidate)
            raise
        # A source that changed meanwhile: its replica is no longer what it says.
        after = _stamp_of(os.stat(self._source))  # noqa: PTH116  (half as long as pathlib's)
        is_same = after == self._stamp
        may_repeat = is_same and plan is not None and plan.stored_shape is None
        if may_repeat and all(_holds_all(one) for one in entry.dataset.candidates):
            self._add_repeats(known, described, slab, decision, after)
        return Outcome.SERVED if is_same else Outcome.UNKNOWN

    def _find_table(self, home: Home, path: str) -> _Known:
        """Return what is known of the table that is published now."""
        known = self._known
        try:
            found = os.stat(path)  # noqa: PTH116  (half as long as pathlib's)
        except FileNotFoundError as error:
            message = f"no redirect table for {self._source}: {path} is gone"
            raise NotFoundError(message) from error
        check_trusted(path, found, self._owner)
        stamp = _stamp_of(found)
        if known is not None and known.stamp == stamp:
            return known
        table = read_table(home, self._source)
        known = _Known(
            table=table,
            stamp=stamp,
            is_of_source=is_same_source(table.source_identity, self._found, self._source),
        )
        self._known = known if _may_keep(path, stamp) else None
        return known

    def _find_replica(
        self,
        home: Home,
        known: _Known,
        candidate: TableCandidate,
        entry: TableDataset,
        run: tuple[int, int] | None,
    ) -> _OpenReplica:
        """Return a replica that is open and as it was published.

        `run`: the offset and bytes of what is about to be read, None or no bytes where that is no
        single run.
        """
        replica = known.replicas.get(id(candidate))
        if replica is not None and _is_unchanged(replica):
            return replica
        others = {one: other for one, other in known.replicas.items() if one != id(candidate)}
        known.keep_replicas(others)
        replica = _open_replica(home, candidate, entry, self._owner, run)
        if self._known is known and not replica.engine.is_remote:
            latest = dict(list(others.items())[1 - _MAX_REPLICAS :])
            known.keep_replicas(latest | {id(candidate): replica})
        return replica

    def _repeats_of(
        self,
        known: _Known,
        described: DatasetDescription,
        entry: _Entry,
        source_stamp: _Stamp,
    ) -> _native.RepeatedReads | None:
        """Return what reads a dataset in one step; None where nothing is kept of the table."""
        if self._known is not known or self._home is None:
            return None
        reads = known.repeated.get(described.path)
        if reads is None:
            _, table, disabled = self._home
            reads = _native.RepeatedReads(
                os.fspath(self._source),
                source_stamp,
                table,
                known.stamp,
                disabled,
                _VARIABLES,
                described.extent,
                described.dtype,
                entry.native,
                USES_PER_DECISION,
            )
            known.repeated[described.path] = reads
        return reads

    def _add_repeats(
        self,
        known: _Known,
        described: DatasetDescription,
        slab: Hyperslab,
        decision: _Decision,
        source_stamp: _Stamp,
    ) -> None:
        """Have reads of a shape repeated in one step, which do not depend on where they start."""
        plan, candidate, entry = decision.plan, decision.candidate, known.datasets[described.path]
        if plan is None or candidate is None or entry is None:
            return
        replica = known.replicas.get(id(candidate))
        reads = self._repeats_of(known, described, entry, source_stamp)
        if reads is None or replica is None:  # it is not kept open
            return
        if not reads.holds(slab.count, slab.stride):
            reads.add(
                slab.count,
                slab.stride,
                decision.uses,
                plan.base_offset,
                plan.index_bytes,
                plan.run_bytes,
                plan.counts,
                plan.strides_bytes,
                replica.engine,
                replica.stamp,
            )


def serve_from_replica(
    dataset: h5py.Dataset,
    described: DatasetDescription,
    slab: Hyperslab,
    result: NDArray[Any],
    *,
    engine_serves_original: bool,
) -> bool:
    """Fill an array from a replica as :meth:`Redirection.serve`, keeping nothing; return whether.

    Parameters
    ----------
    dataset, described
        The original, open.
    slab
        What to read, in the axis order of the original.
    result
        C-contiguous, of the elements of `slab`; may be partly filled where False is returned.
    engine_serves_original
        Whether the original would be read by the same engine as a replica.
    """
    redirection = Redirection(described.file, described.file.stat())
    outcome = redirection.serve(
        default_home(),
        described,
        slab,
        result,
        dataset=dataset,
        engine_serves_original=engine_serves_original,
    )
    return outcome is Outcome.SERVED


def _holds_all(candidate: TableCandidate) -> bool:
    return candidate.region is None and candidate.segments is None


def _stamp_of(found: os.stat_result) -> _Stamp:
    """Return what changes with any change of a file, and with another file in its place."""
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _may_keep(table: str, stamp: _Stamp) -> bool:
    """Return whether every later change of a table will show in its stamp."""
    if time.time() - stamp[4] / 1e9 < SETTLED_S:
        return False
    return not _native.ReadFile(table, may_map=False).is_remote


def _is_unchanged(replica: _OpenReplica) -> bool:
    """Return whether a descriptor still leads to what was opened: not where a program closed it."""
    try:
        return _stamp_of(os.fstat(replica.engine.fileno())) == replica.stamp
    except OSError:
        return False


def check_trusted(path: str | Path, found: os.stat_result, source_owner: int) -> None:
    """Raise PermissionError unless a file belongs to someone trusted, who alone may write it."""
    if found.st_uid != source_owner and found.st_uid != os.geteuid():
        service = os.environ.get("SDS_SERVICE_UID", "")
        if not service.isdecimal() or found.st_uid != int(service):
            message = f"{path} belongs to neither the source's owner nor this user"
            raise PermissionError(message)
    if found.st_mode & _OTHERS_MAY_WRITE:
        message = f"{path} may be written by others; remove group and world write permission"
        raise PermissionError(message)


def _find_entry(
    known: _Known, dataset: h5py.Dataset | None, described: DatasetDescription
) -> _Entry | None:
    """Return the table's entry if it describes this very dataset, which is looked up once."""
    if described.path not in known.datasets and dataset is not None:
        found = next((one for one in known.table.datasets if _is_of(one, dataset, described)), None)
        known.datasets[described.path] = None if found is None else _entry_of(known.table, found)
    return known.datasets.get(described.path)


def _entry_of(table: RedirectTable, dataset: TableDataset) -> _Entry:
    alone = replace(table, datasets=(dataset,)).to_bytes()
    return _Entry(dataset=dataset, native=_native.TableEntry(alone, _FEATURES_BUDGET_NS))


def _is_of(entry: TableDataset, dataset: h5py.Dataset, described: DatasetDescription) -> bool:
    return (
        entry.path == described.path
        and entry.extent == described.extent
        and entry.element_size_bytes == described.element_size_bytes
        and entry.type_crc32c == type_crc32c(dataset.id.get_type())
    )


def _find_decision(
    known: _Known,
    entry: _Entry,
    dataset: h5py.Dataset | None,
    described: DatasetDescription,
    slab: Hyperslab,
    *,
    engine_serves_original: bool,
) -> _Decision | None:
    """Return the decision for reads of a shape, made anew where it is due; None: only with HDF5."""
    # Of tiles, reads of one shape take more pieces or fewer, which counts for what they cost.
    pieces = entry.native.pieces(slab.start, slab.stride, slab.count, slab.block)
    key = (described.path, slab.count, slab.stride, slab.block, pieces)
    decision = known.decisions.get(key)
    if decision is not None and decision.uses.n_left > 0:
        return decision
    if dataset is None and described.storage is Storage.CHUNKED:
        return None
    decision = _decide(
        entry, dataset, described, slab, engine_serves_original=engine_serves_original
    )
    if len(known.decisions) >= _MAX_DECISIONS:
        known.decisions = {}
    known.decisions[key] = decision
    return decision


def _decide(
    entry: _Entry,
    dataset: h5py.Dataset | None,
    described: DatasetDescription,
    slab: Hyperslab,
    *,
    engine_serves_original: bool,
) -> _Decision:
    """Return what reads of the shape of `slab` are to be served from."""
    known, axes = entry.dataset, (slab.start, slab.stride, slab.count, slab.block)
    is_contiguous = described.storage is Storage.CONTIGUOUS
    number = entry.native.cheapest(
        *axes,
        None if is_contiguous else _original_seconds(known, dataset, described, slab),
        [_chunked_seconds(candidate, known, slab) for candidate in known.candidates],
        engine_serves_original,
    )
    if number is None:
        return _Decision(candidate=None)
    candidate = known.candidates[number]
    if candidate.chunk_shape is not None or candidate.segments is not None:
        return _Decision(candidate=candidate, number=number)
    base_offset, index_bytes, run_bytes, counts, strides_bytes, keeps_order = (
        entry.native.stored_read(number, *axes)
    )
    plan = _ContiguousRead(
        base_offset=base_offset,
        index_bytes=index_bytes,
        run_bytes=run_bytes,
        counts=counts,
        strides_bytes=strides_bytes,
        stored_shape=None if keeps_order else slab.permuted(candidate.order).shape,
    )
    return _Decision(candidate=candidate, plan=plan)


def _chunked_seconds(
    candidate: TableCandidate, known: TableDataset, slab: Hyperslab
) -> float | None:
    """Return the predicted time of reading a selection of a replica in chunks, None of others."""
    region = candidate.region_in(known.extent)
    if candidate.chunk_shape is None or not region.holds(slab):
        return None
    stored = region.relative(slab).permuted(candidate.order)
    stored_extent = tuple(region.extent[axis] for axis in candidate.order)
    n_stored = math.prod(
        -(-n // c) for n, c in zip(stored_extent, candidate.chunk_shape, strict=True)
    )
    features = chunk_features(
        stored_extent,
        candidate.chunk_shape,
        stored,
        candidate.stripes,
        candidate.raid,
        chunk_bytes=max(1, -(-candidate.stored_bytes // n_stored)),
        budget_s=FEATURES_BUDGET_S,
    )
    n_chunks = chunks_touched(stored, candidate.chunk_shape).n_elements
    return _seconds(candidate.model, features) + _decode_seconds(candidate, known, n_chunks)


def _decode_seconds(
    stored: TableCandidate | TableDataset, known: TableDataset, n_chunks: int
) -> float:
    """Return the predicted time of undoing the filters of some chunks."""
    chunk_bytes = math.prod(stored.chunk_shape or ()) * known.element_size_bytes
    return stored.decode_s_per_byte * chunk_bytes * n_chunks


def _original_seconds(
    known: TableDataset,
    dataset: h5py.Dataset | None,
    described: DatasetDescription,
    slab: Hyperslab,
) -> float:
    """Return the predicted time of reading a selection of an original in chunks."""
    if described.storage is not Storage.CHUNKED or dataset is None:
        message = f"{described.path} is stored {described.storage}: nothing to compare a replica to"
        raise NotFoundError(message)
    offsets, lengths = chunk_extents(dataset, slab)
    features = extent_features(
        offsets, lengths, known.stripes, known.raid, budget_s=FEATURES_BUDGET_S
    )
    return _seconds(known.model, features) + _decode_seconds(known, known, features.runs)


def _seconds(model: TableModel, features: BlockFeatures) -> float:
    return _native.predict(
        model.kind, model.gap, model.coefficients, model.floor_s, features.native(), 1.0
    )


def _open_replica(
    home: Home,
    candidate: TableCandidate,
    known: TableDataset,
    source_owner: int,
    run: tuple[int, int] | None,
) -> _OpenReplica:
    """Return a replica, open and checked; raises whatever stands against it."""
    if candidate.identity in _damaged:
        message = f"replica {candidate.path} was found to be damaged; verify the replicas"
        raise OSError(message)
    data_bytes = known.element_size_bytes * math.prod(candidate.stored_extent(known.extent))
    engine = _native.ReadFile(
        os.fspath(candidate.path),
        may_map=os.environ.get("SDS_MMAP") != "0",
        measured=load_measured(home),
        follow_links=False,
        replica_data=None if candidate.chunk_shape else (candidate.data_offset_bytes, data_bytes),
        checks_all=verifies_reads(home, os.environ),
    )
    found = os.fstat(engine.fileno())
    check_trusted(candidate.path, found, source_owner)
    metadata = _unchecked_metadata(candidate, known)
    if stat.S_ISREG(found.st_mode):
        # The device works while the file is checked: first on what is waited for first.
        for offset, length in metadata:
            if length > 0:  # 0 is all to the end
                os.posix_fadvise(engine.fileno(), offset, length, os.POSIX_FADV_WILLNEED)
        if run is not None:
            engine.announce(*run)
    _check_unchanged(engine.fileno(), candidate)
    _check_intact(home, engine.fileno(), candidate, metadata)
    return _OpenReplica(engine=engine, stamp=_stamp_of(found))


def _read(
    replica: _OpenReplica,
    entry: _Entry,
    decision: _Decision,
    slab: Hyperslab,
    result: NDArray[Any],
) -> None:
    """Fill an array from the replica that was decided for; raises where that cannot be."""
    candidate = decision.candidate
    if candidate is None:
        return
    if decision.plan is not None:
        _read_contiguous(replica, candidate, decision.plan, slab, result)
    elif candidate.segments is not None:
        _read_from_tiles(replica, entry, decision.number, slab, result)
    else:
        _read_from_chunks(replica, candidate, entry.dataset, slab, result)


def _note_damage(home: Home, candidate: TableCandidate) -> None:
    """Serve nothing from a replica any more, and have it verified."""
    if len(_damaged) >= _MAX_CHECKED:
        _damaged.clear()
    _damaged.add(candidate.identity)
    try:
        damage_report(home, candidate.replica_id).touch(mode=0o600)
    except OSError as error:
        log.warning("replica %s is damaged, and no report can be left: %s", candidate.path, error)


def _read_contiguous(
    replica: _OpenReplica,
    candidate: TableCandidate,
    plan: _ContiguousRead,
    slab: Hyperslab,
    result: NDArray[Any],
) -> None:
    """Fill an array from a contiguous replica; raises where it changed meanwhile."""
    stored_shape = plan.stored_shape
    values = result if stored_shape is None else np.empty(stored_shape, result.dtype)
    replica.engine.read_runs(
        plan.first_offset(slab.start),
        plan.run_bytes,
        plan.counts,
        plan.strides_bytes,
        values.reshape(-1).view(np.uint8).data,
    )
    _check_still_unchanged(replica, candidate)
    if stored_shape is not None:
        _put_back(values, candidate.order, slab, result)


def _put_back(
    values: NDArray[Any], order: tuple[int, ...], slab: Hyperslab, result: NDArray[Any]
) -> None:
    """Copy what lies in the axis order of a replica into that of the source."""
    back = np.argsort(order).tolist()
    into = result.reshape(slab.shape)
    _native.permute(_as_words(values), [*back, len(back)], _as_words(into))


def _read_from_tiles(
    replica: _OpenReplica, entry: _Entry, number: int, slab: Hyperslab, result: NDArray[Any]
) -> None:
    """Fill an array from a replica of segments that holds a selection; raises where it changed."""
    if not replica.announced:
        replica.announced = bytearray(entry.native.announced_bytes(number))
    entry.native.read_tiles(
        number,
        slab.start,
        slab.stride,
        slab.count,
        slab.block,
        replica.engine,
        replica.announced,
        result.reshape(-1).view(np.uint8).data,
    )
    _check_still_unchanged(replica, entry.dataset.candidates[number])


def _read_from_chunks(
    replica: _OpenReplica,
    candidate: TableCandidate,
    known: TableDataset,
    slab: Hyperslab,
    result: NDArray[Any],
) -> None:
    """Fill an array from a replica in chunks; raises whatever stands against that."""
    stored = candidate.region_in(known.extent).relative(slab).permuted(candidate.order)
    values = np.empty(stored.shape, result.dtype)
    if replica.chunked is None or not read_chunked(replica.engine, replica.chunked, stored, values):
        _read_through_hdf5(replica, candidate, known, stored, values)
    _check_still_unchanged(replica, candidate)
    _put_back(values, candidate.order, slab, result)


def _read_through_hdf5(
    replica: _OpenReplica,
    candidate: TableCandidate,
    known: TableDataset,
    stored: Hyperslab,
    values: NDArray[Any],
) -> None:
    """Fill an array from a replica in chunks that h5py's HDF5 opens and checks, and learn of it."""
    import h5py  # noqa: PLC0415  (import sds must not load the HDF5 library)

    region = candidate.region_in(known.extent)
    extent = tuple(region.extent[axis] for axis in candidate.order)
    try:
        with h5py.File(candidate.path, "r", locking=False) as handle:
            _check_unchanged(handle.id.get_vfd_handle(), candidate)
            dataset = handle[known.path]
            file_type = dataset.id.get_type()
            if (
                (dataset.shape, dataset.chunks) != (extent, candidate.chunk_shape)
                or type_crc32c(file_type) != known.type_crc32c
                or not dataset.fletcher32
            ):
                message = f"replica {candidate.path} is not what its table says; verify it"
                raise OSError(message)
            if replica.chunked is None:
                described = describe_open_dataset(dataset, candidate.path)
                replica.chunked = describe_chunked(dataset, described)
            if replica.chunked is not None:
                find_chunks(dataset, replica.chunked, stored)
            selected = dataset.id.get_space()
            selected.select_hyperslab(stored.start, stored.count, stored.stride, stored.block)
            packed = h5py.h5s.create_simple(values.shape)
            dataset.id.read(packed, selected, values, file_type)
    # What h5py raises besides OSError for files that are damaged.
    except (AttributeError, KeyError, RuntimeError, ValueError) as error:
        message = f"replica {candidate.path} cannot be read: {error}; verify the replicas"
        raise OSError(message) from error


def _check_still_unchanged(replica: _OpenReplica, candidate: TableCandidate) -> None:
    if not _is_unchanged(replica):
        message = f"replica {candidate.path} changed while it was read; verify the replicas"
        raise OSError(message)


def _as_words(array: NDArray[Any]) -> NDArray[Any]:
    """Return a view of C-contiguous elements as one more axis of unsigned words."""
    word = next(size for size in (8, 4, 2, 1) if array.dtype.itemsize % size == 0)
    words = array.reshape(-1).view(f"u{word}")
    return words.reshape(*array.shape, array.dtype.itemsize // word)


def _check_unchanged(descriptor: int, candidate: TableCandidate) -> None:
    difference = candidate.identity.difference(identity_of(descriptor))
    if difference:
        message = f"replica {candidate.path} changed since it was published: {difference}"
        raise OSError(message)


def _unchecked_metadata(
    candidate: TableCandidate, known: TableDataset
) -> tuple[tuple[int, int], ...]:
    """Return offset and length of what a replica holds besides its dataset, if it was not checked.

    Of one in chunks nothing: HDF5 checks it.

    Raises
    ------
    OSError
        If that is more than a replica holds, or the dataset does not fit.
    """
    if candidate.chunk_shape is not None or _key_of(candidate) in _checked:
        return ()
    begin = candidate.data_offset_bytes
    end = begin + known.element_size_bytes * math.prod(candidate.stored_extent(known.extent))
    tail = candidate.identity.size_bytes - end
    if tail < 0:
        message = f"replica {candidate.path} is too short for its dataset; verify the replicas"
        raise OSError(message)
    if begin + tail > _MAX_METADATA_BYTES:
        message = (
            f"replica {candidate.path} holds more than {_MAX_METADATA_BYTES} bytes of metadata"
        )
        raise OSError(message)
    return ((0, begin), (end, tail))


def _key_of(candidate: TableCandidate) -> tuple[FileIdentity, int]:
    return (candidate.identity, candidate.metadata_crc32c)


def _check_intact(
    home: Home, descriptor: int, candidate: TableCandidate, metadata: tuple[tuple[int, int], ...]
) -> None:
    """Raise OSError unless a replica is intact outside the bytes of its dataset."""
    if not metadata:
        return
    crc = 0
    for offset, length in metadata:
        crc = _native.crc32c(os.pread(descriptor, length, offset), crc)
    if crc != candidate.metadata_crc32c:
        _note_damage(home, candidate)
        message = f"the metadata of replica {candidate.path} is damaged; verify the replicas"
        raise OSError(message)
    if len(_checked) >= _MAX_CHECKED:
        _checked.clear()
    _checked.add(_key_of(candidate))
