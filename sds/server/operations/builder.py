"""Replica lifecycle: build and publish, remove."""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from sds.analyzer.shadow import ShadowTest
from sds.catalog.records import LIVE_STATES, DatasetFacts, ReplicaState
from sds.catalog.replicas import GONE_STATES, OPEN_STATES, REMOVED
from sds.catalog.requests import ReorganizeRequest, SortRequest
from sds.errors import (
    BusyError,
    CatalogError,
    InsufficientSpaceError,
    LayoutError,
    OverBudgetError,
    PermissionDeniedError,
    SdsError,
)
from sds.files import canonical_path
from sds.geometry import MAX_TILES_OF_FILE
from sds.mounts import resolved_or_named
from sds.organizer import SortPlan, describe_replica
from sds.organizer.journal import discard_builds_of
from sds.redirect.sorted_replicas import withdraw_sorted
from sds.redirect.tables import withdraw_table
from sds.server.operations import stages
from sds.server.operations.replica_budgets import replica_budgets
from sds.text import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sds.catalog.replica_records import ReplicaRecord
    from sds.catalog.requests import JobRequest
    from sds.catalog.store import Store
    from sds.geometry import ReplicaLayout, SegmentList
    from sds.home import Home
    from sds.organizer.progress import AnyPlan
    from sds.organizer.replica_file.replica import Replica
    from sds.server.operations.publisher import Publisher
    from sds.server.operations.stages import Progress, Runner

log = logging.getLogger(__name__)

IN_SHADOW = "every byte verified; serves half of its reads until they are measured"


