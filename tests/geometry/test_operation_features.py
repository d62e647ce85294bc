from __future__ import annotations

import math
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from sds import _native
from sds.errors import LayoutError, SdsValueError, SelectionError
from sds.geometry import (
    HOPPER_RAID,
    HOPPER_STRIPES,
    ContiguousLayout,
    Hyperslab,
    IoMode,
    ProcessReads,
    RaidLayout,
    StripeLayout,
    block_features,
    operation_features,
    parse_selection,
    prime_factors,
)
from sds.geometry.process_reads import even_parts
from tests import oracles, strategies
from tests.counted_work import finish
from tests.sizes import repeated

EXAMPLES = settings(
    max_examples=repeated(40, 250), deadline=None, suppress_health_check=list(HealthCheck)
)


@st.composite
def shared_selections(draw, case):
    """A regular decomposition of a selection: block-wise, or dealt out in turn on one axis."""
    slab = Hyperslab(start=case.start, stride=case.stride, count=case.count, block=case.block)
    parts = [draw(st.integers(1, 4)) for _ in case.extent]
    reads = list(ProcessReads.decomposed(slab, parts))
    kind = draw(st.sampled_from(["blocks", "dealt", "missing", "repeated", "halo"]))
    if kind == "dealt" and case.extent:
        axis = draw(st.integers(0, len(parts) - 1))
        n = draw(st.integers(1, 5))
        reads = [dealt for read in reads for dealt in deal_out(read, axis, n)]
    elif kind == "missing" and len(reads) > 1:
        del reads[draw(st.integers(0, len(reads) - 1))]
    elif kind == "repeated":
        reads += draw(st.lists(st.sampled_from(reads), max_size=3))
    elif kind == "halo":
        reads = [widened(read, case.extent, draw(st.integers(0, 3))) for read in reads]
    return draw(st.permutations(reads))


def deal_out(slab, axis, n):
    """The blocks of an axis dealt out to n processes in turn."""
    (start, stride, count, block) = slab.axes()[axis]
    dealt = []
    for i in range(n):
        axes = slab.axes()
        axes[axis] = (start + min(i, count) * stride, stride * n, len(range(i, count, n)), block)
        dealt.append(Hyperslab(**dict(zip(("start", "stride", "count", "block"),
                                          zip(*axes, strict=True), strict=True))))  # fmt: skip
    return dealt


def widened(slab, extent, by):
    """A part with the neighbours that a stencil needs, where it is made of neighbours."""
    axes = []
    for (start, stride, count, block), length in zip(slab.normalized().axes(), extent, strict=True):
        if count == 0 or stride != 1:
            axes.append((start, stride, count, block))
            continue
        begin, end = max(0, start - by), min(length, start + count + by)
        axes.append((begin, 1, end - begin, 1))
    start, stride, count, block = zip(*axes, strict=True) if axes else ((), (), (), ())
    return Hyperslab(start=start, stride=stride, count=count, block=block)


def bytes_of(case, slab):
    indices = oracles.selected_indices(slab.start, slab.stride, slab.count, slab.block)
    return oracles.selected_bytes(case.extent, case.element_bytes, case.offset_bytes, indices)


def storage_arguments(layout):
    """Components, OSTs and RAID as the core takes them."""
    raid = [layout[name] for name in ("unit_bytes", "data_disks", "min_request_bytes")]
    if "components" not in layout:
        row = [0, 2**63 - 1, layout["stripe_bytes"], layout["stripe_count"]]
        return np.array([row]), np.empty(0, np.int64), *raid
    rows = [(begin, end, size, len(osts)) for begin, end, size, osts in layout["components"]]
    osts = [ost for *_, osts in layout["components"] for ost in osts]
    return np.array(rows), np.array(osts), *raid


def native_slabs(case, reads, layout, *, collective):
    rows = ProcessReads.of(reads)
    return _native.operation_of_slabs(
        case.extent,
        case.element_bytes,
        case.offset_bytes,
        rows.start,
        rows.stride,
        rows.count,
        rows.block,
        collective,
        *storage_arguments(layout),
        0,
    )


