"""A small example of the data of each figure, for the description of the REST interface."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from sds.plots.data import predicted_data, residual_data, speedup_data
from sds.plots.evidence import Evidence, Origin, Provenance
from sds.plots.kinds import Kind
from sds.plots.values import (
    DATA_OF,
    Coefficient,
    CoefficientData,
    FigureData,
)

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
    log_error=0.25,
)


def of(kind: Kind) -> dict[str, Any]:
    """Return the example of a figure as JSON."""
    data: FigureData
    match kind:
        case Kind.PREDICTED:
            data = predicted_data(_EVIDENCE)
        case Kind.RESIDUALS:
            data = residual_data(_EVIDENCE)
        case Kind.SPEEDUPS:
            data = speedup_data(_EVIDENCE)
        case Kind.COEFFICIENTS:
            data = CoefficientData(
                about=_ABOUT,
                weighting="relative",
                n_reads=120,
                r_squared=0.97,
                r_squared_adjusted=0.969,
                terms=(
                    Coefficient(
                        term="BD",
                        unit="s/block",
                        coefficient=1.6e-6,
                        low=1.2e-6,
                        high=2.1e-6,
                        p_value=1e-9,
                        dropped=False,
                    ),
                ),
            )
    example: dict[str, Any] = TypeAdapter(DATA_OF[kind]).dump_python(data, mode="json")
    return example
