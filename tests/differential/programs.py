"""Files and read programs for hypothesis: small, and shaped to be awkward.

A program is plain data, so that two processes can run the same one (worker.py).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from pathlib import Path

import h5py
import numpy as np
from h5py import h5s
from hypothesis import strategies as st

from sds.geometry import Box, SegmentList, tile_grid

MAX_ELEMENTS = 4000
MAX_POINTS = 60

NUMBERS = ("<i1", "|u1", "<i2", ">i2", "<u2", "<i4", ">i4", "<u4", "<i8", ">u8",
           "<f2", "<f4", ">f4", "<f8", ">f8")  # fmt: skip
OTHERS = (
    "bool",
    "complex64",
    "S7",
    "V5",
    h5py.enum_dtype({"OFF": 0, "ON": 1, "LOST": 9}, basetype="<i2"),
    [("a", "<i4"), ("b", ">f8"), ("c", "S3")],
    [("x", "<f4", (2, 3)), ("in", [("u", "<u2"), ("v", "<i8")])],
    ("<i2", (3,)),
)


@dataclass(frozen=True)
class Storage:
    """How a dataset is stored; chunk None: contiguous."""

    chunk: tuple[int, ...] | None = None
    filters: dict = field(default_factory=dict)
    grows: bool = False  # may be resized


@dataclass(frozen=True)
class Source:
    """A dataset to be made, its values drawn from `seed`."""

    path: str
    extent: tuple[int, ...]
    dtype: object
    storage: Storage
    replicas: tuple[tuple, ...]  # (axis order, further options of plan_reorganization)
    seed: int


@dataclass(frozen=True)
class Selection:
    """A selection in a dataspace, built by one step after the other.

    Steps are ("all",), ("none",), ("points", coordinates) or
    ("slab", operator, start, stride, count, block); offset moves what is selected.
    """

    extent: tuple[int, ...]
    steps: tuple
    offset: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Read:
    """H5Dread: into a buffer of memory.extent, or of the dataset's where memory is None."""

    path: str
    memory_dtype: object
    selection: Selection | None  # None: H5S_ALL
    memory: Selection | None


@dataclass(frozen=True)
class Index:
    """What most programs do: dataset[index], perhaps as another type."""

    path: str
    index: object
    astype: str | None


@dataclass(frozen=True)
class Together:
    """H5Dread_multi."""

    reads: tuple[Read, ...]


@dataclass(frozen=True)
class Write:
    """H5Dwrite of values drawn from `seed`, in the type of the file."""

    path: str
    dtype: object
    selection: Selection
    seed: int


@dataclass(frozen=True)
class Change:
    """What else is done to a file that is open for writing.

    kind
        "resize" to `extent`, "replace" (deleted and made anew, with values drawn from `seed`),
        "attribute", "refresh" or "flush".
    """

    kind: str
    path: str
    source: Source
    extent: tuple[int, ...]
    seed: int


@dataclass(frozen=True)
class Session:
    """The file is opened, things are done with it, and it is closed.

    opened
        "once"; "again", by H5Fopen twice, or "reopened", by H5Freopen, of which the handles take
        turns; "reopened alone", where the first handle is closed at once.
    keeps
        Datasets are opened once and not for each read.
    leaves
        And stay open when the file is closed, until all sessions have ended.
    """

    writable: bool
    opened: str
    keeps: bool
    leaves: bool
    steps: tuple


@dataclass(frozen=True)
class Program:
    """Sessions one after the other, all of them as often as `rounds` says."""

    sources: tuple[Source, ...]
    sessions: tuple[Session, ...]
    rounds: int

    @property
    def steps(self):
        """Return all that is done, in order."""
        return [step for session in self.sessions for step in session.steps] * self.rounds


def is_read(step):
    return not isinstance(step, Write | Change)


def paths_of(step):
    """Return by which paths it reaches datasets."""
    return [read.path for read in step.reads] if isinstance(step, Together) else [step.path]


FILE_NAME = "source.h5"
LINKS = {
    "hard": "/links/hard{path}",
    "soft": "/links/soft{path}",
    "external": "/links/external{path}",  # out of the file, and back into it
    "of the root": "/links/root{path}",
    "external, of the root": "/links/file{path}",
    "soft, over an external one": "/links/beyond{path}",
}


