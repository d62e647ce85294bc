"""Processes of which nothing was traced: the connector's notes, and what is said of them."""

from __future__ import annotations

import os
import time

import pytest

from sds.redirect.launch.untraced import (
    UNTRACED_NAME,
    drop_old_notes,
    read_untraced,
    untraced_sentences,
)

HDF5_10 = "/lib/libhdf5_serial.so.103"
NOW = int(time.time())


def line(time_s=NOW, pid=7, program="python3", library=HDF5_10, reason="HDF5 1.10.8 is old"):
    return f"{time_s}\t{pid}\tnode1\t{program}\t{library}\t1.10.8\t{reason}\n"


def write(spool, *lines, name="untraced.tsv"):
    (spool / name).write_bytes("".join(lines).encode(errors="surrogateescape"))


def test_a_home_without_such_a_file_has_none(tmp_path):
    assert read_untraced(tmp_path) == ()
    assert read_untraced(tmp_path / "missing") == ()
    assert untraced_sentences(tmp_path) == ()


def test_lines_are_read_oldest_first(tmp_path):
    write(tmp_path, line(pid=1), name="untraced.tsv.old")
    write(tmp_path, line(pid=2), line(pid=3))
    found = read_untraced(tmp_path)
    assert [each.pid for each in found] == [1, 2, 3]
    assert found[0].host == "node1"
    assert (found[0].program, found[0].library) == ("python3", HDF5_10)
    assert (found[0].version, found[0].reason) == ("1.10.8", "HDF5 1.10.8 is old")


@pytest.mark.parametrize(
    "damage",
    [b"", b"\0" * 100, b"\xff\xfe\tx\n", b"1\t2\t3\n", b"x" * (1 << 20), line(1)[:-20].encode()],
    ids=["nothing", "zeros", "no text", "too few fields", "no end", "cut"],
)
def test_what_is_no_line_is_left_out(tmp_path, damage):
    (tmp_path / "untraced.tsv").write_bytes(line(pid=5).encode() + damage)
    assert [each.pid for each in read_untraced(tmp_path)][:1] == [5]
    assert len(read_untraced(tmp_path)) <= 2  # a line that is cut in its last field still is one
    assert "HDF5 1.10.8 is old" in untraced_sentences(tmp_path)[-1]


def test_a_sentence_of_each_library_the_latest_first(tmp_path):
    write(
        tmp_path,
        line(NOW - 30, pid=1),
        line(NOW - 20, pid=2, library="/opt/libhdf5.so.200", reason="it hides H5Dread"),
        line(NOW - 10, pid=3, program="h5dump"),
    )
    latest, other = untraced_sentences(tmp_path)
    assert latest.startswith(f"2 processes, last h5dump, used {HDF5_10}, and nothing of it")
    assert other.startswith("1 process (python3) used /opt/libhdf5.so.200, ")
    assert "it hides H5Dread; wheels of h5py" in other


def test_of_many_libraries_five_are_named(tmp_path):
    write(tmp_path, *(line(library=f"/opt/{i}/libhdf5.so") for i in range(7)))
    sentences = untraced_sentences(tmp_path)
    assert len(sentences) == 6
    assert sentences[-1] == "nor of 2 more HDF5 libraries"


def test_what_is_older_than_a_week_or_than_asked_for_is_left_out(tmp_path):
    write(tmp_path, line(NOW - 8 * 86400), line(NOW - 100))
    assert len(read_untraced(tmp_path)) == 2
    (sentence,) = untraced_sentences(tmp_path)
    assert sentence.startswith("1 process ")
    assert untraced_sentences(tmp_path, since_s=NOW - 50) == ()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"HDF5 library version: 1.10.8", "HDF5 1.10.8 is older than 1.14"),
        (b"HDF5 library version: 1.14.6", None),
        (b"a program that asks for HDF5_DEBUG", None),
        (None, "it asked for no connector"),
    ],
)
def test_of_a_library_that_asked_for_no_connector_the_file_says_why(tmp_path, content, reason):
    library = tmp_path / "libhdf5.so"
    if content is not None:
        library.write_bytes(b"\0 " + content + b"\0")
    write(tmp_path, line(library=library, reason="").replace("1.10.8", "0.0.0"))
    assert [each.reason for each in read_untraced(tmp_path)] == [reason] * (reason is not None)


def test_a_program_that_is_gone_is_no_hdf5(tmp_path):
    write(tmp_path, line(library=tmp_path / "program", reason=""), line(library="", reason=""))
    assert read_untraced(tmp_path) == ()


def test_a_pipe_in_the_place_of_a_library_holds_nobody_up(tmp_path):
    os.mkfifo(tmp_path / "libhdf5.so")
    write(tmp_path, line(library=tmp_path / "libhdf5.so", reason=""))
    assert read_untraced(tmp_path) == ()


def test_what_a_terminal_would_take_for_more_than_text_is_not_shown(tmp_path):
    write(tmp_path, line(program="\x1b[31mred"))
    assert "?[31mred" in untraced_sentences(tmp_path)[0]


def test_numbers_that_are_none_are_left_out(tmp_path):
    write(tmp_path, line("9" * 5000), line(pid="1" * 5000), line(pid=4))
    assert [each.pid for each in read_untraced(tmp_path)] == [4]


def test_a_file_that_is_half_full_is_put_aside(tmp_path):
    notes = tmp_path / UNTRACED_NAME
    drop_old_notes(tmp_path)
    write(tmp_path, line())
    drop_old_notes(tmp_path)
    assert notes.exists()
    write(tmp_path, line(pid=8) * 1000)
    drop_old_notes(tmp_path)
    assert not notes.exists()
    assert {each.pid for each in read_untraced(tmp_path)} == {8}
