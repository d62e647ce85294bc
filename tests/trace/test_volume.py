"""A trace grows with patterns, not with reads."""

import numpy as np

from sds import _spool_writer
from sds.trace import read_spool

N_READS = 10**8
AT_ONCE = 10**6


def test_a_hundred_million_reads_of_one_pattern_stay_under_a_mebibyte(tmp_path):
    # d[i, j, k:k+8] for all j and k, again and again, 500 ns each: some ten intervals of writing.
    turn = np.arange(AT_ONCE)
    start = np.stack([np.zeros_like(turn), turn // 1000, 8 * (turn % 1000)], 1)
    start_ns = 500 * turn
    elapsed_ns = 400 + turn % 7
    writer = _spool_writer.SpoolWriter(
        str(tmp_path), pid=1, start_ns=1, host="node", executable="program"
    )
    dataset = writer.add_dataset(file="/f.h5", path="/d", extent=(100, 1000, 8000), element_bytes=4)
    for done in range(0, N_READS, AT_ONCE):
        start[:, 0] = done // AT_ONCE
        writer.add_reads(
            dataset, start=start, stride=(1, 1, 1), count=(1, 1, 8), block=(1, 1, 1),
            start_ns=start_ns + 500 * (done + 1), elapsed_ns=elapsed_ns, n_elements=8,
        )  # fmt: skip
    writer.close()
    (path,) = tmp_path.iterdir()
    assert path.stat().st_size < 2**20
    spool = read_spool(path)
    assert int(spool.records.n_reads.sum()) == N_READS
    assert int(spool.records.elapsed_ns.sum()) == int(elapsed_ns.sum()) * (N_READS // AT_ONCE)
    assert spool.dropped_reads == 0
