"""Which models a redirect table carries, so that the connector's choice is a safe one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sds.recommender.model import CostModel, Via, builtin_model

if TYPE_CHECKING:
    from sds.recommender.calibration import Calibration

# Uncalibrated, a replica must be predicted cheaper by this factor before it serves a read.
UNCALIBRATED_MARGIN = 1.25


def models_for_table(calibration: Calibration | None) -> tuple[CostModel, CostModel]:
    """Return the models of the original through HDF5 and of a replica through the engine.

    Parameters
    ----------
    calibration
        Of the file system that holds both; None where there is none.

    Notes
    -----
    Two predictions are compared, so both must come from one measurement: the calibrated cold
    models where both ways were fitted, else the built-in model for both. Cold, because no one
    knows what is cached, and a wrong choice costs most when nothing is.

    The built-in model charges a replica `UNCALIBRATED_MARGIN` times as much, so that among
    layouts that it cannot tell apart the original serves the read.
    """
    if calibration is not None:
        original = calibration.chosen_model(via=Via.HDF5)
        replica = calibration.chosen_model(via=Via.ENGINE)
        if original is not None and replica is not None:
            return original, replica
    original = builtin_model(via=Via.HDF5)
    replica = builtin_model(via=Via.ENGINE)
    return original, replace(
        replica,
        coefficients=tuple(c * UNCALIBRATED_MARGIN for c in replica.coefficients),
        floor_s=replica.floor_s * UNCALIBRATED_MARGIN,
    )
