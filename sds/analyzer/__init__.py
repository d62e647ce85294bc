"""Reads become logical reads, and logical reads become access patterns. Pure: no I/O."""

from sds.analyzer.find import best_observed_rate, combine_patterns, find_patterns, merge_patterns
from sds.analyzer.logical import LogicalReads, logical_reads
from sds.analyzer.patterns import (
    AccessPattern,
    PatternKind,
    Shape,
    classify,
    stated_pattern,
)
from sds.analyzer.places import BoxGroup, Place, group_boxes
from sds.analyzer.records import ReadRecords
from sds.analyzer.recurring import MIN_READS, recurring_segments, served_from, tile_reads
from sds.analyzer.trail import ReadTrail, join_trails, trail_of

__all__ = [
    "MIN_READS",
    "AccessPattern",
    "BoxGroup",
    "LogicalReads",
    "PatternKind",
    "Place",
    "ReadRecords",
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
