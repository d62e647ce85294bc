"""A layout that a replica can have, and what it costs to keep, to build and to read."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sds.errors import LayoutError, SdsValueError
from sds.geometry import (
    Box,
    ChunkedLayout,
    Hyperslab,
    SegmentList,
    check_chunks,
    check_order,
    count_chunks,
)
from sds.recommender.cost import (
    StoredArray,
    decode_seconds,
    layout_in_replica,
    seconds_as_stored,
    seconds_in,
)
from sds.recommender.model import CostModel
from sds.recommender.pieces import elements_around, pieces_in_tiles, seconds_of_pieces
from sds.wording import counted

if TYPE_CHECKING:
    from sds.recommender.model import ReadModel

MAX_CHUNK_BYTES = 1 << 20
"""Of elements: the organizer makes no larger chunks (sds.organizer.layout)."""

HDF5_CHUNK_S = 10e-6
"""What one more chunk costs HDF5 besides its bytes: it is looked up, read and copied by itself.

Measured with h5py 3.16 on chunks of 2 to 16 KiB in the page cache: 5 to 12 us each.
"""

BUILD_START_S = 0.2
"""What building the smallest replica takes: to plan, verify, rename and publish it.

Measured with the organizer on ext4: 0.2 to 0.3 s for one of 256 KiB.
"""

GATHERED_BYTES = 32 << 20
"""What the organizer gathers of tiles at a time; for each it goes through the source but once."""

GATHERED_RUN_S = 1.2e-6
"""What a contiguous piece of a tile takes besides, to be gathered and to be compared.

