"""Reads with the times that a model predicted for them without having seen them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Self

from sds.errors import NotFoundError, SdsValueError
from sds.recommender.models.cost_model import CacheState, CostModel, Via

if TYPE_CHECKING:
    from sds.calibration.results import Calibration, Measurement
    from sds.recommender.models.samples import Samples

# How a calibration names a read: its shape, and the copy of the array that it was read from.
_SHAPE_AND_COPY = re.compile(r"(?P<shape>.+), order_(?P<order>\d+(?:_\d+)*)")


class Origin(StrEnum):
    """Origin of times."""

    MEASURED = "measured"
    SIMULATED = "simulated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Provenance of a figure: its reads, its model and what was held out.

    Attributes
    ----------
    origin
        Whether the times that predictions are compared with were measured or simulated.
    subject
        What was read, and how.
    model
        How the model was fitted.
    held_out
        What the model had not seen when it predicted.
    """

    origin: Origin
    subject: str
    model: str
    held_out: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Reads, each with its time and its prediction: n of them, in the order they were made.

    Attributes
    ----------
    about
        What they are.
    patterns, layouts
        Of each read.
    observed_s
        Measured or simulated.
    predicted_s
        By a model that had not seen the read.
    interval_log
        Logarithm of the factor, up or down, that predictions are said to be within in 19 of 20
        cases.
    ratio_error
        Standard deviation of the logarithm of predicted over observed ratios of two layouts' times;
        None: what these reads show.
    """

    about: Provenance
    patterns: tuple[str, ...]
    layouts: tuple[str, ...]
    observed_s: tuple[float, ...]
    predicted_s: tuple[float, ...]
    interval_log: float
    ratio_error: float | None = None

    def __post_init__(self) -> None:
        for value in (self.interval_log, self.ratio_error):
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise SdsValueError(
                    f"an error of predictions of {value}: give the standard deviation of "
                    "held-out log ratios"
                )
        n = len(self.observed_s)
        lengths = len(self.patterns), len(self.layouts), len(self.predicted_s)
        if lengths != (n, n, n):
            raise SdsValueError(
                f"{n} observed times have {lengths[0]} patterns, {lengths[1]} layouts and "
                f"{lengths[2]} predictions: give one of each per read"
            )
        if n == 0:
            raise SdsValueError(
                f"{self.about.subject}: there are no reads to show; measure some first"
            )
        for i, times in enumerate(zip(self.observed_s, self.predicted_s, strict=True)):
            for what, seconds in zip(("took", "is predicted to take"), times, strict=True):
                if not (math.isfinite(seconds) and seconds > 0):
                    raise SdsValueError(
                        f"read {i} ({self.patterns[i]}, {self.layouts[i]}) {what} {seconds} s: "
                        "leave out reads whose times are not positive numbers"
                    )

    def __len__(self) -> int:
        return len(self.observed_s)

    @classmethod
    def of_measurement(
        cls, calibration: Calibration, measurement: Measurement, *, model: str | None = None
    ) -> Self:
        """Return what a calibration measured in one way, as one of its models predicts it.

        Parameters
        ----------
        calibration, measurement
            One of the calibration's measurements.
        model
            Name of a model that was tried; None: the chosen one.

        Raises
        ------
        NotFoundError
            If no model of that name was tried.
        SdsValueError
            If it could not be fitted.
        """
        name, fitted = equation_of(measurement, model)
        samples = _fitted_samples(measurement)
        patterns, layouts = _patterns_and_layouts(samples)
        return cls(
            about=provenance_of(calibration, measurement, name, fitted),
            patterns=patterns,
            layouts=layouts,
            observed_s=samples.seconds,
            predicted_s=_heldout_predictions(
                name,
                fitted,
                samples,
                without_processes=calibration.settings.without_processes,
            ),
            interval_log=fitted.interval_log,
        )


def measurement_of(
    calibration: Calibration, *, via: Via = Via.HDF5, cache: CacheState | None = None
) -> Measurement:
    """Return what a calibration measured in one way; cold where there is that, else warm.

    Raises
    ------
    NotFoundError
        If it did not measure that; it says what it did.
    """
    wanted = (CacheState.COLD, CacheState.WARM) if cache is None else (cache,)
    for state in wanted:
        found = calibration.measurement(via=via, cache=state)
        if found is not None:
            return found
    there = ", ".join(f"{m.via} {m.cache}" for m in calibration.measurements) or "nothing"
    raise NotFoundError(
        f"the calibration of {calibration.file_system.mount_point} has no reads {via} "
        f"{' or '.join(wanted)}; it has {there}"
    )


def equation_of(measurement: Measurement, name: str | None) -> tuple[str, CostModel]:
    """Return the equation of some name that was tried, and its name; None: the chosen one.

    Raises
    ------
    NotFoundError
        If none of that name was.
    SdsValueError
        If it could not be fitted.
    """
    fits = measurement.choice.trials
    names = [fit.name for fit in fits]
    if name not in {None, *names}:
        raise NotFoundError(f"no model {name!r} was tried; there are {'; '.join(names) or 'none'}")
    fit = fits[0 if name is None else names.index(name)]
    if fit.model is None:
        raise SdsValueError(f"{fit.name} could not be fitted ({fit.refused}); choose another model")
    return fit.name, fit.model


def provenance_of(
    calibration: Calibration, measurement: Measurement, name: str, model: CostModel
) -> Provenance:
    """Return what figures of predictions by a calibration's model are about."""
    system = calibration.file_system
    return Provenance(
        origin=Origin.MEASURED,
        subject=(
            f"{system.mount_point} ({system.kind}), {_VIA_NAMES[measurement.via]}, "
            f"{measurement.cache} cache"
        ),
        model=name,
        held_out=_held_out(model, measurement.samples),
    )


