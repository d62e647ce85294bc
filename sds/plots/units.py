"""Units of the coefficients of cost models."""

from __future__ import annotations

from sds.recommender.model import GapKind

_UNITS = {
    "1": "",
    "1 shuffle": "",
    "requests": "request",
    "bytes_touched": "B",
    "BD": "block",
    "P": "process/OST",
    "Nproc": "process",
    "Nagg": "aggregator",
    "Size/Nagg": "B",
    "runs_most": "run",
    "first_visits": "visit",
    "trips_most": "trip",
    "step_bytes": "B",
    "ost_bytes": "B",
    "seeks": "seek",
    "blocks": "block",
    "sieve_requests": "request",
    "sieve_jumps": "jump",
    "sieve_bytes": "B",
}
_GAP_UNITS = {GapKind.COUNT: "gap", GapKind.DISTANCE: "block", GapKind.PAPER: "element"}


def unit_of(term: str, gap: GapKind) -> str:
    """Return the unit of a term's coefficient, e.g. ``s/block``; terms without one are ``s``."""
    per = [_unit(factor, gap) for factor in term.split("*")]
    named = [unit for unit in per if unit]
    if not named:
        return "s"
    below = "\N{MIDDLE DOT}".join(named)
    return f"s/({below})" if len(named) > 1 or "/" in below else f"s/{below}"


def _unit(factor: str, gap: GapKind) -> str:
    if factor == "BG":
        return _GAP_UNITS[gap]
    # A term of a kind that has no entry is counted in itself.
    return _UNITS.get(factor, factor)
