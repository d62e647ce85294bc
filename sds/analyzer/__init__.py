"""Join HDF5 reads into logical reads, and group those into access patterns. Pure: no I/O."""

from sds.analyzer.classify import (
    best_observed_rate,
    combine_patterns,
    find_patterns,
    merge_patterns,
)
from sds.analyzer.hot_segments import MIN_READS, recurring_segments, served_from, tile_reads
from sds.analyzer.logical_reads import LogicalReads, logical_reads
from sds.analyzer.patterns import (
    AccessPattern,
    PatternKind,
    Shape,
    classify,
    stated_pattern,
)
from sds.analyzer.read_history import ReadTrail, join_trails, trail_of
from sds.analyzer.read_records import ReadRecords
from sds.analyzer.read_times import BY_ENGINE, BY_HDF5, ReadTimes
from sds.analyzer.regions import BoxGroup, Place, group_boxes

__all__ = [
    "BY_ENGINE",
    "BY_HDF5",
    "MIN_READS",
    "AccessPattern",
    "BoxGroup",
    "LogicalReads",
    "PatternKind",
    "Place",
    "ReadRecords",
    "ReadTimes",
    "ReadTrail",
    "Shape",
    "best_observed_rate",
    "classify",
    "combine_patterns",
    "find_patterns",
    "group_boxes",
    "join_trails",
    "logical_reads",
    "merge_patterns",
    "recurring_segments",
    "served_from",
    "stated_pattern",
    "tile_reads",
    "trail_of",
]
