"""Processes that read at one time, for a calibration."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from sds.errors import SdsError
from sds.home import NATIVE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import TracebackType

    from sds.calibration.results import ReadRequest

# Until all know when to begin.
_LEAD_NS = 2_000_000
_END_S = 5.0


class Readers:
    """Pool of n reading processes, as many as ever read at one time; they end with the block."""

    def __init__(self, n: int, *, directory: Path) -> None:
        self._n = n
        self._log = directory / "readers.log"
        self._processes: list[subprocess.Popen[str]] = []
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        try:
            self._begin()
        except BaseException:
            self._stack.close()
            raise
        return self

    def _begin(self) -> None:
        """Start every process, and wait until each has imported what it needs."""
        # What is measured is HDF5 itself, not SDS's connector.
        environment = {**os.environ, **NATIVE, "SDS_DISABLE": "1"}
        log = self._stack.enter_context(self._log.open("w", encoding="utf-8"))
        self._stack.callback(self._end)
        for _ in range(self._n):
            self._processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", "sds.calibration.reader_process"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env=environment,
                    text=True,
                    bufsize=1,
                )
            )
        for process in self._processes:
            self._answer(process)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def _end(self) -> None:
        """End every process, also one that is stuck in a read."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.communicate(timeout=_END_S)

    def read(
        self, requests: Sequence[ReadRequest], *, before: Callable[[], None] | None = None
    ) -> float:
        """Let one process per request read, all beginning at one time.

        Parameters
        ----------
        requests
            At most as many as there are processes.
        before
            Called once every process has opened its file, right before they begin.

        Returns
        -------
        Seconds that the slowest took.
        """
        reading = self._processes[: len(requests)]
        for process, request in zip(reading, requests, strict=True):
            self._tell(process, json.dumps(request))
        for process in reading:
            self._answer(process)
        if before is not None:
            before()
        begin_ns = time.monotonic_ns() + _LEAD_NS
        for process in reading:
            self._tell(process, f"go {begin_ns}")
        return max(int(self._answer(process)) for process in reading) * 1e-9

    def _tell(self, process: subprocess.Popen[str], line: str) -> None:
        if process.stdin is None:
            raise self._failure(process)
        try:
            process.stdin.write(line + "\n")
        except BrokenPipeError as error:
            raise self._failure(process) from error

    def _answer(self, process: subprocess.Popen[str]) -> str:
        line = process.stdout.readline() if process.stdout is not None else ""
        if not line:
            raise self._failure(process)
        return line

    def _failure(self, process: subprocess.Popen[str]) -> SdsError:
        """Return the error of a process that ended early, with the end of what it said."""
        said = self._log.read_text(encoding="utf-8").strip().splitlines()[-3:]
        return SdsError(
            f"a reading process of the calibration ended (status {process.poll()}): "
            + " | ".join(said)
        )
