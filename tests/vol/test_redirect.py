"""Programs read the same bytes from replicas, and the original wherever there is doubt."""

import collections
import dataclasses
import itertools
import json
import os
import subprocess
import sys
import textwrap

import h5py
import numpy as np
import pytest

from sds.hdf5.identity import identity_of
from sds.redirect.tables import publish_table, read_table, table_path
from sds.trace import read_spool
from sds.trace.spool_format import SUFFIX
from tests.redirected import grid_and_array, reads_by_replica, redirect, settle, with_models
from tests.under_connector import (
    connector_environment,
    decisions,
    native_environment,
    run_python,
)
from tests.waiting import PATIENCE_S

SHAPE = (9, 14, 11)

RANDOM_READS = """
    import hashlib, json, sys
    import h5py, numpy as np
    path, seed, n = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    # "in turn": one dataset after the other, and the file anew for each three of them.
    is_in_turn = sys.argv[4:] == ["in turn"]
    random = np.random.default_rng(seed)
    digest, shapes = hashlib.sha256(), []

    def keep(value):
        value = np.ascontiguousarray(value)
        digest.update(value.tobytes())
        shapes.append((value.dtype.str, value.shape))

    def slice_of(length):
        kind = random.integers(5)
        if kind == 0:
            return int(random.integers(length))
        if kind == 1:
            return slice(None)
        start, stop = sorted(random.integers(0, length + 1, 2).tolist())
        return slice(start, stop, int(random.integers(1, 4)) if kind > 2 else None)

    def blocked(space, extent):
        start, stride, count, block = [], [], [], []
        for length in extent:
            b = int(random.integers(1, 4))
            s = b + int(random.integers(0, 3))
            at = int(random.integers(0, max(1, length - b)))
            start.append(at), stride.append(s), block.append(min(b, length - at))
            count.append(1 + max(0, (length - at - b) // s) if b <= length - at else 1)
        space.select_hyperslab(tuple(start), tuple(count), tuple(stride), tuple(block))

    def read_any(data):
        how = random.integers(7)
        index = tuple(slice_of(length) for length in data.shape)
        if how < 3 or data.ndim == 0:
            keep(data[index] if data.ndim else data[()])
        elif how == 3:
            shape = np.empty(data.shape, "V1")[index].shape
            out = np.zeros((shape or (1,)) + (2,), data.dtype)[..., 0].copy()
            if out.size:
                data.read_direct(out, index)
            keep(out)
        elif how == 4:   # a box inside a larger array, with gaps
            shape = tuple(max(1, length // 2) for length in data.shape)
            out = np.zeros(tuple(2 * length + 3 for length in shape), data.dtype)
            data.read_direct(out, tuple(slice(0, length) for length in shape),
                             tuple(slice(1, 1 + 2 * length, 2) for length in shape))
            keep(out)
        elif how == 5 and data.dtype.kind in "iuf":
            keep(data.astype(random.choice(["f8", "i8", ">f4", "i2"]))[index])
        else:            # blocks, into a buffer of the dataset's size and place
            space = data.id.get_space()
            blocked(space, data.shape)
            out = np.zeros(data.shape, data.dtype)
            memory = h5py.h5s.ALL if random.integers(2) else space
            data.id.read(memory, space, out)
            keep(out)

    with h5py.File(path) as file:
        names = sorted(file)
    reads_of_file = 3 * n // len(names) if is_in_turn else n
    for first in range(0, n, reads_of_file):
        with h5py.File(path) as file:
            for i in range(first, first + reads_of_file):
                number = i * len(names) // n if is_in_turn else random.integers(len(names))
                read_any(file[names[number]])
    print(digest.hexdigest(), hashlib.sha256(json.dumps(shapes).encode()).hexdigest())
"""


def write_source(path):
    """Write datasets of many types and ranks, and return the path."""
    random = np.random.default_rng(1)
    values = random.integers(-30000, 30000, SHAPE)
    with h5py.File(path, "w") as file:
        file["f4"] = values.astype("<f4")
        file["big_endian"] = values.astype(">i4")
        file["i2"] = values.astype("<i2")
        file["complex"] = values + 1j * values
        file["text"] = np.char.mod("%06d", values).astype("S7")
        file["bool"] = values > 0
        file["compound"] = np.rec.fromarrays([values, values * 0.5], names="n,x")
        file.create_dataset("chunked", data=values, chunks=(4, 5, 3), compression="gzip")
        file["line"] = np.arange(40.0)
        file["plane"] = values[0].astype("u1")
        file["four"] = random.standard_normal((5, 4, 6, 3))
    return path


@pytest.fixture
def source(tmp_path):
    path = write_source(tmp_path / "source.h5")
    settle(path)
    return path


ORDERS = [
    ("/f4", (2, 0, 1)), ("/f4", (1, 2, 0)), ("/big_endian", (1, 0, 2)), ("/i2", (2, 1, 0)),
    ("/complex", (0, 2, 1)), ("/text", (1, 2, 0)), ("/bool", (2, 0, 1)),
    ("/compound", (2, 1, 0)), ("/chunked", (2, 0, 1)), ("/line", (0,)), ("/plane", (1, 0)),
    ("/four", (3, 1, 0, 2)),
]  # fmt: skip


@pytest.fixture
def cube(tmp_path):
    """Return a file with one dataset, its values, and a program that reads a plane of it."""
    path = tmp_path / "cube.h5"
    values = np.arange(np.prod(SHAPE), dtype="f8").reshape(SHAPE)
    with h5py.File(path, "w") as file:
        file["cube"] = values
    settle(path)
    return path


READ_PLANE = """
    import sys, h5py
    with h5py.File(sys.argv[1]) as file:
        print(file["cube"][:, :, 3].tolist())
"""


def read_plane(path, home, **variables):
    """Return what is read under the connector, how many reads were served, and the reasons."""
    log = home.root / "log"
    log.unlink(missing_ok=True)
    for file in home.spool.iterdir():
        file.unlink()
    env = connector_environment(home.root, SDS_DEBUG=log, **variables)
    result = run_python(READ_PLANE, path, env=env)
    assert result.stderr == ""
    served = sum(n for replica, n in reads_by_replica(home).items() if replica > 0)
    return json.loads(result.stdout), served, [line[3] for line in decisions(log)]


def plane_of(path):
    with h5py.File(path) as file:
        return file["cube"][:, :, 3].tolist()


@pytest.mark.parametrize("seed", range(4))
def test_random_reads_are_equal(seed, source, home):
    redirect(source, ORDERS, home)
    arguments = (source, seed, 400)
    native = run_python(RANDOM_READS, *arguments, env=native_environment())
    redirected = run_python(RANDOM_READS, *arguments, env=connector_environment(home.root))
    assert redirected.stdout == native.stdout
    served = reads_by_replica(home)
    assert sum(n for replica, n in served.items() if replica > 0) > 250, served


def test_a_wrong_replica_would_be_seen(source, home):
    # The control of the test above: tables that swap two orders give other bytes.
    table = redirect(source, [("/f4", (2, 0, 1))], home)
    (dataset,) = table.datasets
    (candidate,) = dataset.candidates
    for order in itertools.permutations(range(3)):
        wrong = dataclasses.replace(candidate, order=order)
        publish_table(
            home,
            dataclasses.replace(
                table, datasets=(dataclasses.replace(dataset, candidates=(wrong,)),)
            ),
        )
        program = "import sys, h5py; print(h5py.File(sys.argv[1])['f4'][1:5, :7, 2:9].tolist())"
        native = run_python(program, source, env=native_environment()).stdout
        redirected = run_python(program, source, env=connector_environment(home.root)).stdout
        assert (redirected == native) == (order == (2, 0, 1))


LARGE_READS = """
    import sys, h5py, numpy as np
    with h5py.File(sys.argv[1]) as file:
        data = file["cube"]
        expected = np.arange(data.size, dtype="f8").reshape(data.shape)
        for index in (np.s_[:, :, 1:], np.s_[::2], np.s_[:, 1:69:2, ::3], np.s_[5:, :, 129]):
            assert np.array_equal(data[index], expected[index]), index
        assert np.array_equal(data.astype("f4")[:, 1:], expected[:, 1:].astype("f4"))
        space = data.id.get_space()
        space.select_hyperslab((0, 0, 0), (60, 7, 26), (5, 10, 5), (3, 6, 4))
        out = np.zeros_like(expected)
        data.id.read(h5py.h5s.create_simple((60 * 3 * 7 * 6 * 26 * 4,)), space,
                     packed := np.empty(60 * 3 * 7 * 6 * 26 * 4))
        on = [[s * i + j for i in range(c) for j in range(b)]
              for c, s, b in ((60, 5, 3), (7, 10, 6), (26, 5, 4))]
        assert np.array_equal(packed, expected[np.ix_(*on)].ravel())
"""


