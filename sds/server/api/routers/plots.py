"""The data behind figures of models; `sds plot` draws the same."""

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from pydantic import TypeAdapter

from sds.catalog.records import AbsolutePath
from sds.plots import Kind
from sds.plots.figure_values import (
    DATA_OF,
    Coefficient,
    CoefficientData,
    FigureData,
    predicted_data,
    residual_data,
    speedup_data,
)
from sds.plots.heldout_reads import Evidence, Origin, Provenance
from sds.recommender.models.cost_model import CacheState, Via
from sds.server.api.dependencies import call, check_paths

router = APIRouter(prefix="/plots", tags=["plots"])


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureQuery:
    """The reads and the model of a figure; see `Service.plot`."""

    path: str | None
    via: Via
    cache: CacheState | None
    model: str | None


def _figure_query(
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
) -> FigureQuery:
    check_paths({"path": path})
    return FigureQuery(path=path, via=via, cache=cache, model=model)


_ABOUT = Provenance(
    origin=Origin.MEASURED,
    subject="/scratch (lustre), HDF5, cold cache",
    model="eq4, block gap distance, relative",
    held_out="each pattern in each layout predicted by a fit to the others",
)
_EVIDENCE = Evidence(
    about=_ABOUT,
    patterns=("line along 0", "line along 0"),
    layouts=("0,1,2", "2,0,1"),
    observed_s=(2.0, 0.05),
    predicted_s=(2.5, 0.04),
    interval_log=0.49,
)
_TERM = Coefficient(
    term="BD",
    unit="s/block",
    coefficient=1.6e-6,
    low=1.2e-6,
    high=2.1e-6,
    p_value=1e-9,
    dropped=False,
)
_EXAMPLES: dict[Kind, FigureData] = {
    Kind.PREDICTED: predicted_data(_EVIDENCE),
    Kind.RESIDUALS: residual_data(_EVIDENCE),
    Kind.SPEEDUPS: speedup_data(_EVIDENCE),
    Kind.COEFFICIENTS: CoefficientData(
        about=_ABOUT,
        weighting="relative",
        n_reads=120,
        r_squared=0.97,
        r_squared_adjusted=0.969,
        terms=(_TERM,),
    ),
}
_TEXTS = {
    Kind.PREDICTED: "Return predicted beside measured times with 95 % prediction intervals, "
    "one per read.",
    Kind.RESIDUALS: "Return logarithms of measured over predicted times, by read and by pattern.",
    Kind.SPEEDUPS: "Return speed-ups over the original layout, measured and predicted.",
    Kind.COEFFICIENTS: "Return the terms of a model with confidence intervals and p-values.",
}


def _add_figure(kind: Kind) -> None:
    """Add the route of a figure, with an example of its data."""

    def figure(
        request: Request, query: Annotated[FigureQuery, Depends(_figure_query)]
    ) -> FigureData:
        path = query.path
        if path is not None:
            path = call(request, "mount_point", {"path": path}, opens_files=True)
        given = {"path": path, "via": query.via, "cache": query.cache, "model": query.model}
        found: FigureData = call(request, "plot", {"kind": kind, **given}, opens_files=False)
        return found

    example: dict[str, Any] = TypeAdapter(DATA_OF[kind]).dump_python(_EXAMPLES[kind], mode="json")
    router.add_api_route(
        f"/{kind}",
        figure,
        methods=["GET"],
        name=kind,
        description=_TEXTS[kind],
        response_model=DATA_OF[kind],
        responses={200: {"content": {"application/json": {"example": example}}}},
    )


for _kind in Kind:
    _add_figure(_kind)
