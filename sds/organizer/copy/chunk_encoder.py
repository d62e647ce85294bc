"""Filter chunks of a replica in several threads, past HDF5, which filters one at a time.

The filters are those that HDF5 itself brings: shuffle and deflate, and the Fletcher-32 that comes
last in every replica. Their bytes are what HDF5's own filters make of the same chunk.
"""

from __future__ import annotations

import itertools
import math
import os
import zlib
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Self

import numpy as np

from sds import _native
from sds.organizer.replica_file.filters import SHUFFLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from sds.geometry.replica_layout import ReplicaLayout
    from sds.organizer.plans.reorganization_plan import Slab

COPIES_OF_A_CHUNK = 4
"""Chunks that a thread holds: as cut out, shuffled, compressed, and with its checksum."""


class ChunkEncoder:
    """Cuts boxes of a replica into its chunks, as they are stored.

    Parameters
    ----------
    layout
        Of the replica, in chunks, with no filters but shuffle and deflate.
    memory_bytes
        Bound of what all threads hold.
    """

    def __init__(self, layout: ReplicaLayout, element_size_bytes: int, memory_bytes: int) -> None:
        self._chunk_shape = layout.chunk_shape or ()
        self._element = np.dtype(f"V{element_size_bytes}")
        self._filters = layout.filters
        chunk_bytes = math.prod(self._chunk_shape) * element_size_bytes
        fitting = memory_bytes // (COPIES_OF_A_CHUNK * chunk_bytes)
        self._n_threads = max(1, min(len(os.sched_getaffinity(0)), fitting))

    def __enter__(self) -> Self:
        self._pool = ThreadPoolExecutor(self._n_threads, thread_name_prefix="sds-encode")
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def encode(
        self, slab: Slab, elements: NDArray[np.uint8]
    ) -> Iterator[tuple[tuple[int, ...], bytes]]:
        """Yield first index and stored bytes of each chunk of a box, in the order of the box.

        Parameters
        ----------
        slab
            Of whole chunks, those at the ends of the replica cut off there.
        elements
            Of the box, packed.
        """
        n_bytes = math.prod(slab.shape) * self._element.itemsize
        box = elements[:n_bytes].view(self._element).reshape(slab.shape)
        starts = (range(0, n, size) for n, size in zip(slab.shape, self._chunk_shape, strict=True))
        under_way: deque[tuple[tuple[int, ...], Future[bytes]]] = deque()
        for within in itertools.product(*starts):
            part = box[
                tuple(slice(a, a + n) for a, n in zip(within, self._chunk_shape, strict=True))
            ]
            first = tuple(a + b for a, b in zip(slab.start, within, strict=True))
            under_way.append((first, self._pool.submit(self._stored, part)))
            if len(under_way) > self._n_threads:
                first, encoding = under_way.popleft()
                yield first, encoding.result()
        for first, encoding in under_way:
            yield first, encoding.result()

    def _stored(self, part: NDArray[np.void]) -> bytes:
        """Return the bytes of a chunk as HDF5 stores them; zeros behind the end of the replica."""
        chunk = np.zeros(self._chunk_shape, self._element)
        _native.copy_strided(part, chunk[tuple(map(slice, part.shape))])
        content = chunk.reshape(-1).view(np.uint8)
        for step in self._filters:
            if step.code == SHUFFLE:
                content = _shuffled(content, self._element.itemsize)
            else:
                content = np.frombuffer(zlib.compress(content.data, step.options[0]), np.uint8)
        checksum = _native.fletcher32(content.data).to_bytes(4, "little")
        return b"".join((content.data, checksum))


def _shuffled(content: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """Return the first bytes of all elements, then the second ones, and so on."""
    n_elements = len(content) // size
    whole = n_elements * size  # the rest stays where it is
    out = content.copy()
    elements = content[:whole].reshape(n_elements, size)
    _native.permute(elements, (1, 0), out[:whole].reshape(size, n_elements))
    return out
