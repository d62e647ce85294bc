"""Reads a selection from a replica where that is predicted faster, as the connector does.

Whatever stands against a replica (none, stale, damaged, owned by someone else, slower) means the
original, and is noted in the log.

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
import os
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sds import _native
from sds.client import open_replicas
from sds.errors import NotFoundError, SdsError
from sds.hdf5.identity import SETTLED_S, Version, is_same_source, version_of
from sds.hdf5.type_digest import type_crc32c
from sds.home import is_redirection_off
from sds.redirect.tables import (
    RedirectTable,
    TableCandidate,
    TableDataset,
    read_table,
    table_path,
)
from sds.redirect.write_permissions import check_trusted

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import h5py
    from numpy.typing import NDArray

    from sds.geometry import Hyperslab
    from sds.hdf5.dataset import DatasetDescription
    from sds.home import Home

log = logging.getLogger(__name__)

_VARIABLES = (
    "SDS_HOME", "XDG_DATA_HOME", "HOME", "SDS_DISABLE", "SDS_REDIRECT", "SDS_SERVICE_UID",
    "SDS_VERIFY_READS",
)  # fmt: skip
"""Variables that decide where replicas are, and whether and whose are used."""

_MAX_WARNED = 128
_warned: set[str] = set()

_MAX_DECISIONS = 64
_MAX_REPLICAS = 4


class Outcome(enum.Enum):
    """Outcome of a read that a replica might serve."""

    SERVED = enum.auto()
    ORIGINAL = enum.auto()
    """The original is to be read."""
    UNKNOWN = enum.auto()
    """No decision before the source is opened anew, through HDF5."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Entry:
    """Entry of a dataset in a table, in Python and as the core takes it."""

    dataset: TableDataset
    native: _native.TableEntry


