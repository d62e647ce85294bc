"""Features of operations, both phases of Eq. 5, and the three block gaps."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.table1.collective import cross_validate_collective, fit_collective
from benchmarks.table1.gaps import compare_gaps, gap_table
from benchmarks.table1.operation_features import ClientReads, measure_operation
from benchmarks.table1.protocol import Experiment
from sds.errors import RankDeficientError, SdsValueError
from sds.geometry import (
    HOPPER_RAID,
    HOPPER_STRIPES,
    ContiguousLayout,
    Hyperslab,
    IoMode,
    ProcessReads,
    block_features,
)
from sds.recommender.models.cost_model import GapKind, ModelKind
from sds.recommender.models.feature_matrix import FeatureMatrix
from sds.recommender.models.samples import Samples
from tests.recommender.measured import samples

EXTENT = (64, 64, 4096)
LAYOUT = ContiguousLayout(element_size_bytes=8)


def cube(shape, *, parts=(1, 1, 1), mode=IoMode.INDEPENDENT, n_aggregators=None):
    slab = Hyperslab(start=(0,) * 3, stride=(1, 1, 1), count=tuple(shape), block=(1, 1, 1))
    return measure_operation(
        EXTENT,
        ProcessReads.decomposed(slab, parts),
        LAYOUT,
        HOPPER_STRIPES,
        HOPPER_RAID,
        mode=mode,
        n_aggregators=n_aggregators,
    )


def collective_samples(n=40, *, aggregators=(4, 8, 16), seed=3):
    random = np.random.default_rng(seed)
    operations = [
        cube(
            [int(random.integers(4, n)) for n in EXTENT],
            parts=tuple(random.choice([1, 2, 4], size=3).tolist()),
            mode=IoMode.COLLECTIVE,
            n_aggregators=int(random.choice(aggregators)),
        )
        for _ in range(n)
    ]
    features = FeatureMatrix.of_operations(operations)
    io = 0.5 + 2e-3 * features["block_depth"] + 1e-3 * features["block_gap_count"]
    io += 0.02 * features["processes_per_ost"]
    shuffle = 0.1 + 1e-4 * features["n_processes"] + 0.02 * features["n_aggregators"]
    shuffle += 1e-6 * features["bytes_useful"] / features["n_aggregators"]
    made = Samples(
        patterns=tuple(f"cube {i}" for i in range(n)),
        operations=tuple(operations),
        seconds=tuple((io + shuffle).tolist()),
    )
    return made, io, shuffle


def test_a_read_of_one_process_is_the_same_as_an_operation():
    slab = Hyperslab(start=(3, 1, 5), stride=(2, 1, 1), count=(8, 16, 100), block=(1, 1, 1))
    of = (LAYOUT, HOPPER_STRIPES, HOPPER_RAID)
    read = block_features(EXTENT, slab, *of)
    operation = measure_operation(EXTENT, ProcessReads.of([slab]), *of)
    p = operation.processes_per_ost
    single = FeatureMatrix.of_reads([read], [p])
    whole = FeatureMatrix.of_operations([operation])
    exact = (
        "block_depth",
        "block_gap_count",
        "block_gap_distance",
        "block_gap_paper",
        "processes_per_ost",
        "runs_most",
        "bytes_touched_most",
        "bytes_useful",
        "n_processes",
    )
    for name in exact:
        assert single[name][0] == whole[name][0], name


def test_both_phases_of_collective_reads_are_found_again():
    made, io, shuffle = collective_samples()
    fit = fit_collective(made, io_s=io.tolist(), shuffle_s=shuffle.tolist(), gap=GapKind.COUNT)
    assert fit.model.kind is ModelKind.EQ5
    expected = (0.5, 2e-3, 1e-3, 0.02, 0.1, 1e-4, 0.02, 1e-6)
    assert fit.model.coefficients == pytest.approx(expected, rel=1e-4)
    phases = fit.phases(made.feature_matrix())
    assert phases[0] == pytest.approx(io, rel=1e-6)
    assert phases[1] == pytest.approx(shuffle, rel=1e-6)
    assert fit.model.predict_many(made.feature_matrix()) == pytest.approx(io + shuffle, rel=1e-6)
    assert fit.io.r_squared == pytest.approx(1.0)
    assert fit.shuffle.terms == ("1 shuffle", "Nproc", "Nagg", "Size/Nagg")


@pytest.mark.parametrize("relative", [False, True])
def test_collective_fits_are_judged_on_patterns_left_out(relative):
    made, io, shuffle = collective_samples()
    times = {"io_s": io.tolist(), "shuffle_s": shuffle.tolist()}
    right = cross_validate_collective(made, **times, gap=GapKind.COUNT, relative=relative)
    for error in (right.io, right.shuffle, right.whole):
        assert error.r_squared == pytest.approx(1.0)
        assert error.p95 < 1e-4
        assert error.n_patterns == 40
    assert right.n_floored == 0
    wrong = cross_validate_collective(made, **times, gap=GapKind.PAPER, relative=relative)
    assert wrong.io.median > 1e-3
    assert wrong.shuffle.p95 < 1e-4
    noise = np.random.default_rng(1).permutation(len(io))
    times["io_s"] = io[noise].tolist()
    assert cross_validate_collective(made, **times, relative=relative).io.r_squared < 0.5


def test_what_collective_fits_cannot_be_judged_by_is_told():
    made, io, shuffle = collective_samples(n=12)
    with pytest.raises(SdsValueError, match="a positive number of seconds"):
        cross_validate_collective(made, io_s=[0.0] * 12, shuffle_s=shuffle.tolist())
    one = replace(made, patterns=("cube",) * 12)
    with pytest.raises(SdsValueError, match="at least 2 patterns, not 1"):
        cross_validate_collective(one, io_s=io.tolist(), shuffle_s=shuffle.tolist())
    with pytest.raises(SdsValueError, match=r"sample 0 \(cube 0\) took 0.0 s"):
        fit_collective(made, io_s=[0.0] * 12, shuffle_s=shuffle.tolist(), relative=True)


def test_simulated_collective_reads_are_fitted_in_both_phases():
    """The phases that the simulator tells apart, by processes and aggregators that vary."""
    from benchmarks.collective_fit import simulated

    whole = Experiment()
    made = simulated(replace(whole, extent=whole.scaled(512)), 3, 1)
    assert len(made.samples) == 3 * 3 * 3 * 4
    assert min(made.io_s) > 0
    assert min(made.shuffle_s) > 0
    times = {"io_s": made.io_s, "shuffle_s": made.shuffle_s}
    fit = fit_collective(made.samples, **times)
    assert fit.model.dropped_terms == ()
    error = cross_validate_collective(made.samples, **times)
    assert np.isfinite([error.io.median, error.shuffle.median, error.whole.median]).all()


def test_aggregators_that_do_not_vary_are_named():
    made, io, shuffle = collective_samples(aggregators=(16,))
    of = {"io_s": io.tolist(), "shuffle_s": shuffle.tolist(), "gap": GapKind.COUNT}
    with pytest.raises(RankDeficientError, match=r"shuffle phase.*Nagg.*leave_out"):
        fit_collective(made, **of)
    fit = fit_collective(made, **of, leave_out=("Nagg",))
    assert fit.model.dropped_terms == ("Nagg",)
    assert fit.model.coefficients[6] == 0


def test_bad_phases_are_refused():
    made, io, shuffle = collective_samples(n=12)
    times = io.tolist()
    with pytest.raises(SdsValueError, match="11 times of I/O"):
        fit_collective(made, io_s=times[1:], shuffle_s=shuffle.tolist())
    with pytest.raises(SdsValueError, match=r"I/O phase of sample 0 \(cube 0\) took nan s"):
        fit_collective(made, io_s=[float("nan"), *times[1:]], shuffle_s=shuffle.tolist())
    with pytest.raises(SdsValueError, match="Nope: not a term"):
        fit_collective(made, io_s=times, shuffle_s=shuffle.tolist(), leave_out=("Nope",))
    with pytest.raises(SdsValueError, match="3 operations are too few"):
        fit_collective(made.take(range(3)), io_s=times[:3], shuffle_s=shuffle.tolist()[:3])


def test_the_gap_that_made_the_times_fits_best():
    made = samples(lambda d, g, p: 0.1 + 1e-6 * d + 1e-7 * g + 0.01 * p, n_patterns=20, noise=0.02)
    # The gaps of these samples are multiples of each other: make the paper's one of its own.
    other = [replace(f, block_gap_paper=i * 7919 % 104729) for i, f in enumerate(made.features)]
    made = replace(made, features=tuple(other))
    fits = compare_gaps(made)
    assert len(fits) == 3 * 2 * 3
    eq4_fits = {f.gap: f for f in fits if f.kind is ModelKind.EQ4 and f.relative}
    assert eq4_fits[GapKind.COUNT].heldout.rms < eq4_fits[GapKind.PAPER].heldout.rms
    assert eq4_fits[GapKind.COUNT].p_value < 1e-6
    table = gap_table(fits).splitlines()
    assert len(table) == 2 + len(fits)
    assert len({line.count("|") for line in table}) == 1


def test_a_gap_that_cannot_be_fitted_is_listed_with_the_reason():
    flat = samples(lambda d, _g, p: 0.1 + 1e-6 * d + p)
    flat = replace(
        flat,
        features=tuple(replace(f, block_gap_paper=5) for f in flat.features),
    )
    fits = compare_gaps(flat, kinds=(ModelKind.EQ4,), relative=(False,))
    paper = next(f for f in fits if f.gap is GapKind.PAPER)
    assert "BG did not vary" in paper.refused
    assert "BG did not vary" in gap_table(fits)


def test_close_runs_are_one_fetch_and_far_ones_several():
    """Rows of 32 KiB: every eighth element of a row is one fetch, every other row its own."""
    of = (LAYOUT, HOPPER_STRIPES, HOPPER_RAID)

    def fetched(start, stride, count, **client):
        slab = Hyperslab(start=start, stride=stride, count=count, block=(1, 1, 1))
        return measure_operation(EXTENT, ProcessReads.of([slab]), *of, client=ClientReads(**client))

    row = fetched((0, 0, 0), (1, 1, 8), (1, 1, 512))
    assert (row.runs_most, row.later_fetches) == (512, 0)
    # The first page, then ahead to the end of the window.
    assert row.step_bytes == row.ost_bytes == 1 << 20
    assert row.trips_most == pytest.approx(2.0, abs=0.01)
    point = fetched((0, 0, 5), (1, 1, 1), (1, 1, 1))
    assert (point.step_bytes, point.trips_most) == (4096, pytest.approx(1.0, abs=0.01))
    assert (point.first_visits, point.later_fetches) == (1, 0)
    column = fetched((0, 0, 5), (1, 4, 1), (1, 16, 1))
    assert column.runs_most == 16
    assert column.trips_most == pytest.approx(16, abs=0.1)
    # All 16 lie in two stripes; what is behind the first visit to each is later.
    assert (column.first_visits, column.later_fetches) == (2, 14)
    assert column.step_bytes == 16 * 4096
    together = fetched((0, 0, 5), (1, 4, 1), (1, 16, 1), gap_bytes=1 << 20)
    assert together.later_fetches == 0


def test_processes_of_a_node_share_a_fetch():
    slab = Hyperslab(start=(0, 0, 0), stride=(1, 1, 1), count=(1, 1, 64), block=(1, 1, 1))
    reads = ProcessReads.decomposed(slab, (1, 1, 8))
    of = (EXTENT, reads, LAYOUT, HOPPER_STRIPES, HOPPER_RAID)
    shared = measure_operation(*of, client=ClientReads(processes_per_node=8))
    apart = measure_operation(*of, client=ClientReads(processes_per_node=2))
    assert (shared.step_bytes, apart.step_bytes) == (4096, 4 * 4096)


def test_processes_far_apart_move_the_heads_between_their_places():
    def distance(step):
        slab = Hyperslab(start=(0, 0, 0), stride=(step, 4, 1), count=(2, 16, 1), block=(1, 1, 1))
        reads = ProcessReads.decomposed(slab, (2, 1, 1))
        return measure_operation(EXTENT, reads, LAYOUT, HOPPER_STRIPES, HOPPER_RAID).fetch_distance

    assert distance(63) > 10 * distance(1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"page_bytes": 0}, "must be positive"),
        ({"processes_per_node": 0}, "must be positive"),
        ({"gap_bytes": -1}, "gap_bytes is -1"),
    ],
)
def test_clients_that_cannot_be_are_refused(change, words):
    with pytest.raises(SdsValueError, match=words):
        ClientReads(**change)
