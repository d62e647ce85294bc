"""The long stages, as functions of plain values that can run in a process of their own.

They know neither catalog nor tables: what they return, the service stores. Callbacks are called
between steps; what a callback raises abandons the work, cleanly.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from sds.errors import FileMissingError, SdsError
from sds.files import path_error
from sds.home import Home
from sds.text import size_text

if TYPE_CHECKING:
    from sds.calibration.results import Calibration
    from sds.calibration.trace_fit import LeftOut, TracedRead
    from sds.catalog.requests import CalibrateRequest, ReorganizeRequest, SortRequest
    from sds.hdf5.identity import FileIdentity
    from sds.organizer import Replica
    from sds.organizer.progress import AnyPlan
    from sds.organizer.verify import VerificationReport

Result = TypeVar("Result")
Progress: TypeAlias = Callable[[float, str], None]
"""Called with the share done, 0 to 1, and what is being done."""
_RATE_AFTER_S = 0.5  # a rate of less says little


def build(
    request: ReorganizeRequest | SortRequest,
    home_root: Path,
    *,
    announce: Callable[[AnyPlan], None],
    progress: Progress,
) -> Replica:
    """Plan a replica, announce the plan, then build and verify it.

    One that mode auto asked for, in the idle class of I/O: nobody waits for it.
    """
    from sds.organizer.build import reorganize  # noqa: PLC0415  (h5py)

    home = Home(home_root)
    plan = _plan(request, home)
    announce(plan)

    begun: dict[str, tuple[float, int]] = {}  # of each phase: when, and how far it was

    def report(phase: str, done_bytes: int, total_bytes: int) -> None:
        now_s = time.monotonic()
        begun_s, begun_bytes = begun.setdefault(phase, (now_s, done_bytes))
        what = phase
        if now_s - begun_s >= _RATE_AFTER_S:
            what += f", {size_text((done_bytes - begun_bytes) / (now_s - begun_s))} per second"
        share = done_bytes / total_bytes if total_bytes else 1.0
        progress(share / 2 if phase == "copy" else 0.5 + share / 2, what)

    is_of_evaluator = request.kind == "reorganize" and not request.pinned
    with idle_io_priority() if is_of_evaluator else nullcontext():
        return reorganize(plan, home=home, n_ranks=request.n_ranks, progress=report)


@contextmanager
def idle_io_priority() -> Iterator[None]:
    """Read and write in the idle class of I/O: this thread, and those that it starts."""
    from sds import _native  # noqa: PLC0415

    before = _native.io_priority()
    _native.set_io_priority(_native.IDLE_IO_PRIORITY)
    try:
        yield
    finally:
        _native.set_io_priority(before)


def _plan(request: ReorganizeRequest | SortRequest, home: Home) -> AnyPlan:
    from sds.organizer.build import plan_reorganization, plan_sorting  # noqa: PLC0415  (h5py)
    from sds.organizer.plans.reorganization_plan import memory_for_elements  # noqa: PLC0415

    output = None if request.output is None else Path(request.output)
    memory_bytes = memory_for_elements(request.memory_bytes)
    if request.kind == "sort":
        return plan_sorting(
            request.file,
            request.dataset,
            key=request.key,
            columns=request.columns,
            home=home,
            memory_bytes=memory_bytes,
            output=output,
        )
    return plan_reorganization(
        request.file,
        request.dataset,
        order=request.order,
        chunks=request.chunks,
        filters=request.compress,
        region=request.region,
        segments=request.segments,
        home=home,
        memory_bytes=memory_bytes,
        output=output,
    )


def check(paths: tuple[Path, ...], *, progress: Progress) -> tuple[VerificationReport, ...]:
    """Compare replicas with the checksums that they carry."""
    return _check(paths, progress, past_cache=False)


def check_quietly(paths: tuple[Path, ...], *, progress: Progress) -> tuple[VerificationReport, ...]:
    """Compare replicas as :func:`check`, in the idle class of I/O and past the page cache."""
    with idle_io_priority():
        return _check(paths, progress, past_cache=True)


def _check(
    paths: tuple[Path, ...], progress: Progress, *, past_cache: bool
) -> tuple[VerificationReport, ...]:
    from sds.organizer.verify import VerificationReport, verify_file  # noqa: PLC0415  (h5py)

    reports = []
    for i, path in enumerate(paths):

        def report(
            _: str, done_bytes: int, total_bytes: int, i: int = i, name: str = path.name
        ) -> None:
            share = done_bytes / total_bytes if total_bytes else 1.0
            progress((i + share) / len(paths), f"verify {name}")

        try:
            reports.append(verify_file(path, past_cache=past_cache, progress=report))
        except (SdsError, OSError) as error:  # of this one
            explained = path_error(path, error) if isinstance(error, OSError) else error
            reports.append(
                VerificationReport(
                    path=path, problems=(str(explained),), damaged_blocks=(), checked_bytes=0
                )
            )
    return tuple(reports)


def compare(
    replica: Replica, home_root: Path, *, progress: Progress
) -> tuple[FileIdentity, VerificationReport]:
    """Compare every byte of a replica with its source; return which file that is now."""
    from sds.organizer.build import plan_reorganization, plan_sorting  # noqa: PLC0415  (h5py)
    from sds.organizer.protocol import load_organizer  # noqa: PLC0415
    from sds.organizer.reorganizers.sort_verify import compare_with_table  # noqa: PLC0415

    def report(_: str, done_bytes: int, total_bytes: int) -> None:
        progress(done_bytes / total_bytes if total_bytes else 1.0, f"compare {replica.path.name}")

    if replica.sort is not None:
        sorting = plan_sorting(
            replica.source_path,
            replica.dataset_path,
            key=replica.sort.key,
            columns=replica.sort.columns,
            home=Home(home_root),
            output=replica.path,
        )
        now = replace(replica, source_identity=sorting.source_identity)
        return sorting.source_identity, compare_with_table(now, sorting, progress=report)
    plan = plan_reorganization(
        replica.source_path,
        replica.dataset_path,
        order=replica.order,
        chunks=replica.chunk_shape,
        filters=replica.filters,
        region=replica.region if replica.segments is None else None,
        segments=replica.segments,
        home=Home(home_root),
        output=replica.path,
    )
    now = replace(replica, source_identity=plan.source_identity)
    organizer = load_organizer(plan.organizer)
    return plan.source_identity, organizer.verify(now, plan, progress=report)


def measure(request: CalibrateRequest, *, progress: Progress) -> Calibration:
    """Measure the file system that holds a directory, and fit models to it."""
    from sds.calibration.run import calibrate  # noqa: PLC0415  (h5py, statsmodels)

    if not Path(request.path).is_dir():
        message = f"no such directory: {request.path}; name one on the file system to measure"
        raise FileMissingError(message)
    with _cleaning_up():
        return calibrate(request.path, settings=request.settings, progress=progress)


@contextmanager
def _cleaning_up() -> Iterator[None]:
    """End a stage by an exception at SIGTERM: what it wrote is of no use to the next attempt.

    Other stages end at once, and go on later from what is on disk.
    """
    is_ours = threading.current_thread() is threading.main_thread()
    if not is_ours or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def fit_to_traces(
    calibration: Calibration, reads: list[TracedRead], *, progress: Progress
) -> tuple[Calibration, dict[LeftOut, int]]:
    """Fit the models of a calibration to traced reads as well; return also which were left out."""
    from sds.calibration.trace_fit import refit_explained  # noqa: PLC0415  (statsmodels)

    progress(0.0, f"fit models to {len(reads)} traced reads")
    return refit_explained(calibration, reads)


class CutOffError(Exception):
    """Raised through a stage that will be begun again: the server ends."""


class Runner(Protocol):
    """Runs a stage, here or in a process of its own."""

    def __call__(
        self,
        work: Callable[..., Result],
        *args: object,
        callbacks: Mapping[str, Callable[..., None]],
    ) -> Result:
        """Return what ``work(*args, **callbacks)`` returns."""


def run_here(
    work: Callable[..., Result], *args: object, callbacks: Mapping[str, Callable[..., None]]
) -> Result:
    """Run a stage in this process: the runner of commands without a server."""
    return work(*args, **callbacks)
