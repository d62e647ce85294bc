from __future__ import annotations

from dataclasses import replace

import h5py
import numpy as np
import pytest

from sds.calibration.models_in_use import comparable_models
from sds.engine import Cache, Strategy
from sds.errors import (
    DatasetNotFoundError,
    LayoutError,
    NotHdf5Error,
    SelectionError,
)
from sds.explain.explanation import best_of, compare, explain, fastest_of
from sds.explain.hypothetical_layout import HypotheticalLayout
from sds.geometry import ReplicaLayout, parse_selection
from sds.hdf5.chunk_extents import decode_seconds_per_byte
from sds.hdf5.dataset import describe_dataset
from sds.recommender.candidates.cost_matrix import read_costs
from sds.recommender.models.read_cost import StoredArray
from tests import oracles

SHAPE = (12, 20, 9)
STORAGE = {
    "stripe_size": 1024,
    "stripe_count": 3,
    "raid_disks": 2,
    "raid_unit": 64,
    "raid_min_request": 128,
}
ORACLE_STORAGE = {
    "stripe_bytes": 1024,
    "stripe_count": 3,
    "data_disks": 2,
    "unit_bytes": 64,
    "min_request_bytes": 128,
}
FEATURES = (
    "runs",
    "block_depth",
    "block_gap_count",
    "block_gap_distance",
    "bytes_touched",
    "osts_touched",
    "disks_touched",
)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    file = tmp_path_factory.mktemp("explain") / "run.h5"
    values = np.arange(np.prod(SHAPE), dtype="i4").reshape(SHAPE)
    with h5py.File(file, "w", userblock_size=512) as handle:
        handle["grid/t"] = values
        handle.create_dataset("chunked", data=values, chunks=(4, 6, 9))
        handle.create_dataset("packed", data=values, chunks=(4, 6, 9), compression="gzip")
        partly = handle.create_dataset("partly", SHAPE, "i4", chunks=(4, 6, 9))
        partly[:4] = 1
        handle.create_dataset("late", SHAPE, "i4")
        handle.create_dataset("outside", (4,), "f4", external=[(str(file) + ".raw", 0, 16)])
        handle["scalar"] = 1.5
    return file


def test_contiguous_dataset_counts_its_own_offset(store):
    found = explain(store, "grid/t", "[2:9:3, 5, ::2]", **STORAGE)
    with h5py.File(store) as handle:
        offset = handle["grid/t"].id.get_offset()
    indices = [np.arange(2, 9, 3), np.array([5]), np.arange(0, 9, 2)]
    touched = oracles.selected_bytes(SHAPE, 4, offset, indices)
    truth = oracles.features_of_bytes(touched, **ORACLE_STORAGE)
    assert found.data_offset_bytes == offset
    assert {name: getattr(found, name) for name in FEATURES} == {n: truth[n] for n in FEATURES}
    assert found.bytes_useful == len(touched)
    assert found.block_gap_paper == oracles.block_gap_paper(SHAPE, indices)
    assert found.exact
    assert found.requests.multiple == truth["runs"]
    assert found.requests.list == 1
    assert found.predicted_s > 0
    assert not found.calibrated
    assert found.selection == "[2:9:3, 5, 0:9:2]"


def test_min_request_defaults_to_the_unit(store):
    one = explain(store, "grid/t", "[0, 0, 0]", raid_unit=64)
    assert one.bytes_touched == 64
    assert explain(store, "grid/t", "[0, 0, 0]").bytes_touched == 4096


@pytest.mark.parametrize("name", ["grid/t", "chunked"])
@pytest.mark.parametrize("selection", ["[:, :, 3]", "[2]", "[::2, 3:9, 1]"])
@pytest.mark.parametrize("layout", [{"order": (2, 0, 1)}, {"chunks": (3, 5, 9)}])
def test_it_takes_what_advice_says_that_it_takes(store, name, selection, layout):
    found = [explain(store, name, selection, **options) for options in ({}, layout)]
    described = describe_dataset(store, name)
    array = StoredArray(
        extent=SHAPE,
        element_size_bytes=4,
        chunks=described.chunk_shape,
        data_offset_bytes=described.data_offset_bytes or 0,
    )
    replica = ReplicaLayout.whole(
        SHAPE, order=layout.get("order"), chunk_shape=layout.get("chunks")
    )
    slab = parse_selection(selection, SHAPE)
    costs = read_costs(array, comparable_models(None), [slab], [1], [replica])
    assert [one.predicted_s for one in found] == [costs.original[0], costs.replicas[0, 0]]


def test_a_supposed_order_makes_the_slow_axis_fast(store):
    stored = explain(store, "grid/t", np.s_[:, :, 3])
    supposed = explain(store, "grid/t", np.s_[:, :, 3], order=(2, 0, 1))
    assert (stored.runs, supposed.runs) == (12 * 20, 1)
    assert supposed.extent == (9, 12, 20)
    assert supposed.data_offset_bytes == 4096  # of so few bytes
    assert supposed.predicted_s < stored.predicted_s
    assert explain(store, "packed", "[:, :, 3]", order=(2, 0, 1)).predicted_s is not None


def test_plans_tell_what_every_strategy_would_do(store):
    found = explain(store, "grid/t", np.s_[:, :, 3])
    plans = {plan.strategy: plan for plan in found.plans}
    assert list(plans) == list(Strategy)
    multiple, listed = plans[Strategy.MULTIPLE], plans[Strategy.LIST]
    assert multiple.cold.requests == found.runs == found.requests.multiple
    assert listed.cold.requests == found.requests.list == 4
    assert multiple.cold.bytes_read == found.bytes_useful == 12 * 20 * 4
    assert plans[Strategy.SIEVE].cold.bytes_read == (12 * 20 - 1) * 9 * 4 + 4
    for plan in found.plans:
        assert (plan.warm.cache, plan.cold.cache) == (Cache.WARM, Cache.COLD)
        assert plan.warm.predicted_s < plan.cold.predicted_s
    assert plans[Strategy.AUTO].cold.predicted_s <= multiple.cold.predicted_s
    supposed = explain(store, "packed", np.s_[:, :, 3], order=(2, 0, 1))
    assert all(plan.cold.requests == 1 for plan in supposed.plans)


@pytest.mark.parametrize("name", ["chunked", "late", "outside"])
def test_no_plans_where_elements_do_not_lie_in_the_file(store, name):
    assert explain(store, name, "...").plans == ()


