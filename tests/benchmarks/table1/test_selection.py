import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.table1.selection import advise, probability_faster, selection_of
from sds.errors import SdsValueError

times = st.lists(st.floats(1e-6, 1e6), min_size=2, max_size=6)


def test_the_fastest_layout_is_advised_where_it_can_be_told_apart():
    clear = advise((10.0, 1.0, 1.05), ratio_error=0.2, min_confidence=0.9)
    assert (clear.layout, clear.predicted_best, clear.refused) == (1, 1, False)
    assert clear.probability > 0.999
    assert clear.alike == (2,)


def test_what_cannot_be_told_apart_is_not_advised():
    alike = advise((1.1, 1.0), ratio_error=0.2, min_confidence=0.9)
    assert (alike.layout, alike.predicted_best, alike.refused) == (0, 1, True)
    assert alike.probability == pytest.approx(
        0.5 * (1 + math.erf(math.log(1.1) / 0.2 / math.sqrt(2)))
    )
    assert not advise((1.1, 1.0), ratio_error=0.01, min_confidence=0.9).refused


@given(times, st.floats(0, 2), st.floats(0.5, 0.99), st.data())
def test_advice_never_names_a_layout_predicted_slower_than_the_original(
    predicted, error, confidence, data
):
    original = data.draw(st.integers(0, len(predicted) - 1))
    advice = advise(predicted, ratio_error=error, min_confidence=confidence, original=original)
    assert predicted[advice.layout] <= predicted[original]
    assert advice.refused == (advice.probability < confidence)
    if advice.refused:
        assert advice.layout == original != advice.predicted_best


@given(st.floats(1e-6, 1e6), st.floats(0, 10))
def test_chances_of_both_directions_add_up(ratio, error):
    assert probability_faster(ratio, error) + probability_faster(1 / ratio, error) == pytest.approx(
        1.0, abs=1e-9
    )


def test_regret_is_the_share_of_the_least_time_lost():
    chosen = selection_of(
        "plane",
        measured_s=(8.0, 2.1, 2.0),
        predicted_s=(7.0, 1.9, 2.2),
        ratio_error=0.0,
        min_confidence=0.5,
    )
    assert (chosen.advice.layout, chosen.best) == (1, 2)
    assert chosen.regret == pytest.approx(0.05)
    assert chosen.regret_s == pytest.approx(0.1)
    assert chosen.speedup == pytest.approx(8 / 2.1)
    assert chosen.within(0.051)
    assert not chosen.within(0.049)


@pytest.mark.parametrize(
    ("predicted", "words"),
    [
        ((1.0, float("nan")), "layout 1 is predicted to take nan s"),
        ((0.0, 1.0), "layout 0 is predicted to take 0.0 s"),
        ((1.0, -2.0), "layout 1 is predicted to take -2.0 s"),
    ],
)
def test_predictions_that_no_time_can_be_are_refused(predicted, words):
    with pytest.raises(SdsValueError, match=words):
        advise(predicted, ratio_error=0.1, min_confidence=0.9)


def test_what_was_not_measured_is_refused():
    words = {"ratio_error": 0.1, "min_confidence": 0.9}
    with pytest.raises(SdsValueError, match=r"cube: measured times .*nan"):
        selection_of("cube", measured_s=(1.0, math.nan), predicted_s=(1.0, 1.0), **words)
    with pytest.raises(SdsValueError, match="2 layouts were measured and 3 predicted"):
        selection_of("cube", measured_s=(1.0, 1.0), predicted_s=(1.0, 1.0, 1.0), **words)
    with pytest.raises(SdsValueError, match="min_confidence"):
        advise((1.0, 2.0), ratio_error=0.1, min_confidence=0.2)
    with pytest.raises(SdsValueError, match="no layout 5"):
        advise((1.0, 2.0), ratio_error=0.1, min_confidence=0.9, original=5)
    with pytest.raises(SdsValueError, match="cannot compare"):
        probability_faster(0.0, 0.1)
