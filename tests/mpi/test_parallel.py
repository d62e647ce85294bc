"""MPI programs: independent reads come from replicas, and no process ever waits in vain.

Each program runs natively and under the connector; what each of its processes has got, and how
HDF5 says that it was read, is the same. What does not end in time counts as a deadlock.
SDS_TEST_MPI_PROGRAMS is the number of random programs for each version of HDF5.
"""

import dataclasses
import functools
import os
import subprocess
from pathlib import Path

import h5py
import numpy as np
import pytest

from sds.geometry import SegmentList
from sds.home import Home
from sds.redirect.tables import publish_table, read_table, table_path
from tests.hdf5_builds import hdf5_build
from tests.mpi.launch import mpiexec, served
from tests.redirected import publish_candidates, redirect, settle, write_replica
from tests.under_connector import connector_environment, native_environment

VERSIONS = ("1.14.6", "2.2.0")
SHAPE = (6, 20, 16)

both_versions = pytest.mark.parametrize("version", VERSIONS)


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """Return the program that reads, for a version of HDF5."""
    folder = tmp_path_factory.mktemp("programs")

    @functools.cache
    def built(version):
        build = hdf5_build(version, "parallel")
        return build.compile(Path(__file__).with_name("reads.c"), folder / f"reads-{version}")

    return built


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Return a file with redirected datasets, its home, and what the tests need to know of it."""
    folder = tmp_path_factory.mktemp("source")
    path, home = folder / "source.h5", Home(folder / "home")
    write_source(path)
    redirect(path, [("/a", (1, 2, 0)), ("/b", (2, 0, 1)), ("/tiles", (1, 2, 0))], home)
    return path, home


def write_source(path):
    random = np.random.default_rng(7)
    with h5py.File(path, "w", libver=("v110", "v114")) as file:
        file["a"] = random.random(SHAPE)
        file["b"] = random.integers(-1000, 1000, SHAPE).astype("i4")
        file["plain"] = random.random(SHAPE)
        file.create_dataset("chunked", data=random.random(SHAPE), chunks=(2, 5, 8), shuffle=True)
        file.create_dataset("tiles", data=random.random(SHAPE), chunks=(2, 5, 8))
        file["group/deep"] = random.random(5)
    settle(path)


def run(program, environments, folder, *arguments):
    """Run the program under one environment per rank; what each rank has got."""
    folder.mkdir()
    options = [argument for argument in arguments if str(argument).startswith("-")]
    path, *steps = arguments[len(options) :]
    command = [program, *options, path, folder / "kept", *steps]
    printed = mpiexec([(environment, command) for environment in environments])
    assert printed == ""
    return [(folder / f"kept.{rank}").read_bytes() for rank in range(len(environments))]


def home_beside(home, path, source, change):
    """Return another home, whose table of the source is changed."""
    other = Home(path)
    other.tables.mkdir(parents=True)
    other.spool.mkdir()
    table = read_table(home, source)
    change(other, table)
    return other


def compare(program, source, tmp_path, n_ranks, *arguments, homes=None):
    """Run natively and under the connector; what the ranks' reads were served by."""
    path, home = source
    if homes is None:
        homes = [Home(tmp_path / "home")] * n_ranks
        publish(home, homes[0], path)
    options = [argument for argument in arguments if argument.startswith("-")]
    steps = arguments[len(options) :]
    native = run(
        program, [native_environment()] * n_ranks, tmp_path / "native", *options, path, *steps
    )
    under = [
        native_environment() if home is None else connector_environment(home.root) for home in homes
    ]
    connected = run(program, under, tmp_path / "connected", *options, path, *steps)
    assert connected == native
    assert all(native), "nothing was read"
    return served(homes[0], n_ranks)


def publish(home, other, path):
    other.spool.mkdir(parents=True, exist_ok=True)
    publish_table(other, read_table(home, path))


@both_versions
@pytest.mark.parametrize("n_ranks", [2, 4])
def test_independent_reads_come_from_replicas(program, source, tmp_path, version, n_ranks):
    counts = compare(
        program(version), source, tmp_path, n_ranks,
        "* i /a 0,r,0 6,1,16", "* d /a 0,0,r 6,20,1", "* i /b 0,0,r 6,20,2",
        "* i /plain 0,0,0 6,20,1",
    )  # fmt: skip
    assert counts == {rank: {1: 2, 2: 1, 0: 1} for rank in range(n_ranks)}


@both_versions
def test_values_are_those_of_the_file(program, source, tmp_path, version):
    path, home = source
    got = run(
        program(version), [connector_environment(home.root)] * 2, tmp_path / "kept", path,
        "* i /a 0,r,0 6,1,16",
    )  # fmt: skip
    with h5py.File(path) as file:
        for rank, kept in enumerate(got):
            expected = file["a"][:, rank].tobytes()
            assert kept.split(b"\n", 1)[1] == expected


