"""Run operations in processes of their own: an operation that opens users' files may never return.

An open of a file on a mount that does not answer holds the interpreter of the process that calls
it. So operations that name files run in a few processes that are kept for it, each with a service
of its own on the same home, and within a time limit. A process that exceeds it is killed.
"""

from __future__ import annotations

import functools
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from sds.errors import RequestTimeoutError, ServerUnreachableError
from sds.server.child import Child
from sds.server.operations.service import Service
from sds.server.operations.stages import CutOffError

if TYPE_CHECKING:
    from pathlib import Path

    from sds.home import Home
    from sds.server.settings import Settings

N_PROCESSES = 4


class ProcessPool:
    """Processes that run operations on one home, started when they are needed.

    Parameters
    ----------
    settings
        Of the home; ``request_limit_s`` bounds each call, waiting for a process included.
    stop
        Set when the server ends: calls under way are then cut off.
    """

    def __init__(self, home: Home, settings: Settings, stop: threading.Event) -> None:
        self._home = home
        self._settings = settings
        self._stop = stop
        # A child dies with the thread that began it: these live as long as the server.
        self._threads = ThreadPoolExecutor(N_PROCESSES, thread_name_prefix="sds-pool")
        self._own = threading.local()

    def call(self, operation: str, **given: object) -> Any:  # noqa: ANN401  (of any operation)
        """Return the result of a method of `Service`, by name.

        Raises
        ------
        RequestTimeoutError
            If it takes longer than ``request_limit_s``.
        ServerUnreachableError
            If the server ends meanwhile.
        """
        deadline_s = time.monotonic() + self._settings.request_limit_s
        try:
            return self._threads.submit(self._call, operation, given, deadline_s).result()
        except CutOffError:
            message = "the server ends; ask again once it runs"
            raise ServerUnreachableError(message) from None

    def _call(self, operation: str, given: dict[str, object], deadline_s: float) -> Any:  # noqa: ANN401
        """Run a method in this thread's child; start another child where it is gone."""

        def poll() -> None:
            if self._stop.is_set():
                raise CutOffError
            if time.monotonic() >= deadline_s:
                message = (
                    f"no answer within {self._settings.request_limit_s:g} s, the setting "
                    "request_limit_s; is the file system of what was named reachable?"
                )
                raise RequestTimeoutError(message)

        poll()
        child: Child | None = getattr(self._own, "child", None)
        if child is None or not child.is_alive:
            child = self._own.child = Child()
        try:
            return child.run(
                run_operation,
                self._home.root,
                self._settings,
                operation,
                given,
                callbacks={},
                poll=poll,
            )
        except (RequestTimeoutError, CutOffError):
            self._own.child = None
            child.end()
            raise


def run_operation(
    home_root: Path, settings: Settings, operation: str, given: dict[str, object]
) -> Any:  # noqa: ANN401
    """Run in the child: call a method of the service of a home, which is kept open."""
    return getattr(_service(home_root, settings), operation)(**given)


@functools.cache
def _service(home_root: Path, settings: Settings) -> Service:
    from sds.home import Home  # noqa: PLC0415

    return Service.open(Home(home_root), settings)
