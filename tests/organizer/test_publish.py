import os

import h5py
import numpy as np
import pytest

from sds.geometry import LOCAL_DISK_RAID, LOCAL_DISK_STRIPES
from sds.home import Home
from sds.organizer import plan_reorganization, reorganize
from sds.organizer.publish import build_table
from sds.recommender import models_for_table
from sds.redirect.tables import RedirectTable, publish_table, read_table
from sds.redirect.type_digest import type_crc32c
from tests.organizer.sources import settle


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source.h5"
    with h5py.File(path, "w") as handle:
        handle["cube"] = np.arange(60, dtype="<f4").reshape(3, 4, 5)
        handle.create_dataset("chunked", data=np.eye(6), chunks=(2, 3), compression="gzip")
    settle(path)
    return path


def build(source, dataset, order, home):
    return reorganize(plan_reorganization(source, dataset, order=order, home=home), home=home)


def table_of(source, replicas):
    return build_table(
        source,
        replicas,
        models=models_for_table(None),
        stripes=LOCAL_DISK_STRIPES,
        raid=LOCAL_DISK_RAID,
    )


def test_a_second_order_adds_a_candidate(source, home):
    first = build(source, "/cube", (2, 0, 1), home)
    second = build(source, "/cube", (1, 2, 0), home)
    third = build(source, "/chunked", (1, 0), home)
    table = table_of(source, [(7, first), (8, second), (9, third)])
    publish_table(home, table)
    assert read_table(home, source) == table
    assert RedirectTable.from_bytes(table.to_bytes()) == table
    by_path = {dataset.path: dataset for dataset in table.datasets}
    cube, chunked = by_path["/cube"], by_path["/chunked"]
    assert [(c.replica_id, c.order) for c in cube.candidates] == [(7, (2, 0, 1)), (8, (1, 2, 0))]
    assert [c.replica_id for c in chunked.candidates] == [9]
    assert chunked.data_offset_bytes is None
    with h5py.File(source) as handle:
        assert cube.data_offset_bytes == handle["cube"].id.get_offset()
        assert cube.type_crc32c == type_crc32c(handle["cube"].id.get_type())
    assert cube.candidates[0].metadata_crc32c == first.metadata_crc32c
    assert cube.candidates[0].identity == first.identity


def test_what_may_not_be_served_is_left_out(source, home):
    good = build(source, "/cube", (2, 0, 1), home)
    touched = build(source, "/cube", (1, 2, 0), home)
    gone = build(source, "/chunked", (1, 0), home)
    os.utime(touched.path, ns=(1, 1))
    gone.path.unlink()
    table = table_of(source, [(1, good), (2, touched), (3, gone)])
    (dataset,) = table.datasets
    assert [c.replica_id for c in dataset.candidates] == [1]


def test_no_replica_of_an_earlier_source_is_served(source, home):
    replica = build(source, "/cube", (2, 0, 1), home)
    os.utime(source)
    assert table_of(source, [(1, replica)]).datasets == ()
