"""Machine files: the parameters of a machine, and its errors where it was fitted to timed reads.

TOML. Keys are the fields of `sds.simulator.SimulatorParameters`, striping and RAID in tables of
their own; what is left out is as in `sds.simulator.hopper`. A table `fit` holds the errors of
`sds.simulator.parameter_fit.FittedMachine`; then nothing may be left out. `version` is that of the
format.
"""

from __future__ import annotations

import math
import sys
import tomllib
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from reprlib import repr as short_repr
from typing import TYPE_CHECKING, Any

from sds.errors import FormatError, FormatVersionError, SdsValueError
from sds.simulator import SimulatorParameters, hopper
from sds.simulator.parameter_fit import FittedMachine

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sds.geometry import RaidLayout, StripeLayout

VERSION = 1
"""Version of the format: a file of another version has another meaning, and is refused."""

_PARTS = ("stripes", "raid")
_NUMBERS = tuple(f.name for f in fields(SimulatorParameters) if f.name not in _PARTS)
_FLAGS = {"ost_forgets"}
_ERRORS = tuple(f.name for f in fields(FittedMachine) if f.name != "parameters")
_COUNTED = {"n_fitted", "n_left_out"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Contents of a machine file.

    Attributes
    ----------
    parameters
        Of the simulator.
    fitted
        The same with its errors; None where it was not fitted to anything.
    """

    parameters: SimulatorParameters
    fitted: FittedMachine | None


def parse_machine(text: str, *, name: str) -> Machine:
    """Return the machine that a file describes.

    Parameters
    ----------
    text
        Of the file.
    name
        What errors call it.

    Raises
    ------
    FormatError
        If it is no TOML, a key is unknown, or a value cannot be.
    FormatVersionError
        If it is of a newer version than this SDS reads.
    """
    try:
        found = tomllib.loads(text)
    except ValueError as error:  # also of integers of thousands of digits
        raise FormatError(f"{name} is no TOML: {error}") from error
    except RecursionError as error:
        raise FormatError(f"{name} is nested too deeply: a machine is tables of numbers") from error
    version = found.pop("version", VERSION)
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        said = short_repr(version)
        raise FormatError(f"{name}: version is {said}; write a whole number, {VERSION}")
    if version > VERSION:
        raise FormatVersionError(
            f"{name} is of version {version}, this SDS reads up to {VERSION}: use a newer SDS, or "
            "fit the machine anew"
        )
    try:
        return _machine(found)
    except SdsValueError as error:
        raise FormatError(f"{name}: {error}") from error


def format_machine(machine: FittedMachine) -> str:
    """Return the file of a fitted machine, every parameter said; `parse_machine` reads it."""
    parameters = machine.parameters
    lines = ["# Fitted to timed reads by `sds machine fit`; for `sds simulate --machine`."]
    lines += [_line("version", VERSION)]
    lines += [_line(key, getattr(parameters, key)) for key in _NUMBERS]
    for part in _PARTS:
        layout = getattr(parameters, part)
        lines += ["", f"[{part}]"]
        lines += [_line(field.name, getattr(layout, field.name)) for field in fields(layout)]
    lines += [
        "",
        "# Of the reads left out of the fit: logarithms of predicted / measured.",
        "[fit]",
    ]
    lines += [_line(key, getattr(machine, key)) for key in _ERRORS]
    return "\n".join(lines) + "\n"


def _line(key: str, value: float) -> str:
    return f"{key} = {str(value).lower() if isinstance(value, bool) else repr(value)}"


def _machine(found: dict[str, Any]) -> Machine:
    """Return the machine of a file's keys; raise SdsValueError for what is wrong with them."""
    errors = found.pop("fit", None)
    known = hopper()
    if isinstance(errors, dict):
        _check_whole(found, known)
    layouts: dict[str, Any] = {
        part: _part(part, getattr(known, part), found.pop(part, {})) for part in _PARTS
    }
    numbers = _numbers("", found, _NUMBERS, whole=_whole(known))
    parameters = replace(known, **layouts, **numbers)
    if errors is None:
        return Machine(parameters=parameters, fitted=None)
    given = _numbers("fit.", _table("fit", errors), _ERRORS, whole=_COUNTED)
    missing = [key for key in _ERRORS if key not in given]
    if missing:
        raise SdsValueError(
            f"[fit] has no {missing[0]}: leave the table out, or write it by `sds machine fit`"
        )
    for key, value in given.items():
        if not (math.isfinite(value) and value >= 0):
            raise SdsValueError(f"fit.{key} is {value}; give a number that is not negative")
    return Machine(parameters=parameters, fitted=FittedMachine(parameters=parameters, **given))


def _check_whole(found: Mapping[str, object], known: SimulatorParameters) -> None:
    """Raise SdsValueError if a fitted machine lacks a number: another one's would be wrong."""
    wanted = {"": _NUMBERS, **{part: _names_of(getattr(known, part)) for part in _PARTS}}
    for part, keys in wanted.items():
        there = found.get(part, {}) if part else found
        for key in keys:
            if isinstance(there, dict) and key not in there:
                raise SdsValueError(
                    f"there is [fit], but no {part + '.' if part else ''}{key}, of what was "
                    "fitted: leave [fit] out, or write the file by `sds machine fit`"
                )


def _names_of(layout: StripeLayout | RaidLayout) -> tuple[str, ...]:
    return tuple(field.name for field in fields(layout))


def _part(name: str, layout: StripeLayout | RaidLayout, found: object) -> StripeLayout | RaidLayout:
    keys = [field.name for field in fields(layout)]
    given = _numbers(f"{name}.", _table(name, found), keys, whole=set(keys))
    changed: StripeLayout | RaidLayout = replace(layout, **given)
    return changed


def _table(name: str, found: object) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise SdsValueError(f"{name} is {short_repr(found)}; write a table, [{name}]")
    return found


def _whole(known: SimulatorParameters) -> set[str]:
    """Return the parameters that are counted, not measured."""
    return {key for key in _NUMBERS if isinstance(getattr(known, key), int)} - _FLAGS


def _numbers(
    where: str, found: Mapping[str, object], keys: Sequence[str], *, whole: set[str]
) -> dict[str, Any]:
    """Return the values of a table, each of the kind that its key wants."""
    for key, value in found.items():
        if key not in keys:
            near = get_close_matches(key, keys, n=1)
            hint = f": {near[0]}?" if near else f"; there are {', '.join(keys)}"
            raise SdsValueError(f"there is no {where}{key}{hint}")
        kinds: tuple[type, ...] = (int, float)
        wanted = "a number"
        if key in _FLAGS:
            kinds, wanted = (bool,), "true or false"
        elif key in whole:
            kinds, wanted = (int,), "a whole number"
        if not isinstance(value, kinds) or (isinstance(value, bool) and key not in _FLAGS):
            raise SdsValueError(f"{where}{key} is {short_repr(value)}; give {wanted}")
        if isinstance(value, int) and abs(value) > sys.float_info.max:
            raise SdsValueError(f"{where}{key} has {len(str(abs(value)))} digits; give fewer")
    return {key: value if key in whole | _FLAGS else float(value) for key, value in found.items()}  # type: ignore[arg-type]
