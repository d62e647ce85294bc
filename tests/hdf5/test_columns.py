import h5py
import numpy as np
import pytest

from sds.errors import DatasetNotFoundError, NotFoundError, UnsupportedError
from sds.hdf5.columns import TableReader, check_key, describe_open_table, describe_table

ROW = np.dtype([("energy", ">f4"), ("tag", "S3"), ("hits", "<i2", (2,)), ("id", "<u8")])


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "events.h5"
    rng = np.random.default_rng(5)
    with h5py.File(path, "w") as handle:
        events = np.frombuffer(rng.bytes(100 * ROW.itemsize), ROW)
        handle["events"] = events
        handle["run/energy"] = rng.random(50).astype(">f8")
        handle["run/id"] = np.arange(50, dtype="i1")
        handle["run/short"] = np.arange(49)
        handle["run/plane"] = np.zeros((50, 2))
        handle["run/note"] = np.array(["a"] * 50, dtype=h5py.string_dtype())
        handle["run/inner/energy"] = np.zeros(50)
        handle["run/nowhere"] = h5py.SoftLink("/missing")
        handle["number"] = 3.5
    return path


def test_columns_of_a_group_are_its_datasets_of_the_same_length(file):
    table = describe_table(file, "/run", like="energy")
    assert [column.name for column in table.columns] == ["energy", "id", "note"]
    assert (table.n_rows, table.is_compound, table.path) == (50, False, "/run")
    assert "variable length" in table.column("note").obstacle
    assert [c.name for c in describe_table(file, "/run", like="short").columns] == ["short"]


def test_columns_of_a_compound_dataset_are_its_members(file):
    table = describe_table(file, "events", like="id")
    assert [(c.name, c.size_bytes) for c in table.columns] == [
        ("energy", 4),
        ("tag", 3),
        ("hits", 4),
        ("id", 8),
    ]
    assert (table.n_rows, table.is_compound, table.path) == (100, True, "/events")
    assert table.column("hits").dtype == np.dtype(("<i2", (2,)))


def test_what_is_read_is_what_is_stored(file):
    with h5py.File(file) as handle:
        table = describe_open_table(handle, "/events", like="id")
        whole = handle["events"][...]
        reader = TableReader(handle, table, ["id", "tag", "hits"])
        stored = reader.stored(10, 20)
        values = reader.values(["tag", "id"], 10, 20)
        for name in ("id", "tag", "hits"):
            expected = np.ascontiguousarray(whole[name][10:30]).tobytes()
            assert np.ascontiguousarray(stored[name]).tobytes() == expected
        assert (values["id"] == whole["id"][10:30]).all()
        group = TableReader(handle, describe_open_table(handle, "run", like="id"), ["energy"])
        energy = handle["run/energy"][5:9]
        assert group.stored(5, 4)["energy"].tobytes() == energy.tobytes()
        assert (group.values(["energy"], 5, 4)["energy"] == energy).all()


@pytest.mark.parametrize(
    ("path", "like", "error", "said"),
    [
        ("/events", "mass", DatasetNotFoundError, "no column 'mass' .* it has energy, tag, hits"),
        ("/run", "mass", DatasetNotFoundError, "no dataset '/run/mass'"),
        ("/missing", "mass", NotFoundError, "no dataset '/missing'"),
        ("/number", "x", UnsupportedError, "no table: it is of type float64 and extent scalar"),
        ("/run/energy", "x", UnsupportedError, "no table"),
        ("/run", "plane", UnsupportedError, "extent 50x2: columns are one-dimensional"),
        ("/run", "inner", NotFoundError, "is a group"),
    ],
)
def test_what_is_no_table_is_refused_with_its_name(file, path, like, error, said):
    with pytest.raises(error, match=said):
        describe_table(file, path, like=like)


def test_text_and_wide_numbers_are_no_keys(file):
    table = describe_table(file, "events", like="id")
    check_key(table.column("energy"), "here")
    with pytest.raises(UnsupportedError, match="'tag' of here is text"):
        check_key(table.column("tag"), "here")
    with pytest.raises(UnsupportedError, match="'hits' of here is of type"):
        check_key(table.column("hits"), "here")
