"""Note, in the catalog, of what the last evaluation advised."""

from __future__ import annotations

import time
from functools import cache
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from sds.catalog.database import damaged
from sds.server.operations.reports import KeptAdvice

if TYPE_CHECKING:
    from sds.catalog.store import Store
    from sds.recommender.portfolio.values import Portfolio

_STAMP = "evaluated"
_N_COMMANDS = 3


def keep_advice(store: Store, portfolio: Portfolio) -> None:
    """Note a portfolio as what is advised now."""
    kept = KeptAdvice(
        found_ns=time.time_ns(),
        n_layouts=len(portfolio.layouts),
        saves_s=portfolio.saving.seconds,
        commands=tuple(layout.command for layout in portfolio.layouts[:_N_COMMANDS]),
    )
    store.set_stamp(_STAMP, _adapter().dump_json(kept).decode())


def kept_advice(store: Store) -> KeptAdvice | None:
    """Return what the last evaluation advised; None where there was none.

    Raises
    ------
    CatalogError
        If the catalog's note of it cannot be read.
    """
    note = store.stamp(_STAMP)
    if note is None:
        return None
    try:
        return _adapter().validate_json(note)
    except ValueError as error:
        raise damaged("database", f"{note!r:.60} is no KeptAdvice") from error


@cache
def _adapter() -> TypeAdapter[KeptAdvice]:
    return TypeAdapter(KeptAdvice)
