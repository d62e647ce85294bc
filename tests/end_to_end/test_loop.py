"""The whole loop, as a user goes through it: run, ingest, advise, reorganize, run again."""

from __future__ import annotations

import shlex

import h5py
import numpy as np
import pytest

from tests.end_to_end.conftest import BY_HDF5, native

ENERGIES = (3, 1000, 512, 77, 78)


def test_a_traced_program_is_advised_served_and_reads_the_same_bytes(sds_both, cube, program):
    expected = native(program, cube, *ENERGIES)

    printed, decisions = sds_both.read(program, cube, *ENERGIES, **BY_HDF5)
    assert printed == expected
    assert "served" not in decisions

    trace = sds_both("trace", "show").json
    assert trace["n_reads"] >= len(ENERGIES)
    assert [dataset["path"] for dataset in trace["datasets"]] == ["/image/cube"]

    advice = sds_both("advise", cube, "--json").json  # counts what was traced
    assert advice["dataset"] == "/image/cube"
    assert advice["order"][0] == 2
    assert advice["seconds_then"] < advice["seconds_now"]
    status = sds_both("status", "--json").json
    assert status["reads"] == trace["n_reads"]
    assert (status["server"] is None) == (status["server_pid"] is None)
    assert advice["measured_s_now"] == pytest.approx(status["elapsed_s"])
    assert advice["seconds_now"] == pytest.approx(advice["measured_s_now"])
    assert advice["seconds_now_basis"] == "measured"
    assert advice["saves_s"] <= advice["measured_s_now"]
    assert sds_both("ingest", "--json").json["reads"] == 0

    program_name, *words = shlex.split(advice["command"])
    assert program_name == "sds"
    built = sds_both(*words, "--json").json
    assert (built["state"], built["order"]) == ("active", advice["order"])
    with h5py.File(built["path"]) as replica, h5py.File(cube) as source:
        copy, original = replica["image/cube"], source["image/cube"]
        assert np.array_equal(copy[:], original[:].transpose(built["order"]))
        assert copy.attrs["units"] == "counts"

    printed, decisions = sds_both.read(program, cube, *ENERGIES)
    assert printed == expected
    assert decisions.count("served") >= 1
    assert "original" in decisions, "spectra are not served from this replica"

    check_measured(sds_both, cube, built["id"])

    second = sds_both("reorganize", f"{cube}:/image/cube", "--order", "1,2,0", "--json").json
    assert second["id"] != built["id"]
    assert len(sds_both("replicas", "--json").json["replicas"]) == 2
    assert sds_both("replicas", "verify", "--json").json["ok"]
    assert sds_both.read(program, cube, *ENERGIES)[0] == expected

    sds_both("replicas", "remove", f"{cube}:/image/cube")
    printed, decisions = sds_both.read(program, cube, *ENERGIES)
    assert printed == expected
    assert "served" not in decisions


def check_measured(sds, cube, replica_id):
    """Compare what is said of measured times with the traces of one run before and one after."""
    sds("ingest")
    explained = sds("explain", f"{cube}:/image/cube", "[:, :, 9]", "--json").json
    measured = {times["served_by"]: times for times in explained["measured"]}
    assert {served_by: times["n"] for served_by, times in measured.items()} == {
        0: len(ENERGIES),
        replica_id: len(ENERGIES),
    }
    spectra = sds("explain", f"{cube}:/image/cube", "[7, 7]", "--json").json["measured"]
    total_s = sum(times["total_s"] for times in [*measured.values(), *spectra])
    assert sds("status", "--json").json["elapsed_s"] == pytest.approx(total_s)
    shown = sds("explain", f"{cube}:/image/cube", "[:, :, 9]").out
    assert f"median of {len(ENERGIES)} reads by HDF5" in shown
    assert f"by replica {replica_id}" in shown
    report = sds("report", cube, "--json").json
    planes = next(each for each in report["patterns"] if "axis 2" in each["description"])
    by_hdf5, by_replica = planes["served"]
    assert by_replica["compared_s"] == by_hdf5["median_s"]
    assert report["saved_by_replicas_s"] == pytest.approx(by_replica["saved_s"])
    assert report["elapsed_s"] == pytest.approx(total_s)
    assert f"replica {replica_id}" in sds("report", f"{cube}:/image/cube").out
    (proof,) = sds("replicas", "show", str(replica_id), "--json").json["measured"]
    assert (proof["id"], proof["n"]) == (replica_id, len(ENERGIES))
    assert proof["saved_s"] == pytest.approx(by_replica["saved_s"])
    assert f"{len(ENERGIES)} reads in" in sds("replicas", "show", str(replica_id)).out
    assert "no read was traced" in sds("report", sds.directory / "other.h5").out


