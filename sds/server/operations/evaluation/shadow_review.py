"""Ends of shadow tests: what is measured faster serves all of its reads, what is not goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sds.analyzer.shadow import ShadowOutcome, shadow_result
from sds.catalog.records import ReplicaState

if TYPE_CHECKING:
    from sds.analyzer.shadow import ShadowResult
    from sds.catalog.replica_records import ReplicaRecord
    from sds.catalog.store import Store
    from sds.server.operations.builder import Builder
    from sds.server.operations.publisher import Publisher

_STATES = {
    ShadowOutcome.FASTER: ReplicaState.ACTIVE,
    ShadowOutcome.NOT_FASTER: ReplicaState.REVERTED,
}


class ShadowReviewer:
    """Looks at the replicas in shadow of one home."""

    def __init__(self, store: Store, publisher: Publisher, builder: Builder) -> None:
        self._store = store
        self._publisher = publisher
        self._builder = builder

    def review(self) -> tuple[ReplicaRecord, ...]:
        """Look at all replicas in shadow; return those whose test has ended, as they are now.

        What others have done to a replica meanwhile stands. One whose file may not be deleted
        serves no read all the same.
        """
        ended = []
        for record, test in self._store.shadow_tests():
            patterns = [one.pattern for one in self._store.patterns(record.file, record.dataset)]
            found = shadow_result(patterns, record.id, test)
            if found.outcome is not ShadowOutcome.OPEN:
                state, numbers = _STATES[found.outcome], _numbers(found)
                after = self._store.end_shadow(record.id, test, state, found.reason, numbers)
                ended += [] if after is None else [after]
            elif found.test != test:
                self._store.go_on_with_shadow(record.id, test, found.test)
        self._publisher.publish_each(sorted({record.file for record in ended}))
        for record in ended:
            if record.state is ReplicaState.REVERTED:
                self._builder.collect(record)
        return tuple(ended)


def _numbers(found: ShadowResult) -> dict[str, float]:
    """Return the numbers behind the end of a test."""
    return {"reads": float(found.n), "saved_s": found.saved_s, "error_s": found.error_s}
