"""Collective I/O of MPI programs: two phases, in iterations that keep aggregators of an OST apart.

Needs the extra ``mpi``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from sds.extras import missing_extra
from sds.organizer.collective.collective_settings import CollectiveSettings, Order
from sds.organizer.collective.partition import Partition

if TYPE_CHECKING:
    from sds.organizer.collective.two_phase import CollectiveReport, read_all, write_all

__all__ = [
    "CollectiveReport",
    "CollectiveSettings",
    "Order",
    "Partition",
    "read_all",
    "write_all",
]


def __getattr__(name: str) -> object:
    """Import what needs MPI when it is first used: schedules are computed without."""
    if name not in {"CollectiveReport", "read_all", "write_all"}:
        raise AttributeError(name)
    try:
        module = importlib.import_module("sds.organizer.collective.two_phase")
    except ImportError as error:
        raise missing_extra(error) or error from None
    return getattr(module, name)
