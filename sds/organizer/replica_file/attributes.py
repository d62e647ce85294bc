"""Attributes of a source, carried over to its replica."""

from __future__ import annotations

from typing import TYPE_CHECKING

import h5py
import numpy as np

from sds.hdf5.dataset import is_type_of_fixed_size

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

# The connector checks at most 1 MiB of metadata; the checksums take up to 256 KiB of it, scales
# another 256 KiB.
_ROOM_BYTES = 256 * 1024
_NETCDF_COORDINATES = "_Netcdf4Coordinates"
# Kept by the dimension scale interface, which writes them anew.
SCALE_ATTRIBUTES = frozenset({"DIMENSION_LIST", "REFERENCE_LIST", "DIMENSION_LABELS"})


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
    if sum(map(_attribute_bytes, attributes)) > room:
        attributes.sort(key=_attribute_bytes)
    for attribute in attributes:
        name = attribute.name.decode()
        file_type = attribute.get_type()
        if name in SCALE_ATTRIBUTES:
            continue
        room -= _attribute_bytes(attribute)
        # References point into the source file; in another they would point at nothing.
        refers = file_type.detect_class(h5py.h5t.REFERENCE)
        if room < 0 or refers or name in without:
            left_out.append(f"attribute {name}")
            continue
        copy_attribute(attribute, copy, order)
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
    return fixed_bytes + sum(
        len(part) if isinstance(part, bytes) else np.asarray(part).nbytes
        for part in elements.reshape(-1).tolist()
    )


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
    if attribute.name.decode() == _NETCDF_COORDINATES and elements.shape == (len(order),):
        elements = np.ascontiguousarray(elements[list(order)])  # one dimension id per axis
    created.write(elements, mtype=file_type)
