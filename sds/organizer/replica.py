"""A replica and what its file says of itself.

docs/reference/replica-format.md describes the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sds.identity import FileIdentity

FORMAT_VERSION = 1

SOURCE = "sds_source"
SOURCE_IDENTITY = "sds_source_identity"
DATASET = "sds_dataset"
ORDER = "sds_order"
PLAN = "sds_plan"
VERSION = "sds_version"
FORMAT = "sds_format"
CREATED = "sds_created"
BUILD_SECONDS = "sds_build_s"
BLOCK_BYTES = "sds_block_bytes"
LEFT_OUT = "sds_left_out"
CHECKSUMS_PATH = "/sds_checksums"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """A reorganized copy of one dataset.

    Attributes
    ----------
    path
        The HDF5 file.
    dataset_path
        The same HDF5 path in source and replica.
    source_path, source_identity
        The original as it was when it was copied.
    order
        Replica axis i is source axis ``order[i]``.
    extent
        Of the source, in elements.
    element_size_bytes, type_crc32c
        Of the type in the file, which source and replica share.
    data_offset_bytes, size_bytes
        Where the elements lie in the file.
    identity
        Of the replica file; it changes when the file is renamed into place.
    metadata_crc32c
        Of every byte of the file outside the elements.
    block_size_bytes
        Each block of so many bytes of elements has its own checksum in the file.
    created
        Time of the build, ISO 8601, UTC.
    sds_version
        The SDS that built it.
    build_s
        Seconds that the copy took, verification not included.
    left_out
        Attributes and dimension scales of the source that the replica does not carry.
    """

    path: Path
    dataset_path: str
    source_path: Path
    source_identity: FileIdentity
    order: tuple[int, ...]
    extent: tuple[int, ...]
    element_size_bytes: int
    type_crc32c: int
    data_offset_bytes: int
    size_bytes: int
    identity: FileIdentity
    metadata_crc32c: int
    block_size_bytes: int
    created: str
    sds_version: str
    build_s: float
    left_out: tuple[str, ...]

    @property
    def replica_extent(self) -> tuple[int, ...]:
        """Elements per axis of the replica."""
        return tuple(self.extent[axis] for axis in self.order)
