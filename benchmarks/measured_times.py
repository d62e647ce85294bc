"""Measured times of the patterns of Table I: on a mounted array of disks, or on a local disk.

Processes of their own read each pattern together, one run after another ("multiple": independent
reads, as in Liu 2014), from a file per layout, cold; the time is that of the slowest. Every time
measured is added to a file at once, so that measuring may be cut off at any point, and goes on
where it was. The time of a pattern in a layout is the median of its readings; layouts that lie so
near each other that it is not known whether one would lose by being selected are read again.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import statistics
import time
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.disk_array import DiskArray, mounted
from benchmarks.precedence import noting_stops, precedence, unstopped
from benchmarks.table1.evaluation import WITHIN, Observed
from benchmarks.table1.operation_features import ClientReads
from benchmarks.table1.protocol import (
    KINDS,
    Experiment,
    Pattern,
    draw_training,
)
from sds.calibration.reader_pool import Readers
from sds.calibration.scratch_file import evict, file_system_of
from sds.errors import SdsValueError
from sds.geometry import LOCAL_DISK_RAID, StripeLayout
from sds.machines.random_reads import draw_pattern, runs_in
from sds.recommender.models.model_selection import fitters_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from benchmarks.table1.evaluation import Judgement
    from sds.calibration.results import ReadRequest

MIB = 1 << 20
# Patterns of more runs than this in any layout are not drawn: each run is a request, and the
# experiment is to end. Of no model, and known before anything is measured.
MAX_RUNS = 4_096
MAX_RUNS_ON_DISK = 16_384
_MOST_DRAWS = 100_000
_SLAB_BYTES = 8 * MIB
# Reads whose times differ by more than this share of their median are read again, so often at most.
UNSETTLED = 0.1
MORE_ROUNDS = 4
# Layouts of which it is not known whether they lose more than `WITHIN` of the least time (by 95 %
# bootstrap bounds of the ratio of the medians) are read again, until so many times in all.
MOST_READINGS = 40
_DRAWS = 1_000
_BOUNDS = (0.025, 0.975)
# The mounted array's: nothing is cached, fetched ahead or shared.
UNCACHED_CLIENT = ClientReads(
    page_bytes=1, gap_bytes=0, window_bytes=1, processes_per_node=1, message_bytes=1
)
# The kernel's page cache: pages of 4 KiB, read ahead by 128 KiB, for all processes.
PAGE_CACHE_CLIENT = ClientReads(
    page_bytes=4096,
    gap_bytes=4096,
    window_bytes=128 << 10,
    processes_per_node=8,
    message_bytes=128 << 10,
)
# Patterns of each kind.
LIBRARY = 60
# 4 GiB; three layouts are three times as much.
DISK_EXTENT = (512, 512, 8192)
# What a disk that is written to must keep free.
KEEP_FREE_BYTES = 20 << 30


def array_experiment(n_training: int) -> Experiment:
    """Return the experiment on the mounted array: 128 MiB, 8 processes."""
    array = DiskArray()
    return Experiment(
        extent=(128, 128, 4096),
        n_processes=8,
        stripes=array.stripes,
        raid=array.raid,
        n_training=n_training,
    )


def disk_experiment(n_training: int, *, extent: tuple[int, int, int]) -> Experiment:
    """Return the experiment on a local disk, whose stripes are configured, not known."""
    return Experiment(
        extent=extent,
        n_processes=8,
        stripes=StripeLayout(stripe_size_bytes=MIB, stripe_count=1),
        raid=LOCAL_DISK_RAID,
        n_training=n_training,
    )


def measurable_library(
    seed: int, experiment: Experiment, n_each: int, *, max_runs: int = MAX_RUNS
) -> tuple[Pattern, ...]:
    """Return n different patterns of each kind that no layout cuts into more runs than a number.

    The first of a larger library are those of a smaller one.
    """
    library: dict[Pattern, None] = {}
    for kind in range(len(KINDS)):
        random = np.random.default_rng([seed, 2, kind])
        wanted = len(library) + n_each
        for _ in range(_MOST_DRAWS):
            pattern = draw_pattern(random, experiment.extent, experiment.n_processes, kind)
            if all(runs_in(pattern, o) <= max_runs for o in experiment.orders):
                library[pattern] = None
            if len(library) == wanted:
                break
        else:
            raise SdsValueError(
                f"an array of extent {experiment.extent} has fewer than {n_each} different "
                f"{KINDS[kind]} patterns of at most {max_runs} runs: ask for fewer"
            )
    return tuple(library)


@dataclass(slots=True)
class MeasuredTimes:
    """Times of patterns, read in `rounds` rounds and kept in a file.

    Attributes
    ----------
    label
        What the times are, in words.
    client
        How runs become fetches there.
    store
        One line of JSON per read: pattern, layout, seconds.
    """

    experiment: Experiment
    label: str
    store: Path
    rounds: int = 3
    client: ClientReads = UNCACHED_CLIENT
    seconds: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    observed: dict[Pattern, Observed] = field(default_factory=dict)

    @classmethod
    def opened(
        cls, experiment: Experiment, label: str, directory: Path, *, rounds: int = 3
    ) -> MeasuredTimes:
        """Return what was measured before of the same experiment."""
        key = hashlib.sha256(
            f"{label}{experiment.extent}{experiment.orders}{experiment.n_processes}"
            f"{experiment.stripes}{experiment.raid}".encode()
        )
        store = directory / f"table1-measured-{key.hexdigest()[:16]}.jsonl"
        times = cls(experiment, label, store, rounds=rounds)
        if store.exists():
            for line in store.read_text().splitlines():
                entry = json.loads(line)
                times._of(entry["pattern"], entry["layout"]).append(entry["seconds"])
        return times

    def _of(self, name: str, layout: int) -> list[float]:
        return self.seconds.setdefault((name, layout), [])

    def missing(self, library: Sequence[Pattern], turn: int) -> list[tuple[Pattern, int]]:
        """Return what was read less often than `turn` times and has to be, in an order drawn.

        Everything until `self.rounds`; then what differs by more than `UNSETTLED`, `MORE_ROUNDS`
        times more; then the layouts that are `undecided`, until `MOST_READINGS`.
        """
        random = np.random.default_rng(turn)
        n_layouts = len(self.experiment.orders)
        if turn <= self.rounds + MORE_ROUNDS:
            reads = [
                (p, i) for p in library for i in range(n_layouts) if self._is_wanted(p, i, turn)
            ]
        elif turn <= MOST_READINGS:
            reads = [(p, i) for p, i in self.undecided(library) if len(self._of(p.name, i)) < turn]
        else:
            reads = []
        return [reads[i] for i in random.permutation(len(reads))]

    def _is_wanted(self, pattern: Pattern, layout: int, turn: int) -> bool:
        taken = self._of(pattern.name, layout)
        if len(taken) < min(turn, self.rounds):
            return True
        # Something else kept the machine busy: the median of more.
        return len(taken) < turn and _spread(taken) > UNSETTLED

    def undecided(self, library: Sequence[Pattern]) -> list[tuple[Pattern, int]]:
        """Return the patterns and layouts that selections cannot be judged by; all were read."""
        random = np.random.default_rng(0)
        n_layouts = len(self.experiment.orders)
        return [
            (p, i)
            for p in library
            for i in undecided([self._of(p.name, j) for j in range(n_layouts)], random)
        ]

    def is_measured(self, library: Sequence[Pattern]) -> bool:
        """Return whether every pattern was read as often as wanted."""
        turns = (self.rounds + MORE_ROUNDS, MOST_READINGS)
        return not any(self.missing(library, turn) for turn in turns)

    def measure(self, files: Sequence[Path], library: Sequence[Pattern], *, until_s: float) -> None:
        """Read what is missing until `until_s` (time.monotonic()); files: one per layout."""
        self.store.parent.mkdir(parents=True, exist_ok=True)
        descriptors = [os.open(file, os.O_RDONLY) for file in files]
        try:
            with (
                self.store.open("a", buffering=1) as store,
                Readers(self.experiment.n_processes, directory=self.store.parent) as readers,
                noting_stops() as stopped,
            ):
                for turn in range(1, max(MOST_READINGS, self.rounds + MORE_ROUNDS) + 1):
                    for pattern, layout in self.missing(library, turn):
                        if time.monotonic() > until_s:
                            return
                        requests = list(self._requests(pattern, layout, files[layout]))
                        descriptor = descriptors[layout]
                        took = unstopped(
                            lambda requests=requests, fd=descriptor: readers.read(
                                requests, before=lambda: evict(fd)
                            ),
                            stopped,
                        )
                        self._of(pattern.name, layout).append(took)
                        entry = {"pattern": pattern.name, "layout": layout, "seconds": took}
                        store.write(json.dumps(entry) + "\n")
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _requests(self, pattern: Pattern, layout: int, file: Path) -> Iterator[ReadRequest]:
        order = self.experiment.orders[layout]
        reads = pattern.reads().permuted(order)
        for i in range(len(reads)):
            slab = reads[i]
            if 0 in slab.count:
                continue
            yield {
                "via": "engine",
                "file": str(file),
                "dataset": "",
                "data_offset_bytes": 0,
                "element_size_bytes": self.experiment.element_size_bytes,
                "strategy": "multiple",
                "extent": tuple(self.experiment.extent[axis] for axis in order),
                "start": slab.start,
                "stride": slab.stride,
                "count": slab.count,
            }

    def times(self, pattern: Pattern) -> tuple[float, ...]:
        """Return the median seconds of a pattern in each layout."""
        return tuple(
            statistics.median(self.seconds[pattern.name, i])
            for i in range(len(self.experiment.orders))
        )

    def observe(self, pattern: Pattern) -> Observed:
        """Return the times of a pattern, and what it touches."""
        from benchmarks.table1.simulator import measure  # noqa: PLC0415 - which imports this module

        if pattern not in self.observed:
            self.observed[pattern] = Observed(
                seconds=self.times(pattern),
                operations=tuple(
                    measure(pattern, self.experiment, order, self.client)
                    for order in self.experiment.orders
                ),
            )
        return self.observed[pattern]

    def repeated(self, patterns: Sequence[Pattern]) -> tuple[int, float]:
        """Return how well one reading of patterns predicts the others: no model can do much better.

        Returns
        -------
        In how many patterns the layout that was fastest in one reading loses at most `WITHIN` by
        the median of the others, and the share of reads within 20 % of that median.
        """
        right, near = 0, []
        for pattern in patterns:
            taken = [self.seconds[pattern.name, i] for i in range(len(self.experiment.orders))]
            others = [statistics.median(t[1:]) for t in taken]
            chosen = min(range(len(taken)), key=lambda i, t=taken: t[i][0])
            right += others[chosen] <= (1 + WITHIN) * min(others)
            near += [
                abs(math.log(t[0] / o)) <= math.log(1.2) for t, o in zip(taken, others, strict=True)
            ]
        return right, sum(near) / len(near)

    def spread(self, library: Sequence[Pattern]) -> float:
        """Return the median over reads of (longest - shortest) / median of their times."""
        rounds = [
            self.seconds[p.name, i] for p in library for i in range(len(self.experiment.orders))
        ]
        return statistics.median(_spread(r) for r in rounds)


def _spread(seconds: Sequence[float]) -> float:
    return (max(seconds) - min(seconds)) / statistics.median(seconds)


def undecided(readings: Sequence[Sequence[float]], random: np.random.Generator) -> list[int]:
    """Return the layouts that have to be read again before selections can be judged.

    Parameters
    ----------
    readings
        Seconds, of each layout.
    random
        Draws the bootstrap.

    Returns
    -------
    Those whose time over that of the fastest is not known to be above or below 1 + `WITHIN`, and
    the fastest with them. One that is for certain as fast is decided: both are right.
    """
    medians = [statistics.median(taken) for taken in readings]
    best = min(range(len(medians)), key=lambda i: medians[i])
    drawn = [_medians_drawn(taken, random) for taken in readings]
    found = set()
    for i in range(len(readings)):
        low, high = np.quantile(drawn[i] / drawn[best], _BOUNDS)
        if i != best and (low < 1 / (1 + WITHIN) or low < 1 + WITHIN < high):
            found |= {best, i}
    return sorted(found)


def _medians_drawn(seconds: Sequence[float], random: np.random.Generator) -> NDArray[np.float64]:
    """Return the medians of readings drawn with replacement."""
    taken = np.asarray(seconds, dtype=np.float64)
    drawn: NDArray[np.float64] = np.median(
        taken[random.integers(0, len(taken), (_DRAWS, len(taken)))], axis=1
    )
    return drawn


@contextmanager
def array_files(experiment: Experiment) -> Iterator[list[Path]]:
    """Mount the array, and give one file per layout in it.

    They hold nothing: the array waits for its disks whatever the bytes are.
    """
    size = math.prod(experiment.extent) * experiment.element_size_bytes
    with mounted(DiskArray()) as mount:
        files = [mount / f"layout-{i}" for i in range(len(experiment.orders))]
        for file in files:
            with file.open("wb") as out:
                out.truncate(size)
        yield files


@contextmanager
def disk_files(experiment: Experiment, directory: Path, *, keep: bool) -> Iterator[list[Path]]:
    """Write one file per layout, of random bytes, unless they are there; remove them after.

    Raises
    ------
    OSError
        If the disk would be left with less than `KEEP_FREE_BYTES`.
    """
    size = math.prod(experiment.extent) * experiment.element_size_bytes
    files = [directory / f"table1-layout-{i}" for i in range(len(experiment.orders))]
    missing = [f for f in files if not f.exists() or f.stat().st_size != size]
    free = shutil.disk_usage(directory).free
    if missing and free - len(missing) * size < KEEP_FREE_BYTES:
        raise OSError(
            f"{directory} has {free >> 30} GiB free; {len(missing)} files of {size >> 20} MiB "
            f"would leave less than {KEEP_FREE_BYTES >> 30} GiB: give a smaller --extent"
        )
    random = np.random.default_rng(1)
    slab = random.integers(0, 256, _SLAB_BYTES, dtype=np.uint8)
    try:
        for file in missing:
            with file.open("wb") as out:
                for at in range(0, size, _SLAB_BYTES):
                    slab[::4096] += 1  # no two slabs alike
                    out.write(slab[: min(_SLAB_BYTES, size - at)].data)
                out.flush()
                os.fsync(out.fileno())
                os.posix_fadvise(out.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        yield files
    finally:
        if not keep:
            for file in files:
                file.unlink(missing_ok=True)


def describe(directory: Path) -> str:
    """Return which file system a directory is on."""
    system = file_system_of(directory)
    return f"{system.kind} at {system.mount_point} ({system.source})"


def _judged(
    times: MeasuredTimes,
    seeds: Sequence[int],
    library: Sequence[Pattern],
    arguments: argparse.Namespace,
) -> list[Judgement]:
    """Return how all models did, and say how well the times repeat."""
    from benchmarks.fitted_machine import (  # noqa: PLC0415 - see observe
        Simulated,
        array_machine,
        disk_machine,
    )
    from benchmarks.table1.report import run_seed  # noqa: PLC0415

    judgements = []
    start = (
        array_machine(DiskArray(), n_processes=times.experiment.n_processes)
        if arguments.where == "array"
        else disk_machine(times.experiment.stripes)
    )
    for seed in seeds:
        others = []
        if arguments.simulated:
            training = draw_training(seed, times.experiment, library)
            others = [Simulated.fitted(times, training, start)]
            print(f"seed {seed}: {others[0].machine}", flush=True)
        judgements.append(
            run_seed(times, seed, library, arguments.confidence, fitters_of(), others=others)
        )
    if times.rounds > 1:
        again = [times.repeated(judgement.draw.tests) for judgement in judgements]
        print(
            f"Of reading everything once more: right within {WITHIN:.0%} in "
            f"{statistics.median(right for right, _ in again):g} of {len(judgements[0].draw.tests)}"
            f" tests (median; least {min(right for right, _ in again)}), "
            f"{statistics.mean(near for _, near in again):.0%} of reads within 20 %"
        )
    return judgements


def report(arguments: argparse.Namespace, seeds: Sequence[int]) -> list[Judgement]:
    """Measure what is missing, judge models by it, and print how they did."""
    from benchmarks.table1.report import print_models, print_tests  # noqa: PLC0415 - see observe

    if arguments.where == "array":
        experiment = array_experiment(arguments.training)
        label = f"on a mounted array of emulated disks ({DiskArray()})"
        files, client = array_files(experiment), UNCACHED_CLIENT
        max_runs = MAX_RUNS
    else:
        extent = tuple(arguments.extent or DISK_EXTENT)
        experiment = disk_experiment(arguments.training, extent=(extent[0], extent[1], extent[2]))
        label = f"on a disk: {describe(arguments.directory)}, striping as configured"
        files = disk_files(experiment, arguments.directory, keep=arguments.keep)
        client = PAGE_CACHE_CLIENT
        max_runs = MAX_RUNS_ON_DISK
    library = measurable_library(
        arguments.library_seed, experiment, arguments.library or LIBRARY, max_runs=max_runs
    )
    times = MeasuredTimes.opened(experiment, label, arguments.cache, rounds=arguments.rounds)
    times.client = client
    limit_s = math.inf if arguments.measure_for is None else arguments.measure_for
    if limit_s > 0 and not times.is_measured(library):  # files may be large, and are written first
        with precedence() if arguments.precedence else nullcontext(), files as made:
            times.measure(made, library, until_s=time.monotonic() + limit_s)
    print(
        f"Measured times {label}.\nArray {experiment.extent} of {experiment.element_size_bytes} "
        f"bytes, {experiment.n_processes} processes, each run a request; cold. Patterns of at most "
        f"{max_runs} runs.\nPatterns are drawn from a library of {len(library)} that is measured "
        f"once, {arguments.rounds} times each, up to {MORE_ROUNDS} times more where they differ by "
        f"over {UNSETTLED:.0%}, and up to {MOST_READINGS} times in all where it is not known which "
        f"layouts are right (library seed {arguments.library_seed}): seeds share patterns."
    )
    missing = times.missing(library, 1)
    if missing:
        print(f"{len(missing)} reads are not measured yet: run again; what was is kept")
        return []
    differ = (
        f"differ by {times.spread(library):.1%} (longest less shortest, over the median; median of "
        "all)"
        if times.rounds > 1
        else "were measured once: how far they differ is not known"
    )
    print(f"Times of one read {differ}. Kept in {times.store}")
    if arguments.rounds > 1:
        n_undecided = len({pattern for pattern, _ in times.undecided(library)})
        print(f"Of {n_undecided} patterns it is not known for certain which layouts are right.")
    judgements = _judged(times, seeds, library, arguments)
    if len(judgements) <= 3:
        for judgement in judgements:
            print_tests(judgement, "measured")
    print_models(judgements, "measured")
    for model in judgements[0].models:
        errors = [
            abs(math.log(predicted / measured))
            for judgement in judgements
            for found in judgement.models
            if found.name == model.name
            for selection in found.selections
            for predicted, measured in zip(selection.predicted_s, selection.measured_s, strict=True)
        ]
        if errors:
            share = sum(error <= math.log(1.2) for error in errors) / len(errors)
            print(f"{model.name}: {share:.0%} predicted within 20 % of measured")
    return judgements
