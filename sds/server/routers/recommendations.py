"""Advice: given on demand, and kept."""

from fastapi import APIRouter

from sds.geometry import SegmentList
from sds.recommender import WhatIf
from sds.server.dependencies import OPERATE, READ, ServiceOf, require_absolute
from sds.server.reports import (
    Advice,
    AdviceRequest,
    PortfolioAdvice,
    PortfolioRequest,
    QueriedTable,
    Queries,
    QueryAdvice,
    Recommendations,
    RecurringTiles,
    WhatIfRequest,
)

router = APIRouter(tags=["recommendations"])


@router.get("/recommendations", dependencies=READ)
def recommendations(
    service: ServiceOf, file: str | None = None, dataset: str | None = None
) -> Recommendations:
    """Return the newest advice that was given for each dataset."""
    return Recommendations(recommendations=service.recommendations(file, dataset))


@router.get("/queries", dependencies=READ)
def queries(service: ServiceOf, file: str | None = None, table: str | None = None) -> Queries:
    """Return the newest advice that was given on sorting each table for queries."""
    return Queries(queries=service.query_recommendations(file, table))


@router.post("/advise", dependencies=OPERATE)
def advise(service: ServiceOf, request: AdviceRequest) -> Advice:
    """Return recommendations for a dataset, or for each dataset of a file that was read."""
    require_absolute(request)
    return service.advise(
        request.file, request.dataset, selection=request.selection, n_reads=request.n_reads
    )


@router.post("/advise/queries", dependencies=OPERATE)
def advise_queries(service: ServiceOf, request: QueriedTable) -> QueryAdvice:
    """Return what each sorted replica of a table would save of stated queries, by itself."""
    require_absolute(request)
    return service.advise_queries(request)


@router.post("/portfolio", dependencies=OPERATE)
def portfolio(service: ServiceOf, request: PortfolioRequest) -> PortfolioAdvice:
    """Return the replicas to build, of several datasets and tables, under one budget of space."""
    for name in (*request.datasets, *request.tables):
        require_absolute(name)
    return service.portfolio(request)


@router.post("/what-if", dependencies=OPERATE)
def what_if(service: ServiceOf, request: WhatIfRequest) -> WhatIf:
    """Return what reads would take with a layout that does not exist, or without one that does."""
    require_absolute(request)
    return service.what_if(request)


@router.post("/recurring", dependencies=OPERATE)
def recurring(service: ServiceOf, request: RecurringTiles) -> SegmentList:
    """Return the tiles of a dataset that are read again and again, in segments.

    They are what a job ``reorganize`` takes as ``segments``.
    """
    require_absolute(request)
    return service.recurring(request)