def test_a_loop_over_the_columns_of_a_matrix_is_advised(sds, tmp_path):
    matrix = tmp_path / "matrix.h5"
    with h5py.File(matrix, "w") as file:
        file["m"] = np.arange(4000 * 300, dtype="f8").reshape(4000, 300)
    program = tmp_path / "columns.py"
    program.write_text(
        "import sys, h5py\n"
        "with h5py.File(sys.argv[1]) as file:\n"
        "    print(sum(file['m'][:, k].sum() for k in range(20)))\n"
    )
    sds.read(program, matrix, **BY_HDF5)
    assert sds("ingest", "--json").json["reads"] == 20
    assert sds("status", "--json").json["reads"] == 20
    assert sds("advise", matrix, "--json").json["order"] == [1, 0]


def test_each_read_is_counted_once(sds_both, cube, program):
    sds_both.read(program, cube, *ENERGIES)
    n_reads = sds_both("trace", "show").json["n_reads"]
    for _ in range(3):
        sds_both("ingest")
    assert sds_both("status", "--json").json["reads"] == n_reads
    sds_both.read(program, cube, *ENERGIES)
    sds_both("ingest")
    assert sds_both("status", "--json").json["reads"] == 2 * n_reads


def test_errors_are_the_same_with_and_without_a_server(sds_both, cube, tmp_path):
    text = tmp_path / "text.h5"
    text.write_text("this is text")
    (tmp_path / "closed").mkdir(mode=0o500)
    build = ("reorganize", f"{cube}:/image/cube")
    for words, code, said in (
        ((*build, "--order", "0,1"), 2, "0,1"),
        (("reorganize", f"{cube}:/no", "--order", "2,0,1"), 3, "/image/cube"),
        (("reorganize", f"{text}:/d", "--order", "2,0,1"), 4, "text.h5"),
        (("reorganize", f"{tmp_path}/no.h5:/d", "--order", "2,0,1"), 3, "no.h5"),
        ((*build, "--order", "2,0,1", "--output", tmp_path / "closed" / "r.h5"), 6, "closed"),
        (("replicas", "remove", "99"), 3, "99"),
        (("advise", tmp_path / "no.h5"), 3, "no.h5"),
        (("advise", f"{cube}:/image/cube", "--select", "[0, 0, 5000]"), 2, "5000"),
    ):
        result = sds_both(*words, "--json")
        assert result.code == code, (words, result)
        assert said in result.err
        assert result.err.startswith("sds: error: ")
        assert result.json["error"]["exit_code"] == code


HOT_PLANES = """
import hashlib, sys
import h5py
with h5py.File(sys.argv[1], "r") as file:
    cube = file["image/cube"]
    digest = hashlib.sha256()
    for turn in range(3):
        for energy in (311, 300, 305, 318, 302, 309, 316, 303):
            digest.update(cube[:, :, energy].tobytes())
    for energy in (0, 1023):
        digest.update(cube[:, :, energy].tobytes())
print(digest.hexdigest())
"""


