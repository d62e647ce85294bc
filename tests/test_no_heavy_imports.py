"""Starting up loads nothing heavy: a compute node calls sds.read, a shell asks for --help."""

import subprocess
import sys

import pytest

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


@pytest.mark.parametrize("module", ["sds", "sds.redirect", "sds.cli", "sds.reader"])
def test_import_is_light(module):
    program = f"import sys, {module}; print(*[m for m in {HEAVY!r} if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == []


@pytest.mark.parametrize("module", ["sds.server.service", "sds.server.app"])
def test_commands_that_only_read_the_catalog_load_no_numerical_library(module):
    heavy = ("h5py", "scipy", "statsmodels", "sklearn", "alembic", "matplotlib")
    program = f"import sys, {module}; print(*[m for m in {heavy!r} if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == []
