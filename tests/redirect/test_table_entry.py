"""What reads of a table's dataset are predicted to cost, by the core and by the models' Python."""

import itertools
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sds import _native
from sds.engine import Cache, FileState, builtin_parameters, plan_selection
from sds.errors import SdsValueError, SelectionError, TruncatedFileError
from sds.geometry import (
    LOCAL_DISK_RAID,
    LOCAL_DISK_STRIPES,
    Box,
    ContiguousLayout,
    Hyperslab,
    RaidLayout,
    SegmentList,
    StripeLayout,
    block_features,
)
from sds.geometry.segments import tile_grid
from sds.hdf5.identity import FileIdentity
from sds.redirect.tables import RedirectTable, TableCandidate, TableDataset, TableModel
from tests.strategies import axis_slabs

IDENTITY = FileIdentity(inode=7, size_bytes=1 << 40, mtime_ns=1, ctime_ns=1)
COSTS = st.sampled_from([0.0, 1e-9, 1e-6, 3e-5, 1e-3])


@st.composite
def models(draw):
    kind, gap, coefficients, floor_s = _native.builtin_model()
    kind = draw(st.sampled_from([kind, 3, 4]))
    drawn = draw(st.lists(COSTS, min_size=4, max_size=4))
    n_terms = {3: 3, 4: 4}.get(kind, len(coefficients))
    gap = draw(st.integers(0, 2))
    return TableModel(
        kind=kind, gap=gap, calibrated=True, coefficients=tuple(drawn[:n_terms]), floor_s=floor_s
    )


@st.composite
def storages(draw):
    return {
        "stripes": StripeLayout(
            stripe_size_bytes=draw(st.sampled_from([4096, 65536])),
            stripe_count=draw(st.integers(1, 4)),
        ),
        "raid": RaidLayout(
            unit_bytes=512, data_disks=draw(st.integers(1, 4)), min_request_bytes=4096
        ),
        "model": draw(models()),
    }


