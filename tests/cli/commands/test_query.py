"""``sds reorganize --sort`` and ``sds query``."""

import json

import h5py
import numpy as np
import pytest

from sds.cli.commands.query import _write
from sds.errors import SdsValueError
from tests.organizer.sources import settle


@pytest.fixture
def particles(tmp_path):
    path = tmp_path / "run.h5"
    rng = np.random.default_rng(6)
    with h5py.File(path, "w") as file:
        file["p/energy"] = np.array([0.5, 2.0, np.nan, 1.5, 3.0], "<f4")
        file["p/x"] = rng.random(5)
        file["p/tag"] = np.array([b"a", b"b", b"c", b"d", b"e"])
        file["p/hits"] = np.arange(5)
    settle(path)
    return path


def test_sort_list_and_query(sds, particles):
    made = sds("reorganize", f"{particles}:/p", "--sort", "energy", "--columns", "energy,hits")
    assert made.code == 0, made.err
    assert "sorted by energy" in made.out
    assert "energy, hits" in made.out
    listed = sds("replicas", "list")
    assert "sorted by energy" in listed.out
    (shown,) = sds("replicas", "list", "--json").json["replicas"]
    assert shown["sort"] == {"key": "energy", "columns": ["energy", "hits"]}
    for strategy in ("scan", "sorted", "auto"):
        found = sds(
            "query", f"{particles}:/p", "energy > 1", "--columns", "hits,energy",
            "--strategy", strategy,
        )  # fmt: skip
        assert found.out.splitlines() == ["hits\tenergy", "1\t2.0", "3\t1.5", "4\t3.0"]
    verified = sds("replicas", "verify")
    assert "1 replica verified, 0 damaged" in verified.out
    # What programs read of the file is not redirected, and that is what the doctor says.
    assert "no problem found" in sds("doctor", particles).out
    removed = sds("replicas", "remove", shown["id"])
    assert removed.code == 0
    assert sds("query", f"{particles}:/p", "energy > 1", "--strategy", "sorted").code == 8


def test_order_and_limit(sds, particles):
    found = sds("query", f"{particles}:/p", "energy != 0", "--order", "key", "--columns", "energy")
    assert found.out.split() == ["energy", "0.5", "1.5", "2.0", "3.0", "nan"]
    found = sds("query", f"{particles}:/p", "hits >= 0", "--limit", "2", "--columns", "hits")
    assert found.out.split() == ["hits", "0", "1"]
    assert "2 of 5 rows shown" in found.err


def test_members_within_members_are_printed_as_their_values(sds, tmp_path):
    path = tmp_path / "nested.h5"
    place = np.dtype([("x", "<f4"), ("name", "S3"), ("cells", "<f4", (2,))])
    rows = np.zeros(2, [("e", "<f8"), ("place", place), ("ends", [("low", "<f4")], (2,))])
    rows["e"] = 1, 2
    rows["place"]["x"] = 0.5
    rows["place"]["name"] = b"abc"
    rows["place"]["cells"] = 1.5, np.nan
    rows["ends"]["low"] = 0.25, 4
    with h5py.File(path, "w") as file:
        file["t"] = rows
    found = sds("query", f"{path}:/t", "e > 1")
    assert found.out.splitlines() == [
        "e\tplace\tends",
        "2.0\t(0.5, abc, [1.5, nan])\t[(0.25), (4.0)]",
    ]
    as_json = sds("query", f"{path}:/t", "e > 1", "--json").json
    assert as_json["rows"] == [[2.0, [0.5, "abc", [1.5, None]], [[0.25], [4.0]]]]


def test_json_has_no_numbers_that_json_lacks(sds, particles):
    found = sds("query", f"{particles}:/p", "hits > 0", "--columns", "energy,tag", "--json").json
    assert found["n_rows"] == 4
    assert found["columns"] == ["energy", "tag"]
    assert found["rows"] == [[2.0, "b"], [None, "c"], [1.5, "d"], [3.0, "e"]]


@pytest.mark.parametrize("suffix", ["npy", "h5", "H5"])
def test_rows_are_written_whole_to_a_new_file(sds, particles, tmp_path, suffix):
    output = tmp_path / f"hot.{suffix}"
    found = sds("query", f"{particles}:/p", "energy > 1", "--output", output)
    assert found.out == f"3 rows written to {output}\n"
    if suffix == "npy":
        rows = np.load(output)
    else:
        with h5py.File(output) as file:
            rows = file["rows"][...]
    assert rows["hits"].tolist() == [1, 3, 4]
    assert rows.dtype.names == ("energy", "hits", "tag", "x")
    again = sds("query", f"{particles}:/p", "energy > 1", "--output", output)
    assert again.code == 2
    assert "exists" in again.err


