import math
import re
import time
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sds.analyzer import PatternKind, stated_pattern
from sds.errors import LayoutError, SdsValueError
from sds.geometry import HOPPER_RAID, HOPPER_STRIPES, ContiguousLayout, Hyperslab, block_features
from sds.recommender import (
    CostModel,
    GapKind,
    HeldoutError,
    ModelKind,
    NoiseGates,
    StoredArray,
    Via,
    models_for_table,
    predict_read,
    rank_layouts,
)
from sds.recommender.cost import features_as_stored, features_in_replica
from sds.recommender.judge import confidence_of
from sds.recommender.layouts import BUILD_START_S
from sds.recommender.orders import candidate_orders, inversions

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


def test_energy_planes_want_the_energy_axis_first_and_the_others_kept_in_order():
    advice = rank_layouts([stated(CUBE, "[:, :, 7]")], array=CUBE, target="cube.h5:/image")
    assert advice.order == (2, 0, 1)
    assert advice.command == "sds reorganize cube.h5:/image --order 2,0,1"
    assert advice.best.speedup > 100
    assert not advice.calibrated
    assert "uncalibrated" in advice.reason
    assert "order 2,1,0" in advice.reason, "as good by prediction, and said so"


def test_time_series_want_time_last():
    assert rank_layouts([stated(GRID, "[:, 3, 4]")], array=GRID).order == (1, 2, 0)


def test_spectra_beside_planes_keep_the_original():
    patterns = [stated(CUBE, "[:, :, 7]"), stated(CUBE, "[3, 4, :]")]
    advice = rank_layouts(patterns, array=CUBE)
    by_name = {cost.pattern: cost for cost in advice.best.patterns}
    assert advice.order == (2, 0, 1)
    assert not by_name["line along axis 2"].served_by_replica
    assert by_name["line along axis 2"].seconds_then == by_name["line along axis 2"].seconds_now


def test_reads_along_the_grain_leave_it():
    for selection in ("[3, 4, :]", "[3]", "[...]", "[3, 4, 5:9]"):
        advice = rank_layouts([stated(CUBE, selection)], array=CUBE)
        assert advice.order is None
        assert advice.command is None
        assert advice.best.benefit_s == 0.0
        assert "no read would be faster" in advice.reason


def test_lines_that_make_a_plane_are_charged_as_lines():
    at_once = traced(CUBE, "[:, :, 7]", 10)
    line = stated(CUBE, "[3, :, 7]").call
    by_lines = replace(at_once, call=line, n_calls=2560)
    a, b = (rank_layouts([p], array=CUBE) for p in (at_once, by_lines))
    assert a.order == b.order == (2, 0, 1)
    assert b.best.predicted_s > a.best.predicted_s, "2560 reads, though of as many bytes"


def test_exactly_one_candidate_is_advised_and_it_is_the_first():
    for patterns in ([stated(CUBE, "[:, :, 7]")], [stated(CUBE, "[3]")], []):
        advice = rank_layouts(patterns, array=CUBE)
        assert [c.advised for c in advice.candidates] == [True] + [False] * (
            len(advice.candidates) - 1
        )
        assert sum(c.order is None for c in advice.candidates) == 1
        assert all(c.reason for c in advice.candidates)


def test_a_replica_that_exists_is_not_advised_again():
    pattern = stated(CUBE, "[:, :, 7]")
    advice = rank_layouts([pattern], array=CUBE, existing_orders=[(2, 0, 1)])
    assert advice.order is None
    assert advice.best.predicted_s_now < 1.0
    with pytest.raises(LayoutError):
        rank_layouts([pattern], array=CUBE, existing_orders=[(0, 0, 1)])


@pytest.mark.parametrize(
    ("gates", "n", "words"),
    [
        (NoiseGates(), 2, "only 2 reads seen"),
        (NoiseGates(min_total_s=1e4), 100, "less than 2.78 h"),
        (NoiseGates(min_saving_s=1e4), 100, "it would save"),
        (NoiseGates(min_speedup=1e6), 100, "times as fast"),
        (NoiseGates(min_confidence=0.9999999999999), 100, "cannot tell from no gain"),
    ],
)
def test_each_gate_holds_a_layout_back_and_says_why(gates, n, words):
    advice = rank_layouts([traced(CUBE, "[:, :, 7]", n)], array=CUBE, gates=gates)
    assert advice.order is None
    assert words in advice.reason


