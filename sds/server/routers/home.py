"""The home as a whole: its state, what happened in it, what was measured."""

from typing import Annotated

from fastapi import APIRouter, Query

from sds.server.dependencies import ServiceOf
from sds.server.reports import Calibrations, Events, Status

router = APIRouter(tags=["home"])


@router.get("/status")
def status(service: ServiceOf) -> Status:
    """Return the state of the home."""
    return service.status()


@router.get("/events")
def events(service: ServiceOf, limit: Annotated[int, Query(ge=1, le=10_000)] = 100) -> Events:
    """Return what happened last, newest first."""
    return Events(events=service.events(limit))


@router.get("/calibrations")
def calibrations(service: ServiceOf) -> Calibrations:
    """Return the newest calibration of each file system."""
    return Calibrations(calibrations=service.calibrations(), notes=service.calibration_notes())
