"""Days of a site in minutes: what programs read changes, and mode auto follows.

``python -m benchmarks.site_days [--datasets N] [--programs N] [--days N] [--mib N] [--seed S]``.

A day takes as long as a round here: `DAY_S` is set to it, so that reads a day, `recent_days` and
the day for which nothing is built again mean what they mean in use. Each program runs once a day
and reads two datasets, warm, planes or lines across some axis; what it reads changes after a third
and after two thirds of the days. Replicas may take a fifth of what the datasets take. Compared are

- ``nothing``: the programs run natively;
- ``first come``: mode auto, every replica pinned as soon as it is built;
- ``auto``: mode auto;
- ``all known``: before each third, what `sds advise` advises after a day of it is built, in a home
  of its own and in no time, within the same space: no policy knows so much.

Seconds are those of the reads alone, of all days. Builds are made between the programs' runs.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sds.text

DAY_S = 25.0
sds.text.DAY_S = DAY_S  # before anything else imports it

import h5py  # noqa: E402
import numpy as np  # noqa: E402

from benchmarks.read_engine import load  # noqa: E402
from sds.errors import SdsError  # noqa: E402
from sds.home import Home  # noqa: E402
from sds.server.operations.advice_reports import AdviceRequest, NamedDataset  # noqa: E402
from sds.server.operations.evaluation.evaluator import build_request  # noqa: E402
from sds.server.operations.service import Service  # noqa: E402
from sds.server.settings import Settings  # noqa: E402
from tests.redirected import settle  # noqa: E402
from tests.under_connector import ROOT, connector_environment, native_environment  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Sequence

THIRDS = 3
SHARE_OF_SPACE = 0.2
RECENT_DAYS = 2.0
PROGRAM = """
import json, sys, time
import h5py
taken = {}
for path, selections in json.loads(sys.stdin.read()):
    with h5py.File(path) as file:
        data = file["d"]
        for axes in selections:
            index = tuple(slice(*axis) for axis in axes)
            begin = time.perf_counter()
            data[index]
            taken[path] = taken.get(path, 0.0) + time.perf_counter() - begin
print(json.dumps(taken))
"""

Selections = list[tuple[tuple[int, int], ...]]


@dataclass(frozen=True)
class Site:
    """Files, and what each program reads of them in each third: (file, selections)."""

    files: tuple[Path, ...]
    size_bytes: int
    reads: tuple[tuple[list[tuple[str, Selections]], ...], ...]  # by third, by program

    @classmethod
    def make(cls, place: Path, given: argparse.Namespace) -> Site:
        """Write the files and draw the programs."""
        rng = random.Random(given.seed)  # noqa: S311
        files, shapes = [], []
        for i in range(given.datasets):
            logs = [rng.uniform(0.7, 1.3) for _ in range(3)]
            total = (given.mib << 18) ** (1 / sum(logs))
            shapes.append(tuple(max(8, round(total**x)) for x in logs))
            files.append(place / f"{i}.h5")
            _write(files[-1], shapes[-1], i)

        def drawn(_: int) -> list[tuple[str, Selections]]:
            return [
                (str(files[i]), _selections(rng, shapes[i]))
                for i in rng.sample(range(given.datasets), 2)
            ]

        return cls(
            files=tuple(files),
            size_bytes=sum(4 * int(np.prod(shape)) for shape in shapes),
            reads=tuple(tuple(map(drawn, range(given.programs))) for _ in range(THIRDS)),
        )


def _write(path: Path, shape: tuple[int, ...], i: int) -> None:
    """Write a dataset: every other one in gzip chunks, a plane of the first axis each."""
    filters = {"chunks": (1, *shape[1:]), "compression": "gzip", "shuffle": True} if i % 2 else {}
    values = np.random.default_rng(i).integers(0, 200, shape).astype("f4")
    with h5py.File(path, "w") as file:
        file.create_dataset("d", data=values, **filters)
    settle(path)


def _selections(rng: random.Random, shape: tuple[int, ...]) -> Selections:
    """Draw planes that fix the second or third axis, or lines along the first."""
    axis = rng.choice((0, 1, 2))
    found: Selections = []
    for _ in range(rng.choice((10, 20, 30))):
        at = [rng.randrange(n) for n in shape]
        if axis:
            found.append(
                tuple((k, k + 1) if a == axis else (0, shape[a]) for a, k in enumerate(at))
            )
        else:
            found.append(tuple((0, shape[0]) if not a else (k, k + 1) for a, k in enumerate(at)))
    return found


Times = dict[str, float]


def run(reads: list[tuple[str, Selections]], environment: dict[str, str]) -> Times:
    """Return the seconds of a program's reads of each file, in a new process."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], input=json.dumps(reads), env=environment, cwd=ROOT,
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    found: Times = json.loads(done.stdout)
    return found


def added(all_: Sequence[Times]) -> Times:
    """Return the sum of times, by file."""
    total: dict[str, float] = defaultdict(float)
    for times in all_:
        for file, seconds in times.items():
            total[file] += seconds
    return total


def of_median_day(site: Site, environments: Sequence[dict[str, str]], n_days: int) -> Times:
    """Return what all days take by the median of three days of each third."""
    found = []
    for third, programs in enumerate(site.reads):
        for reads in programs:
            runs = [run(reads, environments[third]) for _ in range(3)]
            days = len(_days_of(third, n_days))
            found.append({f: days * statistics.median(one[f] for one in runs) for f in runs[0]})
    return added(found)


