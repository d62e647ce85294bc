"""What tracing costs: nanoseconds and bytes per read.

``python benchmarks/trace.py [--reads N]``
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from sds import _spool_writer
from sds.trace import read_spool


def streams(n: int) -> dict[str, np.ndarray]:
    """Return starts of n reads of planes d[:, j, k:k+4], by the order in which they come."""
    turns = np.arange(n)
    zeros = np.zeros_like(turns)
    random = np.random.default_rng(0)
    return {
        "one loop": np.stack([zeros, zeros, turns], 1),
        "two loops": np.stack([zeros, turns // 1000, 4 * (turns % 1000)], 1),
        "rows of uneven length": np.stack(
            [zeros, np.sort(random.integers(0, n // 50, n)), turns], 1
        ),
        "random": random.integers(0, 4096, (n, 3)),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reads", type=int, default=1_000_000, help="of each stream")
    n = parser.parse_args().reads
    elapsed_ns = np.random.default_rng(1).integers(5_000, 50_000, n)
    print(f"{'stream':>24} {'ns/read':>10} {'bytes':>12} {'bytes/read':>12} {'records':>10} reread")
    for name, starts in streams(n).items():
        with tempfile.TemporaryDirectory() as directory:
            writer = _spool_writer.SpoolWriter(
                directory, pid=1, start_ns=0, host="node", executable="bench"
            )
            dataset = writer.add_dataset(
                file="/f.h5", path="/d", extent=(256, 4096, 4096), element_bytes=4
            )
            begin = time.perf_counter()
            writer.add_reads(
                dataset,
                start=starts,
                stride=(1, 1, 1),
                count=(256, 1, 4),
                block=(1, 1, 1),
                start_ns=20_000 * np.arange(n),
                elapsed_ns=elapsed_ns,
                n_elements=1024,
            )
            path = Path(writer.path)
            writer.close()
            seconds = time.perf_counter() - begin
            size_bytes = path.stat().st_size
            begin = time.perf_counter()
            spool = read_spool(path)
            reread_s = time.perf_counter() - begin
            if int(spool.records.n_reads.sum()) + spool.dropped_reads != n:
                message = f"{name}: {spool.records.n_reads.sum()} of {n} reads came back"
                raise AssertionError(message)
            print(
                f"{name:>24} {1e9 * seconds / n:10.0f} {size_bytes:12d} {size_bytes / n:12.4f}"
                f" {len(spool.records):10d} {reread_s:.3f} s"
            )


if __name__ == "__main__":
    main()
