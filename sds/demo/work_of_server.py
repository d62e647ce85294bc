"""The demonstration's server at work: it plans, builds and proves; nobody asks it to."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sds.catalog.records import JobState, ReplicaState
from sds.catalog.requests import JobRecord, PolicyRequest, ReorganizeRequest
from sds.errors import SdsError
from sds.recommender.portfolio.values import PortfolioLayout
from sds.recommender.portfolio.what_if import WhatIf
from sds.server.operations.advice_reports import AdviceRequest, NamedDataset, WhatIfRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from sds.catalog.records import Mode
    from sds.catalog.replica_records import ReplicaRecord
    from sds.server.operations.service import Service

    Bar = Callable[[str], AbstractContextManager[Callable[[float, str], None]]]

_LONGEST_WAIT_S = 300.0
_PAUSE_S = 0.2
_MOST_PROVING_RUNS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Advised:
    """A layout that the server builds, and what reads are predicted to take with it."""

    file: str
    dataset: str
    layout: PortfolioLayout
    expected: WhatIf


def advice_of_server(
    service: Service,
    root: Path,
    files: Sequence[Path],
    *,
    calibrate: Callable[[], None] | None,
    say: Callable[[str], None],
    bar: Bar,
) -> tuple[Advised, ...]:
    """Return the layout that the server advises first for each of some files below a directory.

    calibrate: measures the file system for longer, where nothing is advised; None: never.

    Raises
    ------
    SdsError
        If nothing is advised for a file.
    """
    _evaluate(service, root, "observe", bar=bar)
    missing = [file for file in files if not _is_advised(service, file)]
    if calibrate is not None and missing:
        say(f"no advice yet for {missing[0]}: {_why_not(service, missing[0])}")
        calibrate()
        _evaluate(service, root, "observe", bar=bar)
    found = [_advised(service, file) for file in files]
    for one in found:
        mark = "" if one.expected.calibrated else ", uncalibrated"
        say(
            f"advice    {one.dataset}: {one.layout.name}, predicted "
            f"{one.layout.speedup:.3g}x faster for the reads that it serves{mark}"
        )
    return tuple(found)


def _evaluate(service: Service, root: Path, mode: Mode, *, bar: Bar) -> None:
    """Set the mode below a directory, and wait until the server has evaluated what was read."""
    since_ns = time.time_ns()
    service.set_policy(PolicyRequest(path=str(root), mode=mode))
    give_up_s = time.monotonic() + _LONGEST_WAIT_S
    with bar("Waiting for the server") as advance:
        while time.monotonic() < give_up_s:
            advance(0.0, "Waiting for the server to evaluate what was read")
            advice = service.status().advice
            if advice is not None and advice.found_ns > since_ns:
                return
            time.sleep(_PAUSE_S)
    message = f"the server evaluated nothing in {_LONGEST_WAIT_S:g} s; see {root}/server.log"
    raise SdsError(message)


def _is_advised(service: Service, file: Path) -> bool:
    return any(one.recommendation.layouts for one in service.recommendations(str(file)))


def _advised(service: Service, file: Path) -> Advised:
    """Return what is advised for a file; SdsError where nothing is."""
    for record in service.recommendations(str(file)):
        for layout in record.recommendation.layouts[:1]:
            question = WhatIfRequest(
                file=record.file,
                dataset=record.dataset,
                order=layout.layout.order,
                chunks=layout.layout.chunk_shape,
                filtered=bool(layout.layout.filters),
                region=str(layout.layout.region),
            )
            return Advised(
                file=record.file,
                dataset=record.dataset,
                layout=layout,
                expected=service.what_if(question),
            )
    message = (
        f"no replica of {file} was advised: {_why_not(service, file)}; if the machine is busy, try "
        "again when it is not"
    )
    raise SdsError(message)


def _why_not(service: Service, file: Path) -> str:
    """Return why no layout of a file is advised."""
    advice = service.advise(AdviceRequest(datasets=(NamedDataset(file=str(file)),)))
    reasons = [f"{one.name}: {one.reason}" for one in advice.portfolio.declined]
    return "; ".join((*reasons, *advice.notes))


def let_build(
    service: Service,
    root: Path,
    advised: Sequence[Advised],
    *,
    say: Callable[[str], None],
    bar: Bar,
) -> tuple[list[ReplicaRecord], list[float]]:
    """Switch the server to mode auto below a directory, and wait for what it builds.

    Returns
    -------
    The replicas of what is advised, and the seconds that each build took.

    Raises
    ------
    SdsError
        If one is not built.
    """
    say(f"policy    sds policy set {root} auto")
    _evaluate(service, root, "auto", bar=bar)
    # The evaluation that was waited for may have begun under the earlier mode.
    give_up_s = time.monotonic() + _LONGEST_WAIT_S
    while not (jobs := _first_builds(service)) and time.monotonic() < give_up_s:
        time.sleep(_PAUSE_S)
    replicas, took_s = [], []
    for one in advised:
        if one.file not in jobs:
            message = f"the server plans nothing for {one.file}, of which {one.layout.name} is due"
            raise SdsError(message)
        say(f"planned   {one.layout.command} --shadow")
        with bar(f"Building the replica of {one.dataset}") as advance:
            job = _ended(service, jobs[one.file].id, advance)
        if job.state is not JobState.DONE:
            message = f"the replica of {one.dataset} was not built: {job.error}"
            raise SdsError(message)
        replica = service.replicas(one.file, one.dataset)[0]
        replicas.append(replica)
        took_s.append(((job.finished_ns or 0) - (job.started_ns or 0)) * 1e-9)
        say(
            f"replica   {replica.dataset} in order {','.join(map(str, replica.order))}: "
            f"{replica.size_bytes / 2**20:.0f} MiB, built, verified and in {replica.state} "
            f"in {took_s[-1]:.3g} s"
        )
    return replicas, took_s


def _first_builds(service: Service) -> dict[str, JobRecord]:
    """Return the first build of each file that was planned."""
    return {
        job.request.file: job
        for job in reversed(service.jobs())
        if isinstance(job.request, ReorganizeRequest)
    }


def _ended(service: Service, job_id: int, advance: Callable[[float, str], None]) -> JobRecord:
    """Wait for a job to end; return it."""
    while (job := service.job(job_id)).state in {JobState.QUEUED, JobState.RUNNING}:
        advance(job.progress, "Building")
        time.sleep(_PAUSE_S)
    return job


def prove(
    service: Service,
    replicas: Sequence[ReplicaRecord],
    run: Mapping[str, Callable[[int], None]],
    *,
    say: Callable[[str], None],
    bar: Bar,
) -> list[ReplicaRecord]:
    """Run programs until the server has measured that its replicas are faster; return them.

    run: the program of each source, with a seed for what it reads.

    Raises
    ------
    SdsError
        If one is not, or not after many runs.
    """
    found = list(replicas)
    with bar("Proving the replicas") as advance:
        for n in range(_MOST_PROVING_RUNS):
            in_shadow = {one.file for one in found if one.state is ReplicaState.SHADOW}
            if not in_shadow:
                break
            for source in sorted(in_shadow):
                advance(n / _MOST_PROVING_RUNS, f"Reading {Path(source).name} again")
                run[source](1000 + n)
            service.ingest()
            found = [service.replica(replica.id) for replica in replicas]
    for one in found:
        if one.state is not ReplicaState.ACTIVE:
            message = f"replica {one.id} of {one.dataset} is {one.state}: {one.reason}"
            raise SdsError(message)
        say(f"proven    replica {one.id} of {one.dataset} is {one.state}: {one.reason}")
    return found


def let_rest(service: Service, root: Path) -> None:
    """Switch the server's evaluations off below a directory, and wait until it has nothing to do.

    What it has planned beside what is shown is not built.
    """
    service.set_policy(PolicyRequest(path=str(root), mode="off"))
    busy = {JobState.QUEUED, JobState.RUNNING}
    while left := [job for job in service.jobs() if job.state in busy]:
        for job in left:
            service.cancel(job.id)
        time.sleep(_PAUSE_S)
