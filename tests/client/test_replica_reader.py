from __future__ import annotations

import os
from dataclasses import replace

import h5py
import numpy as np
import pytest

import sds
from sds.client.replica_reader import Outcome, Redirection
from sds.geometry import (
    LOCAL_DISK_RAID,
    LOCAL_DISK_STRIPES,
    Box,
    SegmentList,
    selection_from_index,
)
from sds.hdf5.dataset import describe_open_dataset
from sds.hdf5.identity import identity_of
from sds.hdf5.type_digest import type_crc32c
from sds.home import Home, default_home
from sds.organizer import plan_reorganization, reorganize
from sds.recommender.models.cost_model import builtin_model
from sds.redirect.tables import (
    RedirectTable,
    TableCandidate,
    TableDataset,
    TableModel,
    publish_table,
    table_path,
)
from tests.organizer.sources import settle
from tests.redirected import publish_candidates, with_models, write_replica

SHAPE = (24, 30, 40)
ORDERS = {"plain": (2, 0, 1), "packed": (2, 1, 0), "pairs": (1, 2, 0)}
PAIRS = np.dtype([("a", "<i2"), ("b", "u1"), ("c", ">f8")])


def table_dataset(dataset, source, replica):
    """Describe a replica and its original as a table does."""
    builtin = builtin_model()
    model = TableModel(
        kind=builtin.kind.code,
        gap=builtin.gap.code,
        calibrated=False,
        coefficients=builtin.coefficients,
        floor_s=builtin.floor_s,
    )
    described = describe_open_dataset(dataset, source)
    candidate = TableCandidate(
        replica_id=1,
        path=replica.path,
        identity=replica.identity,
        data_offset_bytes=replica.data_offset_bytes,
        metadata_crc32c=replica.metadata_crc32c,
        order=replica.order,
        stripes=LOCAL_DISK_STRIPES,
        raid=LOCAL_DISK_RAID,
        model=model,
    )
    return TableDataset(
        path=dataset.name,
        extent=described.extent,
        element_size_bytes=described.element_size_bytes,
        type_crc32c=type_crc32c(dataset.id.get_type()),
        type_class=int(dataset.id.get_type().get_class()),
        data_offset_bytes=described.data_offset_bytes,
        stripes=LOCAL_DISK_STRIPES,
        raid=LOCAL_DISK_RAID,
        model=model,
        candidates=(candidate,),
        chunk_shape=described.chunk_shape,
        stored_bytes=described.stored_bytes if described.chunk_shape else 0,
    )


@pytest.fixture
def published(tmp_path, monkeypatch):
    home = Home(tmp_path / "home")
    source = tmp_path / "source.h5"
    values = np.arange(np.prod(SHAPE)).reshape(SHAPE)
    with h5py.File(source, "w") as handle:
        handle["plain"] = values.astype(">f4")
        handle.create_dataset("packed", data=values, chunks=(8, 8, 8), compression="gzip")
        handle["pairs"] = np.array(
            [(v % 999, v % 251, v) for v in values.flat], dtype=PAIRS
        ).reshape(SHAPE)
        handle["alone"] = values
    settle(source)
    replicas = {
        name: reorganize(plan_reorganization(source, f"/{name}", order=order, home=home), home=home)
        for name, order in ORDERS.items()
    }
    with h5py.File(source) as handle:
        datasets = tuple(
            table_dataset(handle[name], source, replica) for name, replica in replicas.items()
        )
    table = RedirectTable(
        source_path=source, source_identity=identity_of(source), datasets=datasets
    )
    publish_table(home, table)
    monkeypatch.setenv("SDS_HOME", str(home.root))
    for name in ("SDS_DISABLE", "SDS_REDIRECT", "SDS_SERVICE_UID"):
        monkeypatch.delenv(name, raising=False)
    return source, home, table


