"""The demonstration, step by step: make, watch, let the server build and prove, measure, draw."""

from __future__ import annotations

import json
import math
import time
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sds.calibration.results import CalibrationSettings
from sds.catalog.model_records import PatternRecord
from sds.catalog.requests import CalibrateRequest, PolicyRequest
from sds.demo import page_cache
from sds.demo.comparison import (
    CacheState,
    Program,
    Row,
    Runs,
    Timing,
    Variant,
    find_program,
    make_row,
    pool,
    run_program,
)
from sds.demo.sample_files import (
    CUBE_DATASET,
    GRID_DATASET,
    Extents,
    extents_of,
    make_cube,
    make_grid,
)
from sds.demo.server_process import DemoServer
from sds.demo.work_of_server import advice_of_server, let_build, let_rest, prove
from sds.demo.workspace import Workplace, figure_path, make_workplace
from sds.errors import SdsError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sds.catalog.replica_records import ReplicaRecord
    from sds.demo.work_of_server import Advised, Bar
    from sds.server.operations.service import Service

_CALIBRATION_BYTES = 128 << 20
# Seconds of reads; the second where the first were too few on a busy machine.
_CALIBRATION_S, _LONG_CALIBRATION_S = 12.0, 60.0
_SMALLEST_CALIBRATED_BYTES = 512 << 20
_CUBE_SEED, _GRID_SEED, _WATCHED_SEED = 1, 2, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """A kind of read that a program makes.

    Attributes
    ----------
    selection
        As its source code writes it.
    example
        One such selection.
    """

    program: str
    kind: str
    dataset: str
    selection: str
    example: str


READS = (
    Read(
        program="image",
        kind="planes",
        dataset=CUBE_DATASET,
        selection="cube[:, :, energy]",
        example="[:, :, 0]",
    ),
    Read(
        program="image",
        kind="spectra",
        dataset=CUBE_DATASET,
        selection="cube[x, y, :]",
        example="[0, 0, :]",
    ),
    Read(
        program="series",
        kind="series",
        dataset=GRID_DATASET,
        selection="t2m[:, lat, lon]",
        example="[:, 0, 0]",
    ),
)


# One plane of the original, or a few series, bring the whole file into memory: a cold run makes
# one read of each. Spectra touch little, so thousands of them stay cold; warm ones take
# microseconds, so that only a long run of them stands out from the noise of the machine. Devices
# drift: a cold run starts the program anew, with an empty cache, for each of a few reads, the
# variants in turns; most often for spectra, whose differences are a few percent.
@dataclass(frozen=True, slots=True, kw_only=True)
class _Start:
    """Program, its arguments, and the number of its starts in one run."""

    program: str
    arguments: tuple[str, ...]
    times: int = 1


_STARTS_PER_RUN: dict[CacheState, tuple[_Start, ...]] = {
    CacheState.COLD: (
        _Start(program="image", arguments=("--planes", "1", "--spectra", "0"), times=2),
        _Start(program="image", arguments=("--planes", "0", "--spectra", "500"), times=7),
        _Start(program="series", arguments=("--points", "1"), times=2),
    ),
    CacheState.WARM: (
        _Start(program="image", arguments=("--planes", "8", "--spectra", "20000")),
        _Start(program="series", arguments=("--points", "24")),
    ),
}
# What the programs read while they are watched, of files of 1 GiB; the more the smaller they are,
# since what takes no time is not worth a replica.
_WATCHED_PLANES, _WATCHED_POINTS, _MOST_POINTS = 6, 24, 2000


