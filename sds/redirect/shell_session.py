"""The connector in an open shell: what `sds env` sets there, and how it is taken back.

What was changed is remembered in one variable of the shell itself, so that a second `sds env`
changes nothing, and `sds env --unset` takes back what was added and leaves what was there.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from sds.redirect import connector

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from sds.home import Home

UNDO = "SDS_ENV_UNDO"


def switched_on(
    home: Home,
    environ: Mapping[str, str],
    *,
    plugin_directories: Iterable[Path] | None = None,
    kept_plugin: Path | None = None,
) -> dict[str, str]:
    """Return the variables that a shell is to have.

    Parameters
    ----------
    plugin_directories, kept_plugin
        As for :func:`sds.redirect.connector.environment`.

    Raises
    ------
    ConfigurationError
        If the connector is not installed or cannot be used here.
    """
    added, home_before = _remembered(environ)
    variables = connector.environment(
        home, environ, plugin_directories=plugin_directories, kept_plugin=kept_plugin
    )
    there = [entry for entry in _entries(environ) if entry not in added]
    undo = {
        "added": [entry for entry in _entries(variables) if entry not in there],
        "SDS_HOME": home_before,
    }
    return variables | {UNDO: json.dumps(undo)}


def switched_off(environ: Mapping[str, str]) -> dict[str, str | None]:
    """Return the variables that a shell is to have again, None for those it is to lose."""
    added, home_before = _remembered(environ)
    there = [entry for entry in _entries(environ) if entry not in added]
    changes: dict[str, str | None] = {}
    if connector.is_named(environ):
        changes["HDF5_VOL_CONNECTOR"] = None
    if UNDO in environ:
        changes |= {
            "HDF5_PLUGIN_PATH": os.pathsep.join(there) or None,
            "SDS_HOME": home_before,
            UNDO: None,
        }
    return changes


def _entries(environ: Mapping[str, str]) -> list[str]:
    return [entry for entry in environ.get("HDF5_PLUGIN_PATH", "").split(os.pathsep) if entry]


def _remembered(environ: Mapping[str, str]) -> tuple[list[str], str | None]:
    """Return the entries that were added, and SDS_HOME as it was."""
    try:
        undo = json.loads(environ[UNDO])
        return [str(entry) for entry in undo["added"]], undo["SDS_HOME"]
    except (KeyError, TypeError, ValueError):
        # Nothing was switched on here, or somebody has changed the variable.
        return [], environ.get("SDS_HOME")