class Builder:
    """Builds and removes the replicas of one home."""

    def __init__(
        self, home: Home, store: Store, publisher: Publisher, *, budget_bytes: int | None
    ) -> None:
        self._home = home
        self._store = store
        self._publisher = publisher
        self._budget_bytes = budget_bytes

    def reorganize(
        self, request: ReorganizeRequest | SortRequest, run: Runner, progress: Progress
    ) -> ReplicaRecord:
        """Build a replica, compare it with its source, and let it serve.

        The replica is in the catalog before its file exists, so that a start after a crash knows
        whose the file is.

        Raises LayoutError where the file's replicas would hold more than `MAX_TILES_OF_FILE` tiles,
        OverBudgetError where replicas would take more than ``replica_budget_bytes``, or the
        budget of a policy, and the request is not forced; else errors as of the organizer.
        """
        begun: list[ReplicaRecord] = []
        in_shadow = request.kind == "reorganize" and request.shadow

        def announce(plan: AnyPlan) -> None:
            facts = facts_of_plan(plan)
            if not request.force:
                self._check_budget(plan, facts)
            begun.append(
                self._store.begin_replica(
                    facts,
                    layout=plan.layout,
                    path=str(plan.output),
                    size_bytes=plan.size_bytes,
                    shadow_test=ShadowTest() if in_shadow else None,
                    pinned=request.kind != "reorganize" or request.pinned,
                    predicted_saving_s_per_read=self._predicted(request, facts, plan.layout),
                )
            )

        if request.kind == "reorganize":
            self._check_room_in_table(request)
        since = datetime.now(UTC)
        started = time.monotonic()
        try:
            replica = run(
                stages.build,
                request,
                self._home.root,
                callbacks={"announce": announce, "progress": progress},
            )
        except BaseException as error:
            self._note_end(request, begun, error, time.monotonic() - started)
            raise
        (record,) = begun
        elapsed_s = time.monotonic() - started
        if in_shadow and record.in_shadow:
            state, reason = ReplicaState.SHADOW, IN_SHADOW
        else:
            state, reason = ReplicaState.ACTIVE, "every byte verified; asked for by name"
        after = self._store.set_replica(
            record.id,
            state,
            reason,
            replica=replica,
            build_s=_build_s(record, replica, since, elapsed_s),
            numbers={"build_s": elapsed_s, "size_bytes": float(replica.size_bytes)},
        )
        self._publisher.publish(record.file)
        if after.state in GONE_STATES:
            self.delete_file(after)
            message = f"replica {after.id} went while it was built: {after.reason}; build it again"
            raise BusyError(message)
        return self._store.replica(record.id)

    def _note_end(
        self,
        request: ReorganizeRequest | SortRequest,
        begun: Sequence[ReplicaRecord],
        error: BaseException,
        elapsed_s: float,
    ) -> None:
        """Note that a build has ended before its replica was there, and what it took."""
        if isinstance(error, stages.CutOffError):
            state, reason = ReplicaState.BUILDING, "cut off: its job goes on from what is on disk"
        else:
            state = ReplicaState.RETIRED
            reason = f"not built: {str(error) or type(error).__name__}"
            if not begun:  # it may go on from an earlier attempt
                self.abandon(request, reason)
        for record in begun:
            is_built = record.replica is not None  # and was asked for again
            build_s = None if is_built else (record.build_s or 0.0) + elapsed_s
            if not (is_built and state is ReplicaState.BUILDING):
                self._store.set_replica(record.id, state, reason, build_s=build_s)

    def _predicted(
        self, request: ReorganizeRequest | SortRequest, facts: DatasetFacts, layout: ReplicaLayout
    ) -> float | None:
        """Return what a layout is to save, by its request or the newest advice, seconds a read."""
        if request.kind == "reorganize" and request.predicted_saving_s_per_read is not None:
            return request.predicted_saving_s_per_read
        try:
            kept = self._store.recommendations(facts.file, facts.path)
        except CatalogError as error:  # of no account for the build
            log.warning("kept advice on %s:%s cannot be read: %s", facts.file, facts.path, error)
            return None
        for known in kept:
            for advised in known.recommendation.layouts:
                if advised.layout == layout:
                    return advised.saved_s_per_read
        return None

    def abandon(self, request: JobRequest, reason: str) -> None:
        """Retire what a build has begun that will not go on, and delete what there is of it."""
        wanted = wanted_replica(request)
        if wanted is None:
            return
        file, dataset, *_ = wanted
        for record in self._store.replicas(file, dataset, states=OPEN_STATES):
            if is_wanted(record, wanted):
                retired = self._store.set_replica(record.id, ReplicaState.RETIRED, reason)
                discard_builds_of(self._home, Path(record.path))
                if self._home.holds_replica(record.path):
                    self.delete_file(retired)

    def _check_budget(self, plan: AnyPlan, facts: DatasetFacts) -> None:
        """Raise OverBudgetError where a replica does not fit into a budget."""
        expected = plan.size_bytes if isinstance(plan, SortPlan) else plan.expected_bytes
        budgets = replica_budgets(self._store, self._budget_bytes, beside=str(plan.output))
        for budget in budgets:
            if budget.covers(facts.file, facts.path) and expected > budget.left_bytes:
                message = (
                    f"a replica of {expected} bytes beside {budget.used_bytes} bytes of others: "
                    f"{budget.source} allows {budget.budget_bytes}; remove a replica (sds replicas "
                    "remove), raise that budget, or add --force"
                )
                raise OverBudgetError(message)

    def _check_room_in_table(self, request: ReorganizeRequest) -> None:
        """Raise LayoutError where the replicas of a file would hold too many tiles."""
        if request.segments is None:
            return
        others = [
            len(record.segments.tiles)
            for record in self._store.replicas(canonical_path(request.file), states=LIVE_STATES)
            if record.segments is not None
            and (record.dataset, record.order, record.segments)
            != (request.dataset, request.order, request.segments)
        ]
        n_tiles = len(request.segments.tiles)
        if sum(others) + n_tiles > MAX_TILES_OF_FILE:
            message = (
                f"{counted(n_tiles, 'tile')}, and replicas of {request.file} hold {sum(others)} "
                f"others: a file's replicas hold at most {MAX_TILES_OF_FILE}, for programs that "
                "open it keep the list; gather fewer (--min-reads), make them larger (--tiles), or "
                "remove a replica (sds replicas remove)"
            )
            raise LayoutError(message)

    def remove(self, replica_id: int) -> ReplicaRecord:
        """Stop serving a replica and delete its file.

        Raises
        ------
        NotFoundError
            If there is none of that id.
        BusyError
            If it is being built.
        PermissionDeniedError
            If its file may not be deleted; it is not served any more all the same.
        """
        record = self._store.replica(replica_id)
        if record.state is ReplicaState.BUILDING:
            message = f"replica {replica_id} is being built; cancel its job first"
            raise BusyError(message)
        if record.state not in GONE_STATES:
            try:
                record = self._retire(replica_id)
            except InsufficientSpaceError:
                # The room that the catalog lacks is the replica's. Without its table and file it
                # serves nothing, whatever the catalog says until it can be written.
                withdraw_table(self._home, record.file)
                withdraw_sorted(self._home, record.file)
                if self._home.holds_replica(record.path):
                    Path(record.path).unlink(missing_ok=True)
                record = self._retire(replica_id)
        self._publisher.publish(record.file)
        self.delete_file(record)
        return record

    def evict(self, reasons: Mapping[int, str]) -> tuple[ReplicaRecord, ...]:
        """Remove replicas, each for a reason; none of them where one is pinned or gone by now.

        A file that may not be deleted stays; it serves no read all the same.
        """
        records = self._store.evict_replicas(reasons)
        self._publisher.publish_each(sorted({record.file for record in records}))
        for record in records:
            self.collect(record)
        return records

    def _retire(self, replica_id: int) -> ReplicaRecord:
        return self._store.set_replica(replica_id, ReplicaState.RETIRED, REMOVED)

    def collect(self, record: ReplicaRecord) -> None:
        """Delete the file of a replica that is gone, unless the user placed it with --output."""
        if not self._home.holds_replica(record.path):
            self._store.set_collected(record.id)
            return
        try:
            self.delete_file(record)
        except PermissionDeniedError as error:
            log.warning("replica %s is %s: %s", record.id, record.state, error)
            self._store.set_collected(record.id)
        except OSError as error:  # of its disk or server: the next round tries again
            log.warning("the file of replica %s stays for now: %s", record.id, error)

    def delete_file(self, record: ReplicaRecord) -> bool:
        """Delete the file of a replica that is gone from the catalog; return whether it was there.

        Left alone are files that serve under a newer record, and files outside of the home that
        are something else now.
        """
        path = Path(record.path)
        inside = self._home.holds_replica(path)
        is_live = self._store.count_replicas(path=record.path) > 0
        is_ours = not is_live and (inside or _holds(path, record))
        try:
            if is_ours:
                path.unlink()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            is_ours = False
        except PermissionError as error:
            message = f"may not delete {path}: permission denied; delete it by hand"
            raise PermissionDeniedError(message) from error
        self._store.set_collected(record.id)
        if is_ours:
            log.info("replica %s: deleted %s", record.id, path)
        return is_ours


