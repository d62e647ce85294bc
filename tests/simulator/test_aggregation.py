"""What the simulator leaves out of its event loop changes nothing, to the last nanosecond."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sds.geometry import IoMode, RaidLayout, StripeLayout
from sds.simulator import Operation, ReadStrategy, hopper
from sds.simulator.simulation import simulated
from tests.simulator.one_by_one import simulate as simulate_one_by_one
from tests.sizes import repeated

COST_OF_SIMULATING = {"events", "clients", "positioning_ns", "bytes_useful"}


@st.composite
def machines(draw):
    """Machines whose sizes are a few bytes, so that small arrays meet every border."""
    page = draw(st.sampled_from([4, 8, 16]))
    unit = draw(st.sampled_from([1, 2, 4, 8, 24, 64]))
    disks = draw(st.integers(1, 4))
    row = unit * disks
    least = draw(st.sampled_from([row, 2 * row, unit, 3, 4, 16, 64]))
    return replace(
        hopper(),
        stripes=StripeLayout(
            stripe_size_bytes=page * draw(st.integers(1, 6)), stripe_count=draw(st.integers(1, 5))
        ),
        raid=RaidLayout(unit_bytes=unit, data_disks=disks, min_request_bytes=least),
        page_bytes=page,
        read_ahead_bytes=page * draw(st.sampled_from([0, 2, 8])),
        read_ahead_gap_bytes=draw(st.sampled_from([0, 8, 40])),
        read_ahead_after=draw(st.integers(0, 3)),
        rpc_bytes=page * draw(st.sampled_from([1, 2, 4, 64])),
        max_rpcs_in_flight=draw(st.integers(1, 3)),
        processes_per_node=draw(st.integers(1, 4)),
        client_request_s=draw(st.sampled_from([0.0, 1e-6, 1e-5])),
        client_bytes_per_s=draw(st.sampled_from([1e6, 1.2e9])),
        network_latency_s=draw(st.sampled_from([0.0, 1e-6, 5e-5, 3e-3])),
        ost_request_s=draw(st.sampled_from([0.0, 2e-5, 1e-3])),
        ost_bytes_per_s=draw(st.sampled_from([1e4, 1e6, 2e8])),
        disk_bytes_per_s=draw(st.sampled_from([2e3, 1e5, 1e8])),
        disk_capacity_bytes=1 << draw(st.sampled_from([14, 20, 40])),
        n_aggregators=draw(st.integers(1, 5)),
        collective_buffer_bytes=draw(st.integers(1, 300)),
        **(draw(options()) if draw(st.booleans()) else {}),
    )


def options():
    """What is left out of the usual machine."""
    return st.fixed_dictionaries(
        {},
        optional={
            "fetch_bytes": st.integers(1, 100),
            "processors_per_node": st.integers(1, 3),
            "ost_forgets": st.just(value=True),
            "disk_first_s": st.sampled_from([1e-9, 5e-3]),
            "disk_request_s": st.sampled_from([1e-9, 4e-5, 1e-3]),
            "client_jitter_s": st.sampled_from([1e-8, 5e-5, 1e-3]),
            "client_start_s": st.sampled_from([1e-8, 3e-4]),
            "jitter_seed": st.integers(0, 1 << 30),
        },
    )


@st.composite
def operations(draw):
    rank = draw(st.integers(0, 3))
    extent = tuple(draw(st.integers(0, 12)) for _ in range(rank))
    n_processes = draw(st.integers(0, 6))

    def axis(length):
        start = draw(st.integers(0, length))
        block = draw(st.integers(0, min(3, length - start)))
        stride = draw(st.integers(max(1, block), 6))
        count = draw(st.integers(0, (length - start - block) // stride + 1))
        return start, stride, count, block

    def shifted(slab):
        """The same shape elsewhere: processes of a decomposition are like that."""
        moved = slab.copy()
        for i, length in enumerate(extent):
            _, stride, count, block = slab[:, i]
            reach = (count - 1) * stride + block if count else 0
            moved[0, i] = draw(st.integers(0, max(0, length - reach)))
        return moved

    slabs = np.zeros((n_processes, 4, rank), dtype=np.int64)
    for process in range(n_processes):
        if process and draw(st.booleans()):
            slabs[process] = shifted(slabs[draw(st.integers(0, process - 1))])
        else:
            for i, length in enumerate(extent):
                slabs[process, :, i] = axis(length)
    return Operation(
        extent=extent,
        element_size_bytes=draw(st.sampled_from([1, 2, 3, 8, 16])),
        data_offset_bytes=draw(st.sampled_from([0, 1, 16, 100])),
        slabs=slabs,
        mode=draw(st.sampled_from(IoMode)),
        strategy=draw(st.sampled_from(ReadStrategy)),
        list_depth=draw(st.integers(1, 5)),
        sieve_buffer_bytes=draw(st.integers(1, 200)),
    )


def without(found, names):
    return {name: value for name, value in found.items() if name not in names}


@settings(max_examples=repeated(100, 1500))
@given(operations(), machines())
def test_aggregated_equals_request_by_request(operation, machine):
    found = simulated(operation, machine, request_by_request=False)
    expected = simulated(operation, machine, request_by_request=True)
    assert found["events"] <= expected["events"]
    assert without(found, {"events", "clients"}) == without(expected, {"events", "clients"})


@settings(max_examples=repeated(40, 600))
@given(operations(), machines())
def test_the_core_equals_the_plainest_program(operation, machine):
    found = simulated(operation, machine, request_by_request=False)
    assert without(found, COST_OF_SIMULATING) == simulate_one_by_one(operation, machine)
