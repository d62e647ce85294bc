"""The organizer that gives a dataset another axis order and storage; in one process."""

from __future__ import annotations

import logging
import math
import os
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Self

import numpy as np

from sds import _native
from sds.chunk_index import read_chunk_index
from sds.chunk_reader import describe_chunked, read_chunked
from sds.chunks import decode_seconds_per_byte
from sds.dataset import describe_open_dataset, get_dataset
from sds.errors import FormatError, UnsupportedError
from sds.geometry import Hyperslab
from sds.organizer.container import create_container, open_source
from sds.organizer.filters import require_filters
from sds.organizer.plan import plan_transposition
from sds.organizer.replica import describe_replica
from sds.organizer.slabs import (
    permute_slab,
    read_slab_directly,
    read_slab_through_hdf5,
    slab_runs,
)
from sds.organizer.targets import ChunkedTarget, ContiguousTarget
from sds.organizer.verify import compare_with_source

if TYPE_CHECKING:
    from pathlib import Path

    import h5py

    from sds.chunk_reader import ChunkedSource
    from sds.organizer.plan import (
        ReorganizationPlan,
        ReorganizationRequest,
        Slab,
        Source,
    )
    from sds.organizer.protocol import Checkpoint, Progress
    from sds.organizer.replica import Replica
    from sds.organizer.targets import Target
    from sds.organizer.verify import VerificationReport

log = logging.getLogger(__name__)

# A kill costs at most so much work; each checkpoint waits for the disk.
_CHECKPOINT_S = 5.0
# The checkpoints of many chunks take long: one part of the time in so many, no more.
_NOTES_SHARE = 20


class Transposer:
    """Copies slab by slab: reads one while the one before, permuted, is being written."""

    name = "transposer"

    def plan(self, source: Source, request: ReorganizationRequest) -> ReorganizationPlan:
        """Return the plan; see :func:`sds.organizer.plan.plan_transposition`."""
        return plan_transposition(source, request, organizer=self.name)

    def execute(
        self,
        plan: ReorganizationPlan,
        staged: Path,
        *,
        checkpoint: Checkpoint,
        progress: Progress | None = None,
    ) -> Replica:
        """Write the replica into the file `staged`, synced to disk; returns its description.

        Raises
        ------
        UnsupportedError
            If a filter of the source or of the replica is not installed.
        TruncatedFileError, FormatError
            If the source ends before its data, or is damaged.
        OSError
            If a file cannot be read or written.
        """
        began_s = time.monotonic()
        # HDF5 would leave out a filter that is missing, and store the chunks as they are.
        require_filters(plan.layout.filters, "the replica", encode=True)
        if not checkpoint.steps_done:
            create_container(staged, plan)
        with _SlabReader(plan) as reader:
            kind = ContiguousTarget if plan.layout.chunk_shape is None else ChunkedTarget
            with kind(staged, plan) as target:
                _copy_slabs(plan, reader, target, checkpoint, progress)
                target.finish(began_s=began_s, source_decode_s_per_byte=reader.decode_s_per_byte())
        return describe_replica(staged)

    def verify(
        self, replica: Replica, plan: ReorganizationPlan, *, progress: Progress | None = None
    ) -> VerificationReport:
        """Compare every byte of the replica, read back from disk, with the original."""
        return compare_with_source(replica, plan, progress=progress)


