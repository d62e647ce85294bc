"""File systems that are too small."""

import os
import subprocess

import pytest


@pytest.fixture
def small_disk(request, tmp_path):
    """Mount a file system in memory: of 4 MiB, or as large as an indirect parameter says."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    place = tmp_path / "small"
    place.mkdir()
    size = getattr(request, "param", "4m")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)],
        check=False,
        capture_output=True,
        text=True,
    )
    if mounted.returncode:
        pytest.skip(f"no mount: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)