Measured with the organizer on ext4, 0.1, 2 and 16 million pieces of 4 B out of 640 MB: 0.8, 3.6 and
20 s in all.
"""

_MAX_CHUNKS = 1 << 24  # of the organizer


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaShape:
    """How a replica is stored; the organizer builds every one of these.

    Attributes
    ----------
    order
        Replica axis i is source axis ``order[i]``.
    chunk_shape
        In the axes of the replica; None: contiguous.
    filtered
        Whether its chunks have the filters of the source.
    region
        The box of the source that it holds; None: all of it. It serves reads that lie within.
    segments
        The tiles of the source that it holds, contiguously; it serves reads whose tiles it has.
    min_reads
        Of segments that may be built: how often their tiles had been read. It tells no two apart;
        0 where they exist, or are named.
    """

    order: tuple[int, ...]
    chunk_shape: tuple[int, ...] | None = None
    filtered: bool = False
    region: Box | None = None
    segments: SegmentList | None = None
    min_reads: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        check_order(self.order, len(self.order))
        if self.segments is not None:
            if self.chunk_shape is not None or self.region is not None:
                given = f"chunks {self.chunk_shape}" if self.chunk_shape else str(self.region)
                raise LayoutError(f"tiles are stored contiguously, of no region: leave out {given}")
            if len(self.segments.tile_shape) != len(self.order):
                raise LayoutError(
                    f"tiles of {len(self.segments.tile_shape)} axes in an order of "
                    f"{len(self.order)}: give one length for each"
                )
        if self.chunk_shape is None:
            if self.filtered:
                raise LayoutError("filters work on chunks: give a chunk shape, or no filters")
        elif len(self.chunk_shape) != len(self.order) or min(self.chunk_shape, default=0) < 1:
            shown = ",".join(map(str, self.chunk_shape))
            raise LayoutError(
                f"chunks {shown!r} do not fit {len(self.order)} axes: give a length of at least 1 "
                "for each, in the axis order of the replica"
            )

    @property
    def name(self) -> str:
        """In words, e.g. ``order 2,0,1`` or ``order 0,1 in chunks 32x64, of [0:99, 5:6]``."""
        text = f"order {','.join(map(str, self.order))}"
        if self.segments is not None:
            shape = "x".join(map(str, self.segments.tile_shape))
            n_tiles, n_segments = len(self.segments.tiles), len(self.segments.lengths)
            return f"{text}, {counted(n_tiles, 'tile')} {shape} in {counted(n_segments, 'segment')}"
        if self.chunk_shape is not None:
            text += f" in chunks {'x'.join(map(str, self.chunk_shape))}"
        if self.filtered:
            text += ", filtered"
        return text if self.region is None else f"{text}, of {self.region}"

    @property
    def is_partial(self) -> bool:
        """Whether it holds not all of the source."""
        return self.region is not None or self.segments is not None

    def command(self, target: str) -> str:
        """Return what a user types to build it; segments anew, of what is known then."""
        words = ["sds", "reorganize", target, "--order", ",".join(map(str, self.order))]
        if self.chunk_shape is not None:
            words += ["--chunks", ",".join(map(str, self.chunk_shape))]
        if self.filtered:
            words += ["--compress", "source"]
        if self.region is not None:
            words += ["--region", str(self.region)]
        if self.segments is not None:
            words += ["--tiles", ",".join(map(str, self.segments.tile_shape))]
            words += ["--min-reads", str(self.min_reads)] if self.min_reads else []
        return shlex.join(words)


def check_shape(shape: ReplicaShape, array: StoredArray) -> None:
    """Raise LayoutError unless a replica of a dataset can be stored so."""
    rank = len(array.extent)
    check_order(shape.order, rank)
    if rank == 0:
        raise LayoutError("a scalar has one layout: there is no other to suppose")
    if shape.filtered and array.stored_bytes is None:
        raise LayoutError("the source has no filters, so its replica cannot have the same")
    if shape.region is not None:
        shape.region.check_within(array.extent)
        if shape.region.n_elements == 0 < array.size_bytes:
            raise LayoutError(f"the region {shape.region} is empty: name one index at least")
    if shape.segments is not None:
        shape.segments.check_within(array.extent)
    if shape.chunk_shape is None:
        return
    extent = tuple(copied(shape, array).extent[a] for a in shape.order)
    check_chunks(shape.chunk_shape, extent)
    chunk_bytes = math.prod(shape.chunk_shape) * array.element_size_bytes
    if chunk_bytes > MAX_CHUNK_BYTES:
        raise LayoutError(
            f"chunks of {chunk_bytes} bytes; SDS builds replicas in chunks of at most "
            f"{MAX_CHUNK_BYTES}: make them smaller"
        )
    if n_chunks(extent, shape.chunk_shape) > _MAX_CHUNKS:
        raise LayoutError(f"more than {_MAX_CHUNKS} chunks: make them larger")


def n_chunks(extent: tuple[int, ...], chunk_shape: tuple[int, ...]) -> int:
    """Return how many chunks hold an array."""
    return math.prod(-(-n // c) for n, c in zip(extent, chunk_shape, strict=True))


def copied(shape: ReplicaShape, array: StoredArray) -> StoredArray:
    """Return what a replica holds of a dataset, as if that were a dataset of its own."""
    if shape.segments is not None:
        tiles = (len(shape.segments.tiles), *shape.segments.tile_shape)
        return replace(array, extent=tiles, chunks=None, stored_bytes=None)
    region = shape.region
    if region is None:
        return array
    stored_bytes = array.stored_bytes
    if stored_bytes is not None:
        share = region.n_elements / max(1, math.prod(array.extent))
        stored_bytes = math.ceil(stored_bytes * share)
    return replace(array, extent=region.extent, chunks=None, stored_bytes=stored_bytes)


def build_seconds(array: StoredArray, bytes_per_s: float) -> float:
    """Return the time to build a replica that holds an array; see `copied`."""
    return BUILD_START_S + array.size_bytes / bytes_per_s


def replica_build_seconds(
    shape: ReplicaShape,
    array: StoredArray,
    models: tuple[ReadModel, ReadModel],
    bytes_per_s: float,
) -> float:
    """Return the time to build a replica; of segments, tile by tile, or all where that is less.

    Errors as of `read_seconds`.
    """
    gathered = copied(shape, array)
    seconds = build_seconds(gathered, bytes_per_s)
    if shape.segments is not None:
        tile = Hyperslab.all(shape.segments.tile_shape)
        tile_by_tile = len(shape.segments.tiles) * read_seconds(None, array, tile, models)
        once = read_seconds(None, array, Hyperslab.all(array.extent), models)
        forwards = -(-gathered.size_bytes // GATHERED_BYTES) * once
        n_runs = len(shape.segments.tiles) * _runs_of_tile(shape.segments.tile_shape, array)
        seconds += min(tile_by_tile, forwards + n_runs * GATHERED_RUN_S)
    return seconds


def _runs_of_tile(tile_shape: tuple[int, ...], array: StoredArray) -> int:
    """Return in how many pieces a tile lies in a dataset; of one in chunks about as many."""
    last = len(tile_shape) - 1
    while last > 0 and tile_shape[last] == array.extent[last]:
        last -= 1
    return math.prod(tile_shape[:last])


def size_bytes(shape: ReplicaShape, array: StoredArray) -> int:
    """Return the bytes that the elements of a replica take in its file.

    Chunks at the edges are stored whole; filtered ones are taken to shrink as the source's did.
    """
    array = copied(shape, array)
    if shape.chunk_shape is None:
        return array.size_bytes
    extent = tuple(array.extent[a] for a in shape.order)
    return n_chunks(extent, shape.chunk_shape) * _stored_chunk_bytes(shape, array)


def _stored_chunk_bytes(shape: ReplicaShape, array: StoredArray) -> int:
    chunk_bytes = math.prod(shape.chunk_shape or ()) * array.element_size_bytes
    if not shape.filtered or array.stored_bytes is None:
        return chunk_bytes
    return max(1, math.ceil(chunk_bytes * array.stored_bytes / max(1, array.size_bytes)))


def ratio_error(
    one: ReplicaShape | None, other: ReplicaShape | None, models: tuple[ReadModel, ReadModel]
) -> float:
    """Return the standard deviation of the logarithm of two layouts' predicted ratio.

    None: the original. What is read by one model errs less in the ratio than what is read by two.
    """
    through_hdf5 = [shape is None or shape.chunk_shape is not None for shape in (one, other)]
    if through_hdf5[0] == through_hdf5[1]:
        return models[0 if through_hdf5[0] else 1].ratio_error
    return math.hypot(models[0].log_error, models[1].log_error)


def read_seconds(
    shape: ReplicaShape | None,
    array: StoredArray,
    slab: Hyperslab,
    models: tuple[ReadModel, ReadModel],
    *,
    n_concurrent: int = 1,
) -> float:
    """Return the predicted time of one HDF5 read; shape None: of the original through HDF5.

    Of a replica of a part the read has to lie within. One of segments takes as long as the pieces
    that it is read in.

    Raises
    ------
    SdsValueError
        If the model predicts what is no time.
    """
    original, engine = models
    if shape is not None and shape.segments is not None:
        tile = replace(array, extent=shape.segments.tile_shape, chunks=None)
        return seconds_of_pieces(
            pieces_in_tiles(slab, tile.extent),
            lambda piece: _piece_seconds(shape, tile, piece, models, n_concurrent=n_concurrent),
            start_s=engine.start_s if isinstance(engine, CostModel) else 0.0,
        )
    if shape is not None and shape.region is not None:
        array, slab = copied(shape, array), shape.region.relative(slab)
    if shape is None:
        seconds = seconds_as_stored(original, array, slab, n_concurrent=n_concurrent)
        if array.chunks is not None and array.extent:
            seconds += decode_seconds(array, slab)
            seconds += HDF5_CHUNK_S * count_chunks(slab, array.chunks)
    elif shape.chunk_shape is None:
        contiguous = layout_in_replica(array, shape.order)
        seconds = seconds_in(engine, array, slab, contiguous, n_concurrent=n_concurrent)
    else:
        layout = ChunkedLayout(
            element_size_bytes=array.element_size_bytes,
            chunk_shape=shape.chunk_shape,
            order=shape.order,
            stored_chunk_bytes=_stored_chunk_bytes(shape, array),
        )
        touched = count_chunks(slab.permuted(shape.order), shape.chunk_shape)
        seconds = seconds_in(original, array, slab, layout, n_concurrent=n_concurrent)
        seconds += HDF5_CHUNK_S * touched
        if shape.filtered:
            decoded = touched * math.prod(shape.chunk_shape) * array.element_size_bytes
            seconds += array.decode_s_per_byte * decoded
    if not (math.isfinite(seconds) and seconds > 0):
        raise SdsValueError(
            f"a read of {slab} is predicted to take {seconds} s: calibrate the file system anew"
        )
    return seconds


def _piece_seconds(
    shape: ReplicaShape,
    tile: StoredArray,
    piece: Hyperslab,
    models: tuple[ReadModel, ReadModel],
    *,
    n_concurrent: int,
) -> float:
    """Return what a piece takes: its runs, or all bytes around them, whichever is less."""
    whole = ReplicaShape(order=shape.order)
    in_runs = read_seconds(whole, tile, piece, models, n_concurrent=n_concurrent)
    stored_extent = tuple(tile.extent[axis] for axis in shape.order)
    n = elements_around(piece.permuted(shape.order), stored_extent)
    if n == piece.n_elements:
        return in_runs
    around = replace(tile, extent=(n,))
    run = ReplicaShape(order=(0,))
    at_once = read_seconds(run, around, Hyperslab.all((n,)), models, n_concurrent=n_concurrent)
    return min(in_runs, at_once)