@dataclass(slots=True, kw_only=True, eq=False)
class _Decision:
    """Decision for reads of one shape: the candidate that serves them, or None for the original."""

    candidate: TableCandidate | None
    uses: _native.Uses
    plan: open_replicas.ContiguousRead | None = None
    number: int = 0  # of the candidate in the table


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
    stamp: Version
    is_of_source: bool
    datasets: dict[str, _Entry | None] = field(default_factory=dict)
    decisions: dict[tuple[object, ...], _Decision] = field(default_factory=dict)
    replicas: dict[int, open_replicas.OpenReplica] = field(default_factory=dict)
    repeated: dict[str, _native.RepeatedReads] = field(default_factory=dict)

    def keep_replicas(self, replicas: dict[int, open_replicas.OpenReplica]) -> None:
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
    engine
        That reads it; None: what the page cache holds of it is not looked at.
    """

    def __init__(
        self, source: str | Path, found: os.stat_result, engine: _native.ReadFile | None = None
    ) -> None:
        self._source = source
        self._engine = engine
        self._found = found
        self._stamp = version_of(found)  # the comparison that every read makes
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
            source_stamp = version_of(os.stat(self._source))  # noqa: PTH116
            if known.is_of_source and source_stamp == self._stamp:
                self._repeats_of(known, described, entry, source_stamp)
        except (SdsError, OSError) as error:  # the read that would be served tells the user
            log.debug("%s is not looked up: %s", described.path, error)

    def find_entry(
        self, home: Home, described: DatasetDescription, dataset: h5py.Dataset
    ) -> _Entry | None:
        """Return the table's entry of an open dataset; None where no replica may serve it.

        Raises
        ------
        NotFoundError
            If there is no table of the source.
        SdsError, OSError
            Whatever stands against the table.
        """
        table, disabled = self._paths(home)
        if is_redirection_off(os.environ) or os.access(disabled, os.F_OK):
            return None
        known = self._find_table(home, table)
        return _find_entry(known, dataset, described) if known.is_of_source else None

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
        """Return a selection read by decisions made earlier; None where these do not suffice.

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
            lambda number: _find_to_probe(known, path, number),
        )

    def _open_to_repeat(
        self, known: _Known, path: str, number: int, run: tuple[int, int]
    ) -> tuple[_native.ReadFile, Version] | None:
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
            )
        except NotFoundError:
            self._known = None
            return Outcome.ORIGINAL  # nothing was reorganized, or it was withdrawn
        except (SdsError, OSError) as error:
            _warn_once(f"reading {self._source}:{described.path} from the original: {error}")
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
    ) -> Outcome:
        known = self._find_table(home, table)
        if not known.is_of_source:
            return Outcome.ORIGINAL
        if dataset is None and described.path not in known.datasets:
            return Outcome.UNKNOWN
        entry = _find_entry(known, dataset, described)
        if entry is None:
            return Outcome.ORIGINAL
        decision = self._find_decision(known, entry, slab)
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
                open_replicas.note_damage(home, candidate)
            raise
        # A source that changed meanwhile: its replica is no longer what it says.
        after = version_of(os.stat(self._source))  # noqa: PTH116  (half as long as pathlib's)
        is_same = after == self._stamp
        may_repeat = is_same and plan is not None and plan.stored_shape is None
        if may_repeat and all(_holds_all(one) for one in entry.dataset.candidates):
            self._add_repeats(known, described, slab, decision, after)
        return Outcome.SERVED if is_same else Outcome.UNKNOWN

    def _find_decision(self, known: _Known, entry: _Entry, slab: Hyperslab) -> _Decision:
        """Return the decision for reads of a shape, made anew where it is due."""
        # Of tiles, reads of one shape take more pieces or fewer, which counts for what they cost.
        pieces = entry.native.pieces(slab.start, slab.stride, slab.count, slab.block)
        key = (entry.dataset.path, slab.count, slab.stride, slab.block, pieces)
        decision = known.decisions.get(key)
        if decision is not None and decision.uses.n_left > 0:
            return decision

        def find_file(number: int) -> _native.ReadFile | None:
            return _file_to_probe(known, entry.dataset.candidates[number])

        decision = _decide(entry, slab, self._engine, find_file)
        if len(known.decisions) >= _MAX_DECISIONS:
            known.decisions = {}
        known.decisions[key] = decision
        return decision

    def _find_table(self, home: Home, path: str) -> _Known:
        """Return what is known of the table that is published now."""
        known = self._known
        try:
            found = os.stat(path)  # noqa: PTH116  (half as long as pathlib's)
        except FileNotFoundError as error:
            message = f"no redirect table for {self._source}: {path} is gone"
            raise NotFoundError(message) from error
        check_trusted(path, found, self._owner)
        stamp = version_of(found)
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
    ) -> open_replicas.OpenReplica:
        """Return a replica that is open and as it was published.

        `run`: the offset and bytes of what is about to be read, None or no bytes where that is no
        single run.
        """
        replica = known.replicas.get(id(candidate))
        if replica is not None and open_replicas.is_unchanged(replica):
            return replica
        others = {one: other for one, other in known.replicas.items() if one != id(candidate)}
        known.keep_replicas(others)
        replica = open_replicas.open_checked(home, candidate, entry, self._owner, run)
        if self._known is known and not replica.engine.is_remote:
            latest = dict(list(others.items())[1 - _MAX_REPLICAS :])
            known.keep_replicas(latest | {id(candidate): replica})
        return replica

    def _repeats_of(
        self,
        known: _Known,
        described: DatasetDescription,
        entry: _Entry,
        source_stamp: Version,
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
                self._engine,
            )
            known.repeated[described.path] = reads
        return reads

    def _add_repeats(
        self,
        known: _Known,
        described: DatasetDescription,
        slab: Hyperslab,
        decision: _Decision,
        source_stamp: Version,
    ) -> None:
        """Store the plan of reads of a shape, to repeat them in one step wherever they start."""
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


def _warn_once(message: str) -> None:
    """Log a warning where none said the same before in this process: a loop may read for hours."""
    if message in _warned:
        log.debug("%s", message)
        return
    if len(_warned) >= _MAX_WARNED:
        _warned.clear()
    _warned.add(message)
    log.warning("%s", message)


