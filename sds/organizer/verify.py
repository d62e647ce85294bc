"""Verify replicas: against their own checksums, and against the original.

:func:`verify_replica` needs the replica alone: every byte is read
from disk and checked against the checksums in the file. :func:`compare_with_source` adds the
original: HDF5 reads both, NumPy transposes one, and every element is compared byte by byte. That
shares with the copy neither its way of reading, nor its slabs, nor its permutation, nor its way of
writing, nor what its memory held before.
"""

from __future__ import annotations

import itertools
import math
import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sds.errors import SdsError, TruncatedFileError, VerificationError
from sds.hdf5.identity import identity_of
from sds.hdf5.trailer import CHECKSUMS, stored_array
from sds.organizer.plans.slab_shapes import run_bytes
from sds.organizer.replica_file.block_checksums import open_past_cache
from sds.organizer.replica_file.filters import require_filters
from sds.organizer.replica_file.replica import Replica, describe_replica

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import h5py
    from numpy.typing import NDArray

    from sds.organizer.plans.reorganization_plan import CopyPlan, ReorganizationPlan, Slab
    from sds.organizer.progress import Progress

# Both sides of a compared tile fit into the second-level cache together.
_TILE_BYTES = 128 * 1024
_CACHE_LINE_BYTES = 64
_N_BLOCKS_NAMED = 5
# What memory holds before HDF5 reads into it. They differ, and the copy uses neither: elements that
# a read leaves as they were are never equal.
POISON_OF_SOURCE = 0xA7
POISON_OF_REPLICA = 0x5C


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationReport:
    """Result of a verification.

    Attributes
    ----------
    path
        The replica file.
    problems
        One sentence each; none where all is well.
    damaged_blocks
        Numbers of the blocks whose bytes differ from their checksums.
    checked_bytes
        Bytes of elements, decoded, that the checked bytes of the replica stand for.
    replica
        What the file says of itself; None where that cannot be read.
    """

    path: Path
    problems: tuple[str, ...]
    damaged_blocks: tuple[int, ...]
    checked_bytes: int
    replica: Replica | None = None

    @property
    def ok(self) -> bool:
        """True if the replica may serve."""
        return not self.problems


def verify_replica(path: Path, *, progress: Progress | None = None) -> VerificationReport:
    """Check a replica against the checksums in its file, and its source's identity.

    Errors as of :func:`verify_file`.
    """
    report = verify_file(path, progress=progress)
    if report.replica is None:
        return report
    return replace(report, problems=report.problems + source_problems(report.replica))


def verify_file(
    path: Path, *, past_cache: bool = False, progress: Progress | None = None
) -> VerificationReport:
    """Check a replica against the checksums in its file.

    Everything is read from the disk: what the page cache holds is dropped before or, with
    `past_cache`, left as it is where the file system can read past it. Never raises for what is
    wrong with the replica: that is the report.

    Raises
    ------
    FileMissingError, PermissionDeniedError
        If there is no such file, or it may not be read.
    """
    identity_of(path)
    descriptor = open_past_cache(path) if past_cache else None
    try:
        if descriptor is None:
            drop_from_page_cache(path)
        try:
            replica = describe_replica(path)
        except PermissionError:
            raise
        except SdsError as error:
            return VerificationReport(
                path=path, problems=(str(error),), damaged_blocks=(), checked_bytes=0
            )
        report = check_stored(replica, progress=progress, descriptor=descriptor)
    finally:
        if descriptor is not None:
            os.close(descriptor)
    return replace(report, replica=replica)


def compare_with_source(
    replica: Replica, plan: ReorganizationPlan, *, progress: Progress | None = None
) -> VerificationReport:
    """Check a replica as :func:`verify_replica` does, then compare each byte with the original.

    Errors as of :func:`compare_with_original`; UnsupportedError also where a filter of the replica
    is not installed.
    """
    require_filters(replica.filters, str(replica.path), encode=False)
    return compare_with_original(
        replica,
        plan,
        lambda advance: first_difference(replica, plan, advance),
        compared_bytes=plan.size_bytes,
        progress=progress,
    )


