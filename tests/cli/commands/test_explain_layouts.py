"""`sds explain` in layouts that are supposed, on files that say they are on Lustre, and drawn."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import h5py
import matplotlib.image
import numpy as np
import pytest

from sds.home import Home
from sds.mounts import filesystem_of
from sds.recommender.models.cost_model import Via
from sds.server.operations.service import Service
from tests.accounts import becomes_nobody
from tests.geometry.lustre_layouts import EOF, INIT, MIB, composite, plain_v1, plain_v3
from tests.plots.evidence import calibration

SHIM = Path(__file__).parents[2] / "geometry" / "lustre_attribute.c"


@pytest.fixture(scope="module")
def array(tmp_path_factory):
    path = tmp_path_factory.mktemp("layouts") / "array.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("d", (64, 128, 256), "f4", data=np.ones((64, 128, 256), "f4"))
        file.create_dataset("c", (64, 128, 256), "f4", chunks=(8, 16, 32), compression="gzip")
        file["c"][...] = 1
        file["scalar"] = 3.0
        file.create_dataset("none", (0, 5), "f8")
        file.create_dataset("deep", (1,) * 32, "i2", data=np.ones((1,) * 32, "i2"))
    return path


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    library = tmp_path_factory.mktemp("shim") / "lustre.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, SHIM, "-ldl"], check=True)
    return library


def run_sds(*words, **environment):
    """Run the command in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "sds.cli", *words],
        env=os.environ | environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout


@pytest.fixture
def sds_on_lustre(shim, tmp_path):
    """Return a function that runs sds where every file's lustre.lov is what it is given."""

    def run(attribute, *words):
        (tmp_path / "lustre.lov").write_bytes(attribute)
        lov = str(tmp_path / "lustre.lov")
        return run_sds(*words, LD_PRELOAD=str(shim), TEST_LUSTRE_LOV=lov)

    return run


def test_layouts_are_shown_side_by_side(sds, array):
    every = ("--order", "2,0,1", "--order", "0,2,1", "--stripe-count", "4", "--stripe-count", "8")
    found = sds("explain", f"{array}:/d", "[:, :, 5]", *every, "--compare", "--json").json
    assert found["labels"] == [
        "as it is",
        "order 2,0,1, 4 OSTs",
        "order 2,0,1, 8 OSTs",
        "order 0,2,1, 4 OSTs",
        "order 0,2,1, 8 OSTs",
    ]
    assert [e["runs"] for e in found["layouts"]] == [64 * 128, 1, 1, 64, 64]
    assert [e["stripes"]["stripe_count"] for e in found["layouts"]] == [1, 4, 8, 4, 8]
    alone = sds(
        "explain", f"{array}:/d", "[:, :, 5]", "--order", "0,2,1", "--stripe-count", "8", "--json"
    ).json
    assert alone == found["layouts"][4]
    text = sds("explain", f"{array}:/d", "[:, :, 5]", *every, "--compare").out
    for label in ("as it is", "amplification", "19 of 20 within", "requests, as planned"):
        assert label in text


def test_the_fastest_is_named_only_where_it_can_be_told(sds, array):
    clear = sds("explain", f"{array}:/d", "[:, :, 5]", "--order", "2,0,1", "--compare")
    assert "predicted fastest: order 2,0,1" in clear.err
    alike = ("--stripe-count", "4", "--stripe-count", "8")
    close = sds("explain", f"{array}:/d", "[3]", *alike)
    assert "cannot be told apart" in close.err
    assert sds("explain", f"{array}:/d", "[3]", *alike, "--json").json["best"] is None


def test_supposed_chunks_are_counted_whole(sds, array):
    found = sds(
        "explain", f"{array}:/d", "[:, :, 5]", "--chunks", "8,16,32", "--order", "1,0,2", "--json"
    ).json
    assert found["chunks_touched"] == 16 * 4 * 1
    assert found["chunk_shape"] == [8, 16, 32]
    assert found["bytes_touched"] == 16 * 4 * 8 * 16 * 32 * 4
    assert found["amplification"] == pytest.approx(32)
    assert found["plans"] == []
    assert found["predicted_low_s"] < found["predicted_s"] < found["predicted_high_s"]
    packed = sds(
        "explain", f"{array}:/d", "[:, :, 5]", "--chunks", "16,8,32", "--stored-ratio", "0.25",
        "--json",
    ).json  # fmt: skip
    assert packed["bytes_touched"] == found["bytes_touched"] / 4
    assert packed["predicted_s"] is None
    assert "filters" in packed["notes"][-1]


def test_a_file_on_lustre_is_explained_as_it_is_striped(sds_on_lustre, array):
    attribute = plain_v3(MIB, [7, 2, 9, 4])
    found = json.loads(sds_on_lustre(attribute, "explain", f"{array}:/d", "[3]", "--json"))
    assert found["stripes_from"] == "from lustre.lov"
    assert found["stripes"] == {"stripe_size_bytes": MIB, "stripe_count": 4}
    assert [load["ost"] for load in found["osts"]] == [2, 4, 7, 9]
    assert sum(load["bytes_touched"] for load in found["osts"]) == found["bytes_touched"]
    assert "(from lustre.lov)" in sds_on_lustre(attribute, "explain", f"{array}:/d", "[3]")


