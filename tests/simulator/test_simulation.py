"""What has to hold on any file system holds in the simulated one."""

import math
import threading
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sds import _native
from sds.errors import LayoutError, SdsValueError
from sds.geometry import Hyperslab, ProcessReads, RaidLayout, StripeLayout, parse_selection
from sds.simulator import Operation, hopper, simulate, simulate_many
from tests.sizes import repeated

MIB = 1 << 20
LIU = (1024, 1024, 65536)
HOPPER = hopper()


def box(start, shape):
    ones = (1,) * len(start)
    return Hyperslab(start=tuple(start), stride=ones, count=tuple(shape), block=ones)


def line(n_bytes, selections=None, **options):
    """Reads of an array of bytes; all of it by one process where nothing is said."""
    slabs = [box((0,), (n_bytes,))] if selections is None else selections
    return Operation.of((n_bytes,), slabs, element_size_bytes=1, **options)


def striped(machine, count, size=MIB):
    stripes = StripeLayout(stripe_size_bytes=size, stripe_count=count)
    return replace(machine, stripes=stripes)


# Without what one process spends on its own copies, the file system is what limits it.
FREE_CLIENT = replace(HOPPER, client_bytes_per_s=1e15, client_request_s=0.0)


@pytest.mark.parametrize("count", [1, 4, 100])
def test_one_sequential_process_comes_close_to_the_bandwidth_of_its_osts(count):
    n_bytes = count * 64 * MIB
    found = simulate(line(n_bytes), striped(FREE_CLIENT, count))
    bound_s = n_bytes / count / HOPPER.ost_bytes_per_s
    assert bound_s < found.seconds < 1.1 * bound_s
    assert found.bytes_sent == found.bytes_from_disks == n_bytes


@settings(max_examples=repeated(20, 60), deadline=None)
@given(st.integers(1, 40), st.integers(1, 60 * MIB), st.integers(0, MIB))
def test_more_osts_are_never_slower_for_one_sequential_process(count, n_bytes, offset):
    machine = striped(FREE_CLIENT, count)
    more = striped(FREE_CLIENT, count * 2)
    operation = line(n_bytes, data_offset_bytes=offset)
    # A disk more takes its first seek at the same time as the others; a message may be cut.
    cut = 2 * HOPPER.ost_request_s
    assert simulate(operation, more).seconds <= simulate(operation, machine).seconds + cut


@settings(max_examples=repeated(20, 40), deadline=None)
@given(st.integers(2, 300), st.sampled_from([8 * MIB, 64 * MIB]))
def test_a_random_read_takes_seek_rotation_and_transfer(n_reads, apart):
    """Far apart, of one process, each from the same OST: worked out by hand."""
    machine = striped(HOPPER, 1)
    slab = Hyperslab(start=(0,), stride=(apart,), count=(n_reads,), block=(1,))
    found = simulate(line(n_reads * apart, [slab]), machine)
    network = 2 * 50e-6 + 20e-6 + 4096 / (35e9 / 156)
    client = 10e-6 + 1 / 1.2e9
    half_turn = 60 / 7200 / 2
    transfer = 512 / 120e6
    distance = apart / 8 - 512
    seek = 1e-3 + 14e-3 * (distance / 2e12) ** 0.5
    first = 1e-3 + 14e-3 * 8 / 15
    expected = n_reads * (network + client + half_turn + transfer) + first + (n_reads - 1) * seek
    # Every cost is rounded to a nanosecond.
    assert found.seconds == pytest.approx(expected, abs=10e-9 * n_reads)
    assert found.requests == found.messages == n_reads
    assert found.disk_seeks == 8 * n_reads


