"""The set of layouts that saves most within a budget of space: arithmetic alone.

What a set saves is monotone and submodular: a layout saves no more beside others than alone, for
each read uses the best one that there is. So three things are known without trying every set:

- A greedy choice is good. Of two, by saving and by saving per byte, the better one saves at least
  (1 - 1/e) / 2 of what the best set saves (Leskovec 2007), and nearly all of it in practice.
- No set saves more than the chosen one plus what the others would save beside it, one by one,
  filled up to the budget by the best saving per byte, the last in part.
- A search that leaves out every branch whose bound is no better than the best set found ends with
  the best set, if it ends. It is given a number of steps; where it does not end the bound is given.

What each layout costs to build, spread over the days it has to pay for itself, is taken off its
saving; it is a sum over the set and leaves the second and the third as they are.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sds.errors import SdsValueError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


_EXACT_SHARE = 1e-6
MAX_STEPS = 200_000
"""Savings worked out by the search, of one candidate each, before it gives up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetCosts:
    """Costs of the reads of one dataset in the layouts that would serve them.

    Attributes
    ----------
    now
        Seconds of each read in the layouts that exist, shape (n_reads,).
    seconds
        In each candidate, shape (n_reads, n_candidates); infinite where it would not serve.
    weights
        Reads per day, shape (n_reads,).
    sizes
        Bytes of each candidate.
    costs
        Seconds per day that each must save before it is worth anything.
    """

    now: NDArray[np.float64]
    seconds: NDArray[np.float64]
    weights: NDArray[np.float64]
    sizes: tuple[int, ...]
    costs: tuple[float, ...]

    def saving(self, best: NDArray[np.float64], candidate: int) -> float:
        """Return what one more candidate saves a day where reads now take `best`."""
        gained = best - np.minimum(best, self.seconds[:, candidate])
        return float(gained @ self.weights)


Key = tuple[int, int]  # dataset, candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class PartBudget:
    """Space for the replicas of some of the datasets, within that for all.

    Attributes
    ----------
    name
        What it is of, in words.
    members
        Numbers of these datasets.
    budget_bytes
        Space for new replicas of them.
    """

    name: str
    members: frozenset[int]
    budget_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """Space for new replicas: of all datasets (None: no limit), and of some of them."""

    total_bytes: int | None
    parts: tuple[PartBudget, ...] = ()

    def __post_init__(self) -> None:
        for budget in (self.total_bytes, *(part.budget_bytes for part in self.parts)):
            if budget is not None and not budget >= 0:  # not a number, too
                raise SdsValueError(f"a budget of {budget} bytes; give 0 or more")

    def most_bytes(self, d: int) -> float:
        """Return the space for the replicas of one dataset alone."""
        return self.left_bytes(d, (), ())

    def left_bytes(self, d: int, chosen: Iterable[Key], sizes: Sequence[Sequence[int]]) -> float:
        """Return the space that a set of layouts leaves for more of a dataset; may be below 0.

        Parameters
        ----------
        sizes
            Bytes of the candidates of each dataset.
        """
        return self.tightest(d, chosen, sizes)[0]

    def tightest(
        self, d: int, chosen: Iterable[Key], sizes: Sequence[Sequence[int]]
    ) -> tuple[float, str]:
        """Return the same, and the budget that leaves no more, in words."""
        held = [(other, sizes[other][c]) for other, c in chosen]
        found = (math.inf, "budget")
        if self.total_bytes is not None:
            found = (self.total_bytes - sum(size for _, size in held), "budget")
        for part in self.parts:
            if d in part.members:
                used = sum(size for other, size in held if other in part.members)
                found = min(found, (part.budget_bytes - used, f"budget of {part.name}"))
        return found

    def hold(self, chosen: Iterable[Key], sizes: Sequence[Sequence[int]]) -> bool:
        """Return whether a set of layouts keeps every budget."""
        keys = tuple(chosen)
        return all(self.left_bytes(d, keys, sizes) >= 0 for d in {d for d, _ in keys})


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutSet:
    """Set of layouts, with its saving and the bound.

    Attributes
    ----------
    chosen
        (dataset, candidate), ascending.
    saving
        Seconds a day, less the costs.
    bound
        No set within the budget saves more; equal to `saving` where `exact`.
    exact
        Whether it is known to be the best.
    """

    chosen: tuple[Key, ...]
    saving: float
    bound: float
    exact: bool


def select(
    datasets: Sequence[DatasetCosts],
    *,
    budgets: Budgets,
    excluded: frozenset[Key] = frozenset(),
    max_steps: int = MAX_STEPS,
) -> LayoutSet:
    """Return the set of candidates that saves most a day within some budgets.

    The bound is that of the budget of all: those of parts can only lower what can be saved.
    """
    problem = _Problem(datasets, budgets)
    keys = [
        (d, c)
        for d, dataset in enumerate(datasets)
        for c in range(len(dataset.sizes))
        if (d, c) not in excluded and dataset.sizes[c] <= budgets.most_bytes(d)
    ]
    best = max(
        (problem.greedy(keys, per_byte=per_byte) for per_byte in (False, True)),
        key=lambda state: state.saving,
    )
    bound = problem.bound(_State(problem.start()), keys)
    others = [key for key in keys if key not in best.chosen]
    bound = min(bound, problem.bound(best, others) + best.cost)
    if not _close(best.saving, bound):
        best, ended = problem.search(keys, best, max_steps)
        if ended:
            bound = best.saving
    bound = max(bound, best.saving)
    return LayoutSet(
        chosen=tuple(sorted(best.chosen)),
        saving=best.saving,
        bound=bound,
        exact=_close(best.saving, bound),
    )


