"""Stages that a child process can import."""

import os
import signal
import time

from sds.errors import NotHdf5Error
from sds.server.operations import stages

BUILD = stages.build
HANGS_S = 600  # longer than any test waits


def double(number, *, progress):
    for i in range(3):
        progress((i + 1) / 3, "doubling")
    return 2 * number


def fail(kind, *, progress):  # noqa: ARG001
    if kind == "known":
        message = "/a.h5 is no HDF5 file; name one"
        raise NotHdf5Error(message)
    message = "a secret detail"
    raise RuntimeError(message)


def die(*, progress):  # noqa: ARG001
    os.kill(os.getpid(), signal.SIGSEGV)


def leave(*, progress):  # noqa: ARG001
    os._exit(7)


def work_until_stopped(path, *, progress):
    try:
        while True:
            progress(0.5, f"pid {os.getpid()}")
            time.sleep(0.01)
    finally:
        path.write_text("cleaned up")


def hang(path, *, progress):
    progress(0.0, "begun")
    path.write_text(str(os.getpid()))
    time.sleep(HANGS_S)
    path.with_suffix(".after").touch()


def build_once_allowed(request, root, *, announce, progress):
    """Build as the server does; once announced, wait for the file ``allowed`` in the home."""

    def announce_and_wait(plan):
        announce(plan)
        while not (root / "allowed").exists():
            time.sleep(0.005)

    return BUILD(request, root, announce=announce_and_wait, progress=progress)