def test_processes_that_seek_between_each_other_are_slower_than_one_after_another():
    """Two streams on one OST: the head goes to and fro."""
    machine = replace(striped(HOPPER, 1), read_ahead_bytes=0, rpc_bytes=64 << 10)
    step, n, half = 64 << 10, 200, 1 << 30

    def reads(*starts):
        slabs = [
            Hyperslab(start=(s,), stride=(2 * step,), count=(n,), block=(4096,)) for s in starts
        ]
        return simulate(line(2 * half, slabs), machine)

    both = reads(0, half)
    assert both.disk_seeks > 10 * (reads(0).disk_seeks + reads(half).disk_seeks)
    assert both.seconds > 2 * max(reads(0).seconds, reads(half).seconds)


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (2, 0, 1)])
@pytest.mark.parametrize("selection", ["[:, 5, 300]", "[3:40, 5:90, 7]", "[::7, 5:90:3, 7:400:2]"])
def test_requests_are_the_runs_of_the_geometry(order, selection):
    slab = parse_selection(selection, LIU)
    operation = Operation.of(LIU, ProcessReads.shared(slab, 12), element_size_bytes=2).stored_as(
        order
    )
    runs = 0
    for start, stride, count, block in operation.slabs.tolist():
        offsets, _ = _native.extents(operation.extent, 2, 0, start, stride, count, block)
        runs += len(offsets)
    found = simulate(operation, HOPPER)
    assert found.requests == runs
    assert found.bytes_useful == slab.n_elements * 2


def test_requests_of_strategies():
    slab = Hyperslab(start=(0,), stride=(MIB,), count=(200,), block=(100,))
    for strategy, requests in (("multiple", 200), ("list", 4), ("sieve", 7)):
        found = simulate(line(200 * MIB, [slab], strategy=strategy), HOPPER)
        assert found.requests == requests, strategy


def test_many_runs_at_once_are_faster_and_move_no_more():
    slab = Hyperslab(start=(0,), stride=(MIB,), count=(400,), block=(100,))
    one = simulate(line(400 * MIB, [slab]), HOPPER)
    many = simulate(line(400 * MIB, [slab], strategy="list"), HOPPER)
    assert many.bytes_sent == one.bytes_sent
    assert many.seconds < one.seconds / 5


def test_a_collective_read_of_interleaved_columns_beats_independent_ones():
    slabs = [
        Hyperslab(start=(i * 4096,), stride=(64 * 4096,), count=(256,), block=(4096,))
        for i in range(64)
    ]
    size = 64 * MIB
    independent = simulate(line(size, slabs), HOPPER)
    together = simulate(line(size, slabs, mode="collective"), HOPPER)
    assert together.bytes_sent == size
    assert together.seconds < independent.seconds
    assert together.seconds == pytest.approx(together.io_s + together.shuffle_s)
    assert together.shuffle_s > 0


def test_an_aggregator_that_must_wait_for_others_sees_every_iteration():
    machine = replace(HOPPER, n_aggregators=4)
    found = simulate(line(640 * MIB, [box((0,), (640 * MIB,))] * 4, mode="collective"), machine)
    assert found.requests == 4 * 10


def test_the_same_arguments_give_the_same_result_in_any_thread():
    slab = parse_selection("[::64, 3:900, 7:300]", LIU)
    operation = Operation.of(LIU, ProcessReads.decomposed(slab, (4, 4, 1)), element_size_bytes=2)
    operations = [operation.stored_as(order) for order in [(0, 1, 2), (2, 0, 1)] * 4]
    alone = [simulate(each, HOPPER) for each in operations]
    assert simulate_many(operations, HOPPER, n_threads=4) == alone


def test_the_gil_is_free_meanwhile():
    slab = parse_selection("[:, :, 7:50:4]", LIU)
    operation = Operation.of(LIU, ProcessReads.decomposed(slab, (32, 1, 1)), element_size_bytes=2)
    ended = threading.Event()
    worker = threading.Thread(target=lambda: (simulate(operation, HOPPER), ended.set()))
    worker.start()
    turns = 0
    while not ended.is_set():
        turns += 1
        ended.wait(0.001)
    worker.join()
    assert turns > 5


@pytest.mark.parametrize("mode", ["independent", "collective"])
@pytest.mark.parametrize("strategy", ["multiple", "sieve", "list"])
def test_nothing_takes_no_time(mode, strategy):
    options = {"mode": mode, "strategy": strategy}
    empty = [
        Operation.of((), [], element_size_bytes=8, **options),
        Operation.of((4, 5), [], element_size_bytes=8, **options),
        Operation.of((0, 5), [box((0, 0), (0, 5))] * 3, element_size_bytes=8, **options),
        Operation.of((4, 5), [box((4, 0), (0, 5))], element_size_bytes=8, **options),
    ]
    for operation in empty:
        found = simulate(operation, HOPPER)
        assert found.seconds == found.io_s == 0
        assert found.requests == found.messages == found.bytes_useful == found.disk_accesses == 0
        assert set(found.ost_busy_s) == {0.0}


