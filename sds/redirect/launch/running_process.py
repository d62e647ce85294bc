"""Switch SDS on in a process that already runs, where nothing can be preloaded any more."""

from __future__ import annotations

import ctypes
import itertools
import os
import re
import sys
from pathlib import Path

from sds import _native
from sds.errors import ConfigurationError
from sds.home import default_home, is_switched_off
from sds.redirect.launch.activation import log_native
from sds.redirect.launch.connector import PRELOAD_NAME, environment, library_of
from sds.redirect.launch.probe import PACKAGES, libraries_of_python

_MAPPED_FILE = re.compile(r"^\S+ \S+ \S+ \S+ \d+ +(/.*)$", re.MULTILINE)


def enable() -> None:
    """Serve what this process reads of HDF5 files from here on, and what the programs it starts do.

    For notebooks, in the first cell: HDF5 looks for its connector once, before its first file. The
    HDF5 libraries of the packages of this Python (h5py, netCDF4, tables, vtk) are loaded, and find
    the connector as under `sds run`; no variable of HDF5 is set. Where SDS is on already, or
    switched off by SDS_DISABLE=1, nothing happens.

    Raises
    ------
    ConfigurationError
        If one of these packages has been imported before, or none is installed; as `sds run` where
        the connector is not installed or cannot be loaded, or the environment names another one; or
        if two packages need different libraries of one name.

    Examples
    --------
    >>> import sds
    >>> sds.enable()
    >>> import h5py
    """
    mapped = {Path(path) for path in _MAPPED_FILE.findall(_maps())}
    if is_switched_off(os.environ) or any(path.name == PRELOAD_NAME for path in mapped):
        return
    home = default_home()
    variables = environment(home, os.environ)
    preload = library_of(variables["LD_PRELOAD"].partition(":")[0])
    libraries = libraries_of_python(Path(sys.executable), os.environ)
    if not libraries:
        message = (
            f"{sys.executable} has no package with an HDF5 of its own (h5py, netCDF4, tables, "
            "vtk): install one, or start programs by sds run"
        )
        raise ConfigurationError(message)
    used = {library.used_by for library in libraries if library.path.resolve() in mapped}
    used |= {name for name in PACKAGES if name in sys.modules}
    if used:
        message = (
            f"{' and '.join(sorted(used))} is loaded already, and HDF5 looks for SDS once, as it "
            "starts: restart the kernel, and call sds.enable() before anything imports h5py, "
            "netCDF4 or tables"
        )
        raise ConfigurationError(message)
    paths = sorted({library.path.resolve() for library in libraries})
    for name, alike in itertools.groupby(sorted(paths, key=_stem), _stem):
        if len(several := list(alike)) > 1:
            message = (
                f"{' and '.join(map(str, several))} are both called {name}: loaded together, one "
                "would take the other's place; start the kernel by sds run"
            )
            raise ConfigurationError(message)
    try:
        ctypes.CDLL(preload)
    except OSError as error:
        message = (
            f"{preload} cannot be loaded ({error}): set XDG_DATA_HOME to a directory on a file "
            "system from which programs run"
        )
        raise ConfigurationError(message) from error
    home.create()
    os.environ.update(variables)
    for path in paths:
        try:
            n_slots = _native.replace_import(os.fsencode(path), "getenv", os.fsencode(preload))
            problem = "" if n_slots else "it does not look for connectors"
        except RuntimeError as error:  # the loader's: nor can the package be imported
            problem = str(error)
        if problem:
            log_native(os.environ, str(path), problem)


def _stem(path: Path) -> str:
    """Return the name of a library without its version, by which others need it."""
    return path.name.partition(".so")[0]


def _maps() -> str:
    return Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape")