def compare_with_original(
    replica: Replica,
    plan: CopyPlan,
    compare: Callable[[Callable[[int], None]], Iterable[str]],
    *,
    compared_bytes: int,
    progress: Progress | None,
) -> VerificationReport:
    """Check a replica against its checksums, then compare it; the memory it takes is the plan's.

    A replica that fails its own checksums is not compared.

    Parameters
    ----------
    compare
        Returns a sentence for each difference. Calls its argument with the number of bytes that
        were compared since the last call, `compared_bytes` in all.

    Raises
    ------
    FileMissingError, PermissionDeniedError, OSError
        If the original cannot be read.
    UnsupportedError
        If a filter of the original is not installed.
    VerificationError
        If the replica cannot be read, though its checksums are right.
    """
    require_filters(plan.source_filters, f"{plan.dataset_path} in {plan.source_path}", encode=False)
    total_bytes = plan.size_bytes + compared_bytes
    done_bytes = plan.size_bytes

    def of_checksums(_: str, n_bytes: int, __: int) -> None:
        if progress is not None:
            progress("verify", n_bytes, total_bytes)

    def advance(n_bytes: int) -> None:
        nonlocal done_bytes
        done_bytes += n_bytes
        if progress is not None:
            progress("verify", done_bytes, total_bytes)

    drop_from_page_cache(replica.path)
    # Reads the file from end to end, so that the comparison finds it in the page cache: it reads
    # runs here and there, for which a disk takes several times as long.
    report = check_stored(replica, progress=of_checksums)
    if not report.ok:
        return report
    return replace(report, problems=(*compare(advance), *source_problems(replica)))


def drop_from_page_cache(path: Path) -> None:
    """Drop the clean pages of a file from the page cache, so that the disk is read again."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def source_problems(replica: Replica) -> tuple[str, ...]:
    """Return a sentence where the source is gone or not what was copied."""
    try:
        now = identity_of(replica.source_path)
    except SdsError as error:
        return (f"source: {error}",)
    difference = replica.source_identity.difference(now)
    if not difference:
        return ()
    return (f"the source {replica.source_path} has changed since ({difference}): build it again",)


def check_stored(
    replica: Replica,
    *,
    progress: Progress | None,
    descriptor: int | None = None,
    checksums: NDArray[np.uint32] | None = None,
) -> VerificationReport:
    """Compare the bytes of the file with the checksums that it holds.

    Parameters
    ----------
    descriptor
        Reads the file; None: one that is opened for it.
    checksums
        Of the blocks, as they are on disk; None: computed here.
    """
    import h5py  # noqa: PLC0415

    try:
        with h5py.File(replica.path, "r", locking=False) as handle:
            at, stored = stored_array(handle, CHECKSUMS, "<u4")
    except (SdsError, KeyError, RuntimeError, OSError) as error:
        problem = f"the checksums of {replica.path} cannot be read ({error})"
        return _failed(replica, problem)
    is_contiguous = _is_contiguous(replica)
    total = replica.size_bytes if is_contiguous else replica.identity.size_bytes
    done_bytes = 0

    def advance(n_bytes: int) -> None:
        nonlocal done_bytes
        done_bytes += n_bytes
        if progress is not None:
            progress("verify", done_bytes * replica.size_bytes // total, replica.size_bytes)

    opened = os.open(replica.path, os.O_RDONLY | os.O_CLOEXEC) if descriptor is None else -1
    try:
        reading = opened if descriptor is None else descriptor
        if checksums is None:
            hole = (at, at + stored.nbytes)
            checksums = checksums_on_disk(replica, reading, hole=hole, advance=advance)
        check = _check_contiguous if is_contiguous else _check_whole_file
        return check(replica, reading, stored, at, checksums)
    except TruncatedFileError as error:
        return _failed(replica, f"{replica.path}: {error}")
    finally:
        if opened >= 0:
            os.close(opened)


def _is_contiguous(replica: Replica) -> bool:
    """Return whether the blocks of a replica are of its elements, else of the whole file."""
    return replica.chunk_shape is None and replica.sort is None


def checksums_on_disk(
    replica: Replica,
    descriptor: int,
    *,
    hole: tuple[int, int],
    share: tuple[int, int] = (0, 1),
    advance: Callable[[int], None],
) -> NDArray[np.uint32]:
    """Return the checksums of the blocks of a replica as they are.

    Parameters
    ----------
    hole
        First byte and end of the place where checksums are stored.
    share
        Number of a part of the blocks, and number of all parts: only of that part.
    advance
        Called with the number of bytes read since its last call.
    """
    from sds.organizer.replica_file import block_checksums  # noqa: PLC0415

    if not _is_contiguous(replica):
        return block_checksums.file_checksums(
            descriptor, replica.block_size_bytes, hole=hole, share=share, advance=advance
        )
    return block_checksums.block_checksums(
        descriptor,
        replica.data_offset_bytes,
        replica.size_bytes,
        replica.block_size_bytes,
        share=share,
        advance=advance,
    )


def place_of_checksums(replica: Replica) -> tuple[int, int]:
    """Return first byte and end of the place where a replica's checksums are stored."""
    import h5py  # noqa: PLC0415

    with h5py.File(replica.path, "r", locking=False) as handle:
        at, stored = stored_array(handle, CHECKSUMS, "<u4")
    return at, at + stored.nbytes


