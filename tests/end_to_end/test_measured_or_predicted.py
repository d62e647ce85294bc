"""After a traced run, times of reads that commands print are as traced, or called predicted."""

from __future__ import annotations

import re

import pytest

from sds.cli.quantities import format_seconds
from tests.end_to_end.conftest import BY_HDF5

PLANES = """
import sys, h5py
with h5py.File(sys.argv[1]) as file:
    cube = file["image/cube"]
    for energy in range(0, 1024, 64):
        cube[:, :, energy]
    for pixel in range(10):
        cube[pixel, pixel]
"""
TIME = re.compile(r"(?<![\w.,])\d[\d.,]* (?:ns|us|ms|s|min|h)\b")
# What takes time and is no read.
NOT_OF_READS = ("build ", "pays after ", "took ", "calibrated ")
COMMANDS = {
    "ingest": ["ingest"],
    "status": ["status"],
    "report": ["report", "{file}"],
    "explain file": ["explain", "{file}"],
    "explain": ["explain", "{file}:/image/cube", "[:, :, 5]"],
    "advise": ["advise", "{file}"],
    "advise verbose": ["advise", "{file}", "--verbose"],
    "what-if": ["what-if", "{file}:/image/cube", "--order", "2,0,1"],
    "replicas": ["replicas"],
    "doctor": ["doctor", "{file}"],
}


@pytest.fixture
def traced(sds, cube, tmp_path):
    """Trace a program; return every time that is known of its reads, as commands print it."""
    program = tmp_path / "traced.py"
    program.write_text(PLANES)
    sds.read(program, cube, **BY_HDF5)
    sds("ingest")
    report = sds("report", cube, "--json").json
    seconds = {report["elapsed_s"], report["time_lost_s"], 0.0}
    for pattern in report["patterns"]:
        seconds |= {pattern["elapsed_s"], pattern["time_lost_s"]}
        for served in pattern["served"]:
            seconds |= {served[name] for name in ("total_s", "median_s", "least_s", "most_s")}
    return {format_seconds(one) for one in seconds}


def sections(text):
    """Yield each line with the headings of the table that it is in, if any."""
    lines = text.splitlines()
    headings = ""
    for before, line in zip(["", *lines], lines, strict=False):
        if line.strip().startswith("─"):
            headings = before
        elif not line.strip():
            headings = ""
        yield line, headings


@pytest.mark.parametrize("name", COMMANDS)
def test_times_of_reads_are_traced_or_called_predicted(sds, cube, traced, name):
    answer = sds(*(word.format(file=cube) for word in COMMANDS[name]))
    assert answer.code == 0, answer.err
    for line, headings in sections(answer.out + answer.err):
        if line.strip().startswith(NOT_OF_READS):
            continue
        measured = re.findall(rf"({TIME.pattern}) \(measured\)", line)
        assert set(measured) <= traced, line
        if "predict" not in line + headings:
            assert set(TIME.findall(line)) <= traced, (line, headings)


def test_the_outputs_that_are_looked_at_hold_times(sds, cube, traced):
    assert len(traced) > 5
    with_times = {
        name
        for name, words in COMMANDS.items()
        if TIME.findall(sds(*(word.format(file=cube) for word in words)).out)
    }
    assert with_times >= {"status", "report", "explain", "explain file", "advise", "what-if"}
