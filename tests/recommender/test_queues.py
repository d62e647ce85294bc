"""Operations followed in queues, and rates found from their times."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest

from sds.errors import SdsValueError
from sds.geometry import HOPPER_STRIPES, ContiguousLayout, Hyperslab, ProcessReads, StripeLayout
from sds.recommender.operation import ClientReads
from sds.recommender.protocol import Experiment, Pattern, draw_library
from sds.recommender.queued import QueuedModel, fit_queued
from sds.recommender.queues import QueueRates, streams_of
from sds.simulator import Operation, hopper, simulate_many

# Rows of 32 KiB; a stripe holds 32 of them.
EXTENT = (64, 64, 8192)
LAYOUT = ContiguousLayout(element_size_bytes=4)
MIB = 1 << 20
RATES = QueueRates(
    run_s=1e-3,
    run_byte_s=1e-9,
    trip_s=2e-2,
    reply_s=3e-1,
    sent_byte_s=1e-6,
    first_s=5.0,
    seek_s=7.0,
    reach_s=2.0,
    read_byte_s=1e-5,
)


def slab(start, count, stride=(1, 1, 1)):
    return Hyperslab(start=start, stride=stride, count=count, block=(1, 1, 1))


def streams(*slabs, layout=LAYOUT, stripes=HOPPER_STRIPES, **client):
    return streams_of(EXTENT, ProcessReads.of(slabs), layout, stripes, client=ClientReads(**client))


def followed(*slabs, **client):
    return streams(*slabs, **client).follow(RATES)


def test_a_point_takes_what_its_page_does():
    found = followed(slab((0, 0, 5), (1, 1, 1)))
    # Work, there and back, positioning, reading, reply and its bytes, copying.
    assert found.slowest_s == pytest.approx(
        1e-3 + 2e-2 + 5.0 + 4096e-5 + 3e-1 + 4096e-6 + 4e-9, abs=1e-9
    )
    assert found.even_s == found.slowest_s
    assert (found.fetches, found.reads, found.followed_share) == (1, 1, 1)


def test_processes_with_the_same_pages_are_one_stream():
    same = [slab((0, 0, i), (4, 1, 1)) for i in range(8)]
    assert len(streams(*same)) == 1
    assert len(streams(*same, slab((0, 0, 1024), (4, 1, 1)))) == 2
    # As many nodes are sent their pages.
    near, far = (streams(*same, processes_per_node=n) for n in (8, 1))
    assert int(near.nodes[0]).bit_count() == 1
    assert int(far.nodes[0]).bit_count() == 8
    assert far.follow(RATES).link_s == pytest.approx(8 * near.follow(RATES).link_s)


def test_more_nodes_than_bits_share_them():
    many = [slab((i % 64, i // 64, 0), (1, 1, 1)) for i in range(200)]
    found = streams(*many, processes_per_node=1)
    assert np.bitwise_or.reduce(found.nodes) == np.uint64(2**64 - 1)


@pytest.mark.parametrize(("after", "fetches"), [(1, 2), (2, 3), (3, 4)])
def test_a_client_reads_ahead_once_enough_runs_followed_closely(after, fetches):
    """Runs 8 KiB apart, each in a page of its own, up to the end of the first MiB."""
    found = followed(slab((0, 0, 0), (1, 32, 4), (1, 1, 2048)), after=after)
    assert found.fetches == fetches
    # Single pages first, and the rest of the window from the next run's page on.
    assert found.fetched_bytes == MIB - after * 4096


def test_strips_of_one_length_end_read_ahead():
    """Four runs 8 KiB apart in each of six planes: the last four strips are known."""
    found = followed(slab((0, 0, 0), (6, 1, 4), (1, 1, 2048)))
    assert found.fetches == 3 * 6
    # Two strips are read to the end of a MiB, the other four not.
    assert 1.9 * MIB < found.fetched_bytes < 2.2 * MIB


def test_axis_order_and_offset_move_runs():
    read = slab((3, 5, 7), (1, 1, 1))
    moved = streams(
        read, layout=dataclasses.replace(LAYOUT, order=(2, 0, 1), data_offset_bytes=4096)
    )
    assert moved.begin.tolist() == [4096 + 4 * ((7 * 64 + 3) * 64 + 5)]


def test_nothing_read_takes_no_time():
    found = followed(slab((0, 0, 0), (0, 1, 1)))
    assert (found.slowest_s, found.even_s, found.followed_share) == (0, 0, 1)


def test_wrong_arguments_are_refused():
    with pytest.raises(SdsValueError, match="seek_s is nan"):
        QueueRates(seek_s=float("nan"))
    odd = streams(
        slab((0, 0, 0), (1, 1, 1)), stripes=StripeLayout(stripe_size_bytes=5000, stripe_count=2)
    )
    with pytest.raises(SdsValueError, match="striping"):
        odd.follow(RATES)


SMALL = Experiment(extent=(64, 64, 4096), n_processes=64)


def queued_and_simulated(pattern, experiment, order):
    """Return what the queues follow of a read, and what the simulator does."""
    layout = ContiguousLayout(element_size_bytes=2, order=order)
    reads = pattern.reads().permuted(order)
    slabs = np.stack([reads.start, reads.stride, reads.count, reads.block], axis=1)
    operation = Operation(
        extent=tuple(experiment.extent[axis] for axis in order),
        slabs=np.ascontiguousarray(slabs),
        element_size_bytes=2,
    )
    return (
        streams_of(experiment.extent, pattern.reads(), layout, experiment.stripes),
        operation,
    )


@pytest.fixture(scope="module")
def simulated():
    """Operations, simulated times and names of 40 patterns of each kind."""
    patterns = draw_library(5, SMALL, 40)
    operations, runs = zip(
        *(queued_and_simulated(p, SMALL, order) for p in patterns for order in SMALL.orders),
        strict=True,
    )
    seconds = [found.seconds for found in simulate_many(runs, hopper())]
    return operations, seconds, [p.name for p in patterns for _ in SMALL.orders]


def rates_of(machine):
    """Return what a simulated machine's parameters are in queues."""
    longer_s = machine.disk_full_stroke_s - machine.disk_settle_s
    turn_s = machine.disk_revolution_s / 2
    of_disk = (1 << 30) / machine.raid.data_disks / machine.disk_capacity_bytes
    return QueueRates(
        run_s=machine.client_request_s,
        run_byte_s=1 / machine.client_bytes_per_s,
        trip_s=2 * machine.network_latency_s,
        reply_s=machine.ost_request_s,
        sent_byte_s=1 / machine.ost_bytes_per_s,
        first_s=machine.disk_settle_s + longer_s * 8 / 15 + turn_s,
        seek_s=machine.disk_settle_s + turn_s,
        reach_s=longer_s * np.sqrt(of_disk),
        read_byte_s=1 / (machine.raid.data_disks * machine.disk_bytes_per_s),
    )


