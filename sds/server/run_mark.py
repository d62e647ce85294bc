"""Mark in the home while a server runs: found at a start, it shows an unclean end."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sds.atomic_file import replace_whole, sync_directory

if TYPE_CHECKING:
    from sds.home import Home

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class UncleanEnd:
    """The end of an earlier server that did not come to its end.

    Attributes
    ----------
    of_machine
        Whether the machine ended with it.
    started_ns
        When that server had started, ns since 1970.
    """

    of_machine: bool
    started_ns: int


def begin_run(home: Home) -> UncleanEnd | None:
    """Leave the mark of this server; returns how the one before ended, None where cleanly."""
    boot_id = _BOOT_ID.read_text(encoding="ascii").strip()
    ended = None
    try:
        left = json.loads(home.running.read_text(encoding="utf-8"))
        ended = UncleanEnd(
            of_machine=left["boot_id"] != boot_id, started_ns=int(left["started_ns"])
        )
    except FileNotFoundError:
        pass
    except (ValueError, KeyError, TypeError):  # cut off by what ended the machine
        ended = UncleanEnd(of_machine=True, started_ns=0)
    mark = {"boot_id": boot_id, "started_ns": time.time_ns()}
    replace_whole(home.running, json.dumps(mark).encode())
    return ended


def end_run(home: Home) -> None:
    """Remove the mark: the server ends cleanly."""
    home.running.unlink(missing_ok=True)
    sync_directory(home.root)
