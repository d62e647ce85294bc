"""The names of all commands, and which of them need no extra."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

BASE = ("run", "env", "doctor")
"""Commands that need no extra. Each is a module with a parser and a function of its name."""

BEYOND_BASE = {
    "Run programs under SDS": ("status",),
    "Find a better layout": (
        "ingest", "advise", "what-if", "explain", "simulate", "calibrate", "plot", "machine",
    ),
    "Build and keep replicas": ("reorganize", "query", "replicas"),
    "Look inside": ("demo", "trace", "table"),
}  # fmt: skip
"""Commands that need packages of extras, by the heading of the help that lists them."""

ABOUT = """Make reading large HDF5 files fast, without changing the programs that read them.

Run a program under `sds run`; ask `sds advise` what would make its reads cheap; build that
with `sds reorganize`; run the program again. Originals are only ever read."""


def base_module(name: str) -> ModuleType:
    """Return the module of a command that needs no extra."""
    return import_module(f"sds.cli.commands.{name}")