def test_a_confidence_just_below_the_gate_reads_so():
    pattern = stated(CUBE, "[:, :, 7]", 100)
    confidence = rank_layouts([pattern], array=CUBE).best.confidence
    gates = NoiseGates(min_confidence=confidence + 1e-4 * (1 - confidence))
    reason = rank_layouts([pattern], array=CUBE, gates=gates).reason
    found, needed = re.findall(r"(?:confidence|needed) ([\d.]+)%", reason)
    assert float(found) < float(needed)


def test_stated_patterns_pass_the_gate_of_reads():
    assert rank_layouts([stated(CUBE, "[:, :, 7]", 1)], array=CUBE).order == (2, 0, 1)


def test_a_loop_over_planes_that_abut_is_one_logical_read_and_enough():
    plane = traced(CUBE, "[:, :, 7]", 10)
    sweep = traced(CUBE, "[:, :, 0:10]", 1, call=plane.call, n_calls=10)
    assert (sweep.n_reads, sweep.n_calls) == (1, 10)
    assert rank_layouts([sweep], array=CUBE).order == (2, 0, 1)


def test_gates_that_make_no_sense_are_refused():
    with pytest.raises(SdsValueError):
        NoiseGates(min_speedup=0.5)
    with pytest.raises(SdsValueError):
        NoiseGates(min_calls=-1)


def test_points_keep_their_time_in_every_layout():
    box = traced(CUBE, "[3:200, :, 5:900]")
    points = replace(
        box, kind=PatternKind.NONCONTIGUOUS_CHUNKS, irregular=True, elapsed_s=50.0, bytes_read=4000
    )
    advice = rank_layouts([points], array=CUBE)
    assert advice.order is None
    assert advice.best.predicted_s_now == pytest.approx(50.0)
    assert "points or irregular" in advice.reason


def test_what_cannot_be_told_apart_is_said():
    array = StoredArray(extent=(8, 256, 1024), element_size_bytes=4)
    advice = rank_layouts([traced(array, "[:, 7, :]", 10_000)], array=array)
    assert advice.order is None
    assert "cannot tell from no gain" in advice.reason
    assert "sds calibrate" in advice.reason


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
    sure = rank_layouts([pattern], array=CUBE, models=(model(0.05),) * 2)
    assert sure.order == (2, 0, 1)
    # Ten times as fast at the margin, and less than that predicted.
    rms = math.log(10 * sure.best.speedup) / math.sqrt(2.0)
    advice = rank_layouts([pattern], array=CUBE, models=(model(rms),) * 2)
    assert advice.order is None
    gain, needed = (
        float(number.replace(",", ""))
        for number in re.findall(r"(?:at most|needed) ([\d,.e+]+)", advice.reason)
    )
    assert gain == pytest.approx(sure.best.speedup, rel=0.01)
    assert needed == pytest.approx(10 * gain, rel=0.01)
    assert "with order 2,0,1 reads are predicted" in advice.reason
    assert "no read would be faster" not in advice.reason
    reasons = {c.order: c.reason for c in advice.candidates}
    assert "cannot tell from no gain" in reasons[2, 0, 1]


def test_confidence_follows_the_error_of_the_models():
    good, poor = (model(0.05),) * 2, (model(1.0),) * 2
    assert confidence_of(1.0, good) == pytest.approx(0.5)
    assert confidence_of(1.5, good) > 0.99
    assert confidence_of(1.5, poor) < 0.7
    assert confidence_of(100.0, poor) > 0.99


def test_size_build_and_break_even():
    advice = rank_layouts([stated(CUBE, "[:, :, 7]", 50)], array=CUBE, build_bytes_per_s=1e6)
    best = advice.best
    assert best.size_bytes == 256 * 256 * 1024 * 4
    assert best.build_cost_s == pytest.approx(BUILD_START_S + best.size_bytes / 1e6)
    saving_per_read = best.benefit_s / 50
    assert best.break_even_reads == math.ceil(best.build_cost_s / saving_per_read)
    assert best.benefit_s_per_day == pytest.approx(best.benefit_s)


def test_a_trace_of_ten_days_is_counted_per_day():
    pattern = replace(
        traced(CUBE, "[:, :, 7]"), first_ns=10**18, last_ns=10**18 + 10 * 86400 * 10**9
    )
    best = rank_layouts([pattern], array=CUBE).best
    assert best.benefit_s_per_day == pytest.approx(best.benefit_s / 10)


