"""SDS: makes reading large HDF5 files fast without changing the programs that read them."""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sds.client.list_io import read_list as read_list
    from sds.client.list_io import write_list as write_list
    from sds.client.open_files import forget as forget
    from sds.client.reader import read as read
    from sds.queries.query import query as query
    from sds.redirect.launch.running_process import enable as enable

__version__ = "0.1.0"
__all__ = ["__version__", "enable", "forget", "query", "read", "read_list", "write_list"]

# In the root of the repository this folder shadows an installed wheel, which alone holds the
# compiled parts: look for submodules there too.
__path__ = pkgutil.extend_path(__path__, __name__)

# No public name is also the name of its module: importing the module would hide it.
_LAZY = {
    "enable": "sds.redirect.launch.running_process",
    "forget": "sds.client.open_files",
    "query": "sds.queries.query",
    "read": "sds.client.reader",
    "read_list": "sds.client.list_io",
    "write_list": "sds.client.list_io",
}


def __getattr__(name: str) -> object:
    """Import a public name on first use: a compute node needs no pandas to call sds.read."""
    if name in _LAZY:
        found = getattr(importlib.import_module(_LAZY[name]), name)
        globals()[name] = found  # to ask again would take a third of a small read
        return found
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)


def __dir__() -> list[str]:
    """Return the public names, imported or not."""
    return sorted(__all__)
