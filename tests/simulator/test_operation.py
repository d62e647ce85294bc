"""Operations and machines that cannot be are refused, naming value and remedy."""

import math
from dataclasses import replace

import numpy as np
import pytest

from sds.errors import LayoutError, SdsValueError, SelectionError
from sds.geometry import Hyperslab, ProcessReads, RaidLayout, StripeLayout
from sds.simulator import Operation, hopper


def slab(*axes):
    start, stride, count, block = zip(*axes, strict=True) if axes else ((), (), (), ())
    return Hyperslab(start=start, stride=stride, count=count, block=block)


def operation(**changes):
    slabs = np.array([[[0, 0], [1, 1], [2, 3], [1, 1]]])
    given = {"extent": (4, 5), "element_size_bytes": 2, "slabs": slabs}
    return Operation(**{**given, **changes})


@pytest.mark.parametrize(
    ("axis", "words"),
    [
        ([-1, 1, 1, 1], "start -1"),
        ([0, 0, 1, 1], "stride 0"),
        ([0, 1, -1, 1], "count -1"),
        ([0, 1, 1, -1], "block -1"),
        ([0, 2, 2, 3], "must not overlap"),
        ([0, 1, 6, 1], "reach outside the array, which has 5 there"),
        ([4, 1, 1, 2], "reach outside"),
        ([2**62, 1, 1, 1], "reach outside"),
        ([0, 2**62, 3, 1], "reach outside"),
        ([0, 1, 2**63 - 1, 1], "reach outside"),
        ([0, 1, 1, 2**63 - 1], "reach outside"),
    ],
)
def test_selections_that_cannot_be(axis, words):
    slabs = np.array([[[0, 0], [1, 1], [2, 3], [1, 1]]] * 3)
    slabs[1, :, 1] = axis
    with pytest.raises(SelectionError, match=f"process 1, axis 1.*{words}"):
        operation(slabs=slabs)


@pytest.mark.parametrize(
    "slabs", [np.zeros((2, 4, 3), int), np.zeros((2, 3, 2), int), np.zeros((4, 2), int),
              np.zeros((1, 4, 2))]
)  # fmt: skip
def test_selections_of_another_shape(slabs):
    with pytest.raises(SelectionError, match="start, stride, count and block of each process"):
        operation(slabs=slabs)


def test_selections_of_another_rank():
    with pytest.raises(SelectionError, match="process 1 selects on 1 axes, the array has 2"):
        Operation.of((4, 5), [slab((0, 1, 1, 1), (0, 1, 1, 1)), slab((0, 1, 1, 1))],
                     element_size_bytes=1)  # fmt: skip
    with pytest.raises(SelectionError, match="33 axes; HDF5 knows at most 32"):
        Operation.of((1,) * 33, [], element_size_bytes=1)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"element_size_bytes": 0}, "element_size_bytes is 0"),
        ({"element_size_bytes": 1.5}, "element_size_bytes is 1.5"),
        ({"data_offset_bytes": -1}, "data_offset_bytes is -1"),
        ({"list_depth": 0}, "list_depth is 0"),
        ({"sieve_buffer_bytes": 0}, "sieve_buffer_bytes is 0"),
        ({"mode": "joint"}, "mode 'joint'; there are independent, collective"),
        ({"strategy": "pmd"}, "strategy 'pmd'; there are multiple, sieve, list"),
    ],
)
def test_numbers_and_names_that_cannot_be(changes, words):
    with pytest.raises(SdsValueError, match=words):
        operation(**changes)


def test_arrays_that_are_too_large():
    with pytest.raises(LayoutError, match=r"2\*\*61"):
        operation(extent=(1 << 40, 1 << 40))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"n_osts": 0}, "n_osts is 0"),
        ({"n_osts": 99}, "striped over 100 OSTs does not fit 99"),
        ({"page_bytes": 0}, "page_bytes is 0"),
        ({"page_bytes": 4096.5}, "whole number"),
        ({"page_bytes": 3000}, "stripe_size_bytes is 1048576, no multiple of page_bytes"),
        ({"rpc_bytes": 5000}, "rpc_bytes is 5000, no multiple"),
        ({"read_ahead_bytes": 5000}, "read_ahead_bytes is 5000, no multiple"),
        ({"disk_bytes_per_s": 0.0}, "disk_bytes_per_s is 0"),
        ({"disk_bytes_per_s": math.nan}, "disk_bytes_per_s is nan"),
        ({"ost_bytes_per_s": math.inf}, "ost_bytes_per_s is inf"),
        ({"network_latency_s": -1e-9}, "network_latency_s is -1e-09"),
        ({"disk_revolution_s": 2e3}, "disk_revolution_s is 2000"),
        ({"disk_full_stroke_s": 1e-4}, "longest seek, 0.0001 s, is shorter than the shortest"),
        ({"n_aggregators": 0}, "n_aggregators is 0"),
        ({"max_events": 0}, "max_events is 0"),
    ],
)
def test_machines_that_cannot_be(changes, words):
    with pytest.raises(SdsValueError, match=words):
        replace(hopper(), **changes)


def test_machines_with_too_many_disks():
    raid = RaidLayout(unit_bytes=512, data_disks=1 << 18, min_request_bytes=512)
    with pytest.raises(LayoutError, match="at most 2\\*\\*18 disks"):
        replace(hopper(), raid=raid)


def test_hopper_is_the_paper_s():
    found = hopper()
    assert found.stripes == StripeLayout(stripe_size_bytes=1 << 20, stripe_count=100)
    assert found.raid == RaidLayout(unit_bytes=512, data_disks=8, min_request_bytes=4096)
    assert (found.n_osts, found.n_aggregators) == (156, 16)
    assert found.collective_buffer_bytes == 16 << 20
    assert found.n_osts * found.ost_bytes_per_s == pytest.approx(35e9)
    mean_seek_s = found.disk_settle_s + (found.disk_full_stroke_s - found.disk_settle_s) * 8 / 15
    assert mean_seek_s == pytest.approx(8.5e-3, rel=0.01)


def test_numbers_of_processes_that_cannot_be():
    slabs = np.broadcast_to(np.ones((1, 4, 0), int), ((1 << 20) + 1, 4, 0))
    with pytest.raises(SelectionError, match="1048577 processes; 1048576 are the most"):
        Operation(extent=(), element_size_bytes=1, slabs=slabs)


def test_selections_may_come_as_reads_of_processes():
    whole = slab((0, 1, 8, 1), (0, 1, 8, 1))
    reads = ProcessReads.decomposed(whole, (2, 3))
    one = Operation.of((8, 8), reads, element_size_bytes=1)
    assert (
        one.slabs.tolist() == Operation.of((8, 8), list(reads), element_size_bytes=1).slabs.tolist()
    )
    with pytest.raises(SelectionError, match=r"\(6, 4, 2\)"):
        Operation.of((8, 8, 8), reads, element_size_bytes=1)
