"""Traces of how programs read their datasets."""

from sds.trace.spool_format import (
    SUFFIX,
    SpoolFile,
    TraceDataset,
    TraceProcess,
    TraceRecords,
    expand,
    read_spool,
)

__all__ = [
    "SUFFIX",
    "SpoolFile",
    "TraceDataset",
    "TraceProcess",
    "TraceRecords",
    "expand",
    "read_spool",
]