def test_a_progressive_layout_counts_component_by_component(sds_on_lustre, array):
    attribute = composite(
        [
            (0, MIB, INIT, 0, plain_v1(64 << 10, [1])),
            (MIB, 4 * MIB, INIT, 0, plain_v1(64 << 10, [3, 1])),
            (4 * MIB, EOF, INIT, 0, plain_v1(MIB, [5, 6, 7])),
        ]
    )
    found = json.loads(sds_on_lustre(attribute, "explain", f"{array}:/d", "[...]", "--json"))
    assert len(found["stripe_components"]) == 3
    assert found["osts_touched"] == 5
    by_ost = {load["ost"]: load["bytes_touched"] for load in found["osts"]}
    # All of the first component and half of the second are on OST 1.
    assert by_ost[1] >= 2.5 * MIB - 8192
    assert by_ost[3] == 1.5 * MIB
    assert "3 components" in sds_on_lustre(attribute, "explain", f"{array}:/d", "[3]")


def test_an_attribute_that_makes_no_sense_is_passed_over_with_the_reason(sds_on_lustre, array):
    attribute = plain_v1(4096, [1, 2])
    found = json.loads(sds_on_lustre(attribute, "explain", f"{array}:/d", "[3]", "--json"))
    assert found["stripes_from"] == "assumed"
    assert "striping is assumed: a stripe size of 4096 bytes" in found["notes"][0]


def test_striping_that_is_configured_counts_as_that(sds, array, monkeypatch):
    monkeypatch.setenv("SDS_STRIPE_COUNT", "6")
    monkeypatch.setenv("SDS_RAID_DATA_DISKS", "2")
    found = sds("explain", f"{array}:/d", "[...]", "--json").json
    assert found["stripes_from"] == "configured"
    assert found["stripes"]["stripe_count"] == 6
    assert found["raid"]["data_disks"] == 2


def test_disks_are_drawn_in_the_terminal(sds, array):
    hopper = sds("explain", f"{array}:/d", "[:, :, 5]", "--preset", "hopper").out
    assert re.search(r"^OST 0 +99$", hopper, re.MULTILINE)
    assert "blocks of each disk of the OST" in hopper
    raid = ("--raid-disks", "3", "--raid-unit", "64K", "--stripe-count", "5")
    rows = sds("explain", f"{array}:/d", "[0, 0:40]", *raid).out.splitlines()
    drawn = {row.split()[1]: row[7:] for row in rows if re.match(r"disk \d ", row)}
    assert drawn == {"0": "█····", "1": "·····", "2": "·····"}


def test_terminals_that_take_ascii_only_get_ascii(array):
    words = ("explain", f"{array}:/d", "[...]", "--preset", "hopper")
    text = run_sds(*words, PYTHONIOENCODING="ascii:replace")
    drawing = text[text.index("OST 0") :]
    assert drawing.isascii()
    assert "blocks of each disk of the OST, blank none" in drawing
    assert "?" not in drawing


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_pictures_are_drawn(sds, array, tmp_path, kind):
    picture = tmp_path / f"disks.{kind}"
    layouts = ("--order", "2,0,1", "--compare", "--stripe-count", "156", "--raid-disks", "8")
    sds("explain", f"{array}:/d", "[:, :, 5]", *layouts, "--draw", str(picture))
    if kind == "svg":
        assert picture.read_text().rstrip().endswith("</svg>")
        return
    image = matplotlib.image.imread(picture)
    assert image.shape[1] == 1500
    assert len(np.unique(image.reshape(-1, image.shape[2]), axis=0)) > 20


@pytest.mark.parametrize("n_osts", [1, 2, 7, 156, 2000])
def test_pictures_of_any_number_of_osts(sds, array, tmp_path, n_osts):
    picture = tmp_path / "disks.png"
    sds("explain", f"{array}:/d", "[::3]", "--stripe-count", str(n_osts), "--stripe-size", "64K",
        "--raid-disks", "8", "--draw", str(picture))  # fmt: skip
    assert matplotlib.image.imread(picture).shape[1] == 1500


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--chunks", "0,4,4"), "length 0 on replica axis 0, which has 64 elements: give 1 to 64"),
        (("--chunks", "4,4"), "name one length for each"),
        (("--chunks", "8,999999,8"), "length 999999 on replica axis 1, which has"),
        (("--order", "2,1,0", "--chunks", "999999,1,1"), "length 999999 on replica axis 0"),
        (("--chunks", "auto"), "supposes nothing definite"),
        (("--chunks", "contiguous"), "give --order as well"),
        (("--stored-ratio", "0.5"), "give chunks as well"),
        (("--chunks", "4,4,4", "--stored-ratio", "-1"), "a ratio such as 0.4"),
        (("--order", "0,0,1"), "is no permutation"),
        (("--stripe-count", "0"), "stripe_count is 0; give at least 1"),
        (("--stripe-size", "half"), "is no size"),
        (("--draw", "picture.gif"), "end with .png or .svg"),
        (("--draw", "/nowhere/at/all.png"), "cannot write /nowhere/at/all.png"),
        (("--stripe-counts", "4"), "No such option"),
    ],
)
def test_bad_layouts_are_refused_in_words(sds, array, options, words):
    refused = sds("explain", f"{array}:/d", "[3]", *options)
    assert refused.code != 0
    assert words in " ".join(refused.err.replace("│", " ").split())


