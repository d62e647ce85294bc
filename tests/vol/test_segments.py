"""Programs read the same bytes from replicas of segments, where all tiles of a read are held."""

import dataclasses
import json
import os
import shutil
import subprocess
from pathlib import Path

import h5py
import numpy as np
import pytest

from sds.geometry import Hyperslab, SegmentList
from sds.geometry.segments import tile_grid
from sds.hdf5.identity import identity_of
from sds.redirect.tables import RedirectTable, publish_table, read_table, table_path
from tests.hdf5_builds import hdf5_build, program
from tests.page_cache import drop_from_page_cache, pages_cached
from tests.redirected import (
    publish_candidates,
    reads_by_replica,
    redirect,
    settle,
    with_models,
    write_replica,
)
from tests.under_connector import (
    connector_environment,
    decisions,
    native_environment,
    run_python,
)
from tests.vol.test_cost import private_memory
from tests.vol.test_redirect import (
    DAMAGES,
    LARGE_READS,
    RANDOM_READS,
    READS_WHILE_A_TABLE_IS_DAMAGED,
    damage_header,
    damage_owner,
    write_source,
)
from tests.waiting import wait_until

KINDS = Path(__file__).with_name("kinds.c")
ANNOUNCEMENTS = Path(__file__).with_name("announcements.c")
PLANES = (18, 28, 22)  # that kinds.c reads


def segments_of(extent, tile_shape, *, seed, share=1.0):
    """Return so great a share of all tiles, in any order and any segments."""
    random = np.random.default_rng(seed)
    n_grid = int(np.prod(tile_grid(extent, tile_shape)))
    tiles = random.permutation(n_grid)[: max(1, round(share * n_grid))].tolist()
    lengths = []
    while sum(lengths) < len(tiles):
        lengths.append(int(random.integers(1, len(tiles) - sum(lengths) + 1)))
    return SegmentList(tile_shape=tile_shape, tiles=tuple(tiles), lengths=tuple(lengths))


# Name, order of the replica, shape of its tiles.
DATASETS = [
    ("/f4", (2, 0, 1), (4, 5, 3)),
    ("/big_endian", (1, 0, 2), (9, 1, 11)),
    ("/i2", (0, 1, 2), (2, 14, 11)),
    ("/complex", (0, 2, 1), (5, 14, 2)),
    ("/text", (1, 2, 0), (3, 3, 3)),
    ("/bool", (2, 0, 1), (1, 1, 1)),
    ("/compound", (2, 1, 0), (9, 14, 11)),
    ("/chunked", (0, 1, 2), (3, 7, 5)),
    ("/line", (0,), (7,)),
    ("/plane", (1, 0), (4, 11)),
    ("/four", (3, 1, 0, 2), (2, 3, 2, 3)),
    ("/five", (4, 2, 0, 1, 3), (2, 2, 3, 1, 2)),
]


@pytest.fixture
def source(tmp_path):
    path = write_source(tmp_path / "source.h5")
    with h5py.File(path, "a") as file:
        file["five"] = np.random.default_rng(1).standard_normal((5, 4, 6, 3, 4))
    settle(path)
    return path


def redirect_tiles(source, datasets, home, *, share=1.0, always=True):
    """Publish a replica of some tiles of each (path, order, tile shape), and return the table."""
    candidates = {}
    with h5py.File(source) as file:
        extents = {path: file[path].shape for path, _, _ in datasets}
    for number, (path, order, tile_shape) in enumerate(datasets, start=1):
        segments = segments_of(extents[path], tile_shape, seed=number, share=share)
        replica = write_replica(source, path, order, home, number=number, segments=segments)
        candidates[path] = [replica]
    return publish_candidates(source, candidates, home, always=always)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("share", "least"), [(1.0, 200), (0.5, 10)])
def test_random_reads_are_equal(seed, share, least, source, home):
    redirect_tiles(source, DATASETS, home, share=share)
    arguments = (source, seed, 400)
    native = run_python(RANDOM_READS, *arguments, env=native_environment())
    redirected = run_python(RANDOM_READS, *arguments, env=connector_environment(home.root))
    assert redirected.stdout == native.stdout
    served = reads_by_replica(home)
    assert sum(n for replica, n in served.items() if replica > 0) > least, served