def _failed(replica: Replica, problem: str) -> VerificationReport:
    return VerificationReport(
        path=replica.path, problems=(problem,), damaged_blocks=(), checked_bytes=0
    )


def _check_contiguous(
    replica: Replica,
    descriptor: int,
    stored: NDArray[np.uint32],
    at: int,
    found: NDArray[np.uint32],
) -> VerificationReport:
    """Check the blocks of the elements, and everything around them."""
    from sds.organizer.replica_file import block_checksums  # noqa: PLC0415

    expected = 1 + block_checksums.n_blocks(replica.size_bytes, replica.block_size_bytes)
    if stored.shape != (expected,):
        problem = f"{replica.path} holds {stored.size} checksums instead of {expected}"
        return _failed(replica, problem)
    problems = []
    crc = block_checksums.metadata_checksum(
        descriptor,
        data_offset_bytes=replica.data_offset_bytes,
        size_bytes=replica.size_bytes,
        zeroed_offset_bytes=at,
    )
    if crc != int(stored[0]):
        problems.append(
            f"the metadata of {replica.path} are damaged "
            f"(CRC-32C {crc:#010x}, written as {int(stored[0]):#010x}): build it again"
        )
    return _compared(replica, found, stored[1:], problems)


def _check_whole_file(
    replica: Replica,
    _descriptor: int,
    stored: NDArray[np.uint32],
    _at: int,
    found: NDArray[np.uint32],
) -> VerificationReport:
    """Check the blocks of the whole file."""
    if len(found) > len(stored) or stored[len(found) :].any():
        problem = f"{replica.path} has {len(found)} blocks, its checksums are of others"
        return _failed(replica, problem)
    return _compared(replica, found, stored[: len(found)], [])


def _compared(
    replica: Replica,
    found: NDArray[np.uint32],
    stored: NDArray[np.uint32],
    problems: list[str],
) -> VerificationReport:
    """Return the report on the checksums of blocks."""
    damaged = tuple(int(index) for index in np.flatnonzero(found != stored))
    if damaged:
        named = ", ".join(map(str, damaged[:_N_BLOCKS_NAMED]))
        more = ", ..." if len(damaged) > _N_BLOCKS_NAMED else ""
        problems.append(
            f"{len(damaged)} of {len(found)} blocks of {replica.path} are damaged "
            f"(number {named}{more}; {replica.block_size_bytes} bytes each): build it again"
        )
    return VerificationReport(
        path=replica.path,
        problems=tuple(problems),
        damaged_blocks=damaged,
        checked_bytes=replica.size_bytes,
    )


