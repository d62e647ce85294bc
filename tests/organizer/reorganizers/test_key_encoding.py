import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sds.organizer.reorganizers.key_encoding import nan_key, ordered_keys

KINDS = [
    f"{order}{kind}"
    for kind in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
    for order in "<>"
] + ["?"]


@given(
    data=st.data(),
    dtype=st.sampled_from(KINDS),
)
def test_ordered_keys_compare_as_the_numbers_do(data, dtype):
    keys = data.draw(hnp.arrays(dtype, st.integers(0, 50)))
    ordered = ordered_keys(keys)
    assert ordered.dtype == np.dtype(f"u{keys.dtype.itemsize}")
    number = ~np.isnan(keys) if keys.dtype.kind == "f" else np.ones(len(keys), bool)
    assert (ordered[~number] == nan_key(ordered.dtype)).all()
    assert (ordered[:, None] < ordered)[np.ix_(number, number)].tolist() == (keys[:, None] < keys)[
        np.ix_(number, number)
    ].tolist()
    assert (ordered[:, None] == ordered)[np.ix_(number, number)].tolist() == (
        keys[:, None] == keys
    )[np.ix_(number, number)].tolist()
    assert (ordered[~number][:, None] > ordered[number]).all() or keys.dtype.kind != "f"


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_nan_of_every_sign_comes_after_infinity_and_the_zeros_are_equal(dtype):
    keys = np.array([np.nan, np.inf, -0.0, 0.0, -np.inf], dtype)
    negative = -keys
    ordered, other = ordered_keys(keys), ordered_keys(negative)
    assert ordered[0] > ordered[1] > ordered[2] == ordered[3] > ordered[4]
    assert other[0] == ordered[0]
