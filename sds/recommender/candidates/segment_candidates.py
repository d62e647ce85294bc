"""Replicas of segments: which tiles may be worth gathering, and which reads would be served.

What recurs is read off a trail (`sds.analyzer.recurring_segments`), once for each of a few shapes
of tiles that suit the reads. Which share of a read class finds its tiles there is a forecast: of
the last quarter of its reads on the trail those whose tiles had been read often enough before that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sds.analyzer import MIN_READS, recurring_segments, served_from, tile_reads
from sds.geometry import MAX_TILES, Box, SegmentList, count_chunks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sds.analyzer import AccessPattern, ReadTrail
    from sds.geometry import Hyperslab

LEAST_TILE_BYTES = 1 << 10
"""Smaller tiles cost more to find than to read."""

GOOD_TILE_BYTES = 64 << 10
"""Least tile that takes a disk longer to read than to find, bytes: the pieces of Zhang 2009."""

MOST_TILE_BYTES = 4 << 20
"""A read of a corner of larger tiles is no longer one of a few of them."""

_MANY_TILES = 64  # each of which costs a request
_N_HALVED = 3
_MAX_LISTS = 60  # one bit of a number for each


def tile_shapes(
    slabs: Sequence[Hyperslab], extent: tuple[int, ...], element_size_bytes: int
) -> list[tuple[int, ...]]:
    """Return distinct tile shapes that suit the reads, each with few tiles in at least one read.

    Parameters
    ----------
    slabs
        Of the dataset, those first that decide.

    Returns
    -------
    Of each read: a box as long as it on the axes that it spans, else the power of two below, cut
    or grown to between `LEAST_TILE_BYTES` and `MOST_TILE_BYTES`; half as long on the others; and
    grown to `GOOD_TILE_BYTES`, so that neighbours come with it. And as much of the fastest axes as
    that many bytes hold, the aligned extents of a file of Zhang 2009.
    """
    shapes = [
        grown_box((1,) * len(extent), extent, GOOD_TILE_BYTES // element_size_bytes, fastest=True)
    ]
    for slab in slabs:
        spans = [
            (count - 1) * stride + block if count else 0 for _, stride, count, block in slab.axes()
        ]
        own = tuple(
            n if span >= n else 1 << (max(1, span).bit_length() - 1)
            for span, n in zip(spans, extent, strict=True)
        )
        half = tuple(max(1, t // 2) if t < n else n for t, n in zip(own, extent, strict=True))
        for shape, least in (
            (own, LEAST_TILE_BYTES),
            (half, LEAST_TILE_BYTES),
            (own, GOOD_TILE_BYTES),
        ):
            cut = _cut(shape, MOST_TILE_BYTES // element_size_bytes)
            shapes.append(grown_box(cut, extent, least // element_size_bytes))
    return [
        shape
        for shape in dict.fromkeys(shapes)
        if any(count_chunks(slab, shape) <= _MANY_TILES for slab in slabs)
    ]


def _cut(shape: tuple[int, ...], most: int) -> tuple[int, ...]:
    """Return a box with its longest axes halved until it has no more elements than the bound."""
    cut = list(shape)
    while math.prod(cut) > max(1, most):
        longest = max(range(len(cut)), key=cut.__getitem__)
        cut[longest] = -(-cut[longest] // 2)
    return tuple(cut)


def grown_box(
    shape: tuple[int, ...], extent: tuple[int, ...], least: int, *, fastest: bool = False
) -> tuple[int, ...]:
    """Return a box with its shortest axes doubled until it has about a number of elements, or more.

    fastest: the last axes first, each as far as it goes.
    """
    grown = list(shape)
    while 3 * math.prod(grown) < 2 * least:
        short = [a for a, n in enumerate(extent) if grown[a] < n]
        if not short:
            break
        axis = max(short) if fastest else min(short, key=lambda a: (grown[a], -a))
        grown[axis] = min(extent[axis], 2 * grown[axis])
    return tuple(grown)


class RecurringTiles(NamedTuple):
    """Recurring tiles of a trail, and the least number of times that each was read."""

    segments: SegmentList
    min_reads: int

    def grouped(self, trail: ReadTrail, element_size_bytes: int) -> RecurringTiles:
        """Return the same tiles in the segments in which they are gathered."""
        segments = recurring_segments(
            trail,
            self.segments.tile_shape,
            element_size_bytes=element_size_bytes,
            min_reads=self.min_reads,
        )
        return self if segments is None else self._replace(segments=segments)


def recurring_in(
    trail: ReadTrail,
    tile_shape: tuple[int, ...],
    *,
    most_elements: float,
    min_reads: int = MIN_READS,
) -> RecurringTiles | None:
    """Return the recurring tiles of a trail, of one shape, within a space; None where none recur.

    Where tiles that were read so often take more, or are more than a replica can hold, those that
    were read twice as often, and so on. They are in one segment: which follow each other decides
    nothing here.
    """
    tiles, n_reads = tile_reads(trail, tile_shape)
    while True:
        tiles = tiles[n_reads >= min_reads]
        if not len(tiles):
            return None
        if len(tiles) <= min(MAX_TILES, most_elements / math.prod(tile_shape)):
            break
        n_reads = n_reads[n_reads >= min_reads]
        min_reads *= 2
    segments = SegmentList(
        tile_shape=tile_shape, tiles=tuple(tiles.tolist()), lengths=(len(tiles),)
    )
    return RecurringTiles(segments, min_reads)


def most_read(trail: ReadTrail, recurring: RecurringTiles) -> Iterator[RecurringTiles]:
    """Yield those of recurring tiles that are read most, in half of the space each time."""
    for _ in range(_N_HALVED):
        fewer = recurring_in(
            trail,
            recurring.segments.tile_shape,
            most_elements=recurring.segments.n_elements / 2,
            min_reads=2 * recurring.min_reads,
        )
        if fewer is None:
            return
        yield fewer
        recurring = fewer


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReadPositions:
    """Positions of the reads of one class: m of them.

    Attributes
    ----------
    low, high
        First index of each and the one after its last, shape (m, rank).
    weight
        How many reads each stands for, shape (m,).
    served_by
        Which segments serve it: bit i for the i-th, shape (m,).
    walked
        Share of the reads of the class that walk through the dataset, and find nothing there.
    """

    low: NDArray[np.int64]
    high: NDArray[np.int64]
    weight: NDArray[np.float64]
    served_by: NDArray[np.int64]
    walked: float = 0.0

    def rows(self, index: NDArray[np.intp]) -> ReadPositions:
        """Return some of them."""
        return replace(
            self,
            low=self.low[index],
            high=self.high[index],
            weight=self.weight[index],
            served_by=self.served_by[index],
        )


class ServedShare(NamedTuple):
    """Share of a read class that the same segments serve; `start` is that of a typical read."""

    segments: frozenset[SegmentList]
    share: float
    start: tuple[int, ...] | None


class ReadsInSegments:
    """Assignment of the reads of a dataset to the segments that serve them.

    Parameters
    ----------
    trail
        Where reads lay; None: not known, and traced reads then count as not served.
    existing
        Segments that replicas hold.
    candidates
        Those that may be built, and how often their tiles had to be read before.
    """

    def __init__(
        self,
        trail: ReadTrail | None,
        existing: Iterable[SegmentList | None],
        candidates: Iterable[RecurringTiles] = (),
    ) -> None:
        min_reads: dict[SegmentList, int] = {}
        for segments, n in (*candidates, *((each, 0) for each in existing if each is not None)):
            min_reads.setdefault(segments, n)
        self._lists = tuple(min_reads)[:_MAX_LISTS]
        self._trail = trail
        if trail is not None:
            self._bits = np.frexp(trail.selection.selected.astype(np.float64))[1]
            self._from = [
                served_from(trail, segments, min_reads=n) for segments, n in min_reads.items()
            ][:_MAX_LISTS]

    def __bool__(self) -> bool:
        return bool(self._lists)

    def of_class(self, alike: Sequence[AccessPattern]) -> ReadPositions:
        """Return positions of reads that stand for patterns which differ only in where they begin.

        Of traced ones the last quarter of those on the trail that are no walks: they are served
        where segments that are gathered from all that came before that quarter serve them. A
        replica stays as it is built, so what programs move on to is not served. Stated ones are
        where they are stated.
        """
        if alike[0].stated:
            return self._stated(alike)
        if self._trail is None:
            return _positions_of([], np.zeros(0), np.zeros(0, dtype=np.int64), rank=alike[0].rank)
        bits = [n.bit_length() for n in alike[0].call.shape]
        rows = np.flatnonzero((self._bits == bits).all(axis=1))
        n_reads = self._trail.n_reads[rows]
        walked = float(n_reads[n_reads > 1].sum() / max(1, n_reads.sum()))
        rows = rows[n_reads == 1]
        rows = rows[len(rows) * 3 // 4 :]
        slabs = self._trail.selection.rows(rows)
        served_by = np.zeros(len(rows), dtype=np.int64)
        for i, known in enumerate(self._from if len(rows) else ()):
            served_by |= (known[rows] < rows[0]).astype(np.int64) << i
        return ReadPositions(
            low=slabs.start,
            high=slabs.start + (slabs.count - 1) * slabs.stride + slabs.block,
            weight=np.ones(len(rows)),
            served_by=served_by,
            walked=walked,
        )

    def _stated(self, alike: Sequence[AccessPattern]) -> ReadPositions:
        served_by = [
            sum(1 << i for i, each in enumerate(self._lists) if each.holds(p.call, p.extent))
            for p in alike
        ]
        return _positions_of(
            [Box.around(p.call) for p in alike],
            np.array([p.n_calls for p in alike], dtype=np.float64),
            np.array(served_by, dtype=np.int64),
            rank=alike[0].rank,
        )

    def share(self, reads: ReadPositions, segments: SegmentList) -> ServedShare:
        """Return the share of some reads that segments serve, whatever else serves them."""
        served = (reads.served_by >> self._lists.index(segments) & 1).astype(np.bool_)
        total = float(reads.weight.sum())
        if not served.any():
            return ServedShare(frozenset(), 0.0, None)
        some = reads.rows(np.flatnonzero(served))
        return ServedShare(
            frozenset({segments}),
            (1.0 - reads.walked) * float(some.weight.sum()) / total,
            _typical_start(some, segments.tile_shape),
        )

    def shares(self, reads: ReadPositions) -> list[ServedShare]:
        """Return the shares of reads by the segments that serve them; no reads: all by none."""
        shares = {0: reads.walked if len(reads.served_by) else 1.0}
        starts: dict[int, tuple[int, ...] | None] = {0: None}
        total = float(reads.weight.sum())
        for mask in np.unique(reads.served_by).tolist():
            some = reads.rows(np.flatnonzero(reads.served_by == mask))
            share = (1.0 - reads.walked) * float(some.weight.sum()) / total
            shares[mask] = shares.get(mask, 0.0) + share
            if mask:
                starts[mask] = _typical_start(some, self._of(mask)[0].tile_shape)
        return [
            ServedShare(frozenset(self._of(mask)), share, starts[mask])
            for mask, share in shares.items()
            if share > 0
        ]

    def _of(self, mask: int) -> list[SegmentList]:
        """Return the segments whose bits are set."""
        return [each for i, each in enumerate(self._lists) if mask >> i & 1]


def _positions_of(
    boxes: Sequence[Box], weight: NDArray[np.float64], served_by: NDArray[np.int64], *, rank: int
) -> ReadPositions:
    low = np.array([box.start for box in boxes], dtype=np.int64).reshape(len(boxes), rank)
    size = np.array([box.extent for box in boxes], dtype=np.int64).reshape(len(boxes), rank)
    return ReadPositions(low=low, high=low + size, weight=weight, served_by=served_by)


def _typical_start(reads: ReadPositions, tile_shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return where a read begins that touches as many tiles as half of the reads or more."""
    sizes = np.array(tile_shape, dtype=np.int64)
    touched = np.prod((reads.high - 1) // sizes - reads.low // sizes + 1.0, axis=1)
    middle = np.argsort(touched, kind="stable")[len(touched) // 2]
    return tuple(reads.low[middle].tolist())
