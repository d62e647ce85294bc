"""Measured reads, and the models that were fitted to them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sds.errors import SdsValueError
from sds.geometry import BlockFeatures
from sds.recommender.model import CostModel, HeldoutError


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Measured reads: n of them, in patterns that recur.

    Attributes
    ----------
    patterns
        Name of each read's pattern; reads of one name are held out together.
    features
        Of the read that touches most, where several processes read at one time.
    processes_per_ost
        P of Liu 2014, Eq. 4.
    seconds
        Time of the operation: of the slowest process.
    """

    patterns: tuple[str, ...]
    features: tuple[BlockFeatures, ...]
    processes_per_ost: tuple[float, ...]
    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        n = len(self.seconds)
        if not len(self.patterns) == len(self.features) == len(self.processes_per_ost) == n:
            raise SdsValueError(
                f"samples differ in number: {len(self.patterns)} patterns, "
                f"{len(self.features)} features, {len(self.processes_per_ost)} process counts, "
                f"{n} times"
            )
        for i, seconds in enumerate(self.seconds):
            if not (math.isfinite(seconds) and seconds > 0.0):
                raise SdsValueError(
                    f"sample {i} ({self.patterns[i]}) took {seconds} s: leave out reads whose "
                    "time is not a positive number"
                )

    def __len__(self) -> int:
        return len(self.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One model that was tried.

    Attributes
    ----------
    name
        Equation, block gap and weighting.
    model
        None where it could not be fitted.
    refused
        Why it is not to be used; empty where it may be.
    """

    name: str
    model: CostModel | None
    refused: str = ""

    @property
    def heldout(self) -> HeldoutError | None:
        """Its held-out error; None where it could not be fitted."""
        return None if self.model is None else self.model.heldout


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChoice:
    """The models tried: those that may be used first, by their held-out error.

    Attributes
    ----------
    chosen
        The first, marked calibrated: never worse on held-out patterns than the built-in model,
        and that very model where no fit predicts better.
    trials
        All of them; those that could not be fitted last.
    """

    chosen: CostModel
    trials: tuple[Trial, ...]
