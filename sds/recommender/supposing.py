"""What reads would take if layouts existed that do not, or if some that do were taken away."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from sds.errors import LayoutError
from sds.recommender.candidates import Predictor, seconds_now, usable_patterns
from sds.recommender.demand import AS_NOW, served_by
from sds.recommender.kinds import ReadKind, days_observed, days_of, kinds_in_parts, regions_of
from sds.recommender.layouts import (
    ReplicaShape,
    check_shape,
    replica_build_seconds,
    size_bytes,
)
from sds.recommender.portfolio import ModelNames, PortfolioSettings, Saving, saving_interval
from sds.recommender.segments import ReadsInSegments
from sds.recommender.sort_keys import QueryDemand, TableQueries
from sds.recommender.tables import models_for_advice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sds.analyzer import AccessPattern
    from sds.recommender.portfolio import DatasetReads, ReplicaKind, SortedShape

_Shape = TypeVar("_Shape", bound="ReplicaKind")
ORIGINAL = "original"


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfPattern:
    """One pattern, now and then.

    Attributes
    ----------
    pattern
        In words; of a query its condition.
    reads_per_day
        HDF5 reads, or how often a query is asked.
    seconds_now, seconds_then
        Of all of them a day.
    from_now, from_then
        Which layouts serve them: ``original``, or replicas by their names.
    predicted
        False where the time is the measured one, the same in every layout.
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
        Predicted time of all reads of a day.
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
    saving: Saving
    size_bytes: int
    build_s: float
    break_even_days: float | None
    patterns: tuple[WhatIfPattern, ...]
    calibrated: bool
    models: ModelNames


