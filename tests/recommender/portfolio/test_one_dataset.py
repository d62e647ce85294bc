import math
import re
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sds.analyzer import stated_pattern
from sds.calibration.models_in_use import models_for_table
from sds.errors import SdsValueError
from sds.geometry import (
    HOPPER_RAID,
    HOPPER_STRIPES,
    Hyperslab,
    ReplicaLayout,
)
from sds.recommender.candidates.axis_orders import candidate_orders, inversions
from sds.recommender.candidates.dataset_reads import DatasetReads
from sds.recommender.candidates.replica_cost import BUILD_START_S, BuildRates
from sds.recommender.models.cost_model import (
    CostModel,
    GapKind,
    HeldoutError,
    ModelKind,
    Via,
    builtin_model,
)
from sds.recommender.models.read_cost import (
    StoredArray,
    features_as_stored,
    features_in_replica,
    predict_read,
)
from sds.recommender.portfolio.confidence import probability_faster
from sds.recommender.portfolio.gates import NoiseGates
from sds.recommender.portfolio.portfolio_selection import choose_portfolio
from sds.recommender.portfolio.what_if import what_if
from tests.counted_work import count_calls
from tests.recommender.replicas import GZIP

CUBE = StoredArray(extent=(256, 256, 1024), element_size_bytes=4, data_offset_bytes=2048)
GRID = StoredArray(extent=(3650, 90, 180), element_size_bytes=4, data_offset_bytes=4096)


def stated(array, selection, n=100):
    return stated_pattern(
        selection,
        extent=array.extent,
        element_size_bytes=array.element_size_bytes,
        n_reads_per_day=n,
    )


def traced(array, selection, n=100, **changes):
    pattern = replace(stated(array, selection, n), stated=False, processes=("p",), **changes)
    return replace(pattern, first_ns=10**18, last_ns=10**18 + 10**9)


def advice(patterns, array=CUBE, *, target="cube.h5:/image", gates=None, rate=250e6, **known):
    """Return the portfolio of one dataset."""
    rates = BuildRates(plain=rate)
    dataset = DatasetReads(
        target=target, array=array, patterns=tuple(patterns), build_rates=rates, **known
    )
    return choose_portfolio([dataset], gates=gates)


def order_of(portfolio):
    """Return the axis order of the one layout advised; None where there is none."""
    if not portfolio.layouts:
        return None
    (layout,) = portfolio.layouts
    assert layout.layout.chunk_shape is None
    return layout.layout.order


def declined(portfolio, order):
    """Return why the replica of an axis order is not advised."""
    whole = [d for d in portfolio.declined if d.layout.chunk_shape is None]
    return next(d.reason for d in whole if d.layout.order == order)


def test_energy_planes_want_the_energy_axis_first_and_the_others_kept_in_order():
    given = advice([stated(CUBE, "[:, :, 7]")])
    (layout,) = given.layouts
    assert layout.layout == ReplicaLayout.whole(CUBE.extent, order=(2, 0, 1))
    assert layout.command == "sds reorganize cube.h5:/image --order 2,0,1"
    assert layout.speedup > 100
    assert not given.calibrated
    assert any("uncalibrated" in note for note in given.notes)


def test_time_series_want_time_last():
    assert order_of(advice([stated(GRID, "[:, 3, 4]")], GRID)) == (1, 2, 0)


def test_spectra_beside_planes_keep_the_original():
    given = advice([stated(CUBE, "[:, :, 7]"), stated(CUBE, "[3, 4, :]")])
    assert order_of(given) == (2, 0, 1)
    assert given.layouts[0].serves == ("plane fixing axis 2",)


def test_reads_along_the_grain_leave_it():
    for selection in ("[3, 4, :]", "[3]", "[...]", "[3, 4, 5:9]"):
        given = advice([stated(CUBE, selection)])
        assert not given.layouts
        assert given.saving.seconds == 0.0
        assert any("no layout would make its reads faster" in note for note in given.notes)


