"""Encode sort keys as unsigned integers of the same order.

Rows are sorted and merged by these: one comparison of integers, whatever the type of the key. The
order is that of the numbers; the two zeros are equal, and NaN comes after all numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def ordered_keys(keys: NDArray[Any]) -> NDArray[np.unsignedinteger[Any]]:
    """Return integers that compare as the keys do: shape (n,), of the size of a key.

    Parameters
    ----------
    keys
        Shape (n,): booleans, integers or floating-point numbers of at most 8 bytes, of any byte
        order.

    >>> ordered_keys(np.array([-2, 3], np.int8))
    array([126, 131], dtype=uint8)
    """
    native = keys.astype(keys.dtype.newbyteorder("="), copy=False)
    word = np.dtype(f"u{native.dtype.itemsize}")
    sign = word.type(1 << (8 * word.itemsize - 1))
    if native.dtype.kind in "bu":
        return np.ascontiguousarray(native).view(word)
    if native.dtype.kind == "i":
        flipped: NDArray[Any] = np.ascontiguousarray(native).view(word) ^ sign
        return flipped
    with np.errstate(invalid="ignore"):  # of signaling NaN
        bits = (native + native.dtype.type(0)).view(word)  # -0.0 becomes 0.0
    # Two's complement of what is negative: larger magnitudes come first.
    ordered: NDArray[Any] = np.where(bits & sign, ~bits, bits | sign)
    ordered[np.isnan(native)] = nan_key(word)
    return ordered


def nan_key(word: np.dtype[Any]) -> np.unsignedinteger[Any]:
    """Return what stands for NaN: more than infinity, which is no pattern of all ones."""
    largest: np.unsignedinteger[Any] = word.type(np.iinfo(word).max)
    return largest
