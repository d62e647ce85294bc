"""Locate the connector, and compose the environment that switches it on."""

from __future__ import annotations

import os
import shutil
import stat
import struct
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import sds
from sds.errors import ConfigurationError
from sds.home import make_private, user_data_directory, who_could_replace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sds.home import Home

PLUGIN_NAME = "libh5sds_vol.so"
PRELOAD_NAME = "sds_preload.so"
CONNECTOR_NAME = "sds"
CONNECTOR = f"{CONNECTOR_NAME} under_vol=0;under_info={{}}"

# AddressSanitizer wants to be the first library of a program, since others may take memory. The
# preloaded one takes none.
_ASAN_OPTION = "verify_asan_link_order=0"
# LD_PRELOAD ends a name at a space or colon, and replaces $PLATFORM.
_UNFIT_FOR_PRELOAD = " :$"
_AT_PLATFORM = 15
_WRITTEN_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def plugin_path() -> Path:
    """Return the connector's shared object.

    In an editable install, and in the root of the repository, ``sds`` spans the source folder and
    the one in site-packages; the compiled parts are in the latter.

    Raises
    ------
    ConfigurationError
        If it is not installed.
    """
    places = [Path(base) / "redirect" / "plugin" / PLUGIN_NAME for base in sds.__path__]
    for place in places:
        if place.is_file():
            return place
    looked = ", ".join(str(place.parent) for place in places)
    raise ConfigurationError(
        f"the connector {PLUGIN_NAME} is not installed (looked in {looked}); "
        "install SDS with pip, or run `make` in its source folder"
    )


def preload_entry() -> str:
    """Return what LD_PRELOAD is to name.

    On x86-64 ``$PLATFORM`` stands for the processor: the loader of a 32-bit program finds a library
    for it, and is silent.

    Raises
    ------
    ConfigurationError
        If SDS is not installed, or only where LD_PRELOAD cannot name it.
    """
    installed = plugin_path().parents[1] / "preload"
    kept = _keep_preload(installed)
    places = [place for place in (kept, installed) if place is not None]
    for place in places:
        if not any(character in str(place) for character in _UNFIT_FOR_PRELOAD):
            return f"{place}/{_platform()}/{PRELOAD_NAME}"
    raise ConfigurationError(
        f"LD_PRELOAD cannot name {places[0]}, whose path has a space, colon or dollar sign; "
        "set XDG_DATA_HOME to a directory without, or install SDS in one"
    )


def _platform() -> str:
    """Return the directory of the preloaded library for programs of this machine."""
    machine = os.uname().machine
    if machine == "x86_64" and _kernel_names_platform():
        return "$PLATFORM"
    return machine


def _kernel_names_platform() -> bool:
    """Return whether the kernel tells programs their processor; some that emulate Linux do not."""
    try:
        vector = Path("/proc/self/auxv").read_bytes()
    except OSError:
        return False
    return any(key == _AT_PLATFORM and value for key, value in struct.iter_unpack("@LL", vector))


def _keep_preload(installed: Path) -> Path | None:
    """Return a directory of this account with a copy of the preloaded library.

    Shells and long-running scripts keep LD_PRELOAD when SDS is removed or upgraded under them, and
    the loader complains, in every program, of a library that is gone.

    Returns
    -------
    None where there can be no copy: then there is the installed library alone.
    """
    directory = user_data_directory() / "preload"
    try:
        for library in installed.glob(f"*/{PRELOAD_NAME}"):
            place = directory / library.parent.name
            make_private(place)
            for own in (directory.parent, directory, place):
                _close_to_others(own)
            if who_could_replace(place):
                return None  # and put a library of their own there
            _copy(library, place / PRELOAD_NAME)
        runs_programs = not os.statvfs(directory).f_flag & os.ST_NOEXEC
    except OSError:
        return None
    return directory if runs_programs else None


def _close_to_others(directory: Path) -> None:
    """Take the right to write from all but the owner; earlier versions left it to the umask."""
    found = directory.stat()
    if found.st_uid == os.geteuid() and found.st_mode & _WRITTEN_BY_OTHERS:
        directory.chmod(stat.S_IMODE(found.st_mode) & ~_WRITTEN_BY_OTHERS)