def _days_of(third: int, n_days: int) -> range:
    return range(third * n_days // THIRDS, (third + 1) * n_days // THIRDS)


def all_known(site: Site, place: Path, budget: int, n_days: int) -> Times:
    """Return what all days take where each third is known before it begins."""
    environments = []
    for third, programs in enumerate(site.reads):
        home = Home(place / f"known-{third}")
        home.create()
        environment = connector_environment(home.root)
        for reads in programs:
            run(reads, environment)
        with Service.open(home, Settings(replica_budget_bytes=budget)) as service:
            service.ingest()
            names = [NamedDataset(file=str(file)) for file in _read(programs)]
            portfolio = service.advise(AdviceRequest(datasets=tuple(names))).portfolio
            records = {f"{one.file}:{one.path}": one for one in service.datasets()}
            for layout in portfolio.layouts:
                request = build_request(layout, records[layout.target])
                at_once = replace(request, shadow=False, pinned=True)
                service.perform(at_once, lambda *_: None)
        environments.append(connector_environment(home.root, SDS_TRACE="0"))
    return of_median_day(site, environments, n_days)


def _read(programs: Sequence[list[tuple[str, Selections]]]) -> list[str]:
    return sorted({file for reads in programs for file, _ in reads})


def by_itself(
    site: Site, home: Home, budget: int, given: argparse.Namespace, *, pins: bool
) -> tuple[Times, dict[str, Any]]:
    """Return what all days take in mode auto, and what was built and removed."""
    home.create()
    environment = connector_environment(home.root)
    settings = Settings(
        mode="auto", quiet_source_s=0, replica_budget_bytes=budget, recent_days=RECENT_DAYS
    )
    times: list[Times] = []
    longest_s = build_s = 0.0
    failed = 0
    with Service.open(home, settings) as service:
        for day in range(given.days):
            begin_s = time.monotonic()
            third = next(t for t in range(THIRDS) if day in _days_of(t, given.days))
            of_day = []
            for reads in site.reads[third]:
                of_day.append(run(reads, environment))
                service.ingest()
            times += of_day
            for _ in range(3):
                service.evaluate()
                while (job := service.queue.claim()) is not None:
                    try:
                        record = service.perform(job.request, lambda *_: None)
                    except SdsError as error:  # as the server's worker
                        service.queue.fail(job.id, error)
                        failed += 1
                        continue
                    service.queue.finish(job.id, {})
                    build_s += record.build_s or 0.0
                    if pins:
                        service.pin(record.id)
            took_s = time.monotonic() - begin_s
            longest_s = max(longest_s, took_s)
            print(
                f"  day {day + 1}: reads {sum(added(of_day).values()):.2f} s, day {took_s:.1f} s, "
                f"{len(service.replicas())} replicas",
                file=sys.stderr,
            )
            time.sleep(max(0.0, DAY_S - took_s))
        records = service.replicas(all_states=True)
    layouts = [(one.file, str(one.layout)) for one in records]
    return added(times), {
        "replicas": len(records),
        "reverted": sum(one.state == "reverted" for one in records),
        "removed": sum(one.reason.startswith(("room for", "it served")) for one in records),
        "built again": len(layouts) - len(set(layouts)),
        "failed": failed,
        "build": f"{build_s:.1f} s",
        "longest day": f"{longest_s:.1f} s",
    }


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.site_days")
    parser.add_argument("--datasets", type=int, default=40)
    parser.add_argument("--programs", type=int, default=20)
    parser.add_argument("--days", type=int, default=24)
    parser.add_argument("--mib", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sds-bench-") as name:
        place = Path(name)
        site = Site.make(place, given)
        budget = int(SHARE_OF_SPACE * site.size_bytes)
        for file in site.files:
            load(file)
        took: dict[str, Times] = {}
        notes: dict[str, dict[str, Any]] = {}
        took["nothing"] = of_median_day(site, [native_environment()] * THIRDS, given.days)
        took["all known"] = all_known(site, place, budget, given.days)
        for what, pins in (("first come", True), ("auto", False)):
            home = Home(place / what.replace(" ", "-"))
            took[what], notes[what] = by_itself(site, home, budget, given, pins=pins)
    print_table(took, notes)


def print_table(took: dict[str, Times], notes: dict[str, dict[str, Any]]) -> None:
    """Print the times, what was saved of what could be, and the dataset that lost most."""
    total = {what: sum(times.values()) for what, times in took.items()}
    could = total["nothing"] - total["all known"]
    columns = ("replicas", "reverted", "removed", "built again", "failed", "build", "longest day")
    print("| | reads | saved, of all known | slowest dataset | " + " | ".join(columns) + " |")
    print("|" + "---|" * (4 + len(columns)))
    for what in ("nothing", "first come", "auto", "all known"):
        worst = max(took[what][f] / took["nothing"][f] for f in took["nothing"])
        saved = (total["nothing"] - total[what]) / could
        extra = " | ".join(str(notes.get(what, {}).get(column, "")) for column in columns)
        print(f"| {what} | {total[what]:.1f} s | {saved:.0%} | {worst:.2f} | {extra} |")


if __name__ == "__main__":
    main()
