"""Answers about replicas: pages of them, and what verifying and collecting found."""

from __future__ import annotations

from dataclasses import dataclass

from sds.analyzer.gains import ReplicaGain
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSavings:
    """Time that one replica saved and cost.

    Attributes
    ----------
    gain
        Of its traced reads, as measured.
    saved_s_per_day
        What it saves of the reads of a day, as measured, seconds; None where nothing is known, and
        of one that is gone.
    paid_back_in_days
        After which it will have saved what its build took; 0 where it has. None where nothing is
        known of either, and where it saves nothing or is gone.
    """

    replica: ReplicaRecord
    gain: ReplicaGain
    saved_s_per_day: float | None
    paid_back_in_days: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Savings:
    """Time that all replicas of some datasets saved and cost, those that are gone among them.

    Attributes
    ----------
    saved_s, saved_low_s, saved_high_s
        Sum of what is known, seconds, and the interval that holds it in 19 of 20 cases; None where
        nothing is known.
    build_s
        Of all builds, seconds.
    gone_build_s, gone_saved_s
        Of it what was spent on replicas that are gone (reverted, removed, or of a source that
        changed), and what these had saved; below zero where they cost time.
    replicas
        Those that were built, or served reads, oldest first.
    """

    saved_s: float | None
    saved_low_s: float | None
    saved_high_s: float | None
    build_s: float
    gone_build_s: float
    gone_saved_s: float
    replicas: tuple[ReplicaSavings, ...]
