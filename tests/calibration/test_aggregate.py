import math
from dataclasses import replace

from sds.calibration.aggregate import aggregate, repeat_error
from sds.recommender.models.samples import Samples
from tests.recommender.measured import features


def reads(*groups):
    """Samples of (pattern, P, seconds) triples."""
    names, processes, seconds = zip(*groups, strict=True)
    return Samples(
        patterns=names,
        features=tuple(features(depth=i + 1) for i in range(len(groups))),
        processes_per_ost=processes,
        seconds=seconds,
    )


def test_the_median_stands_for_its_like_with_its_own_features():
    aggregated = aggregate(
        reads(("a", 1.0, 3.0), ("a", 1.0, 1.0), ("a", 1.0, 2.0), ("b", 1.0, 9.0))
    )
    assert aggregated.samples.seconds == (2.0, 9.0)
    assert [f.block_depth for f in aggregated.samples.features] == [3, 4]
    assert aggregated.n_disturbed == 0


def test_process_counts_and_layouts_are_not_mixed():
    mixed = reads(("a", 1.0, 3.0), ("a", 2.0, 1.0), ("a", 1.0, 3.0))
    assert sorted(aggregate(mixed).samples.seconds) == [1.0, 3.0]
    apart = replace(mixed, layouts=("x", "x", "y"))
    assert len(aggregate(apart).samples) == 3


def test_disturbed_reads_are_counted_and_left_out():
    aggregated = aggregate(reads(*(("a", 1.0, s) for s in (1.0, 1.1, 1.2, 40.0, 4.0))))
    assert aggregated.n_disturbed == 2
    assert aggregated.samples.seconds == (1.1,)


def test_of_two_the_quicker_counts():
    aggregated = aggregate(reads(("a", 1.0, 50.0), ("a", 1.0, 1.0)))
    assert aggregated.samples.seconds == (1.0,)
    assert aggregated.n_disturbed == 0


def test_repeats_differ_by_what_the_others_of_their_shape_would_have_predicted():
    found = repeat_error(reads(("a", 1.0, 1.0), ("a", 1.0, math.e), ("b", 1.0, 5.0)))
    assert (found.median, found.p95, found.rms, found.n) == (1.0, 1.0, 1.0, 2)
    assert repeat_error(reads(("a", 1.0, 1.0), ("a", 2.0, 1.0))) is None
    alike = repeat_error(reads(*(("a", 1.0, 2.0) for _ in range(4))))
    assert (alike.rms, alike.n) == (0.0, 4)
