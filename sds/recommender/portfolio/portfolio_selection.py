"""Chooses the set of replicas, over all datasets, that saves most under a budget of space."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from sds.errors import SdsValueError
from sds.recommender.candidates.dataset_reads import PortfolioSettings
from sds.recommender.portfolio.budget_search import (
    Budgets,
    DatasetCosts,
    Key,
    LayoutSet,
    PartBudget,
    select,
)
from sds.recommender.portfolio.compression import group_by_cost
from sds.recommender.portfolio.confidence import probability_faster
from sds.recommender.portfolio.gates import Effect, NoiseGates, objection
from sds.recommender.portfolio.sort_keys import TableQueries, query_workload
from sds.recommender.portfolio.values import (
    NO_QUERY_STATED,
    DatasetTimes,
    DeclinedLayout,
    Portfolio,
    PortfolioLayout,
    ReplicaCoverage,
    Saving,
    sum_of_savings,
)
from sds.recommender.portfolio.workload import (
    AS_NOW,
    UNCALIBRATED,
    Candidate,
    Workload,
    read_workload,
)
from sds.text import counted, share_text, size_text, time_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from sds.geometry import ReplicaLayout
    from sds.recommender.candidates.dataset_reads import DatasetReads
    from sds.recommender.candidates.enumeration import ChunkShapes
    from sds.recommender.portfolio.values import Basis

_N_DECLINED = 3
_N_ALIKE = 3
_MOST_OF_THE_SAVING = 0.8
# Of what a set saves, what its whole replicas may cost more than the parts that would do.
_WORTH_OF_THE_WHOLE = 0.1
# One, and several, of what a layout serves besides that which gains most.
_MORE_OF = {"read": ("more pattern", "more patterns"), "query": ("more query", "more queries")}


def choose_portfolio(
    datasets: Sequence[DatasetReads],
    *,
    tables: Sequence[TableQueries] = (),
    budget_bytes: int | None = None,
    part_budgets: Sequence[PartBudget] = (),
    refuse: Callable[[str, ReplicaLayout], str] | None = None,
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
    part_budgets
        The same of some of the datasets and tables, numbered in this order.
    refuse
        Why a layout of a dataset, by its name, is not to be built, in words; empty: it may be.
    gates
        What must be exceeded before a layout is advised, by what it saves beside the others.
    settings
        See `PortfolioSettings`.

    Raises
    ------
    SdsValueError
        If a budget is negative, two datasets or two tables have one name, or a pattern is of
        another dataset.

    Notes
    -----
    Candidates are the axis orders, chunk shapes and filters that the organizer can build, of whole
    datasets, of parts where much of the time goes and of tiles that are read again and again,
    tables sorted by columns that queries compare (`sds.recommender.portfolio.sort_keys`), and
    leaving things as they are. The set is chosen by
    `sds.recommender.portfolio.budget_search.select` from groups of reads of like cost
    (`sds.recommender.portfolio.compression`). A layout that does not pass every gate beside the
    others is taken out, and the set chosen anew without it.
    """
    gates = gates or NoiseGates()
    settings = settings or PortfolioSettings()
    budgets = Budgets(total_bytes=budget_bytes, parts=tuple(part_budgets))
    for what, unit, named in (("dataset", "reads", datasets), ("table", "queries", tables)):
        names = [each.target for each in named]
        if len(set(names)) != len(names):
            raise SdsValueError(f"the same {what} twice among {names}: give all its {unit} at once")
    fitted: ChunkShapes = {}
    workloads = [read_workload(dataset, settings, fitted) for dataset in datasets]
    workloads += [query_workload(queries, settings) for queries in tables]
    choice = _Choice(workloads, budgets, gates, settings)
    if refuse is not None:
        choice.refuse(refuse)
    return choice.portfolio()


def _sum_of_known(seconds: Sequence[float | None]) -> float | None:
    """Return the sum; None where one is not known, or there are none."""
    known = [one for one in seconds if one is not None]
    return math.fsum(known) if known and len(known) == len(seconds) else None


def _common_basis(all_: Sequence[Basis]) -> Basis:
    """Return the basis of a sum of times."""
    found = set(all_)
    return found.pop() if len(found) == 1 else "mixed" if found else "predicted"


