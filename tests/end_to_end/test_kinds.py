"""Replicas in chunks, with filters, and of a part: made by command, served to a program."""

from __future__ import annotations

from dataclasses import replace

import h5py
import numpy as np
import pytest

from sds.redirect.tables import publish_table, read_table
from tests.end_to_end.conftest import BY_HDF5, ENERGIES, native, settle

INSIDE = (500, 512, 577, 599)
OUTSIDE = (3, 499, 600, 1000)
KINDS = {
    "chunked": ("--chunks", "8,64,64"),
    "compressed": ("--chunks", "auto", "--compress", "shuffle,gzip:1"),
    "partial": ("--region", "[:, :, 500:600]"),
    "both": ("--chunks", "4,64,64", "--compress", "gzip:1", "--region", "[:, :, 500:600]"),
}


@pytest.fixture
def compressed_cube(tmp_path):
    """Write a cube in chunks of spectra: a plane needs them all."""
    path = tmp_path / "compressed.h5"
    values = np.random.default_rng(5).integers(0, 99, (64, 64, ENERGIES)).astype("<i2")
    with h5py.File(path, "w") as file:
        file.create_dataset(
            "image/cube", data=values, chunks=(8, 8, ENERGIES), compression="gzip", shuffle=True
        )
    settle(path)
    return path


def decode_at_once(home, source):
    """Let a table say that decoding takes no time: it is measured beside other tests."""
    table = read_table(home, source)
    datasets = tuple(
        replace(
            dataset,
            candidates=tuple(replace(one, decode_s_per_byte=0.0) for one in dataset.candidates),
        )
        for dataset in table.datasets
    )
    publish_table(home, replace(table, datasets=datasets))


@pytest.mark.parametrize("kind", KINDS)
def test_a_program_is_served_by_a_replica_of_any_kind(sds, cube, program, kind):
    built = sds("reorganize", f"{cube}:/image/cube", "--order", "2,0,1", *KINDS[kind], "--json")
    assert built.code == 0, built.err
    decode_at_once(sds.home, cube)
    printed, decisions = sds.read(program, cube, *INSIDE, **BY_HDF5)
    assert printed == native(program, cube, *INSIDE)
    assert "served" in decisions, decisions

    printed, decisions = sds.read(program, cube, *OUTSIDE, **BY_HDF5)
    assert printed == native(program, cube, *OUTSIDE)
    partial = "--region" in KINDS[kind]
    assert ("served" in decisions) == (not partial), decisions

    verified = sds("replicas", "verify", "--json")
    assert verified.json["ok"], verified.out
    sds("replicas", "remove", f"{cube}:/image/cube")
    printed, decisions = sds.read(program, cube, *INSIDE, **BY_HDF5)
    assert printed == native(program, cube, *INSIDE)
    assert "served" not in decisions


def test_a_compressed_source_is_served_from_chunks_of_another_shape(sds, compressed_cube, program):
    name = f"{compressed_cube}:/image/cube"
    kind = ("--chunks", "16,64,64", "--compress", "source")
    built = sds("reorganize", name, "--order", "2,0,1", *kind, "--json").json
    assert [step["name"] for step in built["filters"]] == ["shuffle", "gzip"]
    printed, decisions = sds.read(program, compressed_cube, *INSIDE)
    assert printed == native(program, compressed_cube, *INSIDE)
    assert "served" in decisions, decisions


def test_a_server_makes_the_same(sds_both, cube, program):
    kind = KINDS["both"]
    built = sds_both("reorganize", f"{cube}:/image/cube", "--order", "2,0,1", *kind, "--json").json
    assert built["region"] == {"start": [0, 0, 500], "extent": [64, 64, 100]}
    shown = sds_both("replicas", "show", built["path"], "--json").json["replicas"]
    assert shown == [built]
    printed, decisions = sds_both.read(program, cube, *INSIDE, **BY_HDF5)
    assert printed == native(program, cube, *INSIDE)
    assert "served" in decisions, decisions


ANYHOW = """
import hashlib, sys
import h5py
import numpy as np
rng = np.random.default_rng(11)
with h5py.File(sys.argv[1], "r", rdcc_nbytes=0) as file:  # a cache that holds all would serve
    cube = file["image/cube"]
    for _ in range(400):
        index = []
        for n in cube.shape:
            first, last = sorted(rng.integers(0, n, 2).tolist())
            part, stepped = slice(first, last + 1), slice(first, last + 1, int(rng.integers(1, 9)))
            index.append([slice(None), first, part, stepped][rng.integers(0, 4)])
        found = np.ascontiguousarray(cube[tuple(index)])
        print(index, found.shape, hashlib.sha256(found.tobytes()).hexdigest())
"""


def test_any_selection_is_the_same_beside_replicas_of_all_kinds(sds, compressed_cube, tmp_path):
    name = f"{compressed_cube}:/image/cube"
    part = ("--chunks", "7,50,9", "--compress", "source", "--region", "[10:50, :, 100:900]")
    for order, kind in (
        ("2,0,1", KINDS["compressed"]),
        ("1,2,0", KINDS["partial"]),
        ("0,2,1", part),
    ):
        built = sds("reorganize", name, "--order", order, *kind, "--json")
        assert built.code == 0, built.err
    program = tmp_path / "anyhow.py"
    program.write_text(ANYHOW)
    expected = native(program, compressed_cube)
    printed, decisions = sds.read(program, compressed_cube)
    assert printed == expected
    assert {"served", "original"} <= set(decisions)
    trace = sds("trace", "show").json
    served = {record["served_by"] for record in trace["records"]}
    assert len(served - {0}) >= 2, served