def served(source, name, index):
    """The bytes that a replica serves, or None where the original is taken."""
    with h5py.File(source) as handle:
        dataset = handle[name]
        described = describe_open_dataset(dataset, source)
        slab, shape = selection_from_index(index, described.extent)
        result = np.zeros(shape, described.dtype)
        redirection = Redirection(described.file, described.file.stat())
        outcome = redirection.serve(default_home(), described, slab, result, dataset=dataset)
        return result if outcome is Outcome.SERVED else None


ACROSS = {
    "plain": [np.s_[:, :, 7], np.s_[:, ::7, 3:5], np.s_[1:, 2:9:3, 11:12]],
    "packed": [np.s_[:, 3, 39], np.s_[::2, :, 0]],
    "pairs": [np.s_[:, 5], np.s_[3:20, 29, ::9]],
}


@pytest.mark.parametrize("name", ORDERS)
def test_reads_across_the_grain_come_from_the_replica(published, name):
    source = published[0]
    for index in ACROSS[name]:
        with h5py.File(source) as handle:
            expected = handle[name][index]
        result = served(source, name, index)
        assert result is not None, (name, index)
        assert result.tobytes() == expected.tobytes()
        again = sds.read(source, name, index)
        assert again.dtype == expected.dtype
        assert again.tobytes() == expected.tobytes()


def test_reads_along_the_grain_and_of_others_come_from_the_original(published):
    source = published[0]
    assert served(source, "plain", np.s_[3]) is None
    assert served(source, "plain", np.s_[3, 4]) is None
    assert served(source, "alone", np.s_[:, :, 7]) is None


@pytest.mark.parametrize(
    "variable", [{"SDS_DISABLE": "1"}, {"SDS_REDIRECT": "0"}, {"SDS_HOME": "/nonexistent"}]
)
def test_the_environment_turns_it_off(published, monkeypatch, variable):
    for name, value in variable.items():
        monkeypatch.setenv(name, value)
    assert served(published[0], "plain", np.s_[:, :, 7]) is None


def test_the_disabled_file_turns_it_off(published):
    source, home, _ = published
    home.disabled.touch()
    assert served(source, "plain", np.s_[:, :, 7]) is None
    home.disabled.unlink()
    assert served(source, "plain", np.s_[:, :, 7]) is not None


def test_a_table_that_others_may_write_is_not_believed(published, caplog):
    source, home, _ = published
    path = table_path(home, source)
    path.chmod(0o622)
    assert served(source, "plain", np.s_[:, :, 7]) is None
    assert "may be written by others" in caplog.text


def test_a_damaged_table_means_the_original(published, caplog):
    source, home, _ = published
    path = table_path(home, source)
    damaged = bytearray(path.read_bytes())
    damaged[100] ^= 1
    path.write_bytes(damaged)
    assert served(source, "plain", np.s_[:, :, 7]) is None
    assert "from the original" in caplog.text


def test_a_replica_that_changed_or_is_gone_means_the_original(published, caplog):
    source, _, table = published
    replica = next(d for d in table.datasets if d.path == "/packed").candidates[0].path
    index = ACROSS["packed"][0]
    assert served(source, "packed", index) is not None
    kept = replica.stat()
    os.utime(replica)
    assert served(source, "packed", index) is None
    assert "changed since it was published" in caplog.text
    caplog.clear()
    hidden = replica.with_suffix(".away")
    replica.rename(hidden)
    assert served(source, "packed", index) is None
    assert "No such file" in caplog.text
    hidden.rename(replica)
    os.utime(replica, ns=(kept.st_atime_ns, kept.st_mtime_ns))  # ctime still differs
    assert served(source, "packed", index) is None


def test_damaged_metadata_means_the_original(published, monkeypatch, caplog):
    source, home, table = published
    monkeypatch.setattr("sds.client.open_replicas._checked", set())
    plain = next(d for d in table.datasets if d.path == "/plain")
    good = plain.candidates[0]
    wrong = replace(good, metadata_crc32c=good.metadata_crc32c ^ 1)
    publish_table(home, replace_candidate(table, plain, wrong))
    assert served(source, "plain", np.s_[:, :, 7]) is None
    assert "damaged" in caplog.text