@both_versions
@pytest.mark.parametrize("n_ranks", [2, 4])
def test_collective_reads_pass_through(program, source, tmp_path, version, n_ranks):
    counts = compare(
        program(version), source, tmp_path, n_ranks,
        "* c /a 0,r,0 6,1,16", "0 c /a 0,0,1 6,20,1", "123 z /a 0,0,1 6,20,1",
        "* c /chunked 0,0,r 6,20,1", "* c /b 0,0,3 6,20,1",
    )  # fmt: skip
    assert counts == {rank: {0: 4} for rank in range(n_ranks)}


@both_versions
@pytest.mark.parametrize("metadata", [[], ["-m"]])
def test_independent_and_collective_reads_mix(program, source, tmp_path, version, metadata):
    counts = compare(
        program(version), source, tmp_path, 4, *metadata,
        "0 i /b 0,0,r 6,20,1", "* c /a 0,r,0 6,1,16", "1 i /a 0,r,0 6,1,16",
        "3 d /b 0,0,r 6,20,1", "* i /a 0,0,r 6,20,1", "* i /a 0,0,r 6,20,1",
        "* c /chunked 0,0,r 6,20,1", "23 i /chunked 0,0,r 6,20,1", "* c /b 0,0,r 6,20,1",
        "0 d /a 0,0,r 6,20,1",
    )  # fmt: skip
    assert counts == {
        0: {0: 3, 1: 3, 2: 1},
        1: {0: 3, 1: 3},
        2: {0: 4, 1: 2},
        3: {0: 4, 1: 2, 2: 1},
    }


@both_versions
@pytest.mark.parametrize("memory", [[], ["-t"]])
def test_one_rank_alone_reads_under_collective_metadata(program, source, tmp_path, version, memory):
    counts = compare(
        program(version), source, tmp_path, 2, "-m", *memory,
        "0 i /a 0,0,r 6,20,1", "0 d /b 0,0,r 6,20,1", "0 i /plain 0,0,0 6,20,1",
        "0 i /group/deep 1 3", "1 i /b 0,3,0 6,1,16", "* c /chunked 0,0,r 6,20,1",
    )  # fmt: skip
    assert counts == {0: {1: 1, 2: 1, 0: 3}, 1: {2: 1, 0: 1}}


@both_versions
def test_segments_serve_the_ranks_whose_tiles_they_hold(program, tmp_path, version):
    path, home = tmp_path / "source.h5", Home(tmp_path / "made")
    write_source(path)
    # Tiles of 6 x 1 x 8: the first half of rows 0 to 2, all of row 1.
    gathered = SegmentList(tile_shape=(6, 1, 8), tiles=(2, 3, 0, 4), lengths=(2, 2))
    redirect(path, [("/a", (1, 0, 2), {"segments": gathered})], home)
    counts = compare(
        program(version), (path, home), tmp_path, 4,
        "* i /a 0,r,0 6,1,8", "* i /a 0,r,0 6,1,16", "* i /a 0,0,r 6,3,1", "* c /a 0,r,0 6,1,8",
        "1 d /a 0,0,3 6,3,2",
    )  # fmt: skip
    assert counts == {
        0: {1: 2, 0: 2},
        1: {1: 4, 0: 1},
        2: {1: 2, 0: 2},
        3: {1: 1, 0: 3},
    }


@both_versions
def test_datasets_reached_by_address(program, source, tmp_path, version):
    counts = compare(program(version), source, tmp_path, 2, "* i @/a 0,r,0 6,1,16")
    assert counts == {rank: {1: 1} for rank in range(2)}


@both_versions
def test_one_rank_alone_reads_what_it_reached_by_address(program, source, tmp_path, version):
    # HDF5 would search the file for the name, together with the other rank.
    counts = compare(
        program(version), source, tmp_path, 2, "-m", "0 i @/a 0,r,0 6,1,16", "* c /b 0,r,0 6,1,16"
    )
    assert counts == {rank: {0: 1} for rank in range(2)}


@both_versions
@pytest.mark.parametrize("metadata", [[], ["-m"]])
def test_replicas_in_chunks_serve(program, source, tmp_path, version, metadata):
    path, _ = source
    home = Home(tmp_path / "home")
    home.create()
    orders = {"/a": (1, 2, 0), "/tiles": (2, 0, 1)}
    candidates = {
        name: [write_replica(path, name, order, home, number=i, chunks=(5, 5, 2), shuffle=True)]
        for i, (name, order) in enumerate(orders.items(), start=1)
    }
    publish_candidates(path, candidates, home)
    counts = compare(
        program(version), source, tmp_path, 2, *metadata,
        "* i /a 0,r,0 6,1,16", "1 d /a 0,0,r 6,20,1", "* c /a 0,r,0 6,1,16", "* i /a 0,r,0 6,1,16",
        "* d /tiles 0,r,0 6,1,16", homes=[home] * 2,
    )  # fmt: skip
    tiles = {0: 2} if metadata else {0: 1, 2: 1}
    assert counts == {0: tiles | {1: 2}, 1: tiles | {1: 3}}


