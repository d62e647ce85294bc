"""``sds plot``: pictures, the data behind them, and what it refuses."""

import errno
import json
import os

import pytest
from pydantic import TypeAdapter

from sds.cli.commands.plot import State, Way
from sds.home import Home
from sds.mounts import filesystem_of
from sds.plots import Kind
from sds.plots.figure_values import DATA_OF, figure_data
from sds.recommender.models.cost_model import CacheState, Via
from sds.server.operations.service import Service
from tests.plots.evidence import calibration

MODEL = "eq4, block gap count, relative"


@pytest.fixture(scope="module")
def made():
    return calibration()


@pytest.fixture
def written(tmp_path, made):
    path = tmp_path / "calibration.json"
    path.write_text(made.to_json())
    return path


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("suffix", [".png", ".SVG"])
def test_every_figure_is_written(sds, tmp_path, written, kind, suffix):
    picture = tmp_path / f"figure{suffix}"
    done = sds("plot", kind, written, "--model", MODEL, "-o", picture)
    assert (done.code, done.out, done.err) == (0, f"{picture}\n", "")
    begin = {".png": b"\x89PNG", ".SVG": b"<?xml"}[suffix]
    assert picture.read_bytes().startswith(begin)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["calibration.json", picture.name]


@pytest.mark.parametrize("kind", Kind)
def test_the_data_are_printed_and_can_be_drawn(sds, tmp_path, written, made, kind):
    printed = sds("plot", kind, written, "--model", MODEL, "--json")
    assert printed.code == 0
    expected = figure_data(kind, made, model=MODEL)
    assert TypeAdapter(DATA_OF[kind]).validate_json(printed.out) == expected
    data = tmp_path / "data.json"
    data.write_text(printed.out)
    first, second = tmp_path / "1.svg", tmp_path / "2.svg"
    assert sds("plot", kind, written, "--model", MODEL, "-o", first).code == 0
    assert sds("plot", kind, data, "-o", second, "--json").json == printed.json
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Kind.PREDICTED, "outside the 95 % interval"),
        (Kind.RESIDUALS, "measured / predicted"),
        (Kind.SPEEDUPS, "layout, over 0,1,2"),
        (Kind.COEFFICIENTS, "s/(process/OST)"),
    ],
)
def test_without_a_picture_it_is_text(sds, written, kind, said):
    done = sds("plot", kind, written, "--model", MODEL)
    assert done.code == 0
    assert said in done.out
    assert MODEL in done.out
    assert ("held out" in done.out) == (kind is not Kind.COEFFICIENTS)


def test_a_path_stands_for_the_calibration_of_its_file_system(sds, home, tmp_path, made):
    with Service.open(Home(home)) as service:
        service._store.add_calibration(
            mount_point=str(filesystem_of(tmp_path).mount_point),
            device=tmp_path.stat().st_dev,
            calibration=made,
        )
    done = sds("plot", "coefficients", tmp_path, "--json")
    assert done.json["terms"][0]["term"] == "1"
    record = tmp_path / "record.json"
    record.write_text(json.dumps(sds("plot", "coefficients", tmp_path, "--json").json))
    assert sds("plot", "coefficients", record, "--json").json == done.json


def test_pictures_are_not_replaced_unasked(sds, tmp_path, written):
    picture = tmp_path / "figure.svg"
    picture.write_text("mine")
    refused = sds("plot", "coefficients", written, "-o", picture)
    assert refused.code == 2
    assert "figure.svg exists" in refused.err
    assert "--force" in refused.err
    assert picture.read_text() == "mine"
    assert sds("plot", "coefficients", written, "-o", picture, "--force").code == 0
    assert picture.read_text().startswith("<?xml")


def test_ways_and_states_are_those_of_models():
    assert set(Way) == set(Via)
    assert set(State) == set(CacheState) - {CacheState.UNKNOWN}


def test_a_link_stays_one_and_a_full_disk_leaves_nothing(sds, tmp_path, written, monkeypatch):
    picture, link = tmp_path / "figure.svg", tmp_path / "link.svg"
    link.symlink_to(picture)
    assert "exists" in sds("plot", "coefficients", written, "-o", link).err
    assert sds("plot", "coefficients", written, "-o", link, "--force").code == 0
    assert link.is_symlink()
    assert picture.read_text().startswith("<?xml")

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("sds.atomic_file.os.fsync", full)
    assert sds("plot", "coefficients", written, "-o", tmp_path / "new.svg").code != 0
    assert not (tmp_path / "new.svg").exists()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["histogram", "FILE"], 2, "histogram"),
        (["predicted", "FILE", "-o", "TMP/a.pdf"], 2, "'.pdf': name a file that ends in .png"),
        (["predicted", "FILE", "-o", "TMP/a"], 2, "'no suffix'"),
        (["predicted", "FILE", "-o", "TMP/no/a.png"], 3, "no such directory"),
        (["predicted", "FILE", "--model", "eq7"], 3, "'eq7'"),
        (["predicted", "FILE", "--via", "engine"], 3, "it has hdf5 cold"),
        (["predicted", "FILE", "--cache", "warm"], 3, "hdf5 warm"),
        (["predicted", "TMP/nowhere"], 3, "nowhere"),
        (["predicted", "TMP"], 3, "sds calibrate"),
        (["predicted", "TMP/other.json"], 4, "sds plot predicted --json"),
        (["predicted", "TMP/nan.json"], 4, "nan.json"),
    ],
)
def test_what_cannot_be_shown_is_named(sds, tmp_path, written, words, code, said):  # noqa: PLR0917
    (tmp_path / "other.json").write_text('{"a": 1}')
    (tmp_path / "nan.json").write_text("NaN")
    given = [w.replace("FILE", str(written)).replace("TMP", str(tmp_path)) for w in words]
    done = sds("plot", *given)
    assert done.code == code
    assert said in done.err
    assert done.out == ""
    assert not list(tmp_path.glob("*.p*"))