def replace_candidate(table, dataset, candidate):
    others = tuple(d for d in table.datasets if d is not dataset)
    return replace(table, datasets=(*others, replace(dataset, candidates=(candidate,))))


def test_a_source_that_changed_means_the_original(published):
    source = published[0]
    kept = source.stat()
    os.utime(source)
    assert served(source, "plain", np.s_[:, :, 7]) is None
    os.utime(source, ns=(kept.st_atime_ns, kept.st_mtime_ns))
    assert served(source, "plain", np.s_[:, :, 7]) is None  # ctime differs


# ---- replicas in chunks, and of a part


@pytest.fixture
def cube(tmp_path, monkeypatch):
    home = Home(tmp_path / "other home")
    home.create()
    source = tmp_path / "cube.h5"
    with h5py.File(source, "w") as handle:
        values = np.arange(np.prod(SHAPE), dtype=">i4").reshape(SHAPE)
        handle.create_dataset("cube", data=values, chunks=(4, 5, 40))
    settle(source)
    monkeypatch.setenv("SDS_HOME", str(home.root))
    for name in ("SDS_DISABLE", "SDS_REDIRECT", "SDS_SERVICE_UID"):
        monkeypatch.delenv(name, raising=False)
    return source, home


def same_as_hdf5(source, index):
    """Return whether a replica served, once its bytes have been compared."""
    with h5py.File(source) as handle:
        expected = handle["cube"][index]
    result = served(source, "cube", index)
    if result is not None:
        assert result.tobytes() == expected.tobytes()
    assert sds.read(source, "cube", index).tobytes() == expected.tobytes()
    return result is not None


@pytest.mark.parametrize("storage", [{}, {"compression": "gzip", "shuffle": True}])
@pytest.mark.parametrize("order", [(2, 0, 1), (2, 1, 0), (1, 0, 2), (0, 1, 2)])
def test_chunks_of_any_order(cube, order, storage):
    source, home = cube
    replica = write_replica(source, "/cube", order, home, chunks=(7, 8, 9), **storage)
    publish_candidates(source, {"/cube": [replica]}, home)
    for index in (np.s_[:, :, 7], np.s_[::5, 3:, 1:30:7], np.s_[2:9, 4], np.s_[:, 5:9, 4:8]):
        assert same_as_hdf5(source, index), index


@pytest.mark.parametrize("storage", [{}, {"chunks": (7, 8, 9)}])
def test_a_part_serves_what_lies_in_it(cube, storage):
    source, home = cube
    box = Box(start=(3, 0, 10), extent=(20, 30, 29))
    replica = write_replica(source, "/cube", (2, 0, 1), home, region=box, **storage)
    publish_candidates(source, {"/cube": [replica]}, home)
    for index in (np.s_[3:23, :, 10], np.s_[4:20:3, 2:9, 38], np.s_[3:, 5, 10:39][:2]):
        inside = index[0].stop is not None
        assert same_as_hdf5(source, index) == inside, index
    for index in (np.s_[2:23, :, 10], np.s_[3:24, :, 10], np.s_[3:23, :, 9], np.s_[4:9, :, 39]):
        assert not same_as_hdf5(source, index), index


def held_tiles(seed, share):
    """Return tiles of 5 x 7 x 40 in any order, so great a share of all."""
    n_grid = 5 * 5 * 1
    tiles = np.random.default_rng(seed).permutation(n_grid)[: round(share * n_grid)].tolist()
    return SegmentList(tile_shape=(5, 7, 40), tiles=tuple(tiles), lengths=(3, 1, len(tiles) - 4))