def native_extents(processes, layout, *, collective):
    runs = [np.array(oracles.runs_of_bytes(p), np.int64).reshape(-1, 2) for p in processes]
    first = np.cumsum([0, *map(len, runs)])
    every = np.concatenate(runs)
    offsets, lengths = np.ascontiguousarray(every[:, 0]), np.ascontiguousarray(every[:, 1])
    return _native.operation_of_extents(
        first, offsets, lengths, collective, *storage_arguments(layout), 0
    )


def check_loads(loads, found, processes, layout, *, collective):
    """The account OST by OST is that of the definitions, and the features follow from it."""
    readers = [p for p in processes if len(p)]
    reads = [np.unique(np.concatenate(readers))] if collective and readers else readers
    blocks, ost_bytes = {}, {}
    for read in reads:
        requests, disks = oracles.disks_of_bytes(read, **layout)
        for disk, values in disks.items():
            blocks[disk] = blocks.get(disk, 0) + int(values[0])
        for (ost, _, _), _ in requests:
            ost_bytes[ost] = ost_bytes.get(ost, 0) + layout["min_request_bytes"]
    assert (np.diff(loads["ost"][:, 0]) > 0).all()
    for row, ost in enumerate(loads["ost"][:, 0].tolist()):
        assert loads["bytes"][row, 0] == ost_bytes.pop(ost, 0)
        for disk in range(layout["data_disks"]):
            lane = 0 if loads["blocks"].shape[1] == 1 else disk
            assert loads["blocks"][row, lane] == blocks.pop((ost, disk), 0)
    assert not blocks
    assert not ost_bytes
    assert loads["segments"].max(initial=0) == found["disk_segments"]
    assert loads["processes"].max(initial=0) == found["disk_processes"]


def check(case, reads, layout):
    processes = [bytes_of(case, slab) for slab in reads]
    gaps = [
        oracles.block_gap_paper(
            case.extent, oracles.selected_indices(slab.start, slab.stride, slab.count, slab.block)
        )
        for slab in reads
        if slab.n_elements
    ]
    for collective in (False, True):
        truth = oracles.operation_of_bytes(processes, collective=collective, **layout)
        found, loads = native_slabs(case, reads, layout, collective=collective)
        gap = found.pop("block_gap_paper")
        assert found == truth
        check_loads(loads, found, processes, layout, collective=collective)
        if not collective:
            assert gap == max(gaps, default=None)
        else:
            event(f"union is one selection: {gap is not None}")
        listed, _ = native_extents(processes, layout, collective=collective)
        assert listed.pop("block_gap_paper") is None
        assert listed == truth


@EXAMPLES
@given(st.data(), strategies.cases(max_rank=4), strategies.layouts())
def test_operations_equal_a_walk_over_every_byte(data, case, layout):
    check(case, data.draw(shared_selections(case)), layout)


@EXAMPLES
@given(st.data(), strategies.cases(max_rank=3), strategies.layouts())
def test_any_selections_at_once_equal_a_walk_over_every_byte(data, case, layout):
    reads = []
    for _ in range(data.draw(st.integers(1, 5))):
        axes = [data.draw(strategies.axis_slabs(length)) for length in case.extent]
        start, stride, count, block = zip(*axes, strict=True) if axes else ((), (), (), ())
        reads.append(Hyperslab(start=start, stride=stride, count=count, block=block))
    check(case, reads, layout)


@EXAMPLES
@given(st.data(), strategies.cases(max_rank=3), strategies.component_layouts())
def test_files_in_components_equal_a_walk_over_every_byte(data, case, layout):
    check(case, data.draw(shared_selections(case)), layout)


