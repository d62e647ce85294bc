"""``sds reads``: reads that are to come are kept, and count in advice."""

import h5py
import numpy as np
import pytest

from tests.organizer.sources import settle


@pytest.fixture
def reads(sds, tmp_path, monkeypatch):
    monkeypatch.setenv("SDS_HOME", str(tmp_path / "home"))
    return lambda *words: sds("reads", *words)


@pytest.fixture
def maps(tmp_path):
    """Write maps with coordinates: a series reads them all."""
    path = tmp_path / "maps.h5"
    with h5py.File(path, "w") as file:
        maps = file.create_dataset("t2m", data=np.zeros((400, 60, 90), "f4"))
        for axis, (name, n) in enumerate({"time": 400, "lat": 60, "lon": 90}.items()):
            file[name] = np.arange(float(n))
            file[name].make_scale(name)
            maps.dims[axis].attach_scale(file[name])
    settle(path)
    return path


def test_reads_are_stated_listed_and_forgotten(reads, maps):
    assert reads().out == "no reads are stated\n"
    name = f"{maps}:/t2m"
    assert (
        f"stated reads 1: [:, 40, 7] of {name}, 1 a day" in reads("state", name, "[:, 40, 7]").out
    )
    by_name = reads("state", name, "lat=40, lon=8", "--reads", "500", "--json").json
    assert (by_name["id"], by_name["n_reads_per_day"]) == (2, 500)
    again = reads("state", name, "[:, 40, 7]", "--reads", "3", "--json").json
    assert (again["id"], again["n_reads_per_day"]) == (1, 3), "in the place of the first"
    listed = reads("list", maps, "--json").json["stated"]
    assert [one["n_reads_per_day"] for one in listed] == [3, 500]
    assert "500" in reads().out
    assert reads("list", f"{maps}:/lat").out == "no reads are stated\n"
    assert "stated reads 1 are forgotten" in reads("forget", 1).out
    assert [one["id"] for one in reads("--json").json["stated"]] == [2]
    assert reads("forget", 1).code == 3


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("[:, 99, 0]",), 2, "99"),
        (("[0:0]",), 2, "selects nothing"),
        (("[:, 1, 1]", "--reads", "0"), 2, "--reads"),
    ],
)
def test_what_cannot_be_read_is_refused(reads, maps, words, code, said):
    refused = reads("state", f"{maps}:/t2m", *words)
    assert (refused.code, said in refused.err) == (code, True), refused.err
    assert reads().out == "no reads are stated\n"


def test_a_dataset_has_to_be_named_and_be_there(reads, maps, tmp_path):
    assert "write" in reads("state", maps, "[:]").err
    assert reads("state", f"{maps}:/none", "[:]").code == 3
    assert reads("state", f"{tmp_path}/none.h5:/d", "[:]").code == 3


def test_stated_reads_count_in_advice_until_they_no_longer_fit(reads, sds, maps):
    name = f"{maps}:/t2m"
    reads("state", name, "[:, 40, 7]", "--reads", "1000000")
    asked = sds("advise", name, "--select", "[:, 40, 7]", "--reads", "1000000", "--json").json
    for words in ((name,), (maps,), ()):
        kept = sds("advise", *words, "--json").json
        assert kept["command"] == asked["command"]
        assert kept["seconds_now"] == pytest.approx(asked["seconds_now"])
    with h5py.File(maps, "r+") as file:
        del file["t2m"]
        file["t2m"] = np.zeros((400, 20, 90), "f4")
    left = sds("advise", maps, "--verbose")
    assert "[:, 40, 7], 1000000 a day (stated): left out" in " ".join(left.err.split())
