"""Source files of all kinds, and their element types, for the tests of the organizer."""

import math
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
from hypothesis import strategies as st

SCALARS = [
    np.dtype(name)
    for name in ("i1", "u1", "<i2", ">i2", "<u4", ">i4", "<i8", ">u8", "<f2", "<f4", ">f4", ">f8")
]
SPECIAL = [
    np.dtype("?"),
    np.dtype("<c8"),
    np.dtype(">c16"),
    np.dtype("S3"),
    np.dtype("S16"),
    np.dtype("V5"),
    np.dtype([("x", "<f8"), ("n", ">i2")]),
    np.dtype({"names": ["a", "b"], "formats": ["i1", "<f8"], "offsets": [0, 8], "itemsize": 24}),
    np.dtype([("inner", [("k", "u1"), ("v", "<f4", (2,))]), ("tag", "S5")]),
    np.dtype(("<i2", (3,))),
    h5py.enum_dtype({"off": 0, "on": 1}, basetype="i1"),
    h5py.string_dtype("utf-8", 7),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A dataset to make and an order to give it."""

    dtype: np.dtype
    shape: tuple[int, ...]
    order: tuple[int, ...]
    chunks: tuple[int, ...] | None
    filters: dict[str, object]
    compact: bool
    slab_kib: int
    seed: int

    @property
    def element_size_bytes(self):
        return self.dtype.itemsize


@st.composite
def cases(draw):
    rank = draw(st.integers(1, 5))
    largest = {1: 400, 2: 40, 3: 14, 4: 7, 5: 5}[rank]
    shape = tuple(draw(st.lists(st.integers(1, largest), min_size=rank, max_size=rank)))
    chunked = draw(st.booleans())
    chunks = tuple(draw(st.integers(1, n)) for n in shape) if chunked else None
    filters = {}
    if chunked:
        filters = draw(
            st.sampled_from(
                [
                    {},
                    {"compression": "gzip"},
                    {"shuffle": True, "compression": "lzf"},
                    {"fletcher32": True},
                ]
            )
        )
    return Case(
        dtype=draw(st.sampled_from(SCALARS + SPECIAL)),
        shape=shape,
        order=tuple(draw(st.permutations(range(rank)))),
        chunks=chunks,
        filters=filters,
        compact=not chunked and draw(st.booleans()),
        slab_kib=draw(st.sampled_from([1, 4, 64])),
        seed=draw(st.integers(0, 2**16)),
    )


def random_bytes(shape, element_size_bytes, seed):
    """Return elements of nothing but random bytes, as void."""
    size = math.prod(shape) * element_size_bytes
    content = np.random.default_rng(seed).integers(0, 256, size, np.uint8)
    return content.view(f"V{element_size_bytes}").reshape(shape)


def make_source(path, case, *, path_in_file="/group/d"):
    """Write a dataset of random bytes; return them, as void elements."""
    with h5py.File(path, "w") as handle:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        created = handle.require_group(str(Path(path_in_file).parent)).create_dataset(
            Path(path_in_file).name,
            shape=case.shape,
            dtype=case.dtype,
            chunks=case.chunks,
            dcpl=properties if not case.compact else compact(properties),
            **case.filters,
        )
        file_type = created.id.get_type()
        elements = random_bytes(case.shape, file_type.get_size(), case.seed)
        if math.prod(case.shape) > 1 or case.seed % 2:
            created.id.write(h5py.h5s.ALL, h5py.h5s.ALL, elements, mtype=file_type)
        else:
            elements = stored_bytes(created)
    settle(path)
    return elements


def compact(properties):
    properties.set_layout(h5py.h5d.COMPACT)
    return properties


def stored_bytes(dataset):
    """Return the elements of a dataset as HDF5 has them, as void."""
    file_type = dataset.id.get_type()
    elements = np.empty(dataset.shape, f"V{file_type.get_size()}")
    dataset.id.read(h5py.h5s.ALL, h5py.h5s.ALL, elements, mtype=file_type)
    return elements


def gathered(elements, segments, order):
    """Return what a replica of segments holds of an array, tile by tile."""
    grid = [-(-n // size) for n, size in zip(elements.shape, segments.tile_shape, strict=True)]
    tiles = np.zeros((len(segments.tiles), *segments.tile_shape), elements.dtype)
    for tile, number in zip(tiles, segments.tiles, strict=True):
        index = np.unravel_index(number, grid)
        part = elements[
            tuple(
                slice(i * size, (i + 1) * size)
                for i, size in zip(index, segments.tile_shape, strict=True)
            )
        ]
        tile[tuple(slice(n) for n in part.shape)] = part
    return tiles.transpose(0, *(axis + 1 for axis in order))


def memory_of_build(source, home, asked):
    """Return by how many private bytes a build of /cube grows a process, and its plan's bound.

    asked: what is asked of the plan, as Python writes arguments.
    """
    program = f"""
import h5py, numpy, threading
from pathlib import Path
from sds.geometry import SegmentList
from sds.home import Home
from sds.organizer import plan_reorganization, reorganize
import sds.organizer.reorganizers.segmenter, sds.organizer.reorganizers.transposer
home = Home(Path({str(home.root)!r}))
plan = plan_reorganization({str(source)!r}, "/cube", home=home, {asked.strip()})
def anonymous():
    for line in open("/proc/self/status"):
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
before = anonymous()
peak = []
reorganize(plan, home=home, progress=lambda *_: peak.append(anonymous()))
print(max(peak) - before, plan.memory_bytes)
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    grown_bytes, bound_bytes = map(int, ran.stdout.split())
    return grown_bytes, bound_bytes


def settle(path):
    """Make a file look old enough for its identity to be trusted at once."""
    then = Path(path).stat().st_mtime_ns - 10**10
    os.utime(path, ns=(then, then))


def make_cube(path, shape=(6, 5, 4), dtype="<f4", **options):
    """Write a numbered array to /cube; return it."""
    elements = np.arange(math.prod(shape)).reshape(shape).astype(dtype)
    with h5py.File(path, "w") as handle:
        handle.create_dataset("cube", data=elements, **options)
    settle(path)
    return elements
