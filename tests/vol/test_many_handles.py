"""Programs that hold very many handles open: all is read and traced, in memory that has a bound."""

import shutil
from collections import Counter
from pathlib import Path

import h5py
import numpy as np
import pytest
from h5py import h5d, h5s, h5t

from sds.trace import read_spool
from tests.redirected import reads_by_replica, settle, write_many_replicas
from tests.served_in_turn import READ_IN_TURN
from tests.sizes import repeated
from tests.under_connector import connector_environment, native_environment, run_python
from tests.vol.test_cost import MIB, private_memory

N_HANDLES = repeated(50_000, 150_000)
MOST_WRAPPED = 512  # object.h


@pytest.fixture
def sources(tmp_path, home):
    """Return a file of 1,000 small datasets, 24 with replicas in chunks of 1 MiB, and one whole."""
    path = tmp_path / "source.h5"
    with h5py.File(path, "w", libver="latest") as file:
        for i in range(1000):
            file[f"small/a_name_as_long_as_those_of_instruments_{i:03d}"] = np.arange(10.0) + i
    write_many_replicas(path, 24, home)
    return path


def test_very_many_handles_take_little_memory(sources, home):
    program = """
    from h5py import h5d, h5f, h5s
    file = h5f.open(sys.argv[1].encode(), h5f.ACC_RDONLY)
    names = [b"small/" + name for name in h5py.Group(h5py.h5g.open(file, b"small")).id]
    n, values, kept = int(sys.argv[2]), np.zeros(10), []
    for i in range(n):
        kept.append(h5d.open(file, names[i % len(names)]))
        kept[-1].read(h5s.ALL, h5s.ALL, values)
        assert values[9] == 9 + i % len(names)
    for i in range(0, n, 7):
        kept[i].read(h5s.ALL, h5s.ALL, values)
        assert values[9] == 9 + i % len(names)
    print_private_memory()
    """
    more = private_memory(program, sources, N_HANDLES, home=home, most_bytes=4 * MIB)
    assert sum(reads_by_replica(home).values()) == N_HANDLES + -(-N_HANDLES // 7)
    assert more <= 4 * MIB, more / MIB


@pytest.fixture(scope="module")
def distinct(tmp_path_factory):
    """Return a file of as many datasets, each of which begins with its number."""
    path = tmp_path_factory.mktemp("distinct") / "distinct.h5"
    space = h5s.create_simple((10,))
    with h5py.File(path, "w", libver="latest") as file:
        for i in range(N_HANDLES):
            name = b"a_name_as_long_as_those_of_instruments_%06d" % i
            made = h5d.create(file.id, name, h5t.NATIVE_DOUBLE, space)
            made.write(h5s.ALL, h5s.ALL, np.arange(10.0) + i)
    settle(path)
    return path


@pytest.mark.parametrize("then", ["kept", "closed"])
def test_very_many_datasets_take_little_memory(then, distinct, home):
    """Kept open, or closed after their read."""
    program = """
    from h5py import h5d, h5f, h5s
    file = h5f.open(sys.argv[1].encode(), h5f.ACC_RDONLY)
    values, kept = np.zeros(10), []

    def read(dataset, i):
        dataset.read(h5s.ALL, h5s.ALL, values)
        assert values[0] == i and values[9] == 9 + i

    for i in range(int(sys.argv[2])):
        dataset = h5d.open(file, b"a_name_as_long_as_those_of_instruments_%06d" % i)
        read(dataset, i)
        if sys.argv[3] == "kept":
            kept.append(dataset)
    for i in range(0, len(kept), 7):
        read(kept[i], i)
    print_private_memory()
    """
    more = private_memory(program, distinct, N_HANDLES, then, home=home)
    spools = list(map(read_spool, home.spool.iterdir()))
    n_again = -(-N_HANDLES // 7) if then == "kept" else 0
    assert sum(spool.records.n_reads.sum() for spool in spools) == N_HANDLES + n_again
    assert len({dataset.path for spool in spools for dataset in spool.datasets}) == N_HANDLES
    assert more <= 8 * MIB, more / MIB


def test_many_handles_take_little_memory_beside_replicas_in_chunks(sources, home):
    program = (
        READ_IN_TURN
        + """
    import netCDF4, tables
    from h5py import h5d, h5f, h5s
    low = h5f.open(sys.argv[1].encode(), h5f.ACC_RDONLY)
    files = netCDF4.Dataset(sys.argv[1]), tables.open_file(sys.argv[1])
    file = h5py.File(low)
    names = [f"small/{name}".encode() for name in file["small"]]
    by_library = [lambda n: file[n], lambda n: files[0][n], lambda n: files[1].root[n]]
    n, values, kept = int(sys.argv[2]), np.zeros(10), []
    for i in range(n):
        kept.append(h5d.open(low, names[i % len(names)]))
        kept[-1].read(h5s.ALL, h5s.ALL, values)
        assert values[9] == 9 + i % len(names)
    whole = np.zeros((64, 64, 511), "f4")

    def read_of(i):
        read = lambda: by_library[i // 3 % 3](f"{i:02d}")[:, :, :3]
        return read, f"source.{i:02d}-{i + 1}.h5"

    latest = {}
    for i in range(24):
        library = i // 3 % 3
        others = [one for other, one in latest.items() if other != library]
        latest[library] = read_of(i)
        read_until_served(*latest[library], *others)
        for k in range(3, 60, 3):
            by_library[library](f"{i:02d}")[:, :, k : k + 3]
        file["whole"].read_direct(whole, np.s_[:, :, 1:])
    for i in range(0, n, 7):
        kept[i].read(h5s.ALL, h5s.ALL, values)
        assert values[9] == 9 + i % len(names)
    print_private_memory()
    files[1].close()
    """
    )
    more = private_memory(program, sources, N_HANDLES, home=home, SDS_ENGINE=0)
    reads = reads_by_replica(home)
    assert sum(n for replica, n in reads.items() if replica < 1) >= N_HANDLES * 8 // 7
    assert reads[25] == 24
    assert reads.keys() >= {1, 2, 3, 4}, reads  # later ones only where the handles leave room
    assert more <= 8 * MIB, more / MIB


def test_reading_what_is_open_has_hdf5_read_no_metadata(tmp_path, home):
    """HDF5 enlarges its cache of metadata for who looks into headers that it has dropped."""
    path = tmp_path / "contiguous.h5"
    with h5py.File(path, "w") as file:
        for i in range(2 * MOST_WRAPPED):
            file[f"small/{i:04d}"] = np.arange(10.0) + i
        file["small/linked"] = h5py.ExternalLink(tmp_path / "other.h5", "/small/0000")
    shutil.copy(path, tmp_path / "other.h5")
    settle(path)
    program = """
    import os, sys, h5py
    os.chdir(sys.argv[2])
    file = h5py.File(sys.argv[1])
    kept = list(file["small"].values())[:-1]
    kept = [item for _ in range(2) for item in kept]
    before = file.id.get_mdc_size()
    file.id.reset_mdc_hit_rate_stats()
    for _ in range(2):
        for i, item in enumerate(kept):
            assert item[9] == 9 + i % (len(kept) // 2)
    print(before == file.id.get_mdc_size(), file.id.get_mdc_hit_rate())
    assert file["small/linked"][9] == 9
    """
    found = [
        run_python(program, name, tmp_path, env=environment).stdout
        for environment in (native_environment(), connector_environment(home.root))
        for name in (path, path.name)
    ]
    assert set(found) == {"True 0.0\n"}
    for spool in map(read_spool, home.spool.iterdir()):
        assert Counter(Path(dataset.file).name for dataset in spool.datasets) == {
            "contiguous.h5": 2 * MOST_WRAPPED, "other.h5": 1,
        }  # fmt: skip


EVERYTHING = """
import os, sys
import h5py, numpy as np
from h5py import h5d, h5o, h5s
path = sys.argv[1]
told = []

def tell(*what):
    told.append(repr(what))

def crowd(file):
    return [file["group"] for _ in range(int(sys.argv[2]))]

with h5py.File(path, "r+") as file:
    kept = crowd(file)
    group = file["group"]
    for name in sorted(group):
        item = group[name]
        tell(name, item.name, item.file.filename == path, sorted(item.attrs), item.ref.typecode)
        if isinstance(item, h5py.Dataset):
            tell(item.shape, item.dtype, item[...].tolist())
            item.refresh()
            tell(item[...].tolist(), item.chunks, item.id.get_offset() is None)
    data = group["grows"]
    data.resize((7,))
    data[5:] = 9
    data.flush()
    tell(data[...].tolist())
    data.attrs["new"] = 3
    tell(data.attrs["new"], "gone" in data.attrs, list(data.attrs))
    tell(file[group.attrs["to"]][...].tolist(), h5py.h5r.get_name(group.attrs["to"], file.id))
    group.create_group("made")["x"] = [1, 2]
    group["hard"] = group["made/x"]
    group.move("made", "moved")
    group.copy("moved", "copied")
    tell(sorted(group), group["copied/x"] == group["moved/x"], group["hard"] == group["moved/x"])
    token = h5o.get_info(group["hard"].id)
    tell(token.type, token.rc, group["hard"].parent.name)
    group["named"] = np.dtype([("a", "i4"), ("b", "f8")])
    made = group.create_dataset("typed", (2,), group["named"])
    tell(made.dtype, h5py.h5t.TypeID.committed(made.id.get_type()))
    a, b = group["grows"].id, group["scalar"].id
    with h5py.File(sys.argv[1] + ".child", "w") as child:
        child["inside"] = 5
        h5py.h5f.mount(group["moved"].id, b".", child.id)
        tell(group["moved/inside"][()])
        h5py.h5f.unmount(group["moved"].id, b".")
    for wrong in ("nothing", "group/nothing"):
        try:
            file[wrong]
        except KeyError as error:
            tell(str(error).replace(path, ""))
    visited = []
    file.visititems(lambda name, item: visited.append((name, type(item).__name__)))
    tell(visited)
    handles = h5py.h5f.get_obj_count(file.id)
    del kept
    tell(handles)
with h5py.File(path) as file:
    kept = crowd(file)
    one, other = file["group/grows"], file["group/grows"]
    tell(one[...].tolist(), other[1:3].tolist())
print("\\n".join(told))
"""


@pytest.mark.parametrize("n_open", [0, MOST_WRAPPED + 10])
def test_what_is_open_beyond_is_as_it_is_natively(n_open, tmp_path, home):
    told = []
    for name, environment in {
        "native": native_environment(), "under": connector_environment(home.root),
    }.items():  # fmt: skip
        path = tmp_path / name / "file.h5"
        path.parent.mkdir()
        with h5py.File(path, "w") as file:
            group = file.create_group("group", track_order=True)
            group.create_dataset("grows", data=[1, 2, 3], maxshape=(None,), chunks=(2,))
            group["scalar"] = 1.5
            group["text"] = "words"
            group["grows"].attrs["unit"] = "mm"
            group.attrs["to"] = group["grows"].ref
        result = run_python(EVERYTHING, path, n_open, env=environment).stdout
        told.append(result.replace(f"/{name}/", "/"))
    assert told[0] == told[1]
    assert told[0].count("\n") > 20


def test_replicas_serve_and_the_engine_reads_through_handles_beyond(sources, home):
    program = """
    import sys, h5py, numpy as np
    file = h5py.File(sys.argv[1])
    kept = [file["small"] for _ in range(int(sys.argv[2]))]
    whole = file["whole"]
    expected = np.arange(64 * 64 * 512, dtype="f4").reshape(64, 64, 512)
    for k in range(20):
        assert (whole[:, :, 5 * k] == expected[:, :, 5 * k]).all()
    many = [file[f"{i:02d}"] for i in range(24)]
    for dataset in many:
        assert dataset[:, :, 7].shape == (64, 64)
    """
    run_python(program, sources, MOST_WRAPPED, env=connector_environment(home.root))
    served = reads_by_replica(home)
    assert served[25] == 20
    assert served.keys() & set(range(1, 25))


def test_states_of_closed_handles_are_not_those_of_others(tmp_path, home):
    """HDF5 uses the memory of what is closed for what is opened next."""
    path = tmp_path / "turns.h5"
    with h5py.File(path, "w") as file:
        for i in range(50):
            file[str(i)] = np.full(i + 1, i)
    settle(path)
    program = """
    import sys, h5py
    file = h5py.File(sys.argv[1])
    kept = [file["/"] for _ in range(int(sys.argv[2]))]
    for turn in range(40):
        for i in range(50):
            dataset = file[str(i)]
            assert dataset[...].tolist() == [i] * (i + 1)
            dataset[...]
    """
    run_python(program, path, MOST_WRAPPED, env=connector_environment(home.root))
    (spool,) = map(read_spool, home.spool.iterdir())
    extent = {dataset.id: dataset.extent for dataset in spool.datasets}
    names = {dataset.id: dataset.path for dataset in spool.datasets}
    assert sorted(names.values(), key=lambda name: int(name[1:])) == [f"/{i}" for i in range(50)]
    assert all(extent[i] == (int(names[i][1:]) + 1,) for i in names)
    assert spool.records.n_reads.sum() == 40 * 50 * 2
    assert spool.dropped_reads == 0


IN_TURN = """
import os, sys
import h5py, numpy as np
from h5py import h5d, h5f, h5s
file = h5f.open(sys.argv[1].encode(), h5f.ACC_RDONLY)
n = int(sys.argv[2])
kept = [h5d.open(file, str(i % 60).encode()) for i in range(n)]

def read(i):
    space = kept[i].get_space()
    values = np.zeros(space.shape)
    kept[i].read(h5s.ALL, h5s.ALL, values)
    assert (values == i % 60).all()
    if space.shape:
        space.select_hyperslab((0,) * len(space.shape), (1,) * len(space.shape))
        value = np.zeros(1)
        kept[i].read(h5s.create_simple((1,)), space, value)
        assert value[0] == i % 60

for _ in range(3):
    for i in range(n):
        read(i)
child = os.fork()
for i in range(n):
    read(i)
if child == 0:
    sys.exit()
assert os.waitpid(child, 0)[1] == 0
for i in range(n):   # where another one was, another one is opened
    if i % 3:
        kept[i] = None
for i in reversed(range(n)):
    if i % 3:
        kept[i] = h5d.open(file, str(i % 60).encode())
for i in range(n):
    read(i)
"""


def test_reads_in_turn_are_traced_as_those_of_their_datasets(tmp_path, home):
    path = tmp_path / "turns.h5"
    shapes = [
        [(), (i + 1,), (2, i), (3, 2, i), (2, 1, 1, i), (1, 1, 1, 2, i)][i % 6] for i in range(60)
    ]
    with h5py.File(path, "w") as file:
        for i, shape in enumerate(shapes):
            file[str(i)] = np.full(shape, i)
    settle(path)
    n = 4 * MOST_WRAPPED
    run_python(IN_TURN, path, n, env=connector_environment(home.root))
    found = Counter()
    for spool in map(read_spool, home.spool.iterdir()):
        paths = {dataset.id: dataset.path for dataset in spool.datasets}
        of, records = [paths[i] for i in spool.records.dataset_id.tolist()], spool.records
        for path, n_elements, n_reads in zip(of, records.n_elements, records.n_reads, strict=True):
            found[path, int(n_elements)] += int(n_reads)
    expected = Counter()
    for i in range(n):
        shape = shapes[i % 60]
        expected[f"/{i % 60}", int(np.prod(shape))] += 6
        if shape:
            expected[f"/{i % 60}", 1] += 6
    assert found == expected
