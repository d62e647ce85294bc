"""Operations followed step by step, and what is learned from them."""

import dataclasses

import numpy as np
import pytest

from sds.errors import SdsValueError
from sds.geometry import HOPPER_RAID, HOPPER_STRIPES, ContiguousLayout, Hyperslab, ProcessReads
from sds.recommender.judgement import samples_of
from sds.recommender.operation import ClientReads
from sds.recommender.protocol import draw_library
from sds.recommender.stepped import fit_stepped
from sds.recommender.steps import NOTHING_ASKED, Rates, measure_steps
from tests.recommender.operations import SMALL, Storage

# Rows of 32 KiB; a stripe holds 32 of them.
EXTENT = (64, 64, 8192)
LAYOUT = ContiguousLayout(element_size_bytes=4)
MIB = 1 << 20


def followed(*slabs, **client):
    return measure_steps(
        EXTENT,
        ProcessReads.of(slabs),
        LAYOUT,
        HOPPER_STRIPES,
        HOPPER_RAID,
        client=ClientReads(**client),
    )


def slab(start, count, stride=(1, 1, 1)):
    return Hyperslab(start=start, stride=stride, count=count, block=(1, 1, 1))


def test_a_point_is_one_page_of_one_server():
    found = followed(slab((0, 0, 5), (1, 1, 1)))
    assert (found.steps_most, found.fetch_bytes, found.osts) == (1, 4096, 1)
    assert found.step_s == found.spread_s > found.mean_s


@pytest.mark.parametrize(("after", "fetches"), [(1, 2), (2, 3), (3, 4)])
def test_a_client_reads_ahead_once_enough_runs_followed_closely(after, fetches):
    """Runs 8 KiB apart, each in a page of its own, up to the end of the first MiB."""
    found = followed(slab((0, 0, 0), (1, 32, 4), (1, 1, 2048)), after=after)
    assert found.steps_most == fetches
    # Single pages first, and the rest of the window from the next run's page on.
    assert found.fetch_bytes * fetches == MIB - after * 4096


def test_strips_of_one_length_end_read_ahead():
    """Four runs 8 KiB apart in each of six planes: the last four strips are known."""
    found = followed(slab((0, 0, 0), (6, 1, 4), (1, 1, 2048)))
    assert found.steps_most == 3 * 6
    # Two strips are read to the end of a MiB, the other four not.
    assert 1.9 * MIB < found.fetch_bytes * 18 < 2.2 * MIB


def test_processes_in_step_on_one_server_add_up():
    # One row of each of 50 stripes, a server each; or a row in each stripe of one server.
    apart = followed(*(slab((i, 0, 0), (1, 1, 1)) for i in range(50)))
    assert apart.osts == 50
    one = followed(slab((0, 0, 0), (1, 1, 1)), slab((50, 0, 0), (1, 1, 1)))
    assert one.osts == 1
    assert one.step_sent_s == pytest.approx(2 * apart.step_sent_s)
    assert one.step_s > apart.step_s
    assert one.mean_s < apart.mean_s


def test_the_same_page_costs_a_node_one_fetch():
    slabs = [slab((0, 0, i), (1, 1, 1)) for i in range(8)]
    together = followed(*slabs, processes_per_node=8)
    alone = followed(*slabs, processes_per_node=1)
    assert (together.fetches_mean, alone.fetches_mean) == (1, 8)
    # Disks read it once all the same.
    assert together.step_disk_bytes == alone.step_disk_bytes == 4096


def test_what_is_not_followed_goes_on_alike():
    found = followed(slab((0, 0, 5), (64, 16, 1), (1, 4, 1)))
    assert found.steps_most == pytest.approx(1024, rel=0.02)
    assert found.steps_followed_share == pytest.approx(1024 / 160, rel=0.02)


def test_nothing_read_asks_for_nothing():
    assert followed(slab((0, 0, 0), (0, 1, 1))) == NOTHING_ASKED


def test_wrong_arguments_are_refused():
    with pytest.raises(SdsValueError, match="after is -1"):
        ClientReads(after=-1)
    with pytest.raises(SdsValueError, match="must be positive"):
        Rates(seek_s=0.0)


@pytest.fixture(scope="module")
def learned():
    storage = Storage()
    patterns = draw_library(5, SMALL, 60)
    samples = samples_of(patterns, SMALL, storage.observe)
    steps = [
        measure_steps(
            SMALL.extent,
            pattern.reads(),
            ContiguousLayout(element_size_bytes=SMALL.element_size_bytes, order=order),
            SMALL.stripes,
            SMALL.raid,
        )
        for pattern in patterns
        for order in SMALL.orders
    ]
    return samples, steps, fit_stepped(samples, steps, n_folds=3)


def test_the_correction_predicts_patterns_it_has_not_seen(learned):
    samples, steps, model = learned
    assert model.heldout.n_patterns == 180
    assert model.heldout.median < 0.25
    predicted = model.predict_many(samples.measures(), steps)
    assert np.median(np.abs(np.log(predicted / samples.seconds))) < model.heldout.median


def test_far_outside_the_baseline_predicts(learned):
    samples, steps, model = learned
    far = [dataclasses.replace(s, step_disk_bytes=1e15) for s in steps[:6]]
    assert model.outside(far).all()
    assert not model.outside(steps).any()
    measures = samples.measures().take(range(6))
    assert (model.predict_many(measures, far) == model.baseline.predict_many(measures)).all()


def test_too_few_patterns_are_refused(learned):
    samples, steps, _ = learned
    with pytest.raises(SdsValueError, match="3 patterns are too few"):
        fit_stepped(samples.take(range(9)), steps[:9])
    with pytest.raises(SdsValueError, match="9 operations were followed"):
        fit_stepped(samples, steps[:9])
