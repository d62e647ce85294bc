"""Time reads by several processes on a file system, to fit a machine to.

Lines, planes and cubes of an array (`sds.machines.random_reads`), as in Liu 2014, Table I, from two
stored axis orders; each run is a request of its own, nothing is cached.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sds.calibration.design import ELEMENT_SIZE_BYTES, STORED_ORDERS, array_extent
from sds.calibration.reader_pool import Readers
from sds.calibration.scratch_file import (
    evict,
    eviction_works,
    file_system_of,
    keeps_pages,
    written_array,
)
from sds.errors import SdsValueError, UnsupportedError
from sds.machines.random_reads import Pattern, draw_pattern, runs_in
from sds.machines.timed_reads import TimedRead
from sds.recommender.models.cost_model import Via

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from sds.calibration.results import ReadRequest
    from sds.calibration.scratch_file import StoredCopy, WrittenArray

# Each run is a request, and on disks a request takes milliseconds: longer reads are not drawn.
MAX_RUNS = 1024
_KINDS = 3
_MOST_PROCESSES = 256
_MOST_DRAWS = 100_000
# Of the file systems that do not tell whether a page can be evicted.
_MEMORY = {"tmpfs", "ramfs"}
# Of the progress.
_WRITTEN = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureSettings:
    """The reads to time.

    Attributes
    ----------
    space_bytes
        Size of the file that is written.
    budget_s
        No read is begun after this.
    processes
        Numbers of processes that share a read.
    n_each
        Patterns of each kind (lines, planes, cubes) for each number of processes.
    rounds
        How often each is read at most.
    seed
        Of the drawn reads.
    """

    space_bytes: int = 256 << 20
    budget_s: float = 120.0
    processes: tuple[int, ...] = (1, 2, 4, 8)
    n_each: int = 4
    rounds: int = 3
    seed: int = 1

    def __post_init__(self) -> None:
        # Said so that a budget that is no number is refused: no comparison with it holds.
        if not self.budget_s > 0 or min(self.n_each, self.rounds) < 1:
            raise SdsValueError(
                "the time budget, patterns and rounds must be positive, not "
                f"{self.budget_s} s, {self.n_each} and {self.rounds}"
            )
        if not self.processes or not all(1 <= n <= _MOST_PROCESSES for n in self.processes):
            raise SdsValueError(
                f"numbers of processes are {self.processes}: give 1 to {_MOST_PROCESSES} each"
            )

    @property
    def n_reads(self) -> int:
        """Different reads: patterns in all stored orders."""
        return len(self.processes) * _KINDS * self.n_each * len(STORED_ORDERS)


def draw_patterns(extent: tuple[int, int, int], settings: MeasureSettings) -> list[Pattern]:
    """Return the patterns to read, those of fewest runs first.

    Raises
    ------
    SdsValueError
        If the array has too few for the processes.
    """
    patterns: dict[Pattern, None] = {}
    for n in settings.processes:
        for kind in range(_KINDS):
            random = np.random.default_rng([settings.seed, n, kind])
            wanted = len(patterns) + settings.n_each
            for _ in range(_MOST_DRAWS):
                pattern = draw_pattern(random, extent, n, kind)
                if _runs(pattern) <= MAX_RUNS:
                    patterns[pattern] = None
                if len(patterns) == wanted:
                    break
            else:
                raise SdsValueError(
                    f"an array of extent {extent} has too few reads of at most {MAX_RUNS} runs "
                    f"for {n} processes: give another --size"
                )
    return sorted(patterns, key=_runs)


def _runs(pattern: Pattern) -> int:
    return max(runs_in(pattern, order) for order in STORED_ORDERS)


def time_reads(
    directory: Path, settings: MeasureSettings, progress: Callable[[float, str], None]
) -> Iterator[TimedRead]:
    """Yield reads as they are timed, cold, each pattern from both stored orders.

    Writes a temporary file, and removes it at the end, whatever happens. The first turn goes
    through all patterns in the order of their runs; later ones in an order drawn.

    Raises
    ------
    FileMissingError, PermissionDeniedError, InsufficientSpaceError
        If the directory does not exist, cannot be written, or has too little room.
    UnsupportedError
        If its files stay in memory, so that no read is a cold one.
    """
    patterns = draw_patterns(array_extent(settings.space_bytes), settings)
    with written_array(
        directory,
        settings.space_bytes,
        seed=settings.seed,
        progress=lambda share, what: progress(share * _WRITTEN, what),
    ) as array:
        descriptor = os.open(array.file, os.O_RDONLY)
        try:
            _check_cold(descriptor, array.file)
            with Readers(max(settings.processes), directory=array.directory) as readers:
                for pattern, copy in _until(settings, patterns, array.copies, progress):
                    requests = _requests(pattern, copy, array)
                    seconds = readers.read(requests, before=lambda: evict(descriptor))
                    yield _timed(pattern, copy, array.extent, seconds)
        finally:
            os.close(descriptor)


def _check_cold(descriptor: int, file: Path) -> None:
    size = file.stat().st_size
    in_memory = file_system_of(file).kind in _MEMORY
    stays = eviction_works(descriptor, size) is False and keeps_pages(descriptor, size)
    if in_memory or stays:
        raise UnsupportedError(
            f"{file.parent.parent} keeps its files in memory, so that there are no cold reads: "
            "name a directory on the storage itself"
        )


def _until(
    settings: MeasureSettings,
    patterns: Sequence[Pattern],
    copies: Sequence[StoredCopy],
    progress: Callable[[float, str], None],
) -> Iterator[tuple[Pattern, StoredCopy]]:
    """Yield the next read until the budget ends, or each was read its number of times."""
    reads = [(pattern, copy) for pattern in patterns for copy in copies]
    random = np.random.default_rng(settings.seed)
    begin = time.monotonic()
    for turn in range(settings.rounds):
        order = range(len(reads)) if turn == 0 else random.permutation(len(reads)).tolist()
        for at, i in enumerate(order):
            used = (time.monotonic() - begin) / settings.budget_s
            if used >= 1.0:
                return
            share = max(used, (turn + at / len(reads)) / settings.rounds)
            progress(_WRITTEN + (1.0 - _WRITTEN) * share, reads[i][0].name)
            yield reads[i]


def _requests(pattern: Pattern, copy: StoredCopy, array: WrittenArray) -> list[ReadRequest]:
    """Return the read of each process that has one."""
    reads = pattern.reads().permuted(copy.order)
    slabs = [reads[i] for i in range(len(reads))]
    return [
        array.request(copy, slab, via=Via.ENGINE, strategy="multiple")
        for slab in slabs
        if 0 not in slab.count
    ]


def _timed(
    pattern: Pattern, copy: StoredCopy, extent: tuple[int, int, int], seconds: float
) -> TimedRead:
    slab = pattern.slab
    axes = [
        f"{start}:{start + (n - 1) * step + 1}:{step}"
        for start, step, n in zip(slab.start, slab.stride, slab.count, strict=True)
    ]
    return TimedRead(
        extent=extent,
        element_size_bytes=ELEMENT_SIZE_BYTES,
        selection=", ".join(axes),
        seconds=seconds,
        parts=pattern.parts,
        order=copy.order,
        data_offset_bytes=copy.data_offset_bytes,
    )