@pytest.mark.parametrize("order", [(2, 0, 1), (1, 0, 2), (0, 1, 2)])
@pytest.mark.parametrize("share", [1.0, 0.7])
def test_tiles_serve_what_lies_in_those_that_are_held(cube, order, share):
    source, home = cube
    segments = held_tiles(3, share)
    replica = write_replica(source, "/cube", order, home, segments=segments)
    publish_candidates(source, {"/cube": [replica]}, home)
    random = np.random.default_rng(1)
    n_served = 0
    for _ in range(150):
        index = tuple(
            slice(begin, begin + int(random.integers(1, n - begin + 1)), int(random.integers(1, 9)))
            for begin, n in ((int(random.integers(n)), n) for n in SHAPE)
        )
        slab, _ = selection_from_index(index, SHAPE)
        holds = segments.holds(slab, SHAPE)
        assert same_as_hdf5(source, index) == holds, index
        n_served += holds
    assert n_served == 150 if share == 1 else 10 < n_served < 140


def test_a_read_of_more_tiles_costs_more(cube):
    source, home = cube
    replica = write_replica(source, "/cube", (0, 1, 2), home, segments=held_tiles(3, 1))
    table = publish_candidates(source, {"/cube": [replica]}, home)
    publish_table(home, with_models(table, original_s=1.0, replica_s=0.3))
    one, two, four = np.s_[5:9, 7:13, :], np.s_[5:9, 9:15, :], np.s_[3:7, 9:15, :]
    assert [served(source, "cube", index) is not None for index in (one, two, four)] == [
        True,
        True,
        False,
    ]
    with h5py.File(source) as handle:
        for index in (four, one, two, four, one):  # of one shape, by what was decided before
            assert sds.read(source, "cube", index).tobytes() == handle["cube"][index].tobytes()


@pytest.mark.parametrize("damage", ["short", "touched", "metadata"])
def test_damaged_tiles_mean_the_original(cube, damage, monkeypatch, caplog):
    source, home = cube
    monkeypatch.setattr("sds.client.open_replicas._checked", set())
    replica = write_replica(source, "/cube", (2, 0, 1), home, segments=held_tiles(3, 1))
    if damage == "touched":
        os.utime(replica.path)
    elif damage == "short":
        os.truncate(replica.path, replica.path.stat().st_size - 4)
    else:
        with replica.path.open("r+b") as file:
            file.seek(100)
            file.write(b"damage")
        replica = replace(replica, identity=identity_of(replica.path))
    publish_candidates(source, {"/cube": [replica]}, home)
    assert not same_as_hdf5(source, np.s_[:, :, 7])
    assert "from the original" in caplog.text


def test_filters_cost(cube):
    source, home = cube
    replica = write_replica(source, "/cube", (2, 0, 1), home, chunks=(1, 24, 30))
    publish_candidates(source, {"/cube": [replica]}, home, always=False)
    assert same_as_hdf5(source, np.s_[:, :, 7])
    slow = replace(replica, decode_s_per_byte=1e-3)
    publish_candidates(source, {"/cube": [slow]}, home, always=False)
    assert not same_as_hdf5(source, np.s_[:, :, 7])
    # The original's filters cost as well, and a plane takes all of its chunks.
    table = publish_candidates(source, {"/cube": [slow]}, home, always=False)
    (dataset,) = table.datasets
    dataset = replace(dataset, decode_s_per_byte=1e-3)
    publish_table(home, replace(table, datasets=(dataset,)))
    assert same_as_hdf5(source, np.s_[:, :, 7])


@pytest.mark.parametrize("at", range(0, 100, 7))
def test_damage_of_chunks_means_the_original(cube, at, caplog):
    source, home = cube
    replica = write_replica(source, "/cube", (2, 0, 1), home, chunks=(40, 24, 30))
    with h5py.File(replica.path) as handle:
        chunk = handle["cube"].id.get_chunk_info(0)
    size = replica.path.stat().st_size
    # Half of them in the chunk, the others around it.
    place = chunk.byte_offset + at * 1009 if at % 2 else at * size // 3000 % chunk.byte_offset
    with replica.path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)
        file.seek(place)
        file.write(bytes([byte[0] ^ 0x55]))
    changed = replace(replica, identity=identity_of(replica.path))
    publish_candidates(source, {"/cube": [changed]}, home)
    if not same_as_hdf5(source, np.s_[:, :, 7]):
        assert "from the original" in caplog.text
    else:
        assert not at % 2, "damage of the chunk was not seen"