def _close(saving: float, bound: float) -> bool:
    return bound - saving <= _EXACT_SHARE * max(abs(bound), 1e-12)


class _State:
    """A set, what its reads take, and what it saves."""

    def __init__(self, best: tuple[NDArray[np.float64], ...]) -> None:
        self.chosen: frozenset[Key] = frozenset()
        self.best = best
        self.saving = 0.0
        self.cost = 0.0  # taken off already
        self.used_bytes = 0

    def plus(self, key: Key, dataset: DatasetCosts, gain: float) -> _State:
        """Return the set with one more."""
        d, c = key
        reads = np.minimum(self.best[d], dataset.seconds[:, c])
        more = _State((*self.best[:d], reads, *self.best[d + 1 :]))
        more.chosen = self.chosen | {key}
        more.saving = self.saving + gain
        more.cost = self.cost + dataset.costs[c]
        more.used_bytes = self.used_bytes + dataset.sizes[c]
        return more


class _Problem:
    def __init__(self, datasets: Sequence[DatasetCosts], budgets: Budgets) -> None:
        self.datasets = datasets
        self.sizes = [dataset.sizes for dataset in datasets]
        self.budgets = budgets
        self.budget_bytes = budgets.total_bytes

    def start(self) -> tuple[NDArray[np.float64], ...]:
        return tuple(dataset.now for dataset in self.datasets)

    def fits(self, key: Key, state: _State) -> bool:
        size = self.sizes[key[0]][key[1]]
        if self.budget_bytes is not None and state.used_bytes + size > self.budget_bytes:
            return False
        if not self.budgets.parts:
            return True
        return size <= self.budgets.left_bytes(key[0], state.chosen, self.sizes)

    def gain(self, state: _State, key: Key) -> float:
        """Return what one more saves a day, less its cost."""
        d, c = key
        dataset = self.datasets[d]
        return dataset.saving(state.best[d], c) - dataset.costs[c]

    def greedy(self, keys: Sequence[Key], *, per_byte: bool) -> _State:
        """Return the set that grows by the greatest gain, each time, until none fits or gains."""
        state = _State(self.start())

        def worth(key: Key, gain: float) -> float:
            return gain / max(1, self.datasets[key[0]].sizes[key[1]]) if per_byte else gain

        # Gains only fall as the set grows: an old one is a bound, and few are computed again.
        heap = []
        for key in keys:
            gain = self.gain(state, key)
            heap.append((-worth(key, gain), key, gain, 0))
        heapq.heapify(heap)
        while heap:
            _, key, gain, age = heapq.heappop(heap)
            if not self.fits(key, state):
                continue
            if age != len(state.chosen):
                gain = self.gain(state, key)
                heapq.heappush(heap, (-worth(key, gain), key, gain, len(state.chosen)))
            elif gain <= 0:
                break
            else:
                state = state.plus(key, self.datasets[key[0]], gain)
        return state

    def bound(self, state: _State, keys: Sequence[Key]) -> float:
        """Return what no set of these candidates saves more than, its own costs given back.

        The whole budget counts as free: the best set need not hold this one.
        """
        gains = []
        for key in keys:
            gain = self.gain(state, key)
            if gain > 0:
                gains.append((gain, self.datasets[key[0]].sizes[key[1]]))
        left = math.inf if self.budget_bytes is None else float(self.budget_bytes)
        return self._filled(state, gains, keys, left)

    def _filled(
        self,
        state: _State,
        gains: Sequence[tuple[float, int]],
        keys: Sequence[Key],
        left: float,
    ) -> float:
        """Return the saving with as much of the gains as fits, the last in part."""
        filled = 0.0
        for gain, size in sorted(gains, key=lambda g: g[0] / max(1, g[1]), reverse=True):
            share = 1.0 if size <= left else left / size
            filled += share * gain
            left -= share * size
            if left <= 0:
                break
        # Nor more than all of them built for nothing.
        allowed: dict[int, list[int]] = {}
        for d, c in keys:
            allowed.setdefault(d, []).append(c)
        ideal = 0.0
        for d, candidates in allowed.items():
            dataset = self.datasets[d]
            least = np.minimum(state.best[d], dataset.seconds[:, candidates].min(axis=1))
            ideal += float((state.best[d] - least) @ dataset.weights)
        return state.saving + min(filled, ideal)

    def search(self, keys: Sequence[Key], found: _State, max_steps: int) -> tuple[_State, bool]:
        """Return the best set, and whether the search ended within its steps."""
        stack: list[tuple[_State, tuple[Key, ...]]] = [(_State(self.start()), tuple(keys))]
        steps = 0
        while stack:
            state, left = stack.pop()
            steps += max(1, len(left))
            if steps > max_steps:
                return found, False
            if state.saving > found.saving:
                found = state
            gains = [
                (gain, key)
                for key in left
                if self.fits(key, state) and (gain := self.gain(state, key)) > 0
            ]
            if not gains:
                continue
            pairs = [(gain, self.datasets[key[0]].sizes[key[1]]) for gain, key in gains]
            left_bytes = (
                math.inf if self.budget_bytes is None else self.budget_bytes - state.used_bytes
            )
            bound = self._filled(state, pairs, [key for _, key in gains], left_bytes)
            if bound <= found.saving or _close(found.saving, bound):
                continue
            gain, key = max(
                gains, key=lambda g: (g[0] / max(1, self.datasets[g[1][0]].sizes[g[1][1]]), g[1])
            )
            rest = tuple(k for _, k in gains if k != key)
            stack.append((state, rest))
            stack.append((state.plus(key, self.datasets[key[0]], gain), rest))
        return found, True