class _Choice:
    def __init__(
        self,
        workloads: Sequence[Workload],
        budgets: Budgets,
        gates: NoiseGates,
        settings: PortfolioSettings,
    ) -> None:
        self.workloads = workloads
        self.budgets = budgets
        self.gates = gates
        self.settings = settings
        self.sizes = [[c.size_bytes for c in workload.candidates] for workload in workloads]
        self.n_groups = 0
        self.costs = [self._dataset_costs(i) for i in range(len(workloads))]
        self.refused: dict[Key, str] = {}
        self.refused_alone: frozenset[Key] = frozenset()

    def _dataset_costs(self, i: int) -> DatasetCosts:
        """Return the workload of a dataset, grouped by cost."""
        workload = self.workloads[i]
        days = self.settings.pay_within_days
        costs = tuple(
            c.build_s / days + self.settings.space_s(c.size_bytes) for c in workload.candidates
        )
        if not workload.now.any():  # nothing is read, or of an empty table
            nothing = np.zeros((0, len(workload.candidates)))
            return DatasetCosts(
                now=np.zeros(0),
                seconds=nothing,
                weights=np.zeros(0),
                sizes=tuple(self.sizes[i]),
                costs=costs,
            )
        table = np.column_stack([workload.now, workload.seconds])
        groups = group_by_cost(table, workload.per_day, tolerance=self.settings.tolerance)
        self.n_groups += len(groups)
        return DatasetCosts(
            now=groups.seconds[:, 0],
            seconds=groups.seconds[:, 1:],
            weights=groups.weights,
            sizes=tuple(self.sizes[i]),
            costs=costs,
        )

    def refuse(self, why: Callable[[str, ReplicaLayout], str]) -> None:
        """Take out layouts, each for a reason; empty: it stays."""
        for i, workload in enumerate(self.workloads):
            for c, candidate in enumerate(workload.candidates):
                if words := why(workload.target, candidate.layout):
                    self.refused[i, c] = words

    def portfolio(self) -> Portfolio:
        """Choose, take out what does not pass, and choose again, until all pass."""
        for i, workload in enumerate(self.workloads):
            for c in range(len(workload.candidates)):
                if (i, c) in self.refused:
                    continue
                words = self._objection((i, c), self._effect((i, c), frozenset()))
                if words:
                    # What fails alone fails beside others too: there it saves no more.
                    self.refused[i, c] = words
        self.refused_alone = frozenset(self.refused)
        while True:
            selected = select(self.costs, budgets=self.budgets, excluded=frozenset(self.refused))
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
            worth_s = _WORTH_OF_THE_WHOLE * self._saved(i, chosen)
            wholes = []
            for c, size in enumerate(self.sizes[i]):
                whole = (i, c)
                if whole in chosen or whole in self.refused or self._is_part(whole):
                    continue
                instead = self._needed(i, (chosen - {part}) | {whole}, enough_s)
                fits = self.budgets.hold(instead, self.sizes)
                fits = fits and self._costs(i, instead) - self._costs(i, chosen) <= worth_s
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

    def _saved(self, i: int, chosen: frozenset[Key]) -> float:
        """Return what a set saves of a dataset a day, less the costs of building it."""
        now_s = float(self.workloads[i].now @ self.workloads[i].per_day)
        return now_s - self._seconds(i, chosen) - self._costs(i, chosen)

    def _costs(self, i: int, chosen: frozenset[Key]) -> float:
        """Return what building and space of a set are worth, of one dataset, seconds a day."""
        return math.fsum(self.costs[i].costs[c] for b, c in chosen if b == i)

    def _is_part(self, key: Key) -> bool:
        return self.workloads[key[0]].candidates[key[1]].is_partial

    def _seconds(self, i: int, chosen: Iterable[Key]) -> float:
        """Return the time that is spent on a dataset a day with a set of layouts."""
        return float(self._best(i, chosen)[0] @ self.workloads[i].per_day)

    def _best(self, i: int, chosen: Iterable[Key]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return the time of the workload of a dataset with a set of layouts, and by which."""
        return self.workloads[i].served_by(tuple(c for b, c in sorted(chosen) if b == i))

    def _effect(self, key: Key, others: frozenset[Key]) -> Effect:
        """Return what a layout does beside others."""
        i, c = key
        workload = self.workloads[i]
        per_day = workload.per_day
        without, by = self._best(i, others)
        there, with_it = self._best(i, others | {key})
        served = with_it == c
        gains = np.where(served, without - np.where(served, there, 0.0), 0.0) * per_day
        most = [int(k) for k in np.argsort(-gains, kind="stable") if served[k]]
        return Effect(
            saving_s=float(gains.sum()),
            saving_observed_s=float(((without - there)[served] * workload.observed[served]).sum()),
            without_s=float((without * per_day)[served].sum()),
            with_s=float((there * per_day)[served].sum()),
            per_day=float(per_day[served].sum()),
            serves=tuple(dict.fromkeys(workload.descriptions[k] for k in most)),
            before=by,
            after=with_it,
        )

    def _objection(self, key: Key, effect: Effect) -> str:
        """Return the first gate that a layout fails, in words; empty where it passes all."""
        i, c = key
        return objection(
            self.workloads[i],
            self.workloads[i].candidates[c],
            effect,
            confidence=self._confidence(key, effect.speedup),
            gates=self.gates,
            settings=self.settings,
        )

    def _confidence(self, key: Key, ratio: float) -> float:
        """Return the probability that a layout is faster than what there is without it."""
        i, c = key
        return probability_faster(ratio, self.workloads[i].ratio_error(AS_NOW, c))

    def _beside(self, key: Key, others: frozenset[Key]) -> str:
        """Return which other layouts of the dataset are chosen, in words."""
        names = [self.workloads[b].candidates[c].name for b, c in sorted(others) if b == key[0]]
        return f"beside {' and '.join(names)}: " if names else ""

    def _result(self, selected: LayoutSet) -> Portfolio:
        chosen = frozenset(selected.chosen)
        layouts = sorted(
            (self._layout(key, chosen) for key in selected.chosen),
            key=lambda layout: -layout.saving.seconds,
        )
        used = sum(layout.size_bytes for layout in layouts)
        # The search takes the least time of each read; programs may choose another.
        saved_s = sum(self._saved(i, chosen) for i in range(len(self.workloads)))
        is_as_searched = saved_s >= selected.saving * (1 - self.settings.tolerance)
        datasets = [self._times(i, chosen) for i in range(len(self.workloads))]
        return Portfolio(
            layouts=tuple(layouts),
            declined=tuple(self._declined(chosen)),
            budget_bytes=self.budgets.total_bytes,
            used_bytes=used,
            seconds_now=math.fsum(one.seconds_now for one in datasets),
            seconds_then=math.fsum(one.seconds_then for one in datasets),
            saving=sum_of_savings([one.saving for one in datasets]),
            bound_s_per_day=max(selected.bound, 0.0),
            exact=selected.exact and is_as_searched,
            calibrated=all(one.calibrated for one in datasets) and bool(datasets),
            models=tuple(dict.fromkeys(one.models for one in datasets)),
            n_patterns=sum(workload.n_patterns for workload in self.workloads),
            n_groups=self.n_groups,
            notes=(*self._smaller(chosen), *self._notes(chosen)),
            datasets=tuple(datasets),
            basis=_common_basis([one.basis for one in datasets]),
            measured_s_now=_sum_of_known([one.measured_s_now for one in datasets]),
            cold_s_now=_sum_of_known([one.cold_s_now for one in datasets]),
            cold_s_then=_sum_of_known([one.cold_s_then for one in datasets]),
            warm_s_now=_sum_of_known([one.warm_s_now for one in datasets]),
            warm_s_then=_sum_of_known([one.warm_s_then for one in datasets]),
        )

    def _times(self, i: int, chosen: frozenset[Key]) -> DatasetTimes:
        """Return what the workload of a dataset takes a day, now and with a set of layouts."""
        workload = self.workloads[i]
        best, by = self._best(i, chosen)
        fixed_s = workload.fixed_s_per_day
        now_s = float(workload.now @ workload.per_day)
        rewritten = workload.rewritten
        n_chosen = sum(b == i for b, _ in chosen)
        if n_chosen != 1 or (rewritten is not None and rewritten[1] > now_s / 2):
            rewritten = None
        return DatasetTimes(
            target=workload.target,
            rewritten_chunks=None if rewritten is None else rewritten[0],
            rewritten_s=None if rewritten is None else rewritten[1] + fixed_s,
            seconds_now=now_s + fixed_s,
            seconds_then=float(best @ workload.per_day) + fixed_s,
            saving=workload.saving(np.full_like(by, AS_NOW), by),
            calibrated=workload.calibrated,
            models=workload.models,
            basis=workload.basis,
            measured_s_now=workload.measured_s_per_day,
            cold_s_now=workload.cold_s_per_day(np.full_like(by, AS_NOW)),
            cold_s_then=workload.cold_s_per_day(by),
            warm_s_now=workload.warm_s_per_day(np.full_like(by, AS_NOW)),
            warm_s_then=workload.warm_s_per_day(by),
        )

    def _layout(self, key: Key, chosen: frozenset[Key]) -> PortfolioLayout:
        i, c = key
        workload = self.workloads[i]
        candidate = workload.candidates[c]
        effect = self._effect(key, chosen - {key})
        interval = workload.saving(effect.before, effect.after)
        more = len(effect.serves) - 1
        shares = self._shares(key, effect)
        others = "" if not more else f" and {counted(more, *_MORE_OF[workload.unit])}"
        reason = (
            f"{candidate.name}: {effect.serves[0]}{others} from "
            f"{time_text(effect.without_s)} to {time_text(effect.with_s)} a day (predicted)"
        )
        holds = _holding_text(candidate, shares)
        return PortfolioLayout(
            target=workload.target,
            layout=candidate.layout,
            name=candidate.name,
            min_reads=candidate.min_reads,
            saving=Saving(seconds=effect.saving_s, low=interval.low, high=interval.high),
            speedup=effect.speedup,
            confidence=self._confidence(key, effect.speedup),
            reads_per_day=effect.per_day,
            serves=effect.serves,
            shares=shares,
            holds=holds,
            size_bytes=candidate.size_bytes,
            build_s=candidate.build_s,
            break_even_days=candidate.build_s / effect.saving_s,
            alike=self._alike(key, chosen),
            command=candidate.command,
            reason=f"{reason}; it {holds}" if holds else reason,
        )

    def _shares(self, key: Key, effect: Effect) -> ReplicaCoverage:
        """Return what of its dataset a layout holds and serves."""
        i, c = key
        workload = self.workloads[i]
        served = workload.may_serve(c)
        now = workload.now * workload.per_day
        return ReplicaCoverage(
            space=workload.candidates[c].space,
            reads=effect.per_day / float(workload.per_day.sum()),
            seconds=float(now[served].sum()) / float(now.sum()),
        )

    def _alike(self, key: Key, chosen: frozenset[Key]) -> tuple[str, ...]:
        """Return the layouts that would do as well in its place, by prediction."""
        i, c = key
        workload = self.workloads[i]
        others = chosen - {key}
        then_s = self._seconds(i, chosen)
        names = []
        for other in range(len(workload.candidates)):
            if other == c or (i, other) in chosen:
                continue
            if self.sizes[i][other] > self.budgets.left_bytes(i, others, self.sizes):
                continue
            instead_s = self._seconds(i, others | {(i, other)})
            if instead_s <= 0 or then_s <= 0:
                continue
            ratio = instead_s / then_s
            error = workload.ratio_error(c, other)
            if probability_faster(ratio, error) < self.gates.min_confidence:
                names.append((ratio, workload.candidates[other].name))
        return tuple(name for _, name in sorted(names)[:_N_ALIKE])

    def _declined(self, chosen: frozenset[Key]) -> list[DeclinedLayout]:
        """Return per dataset the layouts that save most alone and are not chosen, and why."""
        declined = []
        for i, workload in enumerate(self.workloads):
            alone = [
                (self._effect((i, c), frozenset()), c)
                for c in range(len(workload.candidates))
                if (i, c) not in chosen
            ]
            alone.sort(key=lambda item: -item[0].saving_s)
            for effect, c in alone[:_N_DECLINED]:
                candidate = workload.candidates[c]
                declined.append(
                    DeclinedLayout(
                        target=workload.target,
                        layout=candidate.layout,
                        name=candidate.name,
                        saving_s_per_day=effect.saving_s,
                        size_bytes=candidate.size_bytes,
                        reason=self._why_not((i, c), chosen),
                    )
                )
        return declined

    def _why_not(self, key: Key, chosen: frozenset[Key]) -> str:
        if key in self.refused:
            return self.refused[key]
        size = self.sizes[key[0]][key[1]]
        most, budget = self.budgets.tightest(key[0], (), ())
        if size > most:
            return (
                f"it takes {size_text(size)}, more than the whole {budget}, of which "
                f"{size_text(most)} are left"
            )
        beside = self._beside(key, chosen)
        words = self._objection(key, self._effect(key, chosen))
        if words:
            return beside + words
        left, budget = self.budgets.tightest(key[0], chosen, self.sizes)
        if size > left:
            return (
                f"it takes {size_text(size)}, and {size_text(max(0, left))} of the {budget} are "
                "left"
            )
        return f"{beside}it saves less than its building and its space are worth"

    def _notes(self, chosen: frozenset[Key]) -> list[str]:
        notes = []
        total = self.budgets.total_bytes
        if total is not None:
            smallest = min((s for sizes in self.sizes for s in sizes), default=None)
            if smallest is not None and smallest > total:
                notes.append(
                    f"the budget of {size_text(total)} has no room for any layout that "
                    f"would save time: the smallest takes {size_text(smallest)}"
                )
        advised = {i for i, _ in chosen}
        small = [
            workload
            for i, workload in enumerate(self.workloads)
            if i not in advised and self._takes_little(workload)
        ]
        for workload in self.workloads:
            if workload not in small or len(small) == len(self.workloads):
                notes += workload.notes
                notes += [UNCALIBRATED] if len(workload.now) and not workload.calibrated else []
        has_queries = any(workload.unit == "query" for workload in self.workloads)
        return [*dict.fromkeys(notes), *([] if has_queries else [NO_QUERY_STATED])]

    def _takes_little(self, workload: Workload) -> bool:
        """Return whether nothing is worth a word: coordinates, say, that are read with each map."""
        seconds = float(workload.now @ workload.observed) + workload.fixed_s_per_day
        return not workload.stated and seconds < self.gates.min_total_s

    def _smaller(self, chosen: frozenset[Key]) -> list[str]:
        """Return, for whole replicas that are chosen, which part would save nearly as much."""
        words = []
        for i, c in sorted(chosen):
            candidates = self.workloads[i].candidates
            if candidates[c].is_partial:
                continue
            others = chosen - {(i, c)}
            saving_s = self._effect((i, c), others).saving_s
            parts = [
                (self.sizes[i][p], self._effect((i, p), others).saving_s, part.name)
                for p, part in enumerate(candidates)
                if part.is_partial and (i, p) not in self.refused_alone
            ]
            parts = [part for part in parts if part[1] >= _MOST_OF_THE_SAVING * saving_s]
            if parts:
                size, part_s, name = min(parts)
                words.append(
                    f"{self.workloads[i].target}: {name}, would take {size_text(size)} instead of "
                    f"{size_text(self.sizes[i][c])} and save {part_s / saving_s:.0%} as much as "
                    f"{candidates[c].name}: it is advised where the budget is smaller"
                )
        return words


def _holding_text(candidate: Candidate, shares: ReplicaCoverage) -> str:
    """Return what a replica of a part is to its dataset, in words; empty for a whole one."""
    held, reads, seconds = map(share_text, (shares.space, shares.reads, shares.seconds))
    if not candidate.is_partial:
        return ""
    if candidate.layout.segments is not None:
        return (
            f"holds {held} of the dataset, what is read again and again: forecast for {reads} of "
            f"its reads and {seconds} of their time"
        )
    return (
        f"holds {held} of the dataset, where {reads} of its reads lie and {seconds} of their time "
        "goes"
    )
