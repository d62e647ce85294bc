"""Rates at which replicas are built, by the builds that the catalog knows."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import TYPE_CHECKING

from sds.errors import UnreachableError
from sds.mounts import filesystem_of
from sds.recommender.candidates.replica_cost import BUILD_START_S, BuildRates

if TYPE_CHECKING:
    from sds.catalog.replica_records import ReplicaRecord
    from sds.catalog.store import Store

_BUILDS_LOOKED_AT = 100
_BUILDS_COUNTED = 9  # of a kind; the median of as many
_LEAST_S = 5 * BUILD_START_S
"""Builds that took less say more of how they begin than of a rate."""


def measured_build_rates(store: Store, file: str | Path) -> BuildRates:
    """Return the rates of the newest builds of sources on a file's file system.

    Of a kind of which none is known, or of a file system that does not answer, the built-in rate.
    """
    measured: dict[str, list[float]] = {"plain": [], "filtered": [], "of_rows": []}
    place = _mount_point(file)
    for record in store.newest_builds(_BUILDS_LOOKED_AT) if place is not None else ():
        of_kind = measured[_kind(record)]
        seconds = record.build_s or 0.0
        # Tiles take the time in which their source is read.
        says_little = seconds < _LEAST_S or record.segments is not None
        if says_little or len(of_kind) == _BUILDS_COUNTED:
            continue
        if _mount_point(record.file) == place:
            of_kind.append(record.size_bytes / (seconds - BUILD_START_S))
    return BuildRates(
        **{kind: statistics.median(rates) for kind, rates in measured.items() if rates}
    )


def _kind(record: ReplicaRecord) -> str:
    """Return the rate of `BuildRates` that a build counts for."""
    if record.sort is not None:
        return "of_rows"
    of_source = record.replica is not None and record.replica.source_decode_s_per_byte > 0
    return "filtered" if record.filters or of_source else "plain"


def _mount_point(file: str | Path) -> Path | None:
    try:
        return filesystem_of(Path(file)).mount_point
    except UnreachableError:
        return None
