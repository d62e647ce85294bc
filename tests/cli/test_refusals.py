"""Bad input: one line that names the value and the remedy, and the right status."""

from __future__ import annotations

import os

import h5py
import numpy as np
import pytest

from tests.accounts import becomes_nobody
from tests.redirected import settle


@pytest.fixture
def cube(tmp_path):
    path = tmp_path / "cube.h5"
    with h5py.File(path, "w") as file:
        file["d"] = np.arange(24, dtype="f4").reshape(2, 3, 4)
    return path


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["nosuch"], 2, "nosuch"),
        (["plot", "predcted", "TMP"], 2, "'KIND': 'predcted' is not one of 'predicted'"),
        (["plot", "predicted", "TMP"], 3, "error: no file system is calibrated; run"),
        (["explain", "CUBE:/d", "--order", "2,0,1"], 2, "without a selection"),
        (["explain", "CUBE:/d", "[0,0,9]"], 2, "9"),
        (["explain", "CUBE:/d", "[oops]"], 2, "oops"),
        (["explain", "CUBE:/d", ":", "--stripe-size", "1X"], 2, "1X"),
        (["explain", "CUBE:/d", ":", "--raid-disks", "0"], 2, "0"),
        (["explain", "CUBE:/d", ":", "--order", "0,1"], 2, "0,1"),
        (["explain", "CUBE:/no", ":"], 3, "/d"),
        (["explain", "TMP/no.h5:/d", ":"], 3, "no.h5"),
        (["explain", "TMP/text.h5:/d", ":"], 4, "text.h5"),
        (["explain", "CUBE", ":"], 2, "FILE:/path"),
        (["reorganize", "CUBE:/d", "--order", "0,0,1"], 2, "0,0,1"),
        (["reorganize", "CUBE:/d", "--order", "1,0"], 2, "1,0"),
        (["reorganize", "CUBE:/d", "--order", "2,0,1", "--memory", "lots"], 2, "lots"),
        (["reorganize", "CUBE:/d", "--order", "2,0,1", "--memory", "1M"], 2, "for the work itself"),
        (["reorganize", "CUBE:/d", "--order", "2,0,1", "--chunks", "a,b"], 2, "'a,b'"),
        (["reorganize", "CUBE:/d", "--order", "2,0,1", "--chunks", "9"], 2, "have 1 axes"),
        (["reorganize", "CUBE:/d", "--order", "2,0,1", "--compress", "rle"], 2, "'rle'"),
        (["reorganize", "CUBE:/d", "--order", "2,0,1", "--region", "[0:0]"], 2, "is empty"),
        (["reorganize", "CUBE:/no", "--order", "2,0,1"], 3, "/no"),
        (["reorganize", "TMP/text.h5:/d", "--order", "2,0,1"], 4, "text.h5"),
        (["reorganize", "TMP/no.h5:/d", "--order", "2,0,1"], 3, "no.h5"),
        (["advise", "CUBE", "--select", "[0]"], 2, "--select"),
        (["advise", "CUBE:/d", "--reads", "5"], 2, "--reads"),
        (["advise", "TMP/no.h5"], 3, "no.h5"),
        (["advise", "CUBE:/d", "CUBE:/e", "--select", "[0]"], 2, "name one"),
        (["advise", "CUBE:/d", "--budget", "0"], 2, "--budget"),
        (["advise", "CUBE:/d", "--budget", "much"], 2, "'much'"),
        (
            ["advise", "CUBE:/d", "--select", "[0]", "--reads", "5", "--reads", "6"],
            2,
            "once for each",
        ),
        (["what-if", "CUBE:/d"], 2, "sds run"),
        (["what-if", "CUBE:/d", "--select", "[0]"], 2, "no change given"),
        (["what-if", "CUBE:/d", "--reads", "5"], 2, "--select"),
        (["what-if", "CUBE:/d", "--select", "[0]", "--order", "1,0"], 2, "1,0"),
        (["what-if", "CUBE:/d", "--select", "[0]", "--chunks", "8,8,8"], 2, "axis order"),
        (["what-if", "CUBE:/d", "--select", "[0]", "--chunks", "auto"], 2, "auto"),
        (["what-if", "CUBE:/d", "--select", "[0]", "--compress", "gzip"], 2, "gzip"),
        (
            ["what-if", "CUBE:/d", "--select", "[0]", "--order", "2,0,1", "--compress", "source"],
            2,
            "the source has no filters",
        ),
        (["what-if", "CUBE:/d", "--select", "[0]", "--without", "7"], 3, "7"),
        (["what-if", "CUBE:/no", "--order", "2,0,1"], 3, "/no"),
        (["replicas", "remove", "7"], 3, "7"),
        (["replicas", "verify", "7"], 3, "7"),
        (["trace", "show"], 3, "sds run"),
        (["trace", "show", "TMP/text.h5"], 4, "text.h5"),
        (["trace", "show", "TMP/no.sdst-spool"], 3, "no.sdst-spool"),
        (["table", "show", "CUBE"], 3, "cube.h5"),
        (["table", "show", "TMP/bad.sdst"], 4, "bad.sdst"),
        (["calibrate", "TMP/nowhere"], 3, "nowhere"),
        (["calibrate", "TMP", "--refit"], 3, "never calibrated"),
        (["demo", "--size", "1K"], 2, "1024"),
        (["doctor", "TMP/no.h5"], 3, "no.h5"),
        (["doctor", "TMP"], 4, "is a directory"),
        (["doctor", "TMP/text.h5"], 4, "is not an HDF5 file"),
        (["doctor", "CUBE:/typo"], 3, "no dataset '/typo'; it holds /d"),
        (["doctor", "CUBE:/"], 3, "is a group"),
        (["doctor", "--python", "TMP"], 3, "name a Python interpreter"),
    ],
)
def test_bad_input_is_named(sds, cube, tmp_path, words, code, said):  # noqa: PLR0917
    (tmp_path / "text.h5").write_text("this is text")
    (tmp_path / "bad.sdst").write_bytes(b"SDST" + bytes(100))
    words = [w.replace("CUBE", str(cube)).replace("TMP", str(tmp_path)) for w in words]
    result = sds(*words)
    assert result.code == code, result
    assert result.out == ""
    assert result.err.startswith("sds: error: ")
    assert result.err.count("\n") == 1
    assert said in result.err

    as_json = sds(*words, "--json")
    assert as_json.code == code
    assert as_json.err == result.err
    assert as_json.json["error"]["exit_code"] == code
    assert as_json.json["error"]["message"] in result.err
    assert set(as_json.json) == {"error"}


