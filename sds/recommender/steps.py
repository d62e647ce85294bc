"""What an operation asks of its servers while all its processes stay in step.

Sums over what is touched do not say who asks at the same time. Here every process takes its first
fetches one after another, as a client makes them of its runs, and what all of them fetch in one
step is dealt to the servers:

1. A request begins near the one before or begins a strip; after `ClientReads.after` near ones in
   a row the client reads on to the end of its window, at most as far as the last two strips were
   long, where those were equally long (Lustre's llite/rw.c).
2. In each step, each server sends what is asked of it, once for a node, and its disks read what
   none has asked for before, in the order in which it lies.
3. In step, the slowest server of each step counts; spread, the server with most work in all steps.

Processes that fetch more often than `MOST_STEPS` are taken to go on as in the last half of these
steps. Rates are a device's nominal ones (`Rates`): they weigh seeks against bytes, a model fitted
to times corrects them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sds import _native
from sds.errors import SdsValueError
from sds.recommender.operation import LUSTRE_CLIENT, ClientReads

if TYPE_CHECKING:
    from sds.geometry import ContiguousLayout, ProcessReads, RaidLayout, StripeLayout

MOST_STEPS = 160
# Of one fetch of a process, so many stripes are followed; longer ones are taken to go on alike.
_MOST_STRIPES = 200
# Fetches that need nothing are passed over in rows; so many rows between two fetches at most.
_MOST_ROWS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Nominal rates of servers and disks: 7200 rpm, and an OST's share of the network.

    Attributes
    ----------
    seek_s
        A short seek and half a revolution.
    disk_bytes_per_s
        Of one data disk.
    ost_bytes_per_s, ost_request_s
        Of one server: what it sends, and what a reply costs besides.
    """

    seek_s: float = 0.0052
    disk_bytes_per_s: float = 120e6
    ost_bytes_per_s: float = 224e6
    ost_request_s: float = 20e-6

    def __post_init__(self) -> None:
        if not all(0 < getattr(self, f.name) < float("inf") for f in fields(self)):
            raise SdsValueError(f"rates must be positive numbers: {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMeasures:
    """What is asked of servers in step (``step_``) and spread (``spread_``).

    Attributes
    ----------
    step_s, spread_s, mean_s
        Of the slowest server of each step; of the server with most in all; of the mean server.
    step_sent_s, spread_sent_s, step_disk_s, spread_disk_s
        The parts of it that servers send and that disks position and read.
    step_seeks, spread_seeks, step_disk_bytes, spread_disk_bytes
        What disks do.
    first_s
        The first step.
    steps_most, steps_mean
        Fetches of the process with most; of the mean process.
    steps_followed_share
        Of the process with most: how often it fetches for each fetch followed.
    osts_mean
        Servers asked in a step.
    fetches_mean, fetch_bytes
        Different fetches of a step, and their mean size.
    osts, distinct
        Servers asked at all; parts that disks read for each fetch.
    seek_bytes
        Mean distance between parts that a server's disks read one after another.
    """

    step_s: float
    spread_s: float
    mean_s: float
    step_sent_s: float
    spread_sent_s: float
    step_disk_s: float
    spread_disk_s: float
    step_seeks: float
    spread_seeks: float
    step_disk_bytes: float
    spread_disk_bytes: float
    first_s: float
    steps_most: float
    steps_mean: float
    steps_followed_share: float
    osts_mean: float
    fetches_mean: float
    fetch_bytes: float
    osts: float
    distinct: float
    seek_bytes: float


NOTHING_ASKED = StepMeasures(**dict.fromkeys((f.name for f in fields(StepMeasures)), 0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Processes:
    """Runs of n processes in three levels: begin (n,), length (n,), counts, strides (n, 3)."""

    number: NDArray[np.int64]
    begin: NDArray[np.int64]
    length: NDArray[np.int64]
    counts: NDArray[np.int64]
    strides: NDArray[np.int64]

    def offsets(self, run: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return where a run of each process begins."""
        inner = self.counts[:, 2]
        row = run // inner
        plane = row // self.counts[:, 1]
        found: NDArray[np.int64] = (
            self.begin
            + plane * self.strides[:, 0]
            + row % self.counts[:, 1] * self.strides[:, 1]
            + run % inner * self.strides[:, 2]
        )
        return found


def measure_steps(
    extent: tuple[int, ...],
    reads: ProcessReads,
    layout: ContiguousLayout,
    stripes: StripeLayout,
    raid: RaidLayout,
    *,
    client: ClientReads = LUSTRE_CLIENT,
    rates: Rates | None = None,
) -> StepMeasures:
    """Return what independent reads ask of the servers, step by step: tens of ms for 512.

    Arguments as `measure_operation`.

    Raises
    ------
    SdsValueError
        If runs of a process have more than three levels of strides.
    """
    if layout.order is not None:
        reads = reads.permuted(layout.order)
        extent = tuple(extent[axis] for axis in layout.order)
    processes = _runs_of(extent, reads, layout)
    if len(processes.begin) == 0:
        return NOTHING_ASKED
    element = layout.element_size_bytes
    end = layout.data_offset_bytes + element * int(np.prod(extent, dtype=np.int64))
    low, high, share = _walk(processes, -(-end // client.page_bytes) * client.page_bytes, client)
    return _dealt(
        low,
        high,
        share,
        node=processes.number // client.processes_per_node,
        stripes=stripes,
        raid=raid,
        rates=rates or Rates(),
    )


def _runs_of(extent: tuple[int, ...], reads: ProcessReads, layout: ContiguousLayout) -> _Processes:
    """Return the runs of every process that reads something."""
    number = np.flatnonzero(((reads.count > 0) & (reads.block > 0)).all(axis=1))
    of_element = np.cumprod((1, *extent[:0:-1]), dtype=np.int64)[::-1][: len(extent)]
    begin = layout.data_offset_bytes + layout.element_size_bytes * (
        reads.start[number] @ of_element
    )
    chosen = np.column_stack([reads.count, reads.stride, reads.block])[number]
    _, first, which = np.unique(chosen, axis=0, return_index=True, return_inverse=True)
    lengths, levels = [], []
    for process in number[first]:
        _, run_bytes, counts, strides = _native.runs(
            extent,
            layout.element_size_bytes,
            0,
            reads.start[process].tolist(),
            reads.stride[process].tolist(),
            reads.count[process].tolist(),
            reads.block[process].tolist(),
        )
        several = [(n, stride) for n, stride in zip(counts, strides, strict=True) if n > 1]
        if len(several) > 3:
            raise SdsValueError(
                f"runs of process {process} have {len(several)} levels of strides; steps are "
                "followed for up to 3: use the service model"
            )
        lengths.append(run_bytes)
        levels.append([(1, 0)] * (3 - len(several)) + several)
    which = which.ravel()
    shape = np.array(levels, dtype=np.int64).reshape(len(levels), 3, 2)[which]
    return _Processes(
        number=number,
        begin=begin,
        length=np.array(lengths, dtype=np.int64)[which],
        counts=shape[:, :, 0],
        strides=shape[:, :, 1],
    )


class _Clients:
    """How far each process has come, and what its client knows of its requests."""

    def __init__(self, processes: _Processes, client: ClientReads) -> None:
        n = len(processes.begin)
        self.processes, self.client = processes, client
        self.total = processes.counts.prod(axis=1)
        self.run = np.zeros(n, np.int64)
        self.offset = processes.begin.copy()
        self.fetched_end = np.full(n, -1, np.int64)
        self.near = np.zeros(n, np.int64)
        self.strip_low = processes.begin // client.page_bytes * client.page_bytes
        self.strips = np.zeros((2, n), np.int64)

    def follow(self, those: NDArray[np.bool_]) -> None:
        """Go on to the next run of those processes."""
        page = self.client.page_bytes
        end = self.offset + self.processes.length
        offset = self.processes.offsets(self.run + 1)
        near = offset - end <= self.client.gap_bytes
        self.near += those & near
        far = those & ~near
        strip = -(-end // page) * page - self.strip_low
        self.strips = np.where(far, [strip, self.strips[0]], self.strips)
        self.strip_low = np.where(far, offset // page * page, self.strip_low)
        self.near[far] = 0
        self.run += those
        self.offset = np.where(those, offset, self.offset)

    def pass_over(self) -> None:
        """Go on to the next run of which something is missing."""
        page, length = self.client.page_bytes, self.processes.length
        inner, stride = self.processes.counts[:, 2], self.processes.strides[:, 2]
        near = stride - length <= self.client.gap_bytes
        for _ in range(_MOST_ROWS):
            end = self.offset + length
            there = (self.run < self.total) & (end <= self.fetched_end)
            if not there.any():
                break
            more = (self.fetched_end - end) // np.maximum(stride, 1)
            left = inner - 1 - self.run % inner
            more = np.where(there, np.minimum(more, left), 0).astype(np.int64)
            self.near += np.where(near, more, 0)
            far = (more > 0) & ~near
            self.offset = np.asarray(self.offset + more * stride, dtype=np.int64)
            self.strips = np.where(far, -(-length // page) * page, self.strips)
            self.strip_low = np.where(far, self.offset // page * page, self.strip_low)
            self.near[far] = 0
            self.run = self.run + more
            self.follow(there)

    def fetch(self, data_end: int) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """Return the next range that each process fetches, empty if it has all; None: all have."""
        client = self.client
        page, window = client.page_bytes, client.window_bytes
        self.pass_over()
        reads = self.run < self.total
        if not reads.any():
            return None
        low = np.maximum(self.offset // page * page, self.fetched_end)
        high = -(-(self.offset + self.processes.length) // page) * page
        ahead = np.minimum(-(-high // window) * window, data_end)
        learnt = (self.strips[0] > 0) & (self.strips[0] == self.strips[1])
        ahead = np.where(learnt, np.minimum(ahead, self.strip_low + self.strips[0]), ahead)
        high = np.where(self.near >= client.after, np.maximum(high, ahead), high)
        high = np.where(reads, np.maximum(high, low), low)
        self.fetched_end = np.where(reads, high, self.fetched_end)
        self.follow(reads)
        return low, high


def _walk(
    processes: _Processes, data_end: int, client: ClientReads
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return what each process fetches, (steps, n), and what share of its runs that served."""
    clients = _Clients(processes, client)
    steps = []
    for _ in range(MOST_STEPS):
        fetched = clients.fetch(data_end)
        if fetched is None:
            break
        steps.append(fetched)
    share = np.minimum(clients.run, clients.total) / clients.total
    return np.array([low for low, _ in steps]), np.array([high for _, high in steps]), share


def _dealt(
    low: NDArray[np.int64],
    high: NDArray[np.int64],
    share: NDArray[np.float64],
    *,
    node: NDArray[np.int64],
    stripes: StripeLayout,
    raid: RaidLayout,
    rates: Rates,
) -> StepMeasures:
    """Return what servers do for the fetches of processes in step."""
    n_steps = len(low)
    asked = high > low
    fetches = asked.sum(axis=0) / share
    steps_most = float(fetches.max())
    size, n_osts = stripes.stripe_size_bytes, stripes.stripe_count
    # Once for a node.
    step, process = np.nonzero(asked)
    unique = np.unique(np.column_stack([step, node[process], low[asked], high[asked]]), axis=0)
    step, low, high = (np.ascontiguousarray(unique[:, i]) for i in (0, 2, 3))
    # Cut at stripes.
    n_stripes = -(-high // size) - low // size
    followed = np.minimum(n_stripes, _MOST_STRIPES)
    of = np.repeat(np.arange(len(step)), followed)
    stripe = (
        (low // size)[of] + np.arange(len(of)) - np.repeat(np.cumsum(followed) - followed, followed)
    )
    begin = np.maximum(low[of], stripe * size)
    length = np.minimum(high[of], (stripe + 1) * size) - begin
    times = (n_stripes / followed)[of]
    # Steps that are not followed are as those of the last half.
    weight = np.ones(n_steps)
    weight[n_steps // 2 :] += max(0.0, steps_most - n_steps) / (n_steps - n_steps // 2)

    def grid(at: NDArray[np.intp], values: NDArray[np.float64]) -> NDArray[np.float64]:
        key = step[of][at] * n_osts + (stripe % n_osts)[at]
        table = np.bincount(key, weights=values, minlength=n_steps * n_osts)
        return table.reshape(n_steps, n_osts) * weight[:, np.newaxis]

    everything = np.arange(len(of))
    sent = grid(everything, length * times)
    sent_s = sent / rates.ost_bytes_per_s + rates.ost_request_s * grid(everything, times)
    # Disks read what nobody has asked for before.
    order = np.lexsort((-length, begin, step[of]))
    new = order[np.unique(begin[order], return_index=True)[1]]
    position = (stripe // n_osts) * size + begin % size
    new = new[np.lexsort((position[new], step[of][new], (stripe % n_osts)[new]))]
    seek_bytes = rates.seek_s * rates.disk_bytes_per_s * raid.data_disks
    seeks, distance = _seeks(
        (stripe % n_osts)[new], step[of][new], position[new], length[new], seek_bytes
    )
    new_bytes, new_seeks = grid(new, (length * times)[new]), grid(new, seeks)
    disk_s = new_seeks * rates.seek_s + new_bytes / (rates.disk_bytes_per_s * raid.data_disks)
    both = sent_s + disk_s

    def in_step(table: NDArray[np.float64]) -> float:
        return float(table.max(axis=1).sum())

    def spread(table: NDArray[np.float64]) -> float:
        return float(table.sum(axis=0).max())

    return StepMeasures(
        step_s=in_step(both),
        spread_s=spread(both),
        mean_s=float(both.sum()) / n_osts,
        step_sent_s=in_step(sent_s),
        spread_sent_s=spread(sent_s),
        step_disk_s=in_step(disk_s),
        spread_disk_s=spread(disk_s),
        step_seeks=in_step(new_seeks),
        spread_seeks=spread(new_seeks),
        step_disk_bytes=in_step(new_bytes),
        spread_disk_bytes=spread(new_bytes),
        first_s=float(both[0].max() / weight[0]),
        steps_most=steps_most,
        steps_mean=float(fetches.mean()),
        steps_followed_share=steps_most / n_steps,
        osts_mean=float((sent > 0).sum(axis=1).mean()),
        fetches_mean=len(step) / n_steps,
        fetch_bytes=float((length * times).sum()) / len(step),
        osts=float(len(np.unique(stripe % n_osts))),
        distinct=len(new) / len(step),
        seek_bytes=distance,
    )


def _seeks(
    ost: NDArray[np.int64],
    step: NDArray[np.int64],
    position: NDArray[np.int64],
    length: NDArray[np.int64],
    seek_bytes: float,
) -> tuple[NDArray[np.float64], float]:
    """Return before each part the seeks (less than 1: read through), and the mean distance.

    Parts are sorted by server, step and position; of what heads did before the first, nothing is
    known.
    """
    follows = np.r_[False, ost[1:] == ost[:-1]]
    gap = np.r_[0, position[1:] - (position + length)[:-1]]
    seeks = np.where(gap < 0, 1.0, np.minimum(1.0, gap / seek_bytes))
    # What overlaps with the part before it, in one step, is read on.
    on = follows & np.r_[False, step[1:] == step[:-1]] & (gap <= 0)
    seeks = np.where(on, 0.0, np.where(follows, seeks, 1.0))
    return seeks, float(np.where(follows, np.abs(gap), 0).mean())
