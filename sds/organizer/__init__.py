"""Reorganized copies of datasets: planned, built, compared with the original, published."""

from sds.organizer.plan import ReorganizationPlan, ReorganizationRequest, Source
from sds.organizer.protocol import Organizer, find_organizers, load_organizer
from sds.organizer.replica import Replica

__all__ = [
    "Organizer",
    "ReorganizationPlan",
    "ReorganizationRequest",
    "Replica",
    "Source",
    "find_organizers",
    "load_organizer",
]
