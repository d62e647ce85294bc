"""Python programs under mpiexec: each rank opens the file with a serial h5py of its own."""

import sys

import h5py
import numpy as np
import pytest

from sds.home import Home
from tests.hdf5_builds import mpich_program
from tests.mpi.launch import mpiexec, served
from tests.redirected import redirect, settle
from tests.under_connector import connector_environment, native_environment

PROGRAM = """
import sys
import h5py
import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
with h5py.File(sys.argv[1]) as file:
    mine = file["a"][:, world.rank]
both = np.empty((world.size, *mine.shape)) if world.rank == 0 else None
world.Gather(mine, both)
if world.rank == 0:
    np.save(sys.argv[2], both)
"""


@pytest.mark.parametrize("n_ranks", [2, 4])
def test_ranks_with_serial_h5py(tmp_path, n_ranks):
    path, home, program = tmp_path / "source.h5", Home(tmp_path / "home"), tmp_path / "program.py"
    values = np.random.default_rng(3).random((6, 20, 16))
    with h5py.File(path, "w") as file:
        file["a"] = values
    settle(path)
    redirect(path, [("/a", (1, 2, 0))], home)
    program.write_text(PROGRAM)
    mpi = mpich_program("mpiexec").parents[1] / "lib" / "libmpi.so.12"
    for name, environment in (
        ("native", native_environment()),
        ("connector", connector_environment(home.root)),
    ):
        kept = tmp_path / f"{name}.npy"
        command = [sys.executable, program, path, kept]
        mpiexec([(environment | {"MPI4PY_LIBMPI": str(mpi)}, command)] * n_ranks)
        assert np.array_equal(np.load(kept), values[:, :n_ranks].swapaxes(0, 1))
    assert served(home, n_ranks) == {rank: {1: 1} for rank in range(n_ranks)}