def test_queues_and_simulator_agree_to_the_nanosecond():
    """Two programs of the same rules, where neither has to round: all seeks alike, whole rates."""
    machine = dataclasses.replace(
        hopper(),
        client_bytes_per_s=1e9,
        ost_bytes_per_s=2.5e8,
        disk_bytes_per_s=1.25e8,
        disk_full_stroke_s=hopper().disk_settle_s,
    )
    pairs = [
        queued_and_simulated(p, SMALL, order)
        for p in draw_library(6, SMALL, 40)
        for order in SMALL.orders
    ]
    simulated_s = [found.seconds for found in simulate_many([run for _, run in pairs], machine)]
    followed_s = [one.follow(rates_of(machine)).slowest_s for one, _ in pairs]
    assert followed_s == pytest.approx(simulated_s, rel=1e-12, abs=1e-9)


MEDIUM = dataclasses.replace(Experiment(), extent=Experiment().scaled(64))


@pytest.mark.parametrize(
    ("slab", "parts", "order"),
    [
        # Wrong by 30, 12, 4 and 3 % while every seek took as long as any other.
        (((10, 116, 6596), (200, 86, 3298)), (2, 32, 8), 0),
        (((64, 103, 1803), (1, 75, 12307)), (1, 16, 32), 2),
        (((37, 95, 7511), (1, 26, 5263)), (1, 16, 32), 2),
        (((80, 4, 973), (115, 157, 1)), (8, 64, 1), 0),
    ],
)
def test_with_its_numbers_queues_take_what_the_simulator_does(slab, parts, order):
    start, count = slab
    pattern = Pattern(
        kind=2,
        slab=Hyperslab(start=start, stride=(1, 1, 1), count=count, block=(1, 1, 1)),
        parts=parts,
    )
    streams, operation = queued_and_simulated(pattern, MEDIUM, MEDIUM.orders[order])
    simulated_s = simulate_many([operation], hopper())[0].seconds
    assert streams.follow(rates_of(hopper())).slowest_s == pytest.approx(simulated_s, rel=0.01)


@pytest.fixture(scope="module")
def fitted(simulated):
    return fit_queued(*simulated)


def test_rates_are_found_from_times(fitted):
    """Of another program's storage, whose parameters the fit does not see."""
    found = dataclasses.asdict(fitted.rates)
    assert found == pytest.approx(dataclasses.asdict(rates_of(hopper())), rel=0.01)


def test_the_error_is_that_of_patterns_left_out(fitted, simulated):
    operations, seconds, _ = simulated
    assert fitted.heldout.n_patterns == 60
    assert fitted.heldout.median < 0.001
    assert fitted.heldout.p95 < 0.01
    errors = np.abs(np.log(fitted.predict_many(operations) / seconds))
    assert np.median(errors) < 0.001


def test_what_is_cut_off_is_predicted_from_what_was_seen(fitted, simulated):
    operations, seconds, _ = simulated
    long = [i for i, one in enumerate(operations) if one.follow(fitted.rates).fetches > 400]
    assert len(long) > 20
    some = [operations[i] for i in long]
    predicted = fitted.predict_many(some, max_fetches=350)
    assert all(one.follow(fitted.rates, max_fetches=350).followed_share < 1 for one in some)
    errors = np.abs(np.log(predicted / np.array(seconds)[long]))
    assert np.median(errors) < 0.5


