"""What reads of a table's dataset are predicted to cost, by the core and by the models' Python."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sds import _native
from sds.errors import SdsValueError, SelectionError
from sds.geometry import (
    Box,
    ContiguousLayout,
    Hyperslab,
    RaidLayout,
    StripeLayout,
    block_features,
)
from sds.identity import FileIdentity
from sds.redirect.tables import RedirectTable, TableCandidate, TableDataset, TableModel
from tests.strategies import axis_slabs

IDENTITY = FileIdentity(inode=7, size_bytes=1 << 40, mtime_ns=1, ctime_ns=1)
BUDGET_NS = 10**12
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
        candidates.append(
            TableCandidate(
                replica_id=number,
                path=Path(f"/replica/{number}"),
                identity=IDENTITY,
                data_offset_bytes=2048,
                metadata_crc32c=0,
                order=tuple(draw(st.permutations(range(rank)))),
                shadow_permille=draw(st.sampled_from([1000, 1000, 500])),
                region=draw(st.sampled_from([None, part])),
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
    return _native.TableEntry(table.to_bytes(), BUDGET_NS)


def seconds(model, features):
    return _native.predict(
        model.kind,
        model.gap,
        model.coefficients,
        model.floor_s,
        features.native(),
        1 / max(1, features.osts_touched),
    )


def cheapest_by_python(dataset, slab, *, engine_serves_original):
    size = dataset.element_size_bytes
    layout = ContiguousLayout(
        element_size_bytes=size, data_offset_bytes=dataset.data_offset_bytes, order=None
    )
    original = block_features(dataset.extent, slab, layout, dataset.stripes, dataset.raid)
    if original.runs <= 1:
        return None
    best, best_s = None, seconds(dataset.model, original)
    for number, candidate in enumerate(dataset.candidates):
        box = candidate.region_in(dataset.extent)
        if candidate.shadow_permille < 1000 or not box.holds(slab):
            continue
        layout = ContiguousLayout(
            element_size_bytes=size, data_offset_bytes=2048, order=candidate.order
        )
        predicted_s = seconds(
            candidate.model,
            block_features(
                box.extent, box.relative(slab), layout, candidate.stripes, candidate.raid
            ),
        )
        by_engine_s = seconds(candidate.model, original) if engine_serves_original else best_s
        if predicted_s < min(best_s, by_engine_s):
            best, best_s = number, predicted_s
    return best


@given(entries(), st.booleans())
def test_the_core_chooses_as_the_models_say(drawn, engine_serves_original):
    dataset, slab = drawn
    chosen = entry_of(dataset).cheapest(
        slab.start, slab.stride, slab.count, slab.block, None, [], engine_serves_original
    )
    expected = cheapest_by_python(dataset, slab, engine_serves_original=engine_serves_original)
    assert chosen == expected


@given(entries())
def test_reads_of_a_replica_begin_where_their_elements_lie(drawn):
    dataset, slab = drawn
    assume(slab.n_elements > 0)
    entry, axes = entry_of(dataset), (slab.start, slab.stride, slab.count, slab.block)
    for number, candidate in enumerate(dataset.candidates):
        box = candidate.region_in(dataset.extent)
        if not box.holds(slab):
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
        one.region_in(dataset.extent) == Box.whole(dataset.extent) for one in dataset.candidates
    )
    assert entry_of(dataset).is_plain == is_whole
    in_chunks = replace(
        dataset.candidates[0],
        chunk_shape=(1,) * len(dataset.extent),
        data_offset_bytes=0,
        region=None,
    )
    assert not entry_of(replace(dataset, candidates=(in_chunks,))).is_plain


DATASET = entries().filter(lambda drawn: len(drawn[0].extent) == 2).map(lambda drawn: drawn[0])


@given(DATASET)
def test_what_is_no_entry_and_no_selection_of_it(dataset):
    with pytest.raises(SdsValueError, match="a table of one dataset, not of 2"):
        entry_of(dataset, replace(dataset, path="/y"))
    with pytest.raises(SdsValueError, match="rank"):
        entry_of(dataset).cheapest((0,), (1,), (1,), (1,), None, [], True)
    with pytest.raises(SelectionError):
        entry_of(dataset).cheapest((0, 99), (1, 1), (1, 1), (1, 1), None, [], True)
