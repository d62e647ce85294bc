import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sds.analyzer import logical_reads
from sds.errors import SdsValueError
from tests.analyzer.traces import ALL, POINTS, Read, records_of_reads

CUBE = (6, 7, 8)
EVERY = slice(None)


def selected(reads):
    return reads.selection.selected.tolist()


def test_lines_read_one_after_the_other_are_a_plane():
    records = records_of_reads([Read((0, EVERY, 3), [(6, (1, 0, 0))])], CUBE)
    reads = logical_reads(records)
    assert selected(reads) == [[6, 7, 1]]
    assert (reads.n_reads.tolist(), reads.n_calls.tolist()) == ([1], [6])
    assert reads.n_elements.tolist() == [42]


def test_the_outer_loop_counts_planes():
    loops = [(8, (0, 0, 1)), (6, (1, 0, 0))]
    reads = logical_reads(records_of_reads([Read((0, EVERY, 0), loops)], CUBE))
    assert selected(reads) == [[6, 7, 1]]
    assert (reads.n_reads.tolist(), reads.n_calls.tolist()) == ([8], [48])
    assert reads.selection.start.tolist() == [[0, 0, 4]], "one in the middle stands for all"


def test_whole_planes_stay_planes():
    reads = logical_reads(records_of_reads([Read((EVERY, EVERY, 0), [(8, (0, 0, 1))])], CUBE))
    assert selected(reads) == [[6, 7, 1]]
    assert reads.n_reads.tolist() == [8]


def test_a_cube_in_pieces_is_one_cube():
    reads = logical_reads(
        records_of_reads([Read((slice(0, 2), EVERY, EVERY), [(3, (2, 0, 0))])], CUBE)
    )
    assert selected(reads) == [[6, 7, 8]]
    assert reads.n_reads.tolist() == [1]


def test_points_are_a_line_and_lines_a_plane():
    loops = [(6, (1, 0, 0)), (7, (0, 1, 0))]
    reads = logical_reads(records_of_reads([Read((0, 0, 3), loops)], CUBE))
    assert selected(reads) == [[6, 7, 1]]


def test_a_walk_backwards_is_the_same_plane():
    reads = logical_reads(records_of_reads([Read((5, EVERY, 3), [(6, (-1, 0, 0))])], CUBE))
    assert selected(reads) == [[6, 7, 1]]
    assert reads.selection.start.tolist() == [[0, 0, 3]]


@pytest.mark.parametrize(
    "step", [(2, 0, 0), (0, 0, 0), (1, 0, 1)], ids=["holes", "again", "diagonal"]
)
def test_reads_that_do_not_abut_stay_apart(step):
    reads = logical_reads(records_of_reads([Read((0, EVERY, 0), [(3, step)])], CUBE))
    assert reads.n_reads.tolist() == [3]
    assert selected(reads) == [[1, 7, 1]]


def test_reads_far_apart_in_time_stay_apart():
    records = records_of_reads([Read((0, EVERY, 3), [(6, (1, 0, 0))], pause_ms=1500)], CUBE)
    assert logical_reads(records).n_reads.tolist() == [6]
    assert logical_reads(records, max_pause_s=2.0).n_reads.tolist() == [1]


def test_unequal_pieces_in_successive_records_are_joined():
    pieces = [
        Read((slice(0, 4), EVERY, 3), at_ms=0),
        Read((slice(4, 5), EVERY, 3), at_ms=2),
        Read((slice(5, 6), EVERY, 3), at_ms=4),
    ]
    reads = logical_reads(records_of_reads(pieces, CUBE))
    assert selected(reads) == [[6, 7, 1]]
    assert (reads.n_reads.tolist(), reads.n_calls.tolist()) == ([1], [3])
    assert reads.elapsed_ns.tolist() == [3_000_000]


def test_threads_do_not_share_a_logical_read():
    pieces = [
        Read((slice(0, 4), EVERY, 3), at_ms=0, thread=0),
        Read((slice(4, 6), EVERY, 3), at_ms=2, thread=1),
    ]
    assert len(logical_reads(records_of_reads(pieces, CUBE))) == 2


def test_points_keep_their_bounding_box_and_are_never_joined():
    records = records_of_reads(
        [Read((slice(0, 2), EVERY, 3), [(3, (2, 0, 0))], kind=POINTS, n_elements=5)], CUBE
    )
    reads = logical_reads(records)
    assert reads.irregular.tolist() == [True]
    assert reads.n_reads.tolist() == [3]
    assert reads.bytes_read.tolist() == [60]


def test_everything_and_scalars():
    whole = records_of_reads([Read((0, 0, 0), kind=ALL, n_elements=336)], CUBE)
    assert selected(logical_reads(whole)) == [[6, 7, 8]]
    scalar = records_of_reads([Read((), [(3, ())], kind=ALL, n_elements=1)], ())
    assert logical_reads(scalar).n_reads.tolist() == [3]


def test_records_of_unequal_shape_are_refused():
    records = records_of_reads([Read((0, 0, 0))], CUBE)
    with pytest.raises(SdsValueError, match="start has shape"):
        type(records)(
            **{f: getattr(records, f) for f in records.__slots__ if f != "start"},
            start=records.start[:, :2],
        )


@given(
    data=st.data(),
    start=st.tuples(*(st.integers(0, n - 1) for n in CUBE)),
)
def test_folding_keeps_elements_bytes_and_time(data, start):
    counts = [data.draw(st.integers(1, n - s)) for n, s in zip(CUBE, start, strict=True)]
    index = tuple(slice(s, s + n) for s, n in zip(start, counts, strict=True))
    loops = [
        (data.draw(st.integers(1, 4)), tuple(data.draw(st.integers(-3, 3)) for _ in range(3)))
        for _ in range(data.draw(st.integers(0, 4)))
    ]
    records = records_of_reads([Read(index, loops)], CUBE)
    reads = logical_reads(records)
    assert int((reads.n_reads * reads.n_elements).sum()) == int(
        (records.n_calls * records.n_elements).sum()
    )
    assert np.array_equal(reads.selection.selected.prod(axis=1), reads.n_elements), (
        "a logical read selects what its pieces do"
    )
    assert int(reads.elapsed_ns.sum()) == int(records.elapsed_ns.sum())
