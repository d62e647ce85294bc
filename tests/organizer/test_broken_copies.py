"""Verification finds a copier that is broken, whatever organizer it belongs to.

Each defect takes the place of one function of the copy; nothing of the comparison is touched. What
it writes has right checksums: only the comparison with the source can find it.
"""

import math

import h5py
import numpy as np
import pytest

from sds.errors import ConfigurationError, VerificationError
from sds.geometry import SegmentList
from sds.geometry.least_memory import FIXED_BYTES
from sds.home import Home
from sds.organizer import SegmentPlan, plan_reorganization, plan_sorting, reorganize
from sds.organizer.copy import slab_steps
from sds.organizer.copy.source_reader import SourceReader
from sds.organizer.copy.targets import ChunkedTarget, ContiguousTarget
from sds.organizer.plans.reorganization_plan import Slab
from sds.organizer.reorganizers import sorted_runs
from tests.organizer.sources import settle

EXTENT = (24, 16, 16)
TABLE_ROWS = 20000


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


def in_several_steps(make_plan, count):
    """Return a plan with the least memory that is allowed, which takes several steps."""
    for room_bytes in 4096 * 2 ** np.arange(20):
        try:
            plan = make_plan(FIXED_BYTES + int(room_bytes))
        except ConfigurationError:
            continue
        assert count(plan) > 2
        return plan
    raise AssertionError


@pytest.fixture(params=["contiguous", "chunked", "of chunks", "segments"])
def plan(request, tmp_path, home):
    """Plan a copy of several steps, for each way in which slabs are read and written."""
    source = tmp_path / "cube.h5"
    elements = np.random.default_rng(1).permutation(math.prod(EXTENT)).reshape(EXTENT)
    with h5py.File(source, "w") as file:
        chunks = (4, 8, 8) if request.param == "of chunks" else None
        filters = {"compression": "gzip"} if chunks else {}
        file.create_dataset("d", data=elements.astype("<i4"), chunks=chunks, **filters)
    settle(source)
    options = {
        "chunked": {"chunks": (8, 8, 8)},
        "segments": {
            "segments": SegmentList(tile_shape=(4, 8, 16), tiles=tuple(range(12)), lengths=(12,))
        },
    }.get(request.param, {})
    return in_several_steps(
        lambda memory_bytes: plan_reorganization(
            source, "/d", order=(1, 2, 0), home=home, memory_bytes=memory_bytes, **options
        ),
        lambda plan: len(plan.steps()) if isinstance(plan, SegmentPlan) else plan.n_slabs,
    )


def calls(monkeypatch, owner, name, broken):
    """Have a function or method replaced by `broken(original, number of the call, *arguments)`."""
    original = getattr(owner, name)
    n_calls = 0

    def replaced(*arguments, **options):
        nonlocal n_calls
        n_calls += 1
        return broken(original, n_calls, *arguments, **options)

    monkeypatch.setattr(owner, name, replaced)
    return lambda: n_calls


def skip_a_read(original, n, *arguments):
    if n != 2:
        original(*arguments)


def repeat_a_read(original, n, reader, slab, out):
    kept = repeat_a_read.before if n == 2 else slab
    repeat_a_read.before = slab
    same_shape = isinstance(kept, Slab) and isinstance(slab, Slab) and kept.shape == slab.shape
    original(reader, kept if same_shape or not isinstance(slab, Slab) else slab, out)


def flip_a_bit_read(original, n, reader, slab, out):
    original(reader, slab, out)
    if n == 2:
        out[3] ^= 4


def shift_what_was_read(original, n, reader, slab, out):
    original(reader, slab, out)
    if n == 1:
        out[4:64] = out[:60].copy()


def skip_a_write(original, n, *arguments):
    if n != 2:
        original(*arguments)


def write_twice(original, n, target, slab, elements):
    """Write the elements of one slab to the place of the next, too."""
    if n == 2 and write_twice.before[0].shape == slab.shape:
        elements = write_twice.before[1]
    write_twice.before = slab, elements.copy()
    original(target, slab, elements)


def swap_two_writes(original, n, target, slab, elements):
    if n == 1:
        swap_two_writes.held = slab, elements.copy()
        return
    if n == 2:
        other, others = swap_two_writes.held
        if other.shape == slab.shape:
            original(target, slab, others)
            original(target, other, elements)
            return
        original(target, other, others[::-1].copy())
    original(target, slab, elements)


def write_zeros_at_the_end(original, n, target, slab, elements):
    if n == 2:
        elements = elements.copy()
        elements[-16:] = 0
    original(target, slab, elements)


def turn_what_is_written(original, n, target, slab, elements):
    """Write the elements of a slab in the reverse order."""
    if n == 1:
        elements = elements.view("<i4")[::-1].copy().view(np.uint8)
    original(target, slab, elements)


READS = [skip_a_read, repeat_a_read, flip_a_bit_read, shift_what_was_read]
WRITES = [
    skip_a_write, write_twice, swap_two_writes, write_zeros_at_the_end, turn_what_is_written,
]  # fmt: skip


def refused(plan, home):
    with pytest.raises(VerificationError, match=r"differs|is not empty"):
        reorganize(plan, home=home)
    assert not list(home.replicas.rglob("*.h5"))


