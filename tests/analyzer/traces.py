"""Traces to analyze, written down read by read."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from sds.analyzer import ReadRecords

HYPERSLAB, ALL, POINTS = 2, 1, 4


@dataclass
class Read:
    """One record: slices per axis, and loops as (turns, advance per axis), outermost first."""

    index: tuple
    loops: list = field(default_factory=list)
    at_ms: int = 0
    took_ms: float = 1.0
    pause_ms: float = 0.0
    kind: int = HYPERSLAB
    thread: int = 0
    served_by: int = 0
    left_by: int = 0
    collective: bool = False
    n_elements: int | None = None


def slab_of(index, extent):
    rows = []
    for item, length in zip(index, extent, strict=True):
        part = slice(item, item + 1) if isinstance(item, int) else item
        start, stop, step = part.indices(length)
        rows.append((start, step, len(range(start, stop, step)), 1))
    return [tuple(row[i] for row in rows) for i in range(4)]


def records_of_reads(reads, extent, *, process="p", element_size_bytes=4, n_loops=4):
    rank = len(extent)
    slabs = [slab_of(read.index, extent) for read in reads]
    repeat = np.ones((len(reads), n_loops), dtype=np.int64)
    advance = np.zeros((len(reads), n_loops, rank), dtype=np.int64)
    for i, read in enumerate(reads):
        for loop, (turns, step) in enumerate(read.loops):
            repeat[i, loop] = turns
            advance[i, loop] = step
    n = repeat.prod(axis=1)
    start_ns = np.array([1_000_000_000 + read.at_ms * 1_000_000 for read in reads], dtype=np.int64)
    each_ns = np.array([read.took_ms * 1e6 for read in reads])
    latency = np.zeros((len(reads), 40), dtype=np.uint32)
    for i, ns in enumerate(each_ns.astype(np.int64).tolist()):
        latency[i, max(0, ns.bit_length() - 1)] = n[i]
    gap_ns = np.array([read.pause_ms * 1e6 for read in reads])
    elements = [
        math.prod(slabs[i][2]) if read.n_elements is None else read.n_elements
        for i, read in enumerate(reads)
    ]

    def column(values, dtype=np.int64):
        return np.array(list(values), dtype=dtype)

    def slab_part(part):
        return column(slab[part] for slab in slabs).reshape(len(reads), rank)

    return ReadRecords(
        process=process,
        extent=tuple(extent),
        element_size_bytes=element_size_bytes,
        selection_kind=column(read.kind for read in reads),
        start=slab_part(0),
        stride=slab_part(1),
        count=slab_part(2),
        block=slab_part(3),
        n_elements=column(elements),
        repeat=repeat,
        advance=advance,
        start_ns=start_ns,
        last_start_ns=start_ns + ((n - 1) * (each_ns + gap_ns)).astype(np.int64),
        elapsed_ns=(n * each_ns).astype(np.int64),
        elapsed_min_ns=each_ns.astype(np.int64),
        elapsed_max_ns=each_ns.astype(np.int64),
        latency=latency,
        thread=column(read.thread for read in reads),
        served_by=column(read.served_by for read in reads),
        left_by=column(read.left_by for read in reads),
        collective=column((read.collective for read in reads), dtype=np.bool_),
    )
