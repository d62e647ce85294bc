"""Room for a replica: what goes for it frees enough, and saves little."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from sds.analyzer.patterns import stated_pattern
from sds.analyzer.read_times import BY_HDF5, ReadTimes
from sds.recommender.portfolio.evictions import (
    TIMES_AS_MUCH,
    HeldReplica,
    Room,
    measured_saving,
    room_for,
)

DAY_NS = 86_400 * 10**9


def held(*of_each):
    return tuple(
        HeldReplica(id=i, size_bytes=size, saves_s_per_day=saves)
        for i, (size, saves) in enumerate(of_each, start=1)
    )


def ids(going):
    return None if going is None else [one.id for one in going]


def wanted(size_bytes, saves_s_per_day, replicas, *, free_bytes=0, build_s=1.0, within_days=30.0):
    return ids(
        room_for(
            size_bytes,
            saves_s_per_day=saves_s_per_day,
            build_s=build_s,
            rooms=[Room(free_bytes=free_bytes)],
            held=replicas,
            within_days=within_days,
        )
    )


def test_nothing_goes_where_there_is_room():
    assert wanted(10, 1.0, held((10, 0.0)), free_bytes=10) == []


def test_what_saves_least_for_its_space_goes_first():
    assert wanted(10, 100.0, held((10, 5.0), (10, 1.0), (100, 20.0))) == [2]


def test_what_was_enough_alone_goes_alone():
    assert wanted(90, 1000.0, held((10, 0.0), (100, 20.0))) == [2]


def test_one_that_suffices_goes_where_that_loses_less():
    replicas = held((10, 0.0), (100, 10.0), (1000, 50.0))
    assert wanted(100, 60.0, replicas) == [2]
    assert wanted(100, 150.0, replicas) == [2]


def test_a_budget_that_is_exceeded_is_kept_by_what_goes():
    assert wanted(10, 100.0, held((10, 1.0), (10, 2.0)), free_bytes=-10) == [1, 2]


@pytest.mark.parametrize("saves", [1.0, 1.99])
def test_nothing_goes_for_what_hardly_saves_more(saves):
    assert wanted(10, saves, held((10, 1.0)), build_s=0.0) is None


def test_the_difference_pays_for_the_build():
    assert wanted(10, 3.0, held((10, 1.0)), build_s=61.0) is None
    assert wanted(10, 3.0, held((10, 1.0)), build_s=59.0) == [1]


def test_nothing_goes_for_what_does_not_fit_all_the_same():
    assert wanted(31, 100.0, held((10, 1.0), (20, 1.0))) is None


def test_what_goes_frees_enough_and_no_more_than_that():
    draw = np.random.default_rng(5)
    n_chosen = 0
    for _ in range(500):
        replicas = held(
            *((int(draw.integers(1, 51)), draw.choice([0.0, draw.random()])) for _ in range(6))
        )
        size, free = int(draw.integers(1, 101)), int(draw.integers(-20, 41))
        going = wanted(size, 1.5, replicas, free_bytes=free, build_s=0.0)
        if going is None:
            continue
        n_chosen += bool(going)
        of_id = {one.id: one for one in replicas}
        freed = [of_id[i].size_bytes for i in going]
        assert free + sum(freed) >= size
        assert all(free + sum(freed) - one < size for one in freed)
        assert TIMES_AS_MUCH * math.fsum(of_id[i].saves_s_per_day for i in going) <= 1.5
    assert n_chosen > 50


def test_what_replaces_each_other_does_not_go_in_turns():
    """Whatever two savings are, not each goes for the other."""
    for a, b in itertools.product([0.1, 0.5, 1.0, 1.9, 2.0, 7.0], repeat=2):
        there = wanted(10, b, held((10, a)), build_s=0.0)
        back = wanted(10, a, held((10, b)), build_s=0.0)
        assert there is None or back is None


def times(served_by, n, each_s):
    return ReadTimes(
        served_by=served_by, n=n, total_s=n * each_s, least_s=each_s, most_s=each_s,
        histogram=((int(math.log2(each_s * 1e9)), n),),
    )  # fmt: skip


def pattern(*times_of, n_calls, left_alone=(), days=1):
    plane = stated_pattern("[:, :, 3]", extent=(8, 8, 8), element_size_bytes=4)
    return replace(
        plane, stated=False, n_reads=n_calls, n_calls=n_calls, first_ns=DAY_NS,
        last_ns=(1 + days) * DAY_NS, times=times_of, left_alone=left_alone,
    )  # fmt: skip


def saving(patterns, replica_id, **days):
    days_there = {7: 1.0, 8: 1.0, 9: 1.0} | {int(name[1:]): n for name, n in days.items()}
    return measured_saving(patterns, replica_id, days_there=days_there)


def test_a_replica_saves_by_its_measured_times_for_all_reads_of_a_day():
    planes = pattern(times(BY_HDF5, 40, 0.03), times(7, 10, 0.01), n_calls=50)
    assert saving([planes], 7) == pytest.approx(50 * 0.02)
    half = pattern(times(BY_HDF5, 40, 0.03), times(7, 10, 0.01), n_calls=50, days=2)
    assert saving([half], 7) == pytest.approx(25 * 0.02)


def test_reads_a_day_are_those_since_the_first_of_their_own_kind():
    """What ended a while ago saves less from day to day; what is new is not of all days."""
    old = pattern(times(BY_HDF5, 40, 0.03), times(7, 10, 0.01), n_calls=50, days=5)
    new = replace(
        pattern(times(BY_HDF5, 40, 0.03), times(8, 10, 0.01), n_calls=50),
        first_ns=19 * DAY_NS,
        last_ns=20 * DAY_NS,
    )
    assert saving([old, new], 7) == pytest.approx(50 / 19 * 0.02)
    assert saving([old, new], 8) == pytest.approx(50 * 0.02)


def test_replicas_of_parts_share_the_reads_of_a_day():
    """By reads a day since each is there, left alone or not; those that are gone have none."""
    parts = pattern(
        times(BY_HDF5, 40, 0.03), times(6, 500, 0.01), times(7, 10, 0.01), times(8, 20, 0.01),
        n_calls=600, left_alone=(times(8, 10, 0.03),),
    )  # fmt: skip
    assert saving([parts], 7) == pytest.approx(600 * 0.25 * 0.02)
    assert saving([parts], 8) == pytest.approx(600 * 0.75 * 0.02)
    assert saving([parts], 8, _8=10.0) == pytest.approx(600 * 3 / 13 * 0.02)
    assert saving([parts], 7, _7=0.001) == pytest.approx(600 * 0.25 * 0.02), "at least one day"


def test_reads_that_it_left_alone_in_shadow_come_first():
    planes = pattern(
        times(BY_HDF5, 40, 0.03), times(7, 10, 0.01), n_calls=50, left_alone=(times(7, 10, 0.02),)
    )
    assert saving([planes], 7) == pytest.approx(50 * 0.01)


def test_collective_reads_and_kinds_of_reads_without_comparison():
    collective = replace(
        pattern(times(BY_HDF5, 40, 0.03), times(7, 10, 0.01), n_calls=1050), n_collective=1000
    )
    assert saving([collective], 7) == pytest.approx(50 * 0.02)
    planes = pattern(times(BY_HDF5, 40, 0.03), times(7, 10, 0.01), n_calls=50)
    new = pattern(times(7, 10, 0.001), n_calls=10)
    assert saving([planes, new], 7) == pytest.approx(50 * 0.02 + 10 * 0.002)


def test_what_is_slower_saves_nothing_and_what_cannot_be_compared_is_not_known():
    slower = pattern(times(BY_HDF5, 40, 0.01), times(7, 10, 0.03), n_calls=50)
    assert saving([slower], 7) == 0
    assert saving([pattern(times(7, 10, 0.01), n_calls=10)], 7) is None
    assert saving([slower], 8) == 0, "it serves nothing"


def test_what_goes_makes_room_under_every_budget():
    replicas = held((10, 5.0), (10, 1.0), (10, 2.0))
    inner = Room(free_bytes=0, holds=frozenset({1, 3}))
    assert room(10, replicas, Room(free_bytes=100), inner) == [3]
    assert room(10, replicas, Room(free_bytes=0), inner) == [3], "one that counts in both"
    assert room(20, replicas, Room(free_bytes=0), inner) == [3, 1]
    outer = Room(free_bytes=-10)
    assert room(10, replicas, outer, inner) == [3, 2]
    assert room(30, replicas, Room(free_bytes=100), inner) is None
    assert room(10, replicas, Room(free_bytes=10), Room(free_bytes=10)) == []


def room(size_bytes, replicas, *rooms):
    return ids(
        room_for(
            size_bytes, saves_s_per_day=100.0, build_s=1.0, rooms=rooms, held=replicas,
            within_days=30.0,
        )
    )  # fmt: skip