@pytest.mark.parametrize("defect", READS, ids=lambda defect: defect.__name__)
def test_slabs_that_were_not_read_right_are_found(defect, plan, home, monkeypatch):
    name = "read_all" if plan.organizer == "segmenter" else "read"
    n_calls = calls(monkeypatch, SourceReader, name, defect)
    refused(plan, home)
    assert n_calls() > 2


@pytest.mark.parametrize("defect", WRITES, ids=lambda defect: defect.__name__)
def test_slabs_that_were_not_written_right_are_found(defect, plan, home, monkeypatch):
    target = ContiguousTarget if plan.layout.chunk_shape is None else ChunkedTarget
    n_calls = calls(monkeypatch, target, "write", defect)
    refused(plan, home)
    assert n_calls() > 2


# Tiles are permuted by their strides, not by a function.
@pytest.mark.parametrize("plan", ["contiguous", "chunked", "of chunks"], indirect=True)
def test_a_wrong_permutation_is_found(plan, home, monkeypatch):
    def with_an_axis_reversed(original, _, *arguments):
        slab, order, _, _, out = arguments
        original(*arguments)
        turned = out[: slab.n_elements * 4].view("<i4").reshape(slab.permuted(order).shape)
        turned[...] = turned[:, :, ::-1].copy()

    calls(monkeypatch, slab_steps, "permute_slab", with_an_axis_reversed)
    refused(plan, home)


@pytest.fixture(params=["one run", "merged"])
def sorting(request, tmp_path, home):
    """Plan a sort of a table in one run, or in runs that are merged."""
    source = tmp_path / "table.h5"
    rng = np.random.default_rng(2)
    with h5py.File(source, "w") as file:
        file["t/key"] = rng.permutation(TABLE_ROWS)
        file["t/x"] = rng.random(TABLE_ROWS)
        file["t/y"] = rng.random(TABLE_ROWS)
    settle(source)
    if request.param == "one run":
        return plan_sorting(source, "t", key="key", home=home)
    return in_several_steps(
        lambda memory_bytes: plan_sorting(
            source, "t", key="key", home=home, memory_bytes=memory_bytes
        ),
        lambda plan: plan.n_runs,
    )


def of_column(name, change):
    """Return a defect that changes what is written of a column, once."""

    def defect(original, output, column, first_row, elements):
        if column == name and not defect.done:
            defect.done = True
            elements = elements.copy()
            change(elements)
        original(output, column, first_row, elements)

    defect.done = False
    return defect


def swap_neighbours(elements):
    elements[[100, 101]] = elements[[101, 100]]


def repeat_a_row(elements):
    elements[101] = elements[100]


def flip_a_bit(elements):
    elements[:100].view(np.uint8)[5] ^= 1


def shift_rows(elements):
    elements[1:] = elements[:-1].copy()


def turn_rows(elements):
    elements[...] = elements[::-1].copy()


@pytest.mark.parametrize(
    "change", [swap_neighbours, repeat_a_row, flip_a_bit, shift_rows, turn_rows],
    ids=lambda change: change.__name__,
)  # fmt: skip
@pytest.mark.parametrize("column", ["key", "x", "row_numbers"])
def test_columns_that_were_not_written_right_are_found(column, change, sorting, home, monkeypatch):
    defect = of_column(sorted_runs.ROW_NUMBERS if column == "row_numbers" else column, change)
    write = sorted_runs.SortedOutput.write
    monkeypatch.setattr(
        sorted_runs.SortedOutput, "write", lambda *arguments: defect(write, *arguments)
    )
    with pytest.raises(VerificationError):
        reorganize(sorting, home=home)
    assert defect.done
    assert not list(home.replicas.rglob("*.h5"))


def test_two_columns_in_each_others_place_are_found(sorting, home, monkeypatch):
    write = sorted_runs.SortedOutput.write
    other = {"x": "y", "y": "x"}
    monkeypatch.setattr(
        sorted_runs.SortedOutput,
        "write",
        lambda output, name, *rest: write(output, other.get(name, name), *rest),
    )
    with pytest.raises(VerificationError, match="does not hold the elements"):
        reorganize(sorting, home=home)


def test_a_run_that_is_read_twice_is_found(sorting, home, monkeypatch):
    read = sorted_runs.RunReader.read
    if sorting.n_runs == 1:
        # The first half of the only run, twice.
        def broken(reader, index):
            run = read(reader, index)
            place = run.place.copy()
            place[: len(place) // 2] = place[len(place) // 2 : len(place) // 2 * 2]
            return sorted_runs.SortedRun(
                keys=run.keys, rows=run.rows, place=place, columns=run.columns
            )
    else:

        def broken(reader, index):
            return read(reader, 0 if index == 1 else index)

    monkeypatch.setattr(sorted_runs.RunReader, "read", broken)
    with pytest.raises(VerificationError):
        reorganize(sorting, home=home)


def test_sound_copies_pass(plan, sorting, home):
    reorganize(plan, home=home)
    reorganize(sorting, home=home)
    assert len(list(home.replicas.rglob("*.h5"))) == 2