def first_difference(
    replica: Replica,
    plan: ReorganizationPlan,
    advance: Callable[[int], None],
    share: tuple[int, int] = (0, 1),
) -> tuple[str, ...]:
    """Return which element differs, by its index in the source; nothing where none does.

    One box is compared while the next is read.

    Parameters
    ----------
    advance
        Called with the bytes that were compared since its last call.
    share
        Number of a part of the boxes, and number of all parts: only that part is compared.
    """
    from sds.hdf5.dataset import as_words, get_dataset  # noqa: PLC0415
    from sds.organizer.copy.slabs import read_slab_through_hdf5  # noqa: PLC0415
    from sds.organizer.plans.reorganization_plan import Slab  # noqa: PLC0415
    from sds.organizer.replica_file.container import open_source  # noqa: PLC0415

    size = plan.element_size_bytes
    shape = _compared_shape(plan)
    within = zip(shape, plan.region.extent, strict=True)
    most_bytes = math.prod(min(length, n) for length, n in within) * size
    n_rooms = 2 if 2 * most_bytes <= plan.n_buffers * plan.slab_elements * size else 1
    rooms = [
        (np.empty(most_bytes, np.uint8), np.empty(most_bytes, np.uint8)) for _ in range(n_rooms)
    ]
    # The replica's elements in the axes of the source; the words of an element stay last.
    back = (*np.argsort(plan.order).tolist(), len(plan.order))

    def compare(
        room: tuple[NDArray[np.uint8], NDArray[np.uint8]], slab: Slab, target: Slab
    ) -> tuple[int, ...] | None:
        expected = as_words(room[0], slab.shape, size)
        found = as_words(room[1], target.shape, size)
        unequal = first_unequal(expected, found.transpose(back), plan.order)
        if unequal is None:
            return None
        return tuple(a + b for a, b in zip(slab.start, unequal, strict=True))

    comparing: deque[tuple[Slab, Future[tuple[int, ...] | None]]] = deque()

    def finish(most: int) -> tuple[str, ...]:
        """Wait until at most so many boxes are compared; return a sentence where one differs."""
        while len(comparing) > most:
            slab, compared = comparing.popleft()
            where = compared.result()
            if where is not None:
                index = ", ".join(map(str, where))
                return (f"element [{index}] differs from that of {plan.source_path}",)
            advance(slab.n_elements * size)
        return ()

    with (
        open_source(plan.source_path) as source,
        reading_back(replica) as copy,
        ThreadPoolExecutor(1, thread_name_prefix="sds-compare") as pool,
    ):
        original = get_dataset(source, plan.dataset_path)
        copied = get_dataset(copy, plan.dataset_path)
        boxes = itertools.islice(_compared_slabs(plan, shape), share[0], None, share[1])
        for number, slab in enumerate(boxes):
            at = (a - b for a, b in zip(slab.start, plan.region.start, strict=True))
            target = Slab(start=tuple(at), shape=slab.shape).permuted(plan.order)
            if problems := finish(n_rooms - 1):
                return problems
            room = rooms[number % n_rooms]
            room[0].fill(POISON_OF_SOURCE)
            room[1].fill(POISON_OF_REPLICA)
            read_slab_through_hdf5(original, slab, room[0])
            try:
                read_slab_through_hdf5(copied, target, room[1])
            except OSError as error:
                raise unreadable(replica, error) from error
            comparing.append((slab, pool.submit(compare, room, slab, target)))
        return finish(0)


