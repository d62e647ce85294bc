"""Replicas in chunks, filtered and of a part give the same bytes as the original."""

import dataclasses
import itertools
import json
import os

import h5py
import numpy as np
import pytest

from sds.geometry import Box
from sds.hdf5.identity import identity_of
from sds.redirect.tables import publish_table, read_table
from tests.redirected import (
    grid_and_array,
    publish_candidates,
    reads_by_replica,
    settle,
    write_replica,
)
from tests.served_in_turn import READ_IN_TURN
from tests.under_connector import (
    connector_environment,
    decisions,
    native_environment,
    run_python,
)
from tests.vol.test_redirect import RANDOM_READS

KINDS = {
    "contiguous": {},
    "chunked": {"chunks": True},
    "filtered": {"chunks": True, "compression": "gzip", "shuffle": True},
}
SHAPE = (18, 28, 22)
TYPES = ["<f8", ">i4", "<i2", "S7", [("n", "<i4"), ("x", ">f8")], "<c8"]


@pytest.fixture
def cube(tmp_path):
    return make_cube(tmp_path / "cube.h5")


def make_cube(path, **storage):
    values = np.arange(np.prod(SHAPE), dtype="f8").reshape(SHAPE)
    with h5py.File(path, "w") as file:
        file.create_dataset("cube", data=values, **storage)
    settle(path)
    return path


def values_of_type(shape, dtype):
    number = np.arange(np.prod(shape)).reshape(shape)
    dtype = np.dtype(dtype)
    if dtype.kind == "S":
        return np.char.mod("%06d", number).astype(dtype)
    if dtype.names:
        return np.rec.fromarrays([number, number * 0.5], dtype=dtype)
    return number.astype(dtype)


def served(home):
    return sum(n for replica, n in reads_by_replica(home).items() if replica > 0)


def run_and_tell(program, *arguments, home, **variables):
    """Return what a program prints under the connector, the reads served, and the reasons."""
    log = home.root / "log"
    log.unlink(missing_ok=True)
    for file in home.spool.iterdir():
        file.unlink()
    env = connector_environment(home.root, SDS_DEBUG=log, **variables)
    result = run_python(program, *arguments, env=env)
    assert result.stderr == ""
    return result.stdout, served(home), [line[3] for line in decisions(log)]


# ---- every order, of a whole and of a part


def orders():
    for rank in range(1, 5):
        yield from itertools.permutations(range(rank))


