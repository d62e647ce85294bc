"""Whether a replica still holds what was written, and what the original holds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationReport:
    """What a verification found.

    Attributes
    ----------
    path
        The replica file.
    problems
        One sentence each; none where all is well.
    damaged_blocks
        Numbers of the blocks whose bytes differ from their checksums.
    checked_bytes
        Bytes that were read from the replica.
    """

    path: Path
    problems: tuple[str, ...]
    damaged_blocks: tuple[int, ...]
    checked_bytes: int

    @property
    def ok(self) -> bool:
        """Whether the replica may be served."""
        return not self.problems
