"""Cut a read of many runs into requests, and predict its time."""

from __future__ import annotations

import enum
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, cast

from sds import _native
from sds.geometry import check_order

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from sds.engine.io_parameters import IoParameters
    from sds.geometry import ContiguousLayout, Hyperslab


class Strategy(enum.StrEnum):
    """Strategy for cutting a read of many runs into requests."""

    AUTO = "auto"
    """The strategy predicted to be fastest."""
    MULTIPLE = "multiple"
    """One request per run."""
    SIEVE = "sieve"
    """Conventional data sieving: the whole range, in windows of one buffer."""
    LIST = "list"
    """List I/O: up to 64 runs per request (Ching 2002)."""
    PMD = "pmd"
    """Sieving directed by a performance model, as published (Chen 2014)."""


class Executor(enum.StrEnum):
    """Mechanism that carries the requests out."""

    PREAD = "pread"
    SIEVE = "sieve"
    VECTOR = "vector"
    MAPPED = "mapped"
    LIST = "list"
    DIRECT = "direct"


class Cache(enum.StrEnum):
    """State of the page cache for the bytes to read."""

    UNKNOWN = "unknown"
    WARM = "warm"
    COLD = "cold"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileState:
    """A file and the process that reads it, as far as the plan depends on them.

    Attributes
    ----------
    cache
        Unknown is planned as cold.
    may_map, is_mapped
        Whether it may be read from a mapping, and whether it was before.
    may_queue, may_read_directly
        Whether several requests may be in flight, and whether the page cache may be passed by.
    cache_room_bytes
        That the page cache can take; 0: all.
    """

    cache: Cache = Cache.UNKNOWN
    may_map: bool = True
    is_mapped: bool = False
    may_queue: bool = True
    may_read_directly: bool = True
    cache_room_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """Bounds that a caller may set; 0: the default."""

    queue_depth: int = 0
    regions_per_request: int = 0
    sieve_buffer_bytes: int = 0
    max_memory_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    """Plan of a read: its requests, bytes and memory, known before it begins.

    Attributes
    ----------
    runs, bytes_useful
        What is read: runs, or the pieces of a list.
    requests, bytes_read
        Bytes requested from the file, holes included; none from a mapping.
    memory_bytes
        Of buffers.
    max_hole_bytes, group_bytes
        Holes up to this are read along (-1: runs that touch stay apart), in requests up to that.
    queue_depth, regions_per_request
        Requests in flight; runs that one request of list I/O names.
    """

    strategy: Strategy
    executor: Executor
    cache: Cache
    runs: int
    requests: int
    bytes_useful: int
    bytes_read: int
    memory_bytes: int
    max_hole_bytes: int
    group_bytes: int
    queue_depth: int
    regions_per_request: int
    predicted_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyPlan:
    """Plans of one strategy, for data that the page cache holds and for data that it does not."""

    strategy: Strategy
    warm: ReadPlan
    cold: ReadPlan


def plan_selection(
    extent: tuple[int, ...],
    slab: Hyperslab,
    layout: ContiguousLayout,
    *,
    strategy: Strategy = Strategy.AUTO,
    state: FileState | None = None,
    options: PlanOptions | None = None,
    parameters: IoParameters | None = None,
) -> ReadPlan:
    """Return how a selection of an array would be read.

    Parameters
    ----------
    extent, slab
        The array as its readers know it; ``layout.order`` says how its axes are stored.
    layout
        Where its bytes lie.
    strategy, state, options
        How; left out: whatever is fastest, of a file about which nothing is known.
    parameters
        Costs; None: the built-in ones.

    Raises
    ------
    SelectionError
        If the slab reaches outside the extent.
    LayoutError
        If the order is no permutation, or the array's bytes do not fit in 64 bits.
    """
    slab.check_within(extent)
    if layout.order is not None:
        order = check_order(layout.order, len(extent))
        slab = slab.permuted(order)
        extent = tuple(extent[axis] for axis in order)
    first, run_bytes, counts, strides = _native.runs(
        extent,
        layout.element_size_bytes,
        layout.data_offset_bytes,
        slab.start,
        slab.stride,
        slab.count,
        slab.block,
    )
    found = _native.plan_runs(
        first,
        run_bytes,
        counts,
        strides,
        parameters=None if parameters is None else parameters.native(),
        strategy=strategy,
        **asdict(state or FileState()),
        **asdict(options or PlanOptions()),
    )
    return _typed(found)


def plan_extents(
    offsets: NDArray[np.int64],
    lengths: NDArray[np.int64],
    *,
    strategy: Strategy = Strategy.AUTO,
    state: FileState | None = None,
    options: PlanOptions | None = None,
    parameters: IoParameters | None = None,
) -> ReadPlan:
    """Return how a list of byte ranges of a file would be read, one after another into memory.

    Parameters
    ----------
    offsets, lengths
        Ranges in bytes, shape (n,), sorted by offset; they may overlap.
    strategy, state, options, parameters
        As for `plan_selection`.

    Raises
    ------
    SdsValueError
        If the ranges are out of order, negative or empty.
    """
    found = _native.plan_pieces(
        offsets,
        lengths,
        parameters=None if parameters is None else parameters.native(),
        strategy=strategy,
        **asdict(state or FileState()),
        **asdict(options or PlanOptions()),
    )
    return _typed(found)


def compare_strategies(plan: Callable[[Strategy, Cache], ReadPlan]) -> tuple[StrategyPlan, ...]:
    """Plan every strategy, warm and cold, given how to plan one."""
    return tuple(
        StrategyPlan(
            strategy=strategy,
            warm=plan(strategy, Cache.WARM),
            cold=plan(strategy, Cache.COLD),
        )
        for strategy in Strategy
    )


def _typed(found: _native.ReadPlan) -> ReadPlan:
    named = {
        "strategy": Strategy(found["strategy"]),
        "executor": Executor(found["executor"]),
        "cache": Cache(found["cache"]),
    }
    return ReadPlan(**cast("dict[str, Any]", {**found, **named}))
