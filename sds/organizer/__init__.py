"""Build replicas: plan, copy, compare with the original, publish."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sds.organizer.build import plan_reorganization, plan_sorting, reorganize, replica_path
    from sds.organizer.journal import recover
    from sds.organizer.plans.reorganization_plan import (
        ReorganizationPlan,
        ReorganizationRequest,
        Source,
    )
    from sds.organizer.plans.segment_plan import SegmentPlan
    from sds.organizer.plans.sort_plan import SortPlan
    from sds.organizer.progress import Progress
    from sds.organizer.protocol import Organizer, find_organizers, load_organizer
    from sds.organizer.replica_file.replica import Replica, describe_replica
    from sds.organizer.verify import VerificationReport, verify_replica

__all__ = [
    "Organizer",
    "Progress",
    "ReorganizationPlan",
    "ReorganizationRequest",
    "Replica",
    "SegmentPlan",
    "SortPlan",
    "Source",
    "VerificationReport",
    "describe_replica",
    "find_organizers",
    "load_organizer",
    "plan_reorganization",
    "plan_sorting",
    "recover",
    "reorganize",
    "replica_path",
    "verify_replica",
]

_OWNERS = {
    "sds.organizer.build": ("plan_reorganization", "plan_sorting", "reorganize", "replica_path"),
    "sds.organizer.journal": ("recover",),
    "sds.organizer.plans.reorganization_plan": (
        "ReorganizationPlan",
        "ReorganizationRequest",
        "Source",
    ),
    "sds.organizer.plans.segment_plan": ("SegmentPlan",),
    "sds.organizer.plans.sort_plan": ("SortPlan",),
    "sds.organizer.progress": ("Progress",),
    "sds.organizer.protocol": ("Organizer", "find_organizers", "load_organizer"),
    "sds.organizer.replica_file.replica": ("Replica", "describe_replica"),
    "sds.organizer.verify": ("VerificationReport", "verify_replica"),
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used: replica records need none of the builders."""
    for module, names in _OWNERS.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(name)
