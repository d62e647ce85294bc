"""Selections, and what reading them from striped storage touches."""

from sds.geometry.chunk_grid import chunk_features, chunks_touched
from sds.geometry.dataspace import Box, Dataspace, Hyperslab, check_order
from sds.geometry.features import BlockFeatures, FeatureBounds, block_features, extent_features
from sds.geometry.layout import (
    HOPPER,
    HOPPER_RAID,
    HOPPER_STRIPES,
    LOCAL_DISK,
    LOCAL_DISK_RAID,
    LOCAL_DISK_STRIPES,
    ContiguousLayout,
    FileLayout,
    RaidLayout,
    StripeLayout,
)
from sds.geometry.operation import (
    IoMode,
    OperationFeatures,
    ProcessReads,
    operation_features,
    process_grid,
)
from sds.geometry.selection import (
    is_basic_index,
    parse_index,
    parse_selection,
    selection_from_index,
)

__all__ = [
    "HOPPER",
    "HOPPER_RAID",
    "HOPPER_STRIPES",
    "LOCAL_DISK",
    "LOCAL_DISK_RAID",
    "LOCAL_DISK_STRIPES",
    "BlockFeatures",
    "Box",
    "ContiguousLayout",
    "Dataspace",
    "FeatureBounds",
    "FileLayout",
    "Hyperslab",
    "IoMode",
    "OperationFeatures",
    "ProcessReads",
    "RaidLayout",
    "StripeLayout",
    "block_features",
    "check_order",
    "chunk_features",
    "chunks_touched",
    "extent_features",
    "is_basic_index",
    "operation_features",
    "parse_index",
    "parse_selection",
    "process_grid",
    "selection_from_index",
]