def test_an_output_that_cannot_hold_the_rows_is_left_out(sds, particles, tmp_path):
    with h5py.File(particles, "r+") as file:
        file["p/note"] = np.array(list("abcde"), dtype=h5py.string_dtype())
    output = tmp_path / "hot.npy"
    found = sds("query", f"{particles}:/p", "energy > 1", "--output", output)
    assert found.code == 8
    assert "leave columns out" in found.err
    assert not output.exists()
    assert sds("query", f"{particles}:/p", "energy > 1", "--output", tmp_path / "a.csv").code == 2


@pytest.mark.parametrize("suffix", ["npy", "h5"])
@pytest.mark.parametrize("form", ["file", "link"])
def test_what_another_program_put_there_meanwhile_stays(tmp_path, suffix, form):
    output = tmp_path / f"hot.{suffix}"
    if form == "file":
        output.write_text("of another")
    else:
        output.symlink_to(tmp_path / "nowhere")
    with pytest.raises(SdsValueError, match="exists: name another file"):
        _write(output, np.zeros(3, [("e", "f8")]))
    assert output.is_symlink() or output.read_text() == "of another"
    assert not (tmp_path / "nowhere").exists()


def test_a_link_that_leads_nowhere_is_no_place_for_rows(sds, particles, tmp_path):
    output = tmp_path / "hot.npy"
    output.symlink_to(tmp_path / "nowhere")
    found = sds("query", f"{particles}:/p", "energy > 1", "--output", output)
    assert found.code == 2
    assert "exists" in found.err


def test_a_directory_that_is_not_there_is_named_before_anything_is_read(sds, tmp_path):
    output = tmp_path / "nowhere" / "hot.npy"
    found = sds("query", f"{tmp_path / 'no.h5'}:/p", "energy > 1", "--output", output)
    assert f"no such directory: {output.parent}" in found.err


def test_an_interrupted_write_leaves_no_file(tmp_path, monkeypatch):
    def interrupted(stream, *_, **__):
        stream.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        _write(tmp_path / "hot.npy", np.zeros(3, [("e", "f8")]))
    assert list(tmp_path.iterdir()) == []


def test_references_are_no_json(sds, particles):
    with h5py.File(particles, "r+") as file:
        file["p/what"] = np.array([file["p"].ref] * 5, dtype=h5py.ref_dtype)
    asked = ("query", f"{particles}:/p", "hits > 3", "--json")
    found = sds(*asked)
    assert found.code == 8
    assert "what cannot be written as JSON (references): leave out such columns" in found.err
    assert sds(*asked, "--columns", "hits").json["rows"] == [[4]]


def test_text_in_columns_of_arrays_is_json_whatever_its_bytes(sds, tmp_path):
    path = tmp_path / "text.h5"
    rows = np.zeros(1, [("e", "f8"), ("names", "S2", (2,))])
    rows["names"] = [b"ab", b"\xff"]
    with h5py.File(path, "w") as file:
        file["t"] = rows
    found = sds("query", f"{path}:/t", "e == 0", "--json")
    assert found.code == 0, found.err
    assert found.json["rows"] == [[0.0, ["ab", "\ufffd"]]]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--sort", "tag"), 8, "'tag' of /p .* is text"),
        (("--sort", "energy", "--order", "0"), 2, "--order and --sort exclude each other"),
        (("--sort", "energy", "--chunks", "auto", "--compress", "gzip"), 2, "--chunks, --compress"),
        ((), 2, "name --order AXES for a dataset, or --sort COLUMN"),
        (("--order", "0", "--columns", "x"), 2, "name --order AXES"),
        (("--sort", "energy", "--columns", "x,,y"), 2, "write names with commas"),
        (("--sort", "mass"), 3, "no dataset '/p/mass'"),
    ],
)
def test_what_cannot_be_sorted_says_why(sds, particles, words, code, said):
    import re

    found = sds("reorganize", f"{particles}:/p", *words)
    assert found.code == code
    assert re.search(said, found.err)


def test_a_condition_that_is_none_is_a_usage_error(sds, particles):
    found = sds("query", f"{particles}:/p", "energy >", "--json")
    assert found.code == 2
    assert json.loads(found.out)["error"]["kind"] == "SdsValueError"


