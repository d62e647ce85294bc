"""Commands that need no program under the connector: their results, as JSON and as text."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import h5py
import numpy as np
import pytest

from sds.catalog.requests import ReorganizeRequest
from sds.geometry import ReplicaLayout, SegmentList
from sds.hdf5.dataset import describe_dataset
from sds.home import Home
from sds.recommender.candidates.replica_cost import build_command
from sds.redirect.launch.connector import plugin_path
from sds.server.operations.service import Service
from tests.organizer.sources import settle


@pytest.fixture
def cube(tmp_path):
    path = tmp_path / "cube.h5"
    with h5py.File(path, "w") as file:
        file["d"] = np.arange(32 * 32 * 64, dtype="f4").reshape(32, 32, 64)
    return path


@pytest.fixture
def large_cube(tmp_path):
    """A cube of which planes across take long enough, also uncalibrated, to be advised on."""
    path = tmp_path / "large.h5"
    with h5py.File(path, "w") as file:
        file["d"] = np.arange(128 * 128 * 256, dtype="f4").reshape(128, 128, 256)
    return path


def test_explain_gives_every_feature(sds, cube):
    found = sds("explain", f"{cube}:/d", "[:, :, 5]", "--json").json
    assert found["runs"] == 32 * 32
    assert found["bytes_useful"] == 32 * 32 * 4
    for name in (
        "block_depth", "block_gap_count", "block_gap_distance", "block_gap_paper",
        "bytes_touched", "osts_touched", "predicted_s",
    ):  # fmt: skip
        assert found[name] is not None, name
    assert found["calibrated"] is False


def test_explain_takes_striping_raid_and_order(sds, cube):
    layout = ("--stripe-size", "1K", "--stripe-count", "4", "--raid-disks", "2")
    raid = ("--raid-unit", "512", "--raid-min-request", "512")
    narrow = sds("explain", f"{cube}:/d", "[:, :, 5]", *layout, *raid, "--json").json
    assert narrow["osts_touched"] == 4
    # Planes of every 256 B touch every second block of 512 B or more: all of them.
    assert narrow["bytes_touched"] == 32 * 32 * 256 + (
        512 if narrow["data_offset_bytes"] % 512 else 0
    )
    turned = sds("explain", f"{cube}:/d", "[:, :, 5]", "--order", "2,0,1", "--json").json
    assert turned["runs"] == 1
    assert turned["predicted_s"] < narrow["predicted_s"]
    hopper = sds("explain", f"{cube}:/d", "[:, :, 5]", "--preset", "hopper", "--json").json
    assert hopper["raid"]["data_disks"] == 8


def test_explain_reads_well(sds, cube):
    text = sds("explain", f"{cube}:/d", "[:, :, 5]").out
    assert "runs" in text
    assert "(uncalibrated)" in text
    cells = [line.split() for line in text.splitlines()]
    multiple = next(row for row in cells if row[:1] == ["multiple"])
    assert multiple[1:5] == ["pread", "1,024", "4", "KiB"]
    assert {"auto,", "sieve", "list", "pmd"} <= {row[0] for row in cells if row}


def test_explain_plans_every_strategy(sds, cube):
    found = sds("explain", f"{cube}:/d", "[:, :, 5]", "--json").json
    plans = {plan["strategy"]: plan for plan in found["plans"]}
    assert list(plans) == ["auto", "multiple", "sieve", "list", "pmd"]
    assert plans["multiple"]["cold"]["requests"] == found["runs"]
    assert plans["list"]["cold"]["requests"] == found["runs"] / 64
    assert plans["sieve"]["warm"]["memory_bytes"] == plans["sieve"]["warm"]["bytes_read"]
    for plan in plans.values():
        assert plan["warm"]["predicted_s"] < plan["cold"]["predicted_s"]


def test_a_stated_pattern_is_advised_on_without_a_trace(sds, large_cube):
    advice = sds(
        "advise", f"{large_cube}:/d", "--select", "[:, :, 5]", "--reads", "100000", "--json"
    ).json
    assert advice["order"][0] == 2
    assert advice["command"].startswith("sds reorganize ")
    assert advice["seconds_then"] < advice["seconds_now"]
    assert advice["calibrated"] is False
    assert advice["measured_s_now"] is None
    assert (advice["seconds_now"], advice["seconds_now_basis"]) == (
        advice["cold_s_now"],
        "predicted",
    )
    text = sds("advise", f"{large_cube}:/d", "--select", "[:, :, 5]", "--reads", "100000").out
    assert advice["command"] in text
    assert "uncalibrated" in text


def test_a_portfolio_is_advised_under_a_budget(sds, large_cube):
    asked = ("advise", f"{large_cube}:/d", "--select", "[:, :, 5]", "--reads", "100000")
    advice = sds(*asked, "--json").json
    (layout,) = advice["portfolio"]["layouts"]
    assert layout["layout"] == {
        "order": [2, 0, 1],
        "chunk_shape": None,
        "filters": [],
        "region": {"start": [0, 0, 0], "extent": [128, 128, 256]},
        "segments": None,
        "sort": None,
    }
    assert layout["command"] == advice["command"]
    assert layout["saving"]["low"] < layout["saving"]["seconds"] < layout["saving"]["high"]
    assert advice["portfolio"]["exact"] is True
    assert [models["original"] for models in advice["portfolio"]["models"]] == ["builtin"]
    assert sds(*asked, "--verbose").out.count("predicted by builtin (19 of 20 reads within x") == 1
    assert not any("not build" in note for note in advice["notes"])
    none = sds(*asked, "--budget", "1K")
    assert none.code == 0
    assert "Build nothing" in none.out
    assert "no room for any layout" in none.err
    assert "setstripe" not in none.out


def test_reads_along_two_axes_are_stated_together(sds, large_cube):
    both = ("--select", "[:, :, 5]", "--select", "[:, 5, :]")
    advice = sds(
        "advise", f"{large_cube}:/d", *both, "--reads", "100000", "--reads", "500000", "--json"
    ).json
    assert advice["portfolio"]["n_patterns"] == 2
    layouts = advice["portfolio"]["layouts"]
    assert 0 < sum(layout["reads_per_day"] for layout in layouts) <= 600_000
    alike = sds(
        "what-if", f"{large_cube}:/d", "--order", "2,0,1", *both, "--reads", "7", "--json"
    ).json
    assert [row["reads_per_day"] for row in alike["patterns"]] == [7, 7]


@pytest.mark.parametrize(
    ("chunks", "filtered"), [(None, False), ((8, 8, 16), False), ((8, 8, 16), True)]
)
def test_the_command_of_a_layout_builds_it(sds, tmp_path, chunks, filtered):
    path = tmp_path / "a file.h5"
    with h5py.File(path, "w") as handle:
        values = np.arange(32**3).reshape(32, 32, 32)
        handle.create_dataset("d", data=values, chunks=(4, 32, 32), compression=1)
    extent = (32, 32, 32)
    filters = describe_dataset(path, "/d").filters if filtered else ()
    layout = ReplicaLayout.whole(extent, order=(1, 0, 2), chunk_shape=chunks, filters=filters)
    program, *words = shlex.split(build_command(layout, extent, f"{path}:/d"))
    assert program == "sds"
    built = sds(*words, "--json").json
    assert built["order"] == [1, 0, 2]
    assert built["chunk_shape"] == (None if chunks is None else list(chunks))
    assert [step["name"] for step in built["filters"]] == (["gzip"] if filtered else [])


def test_what_if_both_ways(sds, cube):
    reads = ("--select", "[:, :, 5]", "--reads", "100000")
    more = sds("what-if", f"{cube}:/d", "--order", "2,0,1", *reads, "--json").json
    assert more["saving"]["seconds"] > 0
    assert more["models"]["original"] == more["models"]["replica"] == "builtin"
    assert more["models"]["interval_original"] > 1
    chunked = sds(
        "what-if", f"{cube}:/d", "--order", "0,1,2", "--chunks", "8,8,8", *reads, "--json"
    ).json
    assert chunked["added"] == ["order 0,1,2 in chunks 8x8x8"]
    built = sds("reorganize", f"{cube}:/d", "--order", "2,0,1", "--json").json
    less = sds("what-if", f"{cube}:/d", "--without", built["id"], *reads, "--json").json
    assert less["saving"]["seconds"] == pytest.approx(-more["saving"]["seconds"])
    assert less["patterns"][0]["from_now"] == "order 2,0,1"
    text = sds("what-if", f"{cube}:/d", "--without", built["id"], *reads).out
    assert "without" in text
    assert "original" in text
    again = sds("what-if", f"{cube}:/d", "--order", "2,0,1", *reads)
    assert again.code == 2
    assert "exists already" in again.err


def test_a_part_in_compressed_chunks(sds, cube):
    kind = ("--chunks", "16,8,8", "--compress", "shuffle,gzip:3", "--region", "[4:20, :, 1:]")
    built = sds("reorganize", f"{cube}:/d", "--order", "2,0,1", *kind, "--json").json
    assert (built["storage"], built["chunk_shape"]) == ("chunked", [16, 8, 8])
    assert [step["name"] for step in built["filters"]] == ["shuffle", "gzip"]
    assert built["region"] == {"start": [4, 0, 1], "extent": [16, 32, 63]}
    assert 0 < built["stored_bytes"] < built["size_bytes"] == 16 * 32 * 63 * 4
    with h5py.File(cube) as source, h5py.File(built["path"]) as replica:
        assert replica["d"].chunks == (16, 8, 8)
        assert np.array_equal(replica["d"][:], source["d"][4:20, :, 1:].transpose(2, 0, 1))
    said = sds("reorganize", f"{cube}:/d", "--order", "2,0,1", *kind).out
    for part in ("chunked", "16,8,8", "shuffle,gzip:3", "[4:20, 0:32, 1:64]"):
        assert part in said
    listed = sds("replicas").out
    assert "16x8x8 shuffle,gzip:3" in listed
    assert "[4:20, 0:32, 1:64]" in listed
    shown = sds("replicas", "show", "1").out
    for part in ("filters   shuffle,gzip:3", "decoding", "every byte verified", str(cube)):
        assert part in shown
    assert sds("replicas", "show", "1", "--json").json["replicas"][0]["id"] == 1
    (candidate,) = sds("table", "show", cube).json["datasets"][0]["candidates"]
    assert candidate["chunk"] == [16, 8, 8]
    assert "replica 1 removed" in sds("replicas", "remove", "1").out
    assert "replica 1 was gone already (removed by request)" in sds("replicas", "remove", "1").out


def test_a_whole_replica_is_listed_as_such(sds, cube):
    sds("reorganize", f"{cube}:/d", "--order", "2,0,1")
    listed = sds("replicas").out
    assert "contiguous" in listed
    assert " all " in listed
    assert "serves no read" not in listed


def test_a_replica_of_a_source_that_changed_is_told(sds, cube):
    sds("reorganize", f"{cube}:/d", "--order", "2,0,1")
    with h5py.File(cube, "r+") as file:
        file["d"][0, 0, 0] = 7
    listed = " ".join(sds("replicas").out.split())
    assert f"replica 1 serves no read: {cube} is not what was copied (" in listed
    cube.unlink()
    assert "replica 1 serves no read" in " ".join(sds("replicas").out.split())


def test_a_replica_of_segments_is_listed_by_its_tiles(sds, cube, home):
    segments = SegmentList(tile_shape=(1, 32, 8), tiles=(9, 200, 17, 8), lengths=(3, 1))
    request = ReorganizeRequest(file=str(cube), dataset="/d", order=(1, 2, 0), segments=segments)
    with Service.open(Home(home)) as service:
        service.reorganize(request)
    listed = sds("replicas").out
    assert "4 tiles of 1x32x8" in listed
    assert " 1,2,0 " in listed
    shown = sds("replicas", "show", "1").out
    assert "segments  4 tiles of 1x32x8 in 2 segments" in shown
    assert "within    [1:26, 0:32, 0:16]" in shown
    assert "4 tiles in segments" in sds("status").out
    (replica,) = sds("replicas", "--json").json["replicas"]
    assert replica["segments"] == {
        "tile_shape": [1, 32, 8],
        "tiles": [9, 200, 17, 8],
        "lengths": [3, 1],
    }
    checked = sds("replicas", "verify", "1")
    assert (checked.code, "1 replica verified, 0 damaged" in checked.out) == (0, True)
    sds("replicas", "remove", "1")
    assert "tiles" not in sds("status").out


def test_replicas_are_built_listed_verified_shown_and_removed(sds, cube, tmp_path):
    first = sds("reorganize", f"{cube}:/d", "--order", "2,0,1", "--memory", "152M", "--json").json
    assert (first["state"], first["order"]) == ("active", [2, 0, 1])
    elsewhere = tmp_path / ("a" * 200) / "other.h5"  # Wider than a line, and yet not broken.
    elsewhere.parent.mkdir()
    second = sds(
        "reorganize", f"{cube}:/d", "--order", "1,2,0", "--output", elsewhere, "--json"
    ).json
    assert second["path"] == str(elsewhere)
    with h5py.File(cube) as source, h5py.File(elsewhere) as replica:
        assert np.array_equal(replica["d"][:], source["d"][:].transpose(1, 2, 0))

    for listing in (sds("replicas", "--json"), sds("replicas", "list", f"{cube}:/d", "--json")):
        assert {tuple(r["order"]) for r in listing.json["replicas"]} == {(2, 0, 1), (1, 2, 0)}
    assert str(elsewhere) in sds("replicas").out

    checked = sds("replicas", "verify", "--json")
    assert checked.code == 0
    assert checked.json["ok"]
    assert len(checked.json["checks"]) == 2

    table = sds("table", "show", cube).json
    assert [c["order"] for c in table["datasets"][0]["candidates"]] == [[2, 0, 1], [1, 2, 0]]

    removed = sds("replicas", "remove", elsewhere, "--json").json
    assert [r["id"] for r in removed["replicas"]] == [second["id"]]
    assert not elsewhere.exists()
    assert len(sds("table", "show", cube).json["datasets"][0]["candidates"]) == 1
    sds("replicas", "remove", f"{cube}:/d")
    assert sds("replicas").out == "no replicas\n"
    assert sds("replicas", "list", "--all", "--json").json["replicas"]


def test_status_counts(sds, cube):
    before = sds("status", "--json").json
    assert before["server"] is None
    assert before["enabled"] is True
    sds("reorganize", f"{cube}:/d", "--order", "2,0,1")
    assert sds("status", "--json").json["replicas"]["active"] == 1
    assert "1 active" in sds("status").out


def test_ingest_of_an_empty_spool_finds_nothing(sds):
    assert sds("ingest", "--json").json["reads"] == 0


@pytest.mark.parametrize("shell", ["bash", "csh", "fish"])
def test_env_switches_the_connector_on(sds, shell):
    lines = sds("env", "--shell", shell).out
    assert str(plugin_path()) in lines
    assert "sds_preload.so" in lines
    assert "HDF5_" not in lines


def test_env_gives_the_same_variables_as_json(sds):
    """For the kernel.json of a notebook."""
    variables = sds("env", "--json").json["environment"]
    assert set(variables) == {"ASAN_OPTIONS", "LD_PRELOAD", "SDS_CONNECTOR"}
    lines = sds("env").out
    assert all(f"export {name}=" in lines and value in lines for name, value in variables.items())


def test_the_lines_of_env_survive_a_shell(tmp_path):
    home = tmp_path / "it's $HOME `here`"
    program = f"import os; assert os.environ['SDS_HOME'] == {str(home)!r}"
    script = f'eval "$({shlex.quote(sys.executable)} -m sds.cli env)"; python=$1; "$python" -c "$2"'
    subprocess.run(
        ["sh", "-c", script, "sh", sys.executable, program],
        env={"PATH": "/usr/bin:/bin", "SDS_HOME": str(home), "XDG_DATA_HOME": str(tmp_path)},
        check=True,
    )


def test_the_doctor_finds_the_connector_loadable(sds):
    found = sds("doctor", "--json")
    assert found.code == 0, found
    assert found.json["ok"] is True
    assert {host["package"] for host in found.json["hosts"]} >= {"h5py", "netCDF4"}
    assert all(host["loads"] for host in found.json["hosts"])


def test_the_doctor_looks_at_a_command(sds):
    found = sds("doctor", "--json", "--", sys.executable, "-x", "--json")
    assert found.json["command"] == [sys.executable, "-x", "--json"]
    assert found.json["ok"] is True
    run = sds("doctor", "--run", "--json", "--", sys.executable, "-c", "import h5py; print(1)")
    assert [host["version"] for host in run.json["hosts"]] == ["2.0.0"]
    assert run.code == 0


def test_the_doctor_judges_a_selection(sds, cube):
    sds("reorganize", f"{cube}:/d", "--order", "2,0,1")
    found = sds("doctor", f"{cube}:/d", "[0]", "--json")
    assert found.json["datasets"][0]["served"] is False
    assert "predicted" in found.json["datasets"][0]["reason"]
    assert sds("doctor", f"{cube}:/d", "[0, 9999999]").code == 2


def test_the_doctor_refuses_what_makes_no_sense(sds, cube):
    for words in (("--run",), (cube, "[0]"), ("--python", sys.executable, "--", "true")):
        refused = sds("doctor", *words)
        assert refused.code == 2
        assert "sds: error: " in refused.err


def test_the_doctor_says_why_a_file_is_not_served_and_when_it_is(sds, cube, home):
    before_text = sds("doctor", f"{cube}:/d").out
    before = sds("doctor", f"{cube}:/d", "--json")
    assert before.code == 0
    assert before.json["datasets"][0]["served"] is False
    assert "sds reorganize" in before.json["datasets"][0]["remedy"]
    sds("reorganize", f"{cube}:/d", "--order", "2,0,1")
    after = sds("doctor", f"{cube}:/d")
    assert after.code == 0, after
    assert "served by a replica" in after.out
    assert re.search(r"^tables .*\.sdst \(/d\)$", after.out, re.MULTILINE)
    assert re.search(r"^tables +1 found$", sds("doctor").out, re.MULTILINE)
    assert re.search(r"^tables +none of ", before_text, re.MULTILINE)
    (home / "disabled").touch()
    assert "remove" in sds("doctor").out


def test_what_cannot_be_reorganized_is_not_advised(sds, tmp_path):
    file = tmp_path / "v.h5"
    with h5py.File(file, "w") as handle:
        handle.create_dataset("source", data=np.zeros((512, 64, 64), "f4"))
        layout = h5py.VirtualLayout((512, 64, 64), "f4")
        layout[...] = h5py.VirtualSource(handle["source"])
        handle.create_virtual_dataset("virtual", layout)
        words = np.full((512, 512), "abc", dtype=object)
        handle.create_dataset("words", data=words, dtype=h5py.string_dtype())
    for name, selection, order, why in (
        ("virtual", "[:, 3, 4]", "1,2,0", "stored in other files"),
        ("words", "[:, 3]", "1,0", "fixed size"),
    ):
        reads = ("--select", selection, "--reads", "20000")
        advised = sds("advise", f"{file}:/{name}", *reads)
        assert advised.code == 0, advised.err
        assert "sds reorganize" not in advised.out
        assert why in advised.err
        supposed = sds("what-if", f"{file}:/{name}", "--order", order, *reads)
        assert supposed.code == 2
        assert why in supposed.err
    stored = sds("advise", f"{file}:/source", "--select", "[:, 3, 4]", "--reads", "20000")
    assert "sds reorganize" in stored.out


def test_numbers_of_reads_are_written_out(sds, cube):
    reads = ("--select", "[:, 3, 4]", "--reads", "20000")
    assert "20,000" in sds("what-if", f"{cube}:/d", "--order", "1,2,0", *reads).out


def test_replicas_of_an_earlier_state_of_a_file_count_for_nothing(sds, large_cube):
    asked = ("advise", f"{large_cube}:/d", "--select", "[:, :, 5]", "--reads", "100000", "--json")
    advised = sds(*asked).json["command"]
    assert sds(*advised.split()[1:]).code == 0
    assert sds(*asked).json["command"] is None
    with h5py.File(large_cube, "r+") as file:
        file["d"][0, 0, 0] = 7
    settle(large_cube)
    again = sds(*asked).json
    assert again["command"] == advised
    assert any("serves no read" in note and "has changed since" in note for note in again["notes"])


def test_selections_by_coordinate_values_are_those_by_index(sds, tmp_path):
    path = tmp_path / "maps.h5"
    with h5py.File(path, "w") as file:
        maps = file.create_dataset("t", data=np.zeros((48, 9, 6), "f4"))
        file["time"] = np.arange(48)
        file["time"].attrs["units"] = "days since 2000-12-20"
        file["lat"] = np.linspace(-40, 40, 9)
        file["lon"] = np.arange(6) * 60
        for axis, name in enumerate(("time", "lat", "lon")):
            file[name].make_scale()
            maps.dims[axis].attach_scale(file[name])
    settle(path)
    named, index = "time=2001-01, lat=11", "[12:43, 5, :]"
    target = f"{path}:/t"
    explained = [sds("explain", target, text, "--json").json for text in (named, index)]
    assert explained[0] == explained[1]
    supposed = ("what-if", target, "--order", "lat,lon,time", "--json")
    by_name = sds(*supposed, "--select", named, "--region", "time=2001-01").json
    assert by_name == sds(*supposed, "--select", index, "--region", "[12:43, :, :]").json
    asked = ("advise", target, "--budget", "1G", "--json", "--select")
    advised = [sds(*asked, text).json for text in (named, index)]
    assert advised[0] == advised[1]
    built = sds("reorganize", target, "--order", "lat,lon,time", "--region", "lat=0:", "--json")
    assert built.json["region"] == {"start": [0, 4, 0], "extent": [48, 5, 6]}
    (looked_at,) = sds("doctor", target, "lat=10, lon=60", "--json").json["datasets"]
    assert looked_at["served"] or "cheaper" in looked_at["reason"], looked_at
    refused = sds("explain", target, "height=3")
    assert refused.code == 2
    assert "'height' is no dimension of /t: they are time, lat, lon" in refused.err