def _holds(path: Path, record: ReplicaRecord) -> bool:
    """Return whether a file is the replica that a record describes, whole or not."""
    try:
        found = describe_replica(path)
    except (SdsError, OSError):
        return False
    return (str(found.source_path), found.dataset_path, found.layout) == (
        record.file,
        record.dataset,
        record.layout,
    )


WantedReplica: TypeAlias = "tuple[str, str, tuple[int, ...], str | SegmentList | None]"


def wanted_replica(request: JobRequest) -> WantedReplica | None:
    """Return source, dataset, order, and key or tiles of what a job builds; None: of nothing."""
    if isinstance(request, SortRequest):
        return resolved_or_named(request.file), request.dataset, (0,), request.key
    if isinstance(request, ReorganizeRequest):
        return resolved_or_named(request.file), request.dataset, request.order, request.segments
    return None


def is_wanted(record: ReplicaRecord, wanted: WantedReplica) -> bool:
    """Return whether a replica is what a job builds."""
    key = record.segments if record.sort is None else record.sort.key
    return (record.file, record.dataset, record.order, key) == wanted


def facts_of_plan(plan: AnyPlan) -> DatasetFacts:
    """Return what the catalog keeps of the dataset that a plan reorganizes."""
    storage = "contiguous" if plan.source_chunk_shape is None else "chunked"
    if isinstance(plan, SortPlan) and not plan.is_compound:
        storage = "group"
    return DatasetFacts(
        file=canonical_path(plan.source_path),
        identity=plan.source_identity,
        path=plan.dataset_path,
        extent=plan.extent,
        element_size_bytes=plan.element_size_bytes,
        storage=storage,
        data_offset_bytes=plan.data_offset_bytes,
        chunk_shape=plan.source_chunk_shape,
    )


def _build_s(
    begun: ReplicaRecord, replica: Replica, since: datetime, elapsed_s: float
) -> float | None:
    """Return what a build took, with what was cut off of it; None where that is not known.

    It is not where the file was begun before: found whole, or only finished.
    """
    if begun.build_s is not None and begun.replica is None:
        return begun.build_s + elapsed_s
    is_whole = datetime.fromisoformat(replica.created) >= since.replace(microsecond=0)
    return elapsed_s if is_whole else None
