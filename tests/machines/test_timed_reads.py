"""Timed reads as lines: what they stand for, and which line is wrong."""

import json
from dataclasses import replace

import numpy as np
import pytest

from sds.errors import FormatError
from sds.geometry import ProcessReads, parse_selection
from sds.machines.timed_reads import TimedRead, median_times, parse_timed_reads
from sds.simulator import Operation

READ = TimedRead(
    extent=(8, 16, 32),
    element_size_bytes=4,
    selection="0:8:2, 3, :",
    seconds=0.5,
    parts=(2, 1, 4),
    order=(2, 0, 1),
    data_offset_bytes=2048,
)
SIMPLE = {"extent": [8, 16], "element_size_bytes": 2, "selection": "[:, 3]", "seconds": 0.25}


def test_a_line_is_read_as_it_was_written():
    lines = [READ.line(), "", replace(READ, order=None, processes=8, seconds=1 / 3).line()]
    assert parse_timed_reads(lines, name="t") == [
        READ,
        replace(READ, order=None, processes=8, seconds=1 / 3),
    ]


def test_an_operation_is_the_read_divided_and_stored_so():
    slab = parse_selection(READ.selection, READ.extent)
    expected = Operation.of(
        READ.extent,
        ProcessReads.decomposed(slab, READ.parts),
        element_size_bytes=4,
        data_offset_bytes=2048,
    ).stored_as(READ.order)
    found = READ.operation()
    assert (found.extent, found.data_offset_bytes) == ((32, 8, 16), 2048)
    np.testing.assert_array_equal(found.slabs, expected.slabs)


def test_processes_divide_a_selection_as_in_simulate():
    (read,) = parse_timed_reads([json.dumps({**SIMPLE, "processes": 4})], name="t")
    slab = parse_selection("[:, 3]", (8, 16))
    expected = ProcessReads.shared(slab, 4)
    assert read.n_processes == 4
    np.testing.assert_array_equal(read.operation().slabs[:, 0], expected.start)


def test_every_process_reads_a_scalar():
    line = {"extent": [], "element_size_bytes": 4, "selection": "...", "seconds": 1.0}
    (read,) = parse_timed_reads([json.dumps({**line, "processes": 3})], name="t")
    assert len(read.operation().slabs) == read.n_processes == 3


def test_the_median_of_a_read_counts_once():
    twice = [replace(READ, seconds=s) for s in (3.0, 1.0, 2.0)]
    other = replace(READ, order=None, seconds=7.0)
    assert median_times([*twice, other]) == [replace(READ, seconds=2.0), other]
    # One pattern in two layouts: what is left out of a fit together.
    assert READ.pattern == other.pattern
    assert READ.layout != other.layout == "0,1,2"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seconds": 0.0}, "seconds is 0.0: give a positive number"),
        ({"seconds": float("nan")}, "seconds is nan"),
        ({"seconds": "soon"}, "seconds: Input should be a valid number"),
        ({"selection": "[:, 16]"}, "16"),
        ({"element_size_bytes": 0}, "element_size_bytes"),
        ({"order": [0, 0]}, "axis order 0,0 is no permutation"),
        ({"parts": [2]}, "parts"),
        ({"parts": [1 << 15, 1 << 15]}, "give at most"),
        ({"parts": [2, 2], "processes": 3}, "are 4 processes, processes is 3"),
        ({"processes": 0}, "0 processes"),
        ({"colour": 1}, "there is no colour; there are extent, element_size_bytes, selection"),
    ],
)
def test_a_wrong_line_is_named(change, words):
    lines = [json.dumps(SIMPLE), "", json.dumps({**SIMPLE, **change})]
    with pytest.raises(FormatError, match=f"t.jsonl, line 3: .*{words}"):
        parse_timed_reads(lines, name="t.jsonl")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "line 1 is no JSON: "),
        ("[1, 2]", r"line 1 is no JSON object: \[1, 2\]"),
        ("{}", "line 1: extent: Field required"),
        (f'{{"seconds": {"9" * 5000}}}', "line 1 is no JSON: "),
        pytest.param("[" * 100_000, "line 1 is nested too deeply: ", id="nested"),
        (
            '{"extent": [%s], "element_size_bytes": 1, "selection": "[:]", "seconds": 1}'
            % ("9" * 400),
            "line 1: a number is too large",
        ),
    ],
)
def test_what_is_no_timed_read_is_refused(line, words):
    with pytest.raises(FormatError, match=words):
        parse_timed_reads([line], name="t")
