"""Read boxes of a source: past HDF5 where their bytes are known, else through it."""

from __future__ import annotations

import logging
import math
import os
from typing import TYPE_CHECKING, Self

import numpy as np

from sds import _native
from sds.errors import FormatError, UnsupportedError
from sds.files import open_regular
from sds.geometry import Hyperslab
from sds.hdf5.chunk_extents import decode_seconds_per_byte
from sds.hdf5.chunk_index import read_chunk_index
from sds.hdf5.chunk_reader import describe_chunked, read_chunked
from sds.hdf5.dataset import describe_open_dataset, get_dataset
from sds.organizer.copy.slabs import read_slab_directly, read_slab_through_hdf5, slab_runs
from sds.organizer.replica_file.container import open_source
from sds.organizer.replica_file.filters import require_filters

if TYPE_CHECKING:
    from collections.abc import Sequence

    import h5py

    from sds.hdf5.chunk_reader import ChunkedSource
    from sds.organizer.plans.reorganization_plan import CopyPlan, Slab

log = logging.getLogger(__name__)

# Lists of boxes are read with no more than their elements take once more, or this.
_BUFFER_BYTES = 1 << 20


class SourceReader:
    """Reads slabs of the source: with preads, as chunks without HDF5, or through HDF5.

    Parameters
    ----------
    decode_bytes
        Memory for undoing the source's filters without HDF5; 0 where HDF5 is to.
    """

    def __init__(self, plan: CopyPlan, *, decode_bytes: int) -> None:
        self._plan = plan
        self._decode_bytes = decode_bytes
        self._file: h5py.File | None = None
        self._descriptor: int | None = None
        self._chunked: ChunkedSource | None = None

    def __enter__(self) -> Self:
        if self._plan.data_offset_bytes is not None:
            self._descriptor = open_regular(self._plan.source_path)
            return self
        require_filters(
            self._plan.source_filters,
            f"{self._plan.dataset_path} in {self._plan.source_path}",
            encode=False,
        )
        self._file = open_source(self._plan.source_path)
        self._dataset = get_dataset(self._file, self._plan.dataset_path)
        if self._decode_bytes:
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
        allowed_bytes = self._decode_bytes
        self._decode_bytes -= chunked.index.memory_bytes
        if self._decode_bytes >= allowed_bytes // 2:
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

    def read_all(self, slabs: Sequence[Slab], out: np.ndarray) -> None:
        """Read slabs into `out`, one behind the other, those of a contiguous source forwards."""
        plan = self._plan
        if self._descriptor is None or plan.data_offset_bytes is None:
            at = 0
            for slab in slabs:
                self.read(slab, out[at:])
                at += math.prod(slab.shape) * plan.element_size_bytes
            return
        runs = [slab_runs(plan.extent, slab, plan.element_size_bytes) for slab in slabs]
        _native.read_list(
            _native.ReadFile(self._descriptor, may_map=False),
            np.concatenate([offsets for offsets, _ in runs]) + plan.data_offset_bytes,
            np.repeat([length for _, length in runs], [len(offsets) for offsets, _ in runs]),
            None,
            0,
            out[: sum(len(offsets) * length for offsets, length in runs)].data,
            sieve_buffer_bytes=_BUFFER_BYTES,
        )