# Nothing is evaluated before there is something to show, and then at once; room for all of it.
_SETTINGS = f"""\
mode = "off"
ingest_interval_s = 0.5
evaluate_interval_s = 0.5
quiet_source_s = 0
advice_min_s = 0
replica_budget_bytes = {1 << 62}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A replica that was advised and built.

    Attributes
    ----------
    build_s
        Planning, copying, verifying and publishing.
    pays_after_reads
        Cold reads of the advised kind after which that time is saved; None: never.
    """

    dataset: str
    order: tuple[int, ...]
    size_bytes: int
    build_s: float
    pays_after_reads: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """Speed-up of a kind of read: predicted by the advice, and measured."""

    kind: str
    selection: str
    predicted: float
    calibrated: bool
    measured_cold: float
    measured_warm: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Result of the demonstration; ``ok`` where every variant read the same bytes."""

    ok: bool
    rows: tuple[Row, ...]
    gains: tuple[Gain, ...]
    builds: tuple[Built, ...]
    programs: tuple[Program, ...]
    patterns: tuple[PatternRecord, ...]
    extents: Extents
    server: str
    server_pid: int
    directory: Path
    kept: bool
    figure: Path
    elapsed_s: float


def run_demo(
    *,
    size_bytes: int | None,
    n_rounds: int,
    directory: Path | None,
    figure: Path | None,
    keep: bool,
    say: Callable[[str], None],
    bar: Bar,
) -> Outcome:
    """Run the whole demonstration and return what it found.

    Parameters
    ----------
    size_bytes
        Of both files together; None: as `make_workplace` chooses.
    n_rounds
        How often each program is measured in each variant and cache state.
    figure
        PNG to draw; None: as `figure_path` chooses.
    keep
        Leave server and files.
    say, bar
        Take a line of text; make a progress bar of a title.

    Raises
    ------
    FileMissingError, InsufficientSpaceError, PermissionDeniedError
        If there is no place for the files or the figure.
    SdsError
        If a program fails, or nothing is advised.
    """
    from sds.demo.comparison_figure import draw
    from sds.server.remote_service import connect

    began = time.monotonic()
    drawn = figure_path(figure)
    with ExitStack() as stack:
        place, size_bytes = make_workplace(directory, size_bytes)
        on_failure = stack.enter_context(ExitStack())
        on_failure.callback(place.remove)
        extents = _make_files(place, size_bytes, say=say, bar=bar)
        place.home.create()
        place.bare_home.create()
        # On any file system: no other program writes to the files. And however fast they are read.
        trusted = json.dumps([str(place.root)])
        place.home.config.write_text(
            f"trusted_directories = {trusted}\n{_SETTINGS}", encoding="utf-8"
        )
        server = stack.enter_context(
            DemoServer(place.home, log=place.root / "server.log", keep=keep)
        )
        say(f"server    {server.url} (its REST interface: {server.url}/docs)")
        service = stack.enter_context(connect(place.home))
        programs = tuple(find_program(name) for name in ("image", "series"))
        calibrated = size_bytes >= _SMALLEST_CALIBRATED_BYTES
        if calibrated:
            _calibrate(place, service, budget_s=_CALIBRATION_S, say=say, bar=bar)
        again = partial(_calibrate, place, service, budget_s=_LONG_CALIBRATION_S, say=say, bar=bar)
        patterns = _watch(place, programs, extents, service, by_engine=calibrated, say=say, bar=bar)
        advised = advice_of_server(
            service,
            place.root,
            (place.cube, place.grid),
            calibrate=again if calibrated else None,
            say=say,
            bar=bar,
        )
        replicas, builds_s = let_build(service, place.root, advised, say=say, bar=bar)
        replicas = prove(
            service,
            replicas,
            {
                str(_source(place, program)): partial(
                    _run_to_prove, place, program, by_engine=calibrated
                )
                for program in programs
            },
            say=say,
            bar=bar,
        )
        let_rest(service, place.root)  # nothing runs beside what is measured
        rows = _measure(place, programs, replicas, n_rounds=n_rounds, bar=bar)
        draw(rows, drawn)
        if keep:
            service.set_policy(PolicyRequest(path=str(place.root), mode="auto"))
            on_failure.pop_all()
        return Outcome(
            ok=all(row.equal for row in rows),
            rows=rows,
            gains=tuple(_gains(rows, advised, extents)),
            builds=tuple(
                _built(replica, build_s, rows)
                for replica, build_s in zip(replicas, builds_s, strict=True)
            ),
            programs=programs,
            patterns=patterns,
            extents=extents,
            server=server.url,
            server_pid=server.pid,
            directory=place.root,
            kept=keep,
            figure=drawn,
            elapsed_s=time.monotonic() - began,
        )


def _make_files(
    place: Workplace, size_bytes: int, *, say: Callable[[str], None], bar: Bar
) -> Extents:
    """Make the two files."""
    extents = extents_of(size_bytes)
    with bar("Making the files") as advance:
        make_cube(
            place.cube,
            extents.cube,
            seed=_CUBE_SEED,
            progress=lambda share: advance(0.75 * share, "Making the image cube"),
        )
        make_grid(
            place.grid,
            extents.grid,
            seed=_GRID_SEED,
            progress=lambda share: advance(0.75 + 0.25 * share, "Making the grid"),
        )
    for path, dataset, extent, axes in (
        (place.cube, CUBE_DATASET, extents.cube, "x, y, energy"),
        (place.grid, GRID_DATASET, extents.grid, "time, lat, lon"),
    ):
        shape = " x ".join(map(str, extent))
        say(f"file      {path}:{dataset}, {shape} ({axes}), float32, contiguous")
    return extents


def _calibrate(
    place: Workplace,
    service: Service,
    *,
    budget_s: float,
    say: Callable[[str], None],
    bar: Bar,
) -> None:
    """Measure the file system, so that times are predicted for this machine."""
    settings = CalibrationSettings(
        space_bytes=_CALIBRATION_BYTES, budget_s=budget_s, seed=_WATCHED_SEED
    )
    request = CalibrateRequest(path=str(place.root), settings=settings)
    with bar("Calibrating") as advance:
        found = service.calibrate(request, progress=advance).calibration
    say(
        f"calibrated {found.file_system.mount_point} ({found.file_system.kind}) by "
        f"{found.n_reads} timed reads in {found.elapsed_s:.3g} s"
    )


def _watch(
    place: Workplace,
    programs: Sequence[Program],
    extents: Extents,
    service: Service,
    *,
    by_engine: bool = True,
    say: Callable[[str], None],
    bar: Bar,
) -> tuple[PatternRecord, ...]:
    """Run the programs once under SDS and return the patterns found in their traces.

    by_engine: whether the engine may read. Of small files its reads take so little that advice
    without a calibration cannot tell them from a replica's.
    """
    scale = max(1.0, 2**30 / extents.size_bytes)
    n_planes = min(extents.cube[2], math.ceil(scale * _WATCHED_PLANES))
    n_points = min(_MOST_POINTS, math.ceil(scale * _WATCHED_POINTS))
    reads = {
        "image": ("--planes", str(n_planes), "--spectra", "200"),
        "series": ("--points", str(n_points)),
    }
    with bar("Running the programs under SDS") as advance:
        for done, program in enumerate(programs):
            say(f"program   {program.path.name}, SHA-256 {program.sha256}")
            advance(done / len(programs), f"Running {program.path.name} under sds run")
            source = _source(place, program)
            page_cache.empty([source])
            arguments = (str(source), *reads[program.name], "--seed", str(_WATCHED_SEED))
            run_program(program, arguments, home=place.home, by_engine=by_engine)
    report = service.ingest()
    patterns = service.patterns()
    if not patterns:
        problems = "; ".join(report.problems) or "the connector left no trace"
        message = f"no pattern was found: {problems}; `sds doctor` says whether it can be loaded"
        raise SdsError(message)
    for found in patterns:
        seen = found.pattern
        say(
            f"pattern   {seen.n_reads} x {seen.description} of {found.dataset}: "
            f"{seen.elapsed_s:.3g} s, of it {seen.time_lost_s:.3g} s lost to the layout"
        )
    return patterns


def _run_to_prove(place: Workplace, program: Program, seed: int, *, by_engine: bool) -> None:
    """Run a program again, with enough reads of each kind to compare the replica's with others."""
    reads = {
        "image": ("--planes", "60", "--spectra", "50"),
        "series": ("--points", "60"),
    }
    arguments = (str(_source(place, program)), *reads[program.name], "--seed", str(seed))
    run_program(program, arguments, home=place.home, by_engine=by_engine)


