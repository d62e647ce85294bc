"""Runs a suite natively and under the connector, in turns, in the same environment."""

from __future__ import annotations

import os
import resource
import subprocess
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from benchmarks.conformance.outcomes import Comparison, Outcome, SuiteRun, compare
from sds.home import Home
from sds.redirect.launch.activation import environment
from sds.trace import read_spool

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

SUITE_TIMEOUT_S = 3600.0


class Suite(Protocol):
    """The tests of a peer."""

    name: str
    title: str

    def prepare(self) -> str:
        """Make what the runs need; return the versions that are tested."""

    def run(self, directory: Path, env: Mapping[str, str]) -> SuiteRun:
        """Run the suite in a fresh directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteResult:
    """What is known of a suite after its runs.

    Attributes
    ----------
    reads_traced, reads_served
        Of one run under the connector: all that it saw, and those that came from replicas.
    """

    suite: str
    title: str
    versions: str
    rounds: int
    comparison: Comparison
    reads_traced: int
    reads_served: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One command that has ended."""

    output: str
    exit_status: int
    wall_s: float
    cpu_s: float

    def run(
        self, outcomes: dict[str, Outcome], *, outputs: dict[str, str] | None = None
    ) -> SuiteRun:
        """Return the run of a suite that this command was."""
        return SuiteRun(
            outcomes=outcomes,
            outputs=outputs or {},
            exit_status=self.exit_status,
            wall_s=self.wall_s,
            cpu_s=self.cpu_s,
        )


def children_cpu_s() -> float:
    """Return the CPU time of all processes that were started and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measured(command: Sequence[str | Path], *, cwd: Path, env: Mapping[str, str]) -> Measured:
    """Run a command; its output goes to a file ``output`` beside what it writes.

    That includes what it leaves behind where temporary files are made.
    """
    log = cwd / "output"
    cpu_s, begin = children_cpu_s(), time.perf_counter()
    with (
        log.open("w") as stream,
        subprocess.Popen(
            [str(word) for word in command], cwd=cwd, env={**env, "TMPDIR": str(cwd)},
            stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT,
        ) as process,
    ):  # fmt: skip
        # Waiting with a timeout looks only now and then, which is as long as some suites take.
        timer = threading.Timer(SUITE_TIMEOUT_S, process.kill)
        timer.start()
        status = process.wait()
        timer.cancel()
    wall_s = time.perf_counter() - begin
    return Measured(
        output=log.read_text(errors="replace"),
        exit_status=status,
        wall_s=wall_s,
        cpu_s=children_cpu_s() - cpu_s,
    )


def native_environment() -> dict[str, str]:
    """Return this environment without anything that concerns the connector."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HDF5_", "LD_PRELOAD", "SDS_"))
    }


def reads_by_replica(home: Home) -> Counter[int]:
    """Return how many reads each replica served; 0: the originals, -1: the engine from them."""
    served: Counter[int] = Counter()
    for path in sorted(home.spool.iterdir()):
        records = read_spool(path).records
        for replica, n in zip(records.served_by.tolist(), records.n_reads.tolist(), strict=True):
            served[replica] += n
    return served


def run_both(suite: Suite, directory: Path, *, rounds: int) -> SuiteResult:
    """Run a suite natively and under the connector, in turns."""
    versions = suite.prepare()
    native: list[SuiteRun] = []
    connector: list[SuiteRun] = []
    served: Counter[int] = Counter()
    for turn in range(rounds):
        folders = {name: directory / f"{suite.name}-{turn}-{name}" for name in ("native", "sds")}
        for folder in folders.values():
            folder.mkdir(parents=True)
        home = Home(folders["sds"] / "home")
        home.create()
        env = native_environment()
        native.append(suite.run(folders["native"], env))
        switched_on = environment(home, env)
        connector.append(suite.run(folders["sds"], switched_on))
        served = reads_by_replica(home)
    return SuiteResult(
        suite=suite.name,
        title=suite.title,
        versions=versions,
        rounds=rounds,
        comparison=compare(
            native, connector, native_only=getattr(suite, "native_only", frozenset())
        ),
        reads_traced=served.total(),
        reads_served=sum(n for replica, n in served.items() if replica > 0),
    )
