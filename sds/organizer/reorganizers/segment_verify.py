"""Verify that a replica of segments holds the tiles of its source, and nothing else.

HDF5 reads both files and NumPy permutes one, box by box as the plan names them, so that nothing of
the way of copying is trusted but where tiles lie; that all of every tile was compared is counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sds.hdf5.dataset import as_words, get_dataset
from sds.organizer.copy.slabs import read_slab_through_hdf5
from sds.organizer.plans.reorganization_plan import Slab
from sds.organizer.plans.tile_boxes import GatheredBox
from sds.organizer.replica_file.container import open_source
from sds.organizer.verify import (
    POISON_OF_REPLICA,
    POISON_OF_SOURCE,
    VerificationReport,
    compare_with_original,
    first_unequal,
    reading_back,
    unreadable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import h5py
    from numpy.typing import NDArray

    from sds.organizer.plans.segment_plan import SegmentPlan
    from sds.organizer.plans.tile_boxes import Piece
    from sds.organizer.progress import Progress
    from sds.organizer.replica_file.replica import Replica

# Copied in less time than another run takes.
_HOLE_BYTES = 8192


def compare_with_tiles(
    replica: Replica, plan: SegmentPlan, *, progress: Progress | None = None
) -> VerificationReport:
    """Check a replica against its checksums, then every element of it against the source.

    Errors as of :func:`sds.organizer.verify.compare_with_original`.
    """
    problem = problem_of_layout(replica, plan)
    if problem:
        return VerificationReport(
            path=replica.path, problems=(problem,), damaged_blocks=(), checked_bytes=0
        )
    return compare_with_original(
        replica,
        plan,
        lambda advance: _problems(replica, plan, advance),
        compared_bytes=plan.copied_bytes,
        progress=progress,
    )


def problem_of_layout(replica: Replica, plan: SegmentPlan) -> str:
    """Return a sentence where a replica says that it holds other tiles than planned."""
    if replica.layout == plan.layout:
        return ""
    return f"{replica.path} says that it holds other tiles, or in another order, than planned"


def _problems(
    replica: Replica, plan: SegmentPlan, advance: Callable[[int], None]
) -> tuple[str, ...]:
    """Return what differs, also where not all was compared."""
    problem, done_bytes = compare_tiles(replica, plan, advance)
    problem = problem or problem_uncompared(plan, done_bytes)
    return (problem,) if problem else ()


def problem_uncompared(plan: SegmentPlan, done_bytes: int) -> str:
    """Return a sentence unless the bytes of all tiles were compared."""
    if done_bytes == plan.copied_bytes:
        return ""
    return f"{done_bytes} bytes of tiles were compared with the source, of {plan.copied_bytes}"


def compare_tiles(
    replica: Replica,
    plan: SegmentPlan,
    advance: Callable[[int], None],
    share: tuple[int, int] = (0, 1),
) -> tuple[str, int]:
    """Return in which element a replica differs, empty where in none, and the bytes compared.

    Parameters
    ----------
    advance
        Called with the bytes that were compared since its last call.
    share
        Number of a part of the steps, and number of all parts: only that part is compared.
    """
    done_bytes = 0

    def count(n_elements: int) -> None:
        nonlocal done_bytes
        done_bytes += n_elements * plan.element_size_bytes
        advance(n_elements * plan.element_size_bytes)

    return _first_problem(replica, plan, count, share), done_bytes


def _first_problem(
    replica: Replica, plan: SegmentPlan, advance: Callable[[int], None], share: tuple[int, int]
) -> str:
    """Return in which element a replica differs from what it should hold; empty where in none."""
    steps = plan.steps()
    with open_source(plan.source_path) as source, reading_back(replica) as copy:
        original = get_dataset(source, plan.dataset_path)
        tiles = _Tiles(copy, replica, plan)
        for index in range(share[0], len(steps), share[1]):
            for gathered in _in_rows(steps.step(index), plan):
                problem = _problem_in_box(original, tiles, gathered, advance)
                if problem:
                    return problem
        return tiles.problem_beyond_source(share)


def _in_rows(boxes: list[GatheredBox], plan: SegmentPlan) -> Iterator[GatheredBox]:
    """Yield boxes of a contiguous source joined where little lies between them on the last axis.

    HDF5 copies short runs at a microsecond each, however many bytes lie between them.
    """
    most = plan.step_bytes // plan.element_size_bytes
    joined: GatheredBox | None = None
    for gathered in boxes:
        whole = None if joined is None else _joined(joined, gathered, plan)
        if joined is not None and (whole is None or whole.box.n_elements > most):
            yield joined
            whole = None
        joined = whole or gathered
    if joined is not None:
        yield joined


def _joined(before: GatheredBox, behind: GatheredBox, plan: SegmentPlan) -> GatheredBox | None:
    """Return two boxes and what lies between them; None where HDF5 had better read each."""
    a, b = before.box, behind.box
    hole_bytes = (b.start[-1] - a.end[-1]) * plan.element_size_bytes
    is_row = (a.start[:-1], a.shape[:-1]) == (b.start[:-1], b.shape[:-1])
    if plan.source_chunk_shape is not None or not is_row or not 0 <= hole_bytes <= _HOLE_BYTES:
        return None
    shape = (*a.shape[:-1], b.end[-1] - a.start[-1])
    return GatheredBox(box=Slab(start=a.start, shape=shape), pieces=before.pieces + behind.pieces)


def _problem_in_box(
    original: h5py.Dataset, tiles: _Tiles, gathered: GatheredBox, advance: Callable[[int], None]
) -> str:
    size = tiles.plan.element_size_bytes
    box = gathered.box
    content = np.full(box.n_elements * size, POISON_OF_SOURCE, np.uint8)
    read_slab_through_hdf5(original, box, content)
    expected = as_words(content, box.shape, size)
    for piece in gathered.pieces:
        inside = zip(piece.in_source.start, piece.in_source.end, box.start, strict=True)
        part = expected[tuple(slice(a - first, b - first) for a, b, first in inside)]
        within = first_unequal(part, tiles.elements(piece), tiles.plan.order)
        if within is not None:
            at = (a + b for a, b in zip(piece.in_source.start, within, strict=True))
            return (
                f"tile {tiles.plan.segments.tiles[piece.place]}: element "
                f"[{', '.join(map(str, at))}] differs from that of {tiles.plan.source_path}"
            )
        advance(piece.in_source.n_elements)
    return ""


class _Tiles:
    """The tiles of a replica, read back."""

    def __init__(self, copy: h5py.File, replica: Replica, plan: SegmentPlan) -> None:
        self.plan = plan
        self._replica = replica
        self._dataset = get_dataset(copy, plan.dataset_path)

    def elements(self, piece: Piece) -> NDArray[np.unsignedinteger]:
        """Return what the replica holds of a piece, in the axes of the source, as words."""
        order = self.plan.order
        words = self._words(piece.place, piece.in_tile.permuted(order))
        return words.transpose(*np.argsort(order).tolist(), len(order))

    def _words(self, place: int, in_tile: Slab) -> NDArray[np.unsignedinteger]:
        """Return a slab of a tile, both in the axes of the replica."""
        size = self.plan.element_size_bytes
        content = np.full(in_tile.n_elements * size, POISON_OF_REPLICA, np.uint8)
        slab = Slab(start=(place, *in_tile.start), shape=(1, *in_tile.shape))
        try:
            read_slab_through_hdf5(self._dataset, slab, content)
        except OSError as error:
            raise unreadable(self._replica, error) from error
        return as_words(content, in_tile.shape, size)

    def problem_beyond_source(self, share: tuple[int, int]) -> str:
        """Return which tile of a part holds anything but zeros beyond the end of the source."""
        segments, extent = self.plan.segments, self.plan.extent
        for place in range(share[0], len(segments.tiles), share[1]):
            number = segments.tiles[place]
            held = segments.box(number, extent).extent
            for rest in _outside(held, segments.tile_shape):
                for part in self._small(rest):
                    if self._words(place, part.permuted(self.plan.order)).any():
                        return f"tile {number} is not empty beyond the end of the source"
        return ""

    def _small(self, slab: Slab) -> Iterator[Slab]:
        """Yield a slab in parts that a step has room for."""
        most = self.plan.step_bytes // self.plan.element_size_bytes
        waiting = [slab]
        while waiting:
            part = waiting.pop()
            if part.n_elements <= most:
                yield part
            else:
                waiting += part.halves()


def _outside(held: tuple[int, ...], tile_shape: tuple[int, ...]) -> Iterator[Slab]:
    """Yield what a tile has besides the box at its origin that is held, in disjoint slabs."""
    for axis, (n, size) in enumerate(zip(held, tile_shape, strict=True)):
        if n < size:
            start = [0] * len(held)
            start[axis] = n
            shape = (*held[:axis], size - n, *tile_shape[axis + 1 :])
            yield Slab(start=tuple(start), shape=shape)