def test_random_reads_of_what_the_organizer_gathers_are_equal(source, home):
    with h5py.File(source) as file:
        extents = {path: file[path].shape for path, _, _ in DATASETS}
    gathered = [
        (path, order, {"segments": segments_of(extents[path], tile_shape, seed=1, share=0.9)})
        for path, order, tile_shape in DATASETS
    ]
    redirect(source, gathered, home)
    native = run_python(RANDOM_READS, source, 7, 400, env=native_environment())
    redirected = run_python(RANDOM_READS, source, 7, 400, env=connector_environment(home.root))
    assert redirected.stdout == native.stdout
    assert sum(n for replica, n in reads_by_replica(home).items() if replica > 0) > 50


def test_a_wrong_table_would_be_seen(source, home):
    # The control of the test above: tables that swap two tiles, or two axes, give other bytes.
    table = redirect_tiles(source, DATASETS[:1], home)
    (dataset,) = table.datasets
    (candidate,) = dataset.candidates
    right = candidate.segments
    program = "import sys, h5py; print(h5py.File(sys.argv[1])['f4'][1:5, :7, 2:9].tolist())"
    native = run_python(program, source, env=native_environment()).stdout
    for wrong in (
        {},
        {"order": (0, 2, 1)},
        {"segments": dataclasses.replace(right, tiles=right.tiles[::-1])},
    ):
        changed = dataclasses.replace(candidate, **wrong)
        publish_table(
            home,
            dataclasses.replace(
                table, datasets=(dataclasses.replace(dataset, candidates=(changed,)),)
            ),
        )
        redirected = run_python(program, source, env=connector_environment(home.root)).stdout
        assert (redirected == native) == (not wrong), wrong


READ_SLABS = """
    import json, sys, h5py, numpy as np
    with h5py.File(sys.argv[1]) as file:
        data = file["values"]
        expected = np.arange(data.size, dtype="f8").reshape(data.shape)
        for start, stride, count, block in json.load(open(sys.argv[2])):
            space = data.id.get_space()
            space.select_hyperslab(tuple(start), tuple(count), tuple(stride), tuple(block))
            shape = tuple(c * b for c, b in zip(count, block))
            out = np.full(shape, np.nan)
            data.id.read(h5py.h5s.create_simple(shape), space, out)
            on = [[a + s * i + j for i in range(c) for j in range(b)]
                  for a, s, c, b in zip(start, stride, count, block)]
            assert np.array_equal(out, expected[np.ix_(*on)]), (start, stride, count, block)
"""


