"""Starts the ranks of a job, and follows them."""

from __future__ import annotations

import logging
import os
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, files
from importlib.util import find_spec
from typing import IO, TYPE_CHECKING, Any

from sds.errors import BuildInterruptedError, ConfigurationError, MissingExtraError
from sds.extras import pip_install
from sds.organizer.parallel.rank_jobs import read_event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sds.organizer.parallel.rank_jobs import EventKind, Job

log = logging.getLogger(__name__)

# What an MPI program tells its own processes: ranks that inherit it would join that program. What
# users set for mpiexec (HYDRA_HOST_FILE, OMPI_MCA_...) stays.
_OF_MPI = re.compile("PMI_|PMIX_|HYDI_|MPI_LOCAL|OMPI_COMM_WORLD_|OMPI_APP_CTX|OMPI_FIRST_RANKS")
_END_S = 10.0
_MOST_SAID = 2000


def run_ranks(job: Job, n_ranks: int, on_event: Callable[[EventKind, Any], None]) -> Any:  # noqa: ANN401
    """Run a job on ranks that are started for it; return what it returns.

    The ranks end with this process, and where `on_event` raises.

    Parameters
    ----------
    on_event
        Called with each event, but for those that end the job.

    Raises
    ------
    SdsError, OSError
        What a rank raised.
    BuildInterruptedError
        If the ranks ended before the job did.
    ConfigurationError, MissingExtraError
        If there is no ``mpiexec``, or no mpi4py.
    """
    command = [
        *_mpiexec(n_ranks),
        sys.executable,
        "-P",
        "-m",
        "sds.organizer.parallel",
        str(n_ranks),
    ]
    with tempfile.TemporaryFile() as said, _started(command, said) as running:
        ended: tuple[EventKind, Any] | None = None
        _write(running, pickle.dumps(job))
        for line in _stream(running.stdout):
            event = read_event(line)
            if event is None:
                log.info("a rank printed: %s", line.decode(errors="replace").rstrip())
            elif event[0] in {"returned", "raised"}:
                ended = event
            else:
                on_event(*event)
                if event[0] == "steps":
                    _write(running, b"n")
        running.wait()
        if ended is None:
            said.seek(0)
            message = (
                f"the {n_ranks} ranks of the build ended with status {running.returncode} before "
                "it did; the same build, when it is begun again, goes on from what was noted to be "
                "on disk, if it is a copy. They said: "
                f"{said.read()[-_MOST_SAID:].decode(errors='replace').strip() or 'nothing'}"
            )
            raise BuildInterruptedError(message)
    kind, value = ended
    if kind == "raised":
        raise value
    return value


def _write(running: subprocess.Popen[bytes], content: bytes) -> None:
    """Write to the first rank, where it still lives: its end shows at its output."""
    try:
        _stream(running.stdin).write(content)
        _stream(running.stdin).flush()
    except BrokenPipeError:
        log.debug("the ranks ended before they had %d bytes", len(content))


def _stream(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:
        raise AssertionError("a pipe that was asked for")
    return stream


@contextmanager
def _started(command: list[str], said: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """Start the ranks; end them, with all that they do, where the block is left before they end."""
    environment = {name: value for name, value in os.environ.items() if not _OF_MPI.match(name)}
    try:
        running = subprocess.Popen(  # noqa: S603  (the arguments are ours, or the user's setting)
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            env=environment,
        )
    except OSError as error:
        message = f"{command[0]} cannot be started ({error}); set SDS_MPIEXEC to one that can"
        raise ConfigurationError(message) from error
    try:
        yield running
    finally:
        if running.poll() is None:
            running.terminate()
        try:
            running.communicate(timeout=_END_S)
        except subprocess.TimeoutExpired:
            running.kill()
            running.communicate()


def _mpiexec(n_ranks: int) -> list[str]:
    """Return the command that starts so many ranks.

    ``SDS_MPIEXEC``, in which ``{n}`` stands for their number, or where it is not set, the mpiexec
    of the package mpich beside mpi4py, else that of PATH.
    """
    if find_spec("mpi4py") is None:
        message = (
            f"mpi4py is not installed, which this needs; install it with: {pip_install('mpi')}"
        )
        raise MissingExtraError(message)
    set_to = os.environ.get("SDS_MPIEXEC", "").split()
    if set_to and not any("{n}" in part for part in set_to):
        message = f"SDS_MPIEXEC is {' '.join(set_to)!r}; write {{n}} for the number of ranks"
        raise ConfigurationError(message)
    if set_to:
        return [part.replace("{n}", str(n_ranks)) for part in set_to]
    try:
        own = [path for path in files("mpich") or () if path.name == "mpiexec"]
    except PackageNotFoundError:
        own = []
    program = str(own[0].locate()) if own else shutil.which("mpiexec")
    if program is None:
        raise ConfigurationError("there is no mpiexec in PATH; set SDS_MPIEXEC, as to srun -n {n}")
    return [program, "-n", str(n_ranks)]
