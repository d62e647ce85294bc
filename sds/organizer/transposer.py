"""The organizer that gives a dataset another axis order; in one process."""

from __future__ import annotations

import math
import os
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple, Self

import h5py
import numpy as np

from sds.dataset import get_dataset
from sds.errors import UnsupportedError
from sds.organizer.blocks import block_checksums, block_size_bytes
from sds.organizer.container import (
    create_container,
    find_container,
    finish_container,
    open_source,
)
from sds.organizer.plan import plan_transposition
from sds.organizer.replica import describe_replica
from sds.organizer.slabs import (
    permute_slab,
    read_slab_directly,
    read_slab_through_hdf5,
    slab_runs,
    write_slab,
)
from sds.organizer.verify import compare_with_source

if TYPE_CHECKING:
    from pathlib import Path

    from sds.organizer.plan import (
        ReorganizationPlan,
        ReorganizationRequest,
        Slab,
        Source,
    )
    from sds.organizer.protocol import Checkpoint, Progress
    from sds.organizer.replica import Replica
    from sds.organizer.verify import VerificationReport

# A kill costs at most so much work; each checkpoint waits for the disk.
_CHECKPOINT_S = 5.0


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
            If a filter of the source is not installed.
        TruncatedFileError
            If the source ends before its data.
        OSError
            If a file cannot be read or written.
        """
        began = time.monotonic()
        container = (
            find_container(staged, plan)
            if checkpoint.steps_done
            else create_container(staged, plan)
        )
        descriptor = os.open(staged, os.O_RDWR | os.O_CLOEXEC)
        try:
            # Takes the space now: a full disk is found before the work, not after it.
            os.posix_fallocate(descriptor, container.data_offset_bytes, plan.size_bytes)
            with _SlabReader(plan) as reader:
                target = _Target(descriptor, container.data_offset_bytes)
                _copy_slabs(plan, reader, target, checkpoint, progress)
            os.fdatasync(descriptor)
            checksums = block_checksums(
                descriptor,
                container.data_offset_bytes,
                plan.size_bytes,
                block_size_bytes(plan.size_bytes),
            )
            finish_container(staged, container, plan, checksums, build_s=time.monotonic() - began)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        return describe_replica(staged)

    def verify(
        self, replica: Replica, plan: ReorganizationPlan, *, progress: Progress | None = None
    ) -> VerificationReport:
        """Compare every byte of the replica, read back from disk, with the original."""
        return compare_with_source(replica, plan, progress=progress)


class _Target(NamedTuple):
    """Where the elements of the replica go."""

    descriptor: int
    data_offset_bytes: int


class _SlabReader:
    """Reads slabs of the source: a contiguous one with preads, any other through HDF5."""

    def __init__(self, plan: ReorganizationPlan) -> None:
        self._plan = plan
        self._file: h5py.File | None = None
        self._descriptor: int | None = None

    def __enter__(self) -> Self:
        if self._plan.data_offset_bytes is not None:
            self._descriptor = os.open(self._plan.source_path, os.O_RDONLY | os.O_CLOEXEC)
            return self
        self._file = open_source(self._plan.source_path)
        self._dataset = get_dataset(self._file, self._plan.dataset_path)
        try:
            _check_filters(self._dataset)
        except UnsupportedError:
            self._file.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
        if self._file is not None:
            self._file.close()

    def read(self, slab: Slab, out: np.ndarray) -> None:
        """Read a slab into the bytes of `out`, in the order of the source."""
        plan = self._plan
        if self._descriptor is None or plan.data_offset_bytes is None:
            read_slab_through_hdf5(self._dataset, slab, out)
            return
        runs = slab_runs(plan.extent, slab, plan.element_size_bytes)
        read_slab_directly(self._descriptor, plan.data_offset_bytes, runs, out)


def _check_filters(dataset: h5py.Dataset) -> None:
    """Raise UnsupportedError for a filter that this HDF5 library lacks."""
    properties = dataset.id.get_create_plist()
    for index in range(properties.get_nfilters()):
        code, _, _, name = properties.get_filter(index)
        if not h5py.h5z.filter_avail(code):
            message = (
                f"{dataset.name} in {dataset.file.filename} is stored with filter {code} "
                f"({name.decode('utf-8', 'replace') or 'unnamed'}), which is not installed: "
                "install its plugin (many come with the package hdf5plugin) and set "
                "HDF5_PLUGIN_PATH"
            )
            raise UnsupportedError(message)


def _copy_slabs(
    plan: ReorganizationPlan,
    reader: _SlabReader,
    target: _Target,
    checkpoint: Checkpoint,
    progress: Progress | None,
) -> None:
    """Copy the slabs that are not yet on disk, and note how far they are."""
    slab_bytes = math.prod(plan.slab_shape) * plan.element_size_bytes
    read = np.empty(slab_bytes, np.uint8)
    permuted = np.empty(slab_bytes, np.uint8)
    first = checkpoint.steps_done
    done_bytes = sum(
        math.prod(plan.slab(index).shape) * plan.element_size_bytes for index in range(first)
    )
    synced_at = time.monotonic()
    with ThreadPoolExecutor(1, thread_name_prefix="sds-write") as pool:
        writing: Future[None] | None = None
        for index, slab in enumerate(plan.slabs(first), first):
            reader.read(slab, read)
            if writing is not None:
                writing.result()
            if time.monotonic() - synced_at > _CHECKPOINT_S:
                os.fdatasync(target.descriptor)
                checkpoint.reached(index)
                synced_at = time.monotonic()
            if progress is not None:
                progress("copy", done_bytes, plan.size_bytes)
            n_bytes = math.prod(slab.shape) * plan.element_size_bytes
            permute_slab(slab, plan.order, plan.element_size_bytes, read, permuted)
            runs = slab_runs(
                plan.replica_extent, slab.permuted(plan.order), plan.element_size_bytes
            )
            writing = pool.submit(write_slab, *target, runs, permuted[:n_bytes])
            done_bytes += n_bytes
        if writing is not None:
            writing.result()
    if progress is not None:
        progress("copy", plan.size_bytes, plan.size_bytes)
