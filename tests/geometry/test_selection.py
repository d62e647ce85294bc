from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sds.errors import LayoutError, SelectionError
from sds.geometry import (
    Dataspace,
    Hyperslab,
    RaidLayout,
    check_order,
    is_basic_index,
    parse_selection,
    selection_from_index,
)
from tests import oracles, strategies

SHAPE = (6, 1, 9, 4)


def write_index(index):
    parts = index if isinstance(index, tuple) else (index,)
    texts = []
    for part in parts:
        if part is Ellipsis:
            texts.append("...")
        elif isinstance(part, slice):
            pieces = [part.start, part.stop, part.step]
            texts.append(":".join("" if p is None else str(p) for p in pieces))
        else:
            texts.append(str(part))
    return f"[{', '.join(texts)}]" if texts else "()"


def chosen_by(slab):
    indices = oracles.selected_indices(slab.start, slab.stride, slab.count, slab.block)
    return np.arange(np.prod(SHAPE)).reshape(SHAPE)[np.ix_(*indices)]


@given(index=hnp.basic_indices(SHAPE, allow_newaxis=False))
def test_an_index_selects_what_numpy_selects(index):
    parts = index if isinstance(index, tuple) else (index,)
    backwards = any(isinstance(p, slice) and p.step is not None and p.step < 0 for p in parts)
    if backwards:
        with pytest.raises(SelectionError, match="goes backwards"):
            selection_from_index(index, SHAPE)
        return
    slab, shape = selection_from_index(index, SHAPE)
    expected = np.arange(np.prod(SHAPE)).reshape(SHAPE)[index]
    assert shape == expected.shape
    assert np.array_equal(chosen_by(slab).reshape(shape), expected)
    assert parse_selection(write_index(index), SHAPE) == slab
    slab.check_within(SHAPE)


@given(data=st.data())
def test_the_written_form_selects_the_same(data):
    slabs = [data.draw(strategies.axis_slabs(length)) for length in SHAPE]
    start, stride, count, block = zip(*slabs, strict=True)
    slab = Hyperslab(start=start, stride=stride, count=count, block=block)
    same = slab.normalized()
    assert np.array_equal(chosen_by(slab), chosen_by(same))
    assert slab.shape == chosen_by(slab).shape
    if all(b == 1 for b in same.block) and all(same.count):
        assert parse_selection(str(slab), SHAPE).normalized() == same


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "write ... for everything"),
        ("[]", "write ... for everything"),
        ("[0, 0, 0, 0, 0]", r"5 axes selected, the dataset has 4: \(6, 1, 9, 4\); leave out 1"),
        ("[6]", "axis 0: index 6 is out of range; possible is -6 to 5"),
        ("[:, -2]", "axis 1: index -2 is out of range; possible is -1 to 0"),
        ("[..., 1, ...]", "more than one"),
        ("[::-1]", "axis 0: step -1 in ::-1 goes backwards"),
        ("[::0]", "slice step cannot be zero"),
        ("[None]", "np.newaxis"),
        ("[1.5]", "'1.5' in '\\[1.5\\]' is no integer"),
        ("[1:2:3:4]", "has 4 parts"),
        ("[[1, 2]]", "is no integer"),
        ("[0, , 1]", "'' in"),
        ("time", "'time' in 'time' is no integer"),
    ],
)
def test_refusals_name_value_and_remedy(text, message):
    with pytest.raises(SelectionError, match=message):
        parse_selection(text, SHAPE)


def test_large_numbers_are_no_special_case():
    extent = (2**40, 2**70)
    assert parse_selection("[-1, ::1000000000000000000]", extent).start == (2**40 - 1, 0)
    with pytest.raises(SelectionError, match="out of range"):
        parse_selection("[99999999999999999999999]", extent)


def test_masks_and_lists_are_not_basic():
    for index in (True, [1, 2], np.array([1]), None, (0, [1]), "x", 1.0):
        assert not is_basic_index(index)
        with pytest.raises(SelectionError):
            selection_from_index(index, SHAPE)
    assert is_basic_index((np.int64(3), slice(None), ...))


def test_spaces_brackets_and_a_last_comma_do_not_matter():
    expected = parse_selection("[1, :, 2:7:2]", SHAPE)
    for text in ("1,:,2:7:2", " ( 1 , : , 2 : 7 : 2 ) ", "[1,:,2:7:2,...]"):
        assert parse_selection(text, SHAPE) == expected


def test_slabs_that_cannot_be_are_refused():
    with pytest.raises(SelectionError, match="blocks of 3 overlap at stride 2"):
        Hyperslab(start=(0,), stride=(2,), count=(2,), block=(3,))
    with pytest.raises(SelectionError, match="give as many of each"):
        Hyperslab(start=(0,), stride=(), count=(2,), block=(3,))
    with pytest.raises(SelectionError, match="must not be negative"):
        Hyperslab(start=(-1,), stride=(1,), count=(2,), block=(1,))
    with pytest.raises(SelectionError, match="reaches index 6, the dataset ends at 5"):
        Hyperslab.all((7, 1, 9, 4)).check_within(SHAPE)
    with pytest.raises(SelectionError, match="selection has 1 axes, the dataset 4"):
        Hyperslab.all((7,)).check_within(SHAPE)
    with pytest.raises(SelectionError, match="at most 32"):
        Dataspace(extent=(1,) * 33)


@given(order=st.permutations(range(4)))
def test_permuting_moves_axes_as_numpy_does(order):
    slab = Hyperslab(start=(1, 0, 2, 0), stride=(2, 1, 3, 1), count=(2, 1, 2, 4), block=(1,) * 4)
    values = np.zeros(SHAPE).transpose(order)
    assert Dataspace(extent=SHAPE).permuted(order).extent == values.shape
    assert slab.permuted(order).shape == chosen_by(slab).transpose(order).shape


def test_orders_and_layouts_that_cannot_be_are_refused():
    with pytest.raises(LayoutError, match="axis order 0,2 is no permutation of the 2 axes"):
        check_order((0, 2), 2)
    with pytest.raises(LayoutError, match="data_disks is 0"):
        RaidLayout.of(unit_bytes=512, data_disks=0)
    assert RaidLayout.of(unit_bytes=512, data_disks=8).min_request_bytes == 512