def _compared_shape(plan: ReorganizationPlan) -> tuple[int, ...]:
    """Return the shape of what is compared at once: half a slab of the copy, of whole chunks.

    It is cut where its shorter runs, those in the source or those in the replica, stay longest. A
    slab that is one chunk, of the source or the replica, is compared whole.
    """
    chunk = plan.layout.chunk_in_source_axes
    halves = []
    for axis, size in enumerate(plan.slab_shape):
        of_source = 1 if plan.source_chunk_shape is None else plan.source_chunk_shape[axis]
        unit = math.lcm(of_source, 1 if chunk is None else chunk[axis])
        n_units = min(size, plan.region.extent[axis]) // unit
        if n_units > 1:
            half = list(plan.slab_shape)
            half[axis] = -(-n_units // 2) * unit
            halves.append(tuple(half))
    if not halves:
        return plan.slab_shape
    if plan.source_chunk_shape is not None or chunk is not None:
        return halves[0]
    orders = (tuple(range(len(plan.order))), plan.order)
    size = plan.element_size_bytes
    return max(
        halves,
        key=lambda half: min(run_bytes(half, plan.region.extent, axes, size) for axes in orders),
    )


def _compared_slabs(plan: ReorganizationPlan, shape: tuple[int, ...]) -> Iterator[Slab]:
    """Yield the region of a plan in boxes of a shape, from its end to its beginning.

    They begin where the chunks do, and are cut off at the ends of the region.
    """
    from sds.organizer.plans.reorganization_plan import Slab  # noqa: PLC0415

    region = plan.region
    axes = zip(region.start, region.extent, plan.slab_start, shape, strict=True)
    spans = [
        [
            (max(first, begin), min(begin + size, first + n))
            for begin in reversed(range(origin, first + n, size))
            if begin + size > first
        ]
        for first, n, origin, size in axes
    ]
    for corner in itertools.product(*spans):
        begins, ends = zip(*corner, strict=True)
        yield Slab(start=begins, shape=tuple(b - a for a, b in zip(begins, ends, strict=True)))


def reading_back(replica: Replica) -> h5py.File:
    """Open a replica for comparison."""
    from sds.organizer.replica_file.container import open_source  # noqa: PLC0415

    try:
        return open_source(replica.path)
    except OSError as error:
        raise unreadable(replica, error) from error


def unreadable(replica: Replica, error: OSError) -> VerificationError:
    """Return the error for a replica that HDF5 cannot read though its checksums are right."""
    return VerificationError(
        f"{replica.path} cannot be read back ({error}): check the disk, and build it again"
    )


def first_unequal(
    a: NDArray[np.unsignedinteger], b: NDArray[np.unsignedinteger], order: Sequence[int]
) -> tuple[int, ...] | None:
    """Return the index of an element in which two arrays differ, compared tile by tile.

    `a` is contiguous in its own axes, `b` in those that `order` gives; the last axis holds the
    words of an element.
    """
    for tile in _tiles(a.shape[:-1], order, a.shape[-1] * a.itemsize):
        unequal = a[tile] != b[tile]
        if unequal.any():
            within = np.argwhere(unequal)[0][:-1].tolist()
            return tuple(part.start + index for part, index in zip(tile, within, strict=True))
    return None


def _tiles(
    shape: Sequence[int], order: Sequence[int], element_size_bytes: int
) -> Iterator[tuple[slice, ...]]:
    """Yield tiles of one cache line along the source's fastest axis, long along the replica's."""
    budget = max(1, _TILE_BYTES // element_size_bytes)
    sizes = [1] * len(shape)
    fast = len(shape) - 1
    sizes[fast] = min(shape[fast], max(1, _CACHE_LINE_BYTES // element_size_bytes))
    for axis in itertools.chain(reversed(order), reversed(range(len(shape)))):
        others = math.prod(sizes) // sizes[axis]
        if axis != fast or others * sizes[fast] * 2 <= budget:
            sizes[axis] = max(sizes[axis], min(shape[axis], max(1, budget // others)))
    starts = (range(0, n, size) for n, size in zip(shape, sizes, strict=True))
    for corner in itertools.product(*starts):
        yield tuple(
            slice(first, min(first + size, n))
            for first, size, n in zip(corner, sizes, shape, strict=True)
        )
