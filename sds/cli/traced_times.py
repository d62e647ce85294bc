"""Times of traced reads, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sds.analyzer.read_times import BY_ENGINE, BY_HDF5, added_times
from sds.cli.quantities import (
    describe_order,
    describe_region,
    describe_storage,
    format_days,
    format_seconds,
)
from sds.text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sds.analyzer import ReadTimes
    from sds.server.operations.savings import ReplicaSavings, Savings


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


def replica_cells(savings: Savings) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return columns and rows of a table of what replicas saved and cost."""
    columns = (
        "replica>", "state", "order", "storage", "region", "reads>", "saved>", "a read>",
        "predicted>", "a day>", "build>", "paid back",
    )  # fmt: skip
    rows: list[tuple[str, ...]] = [
        (
            str(one.replica.id),
            str(one.replica.state),
            describe_order(one.replica),
            describe_storage(one.replica),
            describe_region(one.replica),
            f"{one.gain.n:,}",
            describe_saved(one.gain.saved_s, one.gain.saved_low_s, one.gain.saved_high_s),
            format_seconds(one.gain.saved_s_per_read),
            format_seconds(one.replica.predicted_saving_s_per_read),
            format_seconds(one.saved_s_per_day),
            format_seconds(one.replica.build_s),
            describe_payback(one),
        )
        for one in savings.replicas
    ]
    return columns, rows
