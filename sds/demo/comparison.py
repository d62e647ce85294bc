"""Run the demonstration's programs with and without SDS, and compare times and checksums."""

from __future__ import annotations

import enum
import hashlib
import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from importlib import resources
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from sds.errors import SdsError
from sds.redirect.launch.connector import switched_off

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sds.home import Home

_LONGEST_RUN_S = 300.0


class Variant(enum.StrEnum):
    """Way in which a program is run."""

    ORIGINAL = "original"
    CONNECTOR = "connector"
    REPLICA = "replica"


class CacheState(enum.StrEnum):
    """State of the page cache before a program starts."""

    COLD = "cold"
    WARM = "warm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """An ordinary program: a script that knows nothing of SDS."""

    name: str
    path: Path
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Times of one kind of read in one run of a program."""

    kind: str
    seconds: tuple[float, ...]
    sha256: str

    @property
    def mean_s(self) -> float:
        """Seconds per read."""
        return statistics.fmean(self.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Median and range."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Return the median and range of some values."""
        return cls(median=statistics.median(values), low=min(values), high=max(values))


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One kind of read in one cache state, measured in all variants.

    Attributes
    ----------
    cache
        How the cache was emptied or filled before each run.
    reads_per_run
        Reads that each run of the program makes, over all of its starts; a run's time per read is
        their mean.
    original_s, connector_s, replica_s
        Time per read over the runs.
    ratio, connector_ratio
        Original over replica, and original over connector alone, of the runs of one round.
    equal
        Whether all variants read the same bytes in every round.
    """

    kind: str
    selection: str
    state: CacheState
    cache: str
    reads_per_run: int
    original_s: Spread
    connector_s: Spread
    replica_s: Spread
    ratio: Spread
    connector_ratio: Spread
    equal: bool


Runs = dict[Variant, list[Timing]]


def find_program(name: str) -> Program:
    """Return one of the scripts that ship with the demonstration."""
    path = Path(str(resources.files("sds.demo") / "programs" / f"{name}.py"))
    return Program(name=name, path=path, sha256=hashlib.sha256(path.read_bytes()).hexdigest())


def run_program(
    program: Program, arguments: Sequence[str], *, home: Home | None, by_engine: bool = True
) -> dict[str, Timing]:
    """Run a program, under ``sds run`` where a home is given, and return its timings by kind.

    Other kinds of read are left out. `by_engine`: whether SDS's engine may read originals.

    Raises
    ------
    SdsError
        If it fails, or prints something else than its timings.
    """
    environment = dict(os.environ)
    for name, value in switched_off(environment).items():
        if value is None:
            del environment[name]
        else:
            environment[name] = value
    environment.pop("HDF5_VOL_CONNECTOR", None)  # the command's own, which reads natively
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    command = [sys.executable, str(program.path), *arguments]
    if home is not None:
        environment["SDS_HOME"] = str(home.root)
        if not by_engine:
            environment["SDS_ENGINE"] = "0"
        command = [sys.executable, "-m", "sds.cli", "run", "--", *command]
    done = subprocess.run(  # noqa: S603  (our own scripts)
        command,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=_LONGEST_RUN_S,
    )
    if done.returncode != 0 or done.stderr:
        message = (
            f"{program.path} ended with status {done.returncode} "
            f"{'without SDS' if home is None else 'under sds run'}: {done.stderr.strip()}"
        )
        raise SdsError(message)
    try:
        said: Mapping[str, Mapping[str, object]] = json.loads(done.stdout)
        return {kind: _timing(kind, values) for kind, values in said.items() if values["seconds"]}
    except (ValueError, KeyError, TypeError) as error:
        message = f"{program.path} printed no timings but {done.stdout[:200]!r}"
        raise SdsError(message) from error


def _timing(kind: str, values: Mapping[str, object]) -> Timing:
    """Return a program's output for one kind of read."""
    seconds = values["seconds"]
    if not isinstance(seconds, list) or not seconds:
        message = f"no seconds for {kind}"
        raise TypeError(message)
    return Timing(kind=kind, seconds=tuple(map(float, seconds)), sha256=str(values["sha256"]))


def pool(timings: Sequence[Timing]) -> Timing:
    """Return the reads of several starts of a program as those of one run."""
    return Timing(
        kind=timings[0].kind,
        seconds=tuple(chain.from_iterable(timing.seconds for timing in timings)),
        sha256=hashlib.sha256(" ".join(t.sha256 for t in timings).encode()).hexdigest(),
    )


def make_row(selection: str, *, state: CacheState, cache: str, runs: Runs) -> Row:
    """Return the comparison of all runs of one kind of read in one cache state."""
    original, connector, replica = (runs[variant] for variant in Variant)
    rounds = list(zip(original, connector, replica, strict=True))
    return Row(
        kind=original[0].kind,
        selection=selection,
        state=state,
        cache=cache,
        reads_per_run=len(original[0].seconds),
        original_s=Spread.of([timing.mean_s for timing in original]),
        connector_s=Spread.of([timing.mean_s for timing in connector]),
        replica_s=Spread.of([timing.mean_s for timing in replica]),
        ratio=Spread.of([o.mean_s / r.mean_s for o, _, r in rounds]),
        connector_ratio=Spread.of([o.mean_s / c.mean_s for o, c, _ in rounds]),
        equal=all(len({timing.sha256 for timing in same}) == 1 for same in rounds),
    )
