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
from sds.trace.untraced import UntracedProcess, read_untraced, untraced_sentences

__all__ = [
    "SUFFIX",
    "SpoolFile",
    "TraceDataset",
    "TraceProcess",
    "TraceRecords",
    "UntracedProcess",
    "expand",
    "read_spool",
    "read_untraced",
    "untraced_sentences",
]
