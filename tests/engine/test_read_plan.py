"""Plans against a walk over every piece."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sds import _native
from sds.engine import (
    CHEN_2014_READS,
    Cache,
    Executor,
    FileState,
    PlanOptions,
    Strategy,
    builtin_parameters,
    plan_extents,
    plan_selection,
)
from sds.errors import LayoutError, SdsValueError, SelectionError
from sds.geometry import ContiguousLayout, Hyperslab
from tests.strategies import cases

BUFFER = 32 << 20
COSTS = builtin_parameters()

states = st.builds(
    FileState,
    cache=st.sampled_from(Cache),
    may_map=st.booleans(),
    is_mapped=st.booleans(),
    may_queue=st.booleans(),
    may_read_directly=st.booleans(),
)


def slab_of(case):
    return Hyperslab(start=case.start, stride=case.stride, count=case.count, block=case.block)


def layout_of(case):
    return ContiguousLayout(
        element_size_bytes=case.element_bytes, data_offset_bytes=case.offset_bytes
    )


def runs_of(case):
    """Return (offset, length) of every maximal run, element by element."""
    axes = [
        [s + i * step + b for i in range(n) for b in range(block)]
        for s, step, n, block in zip(case.start, case.stride, case.count, case.block, strict=True)
    ]
    runs = []
    for index in itertools.product(*axes):
        at = 0
        for i, length in zip(index, case.extent, strict=True):
            at = at * length + i
        offset = case.offset_bytes + at * case.element_bytes
        if runs and runs[-1][0] + runs[-1][1] == offset:
            runs[-1][1] += case.element_bytes
        else:
            runs.append([offset, case.element_bytes])
    return [tuple(run) for run in runs]


def grouped(pieces, max_hole, max_bytes=math.inf):
    """Return (begin, end) of groups: Chen 2014, Algorithm 2, closed before they grow too long."""
    groups = []
    for offset, length in pieces:
        end = offset + length
        if groups and groups[-1] is not None:
            begin, last = groups[-1]
            hole = max(offset - last, 0)
            if hole <= max_hole and max(end, last) - begin <= max_bytes:
                groups[-1] = (begin, max(end, last))
                continue
        if length <= max_bytes:
            groups.append((offset, end))
            continue
        parts = range(offset, end, max_bytes)
        groups += [(part, min(part + max_bytes, end)) for part in parts] + [None]
    return [group for group in groups if group is not None]


def total(groups):
    return sum(end - begin for begin, end in groups)


def pmd_hole(costs):
    saved = costs.reads.te_s + costs.reads.startup_s + costs.reads.lqdep_s
    return saved / (costs.reads.tt_s_per_byte + costs.reads.cud_s_per_byte)


@given(cases(), st.sampled_from([Strategy.MULTIPLE, Strategy.SIEVE, Strategy.LIST, Strategy.PMD]))
def test_named_strategies_of_a_selection(case, strategy):
    runs = runs_of(case)
    plan = plan_selection(case.extent, slab_of(case), layout_of(case), strategy=strategy)
    assert plan.runs == len(runs)
    assert plan.bytes_useful == sum(length for _, length in runs)
    holes = {
        Strategy.MULTIPLE: 0,
        Strategy.LIST: 0,
        Strategy.SIEVE: math.inf,
        Strategy.PMD: math.ceil(pmd_hole(COSTS)) - 1,
    }
    groups = grouped(runs, holes[strategy])
    assert plan.bytes_read == total(groups)
    per_request = 64 if strategy is Strategy.LIST else 1
    assert plan.requests == math.ceil(len(groups) / per_request)


@given(cases(), states, st.integers(1, 5000))
def test_auto_reads_everything_within_its_memory(case, state, max_memory):
    runs = runs_of(case)
    assume(runs)
    for options in (PlanOptions(), PlanOptions(max_memory_bytes=max_memory)):
        plan = plan_selection(
            case.extent, slab_of(case), layout_of(case), state=state, options=options
        )
        span = runs[-1][0] + runs[-1][1] - runs[0][0]
        assert plan.bytes_useful <= plan.bytes_read <= span
        assert plan.predicted_s > 0
        assert plan.memory_bytes <= (options.max_memory_bytes or BUFFER)
        if plan.executor is Executor.MAPPED:
            assert state.may_map
            assert state.cache is Cache.WARM
        else:
            assert plan.requests >= len(grouped(runs, plan.max_hole_bytes))
        assert state.may_queue or plan.executor is not Executor.LIST
        assert state.may_read_directly or plan.executor is not Executor.DIRECT


@st.composite
def lists(draw):
    """Offsets and lengths, sorted, some of which overlap, near and far."""
    n = draw(st.integers(1, 60))
    gaps = draw(
        st.lists(st.sampled_from([-20, 0, 1, 7, 100, 5000, 200_000]), min_size=n, max_size=n)
    )
    lengths = draw(st.lists(st.integers(1, 300), min_size=n, max_size=n))
    offsets, end = [], draw(st.integers(0, 1 << 45))
    for gap, length in zip(gaps, lengths, strict=True):
        offset = max(end + gap, offsets[-1] if offsets else 0, 0)
        offsets.append(offset)
        end = max(end, offset + length)
    return np.array(offsets), np.array(lengths)


@given(lists(), st.integers(1, 100_000), st.integers(1, 100))
def test_strategies_of_a_list(ranges, buffer, regions):
    offsets, lengths = ranges
    pieces = list(zip(offsets.tolist(), lengths.tolist(), strict=True))
    options = PlanOptions(sieve_buffer_bytes=buffer, regions_per_request=regions)
    plans = {s: plan_extents(offsets, lengths, strategy=s, options=options) for s in Strategy}
    multiple, listed = plans[Strategy.MULTIPLE], plans[Strategy.LIST]
    assert multiple.requests == multiple.runs == len(pieces)
    assert multiple.bytes_read == multiple.bytes_useful == lengths.sum()
    touching = grouped(pieces, 0)
    assert listed.bytes_read == total(touching)
    assert listed.requests == math.ceil(len(touching) / regions)
    for strategy, hole in ((Strategy.SIEVE, math.inf), (Strategy.PMD, pmd_hole(COSTS) - 1e-6)):
        groups = grouped(pieces, hole, buffer)
        assert plans[strategy].requests == len(groups)
        assert plans[strategy].bytes_read == total(groups)
        assert plans[strategy].memory_bytes <= buffer


@given(cases(max_rank=3), states)
def test_a_list_of_the_runs_is_planned_as_well(case, state):
    runs = runs_of(case)
    assume(len(runs) > 1)
    offsets, lengths = (np.array(column) for column in zip(*runs, strict=True))
    regular = plan_selection(case.extent, slab_of(case), layout_of(case), state=state)
    listed = plan_extents(offsets, lengths, state=state)
    assert listed.bytes_useful == regular.bytes_useful
    assert listed.predicted_s <= 1.5 * regular.predicted_s


def test_parameters_decide():
    extent, layout = (4096, 4096), ContiguousLayout(element_size_bytes=8)
    slab = Hyperslab(start=(0, 5), stride=(1, 1), count=(4096, 1), block=(1, 1))
    cold = FileState(cache=Cache.COLD)

    def executor(**changed):
        parameters = _native.io_parameters() | changed
        found = _native.plan_runs(
            40, 8, (4096,), (32768,), parameters=parameters, cache="cold", may_queue=True
        )
        return found["executor"], found["requests"]

    assert plan_selection(extent, slab, layout, state=cold).executor is Executor.LIST
    assert executor() == ("list", 4096)
    # Where bytes cost less, holes are read; where the queue is slow, one stream reads them.
    fast = _native.io_parameters()["reads"] | {"cud_s_per_byte": 1e-11}
    # A stream goes in requests of 64 KiB, each of which holds two of the runs.
    assert executor(buffered_s_per_byte=1e-11, reads=fast) == ("sieve", 4096 // 2)
    assert executor(queued_startup_s=1e-3, queue_depth=1) == ("sieve", 4096 // 2)


@pytest.mark.parametrize("executor", Executor)
def test_an_executor_can_be_asked_for(executor):
    found = _native.plan_runs(0, 8, (9,), (4096,), executor=executor, cache="warm")
    assert found["executor"] == executor
    with pytest.raises(SdsValueError, match="no executor is called 'mmap'; there are any, pread"):
        _native.plan_runs(0, 8, (9,), (4096,), executor="mmap")


def test_published_strategy_follows_its_model():
    parameters = _native.io_parameters() | {"reads": CHEN_2014_READS.native()}
    for p, n, hole in ((1, 1, 40_500), (16, 16, 9_288_000), (1, 16, 648_000)):
        for stride, merged in ((8 + hole - 1, True), (8 + hole, False)):
            found = _native.plan_runs(
                0,
                8,
                (3,),
                (stride,),
                strategy="pmd",
                parameters=parameters | {"clients": p, "nodes": n},
            )
            assert found["requests"] == (1 if merged else 3)


def test_supposed_order_and_offset_count():
    slab = Hyperslab(start=(0, 0, 5), stride=(1, 1, 1), count=(64, 32, 1), block=(1, 1, 1))
    stored = ContiguousLayout(element_size_bytes=4)
    turned = ContiguousLayout(element_size_bytes=4, data_offset_bytes=4096, order=(2, 0, 1))
    multiple = {"strategy": Strategy.MULTIPLE}
    assert plan_selection((64, 32, 128), slab, stored, **multiple).requests == 64 * 32
    assert plan_selection((64, 32, 128), slab, turned, **multiple).requests == 1


def test_beyond_four_gib_and_4_tib():
    rows = 1 << 20
    slab = Hyperslab(start=(0, 1), stride=(1, 1), count=(rows, 1), block=(1, 1))
    layout = ContiguousLayout(element_size_bytes=8, data_offset_bytes=2048)
    plan = plan_selection((rows, 1 << 20), slab, layout, strategy=Strategy.SIEVE)
    assert plan.runs == rows
    assert plan.requests > 1 << 17
    assert plan.bytes_read > 1 << 42
    assert plan_selection((rows, 1 << 20), slab, layout).requests == rows


def test_bad_input_is_named():
    layout = ContiguousLayout(element_size_bytes=8)
    outside = Hyperslab(start=(0,), stride=(1,), count=(9,), block=(1,))
    with pytest.raises(SelectionError, match="reaches index 8"):
        plan_selection((8,), outside, layout)
    wrong_order = ContiguousLayout(element_size_bytes=8, order=(1,))
    with pytest.raises(LayoutError, match="order 1"):
        plan_selection((9,), outside, wrong_order)
    with pytest.raises(SdsValueError, match="2 offsets and 1 lengths"):
        plan_extents(np.array([0, 8]), np.array([8]))
    for offsets, lengths in (([8, 0], [8, 8]), ([0], [0]), ([-8], [8])):
        with pytest.raises(SdsValueError, match="sorted by offset, and none is empty"):
            plan_extents(np.array(offsets), np.array(lengths))
    with pytest.raises(LayoutError):
        plan_extents(np.array([0, 1]), np.array([2**62, 2**62]))
    with pytest.raises(SdsValueError, match="no stride shorter"):
        _native.plan_runs(0, 8, (4,), (7,))
    with pytest.raises(SdsValueError, match="no strategy is called 'fast'; there are auto, mult"):
        _native.plan_runs(0, 8, (4,), (8,), strategy="fast")
    with pytest.raises(SdsValueError, match="no state of the cache is called 'hot'"):
        _native.plan_runs(0, 8, (4,), (8,), cache="hot")
    with pytest.raises(SdsValueError, match="queue_depth"):
        _native.plan_runs(0, 8, (4,), (8,), parameters={"queue_depth": 0})
