"""Chunks are stored as HDF5's own filters store them, whichever thread applies them."""

import math

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sds.geometry import Box
from sds.geometry.replica_layout import Filter, ReplicaLayout
from sds.hdf5.codecs import DEFLATE, SHUFFLE
from sds.organizer.copy.chunk_encoder import ChunkEncoder
from sds.organizer.plans.reorganization_plan import Slab

GZIP = Filter(code=DEFLATE, name="gzip", options=(4,))
SHUFFLED = Filter(code=SHUFFLE, name="shuffle", options=())
FILTERS = [(), (GZIP,), (SHUFFLED,), (SHUFFLED, GZIP), (GZIP, SHUFFLED)]
TYPES = ["u1", "<i2", "<f4", "<f8", np.dtype([("a", "u1"), ("b", "<f8"), ("c", "S3")])]


def layout_of(extent, chunk, filters):
    order = tuple(range(len(extent)))
    return ReplicaLayout(
        order=order, chunk_shape=chunk, filters=filters, region=Box.whole(extent), segments=None
    )


def dataset_for(data, chunk, filters):
    """Return a file in memory and a dataset in it for an array, in filtered chunks."""
    file = h5py.File("chunks", "w", driver="core", backing_store=False)
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_chunk(chunk)
    for step in filters:
        properties.set_filter(step.code, h5py.h5z.FLAG_OPTIONAL, step.options)
    properties.set_fletcher32()
    made = h5py.h5d.create(
        file.id, b"x", h5py.h5t.py_create(data.dtype), h5py.h5s.create_simple(data.shape),
        dcpl=properties,
    )  # fmt: skip
    return file, made


@st.composite
def arrays(draw):
    chunk = draw(st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple))
    extent = tuple(draw(st.integers(1, 3 * n)) for n in chunk)
    dtype = np.dtype(draw(st.sampled_from(TYPES)))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    content = rng.integers(0, draw(st.sampled_from([2, 256])), math.prod(extent) * dtype.itemsize)
    data = np.frombuffer(content.astype(np.uint8).tobytes(), dtype).reshape(extent)
    return data, tuple(min(a, b) for a, b in zip(chunk, extent, strict=True))


@pytest.mark.parametrize("filters", FILTERS, ids=lambda steps: ",".join(s.name for s in steps))
@given(drawn=arrays(), n_chunks_held=st.integers(1, 12))
def test_chunks_are_those_that_hdf5_stores(filters, drawn, n_chunks_held):
    data, chunk = drawn
    file, made = dataset_for(data, chunk, filters)
    with file:
        h5py.Dataset(made).id.write(h5py.h5s.ALL, h5py.h5s.ALL, np.ascontiguousarray(data))
        file.flush()
        elements = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        memory_bytes = n_chunks_held * math.prod(chunk) * data.dtype.itemsize
        layout = layout_of(data.shape, chunk, filters)
        slab = Slab(start=(0,) * data.ndim, shape=data.shape)
        with ChunkEncoder(layout, data.dtype.itemsize, memory_bytes) as encoder:
            found = dict(encoder.encode(slab, elements))
        assert len(found) == made.get_num_chunks()
        for first, stored in found.items():
            _, expected = made.read_direct_chunk(first)
            is_whole = all(a + n <= m for a, n, m in zip(first, chunk, data.shape, strict=True))
            if is_whole:
                assert stored == expected
        # Also those that reach beyond the array are read back right.
        for first, stored in found.items():
            made.write_direct_chunk(first, stored)
        file.flush()
        back = np.empty_like(data)
        made.read(h5py.h5s.ALL, h5py.h5s.ALL, back)
        assert back.tobytes() == data.tobytes()


def test_a_box_of_some_chunks_is_numbered_from_the_replica_s_beginning():
    data = np.arange(6 * 8, dtype="<i4").reshape(6, 8)
    layout = layout_of((20, 8), (3, 4), ())
    slab = Slab(start=(6, 0), shape=(6, 8))
    with ChunkEncoder(layout, 4, 1 << 20) as encoder:
        found = list(encoder.encode(slab, data.reshape(-1).view(np.uint8)))
    assert [first for first, _ in found] == [(6, 0), (6, 4), (9, 0), (9, 4)]
    assert found[1][1][:-4] == data[:3, 4:].tobytes()