def test_lines_that_make_a_plane_are_charged_as_lines():
    at_once = traced(CUBE, "[:, :, 7]", 10)
    line = stated(CUBE, "[3, :, 7]").call
    by_lines = replace(at_once, call=line, n_calls=2560)
    a, b = (advice([p]) for p in (at_once, by_lines))
    assert order_of(a) == order_of(b) == (2, 0, 1)
    assert b.seconds_then > a.seconds_then, "2560 reads, though of as many bytes"


def test_a_replica_that_exists_is_not_advised_again():
    there = ReplicaLayout.whole(CUBE.extent, order=(2, 0, 1))
    given = advice([stated(CUBE, "[:, :, 7]")], existing=(there,))
    assert not given.layouts
    assert given.seconds_now < 1.0


@pytest.mark.parametrize(
    ("gates", "n", "words"),
    [
        (NoiseGates(), 2, "only 2 reads seen"),
        (NoiseGates(), 1, "only 1 read seen, fewer than 3"),
        (NoiseGates(min_total_s=1e4), 100, "less than 2.78 h"),
        (NoiseGates(min_total_s=660.0), 10, "less than 11 min"),
        (NoiseGates(min_saving_s=1e4), 100, "it would save"),
        (NoiseGates(min_speedup=1e6), 100, "times as fast"),
        (NoiseGates(min_confidence=0.9999999999999), 100, "cannot tell from no gain"),
    ],
)
def test_each_gate_holds_a_layout_back_and_says_why(gates, n, words):
    given = advice([traced(CUBE, "[:, :, 7]", n)], gates=gates)
    assert not given.layouts
    assert words in declined(given, (2, 0, 1))


def test_a_confidence_just_below_the_gate_reads_so():
    pattern = stated(CUBE, "[:, :, 7]", 100)
    confidence = advice([pattern]).layouts[0].confidence
    gates = NoiseGates(min_confidence=confidence + 1e-4 * (1 - confidence))
    reason = declined(advice([pattern], gates=gates), (2, 0, 1))
    found, needed = re.findall(r"(?:confidence|needed) ([\d.]+)%", reason)
    assert float(found) < float(needed)


def test_stated_patterns_pass_the_gate_of_reads():
    assert order_of(advice([stated(CUBE, "[:, :, 7]", 1)])) == (2, 0, 1)


def test_a_loop_over_planes_that_abut_is_one_logical_read_and_enough():
    plane = traced(CUBE, "[:, :, 7]", 10)
    sweep = traced(CUBE, "[:, :, 0:10]", 1, call=plane.call, n_calls=10)
    assert (sweep.n_reads, sweep.n_calls) == (1, 10)
    assert order_of(advice([sweep])) == (2, 0, 1)


def test_gates_that_make_no_sense_are_refused():
    with pytest.raises(SdsValueError):
        NoiseGates(min_speedup=0.5)
    with pytest.raises(SdsValueError):
        NoiseGates(min_calls=-1)


def test_what_cannot_be_told_apart_is_said():
    array = StoredArray(extent=(8, 256, 1024), element_size_bytes=4)
    given = advice([traced(array, "[:, 7, :]", 10_000)], array)
    assert not given.layouts
    words = " ".join((*given.notes, *(d.reason for d in given.declined)))
    assert "cannot tell from no gain" in words
    assert "sds calibrate" in words


def model(rms):
    error = HeldoutError(median=rms, p95=rms, rms=rms, rank_correlation=1.0, n_patterns=9)
    return CostModel(
        kind=ModelKind.EQ3,
        gap=GapKind.COUNT,
        coefficients=(1.0, 1.0, 1.0),
        floor_s=0.0,
        calibrated=True,
        heldout=error,
    )