@becomes_nobody
def test_a_directory_that_may_not_be_searched_is_named(sds, cube, monkeypatch):
    closed = cube.parent / "closed"
    closed.mkdir(mode=0o700)
    assert sds("explain", f"{cube}:/d", ":").code == 0  # what it imports, the account may not read
    cube.rename(closed / "cube.h5")
    monkeypatch.setenv("SDS_HOME", "/nowhere")
    os.seteuid(65534)
    try:
        result = sds("explain", f"{closed}/cube.h5:/d", ":")
    finally:
        os.seteuid(0)
    assert result.code == 6, result
    assert result.err.startswith(f"sds: error: may not read {closed}/cube.h5; ask its owner")


def test_chunks_that_no_program_would_be_served_from_are_refused(sds, tmp_path):
    wide = tmp_path / "wide.h5"
    with h5py.File(wide, "w") as file:
        file["d"] = np.zeros((1024, 1025), "u1")
    settle(wide)
    result = sds("reorganize", f"{wide}:/d", "--order", "1,0", "--chunks", "1025,1024")
    assert result.code == 2
    for said in ("'1025,1024'", "1049600 bytes", "at most 1048576", "such as 513,1024"):
        assert said in result.err
    assert not list((tmp_path / "home").glob("replicas/*"))
    assert sds("reorganize", f"{wide}:/d", "--order", "1,0", "--chunks", "auto").code == 0


def test_without_words_there_is_help(sds):
    result = sds()
    assert result.code == 0
    for name in ("run", "advise", "reorganize", "replicas", "demo"):
        assert name in result.out


def test_the_version_is_that_of_the_package(sds):
    import sds as package

    assert sds("--version").out == f"sds {package.__version__}\n"


@pytest.mark.parametrize("command", [["status"], ["ingest"], ["doctor"], ["env"]])
@pytest.mark.parametrize("below", ["", "/below"])
def test_a_home_that_is_a_file_is_named(sds, cube, monkeypatch, command, below):
    home = f"{cube}{below}"
    monkeypatch.setenv("SDS_HOME", home)
    found = sds(*command)
    assert found.code == 2
    assert found.err.startswith(f"sds: error: SDS_HOME {home} ")
    assert "set SDS_HOME to" in found.err


def test_what_a_read_of_nothing_touches_has_no_ratio(sds, cube):
    found = sds("explain", f"{cube}:/d", "[1:1]")
    assert found.code == 0
    (touched,) = [line for line in found.out.splitlines() if line.startswith("bytes touched")]
    assert touched.split() == ["bytes", "touched", "0", "B"]


@pytest.mark.parametrize("chunks", [None, (2, 5)])
def test_no_time_is_predicted_where_nothing_is_read(sds, tmp_path, chunks):
    path = tmp_path / "none.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("empty", (0, 5), "f8", chunks=chunks, maxshape=chunks and (None, 5))
        file.create_dataset("full", data=np.zeros((4, 5)), chunks=chunks)
    for name, selection in (("empty", ":"), ("full", "[1:1]")):
        found = sds("explain", f"{path}:/{name}", selection, "--json")
        assert found.code == 0, found
        assert found.json["predicted_s"] is None
        assert any("nothing is" in note for note in found.json["notes"])


def test_large_ratios_are_written_out(sds, tmp_path):
    path = tmp_path / "wide.h5"
    with h5py.File(path, "w") as file:
        file["d"] = np.zeros((8, 2048), "f4")
    found = sds("explain", f"{path}:/d", "[:, 3]")
    assert "32 KiB, 1,024 x what is useful" in found.out


@becomes_nobody
def test_what_another_account_may_not_read_is_named_without_numbers(sds, home, cube):
    """A table; then a home that is closed. Nobody has to know the number of an error."""
    from tests.cli.commands.test_explain_layouts import as_another, made_searchable

    assert sds("reorganize", f"{cube}:/d", "--order", "2,0,1").code == 0
    (table,) = (home / "tables").iterdir()
    with made_searchable(home, cube, table):
        table.chmod(0)
        unreadable = as_another(sds, "table", "show", cube)
        home.chmod(0o700)
        closed = [as_another(sds, *words) for words in (["status"], ["ingest"], ["replicas"])]
    assert unreadable.code == 6
    assert f"may not read the redirect table {table}" in unreadable.err
    for refused in closed:
        assert refused.code == 6, refused
        assert str(home) in refused.err
        assert "set SDS_HOME to" in refused.err
    assert not any("[Errno" in refused.err for refused in (unreadable, *closed))