def test_large_reads_go_in_pieces(tmp_path, home):
    path = tmp_path / "large.h5"
    values = np.arange(300 * 70 * 130, dtype="f8").reshape(300, 70, 130)
    with h5py.File(path, "w") as file:
        file["cube"] = values
    settle(path)
    redirect(path, [("/cube", (2, 0, 1))], home)
    # The engine would read from memory what this replica would permute.
    run_python(LARGE_READS, path, env=connector_environment(home.root, SDS_ENGINE="0"))
    assert reads_by_replica(home)[1] == 6


def test_netcdf4_and_pytables_are_served(tmp_path, home):
    grid, array = grid_and_array(tmp_path, (24, 6, 5))
    redirect(grid, [("/t", (1, 2, 0))], home)
    redirect(array, [("/a", (2, 1, 0))], home)
    program = """
        import sys, netCDF4, tables
        with netCDF4.Dataset(sys.argv[1]) as file:
            print(file["t"][:, 3, 2].tolist(), file["t"][2:20:3, :, 1].tolist())
        with tables.open_file(sys.argv[2]) as file:
            print(file.root.a[:, 2, 1].tolist())
    """
    native = run_python(program, grid, array, env=native_environment())
    redirected = run_python(program, grid, array, env=connector_environment(home.root))
    assert redirected.stdout == native.stdout
    assert sum(n for replica, n in reads_by_replica(home).items() if replica > 0) >= 3


def test_the_choice_is_made_per_selection(tmp_path, home):
    path = tmp_path / "cube.h5"
    with h5py.File(path, "w") as file:
        file["cube"] = np.zeros((64, 64, 512), dtype="f8")
    settle(path)
    redirect(path, [("/cube", (2, 0, 1))], home, always=False)
    program = """
        import sys, h5py
        with h5py.File(sys.argv[1]) as file:
            for k in range(10):
                file["cube"][:, :, k]
            for j in range(20):
                file["cube"][j, j, :]
    """
    run_python(program, path, env=connector_environment(home.root))
    assert reads_by_replica(home) == {0: 20, 1: 10}


# ---- fall-backs: the bytes of the original, and the reason in the log


def test_served_when_nothing_is_wrong(cube, home):
    redirect(cube, [("/cube", (2, 0, 1))], home)
    assert read_plane(cube, home)[:2] == (plane_of(cube), 1)


def test_reading_leaves_the_source_as_it_was(cube, home):
    redirect(cube, [("/cube", (2, 0, 1))], home)
    before, content = identity_of(cube), cube.read_bytes()
    served = [read_plane(cube, home, SDS_REDIRECT=on)[1] for on in (1, 0)]
    assert (identity_of(cube), cube.read_bytes()) == (before, content)
    assert served == [1, 0]


@pytest.mark.parametrize("variable", [{"SDS_DISABLE": 1}, {"SDS_REDIRECT": 0}])
def test_switched_off(variable, cube, home):
    redirect(cube, [("/cube", (2, 0, 1))], home)
    assert read_plane(cube, home, **variable)[:2] == (plane_of(cube), 0)


def test_a_changed_source_is_read_itself(cube, home):
    redirect(cube, [("/cube", (2, 0, 1))], home)
    with h5py.File(cube, "r+") as file:
        file["cube"][:, :, 3] = -1
    values, served, reasons = read_plane(cube, home)
    assert (values, served) == (np.full(SHAPE[:2], -1.0).tolist(), 0)
    assert any("changed" in reason for reason in reasons)


def test_a_replaced_source_is_read_itself(cube, home, tmp_path):
    redirect(cube, [("/cube", (2, 0, 1))], home)
    other = tmp_path / "other.h5"
    with h5py.File(other, "w") as file:
        file["cube"] = np.full(SHAPE, 5.0)
    status = cube.stat()
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(cube)
    assert read_plane(cube, home)[:2] == (np.full(SHAPE[:2], 5.0).tolist(), 0)


def damage_missing(path):
    path.unlink()


def damage_short(path):
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 8)


def damage_header(path):
    with path.open("r+b") as file:
        file.seek(100)
        byte = file.read(1)
        file.seek(100)
        file.write(bytes([byte[0] ^ 1]))


