"""Attributes of a source, carried over to its replica."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

import h5py
import numpy as np

from sds.hdf5.dataset import is_type_of_fixed_size

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

log = logging.getLogger(__name__)

# The connector checks at most 1 MiB of metadata; the checksums take up to 256 KiB of it, scales
# another 256 KiB.
_ROOM_BYTES = 256 * 1024
_NETCDF_COORDINATES = "_Netcdf4Coordinates"
# Kept by the dimension scale interface, which writes them anew.
SCALE_ATTRIBUTES = frozenset({"DIMENSION_LIST", "REFERENCE_LIST", "DIMENSION_LABELS"})


@contextmanager
def left_out_where_it_fails(what: str, left_out: list[str]) -> Iterator[None]:
    """Add `what` to `left_out` where HDF5 or h5py cannot read or write it.

    The elements are what a replica is for. Errors of the disk are not caught.
    """
    try:
        yield
    except (RuntimeError, ValueError, TypeError, KeyError, OSError) as error:
        if isinstance(error, OSError) and error.errno:
            raise
        log.info("%s is left out: %s", what, error)
        left_out.append(what)


def text_of(name: str | bytes) -> str:
    """Return a name in an HDF5 file as text; bytes that are not UTF-8 as escapes."""
    encoded = name.encode("utf-8", "surrogateescape") if isinstance(name, str) else name
    return encoded.decode("utf-8", "backslashreplace")


def carry_attributes(
    original: h5py.Dataset,
    copy: h5py.h5d.DatasetID,
    order: Sequence[int],
    *,
    without: Collection[str] = (),
) -> list[str]:
    """Copy the attributes, smallest first; return the names of those that do not come along.

    Parameters
    ----------
    without
        Names of attributes to leave out.
    """
    left_out: list[str] = []
    room = _ROOM_BYTES
    tracked = original.id.get_create_plist().get_attr_creation_order()
    by = h5py.h5.INDEX_CRT_ORDER if tracked else h5py.h5.INDEX_NAME
    attributes = [
        h5py.h5a.open(original.id, index=index, index_type=by)
        for index in range(h5py.h5a.get_num_attrs(original.id))
    ]
    sized: list[tuple[int, h5py.h5a.AttrID]] = []
    for attribute in attributes:
        with left_out_where_it_fails(f"attribute {text_of(attribute.name)}", left_out):
            sized.append((_attribute_bytes(attribute), attribute))
    if sum(n_bytes for n_bytes, _ in sized) > room:
        sized.sort(key=lambda one: one[0])
    for n_bytes, attribute in sized:
        name = text_of(attribute.name)
        if name in SCALE_ATTRIBUTES:
            continue
        room -= n_bytes
        # References point into the source file; in another they would point at nothing.
        refers = attribute.get_type().detect_class(h5py.h5t.REFERENCE)
        if room < 0 or refers or name in without:
            left_out.append(f"attribute {name}")
            continue
        n_left_out = len(left_out)
        with left_out_where_it_fails(f"attribute {name}", left_out):
            copy_attribute(attribute, copy, order)
        if len(left_out) > n_left_out and h5py.h5a.exists(copy, attribute.name):
            h5py.h5a.delete(copy, attribute.name)
    return left_out


def _attribute_bytes(attribute: h5py.h5a.AttrID) -> int:
    """Return about how many bytes an attribute takes in a file."""
    space = attribute.get_space()
    file_type = attribute.get_type()
    if space.get_simple_extent_type() == h5py.h5s.NULL:
        return 0
    fixed_bytes = int(space.get_simple_extent_npoints() * file_type.get_size())
    if is_type_of_fixed_size(file_type) or file_type.detect_class(h5py.h5t.REFERENCE):
        return fixed_bytes
    elements = np.empty(attribute.shape, attribute.dtype)
    attribute.read(elements)
    return fixed_bytes + sum(map(part_bytes, elements.reshape(-1).tolist()))


def part_bytes(part: object) -> int:
    """Return the bytes of an element's parts: text, arrays, and tuples of them."""
    if isinstance(part, bytes | str):
        return len(part)
    if isinstance(part, tuple | list):
        return sum(map(part_bytes, part))
    return int(np.asarray(part).nbytes)


def copy_attribute(
    attribute: h5py.h5a.AttrID, copy: h5py.h5d.DatasetID, order: Sequence[int]
) -> None:
    """Copy one attribute, type and space unchanged."""
    space = attribute.get_space()
    file_type = attribute.get_type().copy()
    created = h5py.h5a.create(copy, attribute.name, file_type, space)
    if space.get_simple_extent_type() == h5py.h5s.NULL:
        return
    if not is_type_of_fixed_size(file_type):
        elements = np.empty(attribute.shape, attribute.dtype)
        attribute.read(elements)
        created.write(elements)
        return
    elements = np.empty(attribute.shape, f"V{file_type.get_size()}")
    attribute.read(elements, mtype=file_type)
    if text_of(attribute.name) == _NETCDF_COORDINATES and elements.shape == (len(order),):
        elements = np.ascontiguousarray(elements[list(order)])  # one dimension id per axis
    created.write(elements, mtype=file_type)
