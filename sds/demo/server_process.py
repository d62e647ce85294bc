"""The demonstration's own server: started, awaited, stopped."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Self

from sds.errors import ServerUnreachableError
from sds.server.remote_service import server_address
from sds.server.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from sds.home import Home

_LONGEST_START_S = 60.0
_LONGEST_STOP_S = 15.0
_PAUSE_S = 0.1


class DemoServer:
    """An ``sds-server`` for one home, on a free port of this machine.

    Parameters
    ----------
    home
        What it serves.
    log
        File that takes its output.
    keep
        Leave it running.
    """

    def __init__(self, home: Home, *, log: Path, keep: bool) -> None:
        self._home = home
        self._log = log
        self._keep = keep
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    @property
    def pid(self) -> int:
        """Process id of the server; 0 before it starts."""
        return 0 if self._process is None else self._process.pid

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "sds.server.main", "--port", "0"],
                env=_without_settings() | {"SDS_HOME": str(self._home.root)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            self.url = self._await()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._keep or error is not None:
            self._stop()

    def _await(self) -> str:
        """Return its address once it answers.

        Raises
        ------
        ServerUnreachableError
            If it ends, or does not answer in time; with the end of its log.
        """
        deadline = time.monotonic() + _LONGEST_START_S
        while time.monotonic() < deadline:
            if self._process is not None and self._process.poll() is not None:
                break
            url = server_address(self._home)
            if url is not None:
                return url
            time.sleep(_PAUSE_S)
        said = self._log.read_text(errors="replace")[-2000:].strip()
        message = f"the demonstration's server did not start; it said: {said or 'nothing'}"
        raise ServerUnreachableError(message)

    def _stop(self) -> None:
        """End it; kill it if it does not want to."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(_LONGEST_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _without_settings() -> dict[str, str]:
    """Return this environment without settings of a server: they would win over the home's."""
    names = {f"SDS_{name.upper()}" for name in Settings.model_fields}
    return {name: value for name, value in os.environ.items() if name not in names}
