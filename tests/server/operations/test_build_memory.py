"""A build takes no more memory than was allowed, all of its process counted."""

import os
import re
import subprocess
import sys

import h5py
import numpy as np
import pytest

MIB = 1 << 20
ALLOWED_MIB = 256

BUILD = """
import re, sys
from pathlib import Path
from sds.catalog.requests import ReorganizeRequest, SortRequest
from sds.geometry import SegmentList
from sds.server.operations.service import Service

kind, file = sys.argv[1:]
given = {"file": file, "memory_bytes": %d << 20}
if kind == "sort":
    request = SortRequest(dataset="/table", key="key", **given)
else:
    options = {"dataset": "/" + kind.split("-")[0], "order": (2, 0, 1)}
    if kind.endswith("-gzip"):
        options["compress"] = "gzip:1"
    if kind.endswith("-tiles"):
        options["segments"] = SegmentList(
            tile_shape=(8, 64, 128), tiles=tuple(range(0, 1024)), lengths=(1024,)
        )
    request = ReorganizeRequest(**options, **given)
with Service.open() as service:
    service.reorganize(request)
print(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Return a file with as much in each dataset as is allowed to be in memory."""
    path = tmp_path_factory.mktemp("source") / "large.h5"
    rows = np.zeros(ALLOWED_MIB * MIB // 16, [("key", "<f8"), ("x", "<f8")])
    rows["key"] = np.random.default_rng(1).random(len(rows))
    shape = (128, 512, 1024)
    with h5py.File(path, "w") as file:
        cube = np.broadcast_to(np.arange(1024, dtype="<i4"), shape)
        file.create_dataset("plain", data=cube)
        file.create_dataset(
            "zipped", data=cube, chunks=(8, 64, 128), compression="gzip", compression_opts=1
        )
        file["table"] = rows
    os.utime(path, (1e9, 1e9))
    return path


@pytest.mark.parametrize(
    "kind", ["plain", "plain-gzip", "zipped", "zipped-gzip", "zipped-tiles", "plain-tiles", "sort"]
)
def test_a_build_takes_no_more_than_it_may(source, tmp_path, kind):
    done = subprocess.run(
        [sys.executable, "-c", BUILD % ALLOWED_MIB, kind, source],
        env=os.environ | {"SDS_HOME": str(tmp_path / "home")},
        capture_output=True, text=True, check=False, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"\d+", done.stdout.strip())
    assert int(done.stdout) / 1024 <= ALLOWED_MIB
