"""Answers questions in processes of their own: what looks into users' files may hang for ever.

An open of a file on a mount that does not answer holds the interpreter of the process that calls
it. So questions that name files are answered by a few processes that are kept for it, each with a
service of its own on the same home, and within a time limit. A process that exceeds it is killed.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from sds.errors import RequestTimeoutError
from sds.server.child import Child
from sds.server.service import Service
from sds.server.stages import CutOffError

if TYPE_CHECKING:
    from pathlib import Path

    from sds.home import Home
    from sds.server.settings import Settings

_Parameters = ParamSpec("_Parameters")
_Answer = TypeVar("_Answer")

N_PROCESSES = 4


class Ask(Protocol):
    """Calls an operation of the service, wherever that is."""

    def __call__(
        self,
        operation: Callable[Concatenate[Service, _Parameters], _Answer],
        *args: _Parameters.args,
        **named: _Parameters.kwargs,
    ) -> _Answer:
        """Return what ``operation(service, *args, **named)`` returns."""


@dataclass(frozen=True, slots=True)
class _Question(Generic[_Answer]):
    """An operation and what it is given; it goes from process to process."""

    operation: Callable[..., _Answer]
    args: tuple[object, ...]
    named: dict[str, object]

    def __call__(self, service: Service) -> _Answer:
        return self.operation(service, *self.args, **self.named)


class InProcess:
    """Calls an operation here."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def __call__(
        self,
        operation: Callable[Concatenate[Service, _Parameters], _Answer],
        *args: _Parameters.args,
        **named: _Parameters.kwargs,
    ) -> _Answer:
        """Return what ``operation(service, *args, **named)`` returns."""
        return operation(self._service, *args, **named)


class Asker:
    """Processes that answer questions about one home, begun when they are needed.

    Parameters
    ----------
    settings
        Of the home; ``request_limit_s`` bounds each question, waiting for a process included.
    stop
        Set when the server ends: questions under way are then cut off.
    """

    def __init__(self, home: Home, settings: Settings, stop: threading.Event) -> None:
        self._home = home
        self._settings = settings
        self._stop = stop
        # A child dies with the thread that began it: these live as long as the server.
        self._threads = ThreadPoolExecutor(N_PROCESSES, thread_name_prefix="sds-ask")
        self._own = threading.local()

    def __call__(
        self,
        operation: Callable[Concatenate[Service, _Parameters], _Answer],
        *args: _Parameters.args,
        **named: _Parameters.kwargs,
    ) -> _Answer:
        """Return what an operation of a service on this home returns.

        Raises
        ------
        RequestTimeoutError
            If it takes longer than ``request_limit_s``.
        """
        deadline_s = time.monotonic() + self._settings.request_limit_s
        work: Callable[[Service], _Answer] = _Question(operation, args, named)
        return self._threads.submit(self._answer, work, deadline_s).result()

    def _answer(self, work: Callable[[Service], _Answer], deadline_s: float) -> _Answer:
        """Have this thread's child answer; begin another where it is gone."""

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
            found: _Answer = child.run(
                answer, self._home.root, self._settings, work, callbacks={}, poll=poll
            )
        except (RequestTimeoutError, CutOffError):
            self._own.child = None
            child.end()
            raise
        else:
            return found


def answer(home_root: Path, settings: Settings, work: Callable[[Service], _Answer]) -> _Answer:
    """Run in the child: answer a question with the service of a home, which is kept open."""
    return work(_service(home_root, settings))


@functools.cache
def _service(home_root: Path, settings: Settings) -> Service:
    from sds.home import Home  # noqa: PLC0415

    return Service.open(Home(home_root), settings)