@pytest.mark.parametrize("name", ["chunked", "packed"])
@pytest.mark.parametrize("selection", [np.s_[3:5, 0, 0], np.s_[::5, 19, 2], np.s_[...]])
def test_chunks_touched_are_read_whole(store, name, selection):
    found = explain(store, name, selection, **STORAGE)
    chunks = set()
    touched = np.zeros(SHAPE, bool)
    touched[selection] = True
    with h5py.File(store) as handle:
        dataset = handle[name]
        for i, j, k in zip(*np.nonzero(touched), strict=True):
            at = (int(i) // 4 * 4, int(j) // 6 * 6, int(k) // 9 * 9)
            info = dataset.id.get_chunk_info_by_coord(at)
            chunks.add((info.byte_offset, info.size))
    file_bytes = np.sort(np.concatenate([np.arange(o, o + n) for o, n in chunks]))
    truth = oracles.features_of_bytes(file_bytes, **ORACLE_STORAGE)
    assert found.chunks_touched == len(chunks)
    assert {n: getattr(found, n) for n in FEATURES} == {n: truth[n] for n in FEATURES}
    assert found.bytes_useful == touched.sum() * 4
    assert found.block_gap_paper is None
    assert found.predicted_s > 0


def test_offsets_of_chunks_count_the_user_block(store):
    with h5py.File(store) as handle:
        info = handle["chunked"].id.get_chunk_info_by_coord((0, 0, 0))
        first = handle["chunked"][:4, :6, :9].tobytes()
    assert store.read_bytes()[info.byte_offset :][: info.size] == first


def test_chunks_never_written_are_not_read(store):
    assert explain(store, "partly", "[:]").chunks_touched == 4
    assert explain(store, "partly", "[5, 0, 0]").chunks_touched == 0


def test_storage_without_an_answer_says_so(store):
    late = explain(store, "late", "[0]")
    assert late.runs is None
    assert late.predicted_s is None
    assert "nothing has been written" in late.notes[0]
    outside = explain(store, "outside", "[:]")
    assert outside.block_depth is None
    assert "external" in outside.notes[0]
    assert explain(store, "scalar", "...").runs == 1


def test_bad_input_is_named(store, tmp_path):
    with pytest.raises(SelectionError, match="axis 1: index 20 is out of range"):
        explain(store, "grid/t", "[0, 20]")
    with pytest.raises(LayoutError, match=r"axis order 0,0,1 is no permutation of the 3 axes"):
        explain(store, "grid/t", "[0]", order=(0, 0, 1))
    with pytest.raises(LayoutError, match="stripe_count is 0"):
        explain(store, "grid/t", "[0]", stripe_count=0)
    with pytest.raises(DatasetNotFoundError, match="grid/t"):
        explain(store, "/grid/x", "[0]")
    (tmp_path / "text").write_text("no HDF5 " * 100)
    with pytest.raises(NotHdf5Error):
        explain(tmp_path / "text", "/x", "[0]")


def test_predictions_of_different_origin_are_not_compared(tmp_path):
    path = tmp_path / "run.h5"
    with h5py.File(path, "w") as file:
        file["d"] = np.zeros((512, 64, 64), "f4")
    layouts = [HypotheticalLayout(), HypotheticalLayout(order=(1, 2, 0))]
    found = compare(str(path), "/d", np.s_[:, 40, 60], layouts)
    assert best_of(found) == 1
    unserved = [found[0], replace(found[1], serves=False)]
    assert (fastest_of(unserved), best_of(unserved)) == (1, None)
    assert best_of([replace(found[0], calibrated=not found[0].calibrated), found[1]]) is None


def test_elements_that_lie_elsewhere_are_said(tmp_path):
    path = tmp_path / "names.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("names", data=["a", "bb"], dtype=h5py.string_dtype())
        file["fixed"] = np.zeros(2)
    assert any("variable length" in note for note in explain(path, "names", "[1]").notes)
    assert not any("variable length" in note for note in explain(path, "fixed", "[1]").notes)


def test_undoing_filters_is_measured_and_added(tmp_path):
    path = tmp_path / "maps.h5"
    values = np.random.default_rng(3).integers(0, 9, (40, 200, 200)).astype("i4")
    with h5py.File(path, "w") as file:
        file.create_dataset("plain", data=values, chunks=(1, 200, 200))
        file.create_dataset("packed", data=values, chunks=(1, 200, 200), compression="gzip")
    plain, packed = (explain(path, name, np.s_[:, 3, 4]) for name in ("plain", "packed"))
    assert packed.bytes_touched < plain.bytes_touched
    with h5py.File(path) as file:
        decode_s = decode_seconds_per_byte(file["packed"]) * values.nbytes
    assert packed.predicted_s > plain.predicted_s
    assert decode_s / 4 < packed.predicted_s < plain.predicted_s + 4 * decode_s
    assert packed.predicted_low_s < packed.predicted_s < packed.predicted_high_s


def test_filters_that_this_hdf5_lacks_leave_no_prediction(tmp_path):
    path = tmp_path / "maps.h5"
    with h5py.File(path, "w") as file:
        created = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        created.set_chunk((8, 8))
        created.set_filter(60123, h5py.h5z.FLAG_OPTIONAL)
        space = h5py.h5s.create_simple((16, 8))
        made = h5py.h5d.create(file.id, b"d", h5py.h5t.NATIVE_INT32, space, created)
        for row in (0, 8):
            made.write_direct_chunk((row, 0), bytes(256))
    found = explain(path, "d", np.s_[:, 3])
    assert found.predicted_s is None
    assert "cannot undo the filters (60123)" in found.notes[-1]
