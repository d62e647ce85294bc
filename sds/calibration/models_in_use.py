"""Models that compare a dataset with its replicas: in advice, and in a redirect table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sds.recommender.models.cost_model import Via, builtin_models, serving_margin

if TYPE_CHECKING:
    from sds.calibration.results import Calibration
    from sds.recommender.models.cost_model import CostModel


def comparable_models(calibration: Calibration | None) -> tuple[CostModel, CostModel]:
    """Return the models of the original through HDF5 and of a replica through the engine.

    Parameters
    ----------
    calibration
        Of the file system that holds both; None where there is none.

    Notes
    -----
    Two predictions are compared, so both come from one measurement: the calibrated cold equations
    with the least held-out error, where both ways were measured; else the built-in model for both.
    Cold, because no one knows what is cached, and a wrong choice costs most when nothing is.
    Equations, because the connector computes them: what is advised is what will be served.
    """
    if calibration is not None:
        original = calibration.chosen_model(via=Via.HDF5)
        replica = calibration.chosen_model(via=Via.ENGINE)
        if original is not None and replica is not None:
            return original, replica
    return builtin_models()


def models_for_table(
    calibration: Calibration | None, *, chunked: bool = False
) -> tuple[CostModel, CostModel]:
    """Return the models that a redirect table carries for the original and for each replica.

    Parameters
    ----------
    calibration
        Of the file system that holds both; None where there is none.
    chunked
        Whether the replica is stored in chunks: HDF5 reads it, not the engine.

    Notes
    -----
    They are `comparable_models`, with every cost of the replica raised by the `serving_margin`:
    among layouts that the models cannot tell apart the original serves.
    """
    original, replica = comparable_models(calibration)
    if chunked:
        replica = original
    margin = serving_margin(original, replica)
    return original, replace(
        replica,
        coefficients=tuple(c * margin for c in replica.coefficients),
        floor_s=replica.floor_s * margin,
    )