@both_versions
@pytest.mark.parametrize("metadata", [[], ["-m"]])
def test_reads_of_several_datasets_in_one_call(program, source, tmp_path, version, metadata):
    counts = compare(
        program(version), source, tmp_path, 2, *metadata,
        "* M /a+/b 0,r,0 6,1,16", "0 m /a+/b 0,r,0 6,1,16", "* m /a+/plain 0,r,0 6,1,16",
        "* M /plain+/b 0,r,0 6,1,16", "1 m /b+/a 0,r,0 6,1,16",
    )  # fmt: skip
    assert counts == {rank: {0: 5, 1: 2, 2: 1} for rank in range(2)}


@both_versions
def test_every_rank_may_open_the_file_by_itself(program, source, tmp_path, version):
    for option in ("-s", "-u"):
        folder = tmp_path / option
        folder.mkdir()
        counts = compare(
            program(version),
            source,
            folder,
            2,
            option,
            "* i /a 0,r,0 6,1,16",
            "0 i /b 0,0,r 6,20,1",
        )
        assert counts == {0: {1: 1, 2: 1}, 1: {1: 1}}


def whole(home, table):
    publish_table(home, table)


def missing(_home, _table):
    pass


def damaged(home, table):
    path = publish_table(home, table)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


def stale(home, table):
    identity = dataclasses.replace(
        table.source_identity, mtime_ns=table.source_identity.mtime_ns - 1
    )
    publish_table(home, dataclasses.replace(table, source_identity=identity))


@both_versions
@pytest.mark.parametrize(
    "how",
    [([], missing), (["-m"], missing), (["-m"], damaged), ([], stale)],
    ids=["missing", "missing under collective metadata", "damaged", "stale"],
)
def test_one_rank_without_the_table(program, source, tmp_path, version, how):
    metadata, change = how
    path, home = source
    with_table = Home(tmp_path / "home")
    publish(home, with_table, path)
    without = home_beside(home, tmp_path / "other", path, change)
    counts = compare(
        program(version), source, tmp_path, 2, *metadata,
        "* d /tiles 0,r,0 6,1,16", "* i /a 0,r,0 6,1,16", "* c /a 0,r,0 6,1,16",
        "0 i /b 0,0,r 6,20,1", "* c /b 0,0,r 6,20,1", "* c /tiles 0,0,r 6,20,1",
        homes=[with_table, without],
    )  # fmt: skip
    # The first to read a chunked dataset opens its index, together with the others.
    tiles = {0: 4} if metadata else {0: 3, 3: 1}
    assert counts[0] == {1: 1, 2: 1} | tiles
    assert served(without, 2) == {1: {0: 5}}


@both_versions
@pytest.mark.parametrize("metadata", [[], ["-m"]])
def test_one_rank_without_the_connector(program, source, tmp_path, version, metadata):
    path, home = source
    with_table = Home(tmp_path / "home")
    publish(home, with_table, path)
    counts = compare(
        program(version), source, tmp_path, 2, *metadata,
        "* i /a 0,r,0 6,1,16", "* c /a 0,r,0 6,1,16", "* i /a 0,r,0 6,1,16",
        homes=[with_table, None],
    )  # fmt: skip
    assert counts == {0: {1: 2, 0: 1}}


@both_versions
def test_files_open_for_writing_lose_their_table(program, tmp_path, version):
    path, home = tmp_path / "source.h5", Home(tmp_path / "home")
    write_source(path)
    redirect(path, [("/a", (1, 2, 0))], home)
    under = [connector_environment(home.root)] * 2
    steps = ["* i /a 0,r,0 6,1,16", "* w /a 0,r,0 6,1,16", "* i /a 0,r,0 6,1,16"]
    read = run(program(version), under, tmp_path / "read", "-w", path, steps[0])
    assert table_path(home, path).exists()
    assert all(len(kept.split(b"\n", 1)[1]) == 6 * 16 * 8 for kept in read)
    run(program(version), under, tmp_path / "written", "-w", "-m", path, *steps)
    assert not table_path(home, path).exists()
    assert all(counts.keys() == {0} for counts in served(home, 2).values())
    with h5py.File(path) as file:
        assert not file["a"][:, :2].any()


