"""The command line: ``sds``. One file per command group; importing this loads nothing heavy."""

from __future__ import annotations

from sds.cli.app import main as main

__all__ = ["main"]
