"""The HDF5 file around the elements of a replica.

It is made before the elements are: the dataset early allocated at an aligned offset, with the
attributes, dimension scales and fill value of the source, and the provenance. What is then written
goes straight to the dataset's place in the file. Only the checksums and the time come after.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import h5py
import numpy as np

import sds
from sds.dataset import get_dataset, is_type_of_fixed_size
from sds.errors import UnsupportedError
from sds.organizer import replica as names
from sds.organizer.blocks import block_size_bytes, metadata_checksum, n_blocks

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from sds.organizer.plan import ReorganizationPlan

ALIGNMENT_BYTES = 4096
# Old enough for every HDF5 since 1.10, new enough for attributes above 64 KiB. No upper bound: a
# type of a newer file keeps its newer version.
_LIBVER = ("v108", "latest")
# The connector checks at most 1 MiB of metadata; the checksums take up to 256 KiB of it.
_CARRIED_BYTES = 512 * 1024
_SCALE_OVERHEAD_BYTES = 8 * 1024
_NETCDF_COORDINATES = "_Netcdf4Coordinates"
# Kept by the dimension scale interface, which writes them anew.
_SCALE_ATTRIBUTES = {"DIMENSION_LIST", "REFERENCE_LIST", "DIMENSION_LABELS"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """Where things lie in a replica file."""

    data_offset_bytes: int
    checksums_offset_bytes: int


def open_source(path: Path) -> h5py.File:
    """Open an original for reading, without a lock: the program that owns it may want to write."""
    return h5py.File(path, "r", locking=False)


def create_container(staged: Path, plan: ReorganizationPlan) -> Container:
    """Make `staged` an HDF5 file that lacks nothing but the elements and their checksums.

    Raises
    ------
    UnsupportedError
        If the path of the dataset is taken by what SDS stores in a replica.
    """
    if plan.dataset_path == names.CHECKSUMS_PATH:
        message = f"{plan.dataset_path} is the name of SDS's own checksums: rename the dataset"
        raise UnsupportedError(message)
    with (
        open_source(plan.source_path) as source,
        h5py.File(
            staged,
            "w",
            libver=_LIBVER,
            locking=False,
            alignment_threshold=max(1, min(plan.size_bytes, 1 << 20)),
            alignment_interval=ALIGNMENT_BYTES,
        ) as target,
    ):
        original = get_dataset(source, plan.dataset_path)
        copy = _create_dataset(target, original, plan)
        left_out = _carry_attributes(original, copy, plan.order)
        left_out += _carry_scales(original, copy, plan.order)
        _write_provenance(target, plan, left_out)
        checksums = _create_early(
            target,
            names.CHECKSUMS_PATH,
            h5py.h5t.STD_U32LE,
            (1 + n_blocks(plan.size_bytes, block_size_bytes(plan.size_bytes)),),
            h5py.h5p.create(h5py.h5p.DATASET_CREATE),
        )
        target.flush()
        return Container(
            data_offset_bytes=int(copy.get_offset()),
            checksums_offset_bytes=int(checksums.get_offset()),
        )


def find_container(staged: Path, plan: ReorganizationPlan) -> Container:
    """Return where things lie in a file that :func:`create_container` made earlier."""
    with h5py.File(staged, "r", locking=False) as target:
        return Container(
            data_offset_bytes=int(target[plan.dataset_path].id.get_offset()),
            checksums_offset_bytes=int(target[names.CHECKSUMS_PATH].id.get_offset()),
        )


def finish_container(
    staged: Path,
    container: Container,
    plan: ReorganizationPlan,
    checksums: NDArray[np.uint32],
    *,
    build_s: float,
) -> None:
    """Write the time of the build and the checksums of the elements and of all the rest.

    The first of the stored checksums is that of the metadata with its own four bytes zero.
    """
    with h5py.File(staged, "r+", libver=_LIBVER, locking=False) as target:
        target.attrs.modify(names.BUILD_SECONDS, np.float64(build_s))
    stored = np.concatenate([np.zeros(1, np.uint32), checksums]).astype("<u4")
    at = container.checksums_offset_bytes
    with staged.open("r+b", buffering=0) as stream:
        descriptor = stream.fileno()
        os.pwrite(descriptor, stored.tobytes(), at)
        crc = metadata_checksum(
            descriptor,
            data_offset_bytes=container.data_offset_bytes,
            size_bytes=plan.size_bytes,
            zeroed_offset_bytes=at,
        )
        os.pwrite(descriptor, crc.to_bytes(4, "little"), at)


def _create_early(
    parent: h5py.File,
    path: str,
    file_type: h5py.h5t.TypeID,
    extent: Sequence[int],
    properties: h5py.h5p.PropDCID,
) -> h5py.h5d.DatasetID:
    """Create a contiguous dataset whose bytes have their place in the file but are not written."""
    properties.set_layout(h5py.h5d.CONTIGUOUS)
    properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    properties.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    links = h5py.h5p.create(h5py.h5p.LINK_CREATE)
    links.set_create_intermediate_group(True)
    space = h5py.h5s.create_simple(tuple(extent))
    return h5py.h5d.create(parent.id, path.encode(), file_type, space, dcpl=properties, lcpl=links)


def _create_dataset(
    target: h5py.File, original: h5py.Dataset, plan: ReorganizationPlan
) -> h5py.h5d.DatasetID:
    """Create the dataset of the replica: type, properties and permuted extent of the original."""
    file_type = original.id.get_type().copy()  # a named type would stay behind in the source
    properties = original.id.get_create_plist()  # a copy: fill value, order of attributes
    while properties.get_nfilters():
        properties.remove_filter(properties.get_filter(0)[0])
    return _create_early(target, plan.dataset_path, file_type, plan.replica_extent, properties)


def _carry_attributes(
    original: h5py.Dataset, copy: h5py.h5d.DatasetID, order: Sequence[int]
) -> list[str]:
    """Copy the attributes, smallest first; return the names of those that do not come along."""
    left_out: list[str] = []
    room = _CARRIED_BYTES // 2
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
        if name in _SCALE_ATTRIBUTES:
            continue
        room -= _attribute_bytes(attribute)
        # References point into the source file; in another they would point at nothing.
        if room < 0 or file_type.detect_class(h5py.h5t.REFERENCE):
            left_out.append(f"attribute {name}")
            continue
        _copy_attribute(attribute, copy, order)
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


def _copy_attribute(
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


def _carry_scales(
    original: h5py.Dataset, copy: h5py.h5d.DatasetID, order: Sequence[int]
) -> list[str]:
    """Copy and attach dimension scales and labels; return the names of those left out."""
    left_out: list[str] = []
    room = _CARRIED_BYTES // 2
    target = h5py.Dataset(copy)
    if h5py.h5ds.is_scale(original.id):
        return left_out  # a scale has no scales
    for axis, source_axis in enumerate(order):
        dimension = original.dims[source_axis]
        if dimension.label:
            target.dims[axis].label = dimension.label
        for scale in dimension.values():
            if scale.name not in target.file:
                room -= scale.id.get_storage_size() + _SCALE_OVERHEAD_BYTES
                if room < 0:
                    left_out.append(f"dimension scale {scale.name}")
                    continue
                _copy_scale(scale, target.file)
            target.dims[axis].attach_scale(target.file[scale.name])
    return left_out


def _copy_scale(scale: h5py.Dataset, target: h5py.File) -> None:
    """Copy a scale to the same path; what refers to datasets of the source is dropped."""
    links = h5py.h5p.create(h5py.h5p.LINK_CREATE)
    links.set_create_intermediate_group(True)
    path = scale.name.encode()
    h5py.h5o.copy(scale.file.id, path, target.id, path, lcpl=links)
    copied = target[scale.name]
    for name in _SCALE_ATTRIBUTES & set(copied.attrs):
        del copied.attrs[name]


def _write_provenance(target: h5py.File, plan: ReorganizationPlan, left_out: Sequence[str]) -> None:
    """Write what the replica is a copy of, and how it was made, to the root group."""
    identity = plan.source_identity
    attributes = target.attrs
    attributes[names.FORMAT] = np.uint32(names.FORMAT_VERSION)
    attributes[names.SOURCE] = names.stored_path(plan.source_path)
    attributes[names.SOURCE_IDENTITY] = np.array(
        [identity.inode, identity.size_bytes, identity.mtime_ns, identity.ctime_ns], np.uint64
    )
    attributes[names.DATASET] = plan.dataset_path
    attributes[names.ORDER] = np.array(plan.order, np.int64)
    attributes[names.PLAN] = json.dumps(plan.to_json())
    attributes[names.VERSION] = sds.__version__
    attributes[names.CREATED] = datetime.now(UTC).isoformat(timespec="seconds")
    attributes[names.BUILD_SECONDS] = np.float64(0)
    attributes[names.BLOCK_BYTES] = np.int64(block_size_bytes(plan.size_bytes))
    attributes[names.LEFT_OUT] = json.dumps(list(left_out))
