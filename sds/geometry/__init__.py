"""Selections, and what reading them from striped storage touches."""

from sds.geometry.chunk_grid import chunk_features, chunks_touched
from sds.geometry.chunk_selection import chunks_on_axis, count_chunks
from sds.geometry.dataspace import Box, Dataspace, Hyperslab, check_chunks, check_order
from sds.geometry.features import BlockFeatures, FeatureBounds, block_features, extent_features
from sds.geometry.layout import (
    HOPPER,
    HOPPER_RAID,
    HOPPER_STRIPES,
    LOCAL_DISK,
    LOCAL_DISK_RAID,
    LOCAL_DISK_STRIPES,
    ArrayLayout,
    ChunkedLayout,
    ContiguousLayout,
    FileLayout,
    FileStripes,
    RaidLayout,
    StripeComponent,
    StripeLayout,
    Stripes,
)
from sds.geometry.operation import (
    OperationFeatures,
    OstLoads,
    operation_features,
    operation_loads,
    operation_of_extents,
)
from sds.geometry.reads import IoMode, ProcessReads, process_grid
from sds.geometry.segments import (
    MAX_TILES,
    MAX_TILES_OF_FILE,
    MAX_TILES_OF_READ,
    SegmentList,
    tile_grid,
    tiles_touched,
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
    "MAX_TILES",
    "MAX_TILES_OF_FILE",
    "MAX_TILES_OF_READ",
    "ArrayLayout",
    "BlockFeatures",
    "Box",
    "ChunkedLayout",
    "ContiguousLayout",
    "Dataspace",
    "FeatureBounds",
    "FileLayout",
    "FileStripes",
    "Hyperslab",
    "IoMode",
    "OperationFeatures",
    "OstLoads",
    "ProcessReads",
    "RaidLayout",
    "SegmentList",
    "StripeComponent",
    "StripeLayout",
    "Stripes",
    "block_features",
    "check_chunks",
    "check_order",
    "chunk_features",
    "chunks_on_axis",
    "chunks_touched",
    "count_chunks",
    "extent_features",
    "is_basic_index",
    "operation_features",
    "operation_loads",
    "operation_of_extents",
    "parse_index",
    "parse_selection",
    "process_grid",
    "selection_from_index",
    "tile_grid",
    "tiles_touched",
]