def test_too_many_layouts_at_once_are_refused(sds, array):
    many = [text for n in range(1, 80) for text in ("--stripe-count", str(n))]
    refused = sds("explain", f"{array}:/d", "[3]", *many)
    assert "79 layouts to compare; give 1 to 64" in refused.err


def test_stripes_that_no_lustre_has_are_remarked(sds, array):
    shown = sds("explain", f"{array}:/d", "[3]", "--stripe-size", "100000")
    assert "no Lustre file has stripes of 100000 bytes" in shown.err


def test_odd_datasets(sds, array):
    scalar = sds("explain", f"{array}:/scalar", "...", "--json").json
    assert (scalar["runs"], scalar["osts_touched"]) == (1, 1)
    nothing = sds("explain", f"{array}:/none", "...", "--compare", "--order", "1,0", "--json").json
    assert nothing["layouts"][1]["runs"] == 0
    assert nothing["layouts"][1]["amplification"] is None
    deep = sds("explain", f"{array}:/deep", "...", "--json").json
    assert deep["runs"] == 1
    past = sds("explain", f"{array}:/d", "[:, 130:200:7, 0]", "--json").json
    assert past["bytes_useful"] == 0
    turned = ",".join(map(str, reversed(range(32))))
    assert sds("explain", f"{array}:/deep", "...", "--order", turned, "--json").json["runs"] == 1


def test_matplotlib_is_loaded_only_to_draw():
    modules = "sds.cli.commands.explain, sds.explain.explanation"
    program = f"import {modules}, sys; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_redirect_tables_say_how_source_and_replica_are_striped(sds, array, tmp_path, monkeypatch):
    """Each as its own file is: an lfs that knows the replica by its name."""
    replica = tmp_path / "replica.h5"
    lfs = tmp_path / "bin" / "lfs"
    lfs.parent.mkdir()
    lfs.write_text(
        f"""#!/bin/sh
case "$3" in {replica}) n=12;; *) n=3;; esac
echo "lmm_stripe_count:  $n
lmm_stripe_size:   4194304
lmm_pattern:       raid0"
"""
    )
    lfs.chmod(0o755)
    monkeypatch.setenv("PATH", f"{lfs.parent}:{os.environ['PATH']}")
    sds("reorganize", f"{array}:/d", "--order", "2,0,1", "--output", replica)
    (dataset,) = sds("table", "show", array).json["datasets"]
    assert dataset["layout"]["stripe_count"] == 3
    assert dataset["candidates"][0]["layout"]["stripe_count"] == 12
    assert dataset["candidates"][0]["layout"]["stripe_size_bytes"] == 4 * MIB
    advised = sds("advise", f"{array}:/d", "--select", "[:, :, 5]", "--json")
    assert advised.code == 0


@becomes_nobody
def test_a_home_that_may_only_be_read_is_not_written(sds, home, array):
    """With its calibrations; one that may not be read either is named."""
    made = calibration()
    (by_hdf5,) = made.measurements
    both = (by_hdf5, replace(by_hdf5, via=Via.ENGINE))
    with Service.open(Home(home)) as service:
        service._store.add_calibration(
            mount_point=str(filesystem_of(array).mount_point),
            device=array.stat().st_dev,
            calibration=replace(made, measurements=both),
        )
    words = ("explain", f"{array}:/d", "[:, :, 3]", "--json")
    known = sds(*words).json
    assert known["calibrated"]
    before = sorted(home.rglob("*"))
    with made_searchable(home, array):
        home.chmod(0o555)
        (home / "sds.db").chmod(0o444)
        as_nobody = as_another(sds, *words)
        (home / "sds.db").chmod(0)
        refused = as_another(sds, *words)
    assert as_nobody.json == known
    assert sorted(home.rglob("*")) == before
    assert refused.code == 1
    assert "cannot read catalog" in refused.err
    assert "Permission denied" in refused.err


def as_another(sds, *words):
    """Run a command as an account that owns nothing."""
    os.seteuid(65534)
    try:
        return sds(*words)
    finally:
        os.seteuid(0)


@contextmanager
def made_searchable(*paths):
    """Let every account reach these paths; pytest keeps them to one."""
    folders = {folder for path in paths for folder in path.parents if folder != Path("/")}
    modes = {folder: folder.stat().st_mode for folder in folders if not folder.stat().st_mode & 1}
    for folder, mode in modes.items():
        folder.chmod(mode | 0o055)
    try:
        yield
    finally:
        for folder, mode in modes.items():
            folder.chmod(mode)
