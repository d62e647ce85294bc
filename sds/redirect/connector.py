"""Where the connector is, and the environment that switches it on."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING

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


def environment(
    home: Home,
    base_env: Mapping[str, str],
    *,
    filter_directories: Iterable[Path] | None = None,
) -> dict[str, str]:
    """Return the variables to add to base_env so that HDF5 loads the connector.

    Parameters
    ----------
    home
        Where traces go and tables lie.
    base_env
        Environment of the program; what it says in HDF5_PLUGIN_PATH is kept, behind the connector.
    filter_directories
        Further directories of HDF5 filter plugins; of this interpreter's netCDF4 where left out.

    Raises
    ------
    ConfigurationError
        If the connector is not installed, or base_env names another one.
    """
    named = base_env.get("HDF5_VOL_CONNECTOR", "").strip()
    if named and named.partition(" ")[0] != CONNECTOR_NAME:
        raise ConfigurationError(
            f"HDF5_VOL_CONNECTOR={named!r} already names another connector, "
            "and SDS does not stack on it; unset it to use SDS"
        )
    if filter_directories is None:
        filter_directories = own_filter_directories()
    # Setting the variable replaces HDF5's default directory, so that one is named too.
    entries = [
        str(plugin_path().parent),
        *(entry for entry in base_env.get("HDF5_PLUGIN_PATH", "").split(os.pathsep) if entry),
        *(str(directory) for directory in filter_directories),
        str(HDF5_DEFAULT_PLUGIN_DIRECTORY),
    ]
    return {
        "HDF5_PLUGIN_PATH": os.pathsep.join(dict.fromkeys(entries)),
        "HDF5_VOL_CONNECTOR": CONNECTOR,
        "SDS_HOME": str(home.root),
    }