@st.composite
def segment_lists(draw, extent):
    tile = tuple(draw(st.sampled_from([n, -(-n // 2), max(1, n // 3)])) for n in extent)
    tiles = set(range(math.prod(tile_grid(extent, tile))))
    tiles -= draw(st.sets(st.sampled_from(sorted(tiles)), max_size=min(4, len(tiles) - 1)))
    return SegmentList(tile_shape=tile, tiles=tuple(tiles), lengths=(len(tiles),))


@st.composite
def entries(draw):
    """A dataset with contiguous candidates, of all of it and of parts, and a selection of it."""
    rank = draw(st.integers(1, 4))
    extent = tuple(draw(st.integers(1, 40)) for _ in range(rank))
    axes = [draw(axis_slabs(length)) for length in extent]
    start, stride, count, block = (tuple(values) for values in zip(*axes, strict=True))
    slab = Hyperslab(start=start, stride=stride, count=count, block=block)
    candidates = []
    for number in range(draw(st.integers(1, 3))):
        low = tuple(draw(st.integers(0, length - 1)) for length in extent)
        part = Box(start=low, extent=tuple(n - first for n, first in zip(extent, low, strict=True)))
        segments = draw(st.none() | st.none() | segment_lists(extent))
        if segments is not None:
            part = segments.around(extent)
        candidates.append(
            TableCandidate(
                replica_id=number,
                path=Path(f"/replica/{number}"),
                identity=IDENTITY,
                data_offset_bytes=2048,
                metadata_crc32c=0,
                order=tuple(draw(st.permutations(range(rank)))),
                shadow_permille=draw(st.sampled_from([1000, 1000, 500])),
                region=part if segments else draw(st.sampled_from([None, part])),
                segments=segments,
                **draw(storages()),
            )
        )
    dataset = TableDataset(
        path="/x",
        extent=extent,
        element_size_bytes=draw(st.sampled_from([1, 8, 4096])),
        type_crc32c=0,
        type_class=1,
        data_offset_bytes=1000,
        candidates=tuple(candidates),
        **draw(storages()),
    )
    return dataset, slab


def entry_of(*datasets):
    table = RedirectTable(
        source_path=Path("/source"), source_identity=IDENTITY, datasets=tuple(datasets)
    )
    return _native.TableEntry(table.to_bytes())


def seconds(model, features):
    return _native.predict(
        model.kind,
        model.gap,
        model.coefficients,
        model.floor_s,
        features.native(),
        1 / max(1, features.osts_touched),
    )


def box_seconds(candidate, extent, slab, size, offset):
    layout = ContiguousLayout(
        element_size_bytes=size, data_offset_bytes=offset, order=candidate.order
    )
    features = block_features(extent, slab, layout, candidate.stripes, candidate.raid)
    return seconds(candidate.model, features)


def parts_of_axis(start, stride, count, block, size):
    """Return (tile, start in it, stride, count, block) of what is regular in each tile."""
    if count == 1 or stride == block:
        stride, count, block = 1, count * block, 1
    parts = []
    for begin in range(start, start + count * stride, stride):
        at = begin
        while at < begin + block:
            tile = at // size
            end = min(begin + block, (tile + 1) * size)
            is_whole = end - at == block
            last = parts[-1] if parts else None
            if is_whole and last and last[0] == tile and last[4] == block:
                parts[-1] = (*last[:3], last[3] + 1, block)
            else:
                parts.append((tile, at - tile * size, stride, 1, end - at))
            at = end
    return parts


def tiles_seconds(candidate, slab, size, extent):
    segments = candidate.segments
    axes = [
        parts_of_axis(*axis, n) for axis, n in zip(slab.axes(), segments.tile_shape, strict=True)
    ]
    pieces = list(itertools.product(*axes))
    offsets = [0] * len(pieces)
    if len(pieces) > 8:
        longest = tuple(max(axis, key=lambda part: part[3] * part[4]) for axis in axes)
        times, pieces, offsets = len(pieces), [longest], [2048]
    else:
        times = 1
        grid = tile_grid(extent, segments.tile_shape)
        for i, piece in enumerate(pieces):
            number = 0
            for part, n in zip(piece, grid, strict=True):
                number = number * n + part[0]
            place = segments.tiles.index(number)
            offsets[i] = 2048 + place * segments.tile_elements * size
    costs = []
    for piece, offset in zip(pieces, offsets, strict=True):
        _, start, stride, count, block = (tuple(values) for values in zip(*piece, strict=True))
        part = Hyperslab(start=start, stride=stride, count=count, block=block)
        costs.append(piece_seconds(candidate, part, size, offset))
    # What any read takes is paid once: of these kinds of models, the first coefficient.
    assert candidate.model.kind in {0, 3, 4}
    start_s = max(0.0, candidate.model.coefficients[0])
    return max([*costs, times * sum(costs) - (times * len(costs) - 1) * start_s])


def piece_seconds(candidate, part, size, offset):
    """A piece in its runs, or all bytes around them at once: what is faster."""
    tile = candidate.segments.tile_shape
    stored = part.permuted(candidate.order)
    lengths = [tile[axis] for axis in candidate.order]
    first = last = 0
    for (start, stride, count, block), n in zip(stored.axes(), lengths, strict=True):
        first = first * n + start
        last = last * n + start + (count - 1) * stride + block - 1
    in_runs = box_seconds(candidate, tile, part, size, offset)
    axes = (stored.start, stored.stride, stored.count, stored.block)
    if not _native.runs(tuple(lengths), size, offset, *axes)[2]:
        return in_runs  # one run, of which there is nothing around
    around = replace(candidate, order=(0,))
    all_of_it = Hyperslab.all((last - first + 1,))
    return min(
        in_runs,
        box_seconds(around, all_of_it.shape, all_of_it, size, offset + first * size),
    )


def permuting_s(candidate, slab, size):
    """One more copy of all bytes, and a quarter of a nanosecond for what moves as one."""
    shape = slab.shape
    axes = [axis for axis in candidate.order if shape[axis] > 1]
    if axes == sorted(axes):
        return 0.0
    together = 1
    for axis, expected in zip(reversed(axes), sorted(axes, reverse=True), strict=True):
        if axis != expected:
            break
        together *= shape[axis]
    copy_s = builtin_parameters().copy_s_per_byte
    return slab.n_elements * (size * copy_s + 0.25e-9 / together)


def seconds_by_python(dataset, slab):
    """What is compared of each candidate; negative where it cannot serve."""
    size = dataset.element_size_bytes
    found = []
    for candidate in dataset.candidates:
        if candidate.shadow_permille < 1000 or not candidate.holds(slab, dataset.extent):
            found.append(-1.0)
            continue
        if candidate.segments is not None:
            predicted_s = tiles_seconds(candidate, slab, size, dataset.extent)
        else:
            box = candidate.region_in(dataset.extent)
            predicted_s = box_seconds(candidate, box.extent, box.relative(slab), size, 2048)
        found.append(predicted_s + permuting_s(candidate, slab, size))
    return found


@given(entries())
def test_the_core_predicts_and_chooses_as_the_models_say(drawn):
    dataset, slab = drawn
    assume(slab.n_elements > 0)
    size = dataset.element_size_bytes
    layout = ContiguousLayout(
        element_size_bytes=size, data_offset_bytes=dataset.data_offset_bytes, order=None
    )
    original = block_features(dataset.extent, slab, layout, dataset.stripes, dataset.raid)
    entry, axes = entry_of(dataset), (slab.start, slab.stride, slab.count, slab.block)
    by_hdf5_s, by_engine_s, *candidates = entry.seconds(*axes)
    assert by_hdf5_s == pytest.approx(seconds(dataset.model, original), rel=1e-9)
    assert candidates == pytest.approx(seconds_by_python(dataset, slab), rel=1e-9)
    chosen, n_uses = entry.choose(*axes, None, None)
    assert n_uses == 64  # nothing is probed
    serving = [(s, i) for i, s in enumerate(candidates) if s >= 0]
    least_s = min(serving, default=(math.inf, 0))[0]
    if original.runs <= 1 or least_s >= by_hdf5_s:
        assert chosen is None
    elif least_s < min(by_hdf5_s, by_engine_s):
        assert candidates[chosen] == least_s
    else:  # the engine reads the original where it is faster than HDF5
        assert chosen is None or candidates[chosen] == least_s


def requests_of_hdf5_s(runs, costs):
    """Seconds of runs far apart that HDF5 reads one by one through its buffer."""
    n, run_bytes = runs
    byte_s = max(costs.buffered_s_per_byte, costs.reads.cud_s_per_byte)
    each = costs.reads.startup_s + costs.call_s + 0.3e-6 + 11e-9
    return n * (each + max(run_bytes, 64 << 10) * byte_s)


def planned_cold_s(extent, slab, size, offset, order=None):
    layout = ContiguousLayout(element_size_bytes=size, data_offset_bytes=offset, order=order)
    state = FileState(cache=Cache.COLD, may_read_directly=False)
    return 3e-6 + plan_selection(extent, slab, layout, state=state).predicted_s


def uncalibrated(extent, size, order):
    """A contiguous dataset with one replica, both under the built-in model."""
    kind, gap, coefficients, floor_s = _native.builtin_model()
    model = TableModel(
        kind=kind, gap=gap, calibrated=False, coefficients=tuple(coefficients), floor_s=floor_s
    )
    disks = {"stripes": LOCAL_DISK_STRIPES, "raid": LOCAL_DISK_RAID, "model": model}
    candidate = TableCandidate(
        replica_id=1, path=Path("/replica/1"), identity=IDENTITY, data_offset_bytes=6152,
        metadata_crc32c=0, order=order, **disks,
    )  # fmt: skip
    return TableDataset(
        path="/x", extent=extent, element_size_bytes=size, type_crc32c=0, type_class=1,
        data_offset_bytes=1000, candidates=(candidate,), **disks,
    )  # fmt: skip


@pytest.mark.parametrize("n", [2, 4, 16, 64])
def test_what_lies_within_the_buffer_of_hdf5_stays_with_it(n):
    """One request brings it all, and no more of it than there is."""
    entry = entry_of(uncalibrated((n, n), 8, (1, 0)))
    column = ((0, 1), (1, 1), (n, 1), (1, 1))
    by_hdf5_s, _, _ = entry.seconds(*column)
    costs = builtin_parameters()
    byte_s = max(costs.buffered_s_per_byte, costs.reads.cud_s_per_byte)
    assert by_hdf5_s < costs.reads.startup_s + 2e-6 + n * n * 8 * byte_s
    assert entry.choose(*column, None, None)[0] is None


@given(
    st.integers(2, 200), st.integers(1, 200), st.sampled_from([1, 8]), st.permutations(range(3)),
    st.integers(0, 2),
)  # fmt: skip
def test_what_was_not_calibrated_takes_as_long_as_its_requests(n, n_rows, size, order, axis):
    """Of HDF5 those through its buffer, of the engine those of its plan; of replicas, a margin."""
    extent = (n, n_rows, 200_000)  # runs of one row are further apart than the buffer reaches
    slab = Hyperslab.all(extent)
    slab = replace(
        slab,
        start=(0, 0, 7),
        count=(1, 1, 1) if axis == 0 else (n, 1, 1) if axis == 1 else (1, n_rows, 1),
        block=(1, 1, 100),
    )
    dataset = uncalibrated(extent, size, tuple(order))
    (candidate,) = dataset.candidates
    offset = candidate.data_offset_bytes
    axes = (slab.start, slab.stride, slab.count, slab.block)
    by_hdf5_s, by_engine_s, replica_s = entry_of(dataset).seconds(*axes)
    n_runs = math.prod(slab.count)
    assert by_engine_s == pytest.approx(planned_cold_s(extent, slab, size, 1000), rel=1e-9)
    assert by_hdf5_s == pytest.approx(
        requests_of_hdf5_s((n_runs, 100 * size), builtin_parameters()), rel=1e-9
    )
    in_replica = planned_cold_s(extent, slab, size, offset, tuple(order))
    assert replica_s == pytest.approx(
        1.25 * in_replica + permuting_s(candidate, slab, size), rel=1e-9
    )


@given(entries())
def test_reads_of_a_replica_begin_where_their_elements_lie(drawn):
    dataset, slab = drawn
    assume(slab.n_elements > 0)
    entry, axes = entry_of(dataset), (slab.start, slab.stride, slab.count, slab.block)
    for number, candidate in enumerate(dataset.candidates):
        box = candidate.region_in(dataset.extent)
        if candidate.segments is not None or not box.holds(slab):
            with pytest.raises(SdsValueError, match="holds what is selected"):
                entry.stored_read(number, *axes)
            continue
        stored = box.relative(slab).permuted(candidate.order)
        offset, run_bytes, counts, strides = _native.runs(
            tuple(box.extent[axis] for axis in candidate.order),
            dataset.element_size_bytes,
            2048,
            stored.start,
            stored.stride,
            stored.count,
            stored.block,
        )
        found = entry.stored_read(number, *axes)
        at = found[0] + sum(map(int.__mul__, slab.start, found[1]))
        assert (at, *found[2:5]) == (offset, run_bytes, counts, strides)
        moved = [axis for axis in candidate.order if slab.shape[axis] > 1]
        assert found[5] == (moved == sorted(moved))


@given(entries())
def test_only_whole_contiguous_candidates_can_be_decided_about_alike(drawn):
    dataset, _ = drawn
    is_whole = all(
        one.region_in(dataset.extent) == Box.whole(dataset.extent) and one.segments is None
        for one in dataset.candidates
    )
    assert entry_of(dataset).is_plain == is_whole
    in_chunks = replace(
        dataset.candidates[0],
        chunk_shape=(1,) * len(dataset.extent),
        data_offset_bytes=0,
        region=None,
        segments=None,
    )
    assert not entry_of(replace(dataset, candidates=(in_chunks,))).is_plain


@given(entries())
def test_pieces_are_what_lies_evenly_in_a_tile(drawn):
    dataset, slab = drawn
    assume(slab.n_elements > 0)
    found = entry_of(dataset).pieces(slab.start, slab.stride, slab.count, slab.block)
    for n, candidate in zip(found, dataset.candidates, strict=True):
        if candidate.segments is None or not candidate.holds(slab, dataset.extent):
            assert n == candidate.holds(slab, dataset.extent)
            continue
        axes = zip(slab.axes(), candidate.segments.tile_shape, strict=True)
        assert n == math.prod(len(parts_of_axis(*axis, size)) for axis, size in axes)


def test_reads_of_tiles_are_checked(tmp_path):
    segments = SegmentList(tile_shape=(2, 3), tiles=(3, 0), lengths=(1, 1))
    candidate = TableCandidate(
        replica_id=1,
        path=Path("/replica/1"),
        identity=IDENTITY,
        data_offset_bytes=64,
        metadata_crc32c=0,
        order=(1, 0),
        stripes=StripeLayout(stripe_size_bytes=4096, stripe_count=1),
        raid=RaidLayout(unit_bytes=512, data_disks=1, min_request_bytes=512),
        model=TableModel(kind=3, gap=0, calibrated=True, coefficients=(0.0,) * 3, floor_s=0.0),
        segments=segments,
    )
    dataset = TableDataset(
        path="/x",
        extent=(4, 6),
        element_size_bytes=8,
        type_crc32c=0,
        type_class=1,
        data_offset_bytes=1000,
        stripes=candidate.stripes,
        raid=candidate.raid,
        model=candidate.model,
        candidates=(candidate, replace(candidate, replica_id=2, segments=None)),
    )
    entry = entry_of(dataset)
    path = tmp_path / "replica"
    stored = np.arange(12.0)  # tile 3, then tile 0, each in the replica's order
    path.write_bytes(bytes(64) + stored.tobytes())
    file = _native.ReadFile(path)
    assert entry.announced_bytes(0) == 2
    assert entry.announced_bytes(1) == 0
    out = np.empty((2, 3))
    axes = ((2, 3), (1, 1), (2, 3), (1, 1))
    entry.read_tiles(0, *axes, file, bytearray(2), out)
    assert out.tolist() == stored[:6].reshape(3, 2).T.tolist()
    with pytest.raises(SdsValueError, match="candidate 1 has no tiles"):
        entry.read_tiles(1, *axes, file, bytearray(2), out)
    with pytest.raises(SdsValueError, match="candidate 0 does not hold what is selected"):
        entry.read_tiles(0, (1, 3), *axes[1:], file, bytearray(2), out)
    for announced, into in ((bytearray(3), out), (bytearray(2), np.empty(5))):
        with pytest.raises(SdsValueError, match=r"announced has . bytes and out "):
            entry.read_tiles(0, *axes, file, announced, into)
    with pytest.raises(SelectionError):
        entry.read_tiles(0, (2, 4), *axes[1:], file, bytearray(2), out)
    path.write_bytes(bytes(64 + 40))
    with pytest.raises(TruncatedFileError):
        entry.read_tiles(0, *axes, file, bytearray(2), out)


DATASET = entries().filter(lambda drawn: len(drawn[0].extent) == 2).map(lambda drawn: drawn[0])


@given(DATASET)
def test_what_is_no_entry_and_no_selection_of_it(dataset):
    with pytest.raises(SdsValueError, match="a table of one dataset, not of 2"):
        entry_of(dataset, replace(dataset, path="/y"))
    with pytest.raises(SdsValueError, match="rank"):
        entry_of(dataset).choose((0,), (1,), (1,), (1,), None, None)
    with pytest.raises(SelectionError):
        entry_of(dataset).choose((0, 99), (1, 1), (1, 1), (1, 1), None, None)