def test_chunks_along_the_read_leave_it_and_across_it_do_not():
    square = StoredArray(extent=(2048, 2048), element_size_bytes=8, chunks=(16, 2048))
    assert rank_layouts([stated(square, "[:, 3]")], array=square).order == (1, 0)
    assert rank_layouts([stated(square, "[32:48, :]")], array=square).order is None
    with pytest.raises(SdsValueError, match="do not fit"):
        StoredArray(extent=(10, 10), element_size_bytes=4, chunks=(5,))


def test_filters_of_the_original_speak_for_a_replica():
    plain = StoredArray(extent=(64, 64, 4096), element_size_bytes=8, chunks=(8, 8, 4096))
    filtered = replace(plain, stored_bytes=plain.size_bytes // 8, decode_s_per_byte=4e-9)
    patterns = [stated(plain, "[:, :, 7]", 100)]
    saved = {
        array.decode_s_per_byte: rank_layouts(patterns, array=array).best.benefit_s
        for array in (plain, filtered)
    }
    # A plane takes all of it: 128 MiB to undo, and an eighth of that to read.
    decode_s = 100 * 4e-9 * plain.size_bytes
    saved_bytes_s = 100 * 1e-9 * plain.size_bytes * 7 / 8
    assert saved[4e-9] - saved[0.0] == pytest.approx(decode_s - saved_bytes_s, rel=0.01)
    row = features_as_stored(filtered, stated(filtered, "[0, 0]").call)
    assert row.bytes_touched == plain.chunk_bytes // 8


def test_high_and_low_ranks():
    for extent, selection in (
        ((), "[...]"),
        ((100,), "[3:40]"),
        ((0, 5), "[:, 3]"),
        ((1, 1), "[0, 0]"),
    ):
        array = StoredArray(extent=extent, element_size_bytes=8)
        patterns = [] if 0 in extent else [stated(array, selection)]
        advice = rank_layouts(patterns, array=array)
        assert advice.order is None
    highest = StoredArray(extent=(2,) * 32, element_size_bytes=8)
    advice = rank_layouts([stated(highest, "[..., 0]")], array=highest)
    assert advice.order == (31, *range(31))
    deep = StoredArray(extent=(8,) * 7 + (16,), element_size_bytes=4)
    began = time.process_time()
    advice = rank_layouts([stated(deep, "[:, 1, :, 1, 1, 1, 1, 1]")], array=deep)
    assert advice.order == (1, 3, 4, 5, 6, 7, 0, 2)
    assert time.process_time() - began < 5.0


def test_patterns_of_another_dataset_are_refused():
    with pytest.raises(SdsValueError, match="is not of this dataset"):
        rank_layouts([stated(CUBE, "[:, :, 7]")], array=GRID)
    with pytest.raises(SdsValueError, match="must be positive"):
        rank_layouts([], array=GRID, build_bytes_per_s=0)


def test_concurrent_processes_and_stripes_are_counted():
    array = replace(CUBE, stripes=HOPPER_STRIPES, raid=HOPPER_RAID)
    pattern = replace(traced(array, "[:, :, 7]"), n_concurrent=64)
    assert rank_layouts([pattern], array=array).order == (2, 0, 1)


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
    array = StoredArray(extent=(64, 64, 64), element_size_bytes=8, chunks=(8, 8, 8))
    touched = features_as_stored(array, stated(array, "[:, 3]").call)
    assert (
        predict_read(chunked, array, touched).seconds
        > predict_read(original, array, touched).seconds
    )


def test_chunk_features_count_whole_chunks():
    array = StoredArray(extent=(100, 100), element_size_bytes=8, chunks=(10, 10))
    slab = stated(array, "[5:25, ::40]").call
    found = features_as_stored(array, slab)
    assert found.bytes_useful == 3 * 3 * 10 * 10 * 8
    plain = block_features(
        (10, 10),
        Hyperslab(start=(0, 0), stride=(1, 4), count=(3, 3), block=(1, 1)),
        ContiguousLayout(element_size_bytes=800),
        array.stripes,
        array.raid,
    )
    assert found == plain


def test_advice_writes_long_times_and_single_reads_as_tables_do():
    advice = rank_layouts([traced(CUBE, "[:, :, 7]", 1)], array=CUBE)
    assert "only 1 read seen, fewer than 3" in advice.reason
    gates = NoiseGates(min_total_s=660.0)
    assert (
        "less than 11 min"
        in rank_layouts([traced(CUBE, "[:, :, 7]", 10)], array=CUBE, gates=gates).reason
    )
