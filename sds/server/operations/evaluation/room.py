"""Room in mode auto: the replicas that may go, and the space under the budgets."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from sds.analyzer.gains import n_chosen, replica_gain
from sds.catalog.records import ReplicaState
from sds.catalog.replicas import EVICTABLE_STATES
from sds.errors import SdsError
from sds.recommender.portfolio.evictions import HeldReplica, Room, measured_saving, room_for
from sds.server.operations.recent_reads import RecentReads
from sds.server.operations.savings import days_there

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sds.analyzer import AccessPattern
    from sds.catalog.records import DatasetRecord
    from sds.catalog.replica_records import ReplicaRecord
    from sds.catalog.store import Store
    from sds.recommender.portfolio.values import PortfolioLayout
    from sds.server.operations.evaluation.modes import Modes
    from sds.server.operations.replica_budgets import ReplicaBudget
    from sds.server.settings import Settings

log = logging.getLogger(__name__)


class Removable:
    """The replicas of one home that mode auto may remove by itself.

    They are of datasets in mode auto, and nobody has pinned them.

    Attributes
    ----------
    idle
        Those that are damaged, or served no traced read for ``recent_days``, and why they go.
    held
        Of the others those of which it is known what they save: those whose test in shadow has
        ended, or whose reads have.
    dataset_of
        File and path of the datasets of these, by id.
    """

    def __init__(self, store: Store, modes: Modes, settings: Settings) -> None:
        self.idle: dict[int, str] = {}
        self.held: list[HeldReplica] = []
        self.dataset_of: dict[int, tuple[str, str]] = {}
        self._recent = RecentReads.of(store, settings)
        self._days = f"{settings.recent_days:g} days (recent_days)"
        for (file, dataset), records in _unpinned(store, modes).items():
            try:
                patterns = [one.pattern for one in store.patterns(file, dataset)]
            except SdsError as error:
                log.warning("replicas of %s:%s stay for now: %s", file, dataset, error)
                continue
            self._days_there = days_there(store.replicas(file, dataset))
            for record in records:
                self._sort_in(record, patterns)

    def _sort_in(self, record: ReplicaRecord, patterns: Sequence[AccessPattern]) -> None:
        """Note what becomes of one."""
        served_ns = min(replica_gain(patterns, record.id).last_ns, time.time_ns())
        if record.state is ReplicaState.DAMAGED:
            self.idle[record.id] = record.reason
        elif max(record.changed_ns, served_ns) < self._recent.since_ns:
            self.idle[record.id] = f"it served no traced read in the last {self._days}"
        else:
            saved = self._saved(record, patterns)
            if saved is not None:
                stored = record.stored_bytes or record.size_bytes
                self.dataset_of[record.id] = record.file, record.dataset
                self.held.append(
                    HeldReplica(id=record.id, size_bytes=max(1, stored), saves_s_per_day=saved)
                )

    def _saved(self, record: ReplicaRecord, patterns: Sequence[AccessPattern]) -> float | None:
        """Return what a replica saves of what is still read, seconds a day; None: not known."""
        recent = tuple(one for one in patterns if self._recent.hold(one))
        if record.state is ReplicaState.ACTIVE:
            return measured_saving(recent, record.id, days_there=self._days_there)
        # In shadow: of what it is for nothing is measured, unless nobody reads that any more.
        for_it = [one for one in patterns if n_chosen(one, record.id)] or patterns
        return None if any(map(self._recent.hold, for_it)) else 0.0

    @property
    def may_go(self) -> dict[tuple[str, str], int]:
        """Bytes of those that are held, by file and path of their datasets."""
        found: dict[tuple[str, str], int] = defaultdict(int)
        for one in self.held:
            found[self.dataset_of[one.id]] += one.size_bytes
        return dict(found)


class Space:
    """Space under the budgets of one home, as replicas are planned and others go for them.

    Parameters
    ----------
    budgets
        Those of policies.
    total_bytes
        What there is for new replicas, that of all that may go among it.
    """

    def __init__(
        self, removable: Removable, budgets: Sequence[ReplicaBudget], total_bytes: int
    ) -> None:
        self._held = {one.id: one for one in removable.held}
        self._budgets = budgets
        in_all = sum(one.size_bytes for one in removable.held)
        self._rooms = [Room(free_bytes=total_bytes - in_all)]
        for budget in budgets:
            inside = {i for i, name in removable.dataset_of.items() if budget.covers(*name)}
            self._rooms.append(Room(free_bytes=budget.left_bytes, holds=frozenset(inside)))

    def going(
        self, layout: PortfolioLayout, record: DatasetRecord, settings: Settings
    ) -> tuple[HeldReplica, ...] | None:
        """Return what goes for a layout of a dataset; None where it is not to be built."""
        return room_for(
            layout.size_bytes,
            saves_s_per_day=layout.saving.seconds,
            build_s=layout.build_s,
            rooms=[room for i, room in enumerate(self._rooms) if self._counts(i, record)],
            held=self._held.values(),
            within_days=settings.recent_days,
        )

    def _counts(self, i: int, record: DatasetRecord) -> bool:
        return i == 0 or self._budgets[i - 1].covers(record.file, record.path)

    def free(self, going: Iterable[HeldReplica]) -> None:
        """Note that replicas are gone."""
        for one in going:
            del self._held[one.id]
            self._rooms = [
                replace(room, free_bytes=room.free_bytes + one.size_bytes)
                if room.held([one])
                else room
                for room in self._rooms
            ]

    def take(self, record: DatasetRecord, size_bytes: int) -> None:
        """Note that a replica of a dataset is to be built."""
        self._rooms = [
            replace(room, free_bytes=room.free_bytes - size_bytes)
            if self._counts(i, record)
            else room
            for i, room in enumerate(self._rooms)
        ]


def _unpinned(store: Store, modes: Modes) -> dict[tuple[str, str], list[ReplicaRecord]]:
    """Return the replicas that may go, by dataset."""
    found: dict[tuple[str, str], list[ReplicaRecord]] = defaultdict(list)
    for record in store.replicas(states=EVICTABLE_STATES):
        is_ours = not record.pinned and record.sort is None
        if is_ours and modes.of(record.file, record.dataset) == "auto":
            found[record.file, record.dataset].append(record)
    return found
