"""Dimension scales and labels of a source, carried over to its replica."""

from __future__ import annotations

from typing import TYPE_CHECKING

import h5py
import numpy as np

from sds.hdf5.dataset import is_type_of_fixed_size
from sds.organizer.replica_file.attributes import (
    SCALE_ATTRIBUTES,
    copy_attribute,
    left_out_where_it_fails,
    part_bytes,
    text_of,
)

if TYPE_CHECKING:
    from h5py._hl.dims import DimensionProxy

    from sds.organizer.plans.reorganization_plan import ReorganizationPlan

# All of them together; the rest of the 1 MiB of metadata that the connector checks is for others.
_ROOM_BYTES = 256 * 1024
_OVERHEAD_BYTES = 8 * 1024
_CHUNK_ENTRY_BYTES = 64  # of B-trees whose nodes are half full, the largest index
_HEAP_ENTRY_BYTES = 24  # of a value of variable length, besides its bytes


def carry_scales(
    original: h5py.Dataset, copy: h5py.h5d.DatasetID, plan: ReorganizationPlan
) -> list[str]:
    """Copy and attach dimension scales and labels; return the names of those left out.

    A scale of an axis of which the replica holds a part is cut to that part.
    """
    left_out: list[str] = []
    room = _ROOM_BYTES
    target = h5py.Dataset(copy)
    if h5py.h5ds.is_scale(original.id):
        return left_out  # a scale has no scales
    carried: dict[str, slice | None] = {}
    for axis, source_axis in enumerate(plan.order):
        dimension = original.dims[source_axis]
        with left_out_where_it_fails(f"dimension label of axis {source_axis}", left_out):
            if dimension.label:
                target.dims[axis].label = dimension.label
        for scale in _scales_of(dimension, source_axis, left_out):
            part = _part(scale, source_axis, plan)
            if part is not None and scale.id.get_type().detect_class(h5py.h5t.REFERENCE):
                left_out.append(f"dimension scale {scale.name}")
                continue
            if scale.name not in carried:
                n_bytes = _try_to_copy_scale(scale, target.file, part, left_out, room)
                if n_bytes is None:
                    continue
                room -= n_bytes
                carried[scale.name] = part
            elif carried[scale.name] != part:
                # One scale of two axes, and another part of each.
                left_out.append(f"dimension scale {scale.name} of axis {source_axis}")
                continue
            with left_out_where_it_fails(f"dimension scale {scale.name}", left_out):
                target.dims[axis].attach_scale(target.file[scale.name])
    return left_out


def names_of_scales(original: h5py.Dataset) -> list[str]:
    """Return the names of dimension scales, and of labels, as what a replica leaves out."""
    if h5py.h5ds.is_scale(original.id):
        return []
    left_out: list[str] = []
    labels = []
    for axis, dimension in enumerate(original.dims):
        scales = _scales_of(dimension, axis, left_out)
        left_out += [f"dimension scale {scale.name}" for scale in scales]
        with left_out_where_it_fails(f"dimension label of axis {axis}", left_out):
            labels += [f"dimension label {dimension.label}"] if dimension.label else []
    return list(dict.fromkeys(left_out)) + labels


def _scales_of(dimension: DimensionProxy, axis: int, left_out: list[str]) -> list[h5py.Dataset]:
    """Return the scales of an axis that have a name; add the others to `left_out`.

    A list of scales that were deleted, or copied without them, leads nowhere.
    """
    found: list[h5py.Dataset] = []
    with left_out_where_it_fails(f"dimension scales of axis {axis}", left_out):
        found = dimension.values()
    named = [scale for scale in found if isinstance(scale.name, str)]
    for scale in found:
        if isinstance(scale.name, bytes):
            left_out.append(f"dimension scale {text_of(scale.name)}")
        elif scale.name is None:
            left_out.append(f"a dimension scale of axis {axis} that has no name")
    return named


def _part(scale: h5py.Dataset, source_axis: int, plan: ReorganizationPlan) -> slice | None:
    """Return what of a scale belongs to the region; None: all of it."""
    first = plan.region.start[source_axis]
    length = plan.region.extent[source_axis]
    if length == plan.extent[source_axis] or scale.shape != (plan.extent[source_axis],):
        return None
    return slice(first, first + length)