@pytest.mark.parametrize("mode", ["independent", "collective"])
def test_scalars_and_32_axes(mode):
    scalar = Operation.of((), [box((), ())] * 3, element_size_bytes=8, mode=mode)
    found = simulate(scalar, HOPPER)
    assert found.bytes_useful == 24
    assert found.bytes_sent == 4096
    assert 0 < found.seconds < 0.1
    deep = Operation.of((2,) * 32, [box((1,) * 32, (1,) * 32)], element_size_bytes=8, mode=mode)
    assert simulate(deep, HOPPER).bytes_useful == 8
    every_other = Hyperslab(
        start=(0,) * 32, stride=(2,) * 32, count=(2,) * 16 + (1,) * 16, block=(1,) * 32
    )
    wide = Operation.of((3,) * 16 + (1,) * 16, [every_other], element_size_bytes=8, mode=mode)
    assert simulate(wide, HOPPER).bytes_useful == 8 << 16


def test_disks_of_larger_units_work_apart():
    """One page lies on one disk of eight, and eight pages of different disks overlap."""
    apart = replace(
        striped(HOPPER, 1),
        raid=RaidLayout(unit_bytes=64 << 10, data_disks=8, min_request_bytes=4096),
    )
    slabs = [box((i * (64 << 10),), (4096,)) for i in range(8)]
    found = simulate(line(MIB, slabs), apart)
    assert found.disk_accesses == 8
    one = simulate(line(MIB, slabs[:1]), apart)
    assert found.seconds < one.seconds + 8 * (20e-6 + 4096 / 224e6)


def test_too_much_is_refused_with_words():
    few = replace(HOPPER, max_events=1000)
    operation = line(1 << 30, [Hyperslab(start=(0,), stride=(MIB,), count=(1000,), block=(1,))])
    with pytest.raises(SdsValueError, match="max_events"):
        simulate(operation, few)
    slow = replace(HOPPER, client_request_s=1e3)
    endless = line(1 << 50, [Hyperslab(start=(0,), stride=(2,), count=(1 << 49,), block=(1,))])
    with pytest.raises(SdsValueError, match="2\\*\\*60 ns"):
        simulate(endless, slow)
    with pytest.raises(LayoutError, match="which holds 2000000000000; stripe it over more OSTs"):
        simulate(line(1 << 50), striped(HOPPER, 1))
    with pytest.raises(SdsValueError, match="n_threads is 0"):
        simulate_many([operation], HOPPER, n_threads=0)


FROZEN_NS = [15066267571, 3852622064, 3408571772, 89574310, 725806840, 727086712]
# Of the machine, beyond what `hopper()` uses.
OPTIONS = {
    "fetch_bytes": 128 << 10,
    "processors_per_node": 1,
    "ost_forgets": True,
    "disk_first_s": 1e-3,
    "disk_request_s": 1e-5,
    "client_jitter_s": 1e-5,
    "client_start_s": 1e-3,
    "jitter_seed": 1,
}


def test_the_usual_machine_takes_the_time_it_always_took():
    """Options that are not used change nothing, to the nanosecond."""
    taken = []
    for selection, parts in (
        ("[0:256, ::3, 4:9]", (8, 4, 1)),
        ("[0:64, 0:64, :]", (4, 4, 2)),
        ("[:, 5, 300]", (8, 1, 1)),
    ):
        slab = parse_selection(selection, LIU)
        reads = ProcessReads.decomposed(slab, parts)
        for mode in ("independent", "collective"):
            operation = Operation.of(LIU, reads, element_size_bytes=2, mode=mode)
            taken += [round(r.seconds * 1e9) for r in simulate_many([operation], HOPPER)]
    assert taken == FROZEN_NS


def test_an_array_that_forgets_seeks_between_processes_that_read_one_block():
    """Two processes take bytes in turn from neighbouring blocks: one head, nothing remembered."""
    small = replace(
        striped(HOPPER, 1),
        raid=RaidLayout(unit_bytes=1 << 20, data_disks=1, min_request_bytes=4096),
        page_bytes=1,
        read_ahead_bytes=0,
        rpc_bytes=MIB,
    )
    slabs = [Hyperslab(start=(at,), stride=(2,), count=(500,), block=(1,)) for at in (0, 40 * 4096)]
    operation = line(MIB, slabs)
    kept = simulate(operation, small)
    forgotten = simulate(operation, replace(small, ost_forgets=True))
    assert kept.disk_accesses == 2
    assert forgotten.disk_accesses == 1000
    assert forgotten.disk_seeks >= 499
    assert forgotten.seconds > 40 * kept.seconds
    # Alone, a process finds what the disk read last.
    alone = simulate(line(MIB, slabs[:1]), replace(small, ost_forgets=True))
    assert alone.disk_accesses == 1


