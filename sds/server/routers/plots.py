"""The data behind figures of models; `sds plot` draws the same."""

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query

from sds.catalog.records import AbsolutePath
from sds.plots import examples
from sds.plots.kinds import Kind
from sds.plots.values import (
    CoefficientData,
    FigureData,
    PredictedData,
    ResidualData,
    SpeedupData,
)
from sds.recommender.model import CacheState, Via
from sds.server.dependencies import AskOf, ServiceOf, check_path
from sds.server.service import Service

router = APIRouter(prefix="/plots", tags=["plots"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Which reads, and which model; see `Service.plot`."""

    path: str | None
    via: Via
    cache: CacheState | None
    model: str | None


def _question(
    path: Annotated[
        AbsolutePath | None,
        Query(
            description="absolute path on a calibrated file system; may be left out where there "
            "is but one",
            examples=["/scratch"],
        ),
    ] = None,
    via: Annotated[Via, Query(description="through HDF5, or by the read engine")] = Via.HDF5,
    cache: Annotated[
        CacheState | None, Query(description="cold, or warm where there are no cold reads")
    ] = None,
    model: Annotated[
        str | None,
        Query(description="name of a model that was tried; the chosen one", examples=["service"]),
    ] = None,
) -> Question:
    if path is not None:
        check_path("path", path)
    return Question(path=path, via=via, cache=cache, model=model)


Asked = Annotated[Question, Depends(_question)]


def _example(kind: Kind) -> dict[int | str, dict[str, Any]]:
    """Return the example of an answer, as OpenAPI has it."""
    return {200: {"content": {"application/json": {"example": examples.of(kind)}}}}


def _data(service: ServiceOf, ask: AskOf, kind: Kind, asked: Question) -> FigureData:
    path = None if asked.path is None else ask(Service.mount_point, asked.path)
    return service.plot(kind, path, via=asked.via, cache=asked.cache, model=asked.model)


@router.get("/predicted", responses=_example(Kind.PREDICTED), response_model=PredictedData)
def predicted(service: ServiceOf, ask: AskOf, asked: Asked) -> FigureData:
    """Return predicted beside measured times with 95 % prediction intervals, one per read."""
    return _data(service, ask, Kind.PREDICTED, asked)


@router.get("/residuals", responses=_example(Kind.RESIDUALS), response_model=ResidualData)
def residuals(service: ServiceOf, ask: AskOf, asked: Asked) -> FigureData:
    """Return logarithms of measured over predicted times, by read and by pattern."""
    return _data(service, ask, Kind.RESIDUALS, asked)


@router.get("/speedups", responses=_example(Kind.SPEEDUPS), response_model=SpeedupData)
def speedups(service: ServiceOf, ask: AskOf, asked: Asked) -> FigureData:
    """Return speed-ups over the original layout, measured and predicted."""
    return _data(service, ask, Kind.SPEEDUPS, asked)


@router.get("/coefficients", responses=_example(Kind.COEFFICIENTS), response_model=CoefficientData)
def coefficients(service: ServiceOf, ask: AskOf, asked: Asked) -> FigureData:
    """Return the terms of a model with confidence intervals and p-values."""
    return _data(service, ask, Kind.COEFFICIENTS, asked)
