"""Tables in terminals of every width, and where the output is no terminal."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios

import h5py
import numpy as np
import pytest

from sds.cli import output

PROGRAM = """
from sds.cli.output import print_table
print_table(
    ("id>", "state", "stored as", "where"),
    [("1", "active", "1x512x512 shuffle,gzip:4", "/data/run.h5"), ("2", "lost", "", "/data/b.h5")],
)
"""
WORDS = ("active", "1x512x512", "shuffle,gzip:4", "/data/run.h5", "lost", "/data/b.h5")


def in_terminal(columns, source=PROGRAM):
    """Return what a program prints in a terminal so wide."""
    reader, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k != "COLUMNS"} | {"NO_COLOR": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", source], stdin=terminal, stdout=terminal, env=environment
    ) as program:
        os.close(terminal)
        parts = []
        while True:
            try:
                part = os.read(reader, 65536)
            except OSError:  # all ends of the terminal are closed
                break
            if not part:
                break
            parts.append(part)
    os.close(reader)
    assert program.returncode == 0
    return b"".join(parts).decode().replace("\r", "").replace("\x1b[1m", "").replace("\x1b[0m", "")


@pytest.mark.parametrize("columns", [20, 30, 40, 44, 46, 50, 58, 80, 200])
def test_no_word_is_broken_and_no_line_is_wider_than_the_terminal(columns):
    shown = in_terminal(columns)
    for word in WORDS:
        assert word in shown
    narrowest = max(len("stored as  1x512x512 shuffle,gzip:4"), columns)
    assert max(map(len, shown.splitlines())) <= narrowest


def test_rows_become_fields_where_there_is_no_room_for_columns():
    fields = [line.split(None, 1) for line in in_terminal(30).splitlines() if line]
    assert fields[:3] == [
        ["id", "1"],
        ["state", "active"],
        ["stored", "as  1x512x512 shuffle,gzip:4"],
    ]
    assert ["id", "2"] in fields
    assert sum(field[0] == "stored" for field in fields) == 1  # an empty cell says nothing


def test_columns_of_many_words_give_way_before_a_word_is_broken():
    names = (
        "replica", "serves>", "saves a day>", "in 19 of 20 cases>", "faster>", "confidence>",
        "size>", "build>", "pays after>",
    )  # fmt: skip
    row = (
        "sorted by x, with id", "100%", "21.7 min", "-11.1 min to 3.55 h", "7.52x", "90%",
        "153 MiB", "840 ms", "under a day",
    )  # fmt: skip
    source = f"from sds.cli.output import print_table\nprint_table({names}, [{row}])"
    lines = in_terminal(80, source).splitlines()
    assert max(map(len, lines)) <= 80
    shown = " ".join(lines).split()
    for words in (*names, *row):
        for word in words.rstrip(">").split():
            assert word in shown, words


def test_columns_move_together_before_words_move_to_other_lines():
    lines = {columns: in_terminal(columns).splitlines() for columns in (80, 53)}
    assert max(map(len, lines[80])) == 54
    assert max(map(len, lines[53])) == 51
    assert len(lines[80]) == len(lines[53])


def test_in_a_pipe_every_row_is_one_line():
    shown = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    ).stdout
    (row,) = [line for line in shown.splitlines() if "active" in line]
    assert row.split() == ["1", "active", "1x512x512", "shuffle,gzip:4", "/data/run.h5"]


REMARK = "the budget has no room for any layout that would save time, the smallest takes 1.5 GiB"
SENTENCES = f"""
import sys
from sds.cli.output import note, print_fields, print_prose
sys.stderr = sys.stdout
print_prose({REMARK!r}, "    {REMARK}", "")
note({REMARK!r})
note("a name with a line's end:\\n  in it")
print_fields([("predicted by", {REMARK!r}), ("file", "/data/{"a b " * 40}")])
"""


@pytest.mark.parametrize("columns", [60, 80])
def test_sentences_are_broken_between_words_where_the_terminal_ends(columns):
    shown = in_terminal(columns, SENTENCES)
    prose, _, rest = shown.partition("sds: a name")
    assert max(map(len, prose.splitlines())) <= columns
    assert " ".join(prose.split()) == f"{REMARK} {REMARK} sds: {REMARK}"
    first, _, second = prose.partition("    the budget")
    assert all(line.startswith("  ") for line in first.splitlines()[1:])
    assert second.splitlines()[1].startswith("      ")
    named, *fields = rest.splitlines()
    assert named == r" with a line's end:\n  in it"
    assert fields.pop() == f"file          /data/{'a b ' * 40}"
    assert max(map(len, fields)) <= columns
    assert [line[: len("predicted by  ")].strip() for line in fields] == (
        ["predicted by"] + [""] * (len(fields) - 1)
    )
    assert " ".join(line[len("predicted by  ") :] for line in fields) == REMARK


def test_sentences_stay_lines_where_there_is_no_terminal():
    shown = subprocess.run(
        [sys.executable, "-c", SENTENCES], capture_output=True, text=True, check=True
    ).stdout
    assert shown.count(REMARK) == 4
    assert shown.startswith(f"{REMARK}\n    {REMARK}\n\nsds: {REMARK}\n")


def test_advice_fits_the_terminal_but_for_names_and_commands(tmp_path):
    with h5py.File(tmp_path / "c.h5", "w") as file:
        file["cube"] = np.zeros((64, 64, 64), "f4")
    cube = f"{tmp_path}/c.h5:/cube"
    words = ["advise", cube, "--select", "[:, :, 5]", "--reads", "100000", "--select", "[3, :, :]"]
    words += ["--reads", "7", "--verbose"]
    shown = in_terminal(
        80, f"import sys\nfrom sds.cli.command_line import run_command\nrun_command({words!r})\n"
    )
    assert "(19 of 20 reads within x" in " ".join(shown.split())
    long = [line for line in shown.splitlines() if len(line) > 80]
    commands = ("    sds reorganize ", "    h5repack ")
    assert all(len(line.split()) == 1 or line.startswith(commands) for line in long)


class Clock:
    """Stands for the module time: every look at it is some seconds after the one before."""

    def __init__(self, step_s):
        self.now_s = 0.0
        self.step_s = step_s

    def monotonic(self):
        self.now_s += self.step_s
        return self.now_s


def shown(title, shares, capsys):
    with output.progress_bar(title) as advance:
        for share, what in shares:
            advance(share, what)
    written = capsys.readouterr()
    assert written.out == ""
    return written.err.splitlines()


def test_where_there_is_no_terminal_progress_is_a_line_now_and_then(monkeypatch, capsys):
    monkeypatch.setattr(output, "time", Clock(10.0))
    shares = [(i / 10, "copy") for i in range(10)]
    assert shown("Reorganizing", shares, capsys) == [
        "sds: Reorganizing: copy, 20% done, 2 min left",
        "sds: Reorganizing: copy, 50% done, 60 s left",
        "sds: Reorganizing: copy, 80% done, 22.5 s left",
    ]


def test_work_that_goes_on_where_an_earlier_one_ended_has_the_time_of_what_is_left(
    monkeypatch, capsys
):
    monkeypatch.setattr(output, "time", Clock(30.0))
    assert shown("Verifying", [(0.5, ""), (0.75, "")], capsys) == [
        "sds: Verifying: 50% done",
        "sds: Verifying: 75% done, 60 s left",
    ]


def test_what_takes_no_time_writes_no_line(capsys):
    assert shown("Verifying", [(i / 1000, "") for i in range(1000)], capsys) == []


def test_work_goes_on_where_nobody_reads_its_progress(monkeypatch):
    class Gone:
        def isatty(self):
            return False

        def write(self, _):
            raise BrokenPipeError

    monkeypatch.setattr(output, "time", Clock(40.0))
    monkeypatch.setattr(output.sys, "stderr", Gone())
    with output.progress_bar("Reorganizing") as advance:
        advance(0.5, "copy")
