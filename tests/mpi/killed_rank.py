"""A rank of a build that notes every batch, and dies or fails where a test says so.

Stands in SDS_MPIEXEC before the command that SDS appends. SDS_TEST_RANK is "RANK STEPS DEED": when
that rank has begun so many steps, it is killed (kill), fails as a full disk does (full), raises
what no copy raises (odd), or flips a byte of what it writes (flip).
"""

import errno
import functools
import os
import signal
import sys

from sds.organizer.copy import stepwise_copy

stepwise_copy.CHECKPOINT_S = 0.0

import numpy as np  # noqa: E402  (the constant is imported by name)
from mpi4py import MPI  # noqa: E402

from sds.organizer.copy.targets import ContiguousTarget  # noqa: E402
from sds.organizer.parallel import rank_main  # noqa: E402
from sds.organizer.parallel.chunk_exchange import ChunkSender  # noqa: E402
from sds.organizer.reorganizers.sorted_runs import SortedOutput  # noqa: E402

n_written = 0


def write_or_not(write, self, *arguments):
    global n_written  # noqa: PLW0603  (a program of one file)
    n_written += 1
    rank, steps, deed = os.environ.get("SDS_TEST_RANK", "-1 0 kill").split()
    if (MPI.COMM_WORLD.rank, n_written) == (int(rank), int(steps)):
        if deed == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif deed == "full":
            raise OSError(errno.ENOSPC, "No space left on device")
        elif deed == "odd":
            raise RuntimeError("can't start new thread")
        elif deed == "flip":
            elements = arguments[-1].view(np.uint8)
            elements[len(elements) // 2] ^= 1
    write(self, *arguments)


for kind in (ContiguousTarget, ChunkSender, SortedOutput):
    kind.write = functools.partialmethod(functools.partial(write_or_not, kind.write))
sys.argv = sys.argv[-2:]
rank_main.main()
