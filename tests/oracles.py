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
    file_bytes, *, stripe_bytes, stripe_count, unit_bytes, data_disks, min_request_bytes
):
    """Requests (ost, number), and block positions of each (ost, disk), by the definitions alone."""
    requests = set()
    for byte in file_bytes.tolist():
        ost = byte // stripe_bytes % stripe_count
        round_start = byte // (stripe_bytes * stripe_count) * stripe_bytes
        object_offset = round_start + byte % stripe_bytes
        requests.add((ost, object_offset // min_request_bytes))
    positions = defaultdict(set)
    for ost, request in requests:
        begin = request * min_request_bytes
        for block in range(begin // unit_bytes, (begin + min_request_bytes - 1) // unit_bytes + 1):
            positions[ost, block % data_disks].add(block // data_disks)
    return requests, {disk: np.array(sorted(touched)) for disk, touched in positions.items()}


def features_of_bytes(file_bytes, **layout):
    """Every feature of reading a set of file bytes."""
    requests, positions = touched_by_bytes(file_bytes, **layout)
    steps = {disk: np.diff(touched) for disk, touched in positions.items()}
    return {
        "runs": len(runs_of_bytes(file_bytes)),
        "bytes_useful": len(file_bytes),
        "block_depth": max((len(touched) for touched in positions.values()), default=0),
        "block_gap_count": max((int((step > 1).sum()) for step in steps.values()), default=0),
        "block_gap_distance": max((int((step - 1).sum()) for step in steps.values()), default=0),
        "bytes_touched": len(requests) * layout["min_request_bytes"],
        "osts_touched": len({ost for ost, _ in requests}),
        "disks_touched": len(positions),
    }


def operation_of_bytes(processes, *, collective, **layout):
    """Every feature of an operation whose processes read these sets of file bytes."""
    readers = [file_bytes for file_bytes in processes if len(file_bytes)]
    reads = [np.unique(np.concatenate(readers))] if collective and readers else readers
    per_read = [features_of_bytes(read, **layout) for read in reads]
    sums = defaultdict(lambda: defaultdict(int))
    ost_requests = defaultdict(int)
    for read in reads:
        requests, positions = touched_by_bytes(read, **layout)
        for ost, _ in requests:
            ost_requests[ost] += 1
        for disk, touched in positions.items():
            steps = np.diff(touched)
            sums[disk]["disk_blocks"] += len(touched)
            sums[disk]["disk_gap_count"] += int((steps > 1).sum())
            sums[disk]["disk_gap_distance"] += int((steps - 1).sum())
            sums[disk]["disk_segments"] += int((steps > 1).sum()) + 1
            sums[disk]["disk_processes"] += 1

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
        "bytes_useful": total("bytes_useful"),
        "bytes_touched": total("bytes_touched"),
        "bytes_touched_most": most("bytes_touched"),
        "ost_bytes_touched": max(ost_requests.values(), default=0) * layout["min_request_bytes"],
    } | {
        name: max((disk[name] for disk in sums.values()), default=0)
        for name in (
            "disk_blocks",
            "disk_gap_count",
            "disk_gap_distance",
            "disk_segments",
            "disk_processes",
        )
    }


def block_gap_paper(extent, indices):
    """Liu 2014's shortcut: what is left out on the slow axes, what is read on the fastest."""
    chosen = [len(i) for i in indices]
    if not extent:
        return 0
    return sum(n - k for n, k in zip(extent[:-1], chosen[:-1], strict=True)) + chosen[-1]
