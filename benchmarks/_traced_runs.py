"""Reads that are traced, and readers that are timed beside each other at the same reads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.chunk_advice import Reader

_TRACED = """
import json, sys, h5py
from sds.geometry import parse_index
with h5py.File(sys.argv[1]) as file:
    for text in json.load(sys.stdin):
        file["d"][parse_index(text)]
"""


def trace(home: Path, source: Path, texts: Sequence[str]) -> None:
    """Read selections under SDS, traced."""
    command = [sys.executable, "-m", "sds.cli", "run", "--", sys.executable, "-c", _TRACED]
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("HDF5_", "SDS_"))}
    subprocess.run(
        [*command, str(source)],
        input=json.dumps(texts),
        text=True,
        env=environment | {"SDS_HOME": str(home)},
        check=True,
    )


def measure(readers: Sequence[Reader], texts: Sequence[str]) -> dict[bool, np.ndarray]:
    """Return the seconds of every reader, shape (readers, reads), cold (True) and warm."""
    seconds = {cold: np.zeros((len(readers), len(texts))) for cold in (True, False)}
    for turn, text in enumerate([texts[0], *texts]):  # the first one warms up
        checksums = set()
        first = turn % len(readers)
        for i in (*range(first, len(readers)), *range(first)):
            for cold in (True, False):
                took, checksum = readers[i].read(text, cold=cold)
                checksums.add(checksum)
                if turn:
                    seconds[cold][i, turn - 1] = took
        if len(checksums) != 1:
            raise AssertionError(f"readers read different bytes of {text}")
    return seconds