def test_a_disk_that_pauses_stays_with_a_process_that_asks_in_time():
    """Two streams far apart on one disk: whoever asks within the pause goes on first."""
    small = replace(
        striped(HOPPER, 1),
        raid=RaidLayout(unit_bytes=1 << 20, data_disks=1, min_request_bytes=4096),
        page_bytes=1,
        read_ahead_bytes=0,
        rpc_bytes=MIB,
        ost_forgets=True,
        network_latency_s=1e-6,
        ost_request_s=0.0,
        client_request_s=1e-6,
    )
    slabs = [
        Hyperslab(start=(at,), stride=(8192,), count=(100,), block=(4096,)) for at in (0, 64 * MIB)
    ]
    operation = line(128 * MIB, slabs)
    restless = simulate(operation, small)
    patient = simulate(operation, replace(small, disk_request_s=50e-6))
    assert restless.disk_seeks > 150
    assert patient.disk_seeks < 5
    assert patient.seconds < restless.seconds / 5


def test_a_range_fetched_in_parts_waits_for_each():
    whole = simulate(line(MIB), HOPPER)
    parts = simulate(line(MIB), replace(HOPPER, fetch_bytes=64 << 10, read_ahead_bytes=0))
    assert parts.messages == 16
    assert whole.messages == 1
    assert parts.seconds == pytest.approx(
        whole.seconds + 15 * (2 * HOPPER.network_latency_s + HOPPER.ost_request_s), rel=0.05
    )


@pytest.mark.parametrize("n_bytes", [9 * MIB, 9 * MIB + 4096, 12 * MIB])
def test_replies_that_come_together_set_off_no_empty_messages(n_bytes):
    # Longer than all replies take: each of the first eight finds that something is still to send.
    far = replace(striped(HOPPER, 1, 64 * MIB), network_latency_s=1.0, read_ahead_bytes=0)
    found = simulate(line(n_bytes), far)
    assert found.messages == -(-n_bytes // HOPPER.rpc_bytes)
    assert found.bytes_sent == n_bytes
    assert found.seconds > 4.0  # what did not fit into flight takes a trip of its own


BUSY = replace(
    striped(HOPPER, 4),
    processes_per_node=8,
    client_request_s=1e-3,
    client_bytes_per_s=1e15,
    network_latency_s=1e-9,
    ost_request_s=0.0,
    ost_bytes_per_s=1e15,
    disk_settle_s=0.0,
    disk_full_stroke_s=0.0,
    disk_revolution_s=0.0,
    disk_bytes_per_s=1e15,
)


def every_other_mib(n_processes, n_requests):
    return line(1 << 30, [
        Hyperslab(start=(i * 4096,), stride=(2 * MIB,), count=(n_requests,), block=(1,))
        for i in range(n_processes)
    ])  # fmt: skip


@pytest.mark.parametrize("n_processors", [1, 2, 3, 4])
@pytest.mark.parametrize("n_processes", [6, 12])
def test_processes_of_a_node_wait_for_its_processors(n_processes, n_processors):
    """Where storage takes no time, a node takes what its processors need for all requests."""
    found = simulate(
        every_other_mib(n_processes, 50), replace(BUSY, processors_per_node=n_processors)
    )
    on_fullest_node = min(n_processes, BUSY.processes_per_node)
    work_s = math.ceil(on_fullest_node * 50 / n_processors) * BUSY.client_request_s
    assert found.seconds == pytest.approx(work_s, rel=1e-3)


@pytest.mark.parametrize("n_processors", [0, 6, 8, 1 << 30])
def test_processors_enough_for_all_processes_change_nothing(n_processors):
    many = replace(BUSY, processes_per_node=1 << 30, processors_per_node=n_processors)
    found = simulate(every_other_mib(6, 50), many)
    assert found == simulate(every_other_mib(6, 50), replace(many, processors_per_node=0))


def test_a_process_that_has_all_its_bytes_waits_for_no_processor():
    """Of two that fetch once, the one served first ends while the other still works."""
    found = simulate(every_other_mib(2, 1), replace(BUSY, processors_per_node=1))
    assert found.seconds == pytest.approx(2 * BUSY.client_request_s, rel=1e-3)


def test_late_processes_count_from_when_they_begin():
    """Alone on the machine each takes what it takes, however late it is."""
    slab = Hyperslab(start=(0,), stride=(MIB,), count=(50,), block=(4096,))
    usual = simulate(line(64 * MIB, [slab]), HOPPER)
    late = simulate(line(64 * MIB, [slab]), replace(HOPPER, client_start_s=10.0))
    assert late.seconds == usual.seconds


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1 << 30))
def test_jitter_has_its_mean_and_repeats(seed):
    slab = Hyperslab(start=(0,), stride=(MIB,), count=(2000,), block=(1,))
    operation = line(2000 * MIB, [slab])
    usual = simulate(operation, HOPPER)
    jittery = replace(HOPPER, client_jitter_s=1e-3, jitter_seed=seed)
    found = simulate(operation, jittery)
    # Five standard errors of the mean of 2,000 exponential delays.
    assert found.seconds - usual.seconds == pytest.approx(2.0, rel=5 / 2000**0.5)
    assert simulate(operation, jittery) == found


