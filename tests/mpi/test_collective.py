"""Collective transfers give the bytes that single ones give, and no rank waits in vain."""

import sys
from pathlib import Path

import pytest

from tests.hdf5_builds import mpich_program
from tests.mpi.launch import mpiexec
from tests.sizes import repeated
from tests.under_connector import native_environment

PROGRAM = "tests.mpi.collective"
CHECKOUT = Path(__file__).parents[2]


def run(n_ranks, scenario, folder, *arguments):
    library = mpich_program("mpiexec").parents[1] / "lib" / "libmpi.so.12"
    environment = native_environment(PYTHONPATH=str(CHECKOUT)) | {"MPI4PY_LIBMPI": str(library)}
    command = [sys.executable, "-m", PROGRAM, scenario, folder, *arguments]
    assert mpiexec([(environment, command)] * n_ranks) == ""


@pytest.mark.parametrize("n_ranks", [1, 2, 4])
@pytest.mark.parametrize("scenario", ["random_reads", "random_writes"])
def test_random_regions(tmp_path, n_ranks, scenario):
    run(n_ranks, scenario, tmp_path, repeated(20, 200))


@pytest.mark.parametrize("n_ranks", [2, 4])
def test_thousands_of_short_regions(tmp_path, n_ranks):
    run(n_ranks, "dealt_cells", tmp_path)


@pytest.mark.parametrize("n_ranks", [1, 3])
def test_errors_of_one_rank_are_raised_on_all(tmp_path, n_ranks):
    run(n_ranks, "errors", tmp_path)