@EXAMPLES
@given(st.data(), strategies.cases(max_rank=4), strategies.layouts())
def test_the_union_of_a_decomposition_is_the_selection(data, case, layout):
    """However it is cut, or neighbours dealt out, the parts become one without walking any run."""
    slab = Hyperslab(start=case.start, stride=case.stride, count=case.count, block=case.block)
    slab = slab.normalized()
    parts = [data.draw(st.integers(1, 5)) for _ in case.extent]
    reads = list(ProcessReads.decomposed(slab, parts))
    axis = data.draw(st.integers(0, len(parts) - 1)) if parts else 0
    if parts and slab.stride[axis] == 1 and data.draw(st.booleans()):
        reads = deal_out(slab, axis, data.draw(st.integers(1, 5)))
    union, _ = native_slabs(case, reads, layout, collective=True)
    whole = _native.features(*case.arguments, *layout.values(), 0)
    if slab.n_elements == 0:
        assert union["processes"] == 0
        return
    assert union["block_gap_paper"] == whole["block_gap_paper"], reads
    for name in ("block_depth", "block_gap_count", "block_gap_distance", "bytes_touched"):
        assert whole[name] == (union[name], union[name])
    assert (union["runs"], union["bytes_useful"]) == (whole["runs"], whole["bytes_useful"])


PAPER_EXTENT = (1024, 1024, 65536)
PAPER = {"stripes": HOPPER_STRIPES, "raid": HOPPER_RAID}


@pytest.mark.parametrize("order", [None, (0, 2, 1), (2, 0, 1)])
def test_an_operation_of_one_process_is_its_read(order):
    layout = ContiguousLayout(element_size_bytes=2, order=order)
    slab = parse_selection("[100:300, ::4, 1000:30000]", PAPER_EXTENT)
    one = block_features(PAPER_EXTENT, slab, layout, **PAPER)
    reads = ProcessReads.of([slab])
    for mode in IoMode:
        both = operation_features(PAPER_EXTENT, reads, layout, **PAPER, mode=mode, n_aggregators=1)
        expected = asdict(one)
        shared = expected.keys() & asdict(both).keys()
        assert len(shared) >= 9
        assert {name: getattr(both, name) for name in shared} == {
            name: expected[name] for name in shared
        }
        assert (both.disk_blocks, both.disk_processes) == (one.block_depth, 1)
        assert both.processes_per_ost == 1 / one.osts_touched


@pytest.mark.parametrize("order", [None, (0, 2, 1), (2, 0, 1)])
def test_512_processes_agree_with_each_by_itself(order):
    """At full size, where nothing can be walked: maximum and sums of 512 single answers."""
    layout = ContiguousLayout(element_size_bytes=2, order=order)
    slab = parse_selection("[3:1003, 5:517, 1111:65000]", PAPER_EXTENT)
    reads = ProcessReads.shared(slab, 512)
    assert len(reads) == 512
    found = operation_features(PAPER_EXTENT, reads, layout, **PAPER)
    each = [block_features(PAPER_EXTENT, read, layout, **PAPER) for read in reads]
    assert found.block_depth == max(one.block_depth for one in each)
    assert found.block_gap_count == max(one.block_gap_count for one in each)
    assert found.block_gap_distance == max(one.block_gap_distance for one in each)
    assert found.block_gap_paper == max(one.block_gap_paper or 0 for one in each)
    assert found.runs == sum(one.runs for one in each)
    assert found.runs_most == max(one.runs for one in each)
    assert found.bytes_useful == slab.n_elements * 2
    assert found.bytes_touched == sum(one.bytes_touched for one in each)
    assert found.processes_per_ost == 512 / found.osts_touched
    united = operation_features(
        PAPER_EXTENT, reads, layout, **PAPER, mode=IoMode.COLLECTIVE, n_aggregators=16
    )
    whole = block_features(PAPER_EXTENT, slab, layout, **PAPER)
    assert united.block_depth == whole.block_depth
    assert united.bytes_touched == whole.bytes_touched
    assert united.processes_per_ost == 16 / whole.osts_touched


def test_an_operation_whose_time_is_spent_is_given_up():
    """Steps over stripes of a prime length repeat only after very many; to walk takes years."""
    n = 10**14
    slab = Hyperslab(start=(0,), stride=(9001,), count=(n,), block=(1,))
    reads = ProcessReads.of([slab, Hyperslab(start=(7,), stride=(9007,), count=(n,), block=(1,))])
    stripes = StripeLayout(stripe_size_bytes=1_000_003, stripe_count=97)
    raid = RaidLayout(unit_bytes=509, data_disks=7, min_request_bytes=1021)
    layout = ContiguousLayout(element_size_bytes=1)
    for mode in IoMode:
        with pytest.raises(SdsValueError, match="time for an operation"):
            finish(
                operation_features,
                (10**18,), reads, layout, stripes, raid, mode=mode, n_aggregators=1, budget_s=0.02,
            )  # fmt: skip