@both_versions
def test_prefixes_of_names_are_understood(program, source, tmp_path, version):
    path, home = source
    named = Home(tmp_path / "home")
    publish(home, named, path)
    under = [connector_environment(named.root)] * 2
    step = "* i /a 0,r,0 6,1,16"
    plain = run(program(version), under, tmp_path / "plain", path, step)
    assert run(program(version), under, tmp_path / "ufs", f"ufs:{path}", step) == plain
    assert served(named, 2) == {rank: {1: 2} for rank in range(2)}


@both_versions
def test_other_names_with_a_colon_are_left_alone(program, tmp_path, version):
    # MPI-IO may take this for the file 1.h5.
    path, home = tmp_path / "run:1.h5", Home(tmp_path / "source-home")
    write_source(path)
    write_source(tmp_path / "1.h5")
    redirect(path, [("/a", (1, 2, 0))], home)
    counts = compare(program(version), (path, home), tmp_path, 2, "* i /a 0,r,0 6,1,16")
    assert counts == {rank: {0: 1} for rank in range(2)}


@both_versions
@pytest.mark.parametrize("when", ["around", "before", "after"])
def test_a_switched_folder_leads_to_one_file(program, tmp_path, version, when):
    library = tmp_path / "switched_link.so"
    source = Path(__file__).parents[1] / "vol" / "switched_link.c"
    command = ["cc", "-shared", "-fPIC", source, "-o", library, "-ldl"]
    subprocess.run(command, check=True)
    home, link, folders = Home(tmp_path / "home"), tmp_path / "link", [tmp_path / n for n in "12"]
    home.create()
    for n, folder in enumerate(folders):
        folder.mkdir()
        with h5py.File(folder / "x.h5", "w") as file:
            file["a"] = np.full(SHAPE, float(n))
        settle(folder / "x.h5")
        redirect(folder / "x.h5", [("/a", (1, 2, 0))], home)
    got = {}
    for environment in (native_environment(), connector_environment(home.root)):
        link.unlink(missing_ok=True)
        link.symlink_to(folders[0])
        preloaded = [environment[name] for name in ("LD_PRELOAD",) if name in environment]
        extra = {
            "LD_PRELOAD": ":".join([*preloaded, str(library)]), "SWITCHED": when,
            "SWITCHED_NAME": link / "x.h5", "SWITCHED_LINK": link,
            "SWITCHED_TO": folders[1], "SWITCHED_BACK": folders[0],
        }  # fmt: skip
        environment |= {name: str(value) for name, value in extra.items()}
        kept = tmp_path / f"kept-{len(got)}"
        got[kept] = run(program(version), [environment], kept, link / "x.h5", "* i /a 0,2,0 6,1,16")
    native, connected = got.values()
    assert connected == native
    values = np.frombuffer(native[0].split(b"\n", 1)[1])
    assert set(values) == {0.0 if when == "after" else 1.0}
    assert served(home, 1) == {0: {0: 1}}  # which file was opened is not told in time


def random_steps(random, n_ranks, n_steps, *, opens_indices):
    """Return steps that are legal in HDF5; the collective ones are made by all ranks."""
    datasets = ["/a", "/b", "/plain", "/tiles", "/chunked", "@/a", "@/b"]
    steps = []
    if opens_indices:
        # Whoever reads a chunked dataset first opens its index, together with the others.
        steps = [f"* d {name} 0,r,0 1,1,1" for name in ("/tiles", "/chunked")]
    for _ in range(n_steps):
        how = random.choice(list("iiiddmcM"))
        name = random.choice(datasets)
        if how in "mM":
            name = "+".join(random.choice(datasets[:5], 2, replace=False))
        ranks = "*"
        if how in "idm":
            taken = random.random(n_ranks) < random.random()
            ranks = "".join(str(rank) for rank in np.flatnonzero(taken)) or "0"
        start = [int(random.integers(n)) for n in SHAPE]
        count = [int(random.integers(1, n - at + 1)) for at, n in zip(start, SHAPE, strict=True)]
        joined = [",".join(map(str, numbers)) for numbers in (start, count)]
        steps.append(f"{ranks} {how} {name} {joined[0]} {joined[1]}")
    return steps


@both_versions
@pytest.mark.parametrize("seed", range(int(os.environ.get("SDS_TEST_MPI_PROGRAMS", "3"))))
def test_random_programs(program, source, tmp_path, version, seed):
    path, home = source
    random = np.random.default_rng(seed)
    n_ranks = int(random.integers(2, 5))
    options = [option for option in ("-m", "-t") if random.random() < 0.5]
    homes = []
    for rank in range(n_ranks):
        change = random.choice([whole, whole, missing, damaged, stale])
        homes.append(home_beside(home, tmp_path / f"home-{rank}", path, change))
    steps = random_steps(random, n_ranks, 15, opens_indices="-m" in options)
    compare(program(version), source, tmp_path, n_ranks, *options, *steps, homes=homes)
