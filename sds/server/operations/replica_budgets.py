"""Budgets of the replicas of one home: that of all, and those of policies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sds.catalog.records import PolicyRecord

if TYPE_CHECKING:
    from sds.catalog.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaBudget:
    """Space for replicas, and what they take of it.

    Attributes
    ----------
    policy
        Whose datasets it is of; None: of all.
    used_bytes
        On disk, as far as is known.
    """

    policy: PolicyRecord | None
    budget_bytes: int
    used_bytes: int

    @property
    def left_bytes(self) -> int:
        """Bytes that are left; negative where it is exceeded."""
        return self.budget_bytes - self.used_bytes

    @property
    def source(self) -> str:
        """The setting or policy that sets it, in words."""
        return "replica_budget_bytes" if self.policy is None else f"sds policy {self.policy.name}"

    def covers(self, file: str, dataset: str) -> bool:
        """Return whether it is of a dataset, by the canonical path of its file."""
        return self.policy is None or self.policy.covers(file, dataset)


def replica_budgets(
    store: Store, total_bytes: int | None, *, beside: str = ""
) -> tuple[ReplicaBudget, ...]:
    """Return the budgets that are set, that of all first; `beside`: a replica file not to count."""
    policies = [one for one in store.policies() if one.budget_bytes is not None]
    found = []
    if total_bytes is not None:
        used = store.bytes_beside(beside)
        found.append(ReplicaBudget(policy=None, budget_bytes=total_bytes, used_bytes=used))
    of_datasets = store.bytes_by_dataset(beside) if policies else {}
    for policy in policies:
        used = sum(size for (file, path), size in of_datasets.items() if policy.covers(file, path))
        budget = policy.budget_bytes or 0
        found.append(ReplicaBudget(policy=policy, budget_bytes=budget, used_bytes=used))
    return tuple(found)
