"""A month of a site, simulated: mode auto against first come, and against all known.

``python -m benchmarks.site_month [--datasets N] [--programs N] [--days N] [--kib N] [--seed S]``.

No time is measured. What decides is the server's own code: advice and its gates, shadow tests,
evictions, and the tables by which programs choose, for replicas that it builds of small files. The
time of each read is that of `sds.simulator` on Hopper's file system in the order of axes that the
table chooses (parts and chunks count as whole, contiguous arrays), cold, with chance of 30 %
(lognormal); each is traced so. Days pass by a clock of its own.

Each program runs once a day and reads two datasets, planes or lines across some axis; what it reads
changes after a third and after two thirds of the days. Replicas may take a fifth of what the
datasets take. Compared are ``nothing``, ``first come``, ``auto`` and ``all known``, as by
`benchmarks.site_days`.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from sds import _native, _spool_writer
from sds.errors import NotFoundError, SdsError
from sds.geometry import Hyperslab
from sds.home import Home
from sds.redirect.tables import read_table
from sds.server.operations.advice_reports import AdviceRequest, NamedDataset
from sds.server.operations.evaluation.evaluator import build_request
from sds.server.operations.service import Service
from sds.server.settings import Settings
from sds.simulator.operation import Operation
from sds.simulator.parameters import hopper
from sds.simulator.simulation import simulate
from sds.text import DAY_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sds.redirect.tables import TableCandidate

THIRDS = 3
SHARE_OF_SPACE = 0.2
NOISE = 0.3
_pids = itertools.count(2**22 + 1)


class Clock:
    """The time of the simulated site, in the place of this process's."""

    def __init__(self) -> None:
        self.now_ns = time.time_ns()
        time.time_ns = lambda: self.now_ns
        time.time = lambda: self.now_ns * 1e-9

    def pass_days(self, days: float) -> None:
        """Let time pass."""
        self.now_ns += int(days * DAY_S * 1e9)


@dataclass(frozen=True)
class Reads:
    """Reads of one file by one program on a day, all of one shape."""

    file: str
    shape: tuple[int, ...]
    count: tuple[int, ...]
    starts: tuple[tuple[int, ...], ...]


Site = list[list[list[Reads]]]  # by third, by program


def make_site(place: Path, given: argparse.Namespace) -> tuple[Site, int]:
    """Write the files and draw the programs; return them, and what the files take."""
    rng = random.Random(given.seed)  # noqa: S311
    files = []
    for i in range(given.datasets):
        logs = [rng.uniform(0.7, 1.3) for _ in range(3)]
        total = (given.kib << 8) ** (1 / sum(logs))
        shape = tuple(max(8, round(total**x)) for x in logs)
        path = place / f"{i}.h5"
        with h5py.File(path, "w") as file:
            file["d"] = np.zeros(shape, "<f4")
        files.append((str(path), shape))

    def drawn() -> list[Reads]:
        return [_reads(rng, *files[i]) for i in rng.sample(range(given.datasets), 2)]

    site = [[drawn() for _ in range(given.programs)] for _ in range(THIRDS)]
    return site, sum(4 * int(np.prod(shape)) for _, shape in files)


def _reads(rng: random.Random, file: str, shape: tuple[int, ...]) -> Reads:
    """Draw planes that fix the second or third axis, or lines along the first."""
    axis = rng.choice((0, 1, 2))
    count = tuple(
        (1 if a == axis else n) if axis else (n if not a else 1) for a, n in enumerate(shape)
    )
    starts = tuple(
        tuple(rng.randrange(n - c + 1) for n, c in zip(shape, count, strict=True))
        for _ in range(rng.choice((10, 20, 30)))
    )
    return Reads(file, shape, count, starts)


@cache
def simulated_s(
    shape: tuple[int, ...], count: tuple[int, ...], start: tuple[int, ...], order: tuple[int, ...]
) -> float:
    """Return how long a read takes of the array stored in an order of axes, seconds."""
    ones = (1,) * len(shape)
    slab = Hyperslab(start=start, stride=ones, count=count, block=ones)
    operation = Operation.of(shape, [slab], element_size_bytes=4)
    return simulate(operation.stored_as(order), hopper()).seconds


