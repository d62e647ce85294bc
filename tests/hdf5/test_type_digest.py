"""The canonical text of types: equal types, equal text, whatever wrote them."""

import h5py
import numpy as np
import pytest
from h5py import h5t

from sds import _native
from sds.errors import UnsupportedError
from sds.hdf5.type_digest import type_crc32c, type_text

F4 = "f4<0:32{31,23,8,0,23,127,0}"


def odd_integer():
    odd = h5t.STD_U32BE.copy()
    odd.set_precision(17)
    odd.set_offset(3)
    return odd


def narrow_bitfield():
    # h5py cannot make one, but read one.
    encoded = bytearray(h5t.STD_B8LE.encode())
    encoded[-2] = 5  # precision
    return h5t.decode(bytes(encoded))


def tagged():
    opaque = h5t.create(h5t.OPAQUE, 16)
    opaque.set_tag(b"a]b")
    return opaque


@pytest.mark.parametrize(
    ("file_type", "text"),
    [
        (h5t.STD_I32LE, "i4<s0:32"),
        (h5t.STD_U16BE, "i2>u0:16"),
        (odd_integer(), "i4>u3:17"),
        (h5t.IEEE_F32LE, F4),
        (h5t.IEEE_F64BE, "f8>0:64{63,52,11,0,52,1023,0}"),
        (h5t.py_create(np.dtype("S12"), logical=True), "s12z0"),
        (h5t.STD_B8LE, "b1<0:8"),
        (h5t.STD_B32BE, "b4>0:32"),
        (tagged(), r"o16[a\]b]"),
        (h5t.py_create(np.dtype("?"), logical=True), "ei1<s0:8{FALSE=00;TRUE=01;}"),
        (
            h5t.py_create(h5py.enum_dtype({"A=": -2, "B": 258}, basetype=">i2"), logical=True),
            r"ei2>s0:16{A\==fffe;B=0102;}",
        ),
        (
            h5t.py_create(np.dtype([("a{", "<i4"), ("b", "<f4", (3, 2))]), logical=True),
            rf"c28{{a\{{@0:i4<s0:32;b@4:a[3,2,]{F4};}}",
        ),
    ],
)
def test_texts_by_hand(file_type, text):
    assert type_text(file_type) == text.encode()
    assert type_crc32c(file_type) == _native.crc32c(text.encode())


@pytest.mark.parametrize(
    "file_type",
    [
        h5t.py_create(h5py.string_dtype(), logical=True),
        h5t.py_create(h5py.vlen_dtype(np.int32), logical=True),
        h5t.STD_REF_OBJ,
        narrow_bitfield(),
        h5t.py_create(np.dtype([("a", h5py.string_dtype())]), logical=True),
    ],
)
def test_what_cannot_be_redirected_has_no_text(file_type):
    with pytest.raises(UnsupportedError, match="cannot be redirected"):
        type_text(file_type)


def test_the_text_survives_a_file(tmp_path):
    dtype = np.dtype([("x", ">f8"), ("y", "<u2", (4,)), ("z", "S5")])
    with h5py.File(tmp_path / "types.h5", "w") as file:
        file.create_dataset("d", (3,), dtype)
    with h5py.File(tmp_path / "types.h5") as file:
        stored = type_text(file["d"].id.get_type())
    assert stored == type_text(h5t.py_create(dtype, logical=True))
