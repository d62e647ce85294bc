"""Targets of a copy: the places of slabs in a contiguous dataset, or chunks."""

from __future__ import annotations

import itertools
import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol, Self

import h5py
import numpy as np

from sds import _native
from sds.hdf5.chunk_extents import decode_seconds_per_byte
from sds.organizer.copy.chunk_encoder import ChunkEncoder
from sds.organizer.copy.slabs import slab_runs, write_slab, write_slab_through_hdf5
from sds.organizer.replica_file.block_checksums import block_checksums
from sds.organizer.replica_file.container import (
    find_data_offset,
    finish_chunked,
    finish_container,
    open_for_chunks,
)
from sds.organizer.space import foresee_space

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from numpy.typing import NDArray

    from sds.organizer.plans.reorganization_plan import ReorganizationPlan, Slab
    from sds.organizer.progress import Checkpoint, DatasetPlan


class SlabWriter(Protocol):
    """Takes what a replica is to hold."""

    def write(self, slab: Slab, elements: NDArray[np.uint8]) -> None:
        """Write the elements of a box of the replica."""


class Target(SlabWriter, Protocol):
    """The staged file of a replica, open; it was made by `create_container`."""

    def __enter__(self) -> Self:
        """Open it."""

    def __exit__(self, *_: object) -> None:
        """Close it."""

    def note(self, checkpoint: Checkpoint, steps_done: int, *, share_done: float) -> None:
        """Sync what is written, and record the number of slabs on disk.

        Raises
        ------
        InsufficientSpaceError
            If the rest will find no room.
        """

    def finish(self, *, began_s: float, source_decode_s_per_byte: float) -> None:
        """Write what is known after the elements, the checksums last, all of it on disk.

        Parameters
        ----------
        began_s
            When the copy began, by :func:`time.monotonic`.
        """


class ContiguousTarget:
    """Slabs go straight to their places in the file, past HDF5.

    Parameters
    ----------
    takes_space
        Whether to take the space on disk when it is opened: of several processes that write the
        file, one does, before the others begin.
    """

    def __init__(self, staged: Path, plan: DatasetPlan, *, takes_space: bool = True) -> None:
        self._staged = staged
        self._plan = plan
        self._takes_space = takes_space
        self._data_offset_bytes = find_data_offset(staged, plan)
        self._descriptor = -1

    def __enter__(self) -> Self:
        self._descriptor = os.open(self._staged, os.O_RDWR | os.O_CLOEXEC)
        try:
            if self._takes_space:  # a full disk is found before the work, not after it
                os.posix_fallocate(self._descriptor, self._data_offset_bytes, self._plan.size_bytes)
        except BaseException:
            os.close(self._descriptor)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def write(self, slab: Slab, elements: NDArray[np.uint8]) -> None:
        """Write the elements of a box of the replica."""
        plan = self._plan
        runs = slab_runs(plan.replica_extent, slab, plan.element_size_bytes)
        write_slab(self._descriptor, self._data_offset_bytes, runs, elements)

    def note(self, checkpoint: Checkpoint, steps_done: int, *, share_done: float) -> None:  # noqa: ARG002  (all of its space is taken)
        """Sync what is written, and record the number of slabs on disk."""
        self.sync()
        checkpoint.reached(steps_done)

    def sync(self) -> None:
        """Wait until what is written is on disk."""
        os.fdatasync(self._descriptor)

    def checksums(self, share: tuple[int, int] = (0, 1)) -> NDArray[np.uint32]:
        """Sync what is written; return the checksums of the blocks.

        Parameters
        ----------
        share
            Number of a part of the blocks, and number of all parts.
        """
        with ThreadPoolExecutor(1, thread_name_prefix="sds-sync") as pool:
            on_disk = pool.submit(self.sync)
            found = block_checksums(
                self._descriptor,
                self._data_offset_bytes,
                self._plan.size_bytes,
                _native.block_bytes(self._plan.size_bytes),
                share=share,
            )
            on_disk.result()
        return found

    def finish(
        self,
        *,
        began_s: float,
        source_decode_s_per_byte: float,
        checksums: NDArray[np.uint32] | None = None,
    ) -> None:
        """Write the checksums and times, all of it on disk.

        Parameters
        ----------
        checksums
            Of all blocks; None: not computed yet.
        """
        if checksums is None:
            checksums = self.checksums()
        finish_container(
            self._staged,
            self._data_offset_bytes,
            self._plan,
            checksums,
            build_s=time.monotonic() - began_s,
            source_decode_s_per_byte=source_decode_s_per_byte,
        )
        os.fsync(self._descriptor)


