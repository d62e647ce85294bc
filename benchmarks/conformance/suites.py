"""All suites that can be run here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.conformance.hdf5_suites import hdf5_suites, netcdf_suites, tool_suite
from benchmarks.conformance.python_suites import python_suites
from benchmarks.conformance.redirected import RedirectedReaders, RedirectedTools
from benchmarks.conformance.zoo import Zoo

if TYPE_CHECKING:
    from benchmarks.conformance.running import Suite


def cache_directory() -> Path:
    """Return where downloaded and built tests are kept."""
    base = os.environ.get("SDS_TEST_CACHE")
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return (Path(base) if base else Path(caches) / "sds-tests") / "peers"


def suites(cache: Path, *, hdf5_source: Path | None, netcdf_source: Path | None) -> list[Suite]:
    """Return the suites; those in C where the full source trees are given."""
    found: list[Suite] = [*python_suites(cache), RedirectedReaders(cache=cache), Zoo(cache=cache)]
    if hdf5_source:
        found += hdf5_suites(cache, hdf5_source)
        found.append(RedirectedTools(cache=cache, tools=tool_suite(cache, hdf5_source)))
    if netcdf_source:
        found += netcdf_suites(cache, netcdf_source)
    return found
