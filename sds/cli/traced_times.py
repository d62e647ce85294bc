"""Times of traced reads, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sds.analyzer.read_times import BY_ENGINE, BY_HDF5, added_times
from sds.cli.quantities import format_seconds
from sds.text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sds.analyzer import ReadTimes


def served_by(number: int) -> str:
    """Return what served reads, by the number that traces have for it."""
    return {BY_HDF5: "HDF5", BY_ENGINE: "SDS's engine"}.get(number, f"replica {number}")


def describe_times(times: ReadTimes) -> str:
    """Return median, number and range of reads."""
    if times.n == 1:
        return f"{format_seconds(times.total_s)}, one read by {served_by(times.served_by)}"
    return (
        f"{format_seconds(times.median_s)}, median of {counted(times.n, 'read')} "
        f"by {served_by(times.served_by)}, {format_seconds(times.least_s)} to "
        f"{format_seconds(times.most_s)}"
    )


def describe_in_short(times: Sequence[ReadTimes]) -> str:
    """Return the median of reads from the original, and that of the newest replica's."""
    original = [each for each in times if each.is_of_original]
    of_replicas = [each for each in times if not each.is_of_original]
    said = []
    if original:
        joined = added_times(original)
        said.append(f"{format_seconds(joined.median_s)} ({joined.n:,})")
    if of_replicas:
        newest = max(of_replicas, key=lambda each: each.served_by)
        said.append(
            f"{served_by(newest.served_by)}: {format_seconds(newest.median_s)} ({newest.n:,})"
        )
    return ", ".join(said) or "-"