class ChunkedTarget:
    """Slabs of whole chunks, each written once: filtered here where that is known, else by HDF5."""

    def __init__(self, staged: Path, plan: ReorganizationPlan) -> None:
        self._staged = staged
        self._plan = plan
        self._file: h5py.File | None = None
        self._encoder: ChunkEncoder | None = None
        if plan.encode_bytes:
            self._encoder = ChunkEncoder(plan.layout, plan.element_size_bytes, plan.encode_bytes)

    def __enter__(self) -> Self:
        self._open()
        if self._encoder is not None:
            self._encoder.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if self._encoder is not None:
            self._encoder.__exit__()
        self._close()

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> h5py.File:
        self._file = open_for_chunks(self._staged)
        return self._file

    def write(self, slab: Slab, elements: NDArray[np.uint8]) -> None:
        """Write the elements of a box of the replica."""
        dataset = (self._file or self._open())[self._plan.dataset_path]
        if self._encoder is None:
            write_slab_through_hdf5(dataset, slab, elements)
        else:
            self.write_stored(self._encoder.encode(slab, elements))

    def write_stored(self, chunks: Iterable[tuple[tuple[int, ...], bytes]]) -> None:
        """Write chunks: first index, and bytes as they are stored, of each."""
        dataset = (self._file or self._open())[self._plan.dataset_path]
        for first, stored in chunks:
            dataset.id.write_direct_chunk(first, stored)

    def note(self, checkpoint: Checkpoint, steps_done: int, *, share_done: float) -> None:
        """Sync what is written, and record the number of slabs on disk.

        The file is closed, so that what is on disk is a whole HDF5 file. What HDF5 may overwrite
        later, everything but the chunks, is noted with it: a build that is killed goes on from the
        very bytes of this moment.
        """
        file = self._file or self._open()
        ranges = _outside_chunks(file[self._plan.dataset_path])
        file.close()
        self._file = None
        with self._staged.open("rb") as stream:
            os.fsync(stream.fileno())
        foresee_space(self._staged, share_done)
        checkpoint.reached(steps_done, overwritable=ranges)

    def finish(self, *, began_s: float, source_decode_s_per_byte: float) -> None:
        """Write the checksums and times, all of it on disk."""
        self._close()
        with h5py.File(self._staged, "r", locking=False) as file:
            decode_s_per_byte = decode_seconds_per_byte(file[self._plan.dataset_path])
        finish_chunked(
            self._staged,
            self._plan,
            build_s=time.monotonic() - began_s,
            decode_s_per_byte=decode_s_per_byte,
            source_decode_s_per_byte=source_decode_s_per_byte,
        )
        with self._staged.open("rb") as stream:
            os.fsync(stream.fileno())


def _outside_chunks(dataset: h5py.Dataset) -> tuple[tuple[int, int | None], ...]:
    """Return first byte and end of the parts of a file that hold no chunk; None: the file's end."""
    n_chunks = dataset.id.get_num_chunks()
    firsts = np.empty(n_chunks, np.int64)
    sizes = np.empty(n_chunks, np.int64)
    index = itertools.count()

    def collect(info: h5py.h5d.StoreInfo) -> None:
        at = next(index)
        firsts[at] = info.byte_offset
        sizes[at] = info.size

    dataset.id.chunk_iter(collect)
    by_place = np.argsort(firsts)
    firsts = firsts[by_place]
    ends = firsts + sizes[by_place]
    # Between the end of each chunk, or the beginning of the file, and the next chunk.
    begins = np.concatenate([np.zeros(1, np.int64), ends])
    gaps = np.flatnonzero(begins[:-1] < firsts)
    ranges: list[tuple[int, int | None]] = list(
        zip(begins[gaps].tolist(), firsts[gaps].tolist(), strict=True)
    )
    ranges.append((int(begins[-1]), None))
    return tuple(ranges)