def make_links(file, path):
    """Make the links by which :func:`paths_to` a dataset lead; in loops, some of them."""
    file[LINKS["hard"].format(path=path)] = file[path]
    file[LINKS["soft"].format(path=path)] = h5py.SoftLink(path)
    file[LINKS["external"].format(path=path)] = h5py.ExternalLink(FILE_NAME, path)
    beyond = LINKS["external, of the root"].format(path=LINKS["hard"].format(path=path))
    file[LINKS["soft, over an external one"].format(path=path)] = h5py.SoftLink(beyond)
    links = file["links"]
    if "root" not in links:
        links["root"] = file["/"]
        links["file"] = h5py.ExternalLink(FILE_NAME, "/")


def paths_to(path):
    """Paths of a dataset: mostly its own."""
    links = [link.format(path=path) for link in LINKS.values()]
    return st.integers(0, 3).flatmap(lambda n: st.sampled_from(links) if n == 0 else st.just(path))


def dtype_of(described):
    """Return the NumPy type; tuples and lists come back from hypothesis as they are."""
    return np.dtype(described)


@st.composite
def extents(draw, max_rank=4):
    rank = draw(st.sampled_from([r for r in (1, 2, 3, 3, 2, 4, 0) if r <= max_rank]))
    room = MAX_ELEMENTS
    extent = []
    for axis in range(rank):
        most = max(1, min(room, round(room ** (1 / (rank - axis)) * 2)))
        extent.append(draw(st.integers(1, most)))
        room //= extent[-1]
    if rank and draw(st.integers(0, 40)) == 0:
        extent[draw(st.integers(0, rank - 1))] = 0
    return tuple(extent)


