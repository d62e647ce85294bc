"""Time for all features of one read of Liu 2014's array, preset hopper.

1024 x 1024 x 65536 elements of 2 bytes, 1 MiB stripes over 100 OSTs, in every axis order: lines,
planes and cubes along every axis, strided ones, and a thousand drawn from a seed. The target is
1 ms each.
"""

from __future__ import annotations

import itertools
import random
import statistics
import time

from sds.geometry import (
    HOPPER_RAID,
    HOPPER_STRIPES,
    ContiguousLayout,
    Hyperslab,
    block_features,
    parse_selection,
)

EXTENT = (1024, 1024, 65536)
TARGET_S = 1e-3
NAMED = {
    "everything": "[:]",
    "line along x": "[:, 512, 300]",
    "line along y": "[512, :, 300]",
    "line along z": "[512, 512, :]",
    "plane across z (2^20 runs)": "[:, :, 300]",
    "plane across y": "[:, 512, :]",
    "plane across x": "[512, :, :]",
    "cube of 512": "[256:768, 256:768, 256:768]",
    "cube of 63, unaligned": "[7:70, 7:70, 7:70]",
    "every 3rd plane across z": "[:, :, ::3]",
    "every 5000th across z": "[:, :, ::5000]",
    "every 7th of y and 64th of z": "[:, ::7, ::64]",
    "every 2nd of each": "[::2, ::2, ::2]",
}


def drawn(generator: random.Random) -> Hyperslab:
    """Return a hyperslab: per axis one index, all, a range, steps or blocks in steps."""
    axes = []
    for length in EXTENT:
        start = generator.randrange(length)
        kind = generator.choice(["one", "all", "range", "steps", "blocks"])
        if kind == "one":
            axes.append((start, 1, 1, 1))
        elif kind == "all":
            axes.append((0, 1, length, 1))
        elif kind == "range":
            axes.append((start, 1, generator.randint(1, length - start), 1))
        else:
            start //= 2
            block = 1 if kind == "steps" else generator.randint(1, 8)
            step = block + generator.choice(
                [0, 1, 2, 3, 7, 31, 63, generator.randrange(length // 4)]
            )
            most = max(1, (length - start - block) // step + 1)
            axes.append((start, step, generator.randint(1, most), block))
    start, stride, count, block = (tuple(column) for column in zip(*axes, strict=True))
    return Hyperslab(start=start, stride=stride, count=count, block=block)


def seconds_for(slab: Hyperslab, order: tuple[int, ...], offset: int) -> tuple[float, int]:
    """Return the median of seven timings, the core's and Python's work together, and the runs."""
    layout = ContiguousLayout(element_size_bytes=2, data_offset_bytes=offset, order=order)
    times = []
    for _ in range(7):
        begin = time.perf_counter()
        features = block_features(EXTENT, slab, layout, HOPPER_STRIPES, HOPPER_RAID)
        times.append(time.perf_counter() - begin)
    if not features.exact:
        message = f"bounds, not values, for {slab} stored as {order}"
        raise AssertionError(message)
    return statistics.median(times), features.runs


def main() -> None:
    """Print the tables."""
    orders = list(itertools.permutations(range(3)))
    print("| selection | most runs | median us | worst us of six axis orders |")
    print("|---|---|---|---|")
    for name, text in NAMED.items():
        slab = parse_selection(text, EXTENT)
        timed = [seconds_for(slab, order, 0) for order in orders]
        times = [seconds * 1e6 for seconds, _ in timed]
        runs = max(n for _, n in timed)
        print(f"| {name} | {runs:,} | {statistics.median(times):.1f} | {max(times):.1f} |")

    generator = random.Random(20261121)  # noqa: S311  (a benchmark, not a secret)
    every = sorted(
        seconds_for(drawn(generator), generator.choice(orders), generator.choice([0, 2048, 4096]))[
            0
        ]
        for _ in range(1000)
    )
    print(
        f"\n1000 drawn: median {every[500] * 1e6:.1f} us, 99 % below {every[990] * 1e6:.1f} us, "
        f"worst {every[-1] * 1e6:.1f} us; target {TARGET_S * 1e6:.0f} us: "
        f"{'met' if every[-1] < TARGET_S else 'missed'}"
    )


if __name__ == "__main__":
    main()
