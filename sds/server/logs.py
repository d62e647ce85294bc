"""The server's log: one line per record, whatever names hold, and a bounded number of records."""

from __future__ import annotations

import logging
import time

from sds.text import printable

LINES_PER_MINUTE = 600


class OneLine(logging.Formatter):
    """Records whose message is one line: what a file's name holds begins no line of its own.

    A traceback follows on lines of its own, set in.
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  (logging's own)
        """Return the line of a record, control characters escaped."""
        return printable(super().formatMessage(record))

    def formatException(self, ei: object) -> str:  # noqa: N802  (logging's own)
        """Return a traceback, each line set in."""
        text = super().formatException(ei)  # type: ignore[arg-type]
        return "\n".join(f"    {printable(line)}" for line in text.split("\n"))


class Bounded(logging.Filter):
    """Pass a limited number of records a minute, and count those dropped."""

    def __init__(self, lines_per_minute: int = LINES_PER_MINUTE) -> None:
        super().__init__()
        self._most = lines_per_minute
        self._minute = 0
        self._passed = 0
        self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record passes; the first of a minute tells what the last one lost."""
        minute = int(time.monotonic() // 60)
        if minute != self._minute:
            self._minute, self._passed = minute, 0
            if self._left_out:
                record.msg = f"({self._left_out} records were left out) {record.getMessage()}"
                record.args = ()
                self._left_out = 0
        if self._passed >= self._most:
            self._left_out += 1
            return False
        self._passed += 1
        return True


def log_to_stderr() -> None:
    """Send the log of the whole process to stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(OneLine())
    handler.addFilter(Bounded())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    # Of every request that is none: whoever can connect could fill the log.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