def what_if(
    dataset: DatasetReads,
    *,
    add: Sequence[ReplicaShape] = (),
    take_away: Sequence[ReplicaShape] = (),
    build_bytes_per_s: float = 250e6,
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
    build_bytes_per_s
        Bytes of the dataset reorganized per second.

    Raises
    ------
    LayoutError
        If neither is given, a replica to add cannot be built or exists, or one to take away does
        not.
    SdsValueError
        If a pattern is of another dataset.
    """
    _check_change(add, take_away, dataset.existing)
    add = tuple(dict.fromkeys(add))
    left, taken = _left_and_taken(dataset.existing, take_away)
    for shape in add:
        check_shape(shape, dataset.array)
    models = dataset.models or models_for_advice(None)
    then = replace(dataset, existing=(*left, *add))
    predictor = Predictor()
    usable = usable_patterns(dataset)
    days = days_observed(usable)
    both = [(each, ReadsInSegments(each.trail, each.existing)) for each in (dataset, then)]
    rows = [_pattern(pattern, both, predictor, days=days) for pattern in usable]
    rows.sort(key=lambda row: -abs(row.seconds_now - row.seconds_then))
    build_s = math.fsum(
        replica_build_seconds(s, dataset.array, models, build_bytes_per_s) for s in add
    )
    changed = [row for row in rows if row.from_now != row.from_then]
    saving = saving_interval(
        math.fsum(row.seconds_now for row in changed),
        math.fsum(row.seconds_then for row in changed),
        (models[0].log_error, models[1].log_error),
    )
    space = sum(size_bytes(s, dataset.array) for s in add)
    space -= sum(size_bytes(s, dataset.array) for s in taken)
    return WhatIf(
        target=dataset.target,
        added=tuple(shape.name for shape in add),
        taken_away=tuple(shape.name for shape in taken),
        seconds_now=math.fsum(row.seconds_now for row in rows),
        seconds_then=math.fsum(row.seconds_then for row in rows),
        saving=saving,
        size_bytes=space,
        build_s=build_s,
        break_even_days=build_s / saving.seconds if add and saving.seconds > 0 else None,
        patterns=tuple(rows),
        calibrated=all(model.calibrated for model in models),
        models=ModelNames.of(models),
    )


def what_if_sorted(
    asked: TableQueries,
    *,
    add: Sequence[SortedShape] = (),
    take_away: Sequence[SortedShape] = (),
    settings: PortfolioSettings | None = None,
) -> WhatIf:
    """Return what the queries of a table would take with other sorted replicas.

    Parameters and errors as of `what_if`.
    """
    _check_change(add, take_away, asked.existing)
    add = tuple(dict.fromkeys(add))
    left, taken = _left_and_taken(asked.existing, take_away)
    shapes = (*taken, *left, *add)
    demand = QueryDemand(
        asked=replace(asked, existing=()), shapes=shapes, settings=settings or PortfolioSettings()
    )
    n_there = len(asked.existing)
    now_s, by_now = served_by(demand, tuple(range(n_there)))
    then_s, by_then = served_by(demand, tuple(range(len(taken), len(shapes))))
    saving = demand.saving(by_now, by_then)
    build_s = math.fsum(demand.build_s[n_there:])
    sizes = dict(zip(shapes, demand.sizes, strict=True))
    rows = [
        WhatIfPattern(
            pattern=demand.descriptions[i],
            reads_per_day=float(per_day),
            seconds_now=float(now_s[i] * per_day),
            seconds_then=float(then_s[i] * per_day),
            from_now=_source_name(demand, int(by_now[i])),
            from_then=_source_name(demand, int(by_then[i])),
            predicted=True,
        )
        for i, per_day in enumerate(demand.per_day)
    ]
    rows.sort(key=lambda row: -abs(row.seconds_now - row.seconds_then))
    return WhatIf(
        target=asked.target,
        added=tuple(shape.name for shape in add),
        taken_away=tuple(shape.name for shape in taken),
        seconds_now=math.fsum(row.seconds_now for row in rows),
        seconds_then=math.fsum(row.seconds_then for row in rows),
        saving=saving,
        size_bytes=sum(sizes[s] for s in add) - sum(sizes[s] for s in taken),
        build_s=build_s,
        break_even_days=build_s / saving.seconds if add and saving.seconds > 0 else None,
        patterns=tuple(rows),
        calibrated=demand.calibrated,
        models=demand.models,
    )


def _source_name(demand: QueryDemand, by: int) -> str:
    return ORIGINAL if by == AS_NOW else demand.shapes[by].name


def _left_and_taken(
    existing: Sequence[_Shape], take_away: Sequence[_Shape]
) -> tuple[tuple[_Shape, ...], tuple[_Shape, ...]]:
    """Return the replicas that stay and those that go: of several alike as many as are named."""
    away = Counter(take_away)
    left: list[_Shape] = []
    taken: list[_Shape] = []
    for shape in existing:
        if away[shape]:
            away[shape] -= 1
            taken.append(shape)
        else:
            left.append(shape)
    return tuple(left), tuple(taken)


def _check_change(
    add: Sequence[_Shape], take_away: Sequence[_Shape], existing: Sequence[_Shape]
) -> None:
    """Raise LayoutError unless something changes, by replicas that can be added or taken away."""
    if not add and not take_away:
        raise LayoutError("what if what? name a layout to add, or a replica to take away")
    for shape in add:
        if shape in existing:
            raise LayoutError(f"{shape.name} exists already: take it away, or add another")
    for shape in take_away:
        if shape not in existing:
            there = ", ".join(s.name for s in existing) or "none"
            raise LayoutError(f"no replica of {shape.name}; there are: {there}")


def _pattern(
    pattern: AccessPattern,
    now_and_then: Sequence[tuple[DatasetReads, ReadsInSegments]],
    predictor: Predictor,
    *,
    days: float,
) -> WhatIfPattern:
    """Return one pattern, now and then."""
    per_day = pattern.n_calls / days_of(pattern, days)
    collective = pattern.n_collective / days_of(pattern, days)
    seconds: list[float] = []
    layouts: list[str] = []
    for dataset, segments in now_and_then:
        if pattern.irregular:
            seconds.append(pattern.elapsed_s / days_of(pattern, days))
            layouts.append(ORIGINAL)
            continue
        total = 0.0
        names: dict[str, None] = {}
        for kind in kinds_in_parts([pattern], regions_of(dataset.existing), segments, days=days):
            each, shape = seconds_now(dataset, kind, predictor)
            total += each * kind.per_day
            names[ORIGINAL if shape is None else shape.name] = None
        if collective:
            models = dataset.models or models_for_advice(None)
            kind = ReadKind.of([pattern], days=days)
            total += collective * predictor.seconds(None, dataset.array, kind, models)
            names[ORIGINAL] = None
        seconds.append(total)
        layouts.append(" and ".join(names))
    return WhatIfPattern(
        pattern=pattern.description,
        reads_per_day=per_day,
        seconds_now=seconds[0],
        seconds_then=seconds[1],
        from_now=layouts[0],
        from_then=layouts[1],
        predicted=not pattern.irregular,
    )
