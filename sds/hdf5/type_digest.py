"""Canonical text of a datatype, and its checksum.

A redirect table names the type of its source by this checksum, and the connector, which computes
the same from its own HDF5 library, redirects only where they agree. The grammar is defined at the
top of native/include/sds/table_format.h. H5Tencode would not do: its bytes depend on the library's
version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from sds import _native
from sds.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable

    import h5py

# H5T_class_t
_INTEGER, _FLOAT, _STRING, _BITFIELD, _OPAQUE, _COMPOUND, _ENUM, _ARRAY = 0, 1, 3, 4, 5, 6, 8, 10
# H5T_order_t: little-endian, big-endian, none (one byte)
_ORDERS = {0: "<", 1: ">", 4: "<"}
_SIGNS = {0: "u", 1: "s"}
_PADDINGS = {0: "t", 1: "z", 2: "s"}


def type_crc32c(file_type: h5py.h5t.TypeID) -> int:
    """Return the CRC-32C of :func:`type_text`, as redirect tables store it.

    Raises
    ------
    UnsupportedError
        As :func:`type_text`.
    """
    return _native.crc32c(type_text(file_type))


def type_text(file_type: h5py.h5t.TypeID) -> bytes:
    """Return the canonical text of a type as it is stored, ``dataset.id.get_type()``.

    Raises
    ------
    UnsupportedError
        If the type is, or contains, one of variable length, a reference, a time, a complex number,
        a bit field narrower than its bytes or one in VAX or mixed byte order: such datasets are
        never redirected.
    """
    write = _WRITERS.get(file_type.get_class())
    if write is None:
        raise UnsupportedError(
            f"elements of type class {file_type.get_class()} cannot be redirected: only integers, "
            "floats, bit fields, fixed strings, opaque bytes, enumerations, and compounds and "
            "arrays of these can"
        )
    return write(file_type)


def _escape(name: bytes) -> bytes:
    escaped = bytearray()
    for byte in name:
        if byte in rb"\{}=;@:[]":
            escaped += b"\\"
        escaped.append(byte)
    return bytes(escaped)


def _order(file_type: h5py.h5t.TypeAtomicID) -> str:
    order = file_type.get_order()
    if order not in _ORDERS:
        raise UnsupportedError(
            f"elements in byte order {order} (H5T_order_t) cannot be redirected: only little- and "
            "big-endian ones can"
        )
    return _ORDERS[order]


def _integer(file_type: h5py.h5t.TypeIntegerID) -> bytes:
    sign = _SIGNS[file_type.get_sign()]
    return (
        f"i{file_type.get_size()}{_order(file_type)}{sign}"
        f"{file_type.get_offset()}:{file_type.get_precision()}"
    ).encode()


def _float(file_type: h5py.h5t.TypeFloatID) -> bytes:
    fields = (*file_type.get_fields(), file_type.get_ebias(), file_type.get_norm())
    return (
        f"f{file_type.get_size()}{_order(file_type)}"
        f"{file_type.get_offset()}:{file_type.get_precision()}"
        f"{{{','.join(str(int(field)) for field in fields)}}}"
    ).encode()


def _bitfield(file_type: h5py.h5t.TypeBitfieldID) -> bytes:
    from h5py import h5t  # noqa: PLC0415

    size, order = file_type.get_size(), _order(file_type)
    # h5py tells neither offset nor precision: only the types that HDF5 names are known.
    standard = getattr(h5t, f"STD_B{8 * size}{'LE' if order == '<' else 'BE'}", None)
    if standard is None or not file_type.equal(standard):
        raise UnsupportedError("bit fields narrower than their bytes cannot be redirected")
    return f"b{size}{order}0:{8 * size}".encode()


def _string(file_type: h5py.h5t.TypeStringID) -> bytes:
    if file_type.is_variable_str():
        raise UnsupportedError("strings of variable length cannot be redirected")
    padding = _PADDINGS[file_type.get_strpad()]
    return f"s{file_type.get_size()}{padding}{int(file_type.get_cset())}".encode()


def _opaque(file_type: h5py.h5t.TypeOpaqueID) -> bytes:
    return b"o%d[%b]" % (file_type.get_size(), _escape(file_type.get_tag()))


def _enum(file_type: h5py.h5t.TypeEnumID) -> bytes:
    base = file_type.get_super()
    byte_order: Literal["little", "big"] = "little" if _order(base) == "<" else "big"
    is_signed = _SIGNS[base.get_sign()] == "s"

    def stored(value: int) -> bytes:
        return value.to_bytes(base.get_size(), byte_order, signed=is_signed).hex().encode()

    members = b"".join(
        b"%b=%b;" % (_escape(file_type.get_member_name(i)), stored(file_type.get_member_value(i)))
        for i in range(file_type.get_nmembers())
    )
    return b"e%b{%b}" % (type_text(base), members)


def _compound(file_type: h5py.h5t.TypeCompoundID) -> bytes:
    members = b"".join(
        b"%b@%d:%b;"
        % (
            _escape(file_type.get_member_name(i)),
            file_type.get_member_offset(i),
            type_text(file_type.get_member_type(i)),
        )
        for i in range(file_type.get_nmembers())
    )
    return b"c%d{%b}" % (file_type.get_size(), members)


def _array(file_type: h5py.h5t.TypeArrayID) -> bytes:
    extent = b"".join(b"%d," % n for n in file_type.get_array_dims())
    return b"a[%b]%b" % (extent, type_text(file_type.get_super()))


_WRITERS: dict[int, Callable[[h5py.h5t.TypeID], bytes]] = {
    _INTEGER: _integer,
    _FLOAT: _float,
    _BITFIELD: _bitfield,
    _STRING: _string,
    _OPAQUE: _opaque,
    _COMPOUND: _compound,
    _ENUM: _enum,
    _ARRAY: _array,
}
