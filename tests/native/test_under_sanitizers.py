"""The C tests of the core, under AddressSanitizer and UndefinedBehaviorSanitizer."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMES = sorted(path.stem for path in Path(__file__).parent.glob("test_*.c"))


@pytest.fixture(scope="session")
def sanitized(tmp_path_factory):
    """Return the folder of the C tests, built with both sanitizers."""
    build = tmp_path_factory.mktemp("sanitized")
    options = ["-DSDS_BUILD_TESTS=ON", "-DSDS_SANITIZE=ON", "-DSDS_BUILD_PYTHON=OFF"]
    for command in (
        [find_cmake(), "-S", ROOT, "-B", build, "-DCMAKE_BUILD_TYPE=RelWithDebInfo", *options],
        [find_cmake(), "--build", build, "--parallel", str(os.cpu_count() or 1)],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return build


def find_cmake():
    """Return the cmake of this environment, else the system's."""
    import sysconfig

    beside = Path(sysconfig.get_path("scripts")) / "cmake"
    return beside if beside.exists() else shutil.which("cmake")


@pytest.mark.parametrize("name", NAMES)
def test_c(name, sanitized, tmp_path):
    done = subprocess.run(
        [sanitized / name], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
