"""Places that are read again and again: advised, supposed, built and taken away by command."""

import shlex
import socket

import h5py
import numpy as np
import pytest

from sds import _native, _spool_writer

EXTENT = (1000, 40, 40)


@pytest.fixture
def stations(tmp_path):
    """A grid of time series, contiguous."""
    path = tmp_path / "grid.h5"
    rng = np.random.default_rng(4)
    with h5py.File(path, "w") as handle:
        handle["t"] = rng.integers(-9, 9, EXTENT).astype("<f4")
    return path


@pytest.fixture
def trace(home, stations):
    """Write the trace of a process that read time series at some places, in any order."""

    def write(places, n_reads, *, start_ns=1_000, extent=EXTENT):
        (home / "spool").mkdir(parents=True, exist_ok=True)
        writer = _spool_writer.SpoolWriter(
            home / "spool",
            pid=2**22 + 1,
            start_ns=start_ns,
            host=socket.gethostname(),
            executable="/usr/bin/python3",
        )
        dataset = writer.add_dataset(
            file=str(stations),
            path="/t",
            identity=_native.identity(stations),
            extent=extent,
            element_bytes=4,
            type_class=1,
            storage=1,
            data_offset_bytes=2048,
            hdf5_version="2.0.0",
        )
        rng = np.random.default_rng(start_ns)
        start = np.zeros((n_reads, 3), dtype=np.int64)
        start[:, 1:] = np.array(places)[rng.integers(0, len(places), n_reads)]
        writer.add_reads(
            dataset,
            start=start,
            stride=[1, 1, 1],
            count=[extent[0], 1, 1],
            block=[1, 1, 1],
            start_ns=10**18 + np.arange(n_reads, dtype=np.int64) * 30_000_000,
            elapsed_ns=np.full(n_reads, 20_000_000, dtype=np.int64),
            n_elements=extent[0],
        )
        writer.close()

    return write


def places(n):
    rng = np.random.default_rng(n)
    return [tuple(divmod(int(k), 40)) for k in rng.permutation(1600)[:n]]


def test_what_recurs_is_advised_built_as_it_says_and_supposed_away(sds, stations, trace):
    trace(places(30), 300)
    sds("ingest")
    asked = ("advise", f"{stations}:/t", "--budget", "500K")
    advice = sds(*asked, "--json").json
    (layout,) = advice["portfolio"]["layouts"]
    held = layout["layout"]["segments"]
    assert held["tile_shape"] == [1000, 1, 1]
    assert 25 <= len(held["tiles"]) <= 30
    assert layout["command"].endswith("--order 0,1,2 --tiles 1000,1,1 --min-reads 2")
    said = sds(*asked).out
    assert layout["name"] in " ".join(said.split())
    assert "is read again and again: forecast for" in " ".join(said.split())
    assert layout["command"] in said
    supposed = sds("what-if", f"{stations}:/t", "--order", "0,1,2", "--tiles", "1000,1,1", "--json")
    assert supposed.json["added"] == [layout["name"]]
    assert supposed.json["saving"]["seconds"] == pytest.approx(
        layout["saving"]["seconds"], rel=0.05
    )
    built = sds(*shlex.split(layout["command"])[1:], "--json").json
    assert built["segments"] == held
    with h5py.File(stations) as source, h5py.File(built["path"]) as replica:
        for k, tile in enumerate(held["tiles"]):
            i, j = divmod(tile, 40)
            assert np.array_equal(replica["t"][k, :, 0, 0], source["t"][:, i, j])
    again = sds(*asked, "--json").json["portfolio"]
    assert again["layouts"] == []
    assert again["seconds_now"] < 0.2 * advice["portfolio"]["seconds_now"]
    away = sds("what-if", f"{stations}:/t", "--without", built["id"], "--json").json
    assert away["taken_away"] == [layout["name"]]
    assert away["saving"]["seconds"] < 0


