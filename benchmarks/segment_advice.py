"""Replicas of segments: traced, advised within a budget, built, and measured.

``python -m benchmarks.segment_advice [--rounds N] [--only NAME] [--directory DIR]``. Two datasets
of float32 are read by h5py at places all over them, again and again: *stations*, the series of 200
cells of a (time, lat, lon) grid, in the same order in every run but for one in ten, which is
another cell; and *views* of a stack of images, each around one of 40 places and never twice the
same (Zhang 2009: zooming). Some runs under ``sds run`` are traced and ingested; ``sds advise`` gets
a tenth of the dataset's size as its budget; what it advises is built. Then reads that are drawn
likewise, from another seed, are timed: by h5py alone and under the connector, in turns, cold
(dropped from the page cache, not mapped) and warm. Ratios are to h5py alone at the same read;
median and 95 % bootstrap bounds.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks._traced_runs import measure, trace
from benchmarks.chunk_advice import ITEM_BYTES, MIB, Workload, bounds, reader, write
from sds.catalog.requests import ReorganizeRequest
from sds.geometry import SegmentList, parse_selection
from sds.home import Home
from sds.server.operations.advice_reports import AdviceRequest, NamedDataset
from sds.server.operations.service import Service

_N_RUNS = 4
_BUDGET_SHARE = 0.1
_PLACES = np.random.default_rng(5)
_STATIONS = [(int(_PLACES.integers(180)), int(_PLACES.integers(360))) for _ in range(200)]
_FOCI = [[int(_PLACES.integers(n)) for n in (32, 2048 - 160, 2048 - 288)] for _ in range(40)]


def stations(rng: np.random.Generator) -> list[str]:
    """Return the series that one run reads: one in ten elsewhere."""
    return [
        f"[:, {rng.integers(180)}, {rng.integers(360)}]" if rng.random() < 0.1 else f"[:, {i}, {j}]"
        for i, j in _STATIONS
    ]


def views(rng: np.random.Generator) -> list[str]:
    """Return what one run looks at: five views of 128 x 256 near each place, moved a little."""
    found = []
    for focus in rng.permutation(len(_FOCI)):
        image, row, column = _FOCI[focus]
        for _ in range(5):
            i, j = row + int(rng.integers(32)), column + int(rng.integers(32))
            found.append(f"[{image}, {i}:{i + 128}, {j}:{j + 256}]")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A dataset, and what a run reads of it."""

    workload: Workload
    draw: Callable[[np.random.Generator], list[str]]


CASES = (
    Case(workload=Workload(name="stations", extent=(1460, 180, 360), series_axis=0), draw=stations),
    Case(workload=Workload(name="views", extent=(32, 2048, 2048), series_axis=0), draw=views),
)


def build_advised(home: Path, source: Path, budget_bytes: int) -> tuple[list[Path], SegmentList]:
    """Build what is advised for the traced reads; return the files, and the segments."""
    with Service.open(Home(home)) as service:
        service.ingest()
        advice = service.advise(
            AdviceRequest(
                datasets=(NamedDataset(file=str(source), dataset="/d"),), budget_bytes=budget_bytes
            )
        )
        (layout,) = advice.portfolio.layouts
        segments = layout.layout.segments
        if segments is None:
            raise AssertionError(f"no segments were advised, but {layout.name}")
        print(f"{layout.reason}\n{layout.command}\n")
        request = ReorganizeRequest(
            file=str(source), dataset="/d", order=layout.layout.order, segments=segments
        )
        return [source, Path(service.reorganize(request).path)], segments


def run(case: Case, rounds: int, directory: Path) -> None:
    """Trace, advise, build and measure one dataset."""
    extent = case.workload.extent
    size_bytes = math.prod(extent) * ITEM_BYTES
    shape = ", ".join(map(str, extent))
    print(f"### {case.workload.name} ({shape}) float32, {size_bytes / MIB:.0f} MiB\n", flush=True)
    source, home = directory / "source.h5", directory / "home"
    write(source, case.workload, None)
    rng = np.random.default_rng(11)
    for _ in range(_N_RUNS):
        trace(home, source, case.draw(rng))
    paths, segments = build_advised(home, source, int(size_bytes * _BUDGET_SHARE))
    texts = rng.choice(case.draw(rng), rounds, replace=False).tolist()
    held = np.array([segments.holds(parse_selection(text, extent), extent) for text in texts])
    with ExitStack() as stack:
        readers = [
            stack.enter_context(each)
            for each in (
                reader("h5py", [source], chunks=""),
                reader("segments", paths, home=home, chunks=""),
            )
        ]
        seconds = measure(readers, texts)
    space = paths[1].stat().st_size / source.stat().st_size
    print(
        f"{rounds} reads, {held.mean():.0%} of them in segments, which take {space:.1%} of the "
        "space of the original\n"
    )
    print("| cache | reads | h5py alone | with segments: times as fast |")
    print("|---|---|---|---|")
    for cold in (True, False):
        state = "cold" if cold else "warm"
        for name, rows in (("in segments", held), ("elsewhere", ~held)):
            if not rows.any():
                continue
            alone, served = seconds[cold][:, rows]
            cell = "{:.2f} ({:.2f} to {:.2f})".format(*bounds(alone / served))
            took = np.median(alone) * 1e3
            print(f"| {state} | {rows.sum()} {name} | {took:.3g} ms | {cell} |")
        totals = seconds[cold].sum(axis=1)
        print(f"| {state} | all, their sum | {totals[0]:.3g} s | {totals[0] / totals[1]:.2f} |")
    print(flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60, help="reads that are timed; 60")
    parser.add_argument("--only", choices=[case.workload.name for case in CASES])
    parser.add_argument("--directory", type=Path, help="where the files are made")
    arguments = parser.parse_args()
    for case in CASES:
        if arguments.only not in {None, case.workload.name}:
            continue
        with tempfile.TemporaryDirectory(dir=arguments.directory) as made:
            run(case, arguments.rounds, Path(made))


if __name__ == "__main__":
    main()