def test_two_million_fetches_are_followed_to_the_end():
    """Every sixteenth row of 4 KiB: too far apart to be read ahead."""
    rows = slab((0, 0, 0), (4096, 512, 1), (1, 16, 1))
    long = streams_of((4096, 8192, 1024), ProcessReads.of([rows]), LAYOUT, HOPPER_STRIPES)
    whole = long.follow(QueueRates())
    assert (whole.fetches, whole.followed_share) == (4096 * 512, 1.0)
    assert whole.slowest_s == whole.even_s == whole.followed_s
    part = long.follow(QueueRates(), max_fetches=10_000)
    assert part.fetches == 10_000
    assert part.followed_share < 0.01
    assert part.followed_s < 0.01 * whole.followed_s
    assert part.slowest_s == pytest.approx(whole.slowest_s, rel=0.05)


_TAKES_MEMORY = """
import resource, sys
from sds.errors import LimitError
from sds.geometry import ContiguousLayout, Hyperslab, ProcessReads, StripeLayout
from sds.recommender.operation import ClientReads
from sds.recommender.queues import QueueRates, streams_of

extent, stride, count, stripe_bytes, message_bytes, in_flight = eval(sys.argv[1])
slab = Hyperslab(start=(0, 0, 0), stride=stride, count=count, block=(1, 1, 1))
read = streams_of(
    extent,
    ProcessReads.of([slab]),
    ContiguousLayout(element_size_bytes=4),
    StripeLayout(stripe_size_bytes=stripe_bytes, stripe_count=100),
    client=ClientReads(message_bytes=message_bytes, in_flight=in_flight),
)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    share = read.follow(QueueRates()).followed_share
except LimitError:
    share = 0
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(share, (after - before) / 1024)
"""


def memory_of(extent, stride, count, *, stripe=MIB, message=MIB, in_flight=8):
    """Return the share of an operation that was followed, 0: none, and the MiB that it took."""
    given = repr((extent, stride, count, stripe, message, in_flight))
    done = subprocess.run(
        [sys.executable, "-c", _TAKES_MEMORY, given], capture_output=True, text=True, check=True
    )
    return map(float, done.stdout.split())


def test_what_servers_have_read_takes_no_more_than_a_hundred_mib():
    """A page of every 64, of 1 TiB, each in a place of its own: followed until that is full."""
    share, mib = memory_of((4096, 65536, 1024), (1, 64, 1), (4096, 1024, 1))
    assert 0.3 < share < 0.6
    assert mib < 100


@pytest.mark.parametrize("message", [4096, 1 << 40])
def test_no_operation_takes_more_than_two_hundred_mib(message):
    """A hundred TiB in one run: too many messages under way, or too many pages in one."""
    share, mib = memory_of(
        (100, 1 << 19, 1 << 19),
        (1, 1, 1),
        (100, 1 << 19, 1 << 19),
        stripe=1 << 40,
        message=message,
        in_flight=2**31 - 1,
    )
    assert share == 0
    assert mib < 200


def test_a_model_is_its_arrays(fitted, simulated):
    again = QueuedModel.from_arrays(fitted.arrays(), fitted.heldout)
    assert again == fitted
    some = simulated[0][:3]
    assert (again.predict_many(some) == fitted.predict_many(some)).all()
    part = {name: value for name, value in fitted.arrays().items() if name != "seek_s"}
    with pytest.raises(SdsValueError, match="needs seek_s"):
        QueuedModel.from_arrays(part)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("seek_s", np.array(np.nan), "seek_s is nan"),
        ("weight", np.array(np.nan), "weight is nan"),
        ("weight", np.array(2.0), "weight is 2.0"),
        ("weight", np.array([0.5, 0.5]), "weight is"),
        ("trip_s", np.array("none"), "trip_s is"),
    ],
)
def test_damaged_arrays_are_refused(fitted, name, value, words):
    with pytest.raises(SdsValueError, match=words):
        QueuedModel.from_arrays(fitted.arrays() | {name: value})


def test_errors_say_what_is_missing(simulated):
    operations, seconds, names = simulated
    with pytest.raises(SdsValueError, match="3 patterns are too few"):
        fit_queued(operations[:9], seconds[:9], names[:9])
    with pytest.raises(SdsValueError, match="9 operations, 8 times and 9 names"):
        fit_queued(operations[:9], seconds[:8], names[:9])
    with pytest.raises(SdsValueError, match=r"took \[nan\] s"):
        fit_queued(operations, [float("nan"), *seconds[1:]], names)
    with pytest.raises(SdsValueError, match=r"took \[inf\] s"):
        fit_queued(operations, [float("inf"), *seconds[1:]], names)
    empty = streams(slab((0, 0, 0), (0, 1, 1)))
    with pytest.raises(SdsValueError, match="reads nothing"):
        fit_queued([empty, *operations[1:]], seconds, names)


def test_an_unjudged_model_claims_nothing():
    model = QueuedModel(rates=RATES, weight=0.5)
    assert model.log_error == model.ratio_error == float("inf")
