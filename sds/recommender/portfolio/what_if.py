"""Predicted times of reads with hypothetical layouts added, or existing ones taken away."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sds.analyzer import MIN_READS
from sds.errors import LayoutError
from sds.geometry import ReplicaLayout
from sds.recommender.candidates.class_costs import reads_in_segments, traced_reads, usable_patterns
from sds.recommender.candidates.dataset_reads import PortfolioSettings
from sds.recommender.candidates.read_classes import (
    classes_in_parts,
    collective_s,
    days_of,
    newest_read_ns,
    regions_of,
)
from sds.recommender.candidates.replica_cost import check_layout
from sds.recommender.candidates.segment_candidates import RecurringTiles
from sds.recommender.portfolio.sort_keys import TableQueries, query_workload
from sds.recommender.portfolio.values import Basis, ModelNames, Saving, basis_of, saving_interval
from sds.recommender.portfolio.workload import AS_NOW, TRACED_LOG_ERROR, read_candidate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sds.analyzer import AccessPattern
    from sds.recommender.candidates.dataset_reads import DatasetReads
    from sds.recommender.portfolio.workload import Candidate

ORIGINAL = "original"


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfPattern:
    """One pattern, now and then.

    Attributes
    ----------
    pattern
        In words; of a query its condition.
    reads_per_day
        HDF5 reads, or how often a query is made.
    seconds_now, seconds_then
        Of all of them a day.
    from_now, from_then
        Which layouts serve them: ``original``, or replicas by their names.
    predicted
        False where `seconds_now` was measured.
    """

    pattern: str
    reads_per_day: float
    seconds_now: float
    seconds_then: float
    from_now: str
    from_then: str
    predicted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """A dataset with other replicas than it has.

    Attributes
    ----------
    added, taken_away
        Replicas by their names.
    seconds_now, seconds_then
        Time of all reads of a day; now as measured where it was traced, else predicted.
    basis
        Whether `seconds_now` is measured or predicted.
    saving
        The difference; negative where time is lost.
    size_bytes
        Space more, or less where it is negative.
    build_s
        Time to build what is added.
    break_even_days
        After which that is saved; None where it never is, or nothing is built.
    patterns
        Those that change most first.
    calibrated
        Whether the models were fitted to the file system.
    models
        By which reads were predicted.
    """

    target: str
    added: tuple[str, ...]
    taken_away: tuple[str, ...]
    seconds_now: float
    seconds_then: float
    basis: Basis
    saving: Saving
    size_bytes: int
    build_s: float
    break_even_days: float | None
    patterns: tuple[WhatIfPattern, ...]
    calibrated: bool
    models: ModelNames


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """Replicas that stay, that are added, and that are taken away."""

    left: tuple[ReplicaLayout, ...]
    added: tuple[ReplicaLayout, ...]
    taken: tuple[ReplicaLayout, ...]

    @classmethod
    def of(
        cls,
        existing: Sequence[ReplicaLayout],
        add: Sequence[ReplicaLayout],
        take_away: Sequence[ReplicaLayout],
        extent: Sequence[int],
    ) -> _Change:
        """Return a change; of several replicas alike as many go as are named.

        Raises
        ------
        LayoutError
            Unless something changes, by replicas that can be added or taken away.
        """
        if not add and not take_away:
            raise LayoutError("no change given: name a layout to add, or a replica to take away")
        for layout in add:
            if layout in existing:
                raise LayoutError(
                    f"{layout.describe(extent)} exists already: take it away, or add another"
                )
        for layout in take_away:
            if layout not in existing:
                there = ", ".join(x.describe(extent) for x in existing) or "none"
                raise LayoutError(f"no replica of {layout.describe(extent)}; there are: {there}")
        away = Counter(take_away)
        left: list[ReplicaLayout] = []
        taken: list[ReplicaLayout] = []
        for layout in existing:
            away[layout] -= 1
            (taken if away[layout] >= 0 else left).append(layout)
        return cls(left=tuple(left), added=tuple(dict.fromkeys(add)), taken=tuple(taken))


def what_if(
    dataset: DatasetReads,
    *,
    add: Sequence[ReplicaLayout] = (),
    take_away: Sequence[ReplicaLayout] = (),
    min_reads: int = MIN_READS,
) -> WhatIf:
    """Return what the reads of a dataset would take with other replicas.

    Parameters
    ----------
    dataset
        With the replicas that exist.
    add
        Replicas that do not exist.
    take_away
        Some of those that do; of several alike one for each time that it is named.
    min_reads
        Of segments to add: how often their tiles had to be read.

    Raises
    ------
    LayoutError
        If neither is given, a replica to add cannot be built or exists, or one to take away does
        not.
    SdsValueError
        If a pattern is of another dataset.
    """
    change = _Change.of(dataset.existing, add, take_away, dataset.array.extent)
    for layout in change.added:
        check_layout(layout, dataset.array)
    tiles = [RecurringTiles(x.segments, min_reads) for x in change.added if x.segments is not None]
    then = replace(
        dataset,
        existing=(*change.left, *change.added),
        hypothetical_tiles=(*dataset.hypothetical_tiles, *tiles),
    )
    usable = usable_patterns(dataset)
    until_ns = newest_read_ns(usable)
    rows = [_pattern(pattern, (dataset, then), until_ns=until_ns) for pattern in usable]
    changed = [row for row in rows if row.from_now != row.from_then]
    models = dataset.models
    is_measured = not any(row.predicted for row in changed)
    added, taken = (
        [read_candidate(dataset, layout) for layout in layouts]
        for layouts in (change.added, change.taken)
    )
    return _answer(
        dataset.target,
        added,
        taken,
        rows,
        saving=saving_interval(
            math.fsum(row.seconds_now for row in changed),
            math.fsum(row.seconds_then for row in changed),
            (TRACED_LOG_ERROR if is_measured else models[0].log_error, models[1].log_error),
        ),
        calibrated=all(model.calibrated for model in models),
        models=ModelNames.of(models),
    )


def what_if_sorted(
    queries: TableQueries,
    *,
    add: Sequence[ReplicaLayout] = (),
    take_away: Sequence[ReplicaLayout] = (),
    settings: PortfolioSettings | None = None,
) -> WhatIf:
    """Return what the queries of a table would take with other sorted replicas.

    Parameters and errors as of `what_if`.
    """
    change = _Change.of(queries.existing, add, take_away, (queries.table.n_rows,))
    layouts = (*change.taken, *change.left, *change.added)
    n_taken, n_there = len(change.taken), len(queries.existing)
    workload = query_workload(
        replace(queries, existing=()), settings or PortfolioSettings(), layouts=layouts
    )
    now_s, by_now = workload.served_by(tuple(range(n_there)))
    then_s, by_then = workload.served_by(tuple(range(n_taken, len(layouts))))

    def source_name(by: int) -> str:
        return ORIGINAL if by == AS_NOW else workload.candidates[by].name

    rows = [
        WhatIfPattern(
            pattern=workload.descriptions[i],
            reads_per_day=float(per_day),
            seconds_now=float(now_s[i] * per_day),
            seconds_then=float(then_s[i] * per_day),
            from_now=source_name(int(by_now[i])),
            from_then=source_name(int(by_then[i])),
            predicted=True,
        )
        for i, per_day in enumerate(workload.per_day)
    ]
    return _answer(
        queries.target,
        workload.candidates[n_there:],
        workload.candidates[:n_taken],
        rows,
        saving=workload.saving(by_now, by_then),
        calibrated=workload.calibrated,
        models=workload.models,
    )


def _answer(
    target: str,
    added: Sequence[Candidate],
    taken: Sequence[Candidate],
    rows: Sequence[WhatIfPattern],
    *,
    saving: Saving,
    calibrated: bool,
    models: ModelNames,
) -> WhatIf:
    """Return an answer of which the patterns and the saving are known."""
    build_s = math.fsum(candidate.build_s for candidate in added)
    return WhatIf(
        target=target,
        added=tuple(candidate.name for candidate in added),
        taken_away=tuple(candidate.name for candidate in taken),
        seconds_now=math.fsum(row.seconds_now for row in rows),
        seconds_then=math.fsum(row.seconds_then for row in rows),
        basis=basis_of([not row.predicted for row in rows]),
        saving=saving,
        size_bytes=sum(c.size_bytes for c in added) - sum(c.size_bytes for c in taken),
        build_s=build_s,
        break_even_days=build_s / saving.seconds if added and saving.seconds > 0 else None,
        patterns=tuple(sorted(rows, key=lambda row: -abs(row.seconds_now - row.seconds_then))),
        calibrated=calibrated,
        models=models,
    )


def _pattern(
    pattern: AccessPattern, now_and_then: Sequence[DatasetReads], *, until_ns: int
) -> WhatIfPattern:
    """Return one pattern, now and then."""
    (seconds_now, from_now, is_measured), (seconds_then, from_then, _) = (
        _served(pattern, dataset, until_ns=until_ns) for dataset in now_and_then
    )
    return WhatIfPattern(
        pattern=pattern.description,
        reads_per_day=pattern.n_calls / days_of(pattern, until_ns),
        seconds_now=seconds_now,
        seconds_then=seconds_then,
        from_now=from_now,
        from_then=from_then,
        predicted=not is_measured,
    )


def _served(
    pattern: AccessPattern, dataset: DatasetReads, *, until_ns: int
) -> tuple[float, str, bool]:
    """Return the seconds a day of a pattern, which layouts serve it, and if that was measured."""
    if pattern.irregular:
        return pattern.elapsed_s / days_of(pattern, until_ns), ORIGINAL, True
    extent = dataset.array.extent
    boxes = regions_of(dataset.known_layouts, extent)
    classes = classes_in_parts([pattern], boxes, reads_in_segments(dataset), until_ns=until_ns)
    now = traced_reads(dataset, classes).now()
    total, names = 0.0, []
    for read, by, seconds in zip(classes, now.served_by, now.seconds, strict=True):
        total += float(seconds) * read.per_day
        names.append(ORIGINAL if by < 0 else dataset.existing[by].describe(extent))
    if pattern.n_collective:
        total += collective_s(pattern) / days_of(pattern, until_ns)
        names.append(ORIGINAL)
    return total, " and ".join(dict.fromkeys(names)), bool(now.is_measured.all())
