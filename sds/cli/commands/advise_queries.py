"""Conditions of ``sds advise`` and ``sds what-if``: which table they are of, and how they print."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from sds.errors import SdsValueError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sds.server.operations.advice_reports import QueriedTable
    from sds.server.operations.sort_advice import QueryRequest

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
    from sds.files import canonical_path
    from sds.hdf5.dataset import parse_dataset_name
    from sds.server.operations.advice_reports import QueriedTable

    if not queries:
        if columns:
            message = "--columns needs --query: state the condition"
            raise SdsValueError(message)
        return {}
    by_name: dict[str, list[QueryRequest]] = {}
    for name, query in _of_names(names, queries, columns, reads):
        by_name.setdefault(name, []).append(query)
    tables = {}
    for name, of_table in by_name.items():
        file, table = parse_dataset_name(name)
        tables[name] = QueriedTable(file=canonical_path(file), table=table, queries=tuple(of_table))
    return tables


def _of_names(
    names: Sequence[str],
    queries: Sequence[str],
    columns: Sequence[str] | None,
    reads: Sequence[int] | None,
) -> list[tuple[str, QueryRequest]]:
    """Return each query with the name of its table."""
    from sds.queries.column_names import parse_columns
    from sds.server.operations.sort_advice import QueryRequest

    returned = _for_each(queries, columns, "--columns")
    counts = _for_each(queries, reads, "--reads")
    found = []
    for text, of_row, count in zip(queries, returned, counts, strict=True):
        name, condition = _split(names, text)
        found.append(
            (
                name,
                QueryRequest(
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
        f"--query {text!r} names no table: write it as '{names[0]}: {text}', or name one table"
    )
    raise SdsValueError(message)