def with_chunks(shape, storage, random):
    """Return the arguments of h5py for these, with chunks that do not divide the shape."""
    if "chunks" not in storage:
        return storage
    chunks = tuple(int(random.integers(1, max(2, n // 2 + 2))) for n in shape)
    return storage | {"chunks": tuple(min(c, n) for c, n in zip(chunks, shape, strict=True))}


@pytest.mark.parametrize("part", [False, True], ids=["whole", "part"])
@pytest.mark.parametrize("kind", KINDS)
def test_random_reads_of_every_order(kind, part, tmp_path, home):
    random = np.random.default_rng(len(kind) + part)
    source = tmp_path / "source.h5"
    shapes = {1: (60,), 2: (23, 17), 3: (9, 14, 11), 4: (5, 8, 6, 7)}
    with h5py.File(source, "w") as file:
        for i, order in enumerate(orders()):
            file[f"{i:02d}"] = values_of_type(shapes[len(order)], TYPES[i % len(TYPES)])
    settle(source)
    candidates = {}
    for i, order in enumerate(orders()):
        shape = shapes[len(order)]
        low = [int(random.integers(0, 2)) for _ in shape] if part else [0] * len(shape)
        high = [n - int(random.integers(0, 2)) if part else n for n in shape]
        box = Box(start=tuple(low), extent=tuple(b - a for a, b in zip(low, high, strict=True)))
        stored = tuple(box.extent[axis] for axis in order)
        storage = with_chunks(stored, KINDS[kind], random)
        replica = write_replica(
            source, f"/{i:02d}", order, home, number=i + 1, region=box if part else None, **storage
        )
        candidates[f"/{i:02d}"] = [replica]
    publish_candidates(source, candidates, home)
    # No more than some replicas in chunks are open at a time: these are read in turn.
    arguments = (source, 7, 33 * 27, *(("in turn",) if KINDS[kind] else ()))
    native = run_python(RANDOM_READS, *arguments, env=native_environment())
    redirected = run_python(RANDOM_READS, *arguments, env=connector_environment(home.root))
    assert redirected.stdout == native.stdout
    assert redirected.stderr == ""
    by_replica = reads_by_replica(home)
    assert len(by_replica) > 25  # of 33 orders, nearly all
    assert served(home) > (100 if part else 500), by_replica


def test_large_reads_go_in_pieces_that_decode_each_chunk_once(tmp_path, home):
    source = tmp_path / "large.h5"
    shape = (300, 70, 130)
    values = np.arange(np.prod(shape), dtype="f8").reshape(shape)
    with h5py.File(source, "w") as file:
        file["cube"] = values
    settle(source)
    replica = write_replica(
        source, "/cube", (2, 0, 1), home, chunks=(32, 64, 16), compression="gzip", shuffle=True
    )
    publish_candidates(source, {"/cube": [replica]}, home)
    program = """
        import sys, h5py, numpy as np
        def bytes_read():
            with open("/proc/self/io") as io:
                return int(io.readline().split()[1])
        with h5py.File(sys.argv[1]) as file:
            data = file["cube"]
            expected = np.arange(data.size, dtype="f8").reshape(data.shape)
            data[:, :, 3]
            for index in (np.s_[:, :, 1:], np.s_[::2], np.s_[:, 1:69:2, ::3], np.s_[5:, 3:, 129]):
                before = bytes_read()
                found = data[index]
                assert bytes_read() - before < 1.02 * int(sys.argv[2]) + 65536, index
                assert np.array_equal(found, expected[index]), index
            assert np.array_equal(data.astype("f4")[:, 1:], expected[:, 1:].astype("f4"))
            space = data.id.get_space()
            space.select_hyperslab((0, 0, 0), (60, 7, 26), (5, 10, 5), (3, 6, 4))
            data.id.read(h5py.h5s.create_simple((60 * 3 * 7 * 6 * 26 * 4,)), space,
                         packed := np.empty(60 * 3 * 7 * 6 * 26 * 4))
            on = [[s * i + j for i in range(c) for j in range(b)]
                  for c, s, b in ((60, 5, 3), (7, 10, 6), (26, 5, 4))]
            assert np.array_equal(packed, expected[np.ix_(*on)].ravel())
    """
    run_python(program, source, replica.stored_bytes, env=connector_environment(home.root))
    assert reads_by_replica(home) == {1: 7}


def test_chunks_in_the_order_of_the_source(cube, home):
    replica = write_replica(cube, "/cube", (0, 1, 2), home, chunks=(4, 5, 6), compression="gzip")
    publish_candidates(cube, {"/cube": [replica]}, home)
    program = """
        import sys, h5py, numpy as np
        with h5py.File(sys.argv[1]) as file:
            data = file["cube"]
            expected = np.arange(data.size, dtype="f8").reshape(data.shape)
            out = np.zeros((40, 30, 50))
            for index in (np.s_[:, 3], np.s_[2:9, ::3, 4:], np.s_[:, :, 5]):
                assert np.array_equal(data[index], expected[index])
            data.read_direct(out, np.s_[1:5, 2:9, 3:20], np.s_[3:11:2, 4:11, 5:39:2])
            assert np.array_equal(out[3:11:2, 4:11, 5:39:2], expected[1:5, 2:9, 3:20])
    """
    run_and_tell(program, cube, home=home)
    assert reads_by_replica(home) == {1: 4}


READ_IN_AND_OUT = """
    import sys, h5py, numpy as np
    with h5py.File(sys.argv[1]) as file:
        data = file["cube"]
        expected = np.arange(data.size, dtype="f8").reshape(data.shape)
        for _ in range(70):   # reads of one shape, for longer than a decision lasts
            for at in (0, 4, 8, 13, 14):
                assert np.array_equal(data[at:at + 4, 3, 2:9], expected[at:at + 4, 3, 2:9]), at
"""


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_serves_what_lies_in_it(kind, cube, home):
    box = Box(start=(4, 0, 0), extent=(13, 28, 22))
    storage = {"chunks": (3, 5, 4)} if KINDS[kind] else {}
    replica = write_replica(cube, "/cube", (2, 0, 1), home, region=box, **KINDS[kind] | storage)
    publish_candidates(cube, {"/cube": [replica]}, home)
    run_and_tell(READ_IN_AND_OUT, cube, home=home)
    assert reads_by_replica(home) == {0: 2 * 70, 1: 3 * 70}


def test_several_parts_serve_each_its_own(cube, home):
    boxes = [Box(start=(a, 0, 0), extent=(8, 28, 22)) for a in (0, 8)]
    parts = [
        write_replica(cube, "/cube", order, home, number=i + 1, region=box, **storage)
        for i, (order, box, storage) in enumerate(
            zip([(2, 0, 1), (1, 2, 0)], boxes, [{}, {"chunks": (5, 5, 3)}], strict=True)
        )
    ]
    publish_candidates(cube, {"/cube": parts}, home)
    run_and_tell(READ_IN_AND_OUT, cube, home=home)
    # At 0 and 4 the first holds all, at 8 the second; from 13 on neither does.
    assert reads_by_replica(home) == {0: 140, 1: 140, 2: 70}


# ---- other libraries than the one that wrote it


def test_netcdf4_and_pytables_read_what_h5py_wrote(tmp_path, home):
    grid, array = grid_and_array(tmp_path, (24, 16, 15))
    for file, path, order in ((grid, "/t", (1, 2, 0)), (array, "/a", (2, 1, 0))):
        replica = write_replica(
            file, path, order, home, chunks=(5, 6, 4), compression="gzip", shuffle=True
        )
        publish_candidates(file, {path: [replica]}, home)
    program = """
        import sys, netCDF4, tables, h5py
        with netCDF4.Dataset(sys.argv[1]) as file:
            print(file["t"][:, 3, 2].tolist(), file["t"][2:20:3, :, 1].tolist())
        with tables.open_file(sys.argv[2]) as file:
            print(file.root.a[:, 2, 1].tolist(), file.root.a[::5, 3].tolist())
            with h5py.File(sys.argv[2]) as other:
                print(other["a"][:, 2, 1].tolist())
        print(tables.hdf5_version, netCDF4.__hdf5libversion__)
    """
    native = run_python(program, grid, array, env=native_environment())
    redirected = run_python(program, grid, array, env=connector_environment(home.root))
    assert redirected.stdout == native.stdout
    assert reads_by_replica(home)[1] >= 5
    assert len({version.split()[0] for version in native.stdout.splitlines()[-1].split()}) == 2


def test_a_library_without_the_filter_reads_the_original(tmp_path, home):
    # h5py brings LZF; netCDF4 and PyTables do not.
    array = make_cube(tmp_path / "array.h5")
    replica = write_replica(array, "/cube", (2, 1, 0), home, chunks=(5, 6, 4), compression="lzf")
    publish_candidates(array, {"/cube": [replica]}, home)
    by_tables = """
        import sys, tables
        with tables.open_file(sys.argv[1]) as file:
            print(file.root.cube[:, 2, 1].tolist())
    """
    by_h5py = """
        import sys, h5py
        with h5py.File(sys.argv[1]) as file:
            print(file["cube"][:, 2, 1].tolist())
    """
    expected = run_python(by_tables, array, env=native_environment()).stdout
    found, n_served, reasons = run_and_tell(by_tables, array, home=home)
    assert (found, n_served) == (expected, 0)
    assert "the program's HDF5 lacks a filter of the replica" in reasons
    assert run_and_tell(by_h5py, array, home=home)[:2] == (expected, 1)


# ---- what does not fit


READ_PLANE = """
    import sys, h5py
    with h5py.File(sys.argv[1]) as file:
        print(file["cube"][:, :, 3].tolist())
"""


def read_plane(path, home, **variables):
    stdout, n_served, reasons = run_and_tell(READ_PLANE, path, home=home, **variables)
    return json.loads(stdout), n_served, reasons


def plane_of(path):
    with h5py.File(path) as file:
        return file["cube"][:, :, 3].tolist()


def test_a_replica_that_is_not_what_the_table_says(cube, home, tmp_path):
    good = write_replica(cube, "/cube", (2, 0, 1), home, chunks=(7, 8, 9))
    publish_candidates(cube, {"/cube": [good]}, home)
    assert read_plane(cube, home)[:2] == (plane_of(cube), 1)
    other_type = tmp_path / "other.h5"
    with h5py.File(cube) as file, h5py.File(other_type, "w") as copy:
        copy["cube"] = file["cube"].astype("i8")[:]
    wrong = {
        "order": dataclasses.replace(good, order=(2, 1, 0)),
        "chunk": dataclasses.replace(good, chunk_shape=(7, 8, 8)),
        "part": dataclasses.replace(good, region=Box(start=(0, 0, 1), extent=(18, 28, 21))),
        "storage": write_replica(cube, "/cube", (2, 0, 1), home, number=2),
        "type": write_replica(other_type, "/cube", (2, 0, 1), home, number=3, chunks=(7, 8, 9)),
    }
    wrong["storage"] = dataclasses.replace(
        wrong["storage"], chunk_shape=(7, 8, 9), data_offset_bytes=0, metadata_crc32c=0
    )
    for name, candidate in wrong.items():
        publish_candidates(cube, {"/cube": [candidate]}, home)
        values, n_served, reasons = read_plane(cube, home)
        assert (values, n_served) == (plane_of(cube), 0), name
        assert "the replica is not what the table says of it" in reasons, (name, reasons)


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ({"fletcher32": False}, "the replica's chunks have no checksums"),
        ({"libver": ("earliest", "v108")}, "the replica's metadata have no checksums"),
    ],
)
def test_a_replica_without_checksums_is_not_used(how, reason, cube, home):
    replica = write_replica(cube, "/cube", (2, 0, 1), home, chunks=(7, 8, 9), **how)
    publish_candidates(cube, {"/cube": [replica]}, home)
    values, n_served, reasons = read_plane(cube, home)
    assert (values, n_served) == (plane_of(cube), 0)
    assert reason in reasons


@pytest.mark.parametrize("what", ["missing", "mode", "owner", "changed", "directory"])
def test_a_replica_that_is_not_to_be_trusted(what, cube, home):
    replica = write_replica(cube, "/cube", (2, 0, 1), home, chunks=(7, 8, 9))
    publish_candidates(cube, {"/cube": [replica]}, home)
    if what == "missing":
        replica.path.unlink()
    elif what == "mode":
        replica.path.chmod(0o660)
    elif what == "owner":
        if os.geteuid() != 0:
            pytest.skip("only root gives files away")
        os.chown(replica.path, 12345, -1)
    elif what == "changed":
        os.utime(replica.path)
    else:
        replica.path.unlink()
        replica.path.mkdir()
    if what in ("mode", "owner"):
        candidate = dataclasses.replace(replica, identity=identity_of(replica.path))
        publish_candidates(cube, {"/cube": [candidate]}, home)
    values, n_served, reasons = read_plane(cube, home)
    assert (values, n_served) == (plane_of(cube), 0)
    assert any("replica" in reason for reason in reasons), reasons


# ---- damage

DAMAGE = """
    import dataclasses, pathlib, sys
    import h5py, numpy as np
    from sds.home import Home
    from sds.hdf5.identity import identity_of
    from sds.redirect.tables import publish_table, read_table

    source, home, step = sys.argv[1], Home(pathlib.Path(sys.argv[2])), int(sys.argv[3])
    table = read_table(home, source)
    (dataset,) = table.datasets
    (candidate,) = dataset.candidates
    path = candidate.path
    whole = path.read_bytes()
    expected = np.arange(np.prod(dataset.extent), dtype="f8").reshape(dataset.extent)

    def read(content, what):
        path.write_bytes(content)
        changed = dataclasses.replace(candidate, identity=identity_of(path), stored_bytes=0)
        entry = dataclasses.replace(dataset, candidates=(changed,))
        publish_table(home, dataclasses.replace(table, datasets=(entry,)))
        with h5py.File(source) as file:
            data = file["cube"]
            for index in (np.s_[:, :, 3], np.s_[:, 1, ::5], np.s_[:, ::3]):
                assert np.array_equal(data[index], expected[index]), what

    read(whole, "nothing")
    for at in range(0, len(whole), step):
        damaged = bytearray(whole)
        damaged[at] ^= 0x41
        read(damaged, ("flip", at))
    for begin in range(0, len(whole), 512):
        read(whole[:begin] + bytes(min(512, len(whole) - begin)) + whole[begin + 512:], begin)
    for length in range(0, len(whole), 10 * step):
        read(whole[:length], ("length", length))
"""


@pytest.mark.parametrize("kind", ["chunked", "filtered"])
def test_damage_anywhere_leads_to_the_original(kind, cube, home):
    storage = KINDS[kind] | {"chunks": (8, 9, 14)}
    replica = write_replica(cube, "/cube", (2, 0, 1), home, **storage)
    size = replica.path.stat().st_size
    table = publish_candidates(cube, {"/cube": [replica]}, home)
    assert read_table(home, cube) == table
    # Prime steps reach headers, chunk index and chunks alike.
    step = max(7, size // 601) | 1
    result = run_python(DAMAGE, cube, home.root, step, env=connector_environment(home.root))
    assert result.stderr == ""
    by_replica = reads_by_replica(home)
    assert by_replica[0] > 300, by_replica
    assert by_replica[1] > 3, by_replica  # of the undamaged, and where damage touches no read


def test_after_a_failed_read_the_replica_is_not_tried_again(cube, home):
    replica = write_replica(cube, "/cube", (2, 0, 1), home, chunks=(1, 18, 28), compression="gzip")
    with h5py.File(replica.path) as file:
        damaged = file["cube"].id.get_chunk_info(3).byte_offset
    with replica.path.open("r+b") as file:
        file.seek(damaged + 5)
        byte = file.read(1)
        file.seek(damaged + 5)
        file.write(bytes([byte[0] ^ 1]))
    replica = dataclasses.replace(replica, identity=identity_of(replica.path))
    publish_candidates(cube, {"/cube": [replica]}, home)
    program = """
        import sys, h5py
        for turn in range(2):
            with h5py.File(sys.argv[1]) as file:
                print([file["cube"][:, :, k].sum() for k in (1, 3, 1, 2)])
    """
    native = run_python(program, cube, env=native_environment())
    stdout, n_served, reasons = run_and_tell(program, cube, home=home)
    assert stdout == native.stdout
    assert n_served == 2  # the first of each turn
    assert reasons.count("the replica could not be read") == 6


@pytest.mark.parametrize("how", ["renamed over", "written over", "removed"])
def test_a_replica_that_goes_during_the_run(how, cube, home):
    replica = write_replica(cube, "/cube", (2, 0, 1), home, chunks=(7, 8, 9))
    publish_candidates(cube, {"/cube": [replica]}, home)
    program = """
        import os, sys, h5py
        how, source, replica = sys.argv[1:]
        with h5py.File(source) as file:
            data = file["cube"]
            before = data[:, :, 3].tolist()
            if how == "removed":
                os.unlink(replica)
            else:
                content = bytearray(open(replica, "rb").read())
                content[-3000:] = bytes(3000)
                new = replica + ".new" if how == "renamed over" else replica
                with open(new, "r+b" if new == replica else "wb") as out:
                    out.write(content)
                os.rename(new, replica)
            assert data[:, :, 3].tolist() == before
        print("done")
    """
    stdout, n_served, reasons = run_and_tell(program, how, cube, replica.path, home=home)
    assert stdout == "done\n"
    assert n_served == 1, reasons


# ---- what a program sees


def test_nothing_more_is_open_than_natively(cube, home):
    replica = write_replica(cube, "/cube", (2, 0, 1), home, chunks=(7, 8, 9), compression="gzip")
    publish_candidates(cube, {"/cube": [replica]}, home)
    program = """
        import sys, h5py
        def count():
            return [h5py.h5f.get_obj_count(h5py.h5f.OBJ_ALL, kind) for kind in
                    (h5py.h5f.OBJ_FILE, h5py.h5f.OBJ_DATASET, h5py.h5f.OBJ_GROUP,
                     h5py.h5f.OBJ_ATTR)]
        file = h5py.File(sys.argv[1])
        data = file["cube"]
        data[:, :, 3]
        print(count(), h5py.h5f.get_obj_count(file.id))
        # A dataset outlives its file.
        file.close()
        file = h5py.File(sys.argv[1])
        data = file["cube"]
        data[:, :, 3]
        del file
        print(data[:, 2, 3].tolist(), count())
        del data
        print(count())
        left_open = h5py.File(sys.argv[1])
        kept = left_open["cube"]
        print(kept[:, :, 3].tolist())
    """
    native = run_python(program, cube, env=native_environment())
    stdout, n_served, _ = run_and_tell(program, cube, home=home)
    assert stdout == native.stdout
    assert n_served == 4


def test_descriptors_of_replicas_go_with_their_source(cube, home):
    replica = write_replica(cube, "/cube", (2, 0, 1), home, chunks=(7, 8, 9))
    publish_candidates(cube, {"/cube": [replica]}, home)
    program = """
        import os, sys, h5py
        def replicas():
            return sum("/replicas/" in os.path.realpath(f"/proc/self/fd/{fd}")
                       for fd in os.listdir("/proc/self/fd"))
        for _ in range(3):
            with h5py.File(sys.argv[1]) as file:
                file["cube"][:, :, 3]
                assert replicas() == 1
            assert replicas() == 0
    """
    assert run_and_tell(program, cube, home=home)[1] == 3


READ_PLANES = (
    READ_IN_TURN
    + """
    import sys, h5py

    def of(file):
        # What reads a plane of a file and compares it, and the name of its replica.
        def read():
            planes.append(file["cube"][:, :, 3])
            assert (planes[-1] == planes[0]).all()
            del planes[1:]
            assert len(open_replicas()) <= 4
        return read, os.path.basename(file.filename)[:-3] + ".cube-1.h5"

    planes = []
"""
)


def counted(stdout):
    """Return the reads that a program counted as {1: served, 0: others}."""
    found = json.loads(stdout)
    return {number: found[name] for number, name in ((1, "served"), (0, "missed")) if name in found}


@pytest.fixture
def cubes(tmp_path, home):
    sources = [make_cube(tmp_path / f"{i}.h5") for i in range(12)]
    for source in sources:
        replica = write_replica(source, "/cube", (2, 0, 1), home, chunks=(7, 8, 9))
        publish_candidates(source, {"/cube": [replica]}, home)
    return sources


def test_no_more_than_some_replicas_are_open(cubes, home):
    program = (
        READ_PLANES
        + """
    files = [h5py.File(name) for name in sys.argv[1:]]
    for file in files[:3]:
        assert is_served(*of(file))
    # As long as those that are open were used a moment ago, others find no room.
    while all([is_served(*of(file)) for file in files]):
        assert len(open_replicas()) == 3
    for file in files:
        read_until_served(*of(file))
        assert len(open_replicas()) == 3
    for file in files:
        file.close()
    assert not open_replicas()
    print(json.dumps(n_reads))
    """
    )
    stdout, _, reasons = run_and_tell(program, *cubes, home=home)
    assert reads_by_replica(home) == counted(stdout)
    assert counted(stdout)[1] >= 3 + 12
    assert "other replicas in chunks are in use" in reasons


def test_one_replica_serves_many_that_have_the_file_open(cube, home):
    replica = write_replica(cube, "/cube", (2, 0, 1), home, chunks=(7, 8, 9))
    publish_candidates(cube, {"/cube": [replica]}, home)
    program = (
        READ_PLANES
        + """
    files = [h5py.File(sys.argv[1]) for _ in range(40)]
    planes = [file["cube"][:, :, 3] for file in files]
    files.pop(0).close()
    planes.append(files[-1]["cube"][:, :, 3])
    assert len(open_replicas()) == 1
    assert all((plane == planes[0]).all() for plane in planes)
    """
    )
    run_and_tell(program, cube, home=home)
    assert reads_by_replica(home) == {0: 8, 1: 32 + 1}


@pytest.mark.parametrize("how", ["renamed over", "removed", "writable by others"])
def test_a_replica_that_changes_while_it_is_closed(how, cubes, home):
    replica = home.replicas / "0.cube-1.h5"
    program = (
        READ_PLANES
        + """
    how, replica, *sources = sys.argv[1:]
    first, *others = [h5py.File(name) for name in sources]
    assert is_served(*of(first))
    while os.path.basename(replica) in open_replicas():
        for file in others:
            is_served(*of(file))
        time.sleep(0.01)
    if how == "removed":
        os.unlink(replica)
    elif how == "writable by others":
        os.chmod(replica, 0o622)
    else:
        with open(replica, "rb") as old, open(replica + ".new", "wb") as new:
            new.write(old.read()[:-3000] + bytes(3000))
        os.rename(replica + ".new", replica)
    for file in others:
        file.close()   # makes room
    assert not is_served(*of(first))
    print(json.dumps(n_reads))
    """
    )
    stdout, n_served, reasons = run_and_tell(program, how, replica, *cubes[:4], home=home)
    assert n_served >= 4
    assert reads_by_replica(home) == counted(stdout)
    expected = {"removed": "the replica is missing"}
    assert reasons[-1] == expected.get(how, "the replica has changed since it was published")


def test_libraries_of_a_process_share_the_room(cubes, home):
    program = (
        READ_PLANES
        + """
    import netCDF4, tables
    by_h5py = [h5py.File(name) for name in sys.argv[1:4]]
    by_netcdf, by_tables = netCDF4.Dataset(sys.argv[4]), tables.open_file(sys.argv[5])

    def read_by_netcdf():
        assert (by_netcdf["cube"][:, :, 3] == planes[0]).all()

    def read_by_tables():
        assert (by_tables.root.cube[:, :, 3] == planes[0]).all()

    for file in by_h5py:
        assert is_served(*of(file))
    assert is_served(read_by_netcdf, "3.cube-1.h5")
    assert len(open_replicas()) == 4
    assert not is_served(read_by_tables, "4.cube-1.h5")   # of the original: no room
    assert len(open_replicas()) == 4
    while len(open_replicas()) == 4:
        assert is_served(*of(by_h5py[0]))   # leaves some, once others are idle
        time.sleep(0.01)
    assert len(open_replicas()) == 3
    assert is_served(read_by_tables, "4.cube-1.h5")
    assert len(open_replicas()) == 4
    by_tables.close()
    by_netcdf.close()
    print(json.dumps(n_reads))
    """
    )
    stdout, n_served, _ = run_and_tell(program, *cubes[:5], home=home)
    assert n_served >= 6
    assert reads_by_replica(home) == counted(stdout)
    assert counted(stdout)[0] == 1


@pytest.mark.parametrize("how", ["closed", "reused"])
def test_a_descriptor_that_the_program_closed(how, cube, home):
    replica = write_replica(cube, "/cube", (2, 0, 1), home, chunks=(7, 8, 9))
    publish_candidates(cube, {"/cube": [replica]}, home)
    program = """
        import os, sys, h5py
        with h5py.File(sys.argv[1]) as file:
            data = file["cube"]
            before = data[:, :, 3].tolist()
            replica = next(int(fd) for fd in os.listdir("/proc/self/fd")
                           if "/replicas/" in os.path.realpath(f"/proc/self/fd/{fd}"))
            os.close(replica)
            if sys.argv[2] == "reused":
                os.dup2(os.open(sys.executable, os.O_RDONLY), replica)
            assert data[:, :, 3].tolist() == before
        if sys.argv[2] == "reused":
            os.fstat(replica)   # it is the program's, and closed by nobody else
        print("done")
    """
    assert run_and_tell(program, cube, how, home=home)[:2] == ("done\n", 1)


def test_the_program_may_open_the_replica_itself(cube, home):
    replica = write_replica(cube, "/cube", (2, 0, 1), home, chunks=(7, 8, 9))
    publish_candidates(cube, {"/cube": [replica]}, home)
    program = """
        import sys, h5py
        source, replica = sys.argv[1:]
        with h5py.File(source) as file:
            before = file["cube"][:, :, 3].tolist()
            with h5py.File(replica) as other:
                assert other["cube"][3].tolist() == before
            with h5py.File(replica, "r+") as other:
                other["cube"][3] = -1
            assert file["cube"][:, :, 3].tolist() == before
        print("done")
    """
    assert run_and_tell(program, cube, replica.path, home=home)[:2] == ("done\n", 1)


def test_properties_of_the_program_stay_its_own(tmp_path, home):
    # A program may switch checksums off for a damaged original; SDS must not switch them on.
    source = make_cube(tmp_path / "checked.h5", chunks=(6, 7, 11), fletcher32=True)
    with h5py.File(source) as file:
        damaged = file["cube"].id.get_chunk_info(0).byte_offset
    with source.open("r+b") as file:
        file.seek(damaged + 5)
        byte = file.read(1)
        file.seek(damaged + 5)
        file.write(bytes([byte[0] ^ 1]))
    settle(source)
    good = make_cube(tmp_path / "good.h5")
    replica = write_replica(good, "/cube", (2, 0, 1), home, chunks=(1, 18, 28))
    with h5py.File(replica.path) as file:
        damaged = file["cube"].id.get_chunk_info(3).byte_offset
    with replica.path.open("r+b") as file:
        file.seek(damaged + 5)
        file.write(b"abc")
    replica = dataclasses.replace(replica, identity=identity_of(replica.path))
    publish_candidates(source, {"/cube": [replica]}, home)
    program = """
        import ctypes, sys
        import h5py, numpy as np
        with open("/proc/self/maps") as maps:
            path = next(line[line.index("/") :].rstrip() for line in maps if "/libhdf5-" in line)
        hdf5 = ctypes.CDLL(path)
        lenient = h5py.h5p.create(h5py.h5p.DATASET_XFER)
        assert hdf5.H5Pset_edc_check(ctypes.c_int64(lenient.id), 0) >= 0
        with h5py.File(sys.argv[1]) as file:
            space = file["cube"].id.get_space()
            space.select_hyperslab((0, 0, 3), (18, 28, 1))
            out = np.zeros((18, 28))
            file["cube"].id.read(h5py.h5s.create_simple(out.shape), space, out, dxpl=lenient)
            print(out.tolist())
            try:
                file["cube"][:, :, 3]
            except OSError as error:
                print(error)
    """
    native = run_python(program, source, env=native_environment())
    assert "filter returned failure" in native.stdout
    stdout, n_served, reasons = run_and_tell(program, source, home=home)
    assert (stdout, n_served) == (native.stdout, 0)
    assert "the replica could not be read" in reasons


@pytest.mark.parametrize("way", ["threads", "fork"])
def test_readers_at_the_same_time(way, cube, home):
    replica = write_replica(cube, "/cube", (2, 0, 1), home, chunks=(7, 8, 9), compression="gzip")
    publish_candidates(cube, {"/cube": [replica]}, home)
    program = """
        import multiprocessing, sys, threading, h5py, numpy as np
        way, path = sys.argv[1:]
        expected = np.arange(18 * 28 * 22, dtype="f8").reshape(18, 28, 22)

        def check(seed, data):
            random = np.random.default_rng(seed)
            for _ in range(100):
                k = int(random.integers(22))
                assert np.array_equal(data[:, :, k], expected[:, :, k])
                with h5py.File(path) as again:
                    assert np.array_equal(again["cube"][:, k], expected[:, k])

        with h5py.File(path) as file:
            data = file["cube"]
            data[:, :, 1]
            if way == "threads":
                workers = [threading.Thread(target=check, args=(i, data)) for i in range(4)]
            else:
                start = multiprocessing.get_context("fork").Process
                workers = [start(target=check, args=(i, data)) for i in range(3)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
            assert way == "threads" or not any(worker.exitcode for worker in workers)
            check(9, data)
        print("done")
    """
    assert run_and_tell(program, way, cube, home=home)[:1] == ("done\n",)
    by_replica = reads_by_replica(home)
    # A process that multiprocessing forks may lose the last seconds of its trace.
    assert by_replica[1] > (500 if way == "threads" else 200), by_replica


# ---- prediction


def test_the_cost_of_filters_decides(tmp_path, home):
    shape = (256, 256, 64)
    source = tmp_path / "cube.h5"
    with h5py.File(source, "w") as file:
        file.create_dataset("cube", shape, "f4", chunks=(32, 32, 64), compression="gzip")
        file["cube"][...] = 1
    settle(source)
    replica = write_replica(
        source, "/cube", (2, 0, 1), home, chunks=(1, 256, 256), compression="gzip"
    )
    program = """
        import sys, h5py
        with h5py.File(sys.argv[1]) as file:
            for k in range(10):
                file["cube"][:, :, k]
    """

    def serves(*, original_s, replica_s):
        candidate = dataclasses.replace(replica, decode_s_per_byte=replica_s)
        table = publish_candidates(source, {"/cube": [candidate]}, home, always=False)
        (dataset,) = table.datasets
        dataset = dataclasses.replace(dataset, decode_s_per_byte=original_s)
        publish_table(home, dataclasses.replace(table, datasets=(dataset,)))
        return run_and_tell(program, source, home=home)[1]

    # A plane takes 64 chunks of the original, 16 MiB decoded, and one of the replica, 256 KiB.
    assert serves(original_s=0, replica_s=0) == 10
    assert serves(original_s=3e-9, replica_s=3e-9) == 10
    assert serves(original_s=0, replica_s=1e-6) == 0
    assert serves(original_s=1e-6, replica_s=1e-6) == 10


def test_the_choice_between_chunks_and_a_contiguous_replica(tmp_path, home):
    source = tmp_path / "cube.h5"
    with h5py.File(source, "w") as file:
        file["cube"] = np.arange(64 * 64 * 256, dtype="f4").reshape(64, 64, 256)
    settle(source)
    planes = write_replica(source, "/cube", (2, 0, 1), home, number=1)
    blocks = write_replica(source, "/cube", (0, 1, 2), home, number=2, chunks=(16, 16, 16))
    publish_candidates(source, {"/cube": [planes, blocks]}, home, always=False)
    program = """
        import sys, h5py
        with h5py.File(sys.argv[1]) as file:
            for k in range(8):
                file["cube"][:, :, k]
                file["cube"][16:32, 16:32, 16 * k:16 * k + 16]
            file["cube"][5, 6]
    """
    run_and_tell(program, source, home=home, SDS_ENGINE=0)
    assert reads_by_replica(home) == {0: 1, 1: 8, 2: 8}
