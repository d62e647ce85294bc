"""Models made wrong on purpose: what mode auto builds by them is reverted where it does not help.

``python -m benchmarks.wrong_models [--cases N] [--seed S] [--mib N]``. The file system is
calibrated once. In each case the models are then made wrong by a factor of 3 to 30 (replicas look
faster, or originals slower, than they are; or cold and warm swapped), a file and a program are
drawn as `benchmarks.advice_quality` does, and the program runs again and again in mode auto, in
the cache state drawn, until nothing is in shadow any more. Then it runs beside what is left and
beside nothing, in turns; from memory its reads are repeated until they take `LEAST_S`, since what
is shorter tells two like sides apart by chance.

Columns: replicas built, reverted, and active in the end; the most reads that a replica served
until it was reverted; seconds lost by reverted ones, against the reads that they left alone; time
beside what is left over time alone, with its range.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import tempfile
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.advice_quality import Workload, run
from sds.analyzer.gains import replica_gain
from sds.catalog.database import sqlite_url
from sds.catalog.records import ReplicaState
from sds.catalog.requests import CalibrateRequest
from sds.catalog.store import Store
from sds.home import Home
from sds.recommender.models.cost_model import CacheState, Via
from sds.server.operations.service import Service
from sds.server.settings import Settings
from tests.under_connector import connector_environment

if TYPE_CHECKING:
    from collections.abc import Callable

    from sds.calibration.results import Calibration, Measurement
    from sds.catalog.model_records import CalibrationRecord

MOST_RUNS = 40
PAIRS = 5
LEAST_S = 0.1
MOST_READS = 200


def scaled(measurement: Measurement, factor: float) -> Measurement:
    """Return a measurement whose model takes so many times as long."""
    model = measurement.choice.chosen
    wrong = replace(
        model,
        coefficients=tuple(c * factor for c in model.coefficients),
        floor_s=model.floor_s * factor,
    )
    return replace(measurement, choice=replace(measurement.choice, chosen=wrong))


def of_via(calibration: Calibration, via: Via, factor: float) -> Calibration:
    """Return a calibration whose models of one way to read take so many times as long."""
    return replace(
        calibration,
        measurements=tuple(
            scaled(one, factor) if one.via is via else one for one in calibration.measurements
        ),
    )


def swapped(calibration: Calibration) -> Calibration:
    """Return a calibration whose cold models are the warm ones, and the other way round."""
    other = {CacheState.COLD: CacheState.WARM, CacheState.WARM: CacheState.COLD}
    return replace(
        calibration,
        measurements=tuple(
            replace(one, cache=other.get(one.cache, one.cache)) for one in calibration.measurements
        ),
    )


def wrong_in_some_way(calibration: Calibration, rng: random.Random) -> tuple[Calibration, str]:
    """Return a calibration made wrong, and how."""
    factor = 3 * 10 ** rng.random()
    way = rng.choice(("replicas look faster", "originals look slower", "states swapped"))
    if way == "states swapped":
        return swapped(calibration), way
    if way == "replicas look faster":
        return of_via(calibration, Via.ENGINE, 1 / factor), f"{way}, {factor:.1f}x"
    return of_via(calibration, Via.HDF5, factor), f"{way}, {factor:.1f}x"


@dataclass(frozen=True)
class Outcome:
    """What became of the replicas of one case."""

    built: int
    reverted: int
    active: int
    most_reads: int
    lost_s: float
    runs: int
    ratios: tuple[float, ...]


def outcome_of(
    workload: Workload, place: Path, record: CalibrationRecord, calibration: Calibration
) -> Outcome:
    """Run one case."""
    path = place / "d.h5"
    workload.write(path)
    home, bare = Home(place / "home"), Home(place / "bare")
    bare.create()
    settings = Settings(mode="auto", quiet_source_s=0, advice_min_s=0.001)
    environment = connector_environment(home.root)
    home.create()
    with closing(Store.open(sqlite_url(home.database))) as store:
        store.add_calibration(
            mount_point=record.mount_point, device=record.device, calibration=calibration
        )
    with Service.open(home, settings) as service:
        runs = in_auto(service, lambda: run(path, workload, home.root, environment))
        records = service.replicas(all_states=True)
        patterns = [one.pattern for one in service.patterns(str(path))]
    gains = {one.id: replica_gain(patterns, one.id) for one in records}
    reverted = [one for one in records if one.state is ReplicaState.REVERTED]
    alone = connector_environment(bare.root, SDS_TRACE="0")
    beside = connector_environment(home.root, SDS_TRACE="0")
    if not workload.cold:
        n = math.ceil(LEAST_S / run(path, workload, bare.root, alone))
        workload = replace(workload, selections=workload.selections * n)
    ratios = []
    for pair in range(PAIRS):
        sides = [("alone", bare, alone), ("beside", home, beside)]
        took = {
            name: run(path, workload, where.root, given)
            for name, where, given in (sides if pair % 2 else reversed(sides))
        }
        ratios.append(took["beside"] / took["alone"])
    return Outcome(
        built=len(records),
        reverted=len(reverted),
        active=sum(one.state is ReplicaState.ACTIVE for one in records),
        most_reads=max((gains[one.id].n for one in reverted), default=0),
        lost_s=sum(max(0.0, -(gains[one.id].saved_s or 0.0)) for one in reverted),
        runs=runs,
        ratios=tuple(ratios),
    )


def in_auto(service: Service, run_program: Callable[[], float]) -> int:
    """Run a program until nothing is to be built and nothing is in shadow; return how often."""
    for n in range(1, MOST_RUNS + 1):
        run_program()
        service.ingest()
        service.evaluate()
        has_built = False
        while (job := service.queue.claim()) is not None:
            service.perform(job.request, lambda *_: None)
            service.queue.finish(job.id, {})
            has_built = True
        if not has_built and not any(
            one.state is ReplicaState.SHADOW for one in service.replicas()
        ):
            return n
    return MOST_RUNS


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wrong_models")
    parser.add_argument("--cases", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mib", type=int, default=32)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sds-bench-") as name:
        with Service.open(Home(Path(name) / "calibrated"), Settings()) as service:
            record = service.calibrate(CalibrateRequest(path=name))
        print_cases(given, record)


def print_cases(given: argparse.Namespace, record: CalibrationRecord) -> None:
    """Print a row for each case, and what holds of how many."""
    print("| seed | wrong | reads | cache | built | reverted | active | most reads | lost | runs | "
          "beside / alone |")  # fmt: skip
    print("|" + "---|" * 11)
    found = []
    for seed in range(given.seed, given.seed + given.cases):
        rng = random.Random(seed)  # noqa: S311
        calibration, way = wrong_in_some_way(record.calibration, rng)
        workload = Workload.draw(rng, given.mib)
        with tempfile.TemporaryDirectory(prefix="sds-bench-") as name:
            one = outcome_of(workload, Path(name), record, calibration)
        found.append(one)
        low, median, high = min(one.ratios), statistics.median(one.ratios), max(one.ratios)
        print(
            f"| {seed} | {way} | {len(workload.selections)}: {workload.kinds} | "
            f"{'cold' if workload.cold else 'warm'} | {one.built} | {one.reverted} | {one.active} "
            f"| {one.most_reads} | {one.lost_s * 1e3:.1f} ms | {one.runs} | "
            f"{median:.2f} ({low:.2f} to {high:.2f}) |",
            flush=True,
        )
    laws = {
        f"reverted within {MOST_READS} reads, where any is": [
            one.most_reads <= MOST_READS for one in found if one.reverted
        ],
        "not 10 % slower beside what is left": [
            statistics.median(one.ratios) <= 1.1 for one in found
        ],
    }
    print()
    for law, held in laws.items():
        print(f"{law}: {sum(held)} of {len(held)}")
    print(f"built {sum(one.built for one in found)}, reverted {sum(one.reverted for one in found)}")


if __name__ == "__main__":
    main()
