"""Slow answers found by walking every byte, to check the fast ones against.

Nothing here shares a formula with the core: selections become index arrays, index arrays become
bytes, bytes become sets.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np


def selected_indices(start, stride, count, block):
    """Indices per axis that a regular hyperslab selects."""
    return [
        np.array([s + i * t + j for i in range(n) for j in range(b)], dtype=np.int64)
        for s, t, n, b in zip(start, stride, count, block, strict=True)
    ]


def selected_bytes(extent, element_bytes, offset_bytes, indices):
    """Every file byte that a selection given by its indices per axis covers, sorted."""
    elements = np.arange(int(np.prod(extent, dtype=np.int64))).reshape(extent)
    chosen = elements[np.ix_(*indices)].ravel() if indices else elements.ravel()
    first = offset_bytes + chosen[:, None] * element_bytes
    return np.sort((first + np.arange(element_bytes)).ravel())


def runs_of_bytes(file_bytes):
    """Maximal ranges (offset, length) of sorted file bytes."""
    runs = []
    for byte in file_bytes.tolist():
        if runs and runs[-1][0] + runs[-1][1] == byte:
            runs[-1][1] += 1
        else:
            runs.append([byte, 1])
    return [tuple(run) for run in runs]


def touched_by_bytes(
    file_bytes,
    *,
    unit_bytes,
    data_disks,
    min_request_bytes,
    stripe_bytes=None,
    stripe_count=None,
    components=None,
):
    """Requests (object, number), block positions of each (object, disk), by definition alone.

    ``components``: of (begin, end, stripe size, OSTs); each OST of each component has an object of
    the file, even where several are on one OST. An object is (ost, component, stripe).
    """
    if components is None:
        components = [(0, 1 << 62, stripe_bytes, range(stripe_count))]
    requests = set()
    for number, (begin, end, size, osts) in enumerate(components):
        held = file_bytes[(begin <= file_bytes) & (file_bytes < end)]
        stripes = held // size % len(osts)
        object_offsets = held // (size * len(osts)) * size + held % size
        for stripe, request in set(
            zip(stripes.tolist(), (object_offsets // min_request_bytes).tolist(), strict=True)
        ):
            requests.add(((osts[stripe], number, stripe), request))
    positions = defaultdict(set)
    for where, request in requests:
        begin = request * min_request_bytes
        for block in range(begin // unit_bytes, (begin + min_request_bytes - 1) // unit_bytes + 1):
            positions[where, block % data_disks].add(block // data_disks)
    return requests, {disk: np.array(sorted(touched)) for disk, touched in positions.items()}


def disks_of_bytes(file_bytes, **layout):
    """Of each (ost, disk): blocks, gaps, their length, and unbroken successions of blocks.

    Objects on one OST lie apart: between them there is no gap.
    """
    requests, positions = touched_by_bytes(file_bytes, **layout)
    disks = defaultdict(lambda: np.zeros(4, dtype=np.int64))
    for ((ost, _, _), disk), touched in positions.items():
        steps = np.diff(touched)
        gaps = int((steps > 1).sum())
        disks[ost, disk] += (len(touched), gaps, int((steps - 1).sum()), gaps + 1)
    return requests, disks


def features_of_bytes(file_bytes, **layout):
    """Every feature of reading a set of file bytes."""
    requests, disks = disks_of_bytes(file_bytes, **layout)
    most = np.max([*disks.values(), np.zeros(4, dtype=np.int64)], axis=0).tolist()
    return {
        "runs": len(runs_of_bytes(file_bytes)),
        "bytes_useful": len(file_bytes),
        "block_depth": most[0],
        "block_gap_count": most[1],
        "block_gap_distance": most[2],
        "bytes_touched": len(requests) * layout["min_request_bytes"],
        "osts_touched": len({ost for (ost, _, _), _ in requests}),
        "disks_touched": len(disks),
    }


def operation_of_bytes(processes, *, collective, **layout):
    """Every feature of an operation whose processes read these sets of file bytes."""
    readers = [file_bytes for file_bytes in processes if len(file_bytes)]
    reads = [np.unique(np.concatenate(readers))] if collective and readers else readers
    per_read = [features_of_bytes(read, **layout) for read in reads]
    sums = defaultdict(lambda: np.zeros(5, dtype=np.int64))
    ost_requests = defaultdict(int)
    segments = []
    for read in reads:
        requests, disks = disks_of_bytes(read, **layout)
        # A request follows another where that one is the one before it in the same object.
        segments.append(sum((where, i - 1) not in requests for where, i in requests))
        for (ost, _, _), _ in requests:
            ost_requests[ost] += 1
        for disk, values in disks.items():
            sums[disk] += (*values, 1)
    most_sums = np.max([*sums.values(), np.zeros(5, dtype=np.int64)], axis=0).tolist()

    def most(name):
        return max((read[name] for read in per_read), default=0)

    def total(name):
        return sum(read[name] for read in per_read)

    return {
        "processes": len(readers),
        "block_depth": most("block_depth"),
        "block_gap_count": most("block_gap_count"),
        "block_gap_distance": most("block_gap_distance"),
        "osts_touched": len(ost_requests),
        "disks_touched": len(sums),
        "runs": total("runs"),
        "runs_most": most("runs"),
        "segments_most": max(segments, default=0),
        "bytes_useful": total("bytes_useful"),
        "bytes_touched": total("bytes_touched"),
        "bytes_touched_most": most("bytes_touched"),
        "ost_bytes_touched": max(ost_requests.values(), default=0) * layout["min_request_bytes"],
        "disk_blocks": most_sums[0],
        "disk_gap_count": most_sums[1],
        "disk_gap_distance": most_sums[2],
        "disk_segments": most_sums[3],
        "disk_processes": most_sums[4],
    }


def block_gap_paper(extent, indices):
    """Liu 2014's shortcut: what is left out on the slow axes, what is read on the fastest."""
    chosen = [len(i) for i in indices]
    if not extent:
        return 0
    return sum(n - k for n, k in zip(extent[:-1], chosen[:-1], strict=True)) + chosen[-1]
