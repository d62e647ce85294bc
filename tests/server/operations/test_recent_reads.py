"""Patterns that count in mode auto."""

from dataclasses import replace

import pytest

from sds.analyzer import stated_pattern
from sds.server.operations.recent_reads import RecentReads
from sds.text import DAY_S

DAY_NS = int(DAY_S * 1e9)
STATED = stated_pattern("[:, :, 3]", extent=(40, 50, 60), element_size_bytes=4)


@pytest.mark.parametrize(
    ("last_day", "newest_day", "counts"),
    [
        (99, 100, True),
        (95, 100, False),  # others are read, and it is not
        (95, 96, True),  # nothing is read since
        (69, 69, False),  # too long ago whatever else is read
    ],
)
def test_what_counts_is_recent_and_has_not_ended(last_day, newest_day, counts):
    recent = RecentReads(since_ns=70 * DAY_NS, newest_ns=newest_day * DAY_NS)
    read = replace(
        STATED, stated=False, first_ns=0, last_ns=last_day * DAY_NS, longest_pause_ns=DAY_NS
    )
    assert recent.hold(read) is counts
    assert recent.hold(STATED)