def _measure(
    place: Workplace,
    programs: Sequence[Program],
    replicas: Sequence[ReplicaRecord],
    *,
    n_rounds: int,
    bar: Bar,
) -> tuple[Row, ...]:
    """Run the programs in all variants and cache states, in turns, and compare."""
    homes = {
        Variant.ORIGINAL: None,
        Variant.CONNECTOR: place.bare_home,
        Variant.REPLICA: place.home,
    }
    by_name = {program.name: program for program in programs}
    turns = [
        (round_, state, by_name[start.program], start.arguments, n, variant)
        for round_ in range(n_rounds)
        for state in CacheState
        for start in _STARTS_PER_RUN[state]
        for n in range(start.times)
        for variant in _in_turn(round_ + n)
    ]
    starts: dict[tuple[CacheState, str, Variant, int], list[Timing]] = defaultdict(list)
    caches: dict[tuple[CacheState, str], set[str]] = defaultdict(set)
    with bar("Measuring") as advance:
        for done, (round_, state, program, reads, start, variant) in enumerate(turns):
            advance(
                done / len(turns),
                f"Measuring {program.path.name}, {state}, {variant}, round {round_ + 1}",
            )
            source = _source(place, program)
            files = [source, *(Path(r.path) for r in replicas if r.file == str(source))]
            prepare = page_cache.empty if state is CacheState.COLD else page_cache.fill
            caches[state, program.name].add(prepare(files))
            arguments = (
                str(source),
                *reads,
                "--seed",
                str(100 * (round_ + 1) + 10 * start + (state is CacheState.WARM)),
            )
            timings = run_program(program, arguments, home=homes[variant])
            for kind, timing in timings.items():
                starts[state, kind, variant, round_].append(timing)
    runs: dict[tuple[CacheState, str], Runs] = defaultdict(lambda: defaultdict(list))
    for (state, kind, variant, _), timings_of_run in sorted(starts.items()):
        runs[state, kind][variant].append(pool(timings_of_run))
    return tuple(
        make_row(
            read.selection,
            state=state,
            cache="; ".join(sorted(caches[state, read.program])),
            runs=runs[state, read.kind],
        )
        for state in CacheState
        for read in READS
    )


