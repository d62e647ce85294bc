from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from sds import _native
from tests import oracles, strategies
from tests.sizes import repeated

VECTORS = json.loads(
    (Path(__file__).parents[1] / "data" / "geometry_vectors.json").read_text(encoding="utf-8")
)["cases"]
BOUNDED = (
    "block_depth",
    "block_gap_count",
    "block_gap_distance",
    "bytes_touched",
    "osts_touched",
    "disks_touched",
)


def exact_values(features):
    assert features["exact"] is True
    assert all(features[name][0] == features[name][1] for name in BOUNDED)
    return {
        name: value[0] if isinstance(value, tuple) else value
        for name, value in features.items()
        if name not in ("exact", "sieve")  # what HDF5 asks for: test_sieve.py
    }


def assert_contains(features, truth):
    for name in BOUNDED:
        low, high = features[name]
        assert low <= truth[name] <= high, (name, low, truth[name], high)
    assert features["runs"] == truth["runs"]
    assert features["bytes_useful"] == truth["bytes_useful"]
    assert features["exact"] == all(features[n][0] == features[n][1] for n in BOUNDED)


def slow_features(case, layout):
    indices = oracles.selected_indices(case.start, case.stride, case.count, case.block)
    touched = oracles.selected_bytes(case.extent, case.element_bytes, case.offset_bytes, indices)
    truth = oracles.features_of_bytes(touched, **layout)
    return touched, truth | {"block_gap_paper": oracles.block_gap_paper(case.extent, indices)}


@pytest.mark.parametrize("vector", VECTORS, ids=range(len(VECTORS)))
def test_golden_vectors(vector):
    ranges = [range(*triple) for triple in vector["start_stop_step"]]
    features = _native.features(
        vector["extent"],
        vector["element_size"],
        vector["data_offset"],
        [r.start for r in ranges],
        [r.step for r in ranges],
        [len(r) for r in ranges],
        [1] * len(ranges),
        vector["stripe_size"],
        vector["stripe_count"],
        vector["unit"],
        vector["data_disks"],
        vector["min_request"],
        0,
    )
    assert exact_values(features).items() >= vector["expect"].items()


@settings(max_examples=repeated(100, 1500), suppress_health_check=list(HealthCheck))
@given(case=strategies.cases(), layout=strategies.layouts())
def test_features_equal_a_walk_over_every_byte(case, layout):
    touched, truth = slow_features(case, layout)
    features = _native.features(*case.arguments, *layout.values(), 0)
    assert exact_values(features) == truth
    offsets, lengths = _native.extents(*case.arguments)
    assert list(zip(offsets.tolist(), lengths.tolist(), strict=True)) == oracles.runs_of_bytes(
        touched
    )
    by_extents = _native.features_of_extents(offsets, lengths, *layout.values(), 0)
    truth.pop("block_gap_paper")
    assert exact_values(by_extents) == truth


@settings(max_examples=repeated(40, 400), suppress_health_check=list(HealthCheck))
@given(case=strategies.cases(), layout=strategies.layouts())
def test_bounds_hold_the_truth(case, layout):
    _, truth = slow_features(case, layout)
    features = _native.features(*case.arguments, *layout.values(), 1)
    event(f"exact: {features['exact']}")
    assert_contains(features, truth)
    offsets, lengths = _native.extents(*case.arguments)
    assert_contains(_native.features_of_extents(offsets, lengths, *layout.values(), 1), truth)


@settings(max_examples=repeated(50, 150), suppress_health_check=list(HealthCheck))
@given(
    count=st.integers(2, 5000),
    stride=st.integers(1, 400),
    block=st.integers(1, 40),
    layout=strategies.layouts(),
    rows=st.integers(1, 4),
)
def test_many_periods_fold_to_the_same(count, stride, block, layout, rows):
    block = min(block, stride)
    extent = (rows, count * stride + 13)
    case = strategies.Case(extent, 1, 77, (0, 3), (1, stride), (1, count), (rows, block))
    offsets, lengths = _native.extents(*case.arguments)
    walked = exact_values(_native.features_of_extents(offsets, lengths, *layout.values(), 0))
    folded = exact_values(_native.features(*case.arguments, *layout.values(), 0))
    folded.pop("block_gap_paper")
    assert folded == walked


def test_nothing_selected_touches_nothing():
    features = _native.features((4, 0), 8, 0, (0, 0), (1, 1), (1, 0), (4, 1), 1024, 2, 64, 2, 64, 0)
    values = exact_values(features)
    assert values.pop("block_gap_paper") == 0
    assert not any(values.values())


def test_extents_out_of_order_are_refused():
    for offsets, lengths in (([10, 5], [1, 1]), ([0, 5], [6, 1]), ([0], [0]), ([-1], [4])):
        with pytest.raises(ValueError, match="extents"):
            _native.features_of_extents(np.array(offsets), np.array(lengths), 1024, 2, 64, 2, 64, 0)


@pytest.mark.parametrize(
    "layout",
    [
        (0, 1, 512, 1, 512),
        (1024, 0, 512, 1, 512),
        (1024, 1, 0, 1, 512),
        (1024, 1, 512, -1, 512),
        (1024, 1, 512, 1, 0),
        (2**60, 1, 512, 1, 512),
        (1, 2**40, 1, 2**40, 1),
    ],
)
def test_layouts_that_cannot_be_are_refused(layout):
    with pytest.raises(ValueError, match="striping and RAID"):
        _native.features((100,), 1, 0, (0,), (1,), (1,), (100,), *layout, 0)
