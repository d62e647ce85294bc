"""Times and counts in words: one way of writing them everywhere."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sds.text import (
    counted,
    factor_text,
    factors_apart,
    share_text,
    shares_apart,
    size_text,
    time_text,
    times_text,
)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (3.2e-6, "3.2 us"),
        (0.0032, "3.2 ms"),
        (0.9996, "1 s"),
        (119.0, "119 s"),
        (660.0, "11 min"),
        (1e4, "2.78 h"),
        (5e5, "5.79 days"),
        (-660.0, "-11 min"),
    ],
)
def test_a_time_has_the_unit_in_which_it_reads_best(seconds, text):
    assert time_text(seconds) == text


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (999 << 10, "999 KiB"),
        (1020 << 10, "0.996 MiB"),
        (1044 << 10, "1.02 MiB"),
        ((1 << 20) - 1, "1 MiB"),
        (5 << 30, "5 GiB"),
        (1.5 * 2**40, "1.5 TiB"),
    ],
)
def test_a_size_has_the_unit_in_which_it_reads_best(size_bytes, text):
    assert size_text(size_bytes) == text


@given(st.floats(0, 900 * 2.0**40))
def test_a_size_has_no_exponent_and_keeps_three_digits(size_bytes):
    number, unit = size_text(size_bytes).split()
    assert re.fullmatch(r"[\d.]+", number)
    scale = 1024 ** ("B", "KiB", "MiB", "GiB", "TiB").index(unit)
    assert float(number) * scale == pytest.approx(size_bytes, rel=0.005, abs=0.5)


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0, "0%"),
        (1e-6, "under 0.001%"),
        (0.00043, "0.043%"),
        (0.0957, "9.6%"),
        (0.124, "12%"),
        (0.994, "99%"),
        (0.9951, "over 99%"),
        (1.0, "100%"),
    ],
)
def test_only_nothing_is_no_part_and_only_all_is_the_whole(share, text):
    assert share_text(share) == text


def test_several_times_share_the_first_one_s_unit():
    assert times_text((0.0021, 0.0009)) == ("2.1 ms", "0.9")


@pytest.mark.parametrize(
    ("n", "text"), [(0, "0 reads"), (1, "1 read"), (2, "2 reads"), (1200, "1,200 reads")]
)
def test_one_of_a_thing_is_no_plural(n, text):
    assert counted(n, "read") == text


def test_a_plural_can_be_given():
    words = [counted(n, "process", "processes") for n in (1, 4096)]
    assert words == ["1 process", "4,096 processes"]


@pytest.mark.parametrize(
    ("factor", "text"), [(1.0, "1"), (72.14, "72.1"), (999.4, "999"), (6418.2, "6,418")]
)
def test_large_factors_are_written_out(factor, text):
    assert factor_text(factor) == text


@pytest.mark.parametrize(
    ("one", "other", "texts"),
    [
        (0.7, 0.9, ("70%", "90%")),
        (0.896, 0.9, ("89.6%", "90.0%")),
        (0.89996, 0.9, ("89.996%", "90.000%")),
        (0.9, 0.9, ("90%", "90%")),
    ],
)
def test_shares_that_differ_read_so(one, other, texts):
    assert shares_apart(one, other) == texts


@pytest.mark.parametrize(
    ("one", "other", "texts"),
    [
        (1.38, 1.25, ("1.38", "1.25")),
        (1.3791, 1.3812, ("1.379", "1.381")),
        (6418.2, 6418.4, ("6,418.2", "6,418.4")),
        (1.0, 1.0, ("1", "1")),
    ],
)
def test_factors_that_differ_read_so(one, other, texts):
    assert factors_apart(one, other) == texts
