"""Times of traced reads, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sds.analyzer.gains import measured_gains
from sds.analyzer.read_times import BY_ENGINE, BY_HDF5, added_times
from sds.cli.quantities import (
    describe_order,
    describe_region,
    describe_storage,
    format_days,
    format_seconds,
    format_size,
)
from sds.text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sds.analyzer import AccessPattern, ReadTimes
    from sds.server.operations.savings import ReplicaSavings


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


def describe_saved(
    seconds: float | None, low: float | None = None, high: float | None = None
) -> str:
    """Return a time that was saved, with its interval where that is known; ``-`` for None."""
    if seconds is None:
        return "-"
    said = format_seconds(seconds)
    if low is None or high is None:
        return said
    return f"{said} ({format_seconds(low)} to {format_seconds(high)})"


def describe_payback(one: ReplicaSavings) -> str:
    """Return when a replica has saved what its build took; ``-`` where that is not known."""
    if one.paid_back_in_days is None:
        return "-"
    return "yes" if not one.paid_back_in_days else f"in {format_days(one.paid_back_in_days)}"


REPLICA_COLUMNS = (
    "replica>", "state", "order", "storage", "region", "size>", "reads>", "saved>",
    "saved per read>", "predicted>", "saved per day>", "build>", "paid back",
)  # fmt: skip


def replica_cells(one: ReplicaSavings) -> tuple[str, ...]:
    """Return the row of a replica in a table with `REPLICA_COLUMNS`."""
    record, gain = one.replica, one.gain
    return (
        str(record.id),
        str(record.state),
        describe_order(record),
        describe_storage(record),
        describe_region(record),
        format_size(record.size_bytes if record.stored_bytes is None else record.stored_bytes),
        f"{gain.n:,}",
        describe_saved(gain.saved_s, gain.saved_low_s, gain.saved_high_s),
        format_seconds(gain.saved_s_per_read),
        format_seconds(record.predicted_saving_s_per_read),
        format_seconds(one.saved_s_per_day),
        format_seconds(record.build_s),
        describe_payback(one),
    )


PATTERN_COLUMNS = (
    "reads", "served by", "number>", "median>", "fastest to slowest>", "all>", "saved>",
)  # fmt: skip


def pattern_cells(pattern: AccessPattern) -> list[tuple[str, ...]]:
    """Return the rows of a kind of read in a table with `PATTERN_COLUMNS`."""
    gains = measured_gains(pattern)
    if not gains:  # collective, or of an older catalog
        whole = format_seconds(pattern.elapsed_s)
        return [(pattern.description, "-", f"{pattern.n_calls:,}", "-", "-", whole, "-")]
    return [
        (
            "" if number else pattern.description,
            served_by(gain.times.served_by),
            f"{gain.times.n:,}",
            format_seconds(gain.times.median_s),
            f"{format_seconds(gain.times.least_s)} to {format_seconds(gain.times.most_s)}",
            format_seconds(gain.times.total_s),
            format_seconds(gain.saved_s),
        )
        for number, gain in enumerate(gains)
    ]