def _held_out(model: CostModel, samples: Samples) -> str:
    """Return what a model had not seen of the reads that it predicts."""
    if model.diagnostics is None:
        return "the built-in model saw none of the reads"
    # Where names of patterns tell the layout, patterns are left out in one layout at a time.
    what = "pattern" if samples.layouts else "pattern in each layout"
    return f"each {what} predicted by a fit to the others"


_VIA_NAMES = {Via.HDF5: "HDF5", Via.ENGINE: "read engine"}


def _fitted_samples(measurement: Measurement) -> Samples:
    """Return the reads that models were fitted to, those of few processes per OST first.

    Reads of one pattern from two layouts are then in the same order.
    """
    from sds.calibration.aggregate import aggregate  # noqa: PLC0415 - NumPy

    samples = aggregate(measurement.samples).samples
    return samples.take(sorted(range(len(samples)), key=lambda i: samples.p[i]))


def _heldout_predictions(
    name: str,
    model: CostModel,
    samples: Samples,
    *,
    without_processes: bool,
) -> tuple[float, ...]:
    """Return a prediction per read by a fit, made as the model's was, that had not seen it."""
    from sds.recommender.models.cross_validation import predict_heldout  # noqa: PLC0415 - likewise
    from sds.recommender.models.model_selection import fitters_for  # noqa: PLC0415 - statsmodels

    if model.diagnostics is None:
        return tuple(model.predict_many(samples.feature_matrix()).tolist())
    for equation in fitters_for(samples, without_processes=without_processes):
        if equation.name == name:
            return tuple(predict_heldout(equation, samples).tolist())
    raise SdsValueError(f"this version of SDS does not fit {name!r}: calibrate again")


def _patterns_and_layouts(samples: Samples) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of patterns and of layouts, separated."""
    if samples.layouts:
        return samples.patterns, samples.layouts
    patterns, layouts = [], []
    for name in samples.patterns:
        found = _SHAPE_AND_COPY.fullmatch(name)
        patterns.append(found["shape"] if found else name)
        layouts.append(found["order"].replace("_", ",") if found else "as stored")
    return tuple(patterns), tuple(layouts)
