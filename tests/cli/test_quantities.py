from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sds.cli.quantities import (
    format_order,
    format_seconds,
    parse_order,
    parse_size,
)
from sds.errors import LayoutError, SdsValueError
from sds.text import times_text


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("512M", 512 << 20),
        ("512m", 512 << 20),
        ("512MiB", 512 << 20),
        ("512MB", 512 << 20),
        ("64K", 65536),
        ("65536", 65536),
        ("65536B", 65536),
        (" 2 G ", 2 << 30),
        ("1T", 1 << 40),
        ("1.5G", 3 << 29),
        ("9007199254740993", 9007199254740993),
    ],
)
def test_sizes_are_powers_of_1024(text, size_bytes):
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize("text", ["", "M", "-1M", "0", "12X", "1e9", "nan", "0.3", "1,5M", "٣M"])
def test_what_is_no_size_is_refused_by_name(text):
    with pytest.raises(SdsValueError, match="--memory"):
        parse_size(text, name="--memory")


@given(st.integers(1, 1 << 50))
def test_plain_bytes_come_back(size_bytes):
    assert parse_size(str(size_bytes)) == size_bytes


@given(st.permutations(range(5)))
def test_orders_come_back(order):
    assert parse_order(format_order(tuple(order))) == tuple(order)


@pytest.mark.parametrize("text", ["", "0,0", "1,2", "a,b", "0,1,1", "2 0 1", "-1,0", "0.0,1"])
def test_what_is_no_order_is_refused_with_its_text(text):
    with pytest.raises(LayoutError, match="no permutation"):
        parse_order(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0.0, "0 s"),
        (3.2e-6, "3.2 us"),
        (0.0005, "500 us"),
        (0.4321, "432 ms"),
        (2.0, "2 s"),
        (100.0, "100 s"),
        (300.0, "5 min"),
        (7200.0 * 4, "8 h"),
        (86400.0 * 30, "30 days"),
    ],
)
def test_times_read_well(seconds, text):
    assert format_seconds(seconds) == text


def test_times_of_one_row_share_the_unit_of_the_first():
    assert times_text((0.0021, 0.0009, 1.5)) == ("2.1 ms", "0.9", "1.5e+03")