def test_more_reads_are_asked_of_tiles_and_other_tiles_are_another_replica(sds, stations, trace):
    trace(places(3), 100)
    trace([(39, 39), (0, 39)], 4, start_ns=2_000)
    sds("ingest")
    build = ("reorganize", f"{stations}:/t", "--order", "1,2,0", "--tiles", "1000,1,1", "--json")
    often = sds(*build, "--min-reads", "10").json["segments"]
    assert sorted(often["tiles"]) == sorted(40 * i + j for i, j in places(3))
    more = sds(*build, "--min-reads", "1").json["segments"]
    assert set(more["tiles"]) > set(often["tiles"])
    shown = " ".join(sds(*build[:-1], "--min-reads", "10").out.split())
    assert "3 tiles of 1000x1x1 in" in shown
    assert len(sds("replicas", "--json").json["replicas"]) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--tiles", "1000,1"), "tiles of 1000,1 elements in a dataset of 1000x40x40: give each"),
        (("--tiles", "1000,0,1"), "tiles of 1000,0,1 elements in a dataset of 1000x40x40"),
        (("--tiles", "1000,1,1x"), "have no shape: write a length for each axis"),
        (("--tiles", "1000,1,1", "--min-reads", "99"), "no tile of 1000,1,1 elements was read 99"),
        (("--min-reads", "3"), "--min-reads 3 without tiles: name their shape by --tiles"),
        (("--tiles", "1000,1,1", "--chunks", "9,9,9"), "--chunks and --tiles exclude each other"),
        (
            ("--tiles", "9,9,9", "--region", "[:5]", "--compress", "gzip:1"),
            "--compress, --region and --tiles exclude",
        ),
    ],
)
def test_what_cannot_be_gathered_is_refused_with_the_remedy(sds, stations, trace, words, said):
    trace(places(3), 40)
    sds("ingest")
    refused = sds("reorganize", f"{stations}:/t", "--order", "0,1,2", *words)
    assert refused.code == 2
    assert said in " ".join(refused.err.split())
    assert "Traceback" not in refused.err


def test_where_nothing_is_known_or_recurs_the_words_are_clear(sds, stations, trace):
    build = ("reorganize", f"{stations}:/t", "--order", "0,1,2", "--tiles", "1000,1,1")
    assert "run programs with sds run, then sds ingest" in " ".join(sds(*build).err.split())
    trace([(k // 40, k % 40) for k in range(1600)], 1, start_ns=7)
    sds("ingest")
    refused = " ".join(sds(*build).err.split())
    assert "was read 2 times or more in the last 1 read of" in refused
    assert "name larger tiles (--tiles), or fewer reads (--min-reads)" in refused
    supposed = sds("what-if", f"{stations}:/t", "--tiles", "1000,1,1")
    assert "tiles without an axis order: name that too" in " ".join(supposed.err.split())
    both = sds("reorganize", f"{stations}:/t", "--sort", "x", "--tiles", "1", "--min-reads", "2")
    assert "--tiles, --min-reads and --sort exclude" in " ".join(both.err.split())


def test_a_grid_that_grew_has_no_trail_any_more(sds, stations, trace):
    trace(places(5), 50, extent=(900, 40, 40))
    sds("ingest")
    refused = sds("reorganize", f"{stations}:/t", "--order", "0,1,2", "--tiles", "1000,1,1")
    assert "and of another extent" in " ".join(refused.err.split())


def test_tiles_are_supposed_for_stated_reads_too(sds, stations, trace):
    trace([(3, 4), (9, 9)], 60)
    sds("ingest")
    what_if = ("what-if", f"{stations}:/t", "--order", "0,1,2", "--tiles", "1000,1,1", "--json")
    there = sds(*what_if, "--select", "[:, 3, 4]", "--reads", "9").json
    assert there["saving"]["seconds"] > 0
    elsewhere = sds(*what_if, "--select", "[:, 4, 4]", "--reads", "9").json
    assert elsewhere["saving"]["seconds"] == 0
