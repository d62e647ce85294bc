"""The names of all commands, and which of them need no extra."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

BASE = ("run", "env", "doctor")
"""Commands that need no extra. Each is a module with a parser and a function of its name."""

BEYOND_BASE = {
    "Run programs under SDS": ("try", "status", "report"),
    "Find a better layout": (
        "ingest", "advise", "what-if", "explain", "simulate", "calibrate", "plot", "machine",
    ),
    "Build and keep replicas": (
        "reorganize", "query", "replicas", "policy", "reads", "events",
    ),
    "Look inside": ("demo", "trace", "table"),
}  # fmt: skip
"""Commands that need packages of extras, by the heading of the help that lists them."""

ABOUT = """Make reading large HDF5 files fast, without changing the programs that read them.

Run a program by `sds try` to see what its reads take and what would make them cheap, and to build
that; from then on run it by `sds run`. Originals are only ever read."""


def base_module(name: str) -> ModuleType:
    """Return the module of a command that needs no extra."""
    return import_module(f"sds.cli.commands.{name}")
