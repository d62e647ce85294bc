"""Measured reads, and the models that were fitted to them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self, TypeVar

from sds.errors import SdsValueError
from sds.geometry import BlockFeatures
from sds.recommender.models.cost_model import CostModel, HeldoutError
from sds.recommender.models.feature_matrix import FeatureMatrix, FeatureRow

if TYPE_CHECKING:
    from collections.abc import Sequence

_T = TypeVar("_T")

BUILTIN = "builtin"
"""Name, among the candidates, of the built-in model, which is fitted to nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Measured reads: n of them, in patterns that recur.

    What they touched is either known of the read that touches most (features and
    processes_per_ost), or of the operation as a whole (operations).

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
    operations
        Of all processes together; then features and processes_per_ost are empty.
    layouts
        Name of each read's layout, which can be held out likewise; empty where there is but one,
        or the patterns' names tell.
    """

    patterns: tuple[str, ...]
    features: tuple[BlockFeatures, ...] = ()
    processes_per_ost: tuple[float, ...] = ()
    seconds: tuple[float, ...]
    operations: tuple[FeatureRow, ...] = ()
    layouts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        n = len(self.seconds)
        touched = self.operations or self.features
        lengths = {len(self.patterns), len(touched), len(self.layouts) if self.layouts else n}
        if not self.operations:
            lengths.add(len(self.processes_per_ost))
        if lengths != {n}:
            raise SdsValueError(
                f"samples differ in number: {len(self.patterns)} patterns, "
                f"{len(touched)} features, {len(self.processes_per_ost)} process counts, "
                f"{len(self.layouts)} layouts, {n} times"
            )
        if self.operations and (self.features or self.processes_per_ost):
            raise SdsValueError(
                "give the features of operations or of single reads with their process counts, "
                "not both"
            )
        for i, seconds in enumerate(self.seconds):
            if not (math.isfinite(seconds) and seconds > 0.0):
                raise SdsValueError(
                    f"sample {i} ({self.patterns[i]}) took {seconds} s: leave out reads whose "
                    "time is not a positive number"
                )

    def __len__(self) -> int:
        return len(self.seconds)

    @property
    def p(self) -> tuple[float, ...]:
        """Processes per OST of each operation."""
        if self.operations:
            return tuple(f.processes_per_ost for f in self.operations)
        return self.processes_per_ost

    def feature_matrix(self) -> FeatureMatrix:
        """Return what models predict these reads from."""
        if self.operations:
            return FeatureMatrix.of_operations(self.operations)
        return FeatureMatrix.of_reads(self.features, self.processes_per_ost)

    def groups(self, by: str) -> tuple[str, ...]:
        """Return what is held out together: by ``patterns`` or by ``layouts``.

        Raises
        ------
        SdsValueError
            If the samples do not name their layouts.
        """
        if by == "patterns":
            return self.patterns
        if by != "layouts":
            raise SdsValueError(f"leave out patterns or layouts, not {by!r}")
        if not self.layouts:
            raise SdsValueError(
                "these samples do not say which layout each was read from: give layouts to leave "
                "layouts out"
            )
        return self.layouts

    def take(self, indices: Sequence[int]) -> Self:
        """Return the samples at some indices."""

        def some(values: tuple[_T, ...]) -> tuple[_T, ...]:
            return tuple(values[i] for i in indices) if values else ()

        return replace(
            self,
            patterns=some(self.patterns),
            features=some(self.features),
            processes_per_ost=some(self.processes_per_ost),
            seconds=some(self.seconds),
            operations=some(self.operations),
            layouts=some(self.layouts),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateFit:
    """One equation that was fitted, to be chosen or not.

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
        """Held-out error of the model; None where it could not be fitted."""
        return None if self.model is None else self.model.heldout


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChoice:
    """The models tried: those that may be used first, by their held-out error.

    Attributes
    ----------
    chosen
        The first, marked calibrated: never worse on held-out patterns than the built-in model,
        and that very model where no fit predicts better. An equation: redirect tables carry it.
    trials
        All of them; those that could not be fitted last.
    """

    chosen: CostModel
    trials: tuple[CandidateFit, ...]

    @property
    def best_equation(self) -> CandidateFit | None:
        """The fitted equation with the least held-out error, which residuals are fitted to."""
        usable = (t for t in self.trials if t.model is not None and not t.refused)
        return next((t for t in usable if t.name != BUILTIN), None)
