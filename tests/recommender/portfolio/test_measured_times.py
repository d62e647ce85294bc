"""Where reads were traced, advice rests on what they took."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sds.analyzer import BY_ENGINE, BY_HDF5, ReadTimes
from sds.geometry import ReplicaLayout
from sds.recommender.candidates.cost_matrix import ReadCosts
from sds.recommender.candidates.read_classes import collective_s
from sds.recommender.portfolio.portfolio_selection import choose_portfolio
from sds.recommender.portfolio.what_if import what_if
from tests.recommender.portfolio.test_portfolio_selection import CUBE, reads_of, traced


def planes(measured_s, target="f.h5:/d", **changes):
    return traced(reads_of(CUBE, ("[:, :, 5]", 50), target=target), elapsed_s=measured_s, **changes)


def times(dataset):
    (one,) = choose_portfolio([dataset]).datasets
    return one


STATED = reads_of(CUBE, ("[:, :, 5]", 50))


def test_traced_reads_take_now_what_they_took():
    portfolio = choose_portfolio([planes(3.0), planes(2.0, "g.h5:/d")])
    assert portfolio.basis == "measured"
    assert portfolio.seconds_now == portfolio.measured_s_now == pytest.approx(5.0)
    assert [one.seconds_now for one in portfolio.datasets] == [pytest.approx(3.0), 2.0]
    assert portfolio.layouts
    assert portfolio.saving.seconds < 5.0


def test_stated_reads_were_never_measured():
    assert times(STATED).basis == "predicted"
    assert times(STATED).measured_s_now is None
    assert times(STATED).seconds_now == times(STATED).cold_s_now
    both = choose_portfolio([replace(STATED, target="g.h5:/d"), planes(2.0)])
    assert (both.basis, both.measured_s_now) == ("mixed", None)
    assert choose_portfolio([]).measured_s_now is None


def test_reads_from_memory_and_from_cold_cache_are_predicted_apart():
    one = times(planes(1.0))
    assert 0 < one.warm_s_then < one.warm_s_now < one.cold_s_now
    assert one.warm_s_then <= one.cold_s_then < one.cold_s_now


def test_no_more_is_saved_than_was_spent():
    cold = times(planes(1.0))
    for measured_s in (1e-6, cold.warm_s_now, 1.0, cold.cold_s_now, 10 * cold.cold_s_now):
        one = times(planes(measured_s))
        assert 0 <= one.saving.seconds <= measured_s
        assert one.seconds_now == pytest.approx(measured_s)
    # As cold as predicted, replicas save what is predicted; what is slower is so everywhere.
    for factor in (1, 3):
        one = times(planes(factor * cold.cold_s_now))
        assert one.seconds_then == pytest.approx(factor * cold.cold_s_then)


def test_little_that_was_measured_is_not_worth_a_replica():
    portfolio = choose_portfolio([planes(0.02)])
    assert not portfolio.layouts
    assert "all reads take 20 ms" in portfolio.declined[0].reason
    assert times(STATED).cold_s_now > 1  # the models alone would build


def of_layout(served_by, n, total_s):
    return ReadTimes(
        served_by=served_by, n=n, total_s=total_s, least_s=0.0, most_s=total_s, histogram=()
    )


def test_reads_that_replicas_served_say_nothing_of_the_original():
    by_replica = of_layout(7, 25, 1.0)
    half = planes(3.0, n_redirected=25, times=(of_layout(BY_HDF5, 25, 2.0), by_replica))
    assert times(half).seconds_now == pytest.approx(50 * 2.0 / 25)
    two_ways = (of_layout(BY_ENGINE, 5, 0.5), of_layout(BY_HDF5, 20, 2.0), by_replica)
    assert times(planes(3.0, n_redirected=25, times=two_ways)).seconds_now == pytest.approx(5.0)
    # Of an older catalog the two are not told apart.
    unknown = planes(3.0, n_redirected=25)
    assert times(unknown).basis == "predicted"
    assert times(planes(3.0, n_redirected=50, times=(by_replica,))).basis == "predicted"
    assert times(planes(3.0, n_collective=10)).basis == "mixed"


ACROSS = ReplicaLayout.whole(CUBE, order=(2, 0, 1))


def test_reads_that_a_replica_serves_now_are_predicted_from_what_the_original_took():
    served = replace(planes(3.0), existing=(ACROSS,))
    assert times(served).basis == "predicted"
    assert times(served).seconds_now == pytest.approx(times(planes(3.0)).seconds_then)


def test_reads_that_were_traced_in_a_replica_take_now_what_they_took_there():
    by_both = (of_layout(BY_HDF5, 25, 2.0), of_layout(7, 25, 0.25))
    dataset = replace(
        planes(3.0, n_redirected=25, times=by_both), existing=(ACROSS,), replica_ids={ACROSS: (7,)}
    )
    assert times(dataset).basis == "measured"
    assert times(dataset).seconds_now == pytest.approx(50 * 0.25 / 25)
    assert not choose_portfolio([dataset]).layouts
    # What was built anew is another replica, of which nothing is known.
    anew = replace(dataset, replica_ids={ACROSS: (8,)})
    assert times(anew).basis == "predicted"
    both = replace(dataset, replica_ids={ACROSS: (6, 7, 8)})
    assert times(both).seconds_now == times(dataset).seconds_now
    # And without it, what the original took.
    less = what_if(dataset, take_away=[ACROSS])
    assert (less.basis, less.seconds_now) == ("measured", times(dataset).seconds_now)
    assert less.seconds_then == pytest.approx(50 * 2.0 / 25)
    assert less.patterns[0].from_then == "original"


def test_a_replica_that_was_measured_slower_is_better_taken_away():
    by_both = (of_layout(BY_HDF5, 25, 0.25), of_layout(7, 25, 2.0))
    dataset = replace(
        planes(3.0, n_redirected=25, times=by_both), existing=(ACROSS,), replica_ids={ACROSS: (7,)}
    )
    assert (times(dataset).basis, times(dataset).seconds_now) == ("measured", pytest.approx(4.0))
    less = what_if(dataset, take_away=[ACROSS])
    assert less.seconds_then == pytest.approx(0.5)
    assert less.saving.seconds == pytest.approx(3.5)


def test_what_was_measured_changes_no_choice_between_replicas():
    other = ReplicaLayout.whole(CUBE, order=(2, 1, 0))
    by_both = (of_layout(BY_HDF5, 47, 3.76), of_layout(7, 3, 0.06))
    dataset = replace(
        planes(3.82, n_redirected=3, times=by_both), existing=(ACROSS, other),
        replica_ids={ACROSS: (7,), other: (8,)},
    )  # fmt: skip
    supposed = what_if(dataset, add=[ReplicaLayout.whole(CUBE, order=(1, 2, 0))])
    assert (supposed.patterns[0].from_now, supposed.basis) == (ACROSS.describe(CUBE), "measured")
    assert supposed.seconds_now == pytest.approx(50 * 0.02)


def test_reads_of_which_only_a_replica_knows_were_as_cold_in_the_original():
    cold = times(STATED)
    in_replica = replace(STATED, existing=(ACROSS,))
    for there_s, original_s in (
        (times(in_replica).cold_s_now, cold.cold_s_now),
        (2 * times(in_replica).cold_s_now, 2 * cold.cold_s_now),
        (times(in_replica).warm_s_now, cold.warm_s_now),
    ):
        dataset = replace(
            planes(there_s, n_redirected=50, times=(of_layout(7, 50, there_s),)),
            existing=(ACROSS,),
            replica_ids={ACROSS: (7,)},
        )
        assert times(dataset).seconds_now == pytest.approx(there_s)
        less = what_if(dataset, take_away=[ACROSS])
        assert less.seconds_then == pytest.approx(original_s)
        # A replica that might be added is compared with the same reads.
        assert not choose_portfolio([dataset]).layouts


@pytest.mark.parametrize("measured_s", [0.2, 0.5, 3.0, 30.0])
def test_what_a_portfolio_says_of_traced_reads_is_what_what_if_says(measured_s):
    dataset = traced(
        reads_of(CUBE, ("[:, :, 5]", 50), ("[:, 5, :]", 50), ("[3, :, :]", 5)), elapsed_s=measured_s
    )
    portfolio = choose_portfolio([dataset])
    assert portfolio.layouts
    supposed = what_if(dataset, add=[layout.layout for layout in portfolio.layouts])
    assert supposed.seconds_now == pytest.approx(portfolio.seconds_now)
    assert supposed.seconds_then == pytest.approx(portfolio.seconds_then)
    assert supposed.saving.seconds == pytest.approx(portfolio.saving.seconds)
    assert supposed.basis == portfolio.basis == "measured"


def test_a_layout_counts_with_what_it_would_make_slower():
    """One of two kinds of read is predicted faster cold, and was measured faster still."""
    dataset = reads_of(CUBE, ("[:, :, 5]", 50), ("[:, 5, :]", 50))
    slow, fast = dataset.patterns
    dataset = replace(
        dataset,
        patterns=(
            *traced(replace(dataset, patterns=(slow,)), elapsed_s=30.0).patterns,
            *traced(replace(dataset, patterns=(fast,)), elapsed_s=1e-4).patterns,
        ),
    )
    portfolio = choose_portfolio([dataset])
    for layout in [x.layout for x in (*portfolio.layouts, *portfolio.declined)]:
        supposed = what_if(dataset, add=[layout])
        alone = next((x.saving_s_per_day for x in portfolio.declined if x.layout == layout), None)
        if alone is not None:
            assert alone == pytest.approx(supposed.saving.seconds)
    then = what_if(dataset, add=[x.layout for x in portfolio.layouts])
    assert then.seconds_then == pytest.approx(portfolio.seconds_then)


def test_of_an_older_catalog_collective_reads_take_their_share():
    merged = planes(6.0, n_collective=10, times=(of_layout(BY_HDF5, 20, 2.0),))
    assert collective_s(merged.patterns[0]) == pytest.approx(6.0 * 10 / 50)


def test_collective_reads_count_with_their_time_whatever_is_built():
    of_few = (of_layout(BY_HDF5, 40, 2.4),)
    dataset = planes(3.0, n_collective=10, times=of_few)
    one = times(dataset)
    assert one.basis == "measured"
    assert one.seconds_now == pytest.approx(3.0)
    assert one.seconds_then == pytest.approx(0.6, abs=0.3)
    assert one.seconds_then > 0.6
    supposed = what_if(dataset, add=[ACROSS])
    assert supposed.seconds_now == pytest.approx(3.0)
    assert supposed.patterns[0].from_then == f"{ACROSS.describe(CUBE)} and original"
    # Models say nothing of them.
    assert one.cold_s_now == pytest.approx(times(STATED).cold_s_now * 40 / 50)


def seconds(shape):
    return arrays(np.float64, shape, elements=st.floats(1e-6, 1e3))


@given(
    original=seconds((2, 3)), replica=seconds((2, 3, 2)), measured=seconds(3),
    known=arrays(np.bool_, 3),
)  # fmt: skip
def test_times_as_traced(original, replica, measured, known):
    (warm, cold), (there_warm, there) = np.sort(original, axis=0), np.sort(replica, axis=0)
    costs = ReadCosts(
        original=cold, by_hdf5=cold, replicas=there, compared=there, original_warm=warm,
        replicas_warm=there_warm,
    )  # fmt: skip
    found = costs.as_traced(np.where(known, measured, np.nan))
    np.testing.assert_array_equal(found.original, np.where(known, measured, cold))
    np.testing.assert_array_equal(found.replicas[~known], there[~known])
    np.testing.assert_array_equal(found.compared, there)
    slower = costs.as_traced(np.where(known, measured, np.nan), None, np.full(3, 2.0))
    np.testing.assert_array_equal(slower.replicas, 2 * found.replicas)
    for i in np.flatnonzero(known):
        if measured[i] >= cold[i] or warm[i] == cold[i]:  # equal: from memory it is not known
            np.testing.assert_allclose(found.replicas[i], there[i] * measured[i] / cold[i])
        elif measured[i] <= warm[i]:
            np.testing.assert_array_equal(found.replicas[i], there_warm[i])
        else:
            assert (found.replicas[i] <= there[i] * (1 + 1e-9)).all()
            assert (found.replicas[i] >= there_warm[i] * (1 - 1e-9)).all()


def test_what_has_no_prediction_takes_nothing_from_what_was_measured():
    one = np.array([[0.5]])
    costs = ReadCosts(
        original=np.array([np.inf]), by_hdf5=np.array([np.inf]), replicas=one, compared=one,
        original_warm=np.array([np.inf]), replicas_warm=one,
    )  # fmt: skip
    found = costs.as_traced(np.array([0.005]))
    assert found.original.tolist() == [np.inf]
    assert found.replicas.tolist() == [[0.5]]


def test_datasets_whose_reads_take_little_have_no_notes_beside_others():
    little = traced(reads_of(CUBE, ("[0, 0, :]", 50), target="f.h5:/time"), elapsed_s=0.01)
    notes = choose_portfolio([planes(2.0), little]).notes
    assert not any("/time" in note for note in notes)
    assert sum("uncalibrated" in note for note in notes) == 1
    assert any("f.h5:/time" in note for note in choose_portfolio([little]).notes)


def test_a_file_is_written_anew_where_one_replica_would_do():
    chunks = (1, 180, 360)
    series = traced(reads_of((365, 180, 360), ("[:, 3, 4]", 50), chunks=chunks), elapsed_s=20.0)
    one = times(series)
    shape = one.rewritten_chunks
    assert shape[0] == 365
    assert np.prod(shape) * 4 >= 128 << 10
    assert one.seconds_then < one.rewritten_s < one.seconds_now / 10
    supposed = replace(series, existing=(ReplicaLayout.whole((365, 180, 360), chunk_shape=shape),))
    assert times(supposed).seconds_now == pytest.approx(one.rewritten_s)
    # Maps are read as well: written anew they would be slow.
    maps = traced(reads_of((365, 180, 360), ("[3, :, :]", 10_000), chunks=chunks), elapsed_s=10.0)
    both = replace(series, patterns=(*series.patterns, *maps.patterns))
    assert choose_portfolio([both]).layouts
    assert times(both).rewritten_chunks is None
    assert times(planes(0.02)).rewritten_chunks is None  # nothing is to be built