def test_processes_that_read_nothing_do_not_count():
    slab = parse_selection("[0:2]", (10,))
    reads = ProcessReads.decomposed(slab, (5,))
    assert [read.n_elements for read in reads] == [1, 1, 0, 0, 0]
    layout = ContiguousLayout(element_size_bytes=8)
    found = operation_features((10,), reads, layout, **PAPER)
    assert (found.n_processes, found.processes_per_ost) == (2, 2.0)
    nothing = operation_features((0,), ProcessReads.of([Hyperslab.all((0,))]), layout, **PAPER)
    assert (nothing.n_processes, nothing.processes_per_ost, nothing.runs) == (0, 0.0, 0)
    scalar = operation_features((), ProcessReads.of([Hyperslab.all(())] * 3), layout, **PAPER)
    assert (scalar.n_processes, scalar.runs, scalar.disk_processes) == (3, 3, 3)


@pytest.mark.parametrize(
    ("shape", "n", "parts"),
    [
        ((1024, 1024, 65536), 512, (2, 2, 128)),
        ((64, 64, 64), 512, (8, 8, 8)),
        ((10, 100), 7, (1, 7)),
        ((8, 8), 4, (2, 2)),
        ((), 7, ()),
        ((5,), 12, (12,)),
    ],
)
def test_even_parts_cut_where_parts_are_longest(shape, n, parts):
    assert even_parts(Hyperslab.all(shape), n) == parts


@given(st.lists(st.integers(1, 200), min_size=1, max_size=4), st.integers(1, 600))
def test_even_parts_are_as_many_as_asked_for(shape, n_processes):
    assert math.prod(even_parts(Hyperslab.all(tuple(shape)), n_processes)) == n_processes


@given(st.integers(1, 1 << 20))
def test_prime_factors_multiply_to_the_number(n):
    factors = prime_factors(n)
    assert math.prod(factors) == n
    assert factors == sorted(factors, reverse=True)
    assert all(prime_factors(factor) == [factor] for factor in factors)


def test_every_process_reads_a_scalar():
    assert list(ProcessReads.shared(Hyperslab.all(()), 3)) == [Hyperslab.all(())] * 3


def test_bad_operations_are_refused_in_words():
    slab = parse_selection("[0:4, :]", (10, 10))
    layout = ContiguousLayout(element_size_bytes=8)
    with pytest.raises(LayoutError, match="None aggregators; give at least 1"):
        operation_features(
            (10, 10), ProcessReads.of([slab]), layout, **PAPER, mode=IoMode.COLLECTIVE
        )
    outside = ProcessReads.of([slab, parse_selection("[3:9, :]", (10, 10))])
    with pytest.raises(SelectionError, match="process 1: axis 0: selection reaches index 8"):
        operation_features((5, 10), outside, layout, **PAPER)
    with pytest.raises(SelectionError, match="selections have 2 axes, the array 3"):
        operation_features((5, 10, 2), outside, layout, **PAPER)
    with pytest.raises(SelectionError, match="give at least one process"):
        ProcessReads.of([])
    with pytest.raises(SelectionError, match=r"parts \(2, 0\)"):
        ProcessReads.decomposed(slab, (2, 0))
    with pytest.raises(SelectionError, match=r"parts \(1024, 1025\) are 1049600 processes"):
        ProcessReads.decomposed(slab, (1024, 1025))
    for n in (0, -1, (1 << 20) + 1):
        with pytest.raises(SelectionError, match=f"{n} processes"):
            ProcessReads.shared(slab, n)
    rows = np.array([[0]]), np.array([[1]]), np.array([[-1]]), np.array([[1]])
    start, stride, count, block = rows
    odd = ProcessReads(start=start, stride=stride, count=count, block=block)
    with pytest.raises(SelectionError, match="must not be negative"):
        operation_features((4,), odd, layout, **PAPER)
