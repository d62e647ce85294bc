"""All suites that can be run here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.conformance.hdf5_suites import ToolSuite, hdf5_suites
from benchmarks.conformance.python_suites import python_suites
from benchmarks.conformance.redirected import RedirectedReaders, RedirectedTools

if TYPE_CHECKING:
    from benchmarks.conformance.running import Suite


def cache_directory() -> Path:
    """Return where downloaded and built tests are kept."""
    base = os.environ.get("SDS_TEST_CACHE")
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return (Path(base) if base else Path(caches) / "sds-tests") / "peers"


def suites(cache: Path, hdf5_source: Path | None) -> list[Suite]:
    """Return the suites; HDF5's own where its full source tree is given."""
    found: list[Suite] = [*python_suites(cache), RedirectedReaders(cache=cache)]
    if hdf5_source:
        of_hdf5 = hdf5_suites(cache, hdf5_source)
        found += of_hdf5
        found += [RedirectedTools(tools=s) for s in of_hdf5 if isinstance(s, ToolSuite)]
    return found
