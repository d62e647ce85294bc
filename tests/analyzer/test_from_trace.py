"""From reads that the native writer traced to patterns."""

import math

import numpy as np
import pytest

from sds import _spool_writer
from sds.analyzer import find_patterns
from sds.server.operations.spool import records_of
from sds.trace import SUFFIX, read_spool

EXTENT = (512, 512, 4096)
CLOCK_NS = 1_700_000_000_000_000_000


@pytest.fixture
def trace(tmp_path):
    def write(reads, *, pid=7):
        """Trace (start, count) arrays in order; return the records of the one dataset."""
        writer = _spool_writer.SpoolWriter(
            tmp_path, pid=pid, start_ns=CLOCK_NS, host="node", executable="/bin/python"
        )
        dataset = writer.add_dataset(
            file="/data/cube.h5", path="/image", extent=EXTENT, element_bytes=4
        )
        clock = CLOCK_NS
        for start, count in reads:
            start_ns = clock + 2_000_000 * np.arange(len(start), dtype=np.int64)
            writer.add_reads(
                dataset,
                start=start,
                stride=(1, 1, 1),
                count=count,
                block=(1, 1, 1),
                start_ns=start_ns,
                elapsed_ns=np.full(len(start), 1_000_000, dtype=np.int64),
                n_elements=math.prod(count),
            )
            clock = int(start_ns[-1]) + 2_000_000
        writer.close()
        (path,) = tmp_path.glob(f"*-{pid}-*{SUFFIX}")
        (records,) = records_of(read_spool(path)).values()
        return records

    return write


def test_planes_and_spectra_of_one_program(trace):
    energies = np.array([700, 13, 2048, 99, 3000], dtype=np.int64)
    planes = np.column_stack((np.zeros((5, 2), dtype=np.int64), energies))
    pixels = np.random.default_rng(3).integers(0, 512, (40, 2))
    spectra = np.column_stack((pixels, np.zeros(40, dtype=np.int64)))
    records = trace([(planes, (512, 512, 1)), (spectra, (1, 1, 4096))])
    found = {p.description: p for p in find_patterns([records])}
    plane = found["plane fixing axis 2"]
    assert (plane.n_reads, plane.n_calls) == (5, 5)
    assert plane.bytes_read == 5 * 512 * 512 * 4
    line = found["line along axis 2"]
    assert (line.n_reads, line.bytes_read) == (40, 40 * 4096 * 4)
    assert line.elapsed_s == pytest.approx(0.040)


def test_a_plane_read_line_by_line_is_seen_as_a_plane(trace):
    rows = np.column_stack(
        (np.arange(512), np.zeros(512, dtype=np.int64), np.full(512, 77))
    ).astype(np.int64)
    (pattern,) = find_patterns([trace([(rows, (1, 512, 1))])])
    assert pattern.description == "plane fixing axis 2, one line along axis 1 at a time"
    assert (pattern.n_reads, pattern.n_calls) == (1, 512)
    assert pattern.call.shape == (1, 512, 1)


def test_a_walk_through_every_plane_keeps_the_planes(trace):
    starts = np.zeros((64, 3), dtype=np.int64)
    starts[:, 2] = np.arange(64)
    (pattern,) = find_patterns([trace([(starts, (512, 512, 1))])])
    assert pattern.description == "plane fixing axis 2"
    assert pattern.n_reads == 64
