from __future__ import annotations

import os

import h5py
import numpy as np
import pytest

from sds.errors import (
    DatasetNotFoundError,
    FileMissingError,
    NotHdf5Error,
    SdsValueError,
    TruncatedFileError,
    UnsupportedError,
)
from sds.hdf5.dataset import (
    Storage,
    describe_dataset,
    describe_open_dataset,
    open_hdf5,
    parse_dataset_name,
)


@pytest.fixture
def run_h5(tmp_path):
    file = tmp_path / "run.h5"
    with h5py.File(file, "w", userblock_size=1024) as handle:
        handle["grid/time"] = np.arange(24, dtype=">i2").reshape(2, 3, 4)
        handle.create_dataset("scalar", data=3.5)
        handle.create_dataset("late", (4, 5), "f4")
        handle.create_dataset("chunked", data=np.zeros((8, 8)), chunks=(4, 2), compression="gzip")
        handle.create_dataset("text", data=["a", "bcd"], dtype=h5py.string_dtype())
        handle.create_dataset("ragged", (2,), h5py.vlen_dtype("i4"))
        handle.create_dataset("flag", data=np.array([True, False]))
        handle.create_dataset("vectors", (4,), np.dtype(("f4", (3,))))
        handle.create_dataset("null", data=h5py.Empty("f8"))
        mixed = np.dtype([("a", "i1"), ("b", h5py.string_dtype())])
        handle.create_dataset("mixed", (2,), mixed)
        handle.create_dataset("outside", (4,), "f4", external=[(str(tmp_path / "raw"), 0, 16)])
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple((3,))
        h5py.h5d.create(handle.id, b"small", h5py.h5t.NATIVE_INT32, space, plist)
        layout = h5py.VirtualLayout((2, 4), "f4")
        layout[0] = h5py.VirtualSource(str(file), "outside", (4,))
        handle.create_virtual_dataset("mosaic", layout)
    return file


def test_contiguous_offset_is_where_the_bytes_lie(run_h5):
    found = describe_dataset(run_h5, "grid/time")
    assert found.path == "/grid/time"
    assert found.extent == (2, 3, 4)
    assert found.dtype == np.dtype(">i2")
    assert found.storage is Storage.CONTIGUOUS
    assert found.is_native
    assert found.is_fixed_size
    stored = run_h5.read_bytes()[found.data_offset_bytes :][: found.size_bytes]
    assert stored == np.arange(24, dtype=">i2").tobytes()


def test_each_storage_is_recognised(run_h5):
    for name, storage in {
        "chunked": Storage.CHUNKED,
        "small": Storage.COMPACT,
        "outside": Storage.EXTERNAL,
        "mosaic": Storage.VIRTUAL,
        "late": Storage.CONTIGUOUS,
    }.items():
        assert describe_dataset(run_h5, name).storage is storage
    assert describe_dataset(run_h5, "late").data_offset_bytes is None
    chunked = describe_dataset(run_h5, "chunked")
    assert chunked.chunk_shape == (4, 2)
    assert [f.code for f in chunked.filters] == [1]


def test_elements_outside_the_dataset_are_recognised(run_h5):
    for name in ("text", "ragged", "mixed"):
        assert not describe_dataset(run_h5, name).is_fixed_size
        assert not describe_dataset(run_h5, name).is_native
    assert describe_dataset(run_h5, "flag").is_native
    assert describe_dataset(run_h5, "vectors").is_fixed_size
    assert not describe_dataset(run_h5, "vectors").is_native


def test_scalar_and_null_have_extents(run_h5):
    assert describe_dataset(run_h5, "scalar").extent == ()
    null = describe_dataset(run_h5, "null")
    assert null.is_null
    assert null.n_elements == 0


def test_missing_dataset_names_those_that_exist(run_h5):
    with pytest.raises(DatasetNotFoundError, match=r"'/nothing'.*holds .*/grid/time"):
        describe_dataset(run_h5, "/nothing")
    with pytest.raises(DatasetNotFoundError, match=r"is a group, no dataset; it holds /grid/time"):
        describe_dataset(run_h5, "/grid")


def test_files_that_are_not_hdf5_are_told_apart(tmp_path, run_h5):
    with pytest.raises(FileMissingError, match="no such file"):
        describe_dataset(tmp_path / "none.h5", "/x")
    text = tmp_path / "notes.txt"
    text.write_text("not HDF5" * 200)
    with pytest.raises(NotHdf5Error, match=r"notes\.txt is not an HDF5 file"):
        describe_dataset(text, "/x")
    text.write_text("")
    with pytest.raises(NotHdf5Error, match="is empty"):
        describe_dataset(text, "/x")
    with pytest.raises(NotHdf5Error, match="is a directory"):
        describe_dataset(tmp_path, "/x")
    os.truncate(run_h5, run_h5.stat().st_size - 100)
    with pytest.raises(TruncatedFileError, match="ends before its data"), open_hdf5(run_h5):
        pass


def test_names_may_hold_colons(tmp_path, monkeypatch):
    assert parse_dataset_name("run.h5:/a/b") == (tmp_path.__class__("run.h5"), "/a/b")
    monkeypatch.chdir(tmp_path)
    strange = tmp_path / "t:"
    strange.mkdir()
    (strange / "10:30.h5").touch()
    file, path = parse_dataset_name("t:/10:30.h5:/a:/b")
    assert (str(file), path) == ("t:/10:30.h5", "/a:/b")


def test_a_name_without_a_path_is_refused_with_the_remedy():
    for name in ("run.h5", "run.h5:data", "", ":/a"):
        with pytest.raises(SdsValueError, match="write FILE:/path"):
            parse_dataset_name(name)


def test_an_external_link_leads_to_the_file_that_holds_the_data(tmp_path, run_h5):
    linking = tmp_path / "linking.h5"
    with h5py.File(linking, "w") as handle:
        handle["there"] = h5py.ExternalLink("run.h5", "/grid/time")
    found = describe_dataset(linking, "there")
    assert found.file.samefile(run_h5)
    assert found.path == "/grid/time"


@pytest.mark.parametrize("kind", ["quadruple", "VAX"])
def test_numbers_that_numpy_has_not_are_refused_by_name(kind, tmp_path):
    path = tmp_path / "numbers.h5"
    number = h5py.h5t.IEEE_F64LE.copy()
    if kind == "quadruple":
        number.set_size(16)
        number.set_precision(128)
        number.set_fields(127, 112, 15, 0, 112)
        number.set_ebias(16383)
    else:
        number.set_order(h5py.h5t.ORDER_VAX)
    with h5py.File(path, "w") as file:
        h5py.h5d.create(file.id, b"numbers", number, h5py.h5s.create_simple((3, 4)))
        with pytest.raises(UnsupportedError, match=r"NumPy has no type .* /numbers"):
            describe_open_dataset(file["numbers"], path)
