"""Replicas of a part: traced, advised within a budget, built, and measured beside the whole.

``python -m benchmarks.part_advice [--rounds N] [--extent X Y Z] [--directory DIR]``. A cube of
float32 is read in planes [:, :, k] by h5py, nine in ten within an eighth of the last axis. A first
run under ``sds run`` is traced and ingested; ``sds advise`` gets a quarter of the cube's size as
its budget; what it advises is built. Then the same kind of reads, at other places, are timed: by
h5py alone, under the connector with the part, and under it with a replica of the whole. Every plane
is read by all three in turns, cold (dropped from the page cache, not mapped) and warm. Ratios are
to h5py alone at the same plane; median and 95 % bootstrap bounds.
"""

from __future__ import annotations

import argparse
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks._traced_runs import measure, trace
from benchmarks.chunk_advice import ITEM_BYTES, Workload, bounds, reader, write
from sds.catalog.requests import ReorganizeRequest
from sds.home import Home
from sds.server.operations.advice_reports import AdviceRequest, NamedDataset
from sds.server.operations.service import Service

if TYPE_CHECKING:
    from sds.geometry import Box

_N_TRACED = 200
_HOT_SHARE = 0.9


def planes(rng: np.random.Generator, n: int, length: int) -> list[int]:
    """Return planes of which nine in ten lie in an eighth of the axis."""
    hot = rng.random(n) < _HOT_SHARE
    inside = rng.integers(length // 2, length // 2 + length // 8, n)
    return np.where(hot, inside, rng.integers(0, length, n)).tolist()


def texts_of(which: list[int]) -> list[str]:
    """Return what is read of some planes."""
    return [f"[:, :, {k}]" for k in which]


def advised(home: Path, source: Path, budget_bytes: int) -> tuple[list[Path], Box]:
    """Build what is advised for the traced reads; return the files, and the part."""
    with Service.open(Home(home)) as service:
        service.ingest()
        advice = service.advise(
            AdviceRequest(
                datasets=(NamedDataset(file=str(source), dataset="/d"),), budget_bytes=budget_bytes
            )
        )
        (layout,) = advice.portfolio.layouts
        if layout.shares.space == 1:
            raise AssertionError(f"no part was advised, but {layout.name}")
        print(f"{layout.reason}\n{layout.command}")
        request = ReorganizeRequest(
            file=str(source),
            dataset="/d",
            order=layout.layout.order,
            chunks=layout.layout.chunk_shape,
            region=str(layout.layout.region),
        )
        return [source, Path(service.reorganize(request).path)], layout.layout.region


def whole(home: Path, source: Path) -> list[Path]:
    """Build a replica of all in planes; return the files."""
    with Service.open(Home(home)) as service:
        request = ReorganizeRequest(file=str(source), dataset="/d", order=(2, 0, 1))
        return [source, Path(service.reorganize(request).path)]


def main() -> None:
    """Trace, advise, build, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40, help="planes that are timed")
    parser.add_argument("--extent", type=int, nargs=3, default=(256, 256, 1024))
    parser.add_argument("--directory", type=Path, help="where the files are made")
    arguments = parser.parse_args()
    x, y, z = arguments.extent
    workload = Workload(name="cube", extent=(x, y, z), series_axis=2)
    rng = np.random.default_rng(11)
    with tempfile.TemporaryDirectory(dir=arguments.directory) as made, ExitStack() as stack:
        directory = Path(made)
        source = directory / "cube.h5"
        write(source, workload, None)
        trace(directory / "home", source, texts_of(planes(rng, _N_TRACED, z)))
        with_part, part = advised(directory / "home", source, x * y * z * ITEM_BYTES // 4)
        with_whole = whole(directory / "home-whole", source)
        readers = [
            stack.enter_context(made)
            for made in (
                reader("h5py", [source], chunks=""),
                reader("part", with_part, home=directory / "home", chunks=""),
                reader("whole", with_whole, home=directory / "home-whole", chunks=""),
            )
        ]
        which = planes(rng, arguments.rounds, z)
        seconds = measure(readers, texts_of(which))
        low, high = part.start[2], part.start[2] + part.extent[2]
        inside = np.array([low <= k < high for k in which])
        space = [
            path.stat().st_size / source.stat().st_size for path in (with_part[1], with_whole[1])
        ]
        print(
            f"\n{len(which)} planes of {x} x {y}, {inside.mean():.0%} of them in the part; space "
            f"beside the original: {space[0]:.2f} and {space[1]:.2f} of it"
        )
        print("\n| | planes | h5py | part: times as fast | whole: times as fast |")
        print("|---|---|---|---|---|")
        for cold in (True, False):
            for name, rows in (("in the part", inside), ("elsewhere", ~inside)):
                if not rows.any():
                    continue
                alone, *others = seconds[cold][:, rows]
                cells = [
                    "{:.2f} ({:.2f} to {:.2f})".format(*bounds(alone / other)) for other in others
                ]
                print(
                    f"| {'cold' if cold else 'warm'} | {name} ({rows.sum()}) | "
                    f"{np.median(alone) * 1e3:.3g} ms | " + " | ".join(cells) + " |"
                )
            totals = seconds[cold].sum(axis=1)
            print(
                f"| {'cold' if cold else 'warm'} | all, time of all together | {totals[0]:.3g} s | "
                f"{totals[0] / totals[1]:.2f} | {totals[0] / totals[2]:.2f} |"
            )


if __name__ == "__main__":
    main()
