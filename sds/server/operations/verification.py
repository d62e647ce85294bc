"""Verification of replicas that exist: which may serve, and why others may not.

A replica is checked against the checksums in its file, what the file says of itself against the
catalog, and the source against the identity whose bytes it was compared with. So a replica whose
file was touched (chmod, a restored backup, ``cp -a``) is stamped with its new identity and serves
again, and one whose source was touched is compared with it byte by byte first.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sds.catalog.publications import WATCHED_STATES
from sds.catalog.records import ReplicaState
from sds.catalog.replicas import SERVING_STATES
from sds.errors import NotFoundError, SdsError, UnreachableError
from sds.hdf5.identity import identity_of, settled_identity, trusted_directories
from sds.home import damage_report
from sds.mounts import look_at
from sds.server.operations import stages
from sds.server.operations.publisher import (
    contradiction,
    current_identity,
    current_source,
    identity_changed_only,
    outdated,
    written_by_others,
)
from sds.server.operations.replica_reports import ReplicaCheck

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sds.catalog.replica_records import ReplicaRecord
    from sds.catalog.store import Store
    from sds.hdf5.identity import FileIdentity
    from sds.home import Home
    from sds.organizer.replica_file.replica import Replica
    from sds.organizer.verify import VerificationReport
    from sds.server.operations.publisher import Publisher
    from sds.server.operations.spool import Spool
    from sds.server.operations.stages import Progress, Runner

log = logging.getLogger(__name__)

_DAY_NS = 86_400_000_000_000
_LISTED_AT_ONCE = 256


class Verifier:
    """Verifies the replicas of one home, and publishes what follows from it."""

    def __init__(self, home: Home, store: Store, publisher: Publisher, spool: Spool) -> None:
        self._home = home
        self._store = store
        self._publisher = publisher
        self._spool = spool
        # By when each was verified; those that are not listed were verified later.
        self._longest_ago: deque[tuple[int, int | None]] = deque()
        self._next_due_ns = 0.0
        self._touched: dict[int, None] = {}  # ids, the first noted first

    def note_touched(self, replica_id: int) -> bool:
        """Queue a replica for `verify_due`: its file or its source was touched.

        Returns
        -------
        Whether that is news.
        """
        is_news = replica_id not in self._touched
        self._touched[replica_id] = None
        return is_news

    def verify(
        self,
        records: Sequence[ReplicaRecord],
        run: Runner,
        progress: Progress,
        *,
        quietly: bool = False,
    ) -> tuple[ReplicaCheck, ...]:
        """Verify replicas, and give each the state that follows; what is gone stays gone.

        `quietly`: no one waits for it.
        """
        for record in records:
            damage_report(self._home, record.id).unlink(missing_ok=True)
        silent = {}
        present = []
        trusted = trusted_directories(self._home)
        for record in records:
            try:
                if record.state in WATCHED_STATES:  # it is read for nothing if its source is silent
                    current_source(record.file, trusted)
                if look_at(record.path, Path(record.path).is_file):
                    present.append(record)
            except OSError as error:
                silent[record.id] = _not_verified(record, error)
        paths = tuple(Path(record.path) for record in present)
        check = stages.check_quietly if quietly else stages.check
        found = run(check, paths, callbacks={"progress": progress}) if paths else ()
        by_id = {record.id: report for record, report in zip(present, found, strict=True)}
        return tuple(
            silent.get(record.id) or self._apply_report(record, by_id.get(record.id), run)
            for record in records
        )

    def verify_due(self, run: Runner, *, interval_days: float) -> bool:
        """Verify what programs have reported, what was touched, or what was verified longest ago.

        Parameters
        ----------
        interval_days
            After which a replica is verified again; 0: never.

        Returns
        -------
        Whether there was anything.
        """
        records = [record for record in self._reported() if record.state in WATCHED_STATES]
        if not records:
            due = self._next_touched() or self._next_due(interval_days)
            records = [] if due is None else [due]
        for record in records:
            try:
                (check,) = self.verify((record,), run, lambda *_: None, quietly=True)
            except (SdsError, OSError) as error:
                problem = str(error)
            else:  # one that was judged has another state, or its time was noted
                problem = check.problem if check.replica is record else ""
            if problem:
                log.warning("replica %s could not be verified: %s", record.id, problem)
                self._store.note_verified(record.id)  # its turn comes again
        return bool(records)

    def _next_touched(self) -> ReplicaRecord | None:
        """Return the first that was touched, and not verified since; None where there is none."""
        for replica_id in [*self._touched]:  # others are noted meanwhile
            del self._touched[replica_id]
            record = self._store.replica(replica_id)
            with suppress(OSError):  # noted again once it can be looked at
                if record.state in WATCHED_STATES and wants_verification(self._home, record):
                    return record
        return None

    def _next_due(self, interval_days: float) -> ReplicaRecord | None:
        """Return the replica that is due for longest; None where none is.

        The catalog is searched once for many of them, and then not before the next one is due:
        every change within this process only puts that off.
        """
        now_ns = time.time_ns()
        while now_ns >= self._next_due_ns:
            if not self._longest_ago:
                self._longest_ago.extend(self._store.verified_longest_ago(_LISTED_AT_ONCE))
            if not self._longest_ago:
                self._next_due_ns = _due_ns(now_ns, interval_days)
                return None
            replica_id, verified_ns = self._longest_ago.popleft()
            if now_ns < (due_ns := _due_ns(verified_ns, interval_days)):
                self._longest_ago.clear()
                self._next_due_ns = due_ns
                return None
            record = self._store.replica(replica_id)
            if record.state in SERVING_STATES and record.verified_ns == verified_ns:
                return record
        return None

    def _reported(self) -> list[ReplicaRecord]:
        """Return the replicas that programs found damaged, their reports removed."""
        records = []
        for path in sorted(self._spool.damage_reports()):
            try:
                path.unlink(missing_ok=True)
                records.append(self._store.replica(int(path.stem)))
            except (ValueError, NotFoundError):
                log.warning("%s names no replica", path)
                continue
            except OSError as error:
                log.warning("%s is no report of a program: %s", path, error)
                continue
            log.warning("a program found replica %s damaged", path.stem)
        return records

    def _apply_report(
        self, record: ReplicaRecord, report: VerificationReport | None, run: Runner
    ) -> ReplicaCheck:
        """Give a replica the state that a report on its file asks for, if its source answers."""
        try:
            return self._transition(record, report, run)
        except UnreachableError as error:
            return _not_verified(record, error)

    def _transition(
        self, record: ReplicaRecord, report: VerificationReport | None, run: Runner
    ) -> ReplicaCheck:
        if report is None:
            return self._out_of_service(
                record, ReplicaState.RETIRED, f"its file {record.path} is gone"
            )
        problem = "; ".join(report.problems)
        if report.replica is not None:
            problem = problem or contradiction(record, report.replica)
            problem = problem or _change_meanwhile(record, report.replica)
        if problem or report.replica is None:
            return self._out_of_service(record, ReplicaState.DAMAGED, problem)
        if record.state not in WATCHED_STATES:
            return ReplicaCheck(replica=record, ok=True, problem="")
        source = self._source_identity(record, report.replica, run)
        if isinstance(source, str):
            return self._out_of_service(record, ReplicaState.RETIRED, source)
        if problem := written_by_others(record):
            return self._out_of_service(record, ReplicaState.DAMAGED, problem)
        return self._in_service(record, replace(report.replica, source_identity=source))

    def _source_identity(
        self, record: ReplicaRecord, found: Replica, run: Runner
    ) -> FileIdentity | str:
        """Return the source's identity where it holds what the replica does, else why it does not.

        A source that was touched is compared byte by byte.
        """
        now = current_source(record.file, trusted_directories(self._home))
        compared = _compared_with(record, found)
        if now == compared:
            return compared
        reason = outdated(replace(record, source_identity=compared), now)
        if reason or now is None:
            return reason
        try:
            identity, report = run(
                stages.compare, found, self._home.root, callbacks={"progress": lambda *_: None}
            )
        except (SdsError, OSError) as error:
            return f"its source changed and could not be compared: {error}"
        return identity if report.ok else f"its source changed: {'; '.join(report.problems)}"

    def _in_service(self, record: ReplicaRecord, found: Replica) -> ReplicaCheck:
        """Stamp a sound replica with what it and its source are now, and let it serve."""
        reasons = []
        if record.state is ReplicaState.DAMAGED:
            reasons.append("every block matches its checksum again")
        if record.replica is None or record.replica.identity != found.identity:
            reasons.append("its file was touched, not changed: every block matches its checksum")
        if record.source_identity != found.source_identity:
            reasons.append("its source was touched, not changed: every byte was compared again")
        if reasons:
            state = ReplicaState.SHADOW if record.in_shadow else ReplicaState.ACTIVE
            if record.state is ReplicaState.VERIFIED:
                state = record.state
            reason = "; ".join(reasons)
            record = self._store.set_replica(record.id, state, reason, replica=found)
            log.info("replica %s is %s: %s", record.id, record.state, record.reason)
            self._publisher.publish(record.file)
        else:
            self._store.note_verified(record.id)
        return ReplicaCheck(replica=record, ok=True, problem="")

    def _out_of_service(
        self, record: ReplicaRecord, state: ReplicaState, problem: str
    ) -> ReplicaCheck:
        """Stop serving a replica; its file is looked at again when it changes once more."""
        if record.state not in WATCHED_STATES:
            return ReplicaCheck(replica=record, ok=False, problem=problem)
        stamped = record.replica
        now = current_identity(record.path)
        if stamped is not None and now is not None:
            stamped = replace(stamped, identity=now)
        if (record.state, record.reason, record.replica) != (state, problem, stamped):
            record = self._store.set_replica(record.id, state, problem, replica=stamped)
            if record.state is not state:  # it went while it was read
                return ReplicaCheck(replica=record, ok=True, problem="")
            log.warning("replica %s is %s from now on: %s", record.id, state, problem)
        self._publisher.publish(record.file)
        return ReplicaCheck(replica=record, ok=False, problem=problem)


def _not_verified(record: ReplicaRecord, error: OSError) -> ReplicaCheck:
    """Return the check of a replica that stays as it is: it, or its source, cannot be looked at."""
    return ReplicaCheck(replica=record, ok=False, problem=f"not verified: {error}", verified=False)


def _due_ns(verified_ns: int | None, interval_days: float) -> float:
    """Return when a replica is to be verified again, after an interval; 0: never."""
    if verified_ns is None:
        return 0
    return verified_ns + interval_days * _DAY_NS if interval_days else math.inf


def wants_verification(home: Home, record: ReplicaRecord) -> bool:
    """Return whether the file of a replica, or its source, was touched since it was verified."""
    if record.replica is None:
        return False
    if record.replica.identity != current_identity(record.path):
        return True
    serves = record.state is not ReplicaState.DAMAGED
    return serves and identity_changed_only(
        record, current_source(record.file, trusted_directories(home))
    )


def _compared_with(record: ReplicaRecord, found: Replica) -> FileIdentity:
    """Return the identity of the source when a replica's bytes were compared with it last.

    The catalog knows of a later comparison than the file, if the file is still the one compared.
    """
    known = record.replica
    if known is None:
        return found.source_identity
    same = replace(known, identity=found.identity, source_identity=found.source_identity) == found
    return record.source_identity if same else found.source_identity


def _change_meanwhile(record: ReplicaRecord, found: Replica) -> str:
    """Return how a file changed while it was verified; empty where it did not."""
    known = record.replica
    try:
        if known is not None and known.identity == found.identity:
            now = identity_of(found.path)
        else:
            # Of the replica it counts how old its times are, not which file system holds it.
            now = settled_identity(found.path, trusted=(found.path.parent.resolve(),))
    except SdsError as error:
        return str(error)
    changed = found.identity.difference(now)
    return f"{found.path} changed while it was verified ({changed})" if changed else ""
