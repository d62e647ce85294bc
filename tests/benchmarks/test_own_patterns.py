"""Models that are fitted once, to patterns of their own, are never judged by those."""

from dataclasses import replace

import pytest

from benchmarks.measured_times import array_experiment
from benchmarks.table1 import Simulator, draw_own, queued
from sds.errors import SdsValueError
from sds.recommender.protocol import draw_library

EXPERIMENT = replace(array_experiment(8), extent=(32, 32, 256), n_processes=4)


def test_patterns_of_the_library_are_not_fitted_to(tmp_path):
    source = Simulator.opened(EXPERIMENT, tmp_path)
    # The same seed draws the same patterns: none are left.
    library = draw_library(1, EXPERIMENT, 2)
    assert draw_own(source, 2, 1, library) == ()
    assert draw_own(source, 2, 1, ()) == tuple(library)


def test_a_pattern_that_was_fitted_to_is_no_test(tmp_path):
    source = Simulator.opened(EXPERIMENT, tmp_path)
    library = draw_library(5, EXPERIMENT, 2)
    found = queued(source, 8, 4711, library)
    assert found.times(library[0]) == pytest.approx(source.times(library[0]), rel=0.2)
    for pattern in found.fitted_to:
        with pytest.raises(SdsValueError, match="is a test, and was fitted to"):
            found.times(pattern)
