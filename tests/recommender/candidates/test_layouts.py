"""What the core refuses of layouts."""

from __future__ import annotations

import numpy as np
import pytest

from sds import _native
from sds.errors import SdsValueError

KIND, GAP, COEFFICIENTS, FLOOR_S = _native.builtin_model()
EQUATION = (KIND, GAP, False, COEFFICIENTS, FLOOR_S, 1.0)


def layouts(**changed):
    return _native.Layouts(
        {
            "extent": (100, 100), "element_bytes": 8, "chunk_shape": (10, 10),
            "stored_bytes": 80_000, "decode_s_per_byte": 0.0, "data_offset_bytes": 0,
            "layout": (1 << 20, 1, 4096, 1, 4096), "model": EQUATION, "engine_model": None,
            "candidates": [],
        }
        | changed
    )  # fmt: skip


def choose(asked):
    column = np.array([[0, 0]]), np.array([[1, 1]]), np.array([[100, 1]]), np.array([[1, 1]])
    return asked.choose(*column, np.array([1]))


def test_a_layout_is_priced():
    assert np.isfinite(choose(layouts())[0]).all()


@pytest.mark.parametrize("number", range(4))
def test_a_layout_without_a_size_is_refused(number):
    numbers = [1 << 20, 1, 4096, 1, 4096]
    numbers[number] = 0
    with pytest.raises(SdsValueError, match="layout"):
        layouts(layout=tuple(numbers))


@pytest.mark.parametrize(
    "changed",
    [{"stored_bytes": -1}, {"decode_s_per_byte": -1.0}, {"decode_s_per_byte": float("nan")}],
)
def test_chunks_that_cannot_be_are_refused(changed):
    with pytest.raises(SdsValueError, match="chunks"):
        layouts(**changed)