def layout_s(reads: Reads, start: tuple[int, ...], candidate: TableCandidate | None) -> float:
    """Return how long a read takes in what serves it, by its order of axes alone."""
    order = tuple(range(len(reads.shape))) if candidate is None else tuple(candidate.order)
    return simulated_s(reads.shape, reads.count, start, order)


def serving(home: Home, reads: Reads) -> list[TableCandidate | None]:
    """Return what the file's table chooses for each read, as the connector does.

    Replicas in shadow are chosen as others: the caller deals their reads.
    """
    try:
        table = read_table(home, reads.file)
    except NotFoundError:
        return [None] * len(reads.starts)
    (dataset,) = table.datasets
    as_active = tuple(replace(one, shadow_permille=1000) for one in dataset.candidates)
    alone = replace(table, datasets=(replace(dataset, candidates=as_active),))
    ones = (1,) * len(reads.shape)
    native = _native.TableEntry(alone.to_bytes())
    numbers = [
        native.choose(start, ones, reads.count, ones, None, None)[0] for start in reads.starts
    ]
    return [None if number is None else dataset.candidates[number] for number in numbers]


def run(home: Home, clock: Clock, reads: Reads, rng: random.Random) -> float:
    """Trace a program's reads of a file, and return their seconds."""
    writer = _spool_writer.SpoolWriter(
        home.spool, pid=next(_pids), start_ns=1_000, host=os.uname().nodename,
        executable="/usr/bin/simulated",
    )  # fmt: skip
    with h5py.File(reads.file) as file:
        offset = file["d"].id.get_offset()
    dataset = writer.add_dataset(
        file=reads.file, path="/d", identity=_native.identity(reads.file), extent=reads.shape,
        element_bytes=4, type_class=1, storage=1, data_offset_bytes=offset, hdf5_version="2.0.0",
    )  # fmt: skip
    total_s = 0.0
    for i, (start, candidate) in enumerate(zip(reads.starts, serving(home, reads), strict=True)):
        serves, left_by = candidate, 0
        if candidate is not None and 1000 * rng.random() >= candidate.shadow_permille:
            serves, left_by = None, candidate.replica_id
        took_s = layout_s(reads, start, serves) * rng.lognormvariate(0, NOISE)
        total_s += took_s
        writer.add_reads(
            dataset, start=np.array([start]), stride=[1] * 3, count=list(reads.count),
            block=[1] * 3, start_ns=np.array([clock.now_ns + i * 1_000_000_000]),
            elapsed_ns=np.array([int(took_s * 1e9)]), n_elements=int(np.prod(reads.count)),
            served_by=(0 if serves is None else serves.replica_id) + (left_by << 32),
        )  # fmt: skip
    writer.close()
    return total_s