def _copy(library: Path, copy: Path) -> None:
    """Copy a library where the copy differs, or others may write it.

    Programs find either the old one or the new one.
    """
    try:
        found = copy.lstat()
        is_own = found.st_uid == os.geteuid() and not found.st_mode & _WRITTEN_BY_OTHERS
        if is_own and stat.S_ISREG(found.st_mode) and copy.read_bytes() == library.read_bytes():
            return
    except FileNotFoundError:
        pass
    with tempfile.TemporaryDirectory(dir=copy.parent, prefix=".part-") as part:
        made = Path(part) / copy.name
        shutil.copyfile(library, made)
        made.chmod(0o755)
        made.replace(copy)


def is_named(environ: Mapping[str, str]) -> bool:
    """Return whether HDF5_VOL_CONNECTOR names the connector."""
    return environ.get("HDF5_VOL_CONNECTOR", "").split()[:1] == [CONNECTOR_NAME]


def is_preloaded(environ: Mapping[str, str]) -> bool:
    """Return whether what answers for HDF5_VOL_CONNECTOR is loaded into programs."""
    return "SDS_CONNECTOR" in environ and any(map(_is_preload, _preloaded(environ)))


def is_switched_on(environ: Mapping[str, str]) -> bool:
    """Return whether programs with this environment use the connector."""
    return is_named(environ) if environ.get("HDF5_VOL_CONNECTOR") else is_preloaded(environ)


def environment(home: Home, base_env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables to add to base_env so that programs use the connector.

    Raises
    ------
    ConfigurationError
        If the connector is not installed, or base_env names another one or forbids plugins.
    """
    return switched_on(base_env) | {"SDS_HOME": str(home.root)}


def switched_on(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that switch the connector on in a shell; the home is left to it.

    Raises
    ------
    ConfigurationError
        As :func:`environment`.
    """
    _refuse_others(environ)
    plugin = plugin_path()
    # First: another library's getenv in front of it would be taken for the one that asks.
    others = [entry for entry in _preloaded(environ) if not _is_preload(entry)]
    options = [option for option in _asan_options(environ) if option != _ASAN_OPTION]
    return {
        "ASAN_OPTIONS": ":".join([*options, _ASAN_OPTION]),
        "LD_PRELOAD": ":".join([preload_entry(), *others]),
        "SDS_CONNECTOR": str(plugin),
    }


def switched_off(environ: Mapping[str, str]) -> dict[str, str | None]:
    """Return the variables that take :func:`switched_on` back; None for those to be removed."""
    changes: dict[str, str | None] = {}
    if any(map(_is_preload, _preloaded(environ))):
        others = [entry for entry in _preloaded(environ) if not _is_preload(entry)]
        changes["LD_PRELOAD"] = ":".join(others) or None
    if _ASAN_OPTION in _asan_options(environ):
        options = [option for option in _asan_options(environ) if option != _ASAN_OPTION]
        changes["ASAN_OPTIONS"] = ":".join(options) or None
    if "SDS_CONNECTOR" in environ:
        changes["SDS_CONNECTOR"] = None
    if is_named(environ):
        changes["HDF5_VOL_CONNECTOR"] = None
    return changes


def _refuse_others(environ: Mapping[str, str]) -> None:
    named = environ.get("HDF5_VOL_CONNECTOR", "").strip()
    if named and not is_named(environ):
        raise ConfigurationError(
            f"HDF5_VOL_CONNECTOR={named!r} already names another connector, "
            "and SDS does not stack on it; unset it to use SDS"
        )
    if environ.get("HDF5_PLUGIN_PRELOAD") == "::":
        raise ConfigurationError(
            "HDF5_PLUGIN_PRELOAD='::' forbids HDF5 to load plugins; unset it to use SDS"
        )


def missing_preloads(environ: Mapping[str, str]) -> list[str]:
    """Return the libraries of SDS that LD_PRELOAD names and that are not there."""
    named = (library_of(entry) for entry in _preloaded(environ) if _is_preload(entry))
    return [library for library in named if not os.path.isfile(library)]  # noqa: PTH113  (or closed)


def library_of(entry: str) -> str:
    """Return the path that the loader makes of an entry of LD_PRELOAD."""
    return entry.replace("$PLATFORM", os.uname().machine)


def _preloaded(environ: Mapping[str, str]) -> list[str]:
    return environ.get("LD_PRELOAD", "").replace(":", " ").split()


def _is_preload(entry: str) -> bool:
    return Path(entry).name == PRELOAD_NAME


def _asan_options(environ: Mapping[str, str]) -> list[str]:
    return [option for option in environ.get("ASAN_OPTIONS", "").split(":") if option]
