"""Modes of datasets: of the policies that name them, the most specific one's."""

from __future__ import annotations

import time
from pathlib import PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sds.catalog.records import Mode, PolicyRecord


_LEVELS: tuple[Mode, ...] = ("off", "observe", "auto")


def does_as_much(mode: Mode, other: Mode) -> bool:
    """Return whether the evaluator does as much in a mode as in another, or more."""
    return _LEVELS.index(mode) >= _LEVELS.index(other)


def is_within(hours: str | None) -> bool:
    """Return whether it is between two times of the day, local time: ``22:00-06:00``; None: yes."""
    if hours is None:
        return True
    begin, end = hours.split("-")
    now = time.strftime("%H:%M", time.localtime())
    if begin < end:
        return begin <= now < end
    return now >= begin or now < end


class Modes:
    """Finds modes of datasets.

    Parameters
    ----------
    default
        Where no policy names a dataset, its file, or a directory above.
    """

    def __init__(self, policies: Sequence[PolicyRecord], default: Mode) -> None:
        self._modes = {(one.path, one.dataset): one.mode for one in policies}
        self.default = default

    def of(self, file: str, dataset: str) -> Mode:
        """Return the mode of a dataset, by the canonical path of its file."""
        found = self._modes.get((file, dataset))
        for path in (file, *map(str, PurePath(file).parents)):
            if found is not None:
                return found
            found = self._modes.get((path, None))
        return self.default if found is None else found

    @property
    def are_all_auto(self) -> bool:
        """True where everything may be built."""
        return {self.default, *self._modes.values()} == {"auto"}

    @property
    def is_any_auto(self) -> bool:
        """True where something may be built."""
        return "auto" in {self.default, *self._modes.values()}

    @property
    def are_all_off(self) -> bool:
        """True where nothing is to be evaluated."""
        return {self.default, *self._modes.values()} == {"off"}