def _in_turn(round_: int) -> list[Variant]:
    """Return the variants, each round another one first: none profits from its place."""
    variants = list(Variant)
    first = round_ % len(variants)
    return variants[first:] + variants[:first]


def _source(place: Workplace, program: Program) -> Path:
    """Return the file that a program reads."""
    return {"image": place.cube, "series": place.grid}[program.name]


def _gains(rows: Sequence[Row], advised: Sequence[Advised], extents: Extents) -> list[Gain]:
    """Return predicted beside measured gain for each kind of read."""
    from sds.analyzer import stated_pattern

    measured = {(row.kind, row.state): row.ratio.median for row in rows}
    gains: list[Gain] = []
    for read in READS:
        extent = extents.cube if read.dataset == CUBE_DATASET else extents.grid
        words = stated_pattern(read.example, extent=extent, element_size_bytes=4).description
        gains.extend(
            Gain(
                kind=read.kind,
                selection=read.selection,
                predicted=pattern.seconds_now / pattern.seconds_then,
                calibrated=one.expected.calibrated,
                measured_cold=measured[read.kind, CacheState.COLD],
                measured_warm=measured[read.kind, CacheState.WARM],
            )
            for one in advised
            if one.dataset == read.dataset
            for pattern in one.expected.patterns
            if pattern.pattern == words
        )
    return gains


def _built(replica: ReplicaRecord, build_s: float, rows: Sequence[Row]) -> Built:
    """Return the cost of a replica, and when it has paid for itself."""
    kind = "planes" if replica.dataset == CUBE_DATASET else "series"
    row = next(row for row in rows if row.kind == kind and row.state is CacheState.COLD)
    saved_s = row.original_s.median - row.replica_s.median
    return Built(
        dataset=replica.dataset,
        order=replica.order,
        size_bytes=replica.size_bytes,
        build_s=build_s,
        pays_after_reads=math.ceil(build_s / saved_s) if saved_s > 0 else None,
    )
