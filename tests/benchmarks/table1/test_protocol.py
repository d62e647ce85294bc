from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.table1.evaluation import judge
from benchmarks.table1.protocol import (
    KINDS,
    PAPER_EXTENT,
    Experiment,
    draw_library,
    draw_tests,
    draw_training,
)
from sds.errors import SdsValueError
from sds.machines.random_reads import draw_pattern
from sds.recommender.models.model_selection import fitters_of
from sds.recommender.models.service_model import ServiceFitter
from tests.benchmarks.table1.operations import SMALL, Storage

seeds = st.integers(0, 2**63)


def far_apart(_pattern):
    return 1.0, 3.0, 9.0


def sometimes_close(pattern):
    """Close for a fifth of the patterns."""
    return (1.0, 1.5, 9.0) if pattern.slab.start[0] % 5 == 0 else (1.0, 3.0, 9.0)


@given(seeds, st.integers(0, 2), st.sampled_from([PAPER_EXTENT, (256, 256, 16384)]))
def test_every_pattern_is_read_whole_by_all_processes(seed, kind, extent):
    pattern = draw_pattern(np.random.default_rng(seed), extent, 512, kind)
    pattern.slab.check_within(extent)
    reads = pattern.reads()
    assert len(reads) == np.prod(pattern.parts) == 512
    elements = reads.count.prod(axis=1)
    assert elements.sum() == pattern.slab.n_elements
    long_axes = sum(n > 1 for n in pattern.slab.count)
    if kind == 0:
        # One line per process.
        assert (elements > 0).all()
        assert ((reads.count > 1).sum(axis=1) <= 1).all()
    else:
        assert long_axes <= kind + 1


@given(seeds)
def test_the_same_seed_draws_the_same_and_nothing_twice(seed):
    experiment = Experiment(n_training=10)
    draw = draw_tests(seed, experiment, sometimes_close)
    assert draw == draw_tests(seed, experiment, sometimes_close)
    assert draw.training == draw_training(seed, experiment)
    assert [p.kind for p in draw.tests] == [0] * 8 + [1] * 8 + [2] * 8
    assert [p.kind for p in draw.training] == [0] * 10 + [1] * 10 + [2] * 10
    drawn = (*draw.training, *draw.tests)
    assert len(set(drawn)) == len(drawn)
    assert draw.n_close >= 8
    assert draw.n_close == sum(sometimes_close(p)[1] < 2 for p in draw.tests)


def test_training_does_not_depend_on_times():
    draws = [draw_tests(7, SMALL, times) for times in (sometimes_close, lambda _: (1.0, 1.0, 1.0))]
    assert draws[0].training == draws[1].training
    assert draws[0].n_rejected > 0
    assert draws[1].n_rejected == 0
    assert draws[1].n_close == 24


def test_seeds_draw_from_a_library_without_putting_back():
    library = draw_library(1, SMALL, 60)
    assert len(set(library)) == 180
    draws = [draw_tests(seed, SMALL, sometimes_close, library=library) for seed in (1, 2)]
    for draw in draws:
        drawn = (*draw.training, *draw.tests)
        assert set(drawn) <= set(library)
        assert len(set(drawn)) == len(drawn)
    assert draws[0].tests != draws[1].tests


def test_what_cannot_be_drawn_is_said():
    library = draw_library(1, SMALL, 30)
    with pytest.raises(SdsValueError, match=r"1-D tests could be drawn, 0 of them.*larger library"):
        draw_tests(1, SMALL, far_apart, library=library)
    with pytest.raises(SdsValueError, match=r"library of 30.*larger one"):
        draw_tests(1, SMALL, far_apart, library=library[:30])
    with pytest.raises(SdsValueError, match=r"extent \(2, 2, 2\) has no place for 64 lines"):
        draw_library(1, replace(SMALL, extent=(2, 2, 2)), 5)
    with pytest.raises(SdsValueError, match=r"extent \(2, 2, 2\) has fewer than 500 different 1-D"):
        draw_library(1, replace(SMALL, extent=(2, 2, 2), n_processes=1), 500)
    with pytest.raises(SdsValueError, match="took nan s in layout 1"):
        draw_tests(1, SMALL, lambda _: (1.0, float("nan"), 2.0))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"extent": (4, 0, 4)}, "three axes of at least 1"),
        ({"extent": (4, 4)}, "three axes"),
        ({"orders": ((0, 1, 2),)}, "at least two layouts"),
        ({"n_processes": 0}, "must be positive"),
        ({"close_share": 1.5}, "close_share 1.5"),
        ({"close_factor": 0.5}, "close_factor 0.5"),
    ],
)
def test_experiments_that_cannot_be_are_refused(change, words):
    with pytest.raises(SdsValueError, match=words):
        replace(SMALL, **change)


def test_arrays_are_scaled_by_cubes():
    assert Experiment().scaled(64) == (256, 256, 16384)
    with pytest.raises(SdsValueError, match="1/7"):
        Experiment().scaled(7)


def test_models_are_judged_by_what_they_select():
    storage = Storage(noise=0.02)
    draw = draw_tests(3, SMALL, storage.times)
    judged = judge(draw, SMALL, storage.observe, fitters_of(), n_folds=5)
    best = judged.of("service")
    assert best.n_within >= 23
    assert best.error.r_squared > 0.99
    assert best.error.median < 0.05
    assert best.rank_correlation > 0.8
    assert len(best.selections) == 24
    assert best.n_exact <= best.n_within + 1
    others = [m for m in judged.models if m.name != best.name and m.model is not None]
    assert others
    assert all(m.error.median > best.error.median for m in others)
    assert all(m.n_within <= best.n_within for m in others)
    kinds = [p.kind for p in draw.tests]
    assert len(best.speedups(kinds)) == len(KINDS)
    assert min(best.speedups(kinds)) >= 0.9


def test_refusals_count_as_the_original_layout():
    storage = Storage(noise=0.3)
    draw = draw_tests(3, SMALL, storage.times)
    judged = judge(
        draw, SMALL, storage.observe, [ServiceFitter()], n_folds=5, min_confidence=0.999999
    ).models[0]
    refused = [s for s in judged.selections if s.advice.refused]
    assert judged.n_refused == len(refused) > 0
    assert all(s.advice.layout == 0 for s in refused)
    assert all(s.regret >= 0 for s in judged.selections)


def test_a_model_that_cannot_be_fitted_is_judged_with_the_reason():
    few = replace(SMALL, n_training=1)
    storage = Storage(few)
    draw = draw_tests(3, few, storage.times)
    judged = judge(draw, few, storage.observe, fitters_of())
    assert "too few" in judged.of("service").refused
    assert judged.of("service").model is None