@st.composite
def storages(draw, extent):
    if not extent or 0 in extent or draw(st.booleans()):
        return Storage()
    chunk = tuple(draw(st.integers(1, length)) for length in extent)
    if math.prod(-(-n // c) for n, c in zip(extent, chunk, strict=True)) > 200:
        chunk = extent
    filters = draw(
        st.sampled_from(
            [{}, {}, {"compression": "gzip", "shuffle": True}, {"fletcher32": True},
             {"compression": "lzf"}]
        )
    )  # fmt: skip
    return Storage(chunk, filters, grows=draw(st.booleans()))


@st.composite
def segments(draw, extent):
    """Nearly all tiles of a dataset in any order, since reads of random places are to be held."""
    tile_shape = tuple(draw(st.integers(-(-n // 4), n)) for n in extent)
    numbers = range(math.prod(tile_grid(extent, tile_shape)))
    left_out = draw(st.sets(st.sampled_from(numbers), max_size=min(2, len(numbers) - 1)))
    tiles = [number for number in numbers if number not in left_out]
    draw(st.randoms(use_true_random=False)).shuffle(tiles)
    first = draw(st.integers(0, len(tiles) - 1))
    lengths = (first, len(tiles) - first) if first else (len(tiles),)
    return SegmentList(tile_shape=tile_shape, tiles=tuple(tiles), lengths=lengths)


@st.composite
def replicas(draw, extent):
    """A replica of any kind, contiguous and whole ones first."""
    order = tuple(draw(st.permutations(range(len(extent)))))
    if draw(st.integers(0, 3)) == 3:
        return order, {"segments": draw(segments(extent))}
    options = {}
    held = extent
    if draw(st.integers(0, 2)) == 0:
        start = tuple(draw(st.integers(0, n // 2)) for n in extent)
        left = [n - s for s, n in zip(start, extent, strict=True)]
        held = tuple(draw(st.integers(-(-n // 2), n)) for n in left)
        options["region"] = Box(start=start, extent=held)
    if draw(st.integers(0, 2)) == 0:
        options["chunks"] = tuple(draw(st.integers(-(-held[a] // 6), held[a])) for a in order)
        options["filters"] = draw(st.sampled_from(["none", "gzip:1", "shuffle,gzip:4", "lzf"]))
    return order, options


@st.composite
def sources(draw, path):
    extent = draw(extents())
    replicated = extent and 0 not in extent  # others cannot be reorganized
    return Source(
        path=path,
        extent=extent,
        dtype=draw(st.sampled_from(NUMBERS + OTHERS)),
        storage=draw(storages(extent)),
        replicas=tuple(draw(st.lists(replicas(extent), min_size=1, max_size=2, unique_by=str)))
        if replicated
        else (),
        seed=draw(st.integers(0, 2**32 - 1)),
    )


@st.composite
def axis_slab(draw, length):
    """(start, stride, count, block) within an axis; now and then outside of it."""
    if length == 0:
        return 0, 1, 0, 1
    kind = draw(st.sampled_from(["any", "any", "any", "whole", "one", "one", "none", "outside"]))
    if kind == "whole":
        return 0, 1, 1, length
    if kind == "one":
        return draw(st.integers(0, length - 1)), 1, 1, 1
    if kind == "none" and draw(st.integers(0, 5)) == 0:
        return 0, 1, 0, 1
    if kind == "outside" and draw(st.integers(0, 8)) == 0:
        return draw(st.integers(0, length)), 1, 1, length
    start = draw(st.integers(0, length - 1))
    block = draw(st.integers(1, min(3, length - start)))
    stride = draw(st.integers(block, block + 4))
    most = (length - start - block) // stride + 1
    return start, stride, draw(st.integers(1, most)), block


@st.composite
def slab_step(draw, extent, operator):
    slabs = [draw(axis_slab(length)) for length in extent]
    start, stride, count, block = zip(*slabs, strict=True)
    return ("slab", operator, start, stride, count, block)


@st.composite
def points(draw, extent):
    n = draw(st.integers(1, MAX_POINTS))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    coordinates = np.stack([random.integers(0, length, n) for length in extent], 1)
    if draw(st.booleans()):
        coordinates = np.unique(coordinates, axis=0)
    return ("points", tuple(map(tuple, coordinates.tolist())))


@st.composite
def selections(draw, extent):
    """A selection of a dataset; None is H5S_ALL."""
    kind = draw(
        st.sampled_from(["slab", "slab", "slab", "union", "union", "points", "all", "H5S_ALL"])
    )
    if kind == "H5S_ALL":
        return None
    if not extent:
        return Selection(extent, (draw(st.sampled_from([("all",), ("all",), ("none",)])),))
    if kind == "all" or 0 in extent:
        return Selection(extent, (("all",),))
    if kind == "points":
        return Selection(extent, (draw(points(extent)),))
    steps = [draw(slab_step(extent, "set"))]
    if kind == "union":
        steps += [
            draw(slab_step(extent, operator))
            for operator in draw(
                st.lists(
                    st.sampled_from(["or", "or", "xor", "notb", "and"]), min_size=1, max_size=3
                )
            )
        ]
    offset = None
    if draw(st.integers(0, 15)) == 0:
        offset = tuple(draw(st.integers(-1, 1)) for _ in extent)
    return Selection(extent, tuple(steps), offset)


def axis_indices(start, stride, count, block, length):
    """Return the indices that a slab selects on one axis, as far as they exist."""
    indices = (start + k * stride + i for k in range(count) for i in range(block))
    return [index for index in indices if index < length]


def mask_of(selection):
    """Return which elements are selected, before the offset."""
    mask = np.zeros(selection.extent, bool)
    for step in selection.steps:
        if step[0] == "all":
            mask[...] = True
        elif step[0] == "points":
            mask[tuple(np.array(step[1]).T)] = True
        elif step[0] == "slab":
            _, operator, start, stride, count, block = step
            slab = np.zeros_like(mask)
            slab[np.ix_(*map(axis_indices, start, stride, count, block, selection.extent))] = True
            mask = {"set": slab, "or": mask | slab, "xor": mask ^ slab, "and": mask & slab,
                    "notb": mask & ~slab}[operator]  # fmt: skip
    return mask


def count_of(selection, extent):
    """Return how many elements are read; points count as often as they are named."""
    if selection is None:
        return math.prod(extent)
    if selection.steps[0][0] == "points":
        return len(selection.steps[0][1])
    return int(mask_of(selection).sum())


@st.composite
def memories(draw, n, shape):
    """Room for n elements in memory, in any shape; `shape` is one that the dataset may have."""
    kind = draw(
        st.sampled_from(["packed", "packed", "shape", "padded", "strided", "mask", "points"])
    )
    if kind in ("packed", "shape") or n == 0:
        packed = (n,) if kind == "packed" or shape is None else shape
        return Selection(packed, (("all",),))
    if kind == "strided":
        stride, start = draw(st.integers(1, 3)), draw(st.integers(0, 3))
        return Selection((start + n * stride,), (("slab", "set", (start,), (stride,), (n,), (1,)),))
    if kind == "padded":
        columns = draw(st.sampled_from([k for k in (1, 2, 3, 4, 5, 7) if n % k == 0]))
        width = columns + draw(st.integers(0, 3))
        return Selection(
            (n // columns + 1, width),
            (("slab", "set", (draw(st.integers(0, 1)), width - columns), (1, 1),
              (n // columns, columns), (1, 1)),),
        )  # fmt: skip
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    length = n + draw(st.integers(0, 9))
    if kind == "points" and n <= 500:
        chosen = random.permutation(length)[:n]
        return Selection((length,), (("points", tuple((int(i),) for i in chosen)),))
    chosen = np.sort(random.permutation(length)[:n])
    ends = np.flatnonzero(np.diff(chosen, prepend=-2, append=length + 2) != 1)
    runs = [(int(chosen[a]), int(b - a)) for a, b in itertools.pairwise(ends)]
    if len(runs) > 40:
        return Selection((n,), (("all",),))
    return Selection(
        (length,),
        tuple(
            ("slab", "set" if i == 0 else "or", (start,), (1,), (1,), (length_,))
            for i, (start, length_) in enumerate(runs)
        ),
    )


@st.composite
def memory_dtypes(draw, dtype):
    """The type of the file, or one that HDF5 may or may not convert to."""
    if draw(st.integers(0, 2)) > 0:
        return dtype
    if isinstance(dtype, str) and dtype in NUMBERS:
        return draw(st.sampled_from((*NUMBERS, "S7")))
    if isinstance(dtype, list) and dtype[0][0] == "a":
        return draw(
            st.sampled_from(
                [
                    [("b", "<f4")],
                    [("c", "S3"), ("a", ">i8")],
                    [("a", "<i4"), ("more", "<f8"), ("b", ">f8")],
                    [("other", "<i4")],
                ]
            )
        )
    return draw(st.sampled_from([dtype, "<i4", "<f8"]))


@st.composite
def plain_reads(draw, source):
    selection = draw(selections(source.extent))
    n = count_of(selection, source.extent)
    memory = None
    if selection is not None or draw(st.booleans()):
        shape = source.extent if selection is None or selection.steps[0] == ("all",) else None
        if draw(st.integers(0, 30)) == 0:
            n += 1  # too much or too little room: HDF5 refuses
        memory = draw(memories(n, shape))
    path = draw(paths_to(source.path))
    return Read(path, draw(memory_dtypes(source.dtype)), selection, memory)


@st.composite
def index_reads(draw, source):
    parts = []
    listed = False
    for length in source.extent:
        kind = draw(st.sampled_from(["slice", "slice", "step", "one", "whole", "list", "mask"]))
        if kind in ("list", "mask") and (listed or length == 0):
            kind = "slice"
        low = draw(st.integers(0, max(0, length - 1)))
        high = draw(st.integers(low, length))
        if kind == "one":
            parts.append(draw(st.integers(-1, length)))
        elif kind == "whole":
            parts.append(slice(None))
        elif kind == "step":
            parts.append(slice(low, high, draw(st.integers(1, 5))))
        elif kind == "slice":
            parts.append(slice(low, high))
        else:
            listed = True
            chosen = draw(
                st.lists(st.integers(0, length - 1), min_size=1, max_size=6, unique=True).map(
                    sorted
                )
            )
            parts.append(chosen if kind == "list" else np.isin(np.arange(length), chosen))
    astype = draw(st.sampled_from([None, None, None, "f4", ">i2", "f8"]))
    return Index(draw(paths_to(source.path)), tuple(parts), astype)


@st.composite
def writes(draw, source):
    """What changes a dataset, or its file."""
    path = draw(paths_to(source.path))
    seed = draw(st.integers(0, 2**32 - 1))
    kind = draw(
        st.sampled_from(["slab", "slab", "slab", "all", "resize", "replace", "attribute",
                         "refresh", "flush"])
    )  # fmt: skip
    if kind == "slab" and source.extent:
        selection = Selection(source.extent, (draw(slab_step(source.extent, "set")),))
        return Write(path, source.dtype, selection, seed)
    if kind in ("slab", "all"):
        return Write(path, source.dtype, Selection(source.extent, (("all",),)), seed)
    extent = tuple(draw(st.integers(0, 2 * n)) for n in source.extent)
    return Change(kind, source.path if kind == "replace" else path, source, extent, seed)


@st.composite
def sessions(draw, steps, *, writable=False):
    """A session of these steps."""
    leaves = draw(st.integers(0, 9)) == 0
    return Session(
        writable=writable,
        opened=draw(st.sampled_from(["once", "once", "again", "reopened", "reopened alone"])),
        keeps=leaves or draw(st.booleans()),
        leaves=leaves,
        steps=tuple(steps),
    )


@st.composite
def programs(draw, reads=40):
    """A file of one to three datasets and a program of about so many reads.

    Half of them write as well, in further sessions, and read again.
    """
    made = tuple(draw(sources(f"/{name}")) for name in draw(st.sampled_from(["d", "de", "def"])))
    one = st.sampled_from(made).flatmap(lambda s: st.one_of(plain_reads(s), index_reads(s)))
    # HDF5 itself may crash where one call reads a chunked dataset twice, by whatever path.
    together = st.lists(
        st.sampled_from(made).flatmap(plain_reads),
        min_size=2, max_size=3, unique_by=lambda read: Path(read.path).name,
    ).map(lambda several: Together(tuple(several)))  # fmt: skip
    step = st.one_of([one, one, one, one, one, together] if len(made) > 1 else [one])
    listed = draw(st.lists(step, min_size=reads // 2, max_size=reads))
    if draw(st.booleans()):
        return Program(made, (draw(sessions(listed)),), draw(st.sampled_from([1, 2, 4, 12])))
    written = [draw(sessions(listed[: len(listed) // 2]))]
    rest = listed[len(listed) // 2 :]
    for _ in range(draw(st.integers(1, 3))):
        write = st.sampled_from(made).flatmap(writes)
        steps = draw(st.lists(st.one_of(write, st.sampled_from(rest)), min_size=2, max_size=8))
        written.append(draw(sessions(steps, writable=True)))
        written.append(draw(sessions(rest)))
    return Program(made, tuple(written), draw(st.sampled_from([1, 2])))


def make_file(path, sources_):
    """Write the file that a program reads."""
    with h5py.File(path, "w") as file:
        for source in sources_:
            make_dataset(file, source, source.seed)
            make_links(file, source.path)


def make_dataset(file, source, seed):
    """Make a source's dataset, its values drawn from `seed`."""
    made = file.create_dataset(
        source.path,
        shape=source.extent,
        dtype=dtype_of(source.dtype),
        chunks=source.storage.chunk,
        maxshape=(None,) * len(source.extent) if source.storage.grows else None,
        **source.storage.filters,
    )
    write_values(made, values_of(dtype_of(source.dtype), source.extent, seed))


def write_values(dataset, values, memory=h5s.ALL, space=h5s.ALL):
    """Write whole elements, also where NumPy would take an array type apart."""
    as_bytes = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    dataset.id.write(memory, space, as_bytes, dataset.id.get_type())


def values_of(dtype, extent, seed):
    """Return an array of any bytes that mean something to the type."""
    random = np.random.default_rng(seed)
    n = math.prod(extent)
    members = h5py.check_enum_dtype(dtype)
    if members is not None:
        return random.choice(list(members.values()), extent).astype(dtype.base)
    if dtype.kind == "b":
        return random.integers(0, 2, extent).astype(bool)
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return values_of(base, (*extent, *shape), seed)
    return np.frombuffer(random.bytes(n * dtype.itemsize), dtype).reshape(extent)
