from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sds.log_errors import pair_rms


@given(st.lists(st.tuples(st.floats(-3, 3), st.sampled_from("abcd")), max_size=12))
def test_pairs_of_one_group_are_compared(reads):
    squares = [(a - b) ** 2 for (a, of), (b, other) in combinations(reads, 2) if of == other]
    expected = np.sqrt(np.mean(squares)) if squares else None
    found = pair_rms(np.array([error for error, _ in reads]), [group for _, group in reads])
    assert found == (None if expected is None else pytest.approx(expected, abs=1e-9))
