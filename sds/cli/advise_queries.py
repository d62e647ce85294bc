"""Conditions of ``sds advise`` and ``sds what-if``: which table they are of, and how they print."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from sds.errors import SdsValueError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sds.server.reports import QueriedTable, QueryAdvice
    from sds.sort_advice import AskedQuery

_Given = TypeVar("_Given")


def queried_tables(
    names: Sequence[str],
    queries: Sequence[str] | None,
    columns: Sequence[str] | None,
    reads: Sequence[int] | None,
) -> dict[str, QueriedTable]:
    """Return the tables that conditions are of, by their names on the command line.

    Of one name, conditions are as they are; of several, ``NAME: CONDITION`` says which is meant.

    Raises
    ------
    SdsValueError
        If a condition names no table, or there are not as many columns or numbers as conditions.
    """
    from sds.cli.options import canonical
    from sds.dataset import parse_dataset_name
    from sds.server.reports import QueriedTable

    if not queries:
        if columns:
            message = "--columns needs --query: say what is asked"
            raise SdsValueError(message)
        return {}
    by_name: dict[str, list[AskedQuery]] = {}
    for name, query in _of_names(names, queries, columns, reads):
        by_name.setdefault(name, []).append(query)
    tables = {}
    for name, asked in by_name.items():
        file, table = parse_dataset_name(name)
        tables[name] = QueriedTable(file=canonical(file), table=table, queries=tuple(asked))
    return tables


def _of_names(
    names: Sequence[str],
    queries: Sequence[str],
    columns: Sequence[str] | None,
    reads: Sequence[int] | None,
) -> list[tuple[str, AskedQuery]]:
    """Return each query with the name of its table."""
    from sds.column_names import parse_columns
    from sds.sort_advice import AskedQuery

    returned = _for_each(queries, columns, "--columns")
    counts = _for_each(queries, reads, "--reads")
    found = []
    for text, of_row, count in zip(queries, returned, counts, strict=True):
        name, condition = _split(names, text)
        found.append(
            (
                name,
                AskedQuery(
                    condition=condition,
                    columns=None if of_row is None else parse_columns(of_row),
                    per_day=1 if count is None else count,
                ),
            )
        )
    return found


def _for_each(
    queries: Sequence[str], given: Sequence[_Given] | None, option: str
) -> Sequence[_Given | None]:
    """Return what is given for each condition: once for all, or once for each."""
    if not given:
        return [None] * len(queries)
    if len(given) == 1:
        return list(given) * len(queries)
    if len(given) != len(queries):
        message = (
            f"{option} {len(given)} times and --query {len(queries)} times: give {option} once for "
            "all conditions, or once for each"
        )
        raise SdsValueError(message)
    return list(given)


def _split(names: Sequence[str], text: str) -> tuple[str, str]:
    """Return which table a condition is of, and the condition."""
    for name in sorted(names, key=len, reverse=True):
        if text.startswith(f"{name}:"):
            return name, text[len(name) + 1 :].strip()
    if len(names) == 1:
        return names[0], text
    message = (
        f"--query {text!r} is of which table? write it as '{names[0]}: {text}', or name one table"
    )
    raise SdsValueError(message)


def print_query_advice(advice: QueryAdvice) -> None:
    """Print what each sorted replica of a table would save, by itself."""
    from sds.cli.output import print_lines, print_prose, print_table
    from sds.cli.quantities import format_days, format_seconds, format_size
    from sds.wording import counted, factor_text

    found = advice.recommendation.recommendation
    mark = "" if found.calibrated else ", uncalibrated"
    asked = counted(len(found.queries), "query", "queries")
    print_lines(f"{advice.file}:{advice.table}")
    print_prose(f"  {asked}, {format_seconds(found.seconds_now)} a day now (predicted{mark})")
    if found.alone:
        print_table(
            ("each by itself", "saves a day>", "faster>", "confidence>", "size>", "pays after>"),
            [
                (
                    layout.name,
                    format_seconds(layout.saving.seconds),
                    f"{factor_text(layout.speedup)}x",
                    f"{layout.confidence:.0%}",
                    format_size(layout.size_bytes),
                    format_days(layout.break_even_days),
                )
                for layout in found.alone
            ],
        )
    else:
        print_prose("  no sorted replica would pay")
    print_lines("")
