"""Reads that count in mode auto: those of patterns that are still read."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sds.text import DAY_S

if TYPE_CHECKING:
    from sds.analyzer import AccessPattern
    from sds.catalog.store import Store
    from sds.server.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentReads:
    """Says which patterns are still read.

    Attributes
    ----------
    since_ns
        What was not read since then is not; ns since 1970. `recent_days` ago.
    newest_ns
        When the newest read of all was made: what has ended is known by it
        (`AccessPattern.has_ended`), so that nothing ends while the whole site pauses.
    """

    since_ns: int
    newest_ns: int

    @classmethod
    def of(cls, store: Store, settings: Settings) -> RecentReads:
        """Return what is recent now."""
        now_ns = time.time_ns()
        return cls(
            since_ns=now_ns - int(settings.recent_days * DAY_S * 1e9),
            newest_ns=min(now_ns, store.newest_read_ns()),
        )

    def hold(self, pattern: AccessPattern) -> bool:
        """Return whether a pattern is still read, or stated."""
        is_recent = pattern.last_ns >= self.since_ns and not pattern.has_ended(self.newest_ns)
        return pattern.stated or is_recent