def _find_to_probe(known: _Known, path: str, number: int) -> _native.ReadFile | None:
    entry = known.datasets.get(path)
    return None if entry is None else _file_to_probe(known, entry.dataset.candidates[number])


def _file_to_probe(known: _Known, candidate: TableCandidate) -> _native.ReadFile | None:
    """Return the file of a replica; one that is not open is neither checked nor kept."""
    replica = known.replicas.get(id(candidate))
    if replica is not None and open_replicas.is_unchanged(replica):
        return replica.engine
    try:
        return open_replicas.open_unchecked(candidate)
    except (SdsError, OSError) as error:  # the read that it would serve tells the user
        log.debug("replica %s is not probed: %s", candidate.path, error)
        return None


def serving_candidate(
    home: Home, dataset: h5py.Dataset, described: DatasetDescription, slab: Hyperslab
) -> TableCandidate | None:
    """Return the replica that serves a read while nothing is cached; None for the original.

    By the published table alone: the replica is not looked at. Where the table cannot be read,
    programs read the original.
    """
    found = Redirection(described.file, described.file.stat())
    try:
        entry = found.find_entry(home, described, dataset)
    except NotFoundError:
        return None
    except (SdsError, OSError) as error:
        log.warning("no replica serves %s: %s", described.file, error)
        return None
    if entry is None:
        return None
    axes = (slab.start, slab.stride, slab.count, slab.block)
    number, _ = entry.native.choose(*axes, None, None)
    return None if number is None else entry.dataset.candidates[number]


def _holds_all(candidate: TableCandidate) -> bool:
    return candidate.region is None and candidate.segments is None


def _may_keep(table: str, stamp: Version) -> bool:
    """Return whether every later change of a table will show in its stamp."""
    if time.time() - stamp[4] / 1e9 < SETTLED_S:
        return False
    return not _native.ReadFile(table, may_map=False).is_remote


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
    return _Entry(dataset=dataset, native=_native.TableEntry(alone))


def _is_of(entry: TableDataset, dataset: h5py.Dataset, described: DatasetDescription) -> bool:
    return (
        entry.path == described.path
        and entry.extent == described.extent
        and entry.element_size_bytes == described.element_size_bytes
        and entry.type_crc32c == type_crc32c(dataset.id.get_type())
    )


def _decide(
    entry: _Entry,
    slab: Hyperslab,
    source: _native.ReadFile | None,
    find_file: Callable[[int], _native.ReadFile | None],
) -> _Decision:
    """Return what reads of the shape of `slab` are to be served from."""
    axes = (slab.start, slab.stride, slab.count, slab.block)
    number, n_uses = entry.native.choose(*axes, source, find_file)
    uses = _native.Uses(n_uses)
    if number is None:
        return _Decision(candidate=None, uses=uses)
    candidate = entry.dataset.candidates[number]
    if candidate.chunk_shape is not None or candidate.segments is not None:
        return _Decision(candidate=candidate, uses=uses, number=number)
    base_offset, index_bytes, run_bytes, counts, strides_bytes, keeps_order = (
        entry.native.stored_read(number, *axes)
    )
    plan = open_replicas.ContiguousRead(
        base_offset=base_offset,
        index_bytes=index_bytes,
        run_bytes=run_bytes,
        counts=counts,
        strides_bytes=strides_bytes,
        stored_shape=None if keeps_order else slab.permuted(candidate.order).shape,
    )
    return _Decision(candidate=candidate, uses=uses, plan=plan)


def _read(
    replica: open_replicas.OpenReplica,
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
        open_replicas.read_contiguous(replica, candidate, decision.plan, slab, result)
    elif candidate.segments is not None:
        open_replicas.read_from_tiles(
            replica, entry.native, decision.number, slab, result, candidate=candidate
        )
    else:
        open_replicas.read_from_chunks(replica, candidate, entry.dataset, slab, result)
