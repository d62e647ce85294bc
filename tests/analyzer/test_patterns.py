from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sds.analyzer import PatternKind, classify, merge_patterns, stated_pattern
from sds.analyzer.patterns import PAUSE_DAYS
from sds.errors import SdsValueError, SelectionError
from sds.geometry import Hyperslab, parse_selection
from sds.text import DAY_S
from tests.strategies import axis_slabs

CUBE = (40, 50, 60)


@pytest.mark.parametrize(
    ("extent", "selection", "kind", "axes", "words"),
    [
        (CUBE, "[3, 4, 5]", "point", (), "point"),
        (CUBE, "[:, 4, 5]", "line", (0,), "line along axis 0"),
        (CUBE, "[2, 4, 5:9]", "line", (2,), "line along axis 2"),
        (CUBE, "[2, 4, ::3]", "line", (2,), "line along axis 2 (every 3 on axis 2)"),
        (CUBE, "[:, :, 7]", "plane", (0, 1), "plane fixing axis 2"),
        (CUBE, "[7]", "plane", (1, 2), "plane fixing axis 0"),
        (CUBE, "[:, 1:9, 7]", "sub-plane", (0, 1), "sub-plane fixing axis 2"),
        (CUBE, "[:, ::2, 7]", "sub-plane", (0, 1), "sub-plane fixing axis 2 (every 2 on axis 1)"),
        (CUBE, "[1:3, :, :]", "sub-cube", (0, 1, 2), "sub-cube along axes 0, 1, 2"),
        (CUBE, "[...]", "whole dataset", (0, 1, 2), "whole dataset"),
        ((100,), "[10:20]", "contiguous chunks", (0,), "contiguous chunks"),
        ((100,), "[::7]", "noncontiguous chunks", (0,), "noncontiguous chunks (every 7 on axis 0)"),
        ((30, 40), "[3:9, :]", "sub-plane", (0, 1), "sub-plane along axes 0, 1"),
        ((1, 30, 1), "[0, 3:9, 0]", "contiguous chunks", (1,), "contiguous chunks along axis 1"),
        ((), "[...]", "whole dataset", (), "whole dataset"),
        ((8, 9, 10, 11), "[2]", "sub-cube", (1, 2, 3), "sub-cube along axes 1, 2, 3"),
        ((2,) * 32, "[..., 0]", "sub-cube", tuple(range(31)), None),
    ],
)
def test_selections_have_the_names_that_the_paper_gives_them(extent, selection, kind, axes, words):
    pattern = stated_pattern(selection, extent=extent, element_size_bytes=4)
    assert pattern.kind == kind
    assert pattern.axes == axes
    if words is not None:
        assert pattern.description == words


def test_blocks_with_holes_between_them_are_noncontiguous_chunks():
    slab = Hyperslab(start=(0, 0, 0), stride=(8, 1, 1), count=(4, 50, 1), block=(3, 1, 1))
    assert classify(slab, CUBE).kind is PatternKind.NONCONTIGUOUS_CHUNKS


def test_irregular_selections_are_noncontiguous_chunks_of_their_bounding_box():
    box = parse_selection("[1:9, 2:30, 4]", CUBE)
    assert classify(box, CUBE, irregular=True).kind is PatternKind.NONCONTIGUOUS_CHUNKS


def test_adjacent_blocks_are_one_block():
    slab = Hyperslab(start=(0, 0, 4), stride=(10, 5, 1), count=(4, 10, 1), block=(10, 5, 1))
    assert classify(slab, CUBE).kind is PatternKind.PLANE


@st.composite
def slabs(draw):
    extent = tuple(draw(st.lists(st.integers(0, 6), max_size=5)))
    parts = [draw(axis_slabs(length)) for length in extent]
    columns = list(zip(*parts, strict=True)) or [(), (), (), ()]
    return extent, Hyperslab(
        start=columns[0], stride=columns[1], count=columns[2], block=columns[3]
    )


@given(slabs())
def test_the_kind_agrees_with_the_selected_indices(case):
    extent, slab = case
    shape = classify(slab, extent)
    chosen = np.zeros(extent, dtype=bool)
    indices = [
        [s + i * step + j for i in range(n) for j in range(b)] for s, step, n, b in slab.axes()
    ]
    chosen[np.ix_(*indices)] = True
    n_chosen = int(chosen.sum())
    assert (shape.kind is PatternKind.EMPTY) == (n_chosen == 0)
    if n_chosen:
        assert (shape.kind is PatternKind.WHOLE) == bool(chosen.all())
        varying = tuple(a for a in range(len(extent)) if np.ptp(np.nonzero(chosen)[a]) > 0)
        assert shape.axes == varying
        if shape.kind is PatternKind.POINT:
            assert n_chosen == 1
        if shape.kind is PatternKind.PLANE:
            assert n_chosen == extent[varying[0]] * extent[varying[1]]


def test_stating_nothing_is_refused():
    with pytest.raises(SelectionError, match="selects nothing"):
        stated_pattern("[3:3, :, :]", extent=CUBE, element_size_bytes=4)
    with pytest.raises(SelectionError):
        stated_pattern("[:, 99, :]", extent=CUBE, element_size_bytes=4)
    with pytest.raises(SdsValueError, match="positive"):
        stated_pattern("[:, 9, :]", extent=CUBE, element_size_bytes=4, n_reads_per_day=0)


def test_only_equal_shapes_merge():
    a = stated_pattern("[:, :, 3]", extent=CUBE, element_size_bytes=4, n_reads_per_day=5)
    b = stated_pattern("[:, :, 9]", extent=CUBE, element_size_bytes=4, n_reads_per_day=7)
    c = stated_pattern("[:, 3, :]", extent=CUBE, element_size_bytes=4)
    assert merge_patterns(a, b).n_reads == 12
    assert merge_patterns(a, b).bytes_read == a.bytes_read + b.bytes_read
    with pytest.raises(SdsValueError, match="different patterns"):
        merge_patterns(a, c)


@pytest.mark.parametrize(
    ("pauses", "ends_after"),
    [(None, PAUSE_DAYS), (0.5, PAUSE_DAYS), (1.5, PAUSE_DAYS), (7, 14)],
)
def test_a_pattern_has_ended_that_pauses_longer_than_ever_before(pauses, ends_after):
    day_ns = int(DAY_S * 1e9)
    stated = stated_pattern("[:, :, 3]", extent=CUBE, element_size_bytes=4)
    longest_ns = None if pauses is None else int(pauses * day_ns)
    read = replace(
        stated, stated=False, first_ns=day_ns, last_ns=day_ns, longest_pause_ns=longest_ns
    )
    assert not read.has_ended(day_ns + int(0.99 * ends_after * day_ns))
    assert read.has_ended(day_ns + int(1.01 * ends_after * day_ns))
    assert not stated.has_ended(1 << 62)


def test_an_unknown_pause_is_taken_for_the_longest_it_can_be():
    day_ns = int(DAY_S * 1e9)
    stated = stated_pattern("[:, :, 3]", extent=CUBE, element_size_bytes=4)
    read = replace(stated, stated=False, first_ns=day_ns, last_ns=11 * day_ns)
    assert not read.has_ended(30 * day_ns)
    assert read.has_ended(32 * day_ns)


def test_a_pattern_survives_json():
    from pydantic import TypeAdapter

    from sds.analyzer import AccessPattern

    pattern = stated_pattern("[:, ::2, 3]", extent=CUBE, element_size_bytes=8)
    adapter = TypeAdapter(AccessPattern)
    assert adapter.validate_json(adapter.dump_json(pattern)) == pattern