def _n_bytes(scale: h5py.Dataset, part: slice | None) -> int:
    """Return about how many bytes a scale takes in a replica, with its index and heap."""
    if part is None and not _is_better_contiguous(scale):
        n_bytes = int(scale.id.get_storage_size()) + _index_bytes(scale)
    else:
        n = scale.size if part is None else part.stop - part.start
        n_bytes = int(scale.id.get_type().get_size()) * int(n)
    if n_bytes <= _ROOM_BYTES and not _is_of_fixed_size(scale):
        elements = scale[()] if part is None else scale[part]
        n_bytes += sum(_HEAP_ENTRY_BYTES + part_bytes(one) for one in elements.reshape(-1).tolist())
    return n_bytes


def _index_bytes(scale: h5py.Dataset) -> int:
    """Return about how many bytes the index of a scale's chunks takes; 0 where it has none."""
    return 0 if scale.chunks is None else int(scale.id.get_num_chunks()) * _CHUNK_ENTRY_BYTES


def _is_better_contiguous(scale: h5py.Dataset) -> bool:
    """Return whether the index of a scale, as of one written value by value, outweighs it."""
    return len(scale.shape) == 1 and _index_bytes(scale) > max(_OVERHEAD_BYTES, int(scale.nbytes))


def _is_of_fixed_size(scale: h5py.Dataset) -> bool:
    file_type = scale.id.get_type()
    return is_type_of_fixed_size(file_type) or bool(file_type.detect_class(h5py.h5t.REFERENCE))


def _try_to_copy_scale(
    scale: h5py.Dataset,
    target: h5py.File,
    part: slice | None,
    left_out: list[str],
    room_bytes: int,
) -> int | None:
    """Copy a scale; return what it takes, or None after adding it to `left_out`.

    It is left out where it does not fit into `room_bytes`, or cannot be read.
    """
    n_left_out, n_bytes, what = len(left_out), 0, f"dimension scale {scale.name}"
    if scale.name in target:
        left_out.append(what)
        return None
    with left_out_where_it_fails(what, left_out):
        n_bytes = _n_bytes(scale, part) + _OVERHEAD_BYTES
        if n_bytes > room_bytes:
            left_out.append(what)
        else:
            _copy_scale(scale, target, part)
    if len(left_out) == n_left_out:
        return n_bytes
    if scale.name in target:
        del target[scale.name]  # half made
    return None


def _copy_scale(scale: h5py.Dataset, target: h5py.File, part: slice | None) -> None:
    """Copy a scale to the same path; what refers to datasets of the source is dropped."""
    links = h5py.h5p.create(h5py.h5p.LINK_CREATE)
    links.set_create_intermediate_group(True)
    path = scale.name.encode()
    if part is None and _is_better_contiguous(scale):
        part = slice(0, scale.shape[0])
    if part is not None:
        _copy_part(scale, target, part, links)
        return
    h5py.h5o.copy(scale.file.id, path, target.id, path, lcpl=links)
    copied = target[scale.name]
    for name in SCALE_ATTRIBUTES:
        if h5py.h5a.exists(copied.id, name.encode()):
            h5py.h5a.delete(copied.id, name.encode())


def _copy_part(
    scale: h5py.Dataset, target: h5py.File, part: slice, links: h5py.h5p.PropLCID
) -> None:
    """Copy a part of a scale, contiguous, with its attributes."""
    file_type = scale.id.get_type().copy()
    properties = scale.id.get_create_plist()  # a copy: fill value, order of attributes
    while properties.get_nfilters():
        properties.remove_filter(properties.get_filter(0)[0])
    properties.set_layout(h5py.h5d.CONTIGUOUS)
    length = part.stop - part.start
    space = h5py.h5s.create_simple((length,))
    created = h5py.h5d.create(
        target.id, scale.name.encode(), file_type, space, dcpl=properties, lcpl=links
    )
    in_file = scale.id.get_space()
    in_file.select_hyperslab((part.start,), (length,))
    if is_type_of_fixed_size(file_type):
        elements = np.empty((length,), f"V{file_type.get_size()}")
        scale.id.read(space, in_file, elements, mtype=file_type)
        created.write(h5py.h5s.ALL, h5py.h5s.ALL, elements, mtype=file_type)
    else:
        h5py.Dataset(created)[...] = scale[part]
    for index in range(h5py.h5a.get_num_attrs(scale.id)):
        attribute = h5py.h5a.open(scale.id, index=index)
        referring = attribute.get_type().detect_class(h5py.h5t.REFERENCE)
        if text_of(attribute.name) not in SCALE_ATTRIBUTES and not referring:
            copy_attribute(attribute, created, (0,))
