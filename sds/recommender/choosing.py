"""Chooses the set of replicas, over all datasets, that saves most under a budget of space."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sds.errors import SdsValueError
from sds.recommender.candidates import Predictor, reads_in_layouts
from sds.recommender.confidence import probability_faster
from sds.recommender.demand import AS_NOW, Demand, ReadDemand, served_by
from sds.recommender.grouping import group_by_cost
from sds.recommender.portfolio import (
    NO_QUERY_STATED,
    DeclinedLayout,
    Portfolio,
    PortfolioLayout,
    PortfolioSettings,
    Saving,
    Shares,
    holding_text,
    sum_of_savings,
)
from sds.recommender.recommendation import NoiseGates
from sds.recommender.selecting import Block, Key, Selected, select
from sds.recommender.sort_keys import (
    QueryRecommendation,
    TableQueries,
    queries_in_replicas,
)
from sds.wording import counted, shares_apart, size_text, time_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sds.recommender.portfolio import DatasetReads

_N_DECLINED = 3
_N_ALIKE = 3
_MOST_OF_THE_SAVING = 0.8
# One, and several, of what a layout serves besides that which gains most.
_MORE_OF = {"read": ("more pattern", "more patterns"), "query": ("more query", "more queries")}
_THINGS = {"read": "reads", "query": "queries"}


def choose_portfolio(
    datasets: Sequence[DatasetReads],
    *,
    tables: Sequence[TableQueries] = (),
    budget_bytes: int | None = None,
    gates: NoiseGates | None = None,
    settings: PortfolioSettings | None = None,
) -> Portfolio:
    """Return the replicas to build, over all datasets and tables, under one budget of space.

    Parameters
    ----------
    datasets
        Each with all its reads, of every program and user.
    tables
        Each with all its queries. A compound dataset may be in both: no replica serves reads and
        queries alike.
    budget_bytes
        Space for new replicas; None: no limit.
    gates
        What must be exceeded before a layout is advised, by what it saves beside the others.
    settings
        See `PortfolioSettings`.

    Raises
    ------
    SdsValueError
        If the budget is negative, two datasets or two tables have one name, or a pattern is of
        another dataset.

    Notes
    -----
    Candidates are the axis orders, chunk shapes and filters that the organizer can build, of whole
    datasets, of parts where much of the time goes and of tiles that are read again and again,
    tables sorted by columns that queries compare (`sds.recommender.sort_keys`), and leaving things
    as they are. The set is chosen by `sds.recommender.selecting.select` from groups of reads of
    like cost (`sds.recommender.grouping`). A layout that does not pass every gate beside the others
    is taken out, and the set chosen anew without it.
    """
    gates = gates or NoiseGates()
    settings = settings or PortfolioSettings()
    if budget_bytes is not None and not budget_bytes >= 0:  # not a number, too
        raise SdsValueError(f"a budget of {budget_bytes} bytes; give 0 or more")
    for what, asked, named in (("dataset", "reads", datasets), ("table", "queries", tables)):
        names = [each.target for each in named]
        if len(set(names)) != len(names):
            raise SdsValueError(
                f"the same {what} twice among {names}: give all its {asked} at once"
            )
    predictor = Predictor()
    demands: list[Demand] = [
        ReadDemand(dataset, reads_in_layouts(dataset, settings, predictor), settings)
        for dataset in datasets
    ]
    demands += [queries_in_replicas(asked, settings) for asked in tables]
    return _Choice(demands, budget_bytes, gates, settings).portfolio()


def rank_sorting(
    asked: TableQueries,
    *,
    gates: NoiseGates | None = None,
    settings: PortfolioSettings | None = None,
) -> QueryRecommendation:
    """Return what each sorted replica of a table would save by itself, whatever space it takes."""
    gates, settings = gates or NoiseGates(), settings or PortfolioSettings()
    demand = queries_in_replicas(asked, settings)
    choice = _Choice([demand], None, gates, settings)
    alone, declined = choice.each_alone(0)
    return QueryRecommendation(
        queries=asked.queries,
        alone=tuple(alone),
        declined=tuple(declined),
        seconds_now=float(demand.now @ demand.per_day),
        calibrated=demand.calibrated,
        models=demand.models,
        notes=tuple(demand.notes()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Effect:
    """What one layout does beside others."""

    saving_s: float
    saving_observed_s: float
    without_s: float
    with_s: float
    per_day: float
    serves: tuple[str, ...]
    before: NDArray[np.int64]
    after: NDArray[np.int64]

    @property
    def speedup(self) -> float:
        return self.without_s / self.with_s if self.with_s > 0 else 1.0


class _Choice:
    def __init__(
        self,
        demands: Sequence[Demand],
        budget_bytes: int | None,
        gates: NoiseGates,
        settings: PortfolioSettings,
    ) -> None:
        self.demands = demands
        self.budget_bytes = budget_bytes
        self.gates = gates
        self.settings = settings
        self.sizes = [demand.sizes for demand in demands]
        self.build_s = [demand.build_s for demand in demands]
        self.n_groups = 0
        self.blocks = [self._block(i) for i in range(len(demands))]
        self.refused: dict[Key, str] = {}
        self.refused_alone: frozenset[Key] = frozenset()

    def _block(self, i: int) -> Block:
        """Return what is asked of a dataset, grouped by cost."""
        demand = self.demands[i]
        days = self.settings.pay_within_days
        costs = tuple(build_s / days for build_s in self.build_s[i])
        if not demand.now.any():  # nothing is asked, or of an empty table
            nothing = np.zeros((0, len(demand.shapes)))
            return Block(
                now=np.zeros(0),
                seconds=nothing,
                weights=np.zeros(0),
                sizes=self.sizes[i],
                costs=costs,
            )
        table = np.column_stack([demand.now, demand.seconds])
        groups = group_by_cost(table, demand.per_day, tolerance=self.settings.tolerance)
        self.n_groups += len(groups)
        return Block(
            now=groups.seconds[:, 0],
            seconds=groups.seconds[:, 1:],
            weights=groups.weights,
            sizes=self.sizes[i],
            costs=costs,
        )

    def portfolio(self) -> Portfolio:
        """Choose, take out what does not pass, and choose again, until all pass."""
        for i, demand in enumerate(self.demands):
            for c in range(len(demand.shapes)):
                words = self._objection((i, c), self._effect((i, c), frozenset()))
                if words:
                    # What fails alone fails beside others too: there it saves no more.
                    self.refused[i, c] = words
        self.refused_alone = frozenset(self.refused)
        while True:
            selected = select(
                self.blocks, budget_bytes=self.budget_bytes, excluded=frozenset(self.refused)
            )
            chosen = self._with_wholes(frozenset(selected.chosen))
            failing = [
                (effect.saving_s, key, words)
                for key in sorted(chosen)
                if (words := self._objection(key, effect := self._effect(key, chosen - {key})))
            ]
            if not failing:
                return self._result(replace(selected, chosen=tuple(sorted(chosen))))
            _, key, words = min(failing)
            self.refused[key] = self._beside(key, chosen - {key}) + words

    def each_alone(self, i: int) -> tuple[list[PortfolioLayout], list[DeclinedLayout]]:
        """Return the layouts of a dataset, each without others: those that pass, and the rest."""
        passed, failed = [], []
        demand = self.demands[i]
        for c in range(len(demand.shapes)):
            key = (i, c)
            effect = self._effect(key, frozenset())
            words = self._objection(key, effect)
            if words:
                failed.append(self._declined_layout(key, effect, words))
            else:
                passed.append(self._layout(key, frozenset({key})))
        passed.sort(key=lambda layout: -layout.saving.seconds)
        failed.sort(key=lambda layout: -layout.saving_s_per_day)
        return passed, failed

    def _with_wholes(self, chosen: frozenset[Key]) -> frozenset[Key]:
        """Put whole replicas in the place of parts where there is room for them.

        Parts say where reads lay; a whole replica also serves those that lie elsewhere tomorrow.
        """
        parts = [key for key in chosen if self._is_part(key)]
        for part in sorted(parts, key=lambda key: (-self.sizes[key[0]][key[1]], key)):
            if part not in chosen:
                continue
            i = part[0]
            enough_s = self._seconds(i, chosen) * (1 + self.settings.tolerance)
            wholes = []
            for c, size in enumerate(self.sizes[i]):
                whole = (i, c)
                if whole in chosen or whole in self.refused or self._is_part(whole):
                    continue
                instead = self._needed(i, (chosen - {part}) | {whole}, enough_s)
                used = sum(self.sizes[b][d] for b, d in instead)
                fits = self.budget_bytes is None or used <= self.budget_bytes
                if fits and whole in instead and self._seconds(i, instead) <= enough_s:
                    wholes.append((self._seconds(i, instead), size, c, instead))
            if wholes:
                *_, chosen = min(wholes, key=lambda item: item[:3])
        return chosen

    def _needed(self, i: int, chosen: frozenset[Key], enough_s: float) -> frozenset[Key]:
        """Return a set without the parts of a dataset that its reads do not need."""
        for key in sorted(chosen):
            if key[0] == i and self._is_part(key):
                without = chosen - {key}
                if self._seconds(i, without) <= enough_s:
                    chosen = without
        return chosen

    def _is_part(self, key: Key) -> bool:
        return self.demands[key[0]].shapes[key[1]].is_partial

    def _seconds(self, i: int, chosen: Iterable[Key]) -> float:
        """Return the time that is spent on a dataset a day with a set of layouts."""
        return float(self._best(i, chosen)[0] @ self.demands[i].per_day)

    def _best(self, i: int, chosen: Iterable[Key]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return the time of all that is asked of a dataset with a set of layouts, and by which."""
        return served_by(self.demands[i], tuple(c for b, c in sorted(chosen) if b == i))

    def _effect(self, key: Key, others: frozenset[Key]) -> _Effect:
        """Return what a layout does beside others."""
        i, c = key
        demand = self.demands[i]
        per_day = demand.per_day
        without, by = self._best(i, others)
        there = demand.seconds[:, c]
        served = there < without
        gains = np.where(served, without - np.where(served, there, 0.0), 0.0) * per_day
        most = [int(k) for k in np.argsort(-gains, kind="stable") if served[k]]
        return _Effect(
            saving_s=float(gains.sum()),
            saving_observed_s=float(((without - there)[served] * demand.observed[served]).sum()),
            without_s=float((without * per_day)[served].sum()),
            with_s=float((there * per_day)[served].sum()),
            per_day=float(per_day[served].sum()),
            serves=tuple(dict.fromkeys(demand.descriptions[k] for k in most)),
            before=by,
            after=np.where(served, c, by),
        )

    def _objection(self, key: Key, effect: _Effect) -> str:
        """Return the first gate that a layout fails, in words; empty where it passes all."""
        demand, gates = self.demands[key[0]], self.gates
        things = _THINGS[demand.unit]
        total_s = float(demand.now @ demand.observed)
        days = self.settings.pay_within_days
        build_s = self.build_s[key[0]][key[1]]
        confidence = self._confidence(key, effect.speedup)
        sure, needed = shares_apart(confidence, gates.min_confidence)
        checks = (
            (effect.saving_s > 0, f"no {demand.unit} would be faster"),
            (
                demand.stated or demand.n_seen >= gates.min_calls,
                (
                    f"only {counted(demand.n_seen, demand.unit, things)} seen, fewer than "
                    f"{gates.min_calls}"
                ),
            ),
            (
                total_s >= gates.min_total_s,
                f"all {things} take {time_text(total_s)}, less than {time_text(gates.min_total_s)}",
            ),
            (
                effect.saving_observed_s >= gates.min_saving_s,
                (
                    f"it would save {time_text(effect.saving_observed_s)}, less than "
                    f"{time_text(gates.min_saving_s)}"
                ),
            ),
            (
                effect.speedup >= gates.min_speedup,
                f"{effect.speedup:.2f} times as fast, gates ask for {gates.min_speedup}",
            ),
            (
                confidence >= gates.min_confidence,
                (
                    f"predicted {effect.speedup:.1f} times as fast, which the error of the models "
                    f"cannot tell from no gain (confidence {sure}, needed {needed}): "
                    "measure with sds calibrate"
                ),
            ),
            (
                build_s <= effect.saving_s * days,
                f"building takes {time_text(build_s)}, more than it saves in {days:.0f} days",
            ),
        )
        return next((words for passed, words in checks if not passed), "")

    def _confidence(self, key: Key, speedup: float) -> float:
        """Return the probability that a layout is faster than what there is without it."""
        i, c = key
        return probability_faster(speedup, self.demands[i].ratio_error(AS_NOW, c))

    def _beside(self, key: Key, others: frozenset[Key]) -> str:
        """Return which other layouts of the dataset are chosen, in words."""
        names = [self.demands[b].shapes[c].name for b, c in sorted(others) if b == key[0]]
        return f"beside {' and '.join(names)}: " if names else ""

    def _result(self, selected: Selected) -> Portfolio:
        chosen = frozenset(selected.chosen)
        layouts = sorted(
            (self._layout(key, chosen) for key in selected.chosen),
            key=lambda layout: -layout.saving.seconds,
        )
        used = sum(layout.size_bytes for layout in layouts)
        now_s, then_s, fixed_s, savings = 0.0, 0.0, 0.0, []
        for i, demand in enumerate(self.demands):
            best, by = self._best(i, chosen)
            now_s += float(demand.now @ demand.per_day)
            then_s += float(best @ demand.per_day)
            fixed_s += demand.fixed_s_per_day
            savings.append(demand.saving(np.full_like(by, AS_NOW), by))
        return Portfolio(
            layouts=tuple(layouts),
            declined=tuple(self._declined(chosen, used)),
            budget_bytes=self.budget_bytes,
            used_bytes=used,
            seconds_now=now_s + fixed_s,
            seconds_then=then_s + fixed_s,
            saving=sum_of_savings(savings),
            bound_s_per_day=max(selected.bound, 0.0),
            exact=selected.exact,
            calibrated=all(demand.calibrated for demand in self.demands) and bool(self.demands),
            models=tuple(dict.fromkeys(demand.models for demand in self.demands)),
            n_patterns=sum(demand.n_patterns for demand in self.demands),
            n_groups=self.n_groups,
            notes=(*self._smaller(chosen), *self._notes()),
        )

    def _layout(self, key: Key, chosen: frozenset[Key]) -> PortfolioLayout:
        i, c = key
        demand = self.demands[i]
        shape = demand.shapes[c]
        effect = self._effect(key, chosen - {key})
        interval = demand.saving(effect.before, effect.after)
        most = effect.serves[0]
        more = len(effect.serves) - 1
        shares = self._shares(key, effect)
        others = "" if not more else f" and {counted(more, *_MORE_OF[demand.unit])}"
        reason = (
            f"{shape.name}: {most}{others} from "
            f"{time_text(effect.without_s)} to {time_text(effect.with_s)} a day"
        )
        if shape.is_partial:
            reason += f"; it {holding_text(shape, shares)}"
        return PortfolioLayout(
            target=demand.target,
            layout=shape,
            name=shape.name,
            saving=Saving(seconds=effect.saving_s, low=interval.low, high=interval.high),
            speedup=effect.speedup,
            confidence=self._confidence(key, effect.speedup),
            reads_per_day=effect.per_day,
            serves=effect.serves,
            shares=shares,
            size_bytes=self.sizes[i][c],
            build_s=self.build_s[i][c],
            break_even_days=self.build_s[i][c] / effect.saving_s,
            alike=self._alike(key, chosen),
            command=shape.command(demand.target),
            reason=reason,
        )

    def _shares(self, key: Key, effect: _Effect) -> Shares:
        """Return what of its dataset a layout holds and serves."""
        i, c = key
        demand = self.demands[i]
        served = demand.may_serve(c)
        now = demand.now * demand.per_day
        return Shares(
            space=demand.space_share(c),
            reads=effect.per_day / float(demand.per_day.sum()),
            seconds=float(now[served].sum()) / float(now.sum()),
        )

    def _alike(self, key: Key, chosen: frozenset[Key]) -> tuple[str, ...]:
        """Return the layouts that would do as well in its place, by prediction."""
        i, c = key
        demand = self.demands[i]
        others = chosen - {key}
        then_s = self._seconds(i, chosen)
        names = []
        for other in range(len(demand.shapes)):
            if other == c or (i, other) in chosen:
                continue
            used = sum(self.sizes[b][d] for b, d in others) + self.sizes[i][other]
            if self.budget_bytes is not None and used > self.budget_bytes:
                continue
            instead_s = self._seconds(i, others | {(i, other)})
            if instead_s <= 0 or then_s <= 0:
                continue
            ratio = instead_s / then_s
            error = demand.ratio_error(c, other)
            if probability_faster(ratio, error) < self.gates.min_confidence:
                names.append((ratio, demand.shapes[other].name))
        return tuple(name for _, name in sorted(names)[:_N_ALIKE])

    def _declined(self, chosen: frozenset[Key], used: int) -> list[DeclinedLayout]:
        """Return per dataset the layouts that save most alone and are not chosen, and why."""
        declined = []
        for i, demand in enumerate(self.demands):
            alone = [(self._effect((i, c), frozenset()), c) for c in range(len(demand.shapes))]
            alone = [(effect, c) for effect, c in alone if (i, c) not in chosen]
            alone.sort(key=lambda item: -item[0].saving_s)
            for effect, c in alone[:_N_DECLINED]:
                words = self._why_not((i, c), chosen, used)
                declined.append(self._declined_layout((i, c), effect, words))
        return declined

    def _declined_layout(self, key: Key, effect: _Effect, reason: str) -> DeclinedLayout:
        i, c = key
        demand = self.demands[i]
        return DeclinedLayout(
            target=demand.target,
            layout=demand.shapes[c],
            name=demand.shapes[c].name,
            saving_s_per_day=effect.saving_s,
            size_bytes=self.sizes[i][c],
            reason=reason,
        )

    def _why_not(self, key: Key, chosen: frozenset[Key], used: int) -> str:
        if key in self.refused:
            return self.refused[key]
        size = self.sizes[key[0]][key[1]]
        if self.budget_bytes is not None and size > self.budget_bytes:
            return f"it takes {size_text(size)}, more than the whole budget of " + size_text(
                self.budget_bytes
            )
        beside = self._beside(key, chosen)
        words = self._objection(key, self._effect(key, chosen))
        if words:
            return beside + words
        if self.budget_bytes is not None and used + size > self.budget_bytes:
            left = self.budget_bytes - used
            return f"it takes {size_text(size)}, and {size_text(left)} of the budget are left"
        return f"{beside}it saves less than its building costs"

    def _notes(self) -> list[str]:
        notes = []
        if self.budget_bytes is not None:
            smallest = min((s for sizes in self.sizes for s in sizes), default=None)
            if smallest is not None and smallest > self.budget_bytes:
                notes.append(
                    f"the budget of {size_text(self.budget_bytes)} has no room for any layout that "
                    f"would save time: the smallest takes {size_text(smallest)}"
                )
        for demand in self.demands:
            notes += demand.notes()
        asked = any(demand.unit == "query" for demand in self.demands)
        return [*dict.fromkeys(notes), *([] if asked else [NO_QUERY_STATED])]

    def _smaller(self, chosen: frozenset[Key]) -> list[str]:
        """Return, for whole replicas that are chosen, which part would save nearly as much."""
        words = []
        for i, c in sorted(chosen):
            shapes = self.demands[i].shapes
            if shapes[c].is_partial:
                continue
            others = chosen - {(i, c)}
            saving_s = self._effect((i, c), others).saving_s
            parts = [
                (self.sizes[i][p], self._effect((i, p), others).saving_s, shape.name)
                for p, shape in enumerate(shapes)
                if shape.is_partial and (i, p) not in self.refused_alone
            ]
            parts = [part for part in parts if part[1] >= _MOST_OF_THE_SAVING * saving_s]
            if parts:
                size, part_s, name = min(parts)
                words.append(
                    f"{self.demands[i].target}: {name}, would take {size_text(size)} instead of "
                    f"{size_text(self.sizes[i][c])} and save {part_s / saving_s:.0%} as much as "
                    f"{shapes[c].name}: it is advised where the budget is smaller"
                )
        return words