@pytest.fixture(scope="module")
def big(tmp_path_factory):
    """Return a file of a table with so many rows that a scan of it takes 10 ms and more."""
    path = tmp_path_factory.mktemp("big") / "big.h5"
    with h5py.File(path, "w") as file:
        file["p/energy"] = np.arange(8_000_000, dtype="f8")
        file["p/x"] = np.zeros(8_000_000, "i1")
        file["cube"] = np.zeros((16, 128, 128), "f4")
    settle(path)
    return path


def test_advice_for_queries_prints_the_command_that_builds_it(sds, big):
    words = ("advise", f"{big}:/p", "--query", "energy > 7999990", "--reads", "1000")
    found = sds(*words, "--json")
    assert found.code == 0, found.err
    (chosen,) = found.json["portfolio"]["layouts"]
    assert chosen["layout"]["sort"] == {"key": "energy", "columns": ["energy", "x"]}
    assert found.json["order"] is None
    said = sds(*words).out
    assert chosen["command"] in said
    assert "a day's queries" in said
    models = "predicted by builtin costs of queries (19 of 20 queries within x"
    assert models in sds(*words, "--verbose").out
    assert models not in said
    supposed = sds("what-if", f"{big}:/p", "--query", "energy > 7999990", "--sort", "energy").out
    assert "builtin costs of queries (19 of 20 queries within x" in supposed
    small = sds(*words, "--budget", "1M", "--json").json["portfolio"]
    assert small["layouts"] == []
    assert "more than the whole budget" in small["declined"][0]["reason"]
    assert "Build nothing" in sds(*words, "--budget", "1M").out
    # What it says to type builds what it spoke of.
    assert sds(*chosen["command"].split()[1:]).code == 0
    again = sds(*words)
    assert "Build nothing" in again.out
    assert "answer these queries already" in again.err


def test_tables_and_datasets_are_advised_on_together(sds, big):
    table, cube = f"{big}:/p", f"{big}:/cube"
    words = ("advise", table, cube, "--query", f"{table}: energy > 7999990", "--reads", "1000")
    found = sds(*words, "--json")
    assert found.code == 0, found.err
    assert [layout["target"] for layout in found.json["portfolio"]["layouts"]] == [table]
    assert any("/cube: no read was traced" in note for note in found.json["notes"])
    two = ("--query", f"{table}:x > 0", "--columns", "x", "--columns", "x,energy")
    found = sds(*words, *two, "--json").json
    assert found["portfolio"]["n_patterns"] == 2
    (layout,) = found["portfolio"]["layouts"]
    assert layout["serves"] == ["energy > 7999990"]
    assert layout["layout"]["sort"]["columns"] == ["energy", "x"]
    refused = sds("advise", table, cube, "--query", "energy > 1")
    assert refused.code == 2
    assert f"{table}: energy > 1" in refused.err


def test_what_if_supposes_sorted_replicas(sds, big):
    asked = ("what-if", f"{big}:/p", "--query", "energy > 7999990", "--columns", "x")
    added = sds(*asked, "--sort", "energy", "--json").json
    assert added["added"] == ["sorted by energy, with x"]
    assert added["saving"]["seconds"] > 0
    assert "queries of a day" in sds(*asked, "--sort", "energy").out
    replica = sds("reorganize", f"{big}:/p", "--sort", "energy", "--json").json["id"]
    away = sds(*asked, "--without", str(replica), "--json").json
    assert away["saving"]["seconds"] == pytest.approx(-added["saving"]["seconds"])
    for words, said in (
        (("--sort", "energy", "--order", "0"), "with them name a column"),
        (("--sort", "x", "--without", "99"), "no replica 99"),
        (("--sort", "y"), "no column 'y'"),
    ):
        refused = sds(*asked, *words)
        assert refused.code != 0
        assert said in refused.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--query", "e > 1", "--select", "[:]"), "name one"),
        (("--columns", "x"), "--columns needs --query"),
        (("--query", "e > 1", "--reads", "1", "--reads", "2"), "--reads 2 times and --query 1"),
        (("--query", "e > 1", "--columns", "x", "--columns", "y"), "--columns 2 times"),
        (("--query", "e >"), "'e >' is no condition"),
    ],
)
def test_advice_for_queries_that_are_none_says_why(sds, particles, words, said):
    found = sds("advise", f"{particles}:/p", *words)
    assert found.code == 2
    assert said in found.err