def test_a_part_that_is_read_again_and_again_is_advised_and_serves(sds_both, cube, tmp_path):
    """Trace, advice within a budget, the command it prints, and reads served from the part."""
    program = tmp_path / "hot.py"
    program.write_text(HOT_PLANES)
    expected = native(program, cube)
    assert sds_both.read(program, cube, **BY_HDF5)[0] == expected
    assert sds_both("ingest", "--json").code == 0

    advice = sds_both("advise", cube, "--budget", "1M", "--json").json
    (part,) = advice["portfolio"]["layouts"]
    assert part["layout"]["region"] == {"start": [0, 0, 300], "extent": [64, 64, 19]}
    assert part["shares"]["space"] == 19 / 1024
    assert round(part["shares"]["reads"] * 26) == 24
    assert part["size_bytes"] == 19 * 64 * 64 * 4
    text = sds_both("advise", cube, "--budget", "1M").out
    assert "--region '[0:64, 0:64, 300:319]'" in text
    assert "holds 1.9% of the dataset, where 92% of its reads lie" in text

    program_name, *words = shlex.split(part["command"])
    assert program_name == "sds"
    built = sds_both(*words, "--json").json
    assert built["state"] == "active"
    printed, decisions = sds_both.read(program, cube)
    assert printed == expected
    assert "served" in decisions
    assert "original" in decisions, "the first and the last plane lie outside"

    away = sds_both("what-if", f"{cube}:/image/cube", "--without", built["id"], "--json").json
    assert away["saving"]["seconds"] < 0
    supposed = sds_both(
        "what-if", f"{cube}:/image/cube", "--order", "2,1,0", "--region", "[:, :, 0:1]", "--json"
    ).json
    assert supposed["added"] == ["order 2,1,0, of [0:64, 0:64, 0:1]"]
    assert supposed["size_bytes"] == 64 * 64 * 4


SCATTERED_PLANES = """
import hashlib, sys
import h5py
with h5py.File(sys.argv[1], "r") as file:
    cube = file["image/cube"]
    digest = hashlib.sha256()
    for turn in range(4):
        for energy in (707, 12, 990, 333, 58, 604, 871, 240, 129, 455):
            digest.update(cube[:, :, energy].tobytes())
    digest.update(cube[:, :, 500].tobytes())
print(digest.hexdigest())
"""
OFTEN_READ = (707, 12, 990, 333, 58, 604, 871, 240, 129, 455)


def test_what_is_read_again_and_again_all_over_a_dataset_is_gathered(sds_both, cube, tmp_path):
    """Trace, advice within a budget that has no room for a box, and reads served from segments."""
    program = tmp_path / "scattered.py"
    program.write_text(SCATTERED_PLANES)
    expected = native(program, cube)
    assert sds_both.read(program, cube, **BY_HDF5)[0] == expected
    assert sds_both("ingest", "--json").code == 0

    advice = sds_both("advise", cube, "--budget", "1M", "--json").json
    (gathered,) = advice["portfolio"]["layouts"]
    segments = gathered["layout"]["segments"]
    assert segments["tile_shape"][:2] == [64, 64]
    assert {energy // segments["tile_shape"][2] for energy in OFTEN_READ} == set(segments["tiles"])
    assert gathered["size_bytes"] == len(segments["tiles"]) * 4 * np.prod(segments["tile_shape"])
    assert gathered["size_bytes"] < 1e6
    assert "--tiles 64,64," in sds_both("advise", cube, "--budget", "1M").out

    program_name, *words = shlex.split(gathered["command"])
    assert program_name == "sds"
    built = sds_both(*words, "--json").json
    assert built["state"] == "active"
    assert built["segments"] == segments
    assert sds_both("replicas", "verify", "--json").json["ok"]
    printed, decisions = sds_both.read(program, cube)
    assert printed == expected
    assert "served" in decisions
    assert "original" in decisions, "plane 500 was read once"
    assert "tiles" in sds_both("replicas").out

    away = sds_both("what-if", f"{cube}:/image/cube", "--without", built["id"], "--json").json
    assert away["saving"]["seconds"] < 0
    sds_both("replicas", "remove", built["id"])
    tiles = ("--tiles", "64,64,1", "--min-reads", "3")  # plane 500 was read in each run
    supposed = sds_both("what-if", f"{cube}:/image/cube", "--order", "2,0,1", *tiles, "--json").json
    assert supposed["saving"]["seconds"] > 0
    assert supposed["size_bytes"] == len(OFTEN_READ) * 64 * 64 * 4

    with h5py.File(cube, "r+") as file:
        file["image/cube"][:, :, 12] = 1
    changed = native(program, cube)
    assert changed != expected
    assert sds_both.read(program, cube)[0] == changed
