"""Reorganized copies of datasets: planned, built, compared with the original, published."""

from sds.organizer.build import plan_reorganization, plan_sorting, reorganize, replica_path
from sds.organizer.journal import recover
from sds.organizer.plan import ReorganizationPlan, ReorganizationRequest, Source
from sds.organizer.protocol import Organizer, Progress, find_organizers, load_organizer
from sds.organizer.replica import Replica, describe_replica
from sds.organizer.segment_plan import SegmentPlan
from sds.organizer.sort_plan import SortPlan
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
