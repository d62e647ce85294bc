"""Fit a described machine to timed reads, and report the error of each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sds.machines.timed_reads import TimedRead, median_times
from sds.simulator.parameter_fit import FittedMachine, fit_machine, left_out

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sds.simulator import SimulatorParameters


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedRead:
    """A read with its predicted time.

    Attributes
    ----------
    read
        Its time is the median of those measured.
    predicted_s
        By the fitted machine.
    left_out
        Whether the fit had not seen it.
    """

    read: TimedRead
    predicted_s: float
    left_out: bool

    @property
    def log_error(self) -> float:
        """Logarithm of predicted / measured."""
        return math.log(self.predicted_s / self.read.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFit:
    """A fitted machine, and every read that it was fitted to or judged by."""

    machine: FittedMachine
    reads: tuple[PredictedRead, ...]


def fit_to_reads(
    reads: Iterable[TimedRead], start: SimulatorParameters, *, n_threads: int | None = None
) -> MachineFit:
    """Return the machine whose numbers explain timed reads best.

    Of times of the same read the median counts. A quarter of the patterns is left out, each in all
    layouts, and gives the error. Each of some thousand simulations of all reads takes milliseconds
    to seconds a read.

    Raises
    ------
    SdsValueError
        If there are too few reads, or a number to search is 0 in `start`.
    LayoutError
        If an array does not fit the machine.
    """
    each = median_times(reads)
    operations = [read.operation() for read in each]
    groups = [read.pattern for read in each]
    machine = fit_machine(
        operations, [read.seconds for read in each], start, groups=groups, n_threads=n_threads
    )
    predicted = machine.predict_many(operations, n_threads=n_threads)
    return MachineFit(
        machine=machine,
        reads=tuple(
            PredictedRead(read=read, predicted_s=time.seconds, left_out=bool(out))
            for read, time, out in zip(each, predicted, left_out(groups), strict=True)
        ),
    )