def any_slab(random, extent):
    start, stride, count, block = [], [], [], []
    for n in extent:
        begin = int(random.integers(n))
        longest = min(n - begin, int(random.choice([1, 1, 3, n])))
        b = int(random.integers(1, longest + 1))
        s = b + int(random.choice([0, 1, 4, n]))
        start.append(begin), stride.append(s), block.append(b)
        count.append(int(random.integers(1, (n - begin - b) // s + 2)))
    return Hyperslab(
        start=tuple(start), stride=tuple(stride), count=tuple(count), block=tuple(block)
    )


@pytest.mark.parametrize(
    ("extent", "tile_shape"),
    [
        ((600,), (7,)),
        ((40, 33), (8, 8)),
        ((20, 21, 13), (20, 4, 5)),
        ((9, 8, 10, 7), (2, 8, 3, 3)),
        ((5, 6, 5, 4, 6), (2, 3, 5, 1, 4)),
    ],
)
def test_served_are_just_the_reads_whose_tiles_are_held(extent, tile_shape, tmp_path, home):
    # In chunks: of a contiguous original HDF5 reads what lies in one run itself.
    path = tmp_path / "values.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset(
            "values", data=np.arange(np.prod(extent), dtype="f8").reshape(extent), chunks=extent
        )
    settle(path)
    order = tuple(range(len(extent)))[::-1]
    redirect_tiles(path, [("/values", order, tile_shape)], home, share=0.7)
    segments = read_table(home, path).datasets[0].candidates[0].segments
    random = np.random.default_rng(5)
    slabs = [any_slab(random, extent) for _ in range(600)]
    held = [slab for slab in slabs if segments.holds(slab, extent)]
    others = [slab for slab in slabs if not segments.holds(slab, extent)]
    assert min(len(held), len(others)) > 50
    for kind, asked in (("held", held), ("others", others)):
        listed = tmp_path / kind
        axes = [(slab.start, slab.stride, slab.count, slab.block) for slab in asked]
        listed.write_text(json.dumps(axes))
        run_python(READ_SLABS, path, listed, env=connector_environment(home.root))
        replica = 1 if kind == "held" else 0
        assert reads_by_replica(home) == {replica: len(asked)}, kind
        for spooled in home.spool.iterdir():
            spooled.unlink()


def test_reads_of_many_tiles_are_the_originals(tmp_path, home):
    path = tmp_path / "values.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("values", data=np.arange(2000.0), chunks=(2000,))
    settle(path)
    redirect_tiles(path, [("/values", (0,), (1,))], home)
    program = """
        import sys, h5py, numpy as np
        with h5py.File(sys.argv[1]) as file:
            for index in (np.s_[:1024], np.s_[1:1026], np.s_[::2], np.s_[976:], np.s_[:1025]):
                assert np.array_equal(file["values"][index], np.arange(2000.0)[index])
    """
    run_python(program, path, env=connector_environment(home.root))
    assert reads_by_replica(home) == {1: 3, 0: 2}


def test_elements_that_are_listed_are_the_originals(source, home):
    redirect_tiles(source, DATASETS[:1], home)
    program = """
        import sys, h5py, numpy as np
        with h5py.File(sys.argv[1]) as file:
            data = file["f4"]
            whole = data[...]
            assert np.array_equal(data[[1, 2, 5]], whole[[1, 2, 5]])
            points = np.zeros(data.shape, bool)
            points[::2, 3, 1:5] = points[1, 2, 3] = True
            assert np.array_equal(data[points], whole[points])
            # A box, to points in memory.
            space, memory = data.id.get_space(), h5py.h5s.create_simple((40,))
            space.select_hyperslab((1, 2, 3), (2, 3, 4))
            memory.select_elements([(i * 7 % 40,) for i in range(24)])
            out = np.zeros(40, "f4")
            data.id.read(memory, space, out)
            assert np.array_equal(out[[i * 7 % 40 for i in range(24)]],
                                  whole[1:3, 2:5, 3:7].ravel())
    """
    log = home.root / "log"
    run_python(program, source, env=connector_environment(home.root, SDS_DEBUG=log))
    served = reads_by_replica(home)
    assert served == {0: 4}
    assert any("which serve boxes alone" in line[3] for line in decisions(log))


def test_large_reads_go_in_pieces(tmp_path, home):
    path = tmp_path / "large.h5"
    values = np.arange(300 * 70 * 130, dtype="f8").reshape(300, 70, 130)
    with h5py.File(path, "w") as file:
        file["cube"] = values
    settle(path)
    redirect_tiles(path, [("/cube", (2, 0, 1), (160, 70, 100))], home)
    run_python(LARGE_READS, path, env=connector_environment(home.root, SDS_ENGINE="0"))
    assert reads_by_replica(home)[1] == 6


# ---- the choice


@pytest.fixture
def grid(tmp_path):
    """Return a chunked 64 x 64 dataset of which a tile is 16 x 16."""
    path = tmp_path / "grid.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("grid", data=np.arange(64.0 * 64).reshape(64, 64), chunks=(64, 64))
    settle(path)
    return path


READ_PATCHES = """
    import json, sys, h5py, numpy as np
    expected = np.arange(64.0 * 64).reshape(64, 64)
    with h5py.File(sys.argv[1]) as file:
        for y, x, n in json.loads(sys.argv[2]):
            assert np.array_equal(file["grid"][y:y+n, x:x+n], expected[y:y+n, x:x+n])
"""


def read_patches(path, patches, home):
    for spooled in home.spool.iterdir():
        spooled.unlink()
    env = connector_environment(home.root)
    run_python(READ_PATCHES, path, json.dumps(patches), env=env)
    return reads_by_replica(home)


def test_a_read_of_more_tiles_costs_more(grid, home):
    # By these models a read of each tile takes 0.3 s, and of the original 1 s: of one shape, reads
    # that touch one tile or two are served, those that touch four are not, in whatever order.
    table = redirect_tiles(grid, [("/grid", (1, 0), (16, 16))], home)
    publish_table(home, with_models(table, original_s=1.0, replica_s=0.3))
    one, two, four = (16, 32, 16), (16, 40, 16), (24, 40, 16)
    assert read_patches(grid, [one, four, two, four, one, one, four], home) == {1: 4, 0: 3}
    assert read_patches(grid, [four, one] * 100, home) == {1: 100, 0: 100}
    assert read_patches(grid, [(0, 0, 64)], home) == {0: 1}  # 16 tiles
    publish_table(home, with_models(table, original_s=5.0, replica_s=0.3))
    assert read_patches(grid, [(0, 0, 64), four], home) == {1: 2}
    publish_table(home, with_models(table, original_s=4.7, replica_s=0.3))
    assert read_patches(grid, [(0, 0, 64), four], home) == {0: 1, 1: 1}


def test_many_tiles_are_predicted_as_many(tmp_path, home):
    path = tmp_path / "values.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("grid", data=np.arange(64.0 * 64).reshape(64, 64), chunks=(64, 64))
    settle(path)
    table = redirect_tiles(path, [("/grid", (0, 1), (2, 64))], home)
    publish_table(home, with_models(table, original_s=9.3, replica_s=0.3))
    assert read_patches(path, [(0, 0, 60), (0, 0, 64)], home) == {1: 1, 0: 1}


def test_replicas_compete(grid, home):
    # Of tiles, of a part and of everything: the cheapest that holds a read serves it.
    tiles = write_replica(
        grid, "/grid", (0, 1), home, number=1, segments=segments_of((64, 64), (16, 16), seed=1)
    )
    whole = write_replica(grid, "/grid", (1, 0), home, number=2)
    table = publish_candidates(grid, {"/grid": [tiles, whole]}, home)
    (dataset,) = table.datasets
    model = dataset.model
    for tile_s, whole_s, expected in ((0.1, 0.35, 1), (0.1, 0.05, 2)):
        candidates = [
            dataclasses.replace(one, model=dataclasses.replace(model, floor_s=seconds))
            for one, seconds in zip(dataset.candidates, (tile_s, whole_s), strict=True)
        ]
        changed = dataclasses.replace(dataset, candidates=tuple(candidates))
        publish_table(home, dataclasses.replace(table, datasets=(changed,)))
        assert read_patches(grid, [(16, 16, 16)] * 3, home) == {expected: 3}
        assert read_patches(grid, [(8, 8, 30)] * 3, home) == {2: 3}  # nine tiles


# ---- fall-backs: the bytes of the original, and the reason in the log


READ_PLANE = """
    import sys, h5py
    with h5py.File(sys.argv[1]) as file:
        print(file["f4"][:, :, 3].tolist())
"""


def read_plane(path, home):
    """Return what is read under the connector, how many reads were served, and the reasons."""
    log = home.root / "log"
    log.unlink(missing_ok=True)
    for file in home.spool.iterdir():
        file.unlink()
    result = run_python(READ_PLANE, path, env=connector_environment(home.root, SDS_DEBUG=log))
    assert result.stderr == ""
    served = sum(n for replica, n in reads_by_replica(home).items() if replica > 0)
    return json.loads(result.stdout), served, [line[3] for line in decisions(log)]


def plane_of(path):
    with h5py.File(path) as file:
        return file["f4"][:, :, 3].tolist()


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("under_its_new_identity", [False, True])
def test_a_damaged_replica_serves_nothing(damage, under_its_new_identity, source, home):
    if damage is damage_owner and os.geteuid() != 0:
        pytest.skip("only root gives files away")
    table = redirect_tiles(source, DATASETS[:1], home)
    assert read_plane(source, home)[:2] == (plane_of(source), 1)
    (dataset,) = table.datasets
    (candidate,) = dataset.candidates
    damage(candidate.path)
    if under_its_new_identity:
        if damage is not damage_header:  # the others cannot be told from what was published
            return
        changed = dataclasses.replace(candidate, identity=identity_of(candidate.path))
        dataset = dataclasses.replace(dataset, candidates=(changed,))
        publish_table(home, dataclasses.replace(table, datasets=(dataset,)))
    values, served, reasons = read_plane(source, home)
    assert (values, served) == (plane_of(source), 0)
    assert any("replica" in reason for reason in reasons), reasons


def test_a_damaged_table_serves_nothing(source, home):
    redirect_tiles(source, DATASETS[:1], home)
    path = table_path(home, source)
    whole = path.read_bytes()
    kept = home.root / "whole"
    kept.write_bytes(whole)
    env = connector_environment(home.root)
    run_python(READS_WHILE_A_TABLE_IS_DAMAGED, source, path, kept, "f4", env=env)
    assert reads_by_replica(home)[1] == 1


def test_two_replicas_of_one_number(tmp_path, home):
    # A table that is wrong: the one must not be read where the other is meant.
    source, datasets = tmp_path / "two.h5", {}
    values = np.random.default_rng(3).integers(-30000, 30000, (9, 14, 11))
    with h5py.File(source, "w") as file:
        for name, dtype in (("f4", "f4"), ("i2", "i2")):
            file.create_dataset(name, data=values.astype(dtype), chunks=(9, 14, 11))
    settle(source)
    for number, (path, lengths) in enumerate((("/f4", (3,)), ("/i2", (1, 1, 1))), start=1):
        segments = SegmentList(tile_shape=(3, 14, 11), tiles=(2, 0, 1), lengths=lengths)
        replica = write_replica(source, path, (2, 0, 1), home, number=number, segments=segments)
        datasets[path] = [dataclasses.replace(replica, replica_id=1)]
    publish_candidates(source, datasets, home)
    program = """
        import sys, h5py
        with h5py.File(sys.argv[1]) as file:
            print([file[name][1:8, 2:9, 3].tolist() for name in ("f4", "i2")])
    """
    native = run_python(program, source, env=native_environment())
    redirected = run_python(program, source, env=connector_environment(home.root))
    assert redirected.stdout == native.stdout
    assert reads_by_replica(home) == {1: 2}


def test_a_replica_that_ends_early_while_it_is_read(source, home):
    # Truncated after it was opened: the tile that is gone has the read made from the original.
    table = redirect_tiles(source, DATASETS[:1], home)
    replica = table.datasets[0].candidates[0].path
    program = """
        import os, sys, h5py, numpy as np
        with h5py.File(sys.argv[1]) as file:
            first = file["f4"][:, :, 3]
            os.truncate(sys.argv[2], 9000)
            for _ in range(5):
                assert np.array_equal(file["f4"][:, :, 3], first)
    """
    run_python(program, source, replica, env=connector_environment(home.root))
    assert reads_by_replica(home)[1] == 1


def test_a_write_drops_the_replica(source, home):
    redirect_tiles(source, DATASETS[:1], home)
    program = """
        import sys, h5py
        with h5py.File(sys.argv[1]) as file:
            before = file["f4"][:, :, 3]
        with h5py.File(sys.argv[1], "r+") as file:
            file["f4"][:, :, 3] = before + 1
        with h5py.File(sys.argv[1]) as file:
            assert (file["f4"][:, :, 3] == before + 1).all()
    """
    run_python(program, source, env=connector_environment(home.root))
    assert reads_by_replica(home)[1] == 1
    assert not table_path(home, source).exists()


def test_lists_of_tiles_take_little_memory(tmp_path, home):
    # Of 60 files at a time, 220 KB each: those that find no room are read themselves.
    first = tmp_path / "00.h5"
    with h5py.File(first, "w") as file:
        file.create_dataset("rows", data=np.arange(1 << 15, dtype="u1").reshape(-1, 2), chunks=True)
    settle(first)
    (dataset,) = redirect_tiles(first, [("/rows", (1, 0), (1, 2))], home).datasets
    for number in range(1, 60):
        path = tmp_path / f"{number:02}.h5"
        shutil.copyfile(first, path)
        settle(path)
        table = RedirectTable(
            source_path=path, source_identity=identity_of(path), datasets=(dataset,)
        )
        publish_table(home, table)
    program = """
    expected = np.arange(1 << 15, dtype="u1").reshape(-1, 2)[5:70]
    files = [h5py.File(path) for path in sorted(Path(sys.argv[1]).glob("*.h5"))]
    for file in files:
        assert np.array_equal(file["rows"][5:70], expected)
    print_private_memory()
    for file in files[:50]:
        file.close()
    files[:50] = []
    again = h5py.File(Path(sys.argv[1]) / "01.h5")
    assert np.array_equal(again["rows"][5:70], expected)
    """
    # The last file that is opened finds the room that others have left.
    log = home.root / "log"
    more_bytes = private_memory(program, tmp_path, home=home, SDS_DEBUG=str(log))
    served = reads_by_replica(home)
    assert 10 < served[1] < 60
    assert served[0] == 61 - served[1]
    assert more_bytes < 8 << 20
    reasons = [line[3] for line in decisions(log) if line[0] == "no-table"]
    assert set(reasons) == {"the tables of other files take the memory that there is"}
    assert len(reasons) == served[0]


# ---- what is read ahead


TILE_BYTES = 32768 * 8


@pytest.fixture
def series(tmp_path, home):
    """Return a file, and a replica of it in two segments, of tiles of 256 KiB, out of the cache."""
    path = tmp_path / "series.h5"
    with h5py.File(path, "w") as file:
        values = np.arange(64.0 * 32768).reshape(64, 32768)
        file.create_dataset("series", data=values, chunks=(1, 32768))
    settle(path)
    segments = SegmentList(
        tile_shape=(1, 32768), tiles=(*range(40, 60), *range(0, 40, 2)), lengths=(20, 20)
    )
    replica = write_replica(path, "/series", (0, 1), home, segments=segments)
    table = publish_candidates(path, {"/series": [replica]}, home)
    drop_from_page_cache(replica.path)
    return path, table.datasets[0].candidates[0]


@pytest.fixture(scope="module")
def announcing(tmp_path_factory):
    """Return the library to preload."""
    library = tmp_path_factory.mktemp("announcing") / "announcements.so"
    subprocess.run(
        [program("cc"), "-shared", "-fPIC", "-O1", "-Wall", "-Werror", ANNOUNCEMENTS, "-o", library,
         "-ldl"], check=True,
    )  # fmt: skip
    return library


@pytest.fixture
def announced(announcing, series, tmp_path):
    """Return the variables that have a program record what it announces of the replica, and that.

    The record is what the function returns: (first byte, end) in the array of tiles, joined.
    """
    log, (_, candidate) = tmp_path / "announcements", series

    def ranges():
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return joined(
            (int(offset) - candidate.data_offset_bytes, int(length))
            for offset, length in map(str.split, lines)
        )

    variables = {"LD_PRELOAD": announcing, "ANNOUNCEMENTS": log, "ANNOUNCED_FILE": candidate.path}
    return variables, ranges


def joined(pieces):
    """Return (begin, end) of the pieces (begin, length) of tiles, those that meet as one."""
    ranges = []
    for begin, length in pieces:
        if not 0 <= begin < 40 * TILE_BYTES:
            continue  # what lies around the tiles is read when the replica is checked
        if ranges and ranges[-1][1] == begin:
            ranges[-1] = (ranges[-1][0], begin + length)
        else:
            ranges.append((begin, begin + length))
    return ranges


def tiles(first, end):
    """Return the bytes of stored tiles as a range."""
    return first * TILE_BYTES, end * TILE_BYTES


def cached_tiles(candidate):
    """Return how much of each tile the cache holds, in stored order."""
    pages = pages_cached(candidate.path)
    begins = [
        candidate.data_offset_bytes + k * TILE_BYTES for k in range(len(candidate.segments.tiles))
    ]
    return [pages[-(-b // 4096) : (b + TILE_BYTES) // 4096].mean() for b in begins]


def test_what_follows_in_a_segment_is_read_ahead(series, home, announced):
    path, candidate = series
    program = """
        import sys, h5py, numpy as np
        with h5py.File(sys.argv[1]) as file:
            for row in map(int, sys.argv[2:]):
                expected = np.arange(row * 32768.0, (row + 1) * 32768)[::2]
                assert np.array_equal(file["series"][row, ::2], expected)
    """
    variables, ranges = announced
    env = connector_environment(home.root, **variables)
    run_python(program, path, 45, env=env)  # the sixth that is stored
    assert reads_by_replica(home) == {1: 1}
    assert ranges()[-1] == tiles(5, 9)  # a MiB
    wait_until(
        lambda: min(cached_tiles(candidate)[5:9]) > 0.9,  # a hint may leave out a page
        lambda: f"what was announced has come: {cached_tiles(candidate)}",
    )
    cached = cached_tiles(candidate)
    assert max(cached[:5]) == 0, cached
    assert max(cached[10:]) == 0, cached  # the kernel itself reads a little ahead
    # Behind the last of a segment comes the first; in the other segment there is nothing.
    drop_from_page_cache(candidate.path)
    run_python(program, path, 59, env=env)
    assert ranges()[-2:] == [tiles(19, 20), tiles(0, 3)]
    wait_until(
        lambda: min(*(cached := cached_tiles(candidate))[:2], cached[19]) > 0.9,
        lambda: f"what was announced has come: {cached_tiles(candidate)}",
    )
    assert max(cached_tiles(candidate)[21:]) == 0


def test_the_module_reads_ahead_as_well(series, home, announced):
    """What is read is asked for while the replica is checked, and may have come before the read."""
    path, candidate = series
    program = """
        import sys, numpy as np, sds
        expected = np.arange(45 * 32768.0, 46 * 32768)[::2]
        assert np.array_equal(sds.read(sys.argv[1], "/series", np.s_[45, ::2]), expected)
    """
    variables, ranges = announced
    env = native_environment(SDS_HOME=home.root, **variables)

    def reads_ahead():
        drop_from_page_cache(candidate.path)
        run_python(program, path, env=env)
        found = ranges()
        assert all(tiles(5, 9)[0] <= a < b <= tiles(5, 9)[1] for a, b in found), found
        return tiles(5, 9) in found

    wait_until(reads_ahead, "the read comes before what was asked for, and reads ahead")


def test_of_a_segment_16_mebibytes_are_announced_at_most(series, home, announced):
    """Dropped from the cache again and again, what was announced before is hardly announced more.

    The first read may find what was asked for while the replica was checked.
    """
    path, candidate = series
    program = """
        import os, sys, h5py
        sys.path.insert(0, sys.argv[3])
        from tests.page_cache import drop_from_page_cache
        with h5py.File(sys.argv[1]) as file:
            for turn in range(24):
                drop_from_page_cache(sys.argv[2])
                file["series"][45, ::2]
    """
    root = Path(__file__).parents[2]
    variables, ranges = announced
    env = connector_environment(home.root, **variables)
    run_python(program, path, candidate.path, root, env=env)
    assert reads_by_replica(home) == {1: 24}
    assert ranges().count(tiles(5, 9)) == 16


def test_what_is_cached_is_not_announced(series, home, announced):
    # The tile that is read is cached: there is no reason to think that the others are wanted.
    path, candidate = series

    def load_tile():
        with candidate.path.open("rb", buffering=0) as file:
            file.seek(candidate.data_offset_bytes + 5 * TILE_BYTES)
            assert len(file.read(TILE_BYTES)) == TILE_BYTES
        return cached_tiles(candidate)[5] == 1

    wait_until(load_tile, "the tile stays in the page cache")
    program = """
        import sys, h5py
        with h5py.File(sys.argv[1]) as file:
            for _ in range(3):
                file["series"][45, ::2]
    """
    variables, ranges = announced
    run_python(program, path, env=connector_environment(home.root, **variables))
    assert reads_by_replica(home) == {1: 3}
    assert ranges() == []


# ---- programs in C, threads and processes


@pytest.mark.parametrize("way", ["thread", "fork"])
def test_a_small_stack_and_the_child_of_a_fork(way, source, home):
    redirect_tiles(source, DATASETS, home)
    program = """
        import multiprocessing, sys, threading, h5py
        threading.stack_size(128 << 10)

        def show(file):
            print(file["f4"][1:8:3, 2:13, 3:9].tolist())
            print(file["i2"].astype("f8")[:, 3, 2:].tolist())
            print(file["five"][1:4, :, ::2, 1, 1:3].tolist(), flush=True)

        with h5py.File(sys.argv[1]) as file:
            show(file)
            if sys.argv[2] == "fork":
                other = multiprocessing.get_context("fork").Process(target=show, args=(file,))
            else:
                other = threading.Thread(target=show, args=(file,))
            other.start()
            other.join()
            show(file)
    """
    native = run_python(program, source, way, env=native_environment())
    redirected = run_python(program, source, way, env=connector_environment(home.root))
    assert (redirected.stdout, redirected.stderr) == (native.stdout, "")
    assert native.stdout.count("\n") == 9
    served = reads_by_replica(home)
    assert set(served) == {1, 3, 12}
    # The child of a fork ends without a word to the trace, which has what was due until then.
    assert (9 if way == "thread" else 6) <= sum(served.values()) <= 9


@pytest.fixture
def cube(tmp_path, home):
    """Return the file that kinds.c reads, planes 0 to 4 and 10 to 14 of which are in a replica."""
    path = tmp_path / "cube.h5"
    with h5py.File(path, "w") as file:
        file["cube"] = np.arange(np.prod(PLANES), dtype=float).reshape(PLANES)
    settle(path)
    tiles = [n for n in range(3 * 4 * 5) if n % 5 in (0, 2)]
    np.random.default_rng(2).shuffle(tiles)
    segments = SegmentList(tile_shape=(7, 9, 5), tiles=tuple(tiles), lengths=(1, 20, 3))
    replica = write_replica(path, "/cube", (2, 0, 1), home, segments=segments)
    publish_candidates(path, {"/cube": [replica]}, home)
    return path


@pytest.mark.parametrize("end", ["close", "left-open", "library-close", "twice"])
@pytest.mark.parametrize("version", ["1.14.6", "2.0.0", "2.2.0"])
def test_a_program_in_c(version, end, cube, home, tmp_path):
    program = hdf5_build(version).compile(KINDS, tmp_path / "program")
    served = compare(program, cube, end, home=home)
    assert served == ({1: 20, 0: 24} if end == "twice" else {1: 10, 0: 12})


def test_threads_of_a_thread_safe_library(cube, home, tmp_path):
    program = hdf5_build("1.14.6", "threadsafe").compile(KINDS, tmp_path / "program")
    served = compare(program, cube, "threads", home=home)
    planes = [*range(22)] + 4 * [turn * 7 % 22 for turn in range(200)]
    n = sum(plane in (*range(5), *range(10, 15)) for plane in planes)
    assert served == {1: n, 0: len(planes) - n}


def compare(program, *arguments, home):
    """Run a program natively and under the connector; return the reads by replica."""
    command = [program, *map(str, arguments)]
    native, found = (
        subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=300)
        for env in (native_environment(), connector_environment(home.root))
    )
    assert (native.returncode, native.stderr) == (0, "")
    assert "wrong: 0" in native.stdout
    assert (found.returncode, found.stdout, found.stderr) == (0, native.stdout, "")
    return reads_by_replica(home)
