"""What HDF5 leaves undefined is never replicated: a replica would define it."""

import h5py
import numpy as np
import pytest

from sds.errors import UnsupportedError, VerificationError
from sds.hdf5.dataset import describe_dataset
from sds.home import Home
from sds.organizer import plan_reorganization, plan_sorting, reorganize
from tests.organizer.sources import settle

EXTENT = (64, 8, 6)
NEVER, IF_SET, ALLOC = (
    h5py.h5d.FILL_TIME_NEVER,
    h5py.h5d.FILL_TIME_IFSET,
    h5py.h5d.FILL_TIME_ALLOC,
)
LATE, EARLY, INCREMENTAL = (
    h5py.h5d.ALLOC_TIME_LATE,
    h5py.h5d.ALLOC_TIME_EARLY,
    h5py.h5d.ALLOC_TIME_INCR,
)


def make(path, *, chunks, fill_time, alloc_time, written, dtype="<i4", shape=EXTENT):
    """Make a dataset of which the rows in `written` are written."""
    with h5py.File(path, "w") as file:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        if chunks is not None:
            plist.set_chunk(chunks)
        plist.set_fill_time(fill_time)
        plist.set_alloc_time(alloc_time)
        space = h5py.h5s.create_simple(shape)
        kind = h5py.h5t.py_create(np.dtype(dtype), logical=True)
        made = h5py.Dataset(h5py.h5d.create(file.id, b"d", kind, space, dcpl=plist))
        for row in written:
            made[row] = np.ones(shape[1:], dtype)
    settle(path)
    return path


ALL = range(EXTENT[0])
SOME = range(0, EXTENT[0], 2)


@pytest.mark.parametrize(
    ("storage", "written", "is_undefined"),
    [
        (((1, 8, 6), NEVER, INCREMENTAL), SOME, True),
        (((1, 8, 6), NEVER, INCREMENTAL), (), True),
        (((1, 8, 6), NEVER, INCREMENTAL), ALL, False),
        (((5, 8, 6), NEVER, INCREMENTAL), SOME, False),  # a row of each chunk is written
        (((1, 8, 6), NEVER, EARLY), SOME, False),  # what the file holds there is read
        (((1, 8, 6), IF_SET, INCREMENTAL), SOME, False),
        (((1, 8, 6), ALLOC, INCREMENTAL), SOME, False),
        ((None, NEVER, LATE), (), True),
        ((None, NEVER, LATE), SOME, False),
        ((None, NEVER, EARLY), (), False),
        ((None, IF_SET, LATE), (), False),
    ],
)
def test_undefined_elements_are_known(storage, written, is_undefined, tmp_path):
    chunks, fill_time, alloc_time = storage
    path = make(
        tmp_path / "a.h5",
        chunks=chunks, fill_time=fill_time, alloc_time=alloc_time, written=written,
    )  # fmt: skip
    with h5py.File(path) as file:
        reads = []
        for pattern in (0x11, 0x77):
            out = np.full(EXTENT, pattern, "<i4")
            file["d"].id.read(h5py.h5s.ALL, h5py.h5s.ALL, out)
            reads.append(out)
    assert (reads[0] != reads[1]).any() == is_undefined
    assert describe_dataset(path, "/d").has_undefined_elements == is_undefined


@pytest.mark.parametrize("options", [{}, {"region": "rows"}, {"segments": True}])
def test_undefined_elements_get_no_replica(options, tmp_path):
    path = make(
        tmp_path / "a.h5",
        chunks=(1, 8, 6), fill_time=NEVER, alloc_time=INCREMENTAL, written=SOME,
    )  # fmt: skip
    home = Home(tmp_path / "home")
    if "region" in options:
        from sds.geometry import Box

        options = {"region": Box(start=(0, 0, 0), extent=(1, 8, 6))}
    elif "segments" in options:
        from sds.geometry.segments import SegmentList

        options = {"segments": SegmentList(tile_shape=(4, 8, 6), tiles=(0, 3), lengths=(1, 1))}
    with pytest.raises(
        UnsupportedError, match=r"/d in .* never written.*copy the dataset into one"
    ):
        plan_reorganization(path, "/d", order=(2, 0, 1), home=home, **options)


def test_undefined_rows_are_not_sorted(tmp_path):
    row = np.dtype([("x", "<f8"), ("n", "<i4")])
    path = make(
        tmp_path / "a.h5",
        chunks=(4,), fill_time=NEVER, alloc_time=INCREMENTAL, written=range(8, 64),
        dtype=row, shape=(64,),
    )  # fmt: skip
    with pytest.raises(UnsupportedError, match=r"'x' of /d in .* never written"):
        plan_sorting(path, "/d", key="x", home=Home(tmp_path / "home"))


@pytest.mark.parametrize("chunks", [None, "auto"])
def test_verification_finds_what_the_copy_took_from_its_own_memory(chunks, tmp_path, monkeypatch):
    """The law behind the refusal: let the plan pass, and the comparison fails."""
    path = make(
        tmp_path / "a.h5",
        chunks=(1, 8, 6), fill_time=NEVER, alloc_time=INCREMENTAL, written=SOME,
    )  # fmt: skip
    home = Home(tmp_path / "home")
    monkeypatch.setattr("sds.hdf5.dataset._is_all_stored", lambda *_: True)
    plan = plan_reorganization(path, "/d", order=(1, 2, 0), home=home, chunks=chunks)
    with pytest.raises(VerificationError, match="differs"):
        reorganize(plan, home=home)
