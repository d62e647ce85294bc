"""Runs a stage in a process of its own: what kills it, or hangs it, leaves the server alive.

The child shares nothing with the server but a pipe. It calls the server's callbacks through it and
waits for the answer, so that a callback may stop the work. It dies with the server, whatever ends
that: the kernel sees to it, and a build that was cut off is finished or removed at the next start.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import traceback
from typing import TYPE_CHECKING, Any, TypeVar

from sds.errors import SdsError, ServerError
from sds.extras import missing_extra

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

Result = TypeVar("Result")

_PR_SET_PDEATHSIG = 1
_POLL_S = 0.1
_GRACE_S = 5.0
_END_S = 3.0


class StoppedError(Exception):
    """Raised in the child by a callback that is to stop the work."""


class Child:
    """A process that runs stages, one after the other.

    It is killed with the thread that made it, as with this process. SIGTERM ends what it does at
    once, but for a stage that handles it in order to clean up behind itself.
    """

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_child_main, args=(theirs, os.getpid()), daemon=True)
        self._process.start()
        theirs.close()

    @property
    def is_alive(self) -> bool:
        """True while it can take another stage."""
        return self._process.is_alive()

    def run(
        self,
        work: Callable[..., Result],
        *args: object,
        callbacks: Mapping[str, Callable[..., None]],
        poll: Callable[[], None],
    ) -> Result:
        """Return what a function returns that runs in the child; parameters as `run_in_child`."""
        try:
            self._pipe.send((work, args, tuple(callbacks)))
        except BrokenPipeError:
            raise ServerError(_how_it_died(self._process)) from None
        returned: Result = _converse(self._pipe, self._process, callbacks, poll)
        return returned

    def end(self) -> None:
        """End it, having given it a moment to clean up; kill it then."""
        self._pipe.close()
        if self._process.is_alive():
            self._process.terminate()
            self._process.join(_END_S)
        if self._process.is_alive():
            self._process.kill()
        # Stuck in the kernel it stays, on a mount that hangs: no caller waits for it.
        self._process.join(_END_S)
        if not self._process.is_alive():
            self._process.close()


def run_in_child(
    work: Callable[..., Result],
    *args: object,
    callbacks: Mapping[str, Callable[..., None]],
    poll: Callable[[], None],
) -> Result:
    """Return what a function returns that runs in a process of its own.

    Parameters
    ----------
    work
        A function of a module; called with `args`, and with proxies of `callbacks` by name.
    callbacks
        Called here, in this thread. One that raises stops the child; what it raised is raised.
    poll
        Called here at least every 0.1 s. If it raises, the child is ended at once.

    Raises
    ------
    SdsError
        What the child raised.
    ServerError
        If the child was killed or failed in a way that SDS does not know.
    """
    child = Child()
    try:
        return child.run(work, *args, callbacks=callbacks, poll=poll)
    finally:
        child.end()


def _converse(
    pipe: Connection,
    child: BaseProcess,
    callbacks: Mapping[str, Callable[..., None]],
    poll: Callable[[], None],
) -> Any:  # noqa: ANN401  (what the child's function returns)
    """Answer the child's calls until it ends; return or raise what it did."""
    while True:
        poll()
        if not pipe.poll(_POLL_S):
            if child.is_alive() or pipe.poll(0):
                continue
            raise ServerError(_how_it_died(child))
        try:
            kind, content = pipe.recv()
        except EOFError:
            child.join(_GRACE_S)
            raise ServerError(_how_it_died(child)) from None
        if kind == "returned":
            return content
        if kind == "raised":
            raise content
        name, arguments = content
        try:
            callbacks[name](*arguments)
        except BaseException:
            pipe.send(False)
            child.join(_GRACE_S)  # time to clean up behind itself
            raise
        pipe.send(True)


def _how_it_died(child: BaseProcess) -> str:
    code = child.exitcode
    if code is not None and code < 0:
        return f"the working process was ended by {signal.Signals(-code).name}; try again"
    return f"the working process ended with status {code} and said nothing; see the server's log"


def _child_main(pipe: Connection, parent: int) -> None:
    """Run in the child: call the functions that come, send what each returns or raises."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(1)  # the server died before the kernel knew of our wish
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the server's to answer
    while True:
        try:
            work, args, callback_names = pipe.recv()
        except EOFError:
            return
        try:
            returned = work(*args, **{name: _proxy(pipe, name) for name in callback_names})
        except StoppedError:
            return
        except SdsError as error:
            pipe.send(("raised", error))
        except Exception as error:  # noqa: BLE001  (the border of the process: all is reported)
            traceback.print_exc()
            message = f"{type(error).__name__}: {error}; the server's log has the details"
            pipe.send(("raised", missing_extra(error) or ServerError(message)))
        else:
            pipe.send(("returned", returned))


def _proxy(pipe: Connection, name: str) -> Callable[..., None]:
    def call(*arguments: object) -> None:
        pipe.send(("called", (name, arguments)))
        if not pipe.recv():
            raise StoppedError(name)

    return call
