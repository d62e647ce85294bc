from dataclasses import replace

import pytest

from sds.errors import RankDeficientError, SdsValueError
from sds.recommender.models.cost_model import CostModel, GapKind, ModelKind, builtin_model
from sds.recommender.models.model_selection import choose_model, falling_terms
from tests.recommender.measured import features, samples
from tests.recommender.models.test_regression import eq4, eq6


@pytest.mark.parametrize("n", [0, 1])
def test_too_few_patterns_are_told_before_anything_else(n):
    few = samples(eq4).take(range(n))
    with pytest.raises(SdsValueError, match=f"measure at least 2, not {n}"):
        choose_model(few)


def test_reads_that_all_touch_the_same_teach_nothing():
    some = samples(eq4)
    alike = replace(
        some,
        features=(some.features[0],) * len(some),
        processes_per_ost=(1.0,) * len(some),
    )
    with pytest.raises(RankDeficientError, match="measure reads of several shapes"):
        choose_model(alike, without_processes=True)


@pytest.mark.parametrize("p", [float("nan"), float("inf"), -1.0])
def test_predictions_ask_for_processes_that_can_be(p):
    some = samples(eq4)
    model = choose_model(some).chosen
    with pytest.raises(SdsValueError, match="processes per OST"):
        model.predict(some.features[0], processes_per_ost=p)


def test_the_model_that_made_the_times_is_chosen():
    choice = choose_model(samples(eq6, n_patterns=20), gaps=[GapKind.COUNT])
    assert choice.chosen.kind is ModelKind.EQ6
    choice = choose_model(samples(eq4, n_patterns=20, noise=0.01), gaps=[GapKind.COUNT])
    assert choice.chosen.kind is ModelKind.EQ4


def test_the_chosen_model_has_the_least_held_out_error_of_the_usable():
    choice = choose_model(samples(eq4, n_patterns=20, noise=0.2))
    usable = [t.heldout.rms for t in choice.trials if not t.refused]
    assert usable == sorted(usable)
    assert choice.chosen.heldout.rms == usable[0]
    assert any(t.name == "builtin" for t in choice.trials)
    assert {t.model.kind for t in choice.trials if t.model} == set(ModelKind) - {ModelKind.EQ5}


def test_the_block_gap_that_explains_the_times_is_found():
    def law(_depth, gap, p):
        return 0.01 + 1e-6 * gap + 0.1 * p

    data = samples(law, n_patterns=20, noise=0.02)
    # Here the distance is 7 gaps and the paper's 3: all explain it equally. Now only one does.
    varied = tuple(
        features(depth=f.block_depth, gap=f.block_gap_count, paper=hash(i) * 7919 % 1000)
        for i, f in enumerate(data.features)
    )
    data = type(data)(
        patterns=data.patterns,
        features=varied,
        processes_per_ost=data.processes_per_ost,
        seconds=data.seconds,
    )
    choice = choose_model(data, gaps=[GapKind.PAPER, GapKind.COUNT])
    assert choice.chosen.gap is GapKind.COUNT


def test_one_process_count_is_refused_unless_p_is_left_out():
    one = samples(eq4, processes=(2.0,))
    with pytest.raises(RankDeficientError, match="P did not vary"):
        choose_model(one)
    choice = choose_model(one, without_processes=True)
    assert choice.chosen.kind is not ModelKind.EQ4
    assert all(t.model is None or t.model.kind is not ModelKind.EQ4 for t in choice.trials)


def model_of(kind, *coefficients):
    return CostModel(
        kind=kind, gap=GapKind.COUNT, coefficients=coefficients, floor_s=0.0, calibrated=True
    )


def test_models_by_which_more_work_takes_less_time_are_known():
    assert falling_terms(model_of(ModelKind.EQ4, -1, 1e-6, -1e-9, 0.1), lowest_p=1) == ("BG",)
    assert falling_terms(model_of(ModelKind.EQ4, -1, 1e-6, 0.0, 0.1), lowest_p=1) == ()
    good = model_of(ModelKind.EQ6, 0, 1, -0.5, 0, -1e-9, 1, 0.6, 2e-9)
    assert falling_terms(good, lowest_p=1) == ()
    assert falling_terms(good, lowest_p=0.4) == ("BD", "BG")
    assert falling_terms(builtin_model(), lowest_p=1) == ()


def test_a_model_that_falls_is_listed_but_not_chosen():
    # Deep reads happen to be quick in this set: noise of a shared disk.
    data = samples(lambda d, g, p: 1e-3 + 1e-9 * g + 1e-3 * p + 0.5 / d, n_patterns=15)
    choice = choose_model(data, gaps=[GapKind.COUNT])
    fallen = [t for t in choice.trials if "less time" in t.refused]
    assert fallen
    assert falling_terms(choice.chosen, lowest_p=1.0) == ()
