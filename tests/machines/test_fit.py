"""A described machine is fitted to a file's reads, and judged by those left out."""

import math
from dataclasses import replace

import numpy as np
import pytest

from sds.errors import SdsValueError
from sds.machines.fit import fit_to_reads
from sds.machines.measurement import MeasureSettings, draw_patterns
from sds.machines.timed_reads import TimedRead
from sds.simulator import simulate_many
from tests.simulator.test_parameter_fit import TRUE, WRONG

EXTENT = (32, 32, 128)


def reads_of(seed, seconds_by):
    """Return drawn reads in two layouts, timed by a machine."""
    settings = MeasureSettings(processes=(1, 2, 4, 8), n_each=3, seed=seed)
    reads = []
    for pattern in draw_patterns(EXTENT, settings):
        slab = pattern.slab
        text = ", ".join(
            f"{a}:{a + (n - 1) * s + 1}:{s}"
            for a, s, n in zip(slab.start, slab.stride, slab.count, strict=True)
        )
        reads += [
            TimedRead(
                extent=EXTENT,
                element_size_bytes=4,
                selection=text,
                seconds=1.0,
                parts=pattern.parts,
                order=order,
            )
            for order in ((0, 1, 2), (2, 0, 1))
        ]
    times = simulate_many([read.operation() for read in reads], seconds_by)
    return [replace(r, seconds=t.seconds) for r, t in zip(reads, times, strict=True)]


@pytest.fixture(scope="module")
def fit():
    timed = reads_of(1, TRUE)
    # A reading that something disturbed, and two that it did not: the median counts.
    disturbed = [replace(timed[0], seconds=50.0), timed[0]]
    return fit_to_reads([*timed, *disturbed], WRONG)


def test_every_read_is_predicted_and_a_quarter_of_the_patterns_judges(fit):
    assert len(fit.reads) == 4 * 3 * 3 * 2
    judged = [one for one in fit.reads if one.left_out]
    assert len(judged) == fit.machine.n_left_out == 2 * math.ceil(36 / 4)
    # A pattern is left out in both layouts.
    assert {one.read.pattern for one in judged}.isdisjoint(
        one.read.pattern for one in fit.reads if not one.left_out
    )
    errors = np.abs([one.log_error for one in judged])
    assert np.median(errors) == pytest.approx(fit.machine.median_error)
    assert fit.machine.median_error < 0.15


def test_the_fitted_machine_predicts_other_reads(fit):
    others = reads_of(2, TRUE)
    measured = np.array([read.seconds for read in others])
    operations = [read.operation() for read in others]
    guessed = np.array([run.seconds for run in simulate_many(operations, WRONG)])
    predicted = np.array([time.seconds for time in fit.machine.predict_many(operations)])

    # In the median: in a fifth of such small reads chance alone decides by more than 20 %.
    assert np.median(np.abs(np.log(guessed / measured))) > 0.3
    assert np.median(np.abs(np.log(predicted / measured))) < 0.1


def test_too_few_reads_are_refused():
    with pytest.raises(SdsValueError, match="too few for 6 numbers"):
        fit_to_reads(reads_of(1, TRUE)[:20], WRONG)