class _SlabReader:
    """Reads slabs of the source: with preads, as chunks without HDF5, or through HDF5."""

    def __init__(self, plan: ReorganizationPlan) -> None:
        self._plan = plan
        self._file: h5py.File | None = None
        self._descriptor: int | None = None
        self._chunked: ChunkedSource | None = None

    def __enter__(self) -> Self:
        if self._plan.data_offset_bytes is not None:
            self._descriptor = os.open(self._plan.source_path, os.O_RDONLY | os.O_CLOEXEC)
            return self
        require_filters(
            self._plan.source_filters,
            f"{self._plan.dataset_path} in {self._plan.source_path}",
            encode=False,
        )
        self._file = open_source(self._plan.source_path)
        self._dataset = get_dataset(self._file, self._plan.dataset_path)
        if self._plan.decode_bytes:
            self._find_chunks(self._file)
        return self

    def _find_chunks(self, file: h5py.File) -> None:
        """Find where the chunks lie, to read them without HDF5, where that is possible."""
        described = describe_open_dataset(self._dataset, self._plan.source_path)
        chunked = describe_chunked(self._dataset, described) if described.is_native else None
        if chunked is None or file.driver != "sec2":
            return
        try:
            chunked.index = read_chunk_index(self._dataset)
        except OSError as error:
            log.debug("HDF5 reads %s: %s", self._plan.dataset_path, error)
            return
        self._decode_bytes = self._plan.decode_bytes - chunked.index.memory_bytes
        if self._decode_bytes >= self._plan.decode_bytes // 2:
            self._chunked = chunked
            self._engine = _native.ReadFile(file.id.get_vfd_handle(), may_map=False)

    def _read_chunks(self, slab: Slab, out: np.ndarray) -> bool:
        """Read a slab without HDF5; return whether that was possible."""
        if self._chunked is None:
            return False
        ones = (1,) * len(slab.shape)
        n_bytes = math.prod(slab.shape) * self._plan.element_size_bytes
        return read_chunked(
            self._engine,
            self._chunked,
            Hyperslab(start=slab.start, stride=ones, count=slab.shape, block=ones),
            out[:n_bytes].view(self._chunked.described.dtype).reshape(slab.shape),
            max_memory_bytes=self._decode_bytes,
        )

    def __exit__(self, *_: object) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
        if self._file is not None:
            self._file.close()

    def decode_s_per_byte(self) -> float:
        """Return how long undoing the filters of the source takes, per byte that comes out.

        0 where that cannot be measured: a damaged chunk, which the region need not touch. Reads of
        the source then count as cheaper than they are.
        """
        if self._file is None:
            return 0.0
        try:
            return decode_seconds_per_byte(self._dataset)
        except UnsupportedError as error:
            log.warning("%s; its filters count as free", error)
            return 0.0

    def read(self, slab: Slab, out: np.ndarray) -> None:
        """Read a slab into the bytes of `out`, in the order of the source."""
        plan = self._plan
        if self._read_chunks(slab, out):
            return
        if self._descriptor is None or plan.data_offset_bytes is None:
            try:
                read_slab_through_hdf5(self._dataset, slab, out)
            except OSError as error:
                if error.errno:
                    raise  # the disk, not what is on it
                message = (
                    f"{plan.dataset_path} in {plan.source_path} cannot be read ({error}): it is "
                    "damaged; copy the file again from where it came"
                )
                raise FormatError(message) from error
            return
        runs = slab_runs(plan.extent, slab, plan.element_size_bytes)
        read_slab_directly(self._descriptor, plan.data_offset_bytes, runs, out)


def _copy_slabs(
    plan: ReorganizationPlan,
    reader: _SlabReader,
    target: Target,
    checkpoint: Checkpoint,
    progress: Progress | None,
) -> None:
    """Copy the slabs that are not yet on disk, and note how far they are."""
    slab_bytes = plan.slab_elements * plan.element_size_bytes
    read = np.empty(slab_bytes, np.uint8)
    permuted = np.empty(slab_bytes, np.uint8)
    first = checkpoint.steps_done
    done_bytes = sum(
        math.prod(plan.slab(index).shape) * plan.element_size_bytes for index in range(first)
    )
    noted_s = time.monotonic()
    pause_s = _CHECKPOINT_S
    with ThreadPoolExecutor(1, thread_name_prefix="sds-write") as pool:
        writing: Future[None] | None = None
        for index, slab in enumerate(plan.slabs(first), first):
            reader.read(slab, read)
            if writing is not None:
                writing.result()
            if time.monotonic() - noted_s > pause_s:
                begun_s = time.monotonic()
                target.note(checkpoint, index, share_done=done_bytes / plan.size_bytes)
                noted_s = time.monotonic()
                pause_s = max(_CHECKPOINT_S, _NOTES_SHARE * (noted_s - begun_s))
            if progress is not None:
                progress("copy", done_bytes, plan.size_bytes)
            n_bytes = math.prod(slab.shape) * plan.element_size_bytes
            permute_slab(slab, plan.order, plan.element_size_bytes, read, permuted)
            writing = pool.submit(target.write, plan.in_replica(slab), permuted[:n_bytes])
            done_bytes += n_bytes
        if writing is not None:
            writing.result()
    if progress is not None:
        progress("copy", plan.size_bytes, plan.size_bytes)
