"""Starting up loads nothing heavy: a compute node calls sds.read, a shell asks for --help."""

import os
import subprocess
import sys

import h5py
import numpy as np
import pytest

from sds.catalog.requests import ReorganizeRequest
from sds.home import Home
from sds.server.operations.service import Service
from tests.redirected import settle
from tests.server.running import Server

HEAVY = (
    "sqlalchemy",
    "fastapi",
    "mpi4py",
    "h5py",
    "statsmodels",
    "sklearn",
    "matplotlib",
    "pandas",
)


@pytest.mark.parametrize("module", ["sds", "sds.redirect", "sds.cli", "sds.client.reader"])
def test_import_is_light(module):
    program = f"import sys, {module}; print(*[m for m in {HEAVY!r} if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == []


@pytest.mark.parametrize("module", ["sds.server.operations.service", "sds.server.api.application"])
def test_commands_that_only_read_the_catalog_load_no_numerical_library(module):
    heavy = ("h5py", "scipy", "statsmodels", "sklearn", "alembic", "matplotlib")
    program = f"import sys, {module}; print(*[m for m in {heavy!r} if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == []


def test_a_process_of_sds_starts_no_threads_for_matrices():
    program = (
        "import os; from sds.home import become_own_process; become_own_process(); import numpy; "
        "print(os.environ['OPENBLAS_NUM_THREADS'], len(os.listdir('/proc/self/task')))"
    )
    environment = dict(os.environ)
    environment.pop("OPENBLAS_NUM_THREADS", None)
    result = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == ["1", "1"]


NUMERICAL = ("numpy", "h5py", "scipy", "sds.analyzer", "sds.geometry", "sds.recommender")
OF_SERVERS = ("sqlalchemy", "alembic", "fastapi", "uvicorn")


@pytest.fixture
def home(tmp_path):
    """A home with a replica and a trace that was counted."""
    source = tmp_path / "run.h5"
    with h5py.File(source, "w") as file:
        file["cube"] = np.zeros((8, 8, 8), "f4")
    settle(source)
    found = Home(tmp_path / "home")
    with Service.open(found) as service:
        service.reorganize(ReorganizeRequest(file=str(source), dataset="/cube", order=(2, 0, 1)))
    return found


@pytest.fixture
def served(home):
    server = Server(home)
    try:
        yield server.wait_until_it_listens().home
    finally:
        server.kill()


def imported_by(home, *words):
    """Return the modules that a command of ``sds`` imports."""
    program = (
        "import sys; from sds.cli import main\n"
        f"sys.argv = ['sds', *{words!r}]\n"
        "try: main()\n"
        "finally: print(*sys.modules, file=sys.stderr)"
    )
    environment = os.environ | {"SDS_HOME": str(home.root)}
    result = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    return set(result.stderr.split())


@pytest.mark.parametrize(
    ("words", "heavy"),
    [
        (("status",), (*NUMERICAL, *OF_SERVERS)),
        (("ingest",), (*NUMERICAL, *OF_SERVERS)),
        (("replicas",), ("h5py", "scipy", "sds.analyzer", "sds.recommender", *OF_SERVERS)),
    ],
    ids=lambda words: words[0],
)
def test_commands_beside_a_server_load_what_they_print_alone(served, words, heavy):
    found = imported_by(served, *words)
    assert found.isdisjoint(heavy), found & set(heavy)


@pytest.mark.parametrize(
    ("words", "heavy"),
    [
        (("status",), NUMERICAL),
        (("ingest",), ("h5py", "scipy", "statsmodels", "sklearn", "alembic", "matplotlib")),
        (("replicas",), ("h5py", "scipy", "sds.analyzer", "sds.recommender")),
    ],
    ids=lambda words: words[0],
)
def test_commands_without_a_server_load_what_they_need_alone(home, words, heavy):
    found = imported_by(home, *words)
    assert found.isdisjoint(heavy), found & set(heavy)


def test_public_names_are_listed_before_they_are_imported():
    program = (
        "import sys, sds; names = dir(sds); loaded = 'h5py' in sys.modules; "
        "print(loaded, names == sorted(sds.__all__), all(hasattr(sds, name) for name in names))"
    )
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert told.stdout.split() == ["False", "True", "True"]
