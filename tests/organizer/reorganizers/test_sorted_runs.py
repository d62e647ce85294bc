"""Cuts between sorted runs: exact, stable, and no piece larger than the memory holds."""

import itertools
import tempfile
from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sds.organizer.reorganizers.sorted_runs import (
    RunFile,
    SortedRun,
    choose_cuts,
    piece_bounds,
    rows_before_cuts,
)


@dataclass(frozen=True)
class Rows:
    """What runs need of a plan."""

    n_rows: int
    run_rows: int
    columns: tuple[object, ...] = ()
    row_number_bytes: int = 4
    key_size_bytes: int = 8

    @property
    def n_runs(self):
        return -(-self.n_rows // self.run_rows)

    def run(self, index):
        first = index * self.run_rows
        return first, min(self.run_rows, self.n_rows - first)


@given(
    n_rows=st.integers(1, 3000),
    run_rows=st.integers(1, 900),
    piece_rows=st.integers(1, 900),
    n_keys=st.sampled_from([1, 2, 50, 10**9]),
    seed=st.integers(0, 99),
    rises=st.booleans(),
)
def test_pieces_are_the_rows_of_the_whole_order(
    *, n_rows, run_rows, piece_rows, n_keys, seed, rises
):
    plan = Rows(n_rows, max(run_rows, n_rows // 40))
    keys = np.random.default_rng(seed).integers(n_keys, size=n_rows, dtype=np.uint64)
    if rises:
        keys.sort()
    whole = np.argsort(keys, kind="stable")
    with tempfile.TemporaryFile() as file:
        runs = RunFile(plan, file.fileno(), 4096, piece_rows=piece_rows)
        samples, order_of = {}, []
        for index in range(plan.n_runs):
            first, n = plan.run(index)
            place = np.argsort(keys[first : first + n], kind="stable")
            order_of.append(first + place)
            run = SortedRun(keys[first : first + n][place], np.uint32(first + place), place, {})
            samples[index] = runs.store(index, run)
        cuts = choose_cuts(list(samples.values()), runs.step, piece_rows)
        bounds = piece_bounds(rows_before_cuts(runs, cuts, samples, plan.n_runs), plan)
    begun = 0
    for before, until in itertools.pairwise(bounds):
        rows = np.concatenate(
            [order[a:b] for order, a, b in zip(order_of, before, until, strict=True)]
        )
        assert set(rows) == set(whole[begun : begun + len(rows)])
        begun += len(rows)
        assert len(rows) <= max(piece_rows, plan.n_runs)
    assert begun == n_rows
