"""The record of a replica, as REST sends it and ``sds --json`` prints it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import (
    Literal,
)

from sds.catalog.records import (
    ReplicaState,
)
from sds.geometry import Box, SegmentList
from sds.geometry.replica_layout import Filter, ReplicaLayout, SortOrder
from sds.hdf5.identity import FileIdentity
from sds.organizer.replica_file.replica import Replica


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaRecord:
    """A reorganized copy of one dataset, or a sorted one of a table.

    Attributes
    ----------
    order
        Replica axis i is source axis ``order[i]``.
    storage
        ``contiguous`` or ``chunked``.
    chunk_shape
        In the axes of the replica; None unless chunked.
    filters
        Of the chunks, in the order in which writing applies them, without the checksum.
    region
        The box of the source that it holds, in the axes of the source.
    path
        The replica file.
    size_bytes
        Of its elements, decoded.
    stored_bytes
        What the file spends on them; None until built.
    reason
        Why it is in its state.
    source_identity
        Of the source as it was copied.
    build_s
        Time that planning, writing and verifying took; None until built.
    verified_ns
        When every byte was last found sound, ns since 1970; None: to be verified next.
    replica
        What the organizer built; None until then.
    sort
        Of a table whose rows are sorted, else None. Such a replica answers queries; no read is
        redirected to it.
    segments
        The tiles that it holds, else None; its region is then the box around them.
    in_shadow
        Whether it is to be measured, or is being measured, while it serves a share of its reads.
    pinned
        False: the server may remove it to make room for others, in mode auto.
    predicted_saving_s_per_read
        What it was to save of each read that it serves, by the advice that it was built on; None
        where advice did not name it.
    """

    id: int
    file: str
    dataset: str
    order: tuple[int, ...]
    storage: Literal["contiguous", "chunked"]
    chunk_shape: tuple[int, ...] | None
    filters: tuple[Filter, ...]
    region: Box
    state: ReplicaState
    path: str
    size_bytes: int
    stored_bytes: int | None
    created_ns: int
    changed_ns: int
    reason: str
    source_identity: FileIdentity
    build_s: float | None
    verified_ns: int | None
    replica: Replica | None
    sort: SortOrder | None = None
    segments: SegmentList | None = None
    in_shadow: bool = False
    pinned: bool = True
    predicted_saving_s_per_read: float | None = None

    @property
    def layout(self) -> ReplicaLayout:
        """Layout that distinguishes it from other replicas of the dataset."""
        return ReplicaLayout(
            order=self.order,
            chunk_shape=self.chunk_shape,
            filters=self.filters,
            region=self.region,
            sort=self.sort,
            segments=self.segments,
        )
