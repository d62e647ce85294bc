import numpy as np
import pytest

from sds.errors import SdsValueError
from sds.geometry import (
    LOCAL_DISK_RAID,
    LOCAL_DISK_STRIPES,
    ContiguousLayout,
    Hyperslab,
    block_features,
)
from sds.recommender.models.cost_model import ModelKind
from sds.recommender.models.log_regression import positive_log_fit
from sds.recommender.models.samples import Samples
from sds.recommender.models.sieve_model import SieveFitter

LAYOUT = ContiguousLayout(element_size_bytes=8)


def features_of(extent, count, stride=(1, 1)):
    slab = Hyperslab(start=(0, 0), stride=stride, count=count, block=(1, 1))
    return block_features(extent, slab, LAYOUT, LOCAL_DISK_STRIPES, LOCAL_DISK_RAID)


def law(f, p):
    """A disk behind HDF5: 20 us a request, 400 us a jump, 1 ns a byte that all share."""
    return 1e-4 + 20e-6 * f.sieve_requests + 4e-4 * f.sieve_jumps + p * 1e-9 * f.sieve_bytes


def small_samples(noise=0.0):
    """Reads of an array of 8 MiB, as a calibration makes them."""
    random = np.random.default_rng(1)
    patterns, features, processes, seconds = [], [], [], []
    for rows in (1, 4, 16, 64, 256, 1024):
        for columns in (1, 16, 128, 1024):
            for p in (1.0, 2.0, 4.0):
                found = features_of((1024, 1024), (rows, columns))
                patterns.append(f"{rows}x{columns}")
                features.append(found)
                processes.append(p)
                seconds.append(law(found, p) * float(np.exp(noise * random.normal())))
    return Samples(
        patterns=tuple(patterns),
        features=tuple(features),
        processes_per_ost=tuple(processes),
        seconds=tuple(seconds),
    )


def test_a_small_file_teaches_what_holds_for_a_large_one():
    """A column of 2^18 rows 4 KiB apart is 16,384 requests in one scan, not 2^18."""
    model = SieveFitter().fit(small_samples(noise=0.05))
    large = features_of((1 << 18, 512), (1 << 18, 1))
    assert large.runs == 1 << 18
    predicted = model.seconds(large, processes_per_ost=1.0)
    assert predicted == pytest.approx(law(large, 1.0), rel=0.25)


def test_a_law_is_found_again():
    samples = small_samples()
    model = SieveFitter().fit(samples)
    assert model.kind is ModelKind.SIEVE
    assert np.allclose(model.predict_many(samples.feature_matrix()), samples.seconds, rtol=1e-3)
    assert model.diagnostics.r_squared > 0.9999


def test_no_coefficient_is_negative_whatever_was_measured():
    random = np.random.default_rng(3)
    matrix = np.column_stack(
        [np.ones(40), random.random((40, 4)) * 10.0 ** random.integers(0, 9, 4)]
    )
    seconds = 10.0 ** random.uniform(-5, 2, 40)
    found = positive_log_fit(lambda _: matrix, seconds, start=np.ones(5))
    assert (found >= 0).all()
    assert (matrix @ found > 0).all()
    constant = np.sum((np.log(seconds) - np.log(seconds).mean()) ** 2)
    assert np.sum(np.log(matrix @ found / seconds) ** 2) <= constant * (1 + 1e-6)


def test_too_few_reads_are_refused():
    samples = small_samples().take(range(5))
    with pytest.raises(SdsValueError, match="too few"):
        SieveFitter().fit(samples)


def test_without_processes_no_term_has_them():
    model = SieveFitter(without_processes=True).fit(small_samples())
    assert model.coefficients[5:] == (0.0, 0.0, 0.0)
    assert set(model.dropped_terms) >= {"P*sieve_requests", "P*sieve_jumps", "P*sieve_bytes"}