def by_itself(
    site: Site, home: Home, clock: Clock, budget: int, days: int, *, pins: bool
) -> tuple[float, dict[str, Any]]:
    """Return what all days take in mode auto, and what was built and removed."""
    home.create()
    settings = Settings(mode="auto", quiet_source_s=0, replica_budget_bytes=budget)
    rng = random.Random(1)  # noqa: S311
    total_s = 0.0
    with Service.open(home, settings) as service:
        for day in range(days):
            of_day_s = 0.0
            for program in site[day * THIRDS // days]:
                of_day_s += sum(run(home, clock, reads, rng) for reads in program)
                clock.pass_days(0.9 / len(site[0]))
            total_s += of_day_s
            service.ingest()
            for _ in range(3):
                evaluated = service.evaluate()
                if evaluated is None or not evaluated.jobs:
                    break
                while (job := service.queue.claim()) is not None:
                    try:
                        record = service.perform(job.request, lambda *_: None)
                    except SdsError as error:  # as the server's worker
                        service.queue.fail(job.id, error)
                        continue
                    service.queue.finish(job.id, {})
                    if pins:
                        service.pin(record.id)
            clock.pass_days(0.1)
            replicas = service.replicas()
            n_in_shadow = sum(one.state == "shadow" for one in replicas)
            at_most_s = seconds_of(site[day * THIRDS // days], home)
            print(
                f"  day {day + 1}: reads {of_day_s:.1f} s, from now on {at_most_s:.1f} s at least; "
                f"{len(replicas)} replicas, {n_in_shadow} of them in shadow",
                file=sys.stderr,
            )
        records = service.replicas(all_states=True)
    layouts = [(one.file, str(one.layout)) for one in records]
    return total_s, {
        "replicas": len(records),
        "reverted": sum(one.state == "reverted" for one in records),
        "removed": sum(one.reason.startswith(("room for", "it served")) for one in records),
        "built again": len(layouts) - len(set(layouts)),
    }


def all_known(site: Site, place: Path, clock: Clock, budget: int, days: int) -> float:
    """Return what all days take where each third is known before it begins."""
    rng = random.Random(2)  # noqa: S311
    total_s = 0.0
    for third, programs in enumerate(site):
        home = Home(place / f"known-{third}")
        home.create()
        for program in programs:
            for reads in program:
                run(home, clock, reads, rng)
        clock.pass_days(1)
        with Service.open(home, Settings(replica_budget_bytes=budget)) as service:
            service.ingest()
            files = sorted({reads.file for program in programs for reads in program})
            names = tuple(NamedDataset(file=file) for file in files)
            portfolio = service.advise(AdviceRequest(datasets=names)).portfolio
            records = {f"{one.file}:{one.path}": one for one in service.datasets()}
            for layout in portfolio.layouts:
                request = build_request(layout, records[layout.target])
                service.perform(replace(request, shadow=False, pinned=True), lambda *_: None)
        n_days = len([day for day in range(days) if day * THIRDS // days == third])
        of_day_s = seconds_of(programs, home)
        print(f"  third {third + 1}: reads {of_day_s:.1f} s a day", file=sys.stderr)
        total_s += n_days * of_day_s
    return total_s


def seconds_of(programs: Sequence[Sequence[Reads]], home: Home | None) -> float:
    """Return what the programs of a day take, beside the replicas of a home; None: of none."""
    total_s = 0.0
    for program in programs:
        for reads in program:
            chosen = [None] * len(reads.starts) if home is None else serving(home, reads)
            total_s += sum(map(partial(layout_s, reads), reads.starts, chosen))
    return total_s


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.site_month")
    parser.add_argument("--datasets", type=int, default=200)
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--kib", type=int, default=4096)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    clock = Clock()
    with tempfile.TemporaryDirectory(prefix="sds-bench-") as name:
        place = Path(name)
        site, size = make_site(place, given)
        clock.pass_days(1)
        budget = int(SHARE_OF_SPACE * size)
        days = given.days
        nothing_s = sum(seconds_of(site[day * THIRDS // days], None) for day in range(days))
        took: dict[str, tuple[float, dict[str, Any]]] = {"nothing": (nothing_s, {})}
        for what, pins in (("first come", True), ("auto", False)):
            home = Home(place / what.replace(" ", "-"))
            took[what] = by_itself(site, home, clock, budget, days, pins=pins)
        took["all known"] = all_known(site, place, clock, budget, days), {}
    print_table(took)


def print_table(took: dict[str, tuple[float, dict[str, Any]]]) -> None:
    """Print simulated times and what was saved of what could be."""
    could = took["nothing"][0] - took["all known"][0]
    columns = ("replicas", "reverted", "removed", "built again")
    print("| simulated | reads | saved, of all known | " + " | ".join(columns) + " |")
    print("|" + "---|" * (3 + len(columns)))
    for what, (seconds, notes) in took.items():
        saved = f"{(took['nothing'][0] - seconds) / could:.0%}" if could > 0 else "-"
        extra = " | ".join(str(notes.get(column, "")) for column in columns)
        print(f"| {what} | {seconds:.1f} s | {saved} | {extra} |")


if __name__ == "__main__":
    main()
