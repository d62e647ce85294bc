"""``sds advise --query``: which columns of a table to sort by."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sds.errors import SdsValueError
from sds.wording import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sds.recommender.sort_keys import SortAdvice


def advise_queries(
    names: Sequence[str],
    queries: Sequence[str] | None,
    columns: str | None,
    *,
    reads: Sequence[int] | None,
    budget: str | None,
    as_json: bool,
) -> None:
    """Print which sorted replicas of a table would pay."""
    from sds.cli.output import print_json
    from sds.cli.quantities import parse_columns, parse_size
    from sds.dataset import parse_dataset_name
    from sds.home import default_home
    from sds.sort_advice import advise_queries as advise

    if len(names) != 1:
        message = f"--query states how one table is asked, not {len(names)}: name one"
        raise SdsValueError(message)
    if not queries:
        message = "--columns needs --query: say what is asked"
        raise SdsValueError(message)
    counts = list(reads or [1])
    if len(counts) == 1:
        counts *= len(queries)
    if len(counts) != len(queries):
        message = (
            f"--reads {len(counts)} times and --query {len(queries)} times: give --reads once for "
            "all conditions, or once for each"
        )
        raise SdsValueError(message)
    file, table = parse_dataset_name(names[0])
    found = advise(
        str(file),
        table,
        list(zip(queries, counts, strict=True)),
        home=default_home(),
        columns=None if columns is None else parse_columns(columns),
        budget_bytes=None if budget is None else parse_size(budget, name="--budget"),
    )
    if as_json:
        print_json(found)
    else:
        _print(found)


def _days(days: float | None) -> str:
    """Return whole days of queries; a replica that saves nothing never pays."""
    return "no time" if days is None else counted(math.ceil(days), "day")


def _print(found: SortAdvice) -> None:
    from sds.cli.output import print_lines, print_table
    from sds.cli.quantities import format_seconds, format_size

    marked = "" if found.calibrated else " (uncalibrated)"
    print_lines(
        f"{found.target}: queries take {format_seconds(found.seconds_now)} a day now, "
        f"{format_seconds(found.seconds_then)} with what follows{marked}"
    )
    if not found.chosen:
        print_lines("no sorted replica pays")
    for candidate in found.chosen:
        saving = candidate.saving
        print_lines(
            f"  {candidate.command}",
            f"    saves {format_seconds(saving.seconds)} a day "
            f"({format_seconds(saving.low)} to {format_seconds(saving.high)}), takes "
            f"{format_size(candidate.size_bytes)} and {format_seconds(candidate.build_s)} to "
            f"build, has paid after {_days(candidate.break_even_days)}; {candidate.reason}",
        )
    if found.declined:
        print_table(
            ("not advised", "saves a day>", "size>", "why"),
            [
                (
                    f"sorted by {candidate.key}",
                    format_seconds(candidate.saving.seconds),
                    format_size(candidate.size_bytes),
                    candidate.reason,
                )
                for candidate in found.declined
            ],
        )