def test_a_gain_within_the_error_of_the_models_is_not_called_none():
    pattern = stated(CUBE, "[:, :, 7]")
    (sure,) = advice([pattern], models=(model(0.05),) * 2).layouts
    # Ten times as fast at the margin, and less than that predicted.
    rms = math.log(10 * sure.speedup) / math.sqrt(2.0)
    given = advice([pattern], models=(model(rms),) * 2)
    assert not given.layouts
    (note,) = [note for note in given.notes if "needed" in note]
    gain, needed = (
        float(number.replace(",", ""))
        for number in re.findall(r"(?:at most|needed) ([\d,.e+]+)", note)
    )
    assert gain == pytest.approx(sure.speedup, rel=0.01)
    assert needed == pytest.approx(10 * gain, rel=0.01)
    assert "reads are predicted" in note
    assert not any("no layout would" in note for note in given.notes)


def test_confidence_follows_the_error_of_the_models():
    good, poor = math.hypot(0.05, 0.05), math.hypot(1.0, 1.0)
    assert probability_faster(1.0, good) == pytest.approx(0.5)
    assert probability_faster(1.5, good) > 0.99
    assert probability_faster(1.5, poor) < 0.7
    assert probability_faster(100.0, poor) > 0.99


def test_size_build_and_break_even():
    (best,) = advice([stated(CUBE, "[:, :, 7]", 50)], rate=1e6).layouts
    assert best.size_bytes == 256 * 256 * 1024 * 4
    assert best.build_s == pytest.approx(BUILD_START_S + best.size_bytes / 1e6)
    assert best.break_even_days == pytest.approx(best.build_s / best.saving.seconds)


def test_a_trace_of_ten_days_is_counted_per_day():
    pattern = traced(CUBE, "[:, :, 7]")
    longer = replace(pattern, first_ns=10**18, last_ns=10**18 + 10 * 86400 * 10**9)
    (one,), (ten,) = (advice([p]).layouts for p in (pattern, longer))
    assert ten.saving.seconds == pytest.approx(one.saving.seconds / 10)


def test_chunks_along_the_read_leave_it_and_across_it_do_not():
    square = StoredArray(extent=(2048, 2048), element_size_bytes=8, chunks=(16, 2048))
    assert order_of(advice([stated(square, "[:, 3]")], square)) == (1, 0)
    assert not advice([stated(square, "[32:48, :]")], square).layouts
    with pytest.raises(SdsValueError, match="do not fit"):
        StoredArray(extent=(10, 10), element_size_bytes=4, chunks=(5,))


def test_filters_of_the_original_speak_for_a_replica():
    plain = StoredArray(extent=(64, 64, 4096), element_size_bytes=8, chunks=(8, 8, 4096))
    filtered = replace(
        plain, filters=GZIP, stored_bytes=plain.size_bytes // 8, decode_s_per_byte=4e-9
    )
    patterns = [stated(plain, "[:, :, 7]", 100)]
    order = ReplicaLayout.whole(plain.extent, order=(2, 0, 1))
    saved = {
        array.decode_s_per_byte: what_if(
            DatasetReads(target="f.h5:/d", array=array, patterns=tuple(patterns)), add=[order]
        ).saving.seconds
        for array in (plain, filtered)
    }
    # A plane takes all of it: 128 MiB to undo, and an eighth of that to read.
    decode_s = 100 * 4e-9 * plain.size_bytes
    saved_bytes_s = 100 * builtin_model().coefficients[2] * plain.size_bytes * 7 / 8
    assert saved[4e-9] - saved[0.0] == pytest.approx(decode_s - saved_bytes_s, rel=0.01)


def test_high_and_low_ranks():
    for extent, selection in (((), "[...]"), ((100,), "[3:40]"), ((1, 1), "[0, 0]")):
        array = StoredArray(extent=extent, element_size_bytes=8)
        assert not advice([stated(array, selection)], array).layouts
    deep = StoredArray(extent=(8,) * 7 + (16,), element_size_bytes=4)
    flat = StoredArray(extent=(8,) * 3 + (16,), element_size_bytes=4)
    reads = [stated(deep, "[:, 1, :, 1, 1, 1, 1, 1]", 10_000)]
    given, n_calls = count_calls(advice, reads, deep)
    assert order_of(given) == (1, 3, 4, 5, 6, 7, 0, 2)
    # Of 8! = 1680 * 4! orders few are looked at.
    _, n_half = count_calls(advice, [stated(flat, "[:, 1, :, 1]")], flat)
    assert n_calls < 2**3 * n_half


