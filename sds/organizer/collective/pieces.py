"""Regions of a file and of memory as arrays: cut, merge, and cut into items. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sds.errors import SdsValueError


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pieces:
    """Pieces of requests, each within one stripe.

    Attributes
    ----------
    offsets, lengths
        Bytes of the file, int64, shape (n,).
    memory
        Where each begins in the memory of its process, bytes, shape (n,).
    """

    offsets: NDArray[np.int64]
    lengths: NDArray[np.int64]
    memory: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def n_bytes(self) -> int:
        """Bytes of all pieces, those of overlaps more than once."""
        return int(self.lengths.sum())

    @property
    def span(self) -> tuple[int, int] | None:
        """First byte and end in the file; None where there are no pieces."""
        if len(self) == 0:
            return None
        return int(self.offsets.min()), int((self.offsets + self.lengths).max())

    def sorted(self) -> Pieces:
        """Return the pieces in order of their offsets."""
        if (self.offsets[1:] >= self.offsets[:-1]).all():
            return self
        return self.take(np.argsort(self.offsets, kind="stable"))

    def take(self, which: NDArray[np.generic] | slice) -> Pieces:
        """Return some of the pieces, or all in another order."""
        return Pieces(
            offsets=self.offsets[which], lengths=self.lengths[which], memory=self.memory[which]
        )

    def cut(self, source: NDArray[np.intp], begins: NDArray[np.int64]) -> Pieces:
        """Return parts of pieces.

        Parameters
        ----------
        source
            Piece of each part, ascending, shape (m,).
        begins
            Where each part begins within its piece, bytes; the first of a piece at 0. A part ends
            where the next begins, or with its piece.
        """
        ends = np.append(begins[1:], 0)
        is_last = np.append(source[1:] != source[:-1], True)[: len(source)]
        ends = np.where(is_last, self.lengths[source], ends[: len(source)])
        return Pieces(
            offsets=self.offsets[source] + begins,
            lengths=ends - begins,
            memory=self.memory[source] + begins,
        )


_NOTHING = np.zeros(0, np.int64)
NO_PIECES = Pieces(offsets=_NOTHING, lengths=_NOTHING, memory=_NOTHING)


def match_regions(
    file_offsets: NDArray[np.int64],
    file_lengths: NDArray[np.int64],
    memory_offsets: NDArray[np.int64],
    memory_lengths: NDArray[np.int64],
) -> Pieces:
    """Cut the regions of a file and of memory alike (Ching 2002, Sec. 3.3).

    The first byte that the one list names belongs to the first that the other names, and so on. No
    region is empty.

    Raises
    ------
    SdsValueError
        If the sums of the lengths differ.
    """
    file_ends, memory_ends = np.cumsum(file_lengths), np.cumsum(memory_lengths)
    in_file = int(file_ends[-1]) if len(file_ends) else 0
    in_memory = int(memory_ends[-1]) if len(memory_ends) else 0
    if in_file != in_memory:
        message = f"the regions of the file have {in_file} bytes, those of memory {in_memory}"
        raise SdsValueError(message)
    ends = np.sort(np.concatenate([file_ends, memory_ends]), kind="stable")
    ends = ends[np.append(ends[1:] > ends[:-1], True)[: len(ends)]]
    begins = np.concatenate([np.zeros(1, np.int64), ends[:-1]])[: len(ends)]
    of_file = np.searchsorted(file_ends, begins, side="right")
    of_memory = np.searchsorted(memory_ends, begins, side="right")
    file_begins, memory_begins = file_ends - file_lengths, memory_ends - memory_lengths
    return Pieces(
        offsets=file_offsets[of_file] + (begins - file_begins[of_file]),
        lengths=ends - begins,
        memory=memory_offsets[of_memory] + (begins - memory_begins[of_memory]),
    )


def cut_at_stripes(pieces: Pieces, stripe_size_bytes: int) -> Pieces:
    """Return the parts of pieces within each stripe."""
    if len(pieces) == 0:
        return pieces
    first = pieces.offsets // stripe_size_bytes
    last = (pieces.offsets + pieces.lengths - 1) // stripe_size_bytes
    source, nth = _repeated(last - first + 1)
    begins = (first[source] + nth) * stripe_size_bytes - pieces.offsets[source]
    return pieces.cut(source, np.maximum(begins, 0))


def cut_at_items(pieces: Pieces, begins: NDArray[np.int64]) -> tuple[Pieces, NDArray[np.int64]]:
    """Return the parts of pieces within each item of their group, and the item of each.

    Parameters
    ----------
    begins
        Offsets at which the items of the group begin, ascending.
    """
    first = np.searchsorted(begins, pieces.offsets, side="right") - 1
    last = np.searchsorted(begins, pieces.offsets + pieces.lengths, side="left") - 1
    source, nth = _repeated(last - first + 1)
    item = first[source] + nth
    parts = pieces.cut(source, np.maximum(begins[item] - pieces.offsets[source], 0))
    return parts, item.astype(np.int64)


def _repeated(counts: NDArray[np.int64]) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """Return each index as often as counted, and which time it is."""
    if (counts == 1).all():
        return np.arange(len(counts)), np.zeros(len(counts), np.int64)
    source = np.repeat(np.arange(len(counts)), counts)
    firsts = np.cumsum(counts) - counts
    return source, np.arange(len(source), dtype=np.int64) - firsts[source]


def merge(
    offsets: NDArray[np.int64], lengths: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the union of regions as offsets and lengths, ascending, none touching the next."""
    if len(offsets) == 0:
        return offsets, lengths
    order = np.argsort(offsets, kind="stable")
    begins = offsets[order]
    reach = np.maximum.accumulate(begins + lengths[order])
    is_first = np.append(True, begins[1:] > reach[:-1])
    firsts = np.flatnonzero(is_first)
    ends = reach[np.append(firsts[1:] - 1, len(reach) - 1)]
    return begins[firsts], ends - begins[firsts]


def item_begins(
    offsets: NDArray[np.int64],
    lengths: NDArray[np.int64],
    *,
    buffer_bytes: int,
    threshold: float,
) -> NDArray[np.int64]:
    """Return the offsets at which the items of a group begin (Wang 2014, Sec. III.B).

    Items hold `buffer_bytes` each. What remains is an item of its own where it is more than
    `threshold` of a buffer, else it goes with the last item, whose buffer is extended for it. A
    group of less than a buffer is one item.

    Parameters
    ----------
    offsets, lengths
        What is accessed in the group, as of `merge`, not empty.
    """
    ends = np.cumsum(lengths)
    n_full, remaining = divmod(int(ends[-1]), buffer_bytes)
    n_items = max(n_full + (remaining > threshold * buffer_bytes), 1)
    begins = np.arange(n_items, dtype=np.int64) * buffer_bytes
    region = np.searchsorted(ends, begins, side="right")
    return offsets[region] + (begins - (ends - lengths)[region])
