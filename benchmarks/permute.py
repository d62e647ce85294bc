"""Permuting axes in memory: SDS against NumPy, both against memcpy.

``python benchmarks/permute.py [--megabytes N] [--pairs N]``

Each row: throughput (bytes of the array / s) of sds._native.permute, of numpy.copyto into the same
kind of preallocated array, and of a plain copy, and the ratio to NumPy with the 95 % bootstrap
bound of its median over paired, alternating runs.
"""

from __future__ import annotations

import argparse
import time
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np

from sds import _native

if TYPE_CHECKING:
    from collections.abc import Callable


def seconds(call: Callable[[], object]) -> float:
    """Return how long a call takes."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def low_bound(ratios: np.ndarray) -> float:
    """Return the lower 95 % bootstrap bound of the median."""
    draws = np.random.default_rng(0).choice(ratios, (2000, len(ratios)))
    return float(np.quantile(np.median(draws, axis=1), 0.05))


def measure(shape: tuple[int, ...], order: tuple[int, ...], dtype: str, n_pairs: int) -> str:
    """Return one row of the table."""
    src = np.random.default_rng(0).integers(0, 255, (*shape, np.dtype(dtype).itemsize), np.uint8)
    src = src.view(dtype)[..., 0]
    out = np.empty([shape[axis] for axis in order], dtype)
    other = np.empty_like(out)
    plain = np.empty_like(src)
    _native.permute(src, order, out)
    np.copyto(other, src.transpose(order))
    if out.tobytes() != other.tobytes():
        message = f"{shape} {order} {dtype}: the results differ"
        raise AssertionError(message)
    times = np.array(
        [
            (
                seconds(lambda: _native.permute(src, order, out)),
                seconds(lambda: np.copyto(other, src.transpose(order))),
                seconds(lambda: np.copyto(plain, src)),
            )
            for _ in range(n_pairs)
        ]
    )
    sds, numpy, memcpy = src.nbytes / np.median(times, axis=0) / 1e9
    ratios = times[:, 1] / times[:, 0]
    return (
        f"{shape!s:>20} {order!s:>15} {dtype:>4} {sds:8.2f} {numpy:8.2f} {memcpy:8.2f}"
        f" {np.median(ratios):8.1f} (> {low_bound(ratios):.1f}) {sds / memcpy:10.2f}"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=512, help="size of each array")
    parser.add_argument("--pairs", type=int, default=5, help="paired runs per row")
    arguments = parser.parse_args()
    print(
        f"{'shape':>20} {'order':>15} {'type':>4} {'SDS':>8} {'NumPy':>8} {'memcpy':>8}"
        f" {'SDS/NumPy':>16} {'SDS/memcpy':>10}   [GB/s]"
    )
    for dtype in ("f8", "f4", "u2", "u1", "c16"):
        scale = arguments.megabytes * 2**20 / np.dtype(dtype).itemsize / (256 * 512 * 512)
        shape = (256, 512, max(1, round(512 * scale)))
        for order in permutations(range(3)):
            print(measure(shape, order, dtype, arguments.pairs), flush=True)
    n = arguments.megabytes * 2**20 // 8
    for rows in (1024, 8192, 131072):
        print(measure((rows, n // rows), (1, 0), "f8", arguments.pairs), flush=True)


if __name__ == "__main__":
    main()