def test_every_parameter_of_the_machine_counts():
    """Each one doubled, or halved where it may not grow, changes some time or some figure."""
    slab = parse_selection("[0:256, ::3, 4:9]", LIU)
    narrow = Operation.of(LIU, ProcessReads.decomposed(slab, (8, 4, 1)), element_size_bytes=2)
    rows = ProcessReads.decomposed(parse_selection("[0:64, 0:64, :]", LIU), (4, 4, 2))
    reads = [
        narrow,
        narrow.stored_as((0, 2, 1)),
        Operation.of(LIU, rows, element_size_bytes=2),
        Operation.of(LIU, rows, element_size_bytes=2, mode="collective"),
        # A page for two nodes each; and pages with holes of 12.
        line(1 << 28, [
            Hyperslab(start=(i % 25 * 4096,), stride=(1 << 20,), count=(256,), block=(1,))
            for i in range(50)
        ]),
        # Strips of three pages, of lengths that differ.
        Operation.of((99, 1 << 20), [box((0, 0), (99, 1))] * 2 + [
            Hyperslab(start=(0, 0), stride=(1, 4096), count=(99, 3 + i), block=(1, 1))
            for i in range(2)
        ], element_size_bytes=1),
        line(1 << 28, [Hyperslab(start=(0,), stride=(13 * 4096,), count=(900,), block=(1,))]),
        line(1 << 28, [box((0,), (1 << 28,))]),
    ]  # fmt: skip
    few = striped(HOPPER, 4)
    usual = simulate_many(reads, few)
    ignored = {"stripes", "raid", "n_osts", "max_events", *OPTIONS}
    for name in set(few.__dataclass_fields__) - ignored:
        value = getattr(few, name)
        changed = replace(few, **{name: value * 2})
        assert simulate_many(reads, changed) != usual, name
    for name, value in OPTIONS.items():
        jittery = few if name != "jitter_seed" else replace(few, client_jitter_s=1e-5)
        expected = simulate_many(reads, jittery)
        assert simulate_many(reads, replace(jittery, **{name: value})) != expected, name
    for stripes in (striped(few, 8), striped(few, 4, 2 * MIB)):
        assert simulate_many(reads, stripes) != usual
    for raid in ((1024, 8, 4096), (512, 4, 4096), (512, 8, 8192)):
        unit, disks, least = raid
        other = RaidLayout(unit_bytes=unit, data_disks=disks, min_request_bytes=least)
        assert simulate_many(reads, replace(few, raid=other)) != usual, raid


def test_selections_of_any_integer_type_and_order_of_memory_are_taken():
    slabs = np.zeros((3, 4, 2), dtype=np.int32)
    slabs[:, 1:] = 1
    slabs[:, 0, 0] = range(3)
    whole = Operation(extent=(8, 8), element_size_bytes=4, slabs=slabs)
    other = Operation(extent=(8, 8), element_size_bytes=4, slabs=np.asfortranarray(slabs))
    assert simulate(whole, HOPPER) == simulate(other, HOPPER)
    assert whole.stored_as((1, 0)).stored_as((1, 0)).slabs.tolist() == whole.slabs.tolist()
