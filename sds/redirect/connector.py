"""Where the connector is, and the environment that switches it on."""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs

import sds
from sds.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sds.home import Home

PLUGIN_NAME = "libh5sds_vol.so"
CONNECTOR_NAME = "sds"
CONNECTOR = f"{CONNECTOR_NAME} under_vol=0;under_info={{}}"
HDF5_DEFAULT_PLUGIN_DIRECTORY = Path("/usr/local/hdf5/lib/plugin")


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


def own_filter_directories() -> tuple[Path, ...]:
    """Return the filter plugins that the netCDF4 package of this interpreter brings.

    That package points HDF5 to them only where HDF5_PLUGIN_PATH is not set.
    """
    spec = importlib.util.find_spec("netCDF4")
    if spec is None or spec.origin is None:
        return ()
    directory = Path(spec.origin).parent / "plugins"
    return (directory,) if directory.is_dir() else ()


def own_plugin_directories() -> tuple[Path, ...]:
    """Return what HDF5_PLUGIN_PATH has to name for programs of this interpreter, and for others."""
    return (*own_filter_directories(), HDF5_DEFAULT_PLUGIN_DIRECTORY)


def keep_plugin() -> Path | None:
    """Return a directory of this account with a copy of the connector, made where there is none.

    Shells and long-running scripts keep the variables that name the connector when SDS is removed
    or upgraded under them, and HDF5 2 crashes where it is gone. The copy serves them then.

    Returns
    -------
    None where there can be no copy: then there is the installed connector alone.

    Raises
    ------
    ConfigurationError
        If the connector is not installed.
    """
    plugin = plugin_path()
    directory = Path(platformdirs.user_data_dir("sds")) / "plugin"
    copy = directory / PLUGIN_NAME
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        owned = directory.stat()
        if owned.st_uid != os.geteuid() or owned.st_mode & 0o022:
            return None  # others could put a plugin of their own there
        if not _is_copy(copy, plugin):
            with tempfile.TemporaryDirectory(dir=directory, prefix=".part-") as part:
                made = Path(part) / PLUGIN_NAME
                shutil.copy2(plugin, made)
                made.replace(copy)
    except OSError:
        return None
    return directory


def _is_copy(copy: Path, plugin: Path) -> bool:
    """Return whether it was copied from this plugin: size and time of change tell."""
    try:
        found = copy.stat()
    except FileNotFoundError:
        return False
    wanted = plugin.stat()
    return (found.st_size, found.st_mtime_ns) == (wanted.st_size, wanted.st_mtime_ns)


def is_named(environ: Mapping[str, str]) -> bool:
    """Return whether HDF5_VOL_CONNECTOR names the connector."""
    return environ.get("HDF5_VOL_CONNECTOR", "").split()[:1] == [CONNECTOR_NAME]


def environment(
    home: Home,
    base_env: Mapping[str, str],
    *,
    plugin_directories: Iterable[Path] | None = None,
    kept_plugin: Path | None = None,
) -> dict[str, str]:
    """Return the variables to add to base_env so that HDF5 loads the connector.

    Parameters
    ----------
    home
        Where traces go and tables lie.
    base_env
        Environment of the program; what it says in HDF5_PLUGIN_PATH is kept, behind the connector.
    plugin_directories
        Where the program finds plugins while HDF5_PLUGIN_PATH is not set; what holds for this
        interpreter where left out.
    kept_plugin
        Of :func:`keep_plugin`: used where the installed connector has gone.

    Raises
    ------
    ConfigurationError
        If the connector is not installed, or base_env names another one or forbids plugins.
    """
    named = base_env.get("HDF5_VOL_CONNECTOR", "").strip()
    if named and not is_named(base_env):
        raise ConfigurationError(
            f"HDF5_VOL_CONNECTOR={named!r} already names another connector, "
            "and SDS does not stack on it; unset it to use SDS"
        )
    if base_env.get("HDF5_PLUGIN_PRELOAD") == "::":
        raise ConfigurationError(
            "HDF5_PLUGIN_PRELOAD='::' forbids HDF5 to load plugins; unset it to use SDS"
        )
    if plugin_directories is None:
        plugin_directories = own_plugin_directories()
    # Setting the variable replaces HDF5's default directories, so those are named too.
    entries = [
        str(plugin_path().parent),
        *([str(kept_plugin)] if kept_plugin else []),
        *(entry for entry in base_env.get("HDF5_PLUGIN_PATH", "").split(os.pathsep) if entry),
        *(str(directory) for directory in plugin_directories),
    ]
    return {
        "HDF5_PLUGIN_PATH": os.pathsep.join(dict.fromkeys(entries)),
        "HDF5_VOL_CONNECTOR": CONNECTOR,
        "SDS_HOME": str(home.root),
    }
