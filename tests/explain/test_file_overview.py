"""Datasets of a file, and the planes across their axes, without a selection."""

import h5py
import numpy as np
import pytest

from sds.errors import DatasetNotFoundError
from sds.explain.explanation import explain
from sds.explain.file_overview import MOST_DATASETS, overview
from sds.geometry import LOCAL_DISK_RAID
from tests.organizer.sources import settle


@pytest.fixture
def mixed(tmp_path):
    path = tmp_path / "mixed.h5"
    with h5py.File(path, "w") as file:
        cube = file.create_dataset("cube", data=np.zeros((64, 80, 100), "f4"))
        cube.dims[2].label = "energy"
        file.create_dataset(
            "group/maps", data=np.zeros((60, 80, 100), "f4"), chunks=(1, 80, 100), compression=1
        )
        file["small"] = np.zeros((4, 4))
        file["line"] = np.zeros(1 << 20, "i2")
        file["scalar"] = 1.0
        file["names"] = ["a", "b"]
    settle(path)
    return path


def of(path, dataset=None):
    return overview(
        path, dataset, configured=None, raid=LOCAL_DISK_RAID, models=None, parameters=None,
        home=None,
    )  # fmt: skip


def test_all_datasets_are_listed_the_largest_first(mixed):
    found, n_more = of(mixed)
    assert {each.path for each in found} == {
        "/cube", "/group/maps", "/small", "/line", "/scalar", "/names",
    }  # fmt: skip
    sizes = [each.size_bytes for each in found]
    assert sizes == sorted(sizes, reverse=True)
    assert n_more == 0
    planes = {each.path: len(each.planes) for each in found}
    assert planes == {
        "/cube": 3, "/group/maps": 3, "/small": 0, "/line": 0, "/scalar": 0, "/names": 0,
    }  # fmt: skip


def test_planes_are_explained_as_their_selections_are(mixed):
    (cube,), _ = of(mixed, "/cube")
    for axis, text in enumerate(("[32]", "[:, 40]", "[:, :, 50]")):
        one = explain(mixed, "/cube", text)
        plane = cube.planes[axis]
        assert plane.axis == axis
        assert plane.pieces == one.runs
        assert (plane.bytes_useful, plane.bytes_touched) == (one.bytes_useful, one.bytes_touched)
        assert plane.predicted_s == one.predicted_s
    assert [plane.names for plane in cube.planes] == [(), (), ("energy",)]
    (maps,), _ = of(mixed, "/group/maps")
    assert [plane.pieces for plane in maps.planes] == [1, 60, 60]
    assert maps.filters == ("gzip",)


def test_many_datasets_are_cut_off(tmp_path):
    path = tmp_path / "many.h5"
    with h5py.File(path, "w") as file:
        for i in range(MOST_DATASETS + 5):
            file[f"d{i}"] = np.zeros(i + 1)
    found, n_more = of(path)
    assert (len(found), n_more) == (MOST_DATASETS, 5)
    assert found[0].path == f"/d{MOST_DATASETS + 4}"


def test_a_dataset_that_is_not_there(mixed):
    with pytest.raises(DatasetNotFoundError):
        of(mixed, "/none")


def test_the_command(mixed, sds, tmp_path, monkeypatch):
    monkeypatch.setenv("SDS_HOME", str(tmp_path / "home"))
    told = sds("explain", mixed)
    assert told.code == 0
    assert "/cube  64x80x100 float32, contiguous, 1.95 MiB" in told.out
    assert "axis 2 energy" in told.out
    assert "chunks of 1x80x100, gzip" in told.out
    refused = sds("explain", mixed, "--order", "2,0,1")
    assert refused.code == 2
    assert "without a selection: name one" in refused.err
