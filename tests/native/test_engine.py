"""The core's face in Python: permutation, strided copies, identities."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sds import _native
from sds.errors import SdsValueError

TYPES = ["u1", "<i2", ">f4", "f8", "c16", "S3", "M8[ns]", [("a", "u1"), ("b", "<f8")]]


@given(
    st.data(),
    st.sampled_from(TYPES),
    hnp.array_shapes(min_dims=0, max_dims=6, min_side=0, max_side=9),
)
def test_permute_equals_transpose(data, dtype, shape):
    order = data.draw(st.permutations(range(len(shape))))
    src = np.empty(shape, dtype)
    bytes_of = np.random.default_rng(0).integers(0, 256, src.nbytes, np.uint8)
    src.reshape(-1).view(np.uint8)[:] = bytes_of.reshape(-1)
    result = _native.permute(src, order)
    assert result.shape == src.transpose(order).shape
    assert result.dtype == src.dtype
    assert result.tobytes() == np.ascontiguousarray(src.transpose(order)).tobytes()


@pytest.mark.parametrize("order", [(2, 1, 0), (0, 2, 1), (1, 2, 0), (2, 0, 1), (1, 0, 2)])
@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "u8", "c16", "V32", "V100"])
def test_permute_equals_transpose_where_tiles_are_cut(order, dtype):
    shape = (70, 33, 131)
    itemsize = np.dtype(dtype).itemsize
    raw = np.random.default_rng(1).integers(0, 256, (*shape, itemsize), np.uint8)
    src = raw.view(dtype)[..., 0]
    out = np.empty([shape[i] for i in order], dtype)
    assert _native.permute(src, order, out) is out
    assert out.tobytes() == np.ascontiguousarray(raw.transpose(*order, 3)).tobytes()


@pytest.mark.parametrize(
    ("src", "order", "out", "named"),
    [
        (np.zeros((2, 3)), (0, 0), None, r"\(0, 0\) is no permutation"),
        (np.zeros((2, 3)), (0,), None, r"\(0,\) is no permutation"),
        (np.zeros((2, 3)), (0, 2), None, "is no permutation of the axes 0 to 1"),
        (np.zeros((2, 3)).T, (0, 1), None, "not C-contiguous"),
        (np.zeros((2, 3)), (1, 0), np.zeros((2, 3)), r"shape \(3, 2\)"),
        (np.zeros((2, 3)), (1, 0), np.zeros((3, 2), "f4"), "8 bytes per element"),
        (np.zeros(2, object), (0,), None, "Python objects"),
        ([[1]], (0, 1), None, "not a NumPy array"),
    ],
)
def test_permute_names_what_it_refuses(src, order, out, named):
    with pytest.raises(SdsValueError, match=named):
        _native.permute(src, order, out)


def test_permute_does_not_write_where_it_may_not():
    out = np.zeros((3, 2))
    out.flags.writeable = False
    with pytest.raises(SdsValueError, match="read-only"):
        _native.permute(np.ones((2, 3)), (1, 0), out)
    assert not out.any()


@given(st.data(), hnp.array_shapes(min_dims=1, max_dims=4, max_side=12))
def test_copy_strided_equals_assignment(data, shape):
    index = tuple(slice(None, None, data.draw(st.sampled_from([1, 2, -1, -3]))) for _ in shape)
    order = data.draw(st.permutations(range(len(shape))))
    src = np.arange(np.prod(shape)).reshape(shape)[index].transpose(order)
    target = np.full([3 * n for n in src.shape], -1)
    expected = target.copy()
    into = tuple(slice(1, 1 + 2 * n, 2) for n in src.shape)
    expected[into] = src
    _native.copy_strided(src, target[into])
    assert np.array_equal(target, expected)


def test_identity_is_what_stat_says(tmp_path):
    path = tmp_path / "ä\udcff.bin"
    path.write_bytes(b"12345")
    found = path.stat()
    assert _native.identity(path) == (
        found.st_ino,
        5,
        found.st_mtime_ns,
        found.st_ctime_ns,
    )
    with pytest.raises(FileNotFoundError):
        _native.identity(tmp_path / "none")
    with pytest.raises(SdsValueError, match="NUL"):
        _native.identity("a\0b")
