"""Replicas from the wish to the end: built, verified, published, checked again, removed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from sds.catalog.records import DatasetFacts, ReplicaState
from sds.errors import BusyError, LayoutError, PermissionDeniedError, SdsError
from sds.geometry import MAX_TILES_OF_FILE
from sds.organizer import SortPlan, describe_replica
from sds.server import stages
from sds.server.publisher import current_source, outdated
from sds.server.reports import ReplicaCheck, VerifyReport
from sds.wording import counted

if TYPE_CHECKING:
    from sds.catalog.records import ReorganizeRequest, ReplicaRecord, SortRequest
    from sds.catalog.store import Store
    from sds.home import Home
    from sds.organizer.protocol import AnyPlan
    from sds.organizer.verify import VerificationReport
    from sds.server.publisher import Publisher
    from sds.server.stages import Progress, Runner


class Builder:
    """Builds, checks and removes the replicas of one home."""

    def __init__(self, home: Home, store: Store, publisher: Publisher) -> None:
        self._home = home
        self._store = store
        self._publisher = publisher

    def reorganize(
        self, request: ReorganizeRequest | SortRequest, run: Runner, progress: Progress
    ) -> ReplicaRecord:
        """Build a replica, compare it with its source, and let it serve.

        The replica is in the catalog before its file exists, so that a start after a crash knows
        whose the file is.

        Raises LayoutError where the file's replicas would hold more than `MAX_TILES_OF_FILE` tiles;
        else errors as of the organizer.
        """
        begun: list[ReplicaRecord] = []

        def announce(plan: AnyPlan) -> None:
            begun.append(
                self._store.begin_replica(
                    facts_of_plan(plan),
                    layout=plan.layout,
                    path=str(plan.output),
                    size_bytes=plan.size_bytes,
                )
            )

        if request.kind == "reorganize":
            self._check_room_in_table(request)
        started = time.monotonic()
        try:
            replica = run(
                stages.build,
                request,
                self._home.root,
                callbacks={"announce": announce, "progress": progress},
            )
        except stages.CutOffError:
            raise  # to be continued
        except BaseException as error:
            for record in begun:
                self._store.set_replica(
                    record.id,
                    ReplicaState.RETIRED,
                    f"not built: {str(error) or type(error).__name__}",
                )
            raise
        (record,) = begun
        elapsed_s = time.monotonic() - started
        self._store.set_replica(
            record.id,
            ReplicaState.ACTIVE,
            "every byte verified; asked for by name",
            replica=replica,
            build_s=elapsed_s,
            numbers={"build_s": elapsed_s, "size_bytes": float(replica.size_bytes)},
        )
        self._publisher.publish(record.file)
        return self._store.replica(record.id)

    def _check_room_in_table(self, request: ReorganizeRequest) -> None:
        """Raise LayoutError where the replicas of a file would hold too many tiles."""
        if request.segments is None:
            return
        others = [
            len(record.segments.tiles)
            for record in self._store.replicas(
                str(Path(request.file).resolve()), states=frozenset({ReplicaState.ACTIVE})
            )
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

    def verify(self, replica_id: int | None, run: Runner, progress: Progress) -> VerifyReport:
        """Compare replicas with their checksums; what is damaged is not served from then on."""
        if replica_id is None:
            chosen = self._store.replicas(
                states=frozenset({ReplicaState.ACTIVE, ReplicaState.VERIFIED, ReplicaState.DAMAGED})
            )
        else:
            chosen = (self._store.replica(replica_id),)
        present = tuple(record for record in chosen if Path(record.path).is_file())
        paths = tuple(Path(record.path) for record in present)
        found = run(stages.check, paths, callbacks={"progress": progress}) if paths else ()
        by_id = {record.id: report for record, report in zip(present, found, strict=True)}
        checks = tuple(self._judge(record, by_id.get(record.id)) for record in chosen)
        return VerifyReport(ok=all(check.ok for check in checks), checks=checks)

    def _judge(self, record: ReplicaRecord, report: VerificationReport | None) -> ReplicaCheck:
        """Return what a check says of a replica, having taken it out of service where it failed."""
        if report is None:
            return self._out_of_service(
                record, ReplicaState.RETIRED, f"its file {record.path} is gone"
            )
        if not report.ok:
            problem = "; ".join(report.problems) or "its bytes differ from its checksums"
            return self._out_of_service(record, ReplicaState.DAMAGED, problem)
        reason = outdated(record, current_source(self._home, record.file))
        if reason and record.state is ReplicaState.ACTIVE:
            return self._out_of_service(record, ReplicaState.RETIRED, reason)
        return ReplicaCheck(
            replica=record, ok=record.state is not ReplicaState.DAMAGED, problem=reason
        )

    def _out_of_service(
        self, record: ReplicaRecord, state: ReplicaState, problem: str
    ) -> ReplicaCheck:
        if record.state is not state:
            record = self._store.set_replica(record.id, state, problem)
        self._publisher.publish(record.file)
        return ReplicaCheck(replica=record, ok=False, problem=problem)

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
        if record.state is not ReplicaState.RETIRED:
            record = self._store.set_replica(replica_id, ReplicaState.RETIRED, "removed by request")
        self._publisher.publish(record.file)
        self.delete_file(record)
        return record

    def delete_file(self, record: ReplicaRecord) -> bool:
        """Delete the file of a replica that is gone from the catalog; return whether it was there.

        Left alone are files that serve under a newer record, and files outside of the home that
        are something else now.
        """
        path = Path(record.path)
        inside = path.is_relative_to(self._home.replicas)
        live = {replica.path for replica in self._store.replicas()}
        if record.path in live or not (inside or _holds(path, record)):
            return False
        try:
            path.unlink()
        except FileNotFoundError:
            return False
        except PermissionError as error:
            message = f"may not delete {path}: permission denied; delete it by hand"
            raise PermissionDeniedError(message) from error
        return True


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


def facts_of_plan(plan: AnyPlan) -> DatasetFacts:
    """Return what the catalog keeps of the dataset that a plan reorganizes."""
    storage = "contiguous" if plan.source_chunk_shape is None else "chunked"
    if isinstance(plan, SortPlan) and not plan.is_compound:
        storage = "group"
    return DatasetFacts(
        file=str(plan.source_path.resolve()),
        identity=plan.source_identity,
        path=plan.dataset_path,
        extent=plan.extent,
        element_size_bytes=plan.element_size_bytes,
        storage=storage,
        data_offset_bytes=plan.data_offset_bytes,
        chunk_shape=plan.source_chunk_shape,
    )
