"""Advice: given on demand, and kept."""

from fastapi import APIRouter

from sds.geometry import SegmentList
from sds.recommender import WhatIf
from sds.server.dependencies import About, AskOf, FileName, require_absolute
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
from sds.server.service import Service

router = APIRouter(tags=["recommendations"])


@router.get("/recommendations")
def recommendations(
    about: About, file: FileName = None, dataset: str | None = None
) -> Recommendations:
    """Return the newest advice that was given for each dataset."""
    return Recommendations(recommendations=about(Service.recommendations, file, dataset))


@router.get("/queries")
def queries(about: About, file: FileName = None, table: str | None = None) -> Queries:
    """Return the newest advice that was given on sorting each table for queries."""
    return Queries(queries=about(Service.query_recommendations, file, table))


@router.post("/advise")
def advise(ask: AskOf, request: AdviceRequest) -> Advice:
    """Return recommendations for a dataset, or for each dataset of a file that was read."""
    require_absolute(request)
    return ask(
        Service.advise,
        request.file,
        request.dataset,
        selection=request.selection,
        n_reads=request.n_reads,
    )


@router.post("/advise/queries")
def advise_queries(ask: AskOf, request: QueriedTable) -> QueryAdvice:
    """Return what each sorted replica of a table would save of stated queries, by itself."""
    require_absolute(request)
    return ask(Service.advise_queries, request)


@router.post("/portfolio")
def portfolio(ask: AskOf, request: PortfolioRequest) -> PortfolioAdvice:
    """Return the replicas to build, of several datasets and tables, under one budget of space."""
    for name in (*request.datasets, *request.tables):
        require_absolute(name)
    return ask(Service.portfolio, request)


@router.post("/what-if")
def what_if(ask: AskOf, request: WhatIfRequest) -> WhatIf:
    """Return what reads would take with a layout that does not exist, or without one that does."""
    require_absolute(request)
    return ask(Service.what_if, request)


@router.post("/recurring")
def recurring(ask: AskOf, request: RecurringTiles) -> SegmentList:
    """Return the tiles of a dataset that are read again and again, in segments.

    They are what a job ``reorganize`` takes as ``segments``.
    """
    require_absolute(request)
    return ask(Service.recurring, request)
