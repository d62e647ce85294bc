"""What one operation asks of clients, servers and disks: everything that models predict from.

Beside block depth and gap (`sds.geometry.operation_features`) this is what clients make of runs
before servers see them, which decides how often a process waits:

1. Runs of one process with short gaps between them are fetched in one go: the client reads ahead
   to the end of its window. Longer gaps begin another fetch.
2. A process waits for each of its fetches. Between two of them a disk's head travels from where it
   was: by the gap of the process itself, or, where processes read in several places of the file,
   by the distance of those places.
3. Were all processes in step, the server that most of them begin at would send their fetches one
   after another: step_bytes. Were they spread, each server would send its part: ost_bytes.
4. Disks read what all processes touch once, in the order in which it lies; gaps within the
   read-ahead are read with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sds import _native
from sds.errors import SdsValueError
from sds.geometry import IoMode, RaidLayout, operation_features
from sds.recommender.models.feature_matrix import FeatureRow

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sds.geometry import (
        ContiguousLayout,
        OperationFeatures,
        ProcessReads,
        StripeLayout,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientReads:
    """How clients of a file system fetch what programs read.

    Attributes
    ----------
    page_bytes
        Fetched whole.
    gap_bytes
        Runs at most this far apart are fetched in one go.
    window_bytes
        To a multiple of which a client reads on once runs followed so closely.
    after
        So many runs must have followed closely, one after another, before it reads on (steps).
    processes_per_node
        Whose fetches of the same pages at one time are one.
    message_bytes, in_flight
        Of one request to a server at most, and how many of them are under way at once.
    """

    page_bytes: int = 4096
    gap_bytes: int = 32768
    window_bytes: int = 1 << 20
    after: int = 2
    processes_per_node: int = 24
    message_bytes: int = 1 << 20
    in_flight: int = 8

    def __post_init__(self) -> None:
        positive = self.page_bytes, self.window_bytes, self.processes_per_node
        if min(*positive, self.message_bytes, self.in_flight) < 1:
            raise SdsValueError(f"pages, windows, processes and messages must be positive: {self}")
        for name in ("gap_bytes", "after"):
            if getattr(self, name) < 0:
                raise SdsValueError(f"{name} is {getattr(self, name)}; give 0 or more")


# Lustre's client as its manual and llite/rw.c describe it; nodes as Hopper's.
LUSTRE_CLIENT = ClientReads()


def measure_operation(
    extent: tuple[int, ...],
    reads: ProcessReads,
    layout: ContiguousLayout,
    stripes: StripeLayout,
    raid: RaidLayout,
    *,
    mode: IoMode = IoMode.INDEPENDENT,
    n_aggregators: int | None = None,
    client: ClientReads = LUSTRE_CLIENT,
) -> FeatureRow:
    """Return what the reads of several processes ask of the storage.

    Parameters
    ----------
    extent, reads
        The array as its readers know it; ``layout.order`` says how its axes are stored.
    layout, stripes, raid
        Where its bytes lie.
    mode, n_aggregators
        Collective reads are fetched by aggregators; their fetches and steps are 0.
    client
        How runs become fetches.

    Raises
    ------
    SelectionError, LayoutError
        As `sds.geometry.operation_features`.
    """
    of = (extent, reads, layout, stripes)
    found = operation_features(*of, raid, mode=mode, n_aggregators=n_aggregators)
    collective = mode is IoMode.COLLECTIVE
    # With requests as long as the gaps that are read through, the union has no such gaps.
    close = RaidLayout(
        unit_bytes=raid.unit_bytes,
        data_disks=raid.data_disks,
        min_request_bytes=max(raid.min_request_bytes, client.gap_bytes),
    )
    union = operation_features(*of, close, mode=IoMode.COLLECTIVE, n_aggregators=n_aggregators or 1)
    fetched = (
        _NOTHING_FETCHED
        if collective or found.n_processes == 0
        else _fetches(extent, reads, layout, stripes=stripes, raid=raid, client=client, found=found)
    )
    return FeatureRow(
        block_depth=found.block_depth,
        block_gap_count=found.block_gap_count,
        block_gap_distance=found.block_gap_distance,
        block_gap_paper=found.block_gap_paper or 0,
        processes_per_ost=found.processes_per_ost,
        runs_most=found.runs_most,
        bytes_touched_most=found.bytes_touched_most,
        bytes_useful=found.bytes_useful,
        n_processes=found.n_processes,
        n_aggregators=float(n_aggregators or 0) if collective else 0.0,
        first_visits=fetched.first_visits,
        later_fetches=fetched.later_fetches,
        trips_most=fetched.trips_most,
        fetch_distance=fetched.fetch_distance,
        step_bytes=fetched.step_bytes,
        ost_bytes=fetched.ost_bytes,
        disk_segments=union.disk_segments,
        disk_blocks=union.disk_blocks,
        disk_distance=union.disk_gap_distance,
        # HDF5's requests are not counted of operations: each run is taken to be one.
        sieve_requests=found.runs_most,
        sieve_jumps=found.runs_most,
        sieve_bytes=found.bytes_touched_most,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fetched:
    first_visits: float
    later_fetches: float
    trips_most: float
    fetch_distance: float
    step_bytes: float
    ost_bytes: float


_NOTHING_FETCHED = _Fetched(
    first_visits=0.0,
    later_fetches=0.0,
    trips_most=0.0,
    fetch_distance=0.0,
    step_bytes=0.0,
    ost_bytes=0.0,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """Fetches of a selection: all alike, but for where they begin."""

    run_bytes: int
    span_bytes: int
    fetches: float
    windows: float  # fetches, where the client reads each on to the end of its window


def _shape_of(
    extent: tuple[int, ...],
    reads: ProcessReads,
    process: int,
    element_bytes: int,
    client: ClientReads,
) -> _Shape:
    """Return the fetches of one process: its runs, those with short gaps as one."""
    _, run_bytes, counts, strides = _native.runs(
        extent,
        element_bytes,
        0,
        reads.start[process].tolist(),
        reads.stride[process].tolist(),
        reads.count[process].tolist(),
        reads.block[process].tolist(),
    )
    span, fetches, windows, apart = run_bytes, 1.0, 1.0, False
    for count, stride in zip(reversed(counts), reversed(strides), strict=True):
        apart = apart or stride - span > client.gap_bytes + client.page_bytes // 2
        if apart:
            fetches *= count
            windows *= min(count, 1 + (count - 1) * stride // client.window_bytes)
        else:
            span += (count - 1) * stride
    return _Shape(run_bytes=run_bytes, span_bytes=span, fetches=fetches, windows=windows)


def _fetches(
    extent: tuple[int, ...],
    reads: ProcessReads,
    layout: ContiguousLayout,
    *,
    stripes: StripeLayout,
    raid: RaidLayout,
    client: ClientReads,
    found: OperationFeatures,
) -> _Fetched:
    """Return what clients fetch, were they in step and were they not."""
    if layout.order is not None:
        reads = reads.permuted(layout.order)
        extent = tuple(extent[axis] for axis in layout.order)
    processes = np.flatnonzero(((reads.count > 0) & (reads.block > 0)).all(axis=1))
    of_element = np.cumprod((1, *extent[:0:-1]), dtype=np.int64)[::-1][: len(extent)]
    begin = layout.data_offset_bytes + layout.element_size_bytes * (
        reads.start[processes] @ of_element
    )
    chosen = np.column_stack([reads.count, reads.stride, reads.block])[processes]
    _, first, which = np.unique(chosen, axis=0, return_index=True, return_inverse=True)
    shapes = [
        _shape_of(extent, reads, int(processes[i]), layout.element_size_bytes, client)
        for i in first
    ]
    which = which.ravel()
    sent, trips, reads_ahead = _one_fetch(
        begin,
        np.array([s.run_bytes for s in shapes])[which],
        np.array([s.span_bytes for s in shapes])[which],
        client,
    )
    fetches = np.where(
        reads_ahead,
        np.array([s.windows for s in shapes])[which],
        np.array([s.fetches for s in shapes])[which],
    )
    # Processes of one node share what they fetch at one time.
    page = begin // client.page_bytes
    node = processes // client.processes_per_node
    _, alone = np.unique(np.column_stack([node, page]), axis=0, return_index=True)
    stripe = begin // stripes.stripe_size_bytes
    in_step = np.bincount(
        (stripe % stripes.stripe_count)[alone],
        weights=np.minimum(sent, stripes.stripe_size_bytes)[alone],
    )
    # Where processes begin in several places, the head has been at another of them.
    gap = found.block_gap_distance / max(1, found.block_gap_count)
    if (np.diff(np.unique(stripe)) > 1).any():
        apart = float(begin.max() - begin.min()) / stripes.stripe_count
        gap = max(gap, apart / (raid.unit_bytes * raid.data_disks))
    # What one process reads from first, others need not wait for.
    waits = float((fetches * trips).max())
    begun_at = len(np.unique(stripe % stripes.stripe_count))
    first_visits = max(1.0, min(waits, found.osts_touched / begun_at))
    later = max(0.0, float(fetches.max()) - first_visits)
    return _Fetched(
        first_visits=first_visits,
        later_fetches=later,
        trips_most=waits,
        fetch_distance=later * gap,
        step_bytes=float(fetches.max() * in_step.max()),
        ost_bytes=float((fetches * sent)[alone].sum()) / found.osts_touched,
    )


def _one_fetch(
    begin: NDArray[np.int64],
    run_bytes: NDArray[np.int64],
    span_bytes: NDArray[np.int64],
    client: ClientReads,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """Return of each process's first fetch its bytes, its requests, and whether it reads ahead."""
    page, window = client.page_bytes, client.window_bytes
    run_end = -(-(begin + run_bytes) // page) * page
    end = -(-(begin + span_bytes) // page) * page
    of_run = run_end - begin // page * page
    # Once a second run begins in a page of its own, the client reads on to the window's end.
    reads_ahead = end > run_end
    window_end = -(-end // window) * window
    ahead = np.where(reads_ahead, window_end - run_end, 0)
    windows = np.where(reads_ahead, window_end // window - run_end // window, 0)
    trips = 1.0 + windows + of_run / (client.in_flight * client.message_bytes)
    return (of_run + ahead).astype(np.float64), trips, reads_ahead
