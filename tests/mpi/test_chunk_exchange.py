"""Messages of the first rank to itself: one waits at a time, and a failure makes room."""

import subprocess
import sys

from tests.under_connector import native_environment
from tests.waiting import PATIENCE_S

# In a process of its own: importing it begins an MPI program.
PROGRAM = """
from types import SimpleNamespace

import numpy as np
from mpi4py import MPI

from sds.organizer.parallel.chunk_exchange import ChunkSender
from sds.organizer.plans.reorganization_plan import Slab


class NoMemory:
    def copy(self):
        raise MemoryError("no room for a copy")


slab = Slab(start=(0,), shape=(4,))
sender = ChunkSender(MPI.COMM_SELF, SimpleNamespace(encode_bytes=0))
try:
    sender.write(slab, NoMemory())
except MemoryError as error:
    print(error)
sender.write(slab, np.arange(4, dtype=np.uint8))
taken, elements = sender.take_own()
print(taken == slab, elements.tolist())
"""


def test_a_message_that_could_not_be_made_makes_room_for_the_next():
    told = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=native_environment(), capture_output=True, text=True,
        timeout=PATIENCE_S, check=True,
    )  # fmt: skip
    assert told.stdout.splitlines() == ["no room for a copy", "True [0, 1, 2, 3]"]
