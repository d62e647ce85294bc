"""Answers about replicas: pages of them, and what verifying and collecting found."""

from __future__ import annotations

from dataclasses import dataclass

from sds.catalog.replica_records import ReplicaRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaCheck:
    """Check of one replica: whether it holds what was written into it.

    Attributes
    ----------
    problem
        What is wrong with it; empty where nothing is.
    verified
        False where it, or its source, could not be looked at: it stays as it is.
    """

    replica: ReplicaRecord
    ok: bool
    problem: str
    verified: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """Checks of replicas; ``ok`` where all passed."""

    ok: bool
    checks: tuple[ReplicaCheck, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GarbageReport:
    """Replicas and spool files that were of no further use, and were retired or removed."""

    replicas_retired: tuple[ReplicaRecord, ...]
    spool_files_removed: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """Replicas, oldest first: a page of them.

    Attributes
    ----------
    total
        How many there are on all pages.
    next
        Where the next page begins: its ``after``; None: this is the last page.
    """

    replicas: tuple[ReplicaRecord, ...]
    total: int
    next: int | None