def damage_mode(path):
    path.chmod(0o660)


def damage_owner(path):
    os.chown(path, 12345, -1)


def damage_unreadable(path):
    path.unlink()
    path.mkdir()


def damage_link(path):
    moved = path.with_suffix(".moved")
    path.rename(moved)
    path.symlink_to(moved)


DAMAGES = [
    damage_missing, damage_short, damage_header, damage_mode, damage_owner, damage_unreadable,
    damage_link,
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_replica_serves_nothing(damage, cube, home):
    if damage is damage_owner and os.geteuid() != 0:
        pytest.skip("only root gives files away")
    table = redirect(cube, [("/cube", (2, 0, 1))], home)
    damage(table.datasets[0].candidates[0].path)
    values, served, reasons = read_plane(cube, home)
    assert (values, served) == (plane_of(cube), 0)
    assert any("replica" in reason for reason in reasons), reasons


@pytest.mark.parametrize("what", ["header", "mode", "owner"])
def test_a_damaged_replica_serves_nothing_even_under_its_new_identity(what, cube, home):
    # The identity in the table is the damaged file's: the checks behind it have to see.
    if what == "owner" and os.geteuid() != 0:
        pytest.skip("only root gives files away")
    table = redirect(cube, [("/cube", (2, 0, 1))], home)
    (dataset,) = table.datasets
    (candidate,) = dataset.candidates
    {"header": damage_header, "mode": damage_mode, "owner": damage_owner}[what](candidate.path)
    candidate = dataclasses.replace(candidate, identity=identity_of(candidate.path))
    dataset = dataclasses.replace(dataset, candidates=(candidate,))
    publish_table(home, dataclasses.replace(table, datasets=(dataset,)))
    values, served, reasons = read_plane(cube, home)
    assert (values, served) == (plane_of(cube), 0)
    assert any("replica" in reason for reason in reasons), reasons


READS_WHILE_A_TABLE_IS_DAMAGED = """
    import sys, h5py
    table, whole = sys.argv[2], open(sys.argv[3], "rb").read()
    def read():
        with h5py.File(sys.argv[1]) as file:
            return file[sys.argv[4]][:, :, 3].tolist()
    expected = read()
    for i in range(0, len(whole), 3):
        with open(table, "wb") as file:
            file.write(whole[:i] + bytes([whole[i] ^ 0x41]) + whole[i + 1:])
        assert read() == expected, i
    for i in range(0, len(whole), 7):
        with open(table, "wb") as file:
            file.write(whole[:i])
        assert read() == expected, i
"""


def test_a_damaged_table_serves_nothing(cube, home):
    redirect(cube, [("/cube", (2, 0, 1))], home)
    path = table_path(home, cube)
    whole = path.read_bytes()
    kept = home.root / "whole"
    kept.write_bytes(whole)
    env = connector_environment(home.root)
    run_python(READS_WHILE_A_TABLE_IS_DAMAGED, cube, path, kept, "cube", env=env)
    served = reads_by_replica(home)
    assert served[1] == 1
    assert served[0] > len(whole) // 3


@pytest.mark.parametrize("fault", ["mode", "owner", "moved"])
def test_a_table_that_is_not_to_be_trusted(fault, cube, home, tmp_path):
    redirect(cube, [("/cube", (2, 0, 1))], home)
    path = table_path(home, cube)
    if fault == "mode":
        path.chmod(0o666)
    elif fault == "owner":
        if os.geteuid() != 0:
            pytest.skip("only root gives files away")
        os.chown(path, 12345, -1)
        assert read_plane(cube, home, SDS_SERVICE_UID=12345)[1] == 1
    else:
        copy = tmp_path / "copy.h5"
        cube.rename(copy)
        path.rename(table_path(home, copy))
        cube = copy
    assert read_plane(cube, home)[:2] == (plane_of(cube), 0)


def test_a_table_of_another_shape_or_type(cube, home):
    table = redirect(cube, [("/cube", (2, 0, 1))], home)
    (dataset,) = table.datasets
    whole = tuple(dataclasses.replace(c, region=None) for c in dataset.candidates)
    for changed in (
        {"extent": (14, 9, 11), "candidates": whole},
        {"type_crc32c": dataset.type_crc32c ^ 1},
        {"path": "/other"},
    ):
        other = dataclasses.replace(dataset, **changed)
        publish_table(home, dataclasses.replace(table, datasets=(other,)))
        assert read_plane(cube, home)[:2] == (plane_of(cube), 0)


@pytest.mark.parametrize("kind", ["virtual", "external"])
def test_values_that_lie_in_other_files(kind, cube, home, tmp_path):
    # The table is of a file whose own identity says nothing of them.
    table = redirect(cube, [("/cube", (2, 0, 1))], home)
    outer = tmp_path / "outer.h5"
    with h5py.File(outer, "w") as file:
        if kind == "virtual":
            layout = h5py.VirtualLayout(SHAPE, "f8")
            layout[:] = h5py.VirtualSource(cube, "cube", SHAPE)
            file.create_virtual_dataset("cube", layout)
        else:
            with h5py.File(cube) as inner:
                values = inner["cube"][:]
            raw = str(tmp_path / "raw")
            file.create_dataset("cube", data=values, external=[(raw, 0, values.nbytes)])
    settle(outer)
    (dataset,) = table.datasets
    dataset = dataclasses.replace(dataset, data_offset_bytes=None)
    moved = dataclasses.replace(
        table, source_path=outer, source_identity=identity_of(outer), datasets=(dataset,)
    )
    publish_table(home, moved)
    values, served, reasons = read_plane(outer, home)
    assert (values, served) == (plane_of(outer), 0)
    assert "the dataset's values lie in other files" in reasons


def test_the_dearer_replica_is_not_used(cube, home):
    table = redirect(cube, [("/cube", (2, 0, 1))], home)
    for original_s in (0.5, 1.0):
        publish_table(home, with_models(table, original_s=original_s, replica_s=1.0))
        assert read_plane(cube, home)[1] == 0


def test_a_file_system_that_cannot_be_is_only_mispredicted(tmp_path, home):
    path = tmp_path / "chunked.h5"
    values = np.arange(np.prod(SHAPE), dtype="f8").reshape(SHAPE)
    with h5py.File(path, "w") as file:
        file.create_dataset("cube", data=values, chunks=(4, 5, 3))
    settle(path)
    table = redirect(path, [("/cube", (2, 0, 1))], home, always=False)
    disks = dataclasses.replace(table.datasets[0].raid, data_disks=2**52)  # times 4 KiB: 2**64
    dataset = dataclasses.replace(table.datasets[0], raid=disks)
    publish_table(home, dataclasses.replace(table, datasets=(dataset,)))
    assert read_plane(path, home)[0] == values[:, :, 3].tolist()


def test_a_share_is_kept(cube, home):
    table = redirect(cube, [("/cube", (2, 0, 1))], home)
    (dataset,) = table.datasets
    (candidate,) = dataset.candidates
    candidate = dataclasses.replace(candidate, shadow_permille=250)
    dataset = dataclasses.replace(dataset, candidates=(candidate,))
    publish_table(home, dataclasses.replace(table, datasets=(dataset,)))
    program = """
        import sys, h5py
        with h5py.File(sys.argv[1]) as file:
            data = file["cube"]
            for i in range(1000):
                data[:, 0]
    """
    run_python(program, cube, env=connector_environment(home.root))
    found = reads_by_replica(home)
    assert sum(found.values()) == 1000
    assert 180 < found[1] < 320  # five standard deviations of 250


def shadow_and_another(cube, home):
    """Publish a replica in shadow, number 1, and another, that is chosen where that is not."""
    table = redirect(cube, [("/cube", (2, 0, 1)), ("/cube", (1, 0, 2))], home)
    (dataset,) = table.datasets
    first, second = dataset.candidates
    candidates = (
        dataclasses.replace(first, shadow_permille=500),
        dataclasses.replace(second, model=dataclasses.replace(first.model, floor_s=0.1)),
    )
    dataset = dataclasses.replace(dataset, candidates=candidates)
    publish_table(home, dataclasses.replace(table, datasets=(dataset,)))


@pytest.mark.parametrize(
    ("read", "memory"), [("[:, 0]", ""), ("[[0, 5, 8], 0, 3]", ""), ("[:, 0]", "irregular")]
)
def test_what_a_replica_in_shadow_leaves_alone_goes_where_it_went_before(cube, home, read, memory):
    """To another replica here, not to the original; and is traced as left alone by the first."""
    shadow_and_another(cube, home)
    program = f"""
        import sys, h5py, numpy as np
        with h5py.File(sys.argv[1]) as file:
            data = file["cube"]
            def read():
                if not "{memory}":
                    return data{read}.tolist()
                space = data.id.get_space()     # a line into places that are no box
                space.select_hyperslab((0, 0, 3), (9, 1, 1))
                into = h5py.h5s.create_simple((400,))
                into.select_elements(np.random.default_rng(1).permutation(400)[:9, None])
                out = np.zeros(400)
                data.id.read(into, space, out)
                return out.tolist()
            first = read()
            print(all(read() == first for i in range(999)), first)
    """
    native = run_python(program, cube, env=native_environment()).stdout
    under = run_python(program, cube, env=connector_environment(home.root)).stdout
    assert under == native
    found = reads_by_replica(home)
    assert set(found) == {1, 2}
    assert 420 < found[1] < 580  # five standard deviations of 500
    (left,) = left_alone(home)
    assert left == (1, 2, found[2])


@pytest.mark.parametrize("reads_at_once", [1, 2, 21])
def test_each_side_gets_any_read(cube, home, reads_at_once):
    """Whichever comes first after an open, and whatever comes in turns."""
    shadow_and_another(cube, home)
    program = """
        import sys, h5py
        path, at_once = sys.argv[1], int(sys.argv[2])
        with h5py.File(path) as file:
            for i in range(400):
                data = file["cube"]
                data[:, 0]
                for j in range(at_once - 1):
                    data[0, :, j % 11]
                del data
    """
    run_python(program, cube, reads_at_once, env=connector_environment(home.root))
    of_planes = reads_by_replica(home, n_elements=99)
    assert sum(of_planes.values()) == 400
    assert 150 < of_planes[1] < 250


def left_alone(home):
    """Return (replica that left reads alone, what served them, how many), of a home's traces."""
    found = collections.Counter()
    for path in home.spool.glob(f"*{SUFFIX}"):
        records = read_spool(path).records
        for left_by, served_by, n in zip(
            records.left_by.tolist(), records.served_by.tolist(), records.n_reads.tolist(),
            strict=True,
        ):  # fmt: skip
            if left_by:
                found[left_by, served_by] += n
    return [(*key, n) for key, n in found.items()]


# ---- files that change while they are open


def test_a_source_rewritten_while_open(cube, home):
    redirect(cube, [("/cube", (2, 0, 1))], home)
    program = """
        import signal, sys, h5py
        signal.alarm(300)   # ends what hangs
        with h5py.File(sys.argv[1]) as file:
            print(file["cube"][:, 0, 0][0], flush=True)
            sys.stdin.readline()
            print(file["cube"][:, 0, 0][0])
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), cube],
        env=connector_environment(home.root), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True,
    ) as running:  # fmt: skip
        assert running.stdout.readline() == "0.0\n"
        with h5py.File(cube) as file:
            offset = file["cube"].id.get_offset()
        with cube.open("r+b") as file:
            file.seek(offset)
            file.write(np.float64(-7).tobytes())
        running.stdin.write("\n")
        running.stdin.close()
        assert running.stdout.read() == "-7.0\n"
    assert reads_by_replica(home) == {0: 1, 1: 1}


def test_a_write_through_the_connector_drops_the_table(cube, home):
    redirect(cube, [("/cube", (2, 0, 1))], home)
    env = connector_environment(home.root)
    run_python("import sys, h5py; h5py.File(sys.argv[1], 'r+').close()", cube, env=env)
    assert table_path(home, cube).exists()  # opened, but not written
    program = """
        import sys, h5py
        with h5py.File(sys.argv[1], "r+") as file:
            file["cube"][0, 0, 3] = 77
    """
    run_python(program, cube, env=env)
    assert not table_path(home, cube).exists()
    assert read_plane(cube, home)[0][0][0] == 77


def test_what_a_writer_has_not_flushed_is_seen(cube, home):
    # HDF5 lets one process have a file open for reading and for writing.
    redirect(cube, [("/cube", (2, 0, 1))], home)
    program = """
        import sys, h5py
        reader = h5py.File(sys.argv[1], "r")
        print(reader["cube"][0, 0, 3])
        reader.close()
        with h5py.File(sys.argv[1], "r+") as writer:
            writer["cube"][0, 0, 3] = 77
            print(writer["cube"][0, 0, 3])
        with h5py.File(sys.argv[1], "r") as reader:
            print(reader["cube"][0, 0, 3])
    """
    result = run_python(program, cube, env=connector_environment(home.root))
    assert result.stdout == "3.0\n77.0\n77.0\n"


def test_open_for_writing_and_swmr_are_not_redirected(home, tmp_path):
    path = tmp_path / "latest.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file.create_dataset("cube", data=np.zeros(SHAPE), chunks=(3, 7, 11))
    settle(path)
    redirect(path, [("/cube", (2, 0, 1))], home)
    program = """
        import sys, h5py
        for how in ({"mode": "r", "swmr": True, "libver": "latest"}, {"mode": "r+"}):
            with h5py.File(sys.argv[1], **how) as file:
                print(file["cube"][:, 1, 1].sum())
    """
    result = run_python(program, path, env=connector_environment(home.root))
    assert result.stdout == "0.0\n0.0\n"
    assert reads_by_replica(home) == {0: 2}


def test_only_ordinary_files_are_redirected(cube, home):
    # A driver may show another content than lies at the path.
    redirect(cube, [("/cube", (2, 0, 1))], home)
    program = """
        import sys, h5py
        for driver in ("core", "stdio"):
            with h5py.File(sys.argv[1], driver=driver) as file:
                print(file["cube"][1, 0, 0])
        with open(sys.argv[1], "rb") as raw, h5py.File(raw) as file:
            print(file["cube"][1, 0, 0])
    """
    result = run_python(program, cube, env=connector_environment(home.root))
    assert result.stdout == "154.0\n" * 3
    assert reads_by_replica(home) == {0: 3}


def test_a_descriptor_that_the_program_closed(cube, home):
    redirect(cube, [("/cube", (2, 0, 1))], home)
    program = """
        import os, sys, h5py
        with h5py.File(sys.argv[1]) as file:
            data = file["cube"]
            before = data[:, :, 3].tolist()
            replica = next(int(fd) for fd in os.listdir("/proc/self/fd")
                           if "/replicas/" in os.path.realpath(f"/proc/self/fd/{fd}"))
            other = os.open(sys.executable, os.O_RDONLY)
            os.dup2(other, replica)   # the number now means another file
            assert data[:, :, 3].tolist() == before
        os.fstat(replica)   # it is the program's, and closed by nobody else
    """
    run_python(program, cube, env=connector_environment(home.root))
    assert reads_by_replica(home) == {1: 2}


@pytest.mark.parametrize("way", ["threads", "fork", "spawn"])
def test_readers_at_the_same_time(way, cube, home, tmp_path):
    redirect(cube, [("/cube", (2, 0, 1))], home)
    program = tmp_path / "readers.py"
    program.write_text(
        textwrap.dedent("""
        import multiprocessing, sys, threading, h5py, numpy as np
        way, path = sys.argv[1:]
        expected = np.arange(9 * 14 * 11, dtype="f8").reshape(9, 14, 11)

        def check(seed, data):
            random = np.random.default_rng(seed)
            for _ in range(100):
                k = int(random.integers(11))
                if data is not None:
                    assert np.array_equal(data[:, :, k], expected[:, :, k])
                with h5py.File(path) as again:
                    assert np.array_equal(again["cube"][:, k], expected[:, k])
                    assert np.array_equal(again["cube"][:, :, k], expected[:, :, k])

        if __name__ == "__main__":
            with h5py.File(path) as file:
                data = file["cube"]
                data[:, :, 1]
                if way == "threads":
                    workers = [threading.Thread(target=check, args=(i, data)) for i in range(4)]
                else:
                    start = multiprocessing.get_context(way).Process
                    kept = data if way == "fork" else None
                    workers = [start(target=check, args=(i, kept)) for i in range(3)]
                for worker in workers:
                    worker.start()
                for worker in workers:
                    worker.join()
                assert way == "threads" or not any(worker.exitcode for worker in workers)
                check(9, data)
            print("done")
        """)
    )
    result = subprocess.run(
        [sys.executable, program, way, cube], env=connector_environment(home.root), check=False,
        capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert (result.stdout, result.stderr) == ("done\n", "")
    served = reads_by_replica(home)
    assert served[1] > served.get(0, 0)


def test_links_and_mounts_lead_to_the_file_that_holds_the_dataset(cube, home, tmp_path):
    redirect(cube, [("/cube", (2, 0, 1))], home)
    outer = tmp_path / "outer.h5"
    with h5py.File(outer, "w") as file:
        file["cube"] = np.full(SHAPE, -3.0)
        file["link"] = h5py.ExternalLink(str(cube), "/cube")
        file.create_group("mounted")
    settle(outer)
    redirect(outer, [("/cube", (1, 0, 2))], home)
    program = """
        import sys, h5py
        outer, cube = sys.argv[1:]
        with h5py.File(outer) as file:
            print(file["link"][:, 2, 3].tolist(), file["cube"][:, 0, 2].tolist())
            with h5py.File(cube) as inner:
                print(file["link"][:, 2, 3].tolist())
                h5py.h5f.mount(file.id, b"mounted", inner.id)
                print(file["mounted/cube"][:, 2, 3].tolist())
                h5py.h5f.unmount(file.id, b"mounted")
        # A dataset outlives the file object through which it was opened.
        print(h5py.File(cube)["cube"][:, 2, 3].tolist())
    """
    native = run_python(program, outer, cube, env=native_environment())
    redirected = run_python(program, outer, cube, env=connector_environment(home.root))
    assert redirected.stdout == native.stdout
    assert sum(n for replica, n in reads_by_replica(home).items() if replica > 0) >= 3


def test_paths_in_a_mounted_file_are_not_taken_for_others(cube, home, tmp_path):
    # What is mounted at /group is /cube of its own file, and HDF5 calls it /group/cube.
    with h5py.File(cube, "r+") as file:
        file["group/cube"] = -file["cube"][:]
    settle(cube)
    redirect(cube, [("/cube", (2, 0, 1)), ("/group/cube", (2, 0, 1))], home)
    outer = tmp_path / "outer.h5"
    with h5py.File(outer, "w") as file:
        file["group/cube"] = np.full(SHAPE, 5.0)
    settle(outer)
    redirect(outer, [("/group/cube", (2, 0, 1))], home)
    program = """
        import sys, h5py
        outer, cube = sys.argv[1:]
        with h5py.File(outer) as file:
            hidden, inner = file["group/cube"], h5py.File(cube)
            h5py.h5f.mount(file.id, b"group", inner.id)
            def show(*datasets):
                print([dataset[:3, 2, 3].tolist() for dataset in datasets])
            show(file["group/cube"], file["group/group/cube"], hidden, inner["group/cube"])
            inner.close()   # open all the same
            show(file["group/cube"])
            inner = h5py.File(cube)
            kept = file["group/cube"]
            show(file["group/cube"], inner["group/cube"])
            h5py.h5f.unmount(file.id, b"group")
            show(kept, file["group/cube"])
            del kept
            inner.close()
        with h5py.File(cube) as inner:
            show(inner["cube"], inner["group/cube"])
    """
    native = run_python(program, outer, cube, env=native_environment())
    redirected = run_python(program, outer, cube, env=connector_environment(home.root))
    assert redirected.stdout == native.stdout
    served = reads_by_replica(home)
    assert (served[1], served[2]) == (2, 1)


def test_the_table_is_found_through_links_and_relative_names(cube, home, tmp_path):
    redirect(cube, [("/cube", (2, 0, 1))], home)
    link = tmp_path / "link.h5"
    link.symlink_to(cube)
    assert read_plane(link, home)[1] == 1
    assert read_table(home, link).source_path == cube


def test_a_missing_filter_is_the_error_that_it_is_natively(tmp_path, home):
    path = tmp_path / "filtered.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("cube", data=np.arange(504.0).reshape(9, 7, 8), compression="lzf")
    settle(path)
    redirect(path, [("/cube", (2, 0, 1))], home)
    program = """
        import sys, h5py
        if sys.argv[2] == "without":
            h5py.h5z.unregister_filter(h5py.h5z.FILTER_LZF)
        with h5py.File(sys.argv[1]) as file:
            try:
                print(file["cube"][:, :, 3].tolist())
            except OSError:
                print("no such filter")
    """
    for lzf, n_served in (("without", 0), ("with", 1)):
        native = run_python(program, path, lzf, env=native_environment())
        connector = run_python(program, path, lzf, env=connector_environment(home.root))
        assert (connector.stdout, connector.stderr) == (native.stdout, native.stderr)
        assert reads_by_replica(home).get(1, 0) == n_served
        assert (native.stdout == "no such filter\n") == (lzf == "without")
