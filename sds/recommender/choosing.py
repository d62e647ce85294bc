"""Chooses the set of replicas, over all datasets, that saves most under a budget of space."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from sds.errors import SdsValueError
from sds.recommender.candidates import Predictor, ReadsInLayouts, reads_in_layouts
from sds.recommender.grouping import group_by_cost
from sds.recommender.layouts import build_seconds, copied, ratio_error, size_bytes
from sds.recommender.portfolio import (
    NOT_BUILT_BY_SDS,
    DatasetReads,
    DeclinedLayout,
    ModelNames,
    Portfolio,
    PortfolioLayout,
    PortfolioSettings,
    Saving,
    Shares,
    saving_interval,
    sum_of_savings,
)
from sds.recommender.recommendation import NoiseGates
from sds.recommender.selecting import Block, Key, Selected, select
from sds.recommender.selection import probability_faster
from sds.wording import counted, share_text, time_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

_N_DECLINED = 3
_N_ALIKE = 3
_MOST_OF_THE_SAVING = 0.8
_MIB = 1 << 20


def choose_portfolio(
    datasets: Sequence[DatasetReads],
    *,
    budget_bytes: int | None = None,
    gates: NoiseGates | None = None,
    settings: PortfolioSettings | None = None,
) -> Portfolio:
    """Return the replicas to build, over all datasets, under one budget of space.

    Parameters
    ----------
    datasets
        Each with all its reads, of every program and user.
    budget_bytes
        Space for new replicas; None: no limit.
    gates
        What must be exceeded before a layout is advised, by what it saves beside the others.
    settings
        See `PortfolioSettings`.

    Raises
    ------
    SdsValueError
        If the budget is negative, two datasets have one name, or a pattern is of another dataset.

    Notes
    -----
    Candidates are the axis orders, chunk shapes and filters that the organizer can build, of whole
    datasets and of parts where much of the time goes, and leaving things as they are. The set is
    chosen by `sds.recommender.selecting.select` from groups of reads of like cost
    (`sds.recommender.grouping`). A layout that does not pass every gate beside the others is taken
    out, and the set chosen anew without it.
    """
    gates = gates or NoiseGates()
    settings = settings or PortfolioSettings()
    if budget_bytes is not None and not budget_bytes >= 0:  # not a number, too
        raise SdsValueError(f"a budget of {budget_bytes} bytes; give 0 or more")
    names = [dataset.target for dataset in datasets]
    if len(set(names)) != len(names):
        raise SdsValueError(f"the same dataset twice among {names}: give all its reads at once")
    predictor = Predictor()
    reads = [reads_in_layouts(dataset, settings, predictor) for dataset in datasets]
    choice = _Choice(datasets, reads, budget_bytes, gates, settings)
    return choice.portfolio()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Effect:
    """What one layout does beside others."""

    saving_s: float
    saving_observed_s: float
    without_s: float
    with_s: float
    reads_per_day: float
    serves: tuple[str, ...]

    @property
    def speedup(self) -> float:
        return self.without_s / self.with_s if self.with_s > 0 else 1.0


class _Choice:
    def __init__(
        self,
        datasets: Sequence[DatasetReads],
        reads: Sequence[ReadsInLayouts],
        budget_bytes: int | None,
        gates: NoiseGates,
        settings: PortfolioSettings,
    ) -> None:
        self.datasets = datasets
        self.reads = reads
        self.budget_bytes = budget_bytes
        self.gates = gates
        self.settings = settings
        self.sizes = [
            tuple(size_bytes(shape, d.array) for shape in r.shapes)
            for d, r in zip(datasets, reads, strict=True)
        ]
        self.n_groups = 0
        self.blocks = [self._block(i) for i in range(len(datasets))]
        self.refused: dict[Key, str] = {}

    def _block(self, i: int) -> Block:
        """Return the reads of a dataset, grouped by cost."""
        reads = self.reads[i]
        days = self.settings.pay_within_days
        costs = tuple(self.build_s((i, c)) / days for c in range(len(reads.shapes)))
        if not reads.kinds:
            nothing = np.zeros((0, len(reads.shapes)))
            return Block(
                now=np.zeros(0),
                seconds=nothing,
                weights=np.zeros(0),
                sizes=self.sizes[i],
                costs=costs,
            )
        table = np.column_stack([reads.now, reads.seconds])
        groups = group_by_cost(table, reads.per_day, tolerance=self.settings.tolerance)
        self.n_groups += len(groups)
        return Block(
            now=groups.seconds[:, 0],
            seconds=groups.seconds[:, 1:],
            weights=groups.weights,
            sizes=self.sizes[i],
            costs=costs,
        )

    def build_s(self, key: Key) -> float:
        """Return the time to build a replica."""
        i, c = key
        array = copied(self.reads[i].shapes[c], self.datasets[i].array)
        return build_seconds(array, self.settings.build_bytes_per_s)

    def portfolio(self) -> Portfolio:
        """Choose, take out what does not pass, and choose again, until all pass."""
        for i, reads in enumerate(self.reads):
            for c in range(len(reads.shapes)):
                words = self._objection((i, c), self._effect((i, c), frozenset()))
                if words:
                    # What fails alone fails beside others too: there it saves no more.
                    self.refused[i, c] = words
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
        return self.reads[key[0]].shapes[key[1]].region is not None

    def _seconds(self, i: int, chosen: Iterable[Key]) -> float:
        """Return the time that the reads of a dataset take a day with a set of layouts."""
        return float(self._best(i, chosen) @ self.reads[i].per_day)

    def _best(self, i: int, chosen: Iterable[Key]) -> NDArray[np.float64]:
        """Return the time of each read of a dataset with a set of layouts."""
        best = self.reads[i].now
        for b, c in chosen:
            if b == i:
                best = np.minimum(best, self.reads[i].seconds[:, c])
        return best

    def _effect(self, key: Key, others: frozenset[Key]) -> _Effect:
        """Return what a layout does beside others."""
        i, c = key
        reads = self.reads[i]
        without = self._best(i, others)
        there = reads.seconds[:, c]
        served = there < without
        gains = np.where(served, without - np.where(served, there, 0.0), 0.0) * reads.per_day
        most = [int(k) for k in np.argsort(-gains, kind="stable") if served[k]]
        return _Effect(
            saving_s=float(gains.sum()),
            saving_observed_s=float(((without - there)[served] * reads.observed[served]).sum()),
            without_s=float((without * reads.per_day)[served].sum()),
            with_s=float((there * reads.per_day)[served].sum()),
            reads_per_day=float(reads.per_day[served].sum()),
            serves=tuple(dict.fromkeys(reads.kinds[k].description for k in most)),
        )

    def _objection(self, key: Key, effect: _Effect) -> str:
        """Return the first gate that a layout fails, in words; empty where it passes all."""
        reads, gates = self.reads[key[0]], self.gates
        total_s = float(reads.now @ reads.observed)
        days = self.settings.pay_within_days
        build_s = self.build_s(key)
        confidence = self._confidence(key, effect.speedup)
        checks = (
            (effect.saving_s > 0, "no read would be faster"),
            (
                reads.stated or reads.n_calls >= gates.min_calls,
                f"only {counted(reads.n_calls, 'read')} seen, fewer than {gates.min_calls}",
            ),
            (
                total_s >= gates.min_total_s,
                f"all reads take {time_text(total_s)}, less than {time_text(gates.min_total_s)}",
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
                    f"cannot tell from no gain (confidence {confidence:.0%}, needed "
                    f"{gates.min_confidence:.0%}): measure with sds calibrate"
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
        reads = self.reads[key[0]]
        return probability_faster(speedup, ratio_error(None, reads.shapes[key[1]], reads.models))

    def _beside(self, key: Key, others: frozenset[Key]) -> str:
        """Return which other layouts of the dataset are chosen, in words."""
        names = [self.reads[b].shapes[c].name for b, c in sorted(others) if b == key[0]]
        return f"beside {' and '.join(names)}: " if names else ""

    def _result(self, selected: Selected) -> Portfolio:
        chosen = frozenset(selected.chosen)
        layouts = sorted(
            (self._layout(key, chosen) for key in selected.chosen),
            key=lambda layout: -layout.saving.seconds,
        )
        used = sum(layout.size_bytes for layout in layouts)
        now_s, then_s, fixed_s, savings = 0.0, 0.0, 0.0, []
        for i, reads in enumerate(self.reads):
            best = self._best(i, chosen)
            served = best < reads.now
            now, then = reads.now * reads.per_day, best * reads.per_day
            now_s, then_s = now_s + float(now.sum()), then_s + float(then.sum())
            fixed_s += reads.fixed_s_per_day
            savings.append(
                saving_interval(float(now[served].sum()), float(then[served].sum()), reads.models)
            )
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
            calibrated=all(m.calibrated for reads in self.reads for m in reads.models)
            and bool(self.reads),
            models=tuple(dict.fromkeys(ModelNames.of(reads.models) for reads in self.reads)),
            n_patterns=sum(len(d.patterns) for d in self.datasets),
            n_groups=self.n_groups,
            notes=(*self._smaller(chosen), *self._notes()),
        )

    def _layout(self, key: Key, chosen: frozenset[Key]) -> PortfolioLayout:
        i, c = key
        reads, dataset = self.reads[i], self.datasets[i]
        shape = reads.shapes[c]
        effect = self._effect(key, chosen - {key})
        interval = saving_interval(effect.without_s, effect.with_s, reads.models)
        most = effect.serves[0]
        more = len(effect.serves) - 1
        shares = self._shares(key, effect)
        reason = (
            f"{shape.name}: {most}{f' and {more} more patterns' if more else ''} from "
            f"{time_text(effect.without_s)} to {time_text(effect.with_s)} a day"
        )
        if shape.region is not None:
            reason += (
                f"; it holds {share_text(shares.space)} of the dataset, where "
                f"{share_text(shares.reads)} of its reads lie and {share_text(shares.seconds)} of "
                "their time goes"
            )
        return PortfolioLayout(
            target=dataset.target,
            layout=shape,
            name=shape.name,
            saving=Saving(seconds=effect.saving_s, low=interval.low, high=interval.high),
            speedup=effect.speedup,
            confidence=self._confidence(key, effect.speedup),
            reads_per_day=effect.reads_per_day,
            serves=effect.serves,
            shares=shares,
            size_bytes=self.sizes[i][c],
            build_s=self.build_s(key),
            break_even_days=self.build_s(key) / effect.saving_s,
            alike=self._alike(key, chosen),
            command=shape.command(dataset.target),
            reason=reason,
        )

    def _shares(self, key: Key, effect: _Effect) -> Shares:
        """Return what of its dataset a layout holds and serves."""
        i, c = key
        reads, array = self.reads[i], self.datasets[i].array
        served = np.array(
            [kind.is_served_by(reads.shapes[c]) for kind in reads.kinds]
        ) & np.isfinite(reads.seconds[:, c])
        now = reads.now * reads.per_day
        return Shares(
            space=copied(reads.shapes[c], array).size_bytes / array.size_bytes,
            reads=effect.reads_per_day / float(reads.per_day.sum()),
            seconds=float(now[served].sum()) / float(now.sum()),
        )

    def _alike(self, key: Key, chosen: frozenset[Key]) -> tuple[str, ...]:
        """Return the layouts that would do as well in its place, by prediction."""
        i, c = key
        reads = self.reads[i]
        shape = reads.shapes[c]
        others = chosen - {key}
        then_s = float(self._best(i, chosen) @ reads.per_day)
        names = []
        for other in range(len(reads.shapes)):
            if other == c or (i, other) in chosen:
                continue
            used = sum(self.sizes[b][d] for b, d in others) + self.sizes[i][other]
            if self.budget_bytes is not None and used > self.budget_bytes:
                continue
            instead_s = float(self._best(i, others | {(i, other)}) @ reads.per_day)
            if instead_s <= 0 or then_s <= 0:
                continue
            ratio = instead_s / then_s
            error = ratio_error(shape, reads.shapes[other], reads.models)
            if probability_faster(ratio, error) < self.gates.min_confidence:
                names.append((ratio, reads.shapes[other].name))
        return tuple(name for _, name in sorted(names)[:_N_ALIKE])

    def _declined(self, chosen: frozenset[Key], used: int) -> list[DeclinedLayout]:
        """Return per dataset the layouts that save most alone and are not chosen, and why."""
        declined = []
        for i, (dataset, reads) in enumerate(zip(self.datasets, self.reads, strict=True)):
            alone = [(self._effect((i, c), frozenset()), c) for c in range(len(reads.shapes))]
            alone = [(effect, c) for effect, c in alone if (i, c) not in chosen]
            alone.sort(key=lambda item: -item[0].saving_s)
            for effect, c in alone[:_N_DECLINED]:
                declined.append(
                    DeclinedLayout(
                        target=dataset.target,
                        layout=reads.shapes[c],
                        name=reads.shapes[c].name,
                        saving_s_per_day=effect.saving_s,
                        size_bytes=self.sizes[i][c],
                        reason=self._why_not((i, c), chosen, used),
                    )
                )
        return declined

    def _why_not(self, key: Key, chosen: frozenset[Key], used: int) -> str:
        if key in self.refused:
            return self.refused[key]
        size = self.sizes[key[0]][key[1]]
        if self.budget_bytes is not None and size > self.budget_bytes:
            return f"it takes {_size(size)}, more than the whole budget of " + _size(
                self.budget_bytes
            )
        beside = self._beside(key, chosen)
        words = self._objection(key, self._effect(key, chosen))
        if words:
            return beside + words
        if self.budget_bytes is not None and used + size > self.budget_bytes:
            left = self.budget_bytes - used
            return f"it takes {_size(size)}, and {_size(left)} of the budget are left"
        return f"{beside}it saves less than its building costs"

    def _notes(self) -> list[str]:
        notes = []
        if self.budget_bytes is not None:
            smallest = min((s for sizes in self.sizes for s in sizes), default=None)
            if smallest is not None and smallest > self.budget_bytes:
                notes.append(
                    f"the budget of {_size(self.budget_bytes)} has no room for any layout that "
                    f"would save time: the smallest takes {_size(smallest)}"
                )
        for dataset, reads in zip(self.datasets, self.reads, strict=True):
            words = _why_nothing(dataset, reads)
            if words:
                notes.append(f"{dataset.target}: {words}")
            if any(p.irregular for p in dataset.patterns):
                notes.append(
                    f"{dataset.target}: reads of points and irregular regions count with their "
                    "measured time in every layout; of them only the bounding box is known"
                )
            if any(p.n_collective for p in dataset.patterns):
                notes.append(
                    f"{dataset.target}: collective MPI reads stay with the original in every layout"
                )
            if reads.kinds and not all(m.calibrated for m in reads.models):
                notes.append(
                    f"{dataset.target}: predictions are uncalibrated, taken to be wrong by more "
                    "than a factor of 3 in one case of three: measure with sds calibrate"
                )
        return [*dict.fromkeys(notes), NOT_BUILT_BY_SDS]

    def _smaller(self, chosen: frozenset[Key]) -> list[str]:
        """Return, for whole replicas that are chosen, which part would save nearly as much."""
        words = []
        for i, c in sorted(chosen):
            reads = self.reads[i]
            if reads.shapes[c].region is not None:
                continue
            others = chosen - {(i, c)}
            saving_s = self._effect((i, c), others).saving_s
            parts = [
                (self.sizes[i][p], self._effect((i, p), others).saving_s, shape.name)
                for p, shape in enumerate(reads.shapes)
                if shape.region is not None and (i, p) not in self.refused
            ]
            parts = [part for part in parts if part[1] >= _MOST_OF_THE_SAVING * saving_s]
            if parts:
                size, part_s, name = min(parts)
                words.append(
                    f"{self.datasets[i].target}: {name}, would take {_size(size)} instead of "
                    f"{_size(self.sizes[i][c])} and save {part_s / saving_s:.0%} as much as "
                    f"{reads.shapes[c].name}: it is advised where the budget is smaller"
                )
        return words


def _why_nothing(dataset: DatasetReads, reads: ReadsInLayouts) -> str:
    """Return why a dataset has no candidates; empty where it has."""
    extent = dataset.array.extent
    if reads.shapes:
        return ""
    if not extent:
        return "a scalar has one layout"
    if 0 in extent:
        return f"it is empty (extent {'x'.join(map(str, extent))}): nothing to lay out"
    if not dataset.patterns:
        return "no reads are known: trace some with sds run, or state a selection"
    if not reads.kinds:
        return "only points, irregular regions or collective reads, which no layout serves better"
    return "no layout would make its reads faster"


def _size(n_bytes: int) -> str:
    """Return bytes for reading."""
    for unit, scale in (("TiB", _MIB << 20), ("GiB", _MIB << 10), ("MiB", _MIB), ("KiB", 1024)):
        if n_bytes >= scale:
            return f"{n_bytes / scale:.3g} {unit}"
    return f"{n_bytes} bytes"