def test_concurrent_processes_and_stripes_are_counted():
    array = replace(CUBE, stripes=HOPPER_STRIPES, raid=HOPPER_RAID)
    pattern = replace(traced(array, "[:, :, 7]"), n_concurrent=64)
    assert order_of(advice([pattern], array)) == (2, 0, 1)


def test_all_orders_up_to_rank_5_once_each():
    for rank in range(6):
        orders = candidate_orders([], (2,) * rank)
        assert len(set(orders)) == math.factorial(rank)
        assert orders[0] == tuple(range(rank))
        assert [inversions(o) for o in orders] == sorted(map(inversions, orders))


def test_axes_of_length_one_make_no_new_orders():
    orders = candidate_orders([], (1, 5, 1, 6))
    assert [[a for a in order if a in (1, 3)] for order in orders] == [[1, 3], [3, 1]]


@st.composite
def reads_of_cubes(draw):
    extent = tuple(draw(st.integers(1, 60)) for _ in range(3))
    parts = []
    for length in extent:
        start = draw(st.integers(0, length - 1))
        stride = draw(st.integers(1, 9))
        parts.append((start, stride, draw(st.integers(1, (length - 1 - start) // stride + 1)), 1))
    columns = list(zip(*parts, strict=True))
    slab = Hyperslab(start=columns[0], stride=columns[1], count=columns[2], block=columns[3])
    order = draw(st.permutations(range(3)))
    return extent, slab, tuple(order), draw(st.sampled_from([1, 4, 8, 1000]))


@given(reads_of_cubes())
def test_builtin_models_never_send_a_read_where_it_touches_no_less(case):
    extent, slab, order, element_size_bytes = case
    array = StoredArray(extent=extent, element_size_bytes=element_size_bytes)
    original, replica = models_for_table(None)
    here = features_as_stored(array, slab)
    there = features_in_replica(array, slab, order)
    assume(there.runs >= here.runs and there.bytes_touched >= here.bytes_touched)
    assert predict_read(replica, array, there).seconds > predict_read(original, array, here).seconds


def test_one_run_in_the_original_is_never_redirected():
    original, replica = models_for_table(None)
    for selection in ("[3, 4, :]", "[3, 4, 5:9]", "[3, 4, 5]", "[7]", "[2:9]", "[...]"):
        slab = stated(CUBE, selection).call
        here = predict_read(original, CUBE, features_as_stored(CUBE, slab)).seconds
        for order in candidate_orders([], CUBE.extent):
            there = features_in_replica(CUBE, slab, order)
            assert predict_read(replica, CUBE, there).seconds > here


def test_strided_rows_stay_where_they_are_dense():
    # 131,072 runs in one megabyte against 2,048 runs that are a page each.
    array = StoredArray(extent=(256, 256, 4096), element_size_bytes=8)
    slab = stated(array, "[3, 0:64, ::2]").call
    original, replica = models_for_table(None)
    here = predict_read(original, array, features_as_stored(array, slab)).seconds
    there = predict_read(replica, array, features_in_replica(array, slab, (2, 0, 1))).seconds
    assert here < there
    assert replica.via is Via.ENGINE


def test_replicas_in_chunks_are_read_through_hdf5():
    original, contiguous = models_for_table(None)
    original_again, chunked = models_for_table(None, chunked=True)
    assert (original_again, chunked.via) == (original, Via.HDF5)
    assert chunked.coefficients == contiguous.coefficients
    array = StoredArray(extent=(64, 64, 64), element_size_bytes=8)
    touched = features_as_stored(array, stated(array, "[:, 3]").call)
    assert (
        predict_read(chunked, array, touched).seconds
        > predict_read(original, array, touched).seconds
    )
