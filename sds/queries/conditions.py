"""Conditions on the columns of a table, such as ``energy > 1.3 and (x < 0 or x >= 10)``.

A condition is a Python expression of comparisons joined by ``and``, ``or`` and parentheses; nothing
else is accepted, and nothing is evaluated. A comparison has one column; with a number on both
sides, as in ``1 < energy <= 2``, it stands for both. A column that is no plain word is written
between backticks, its own backticks twice. Numbers are Python's, and ``inf`` and ``nan``.

A comparison means what NumPy makes of ``column > number``: the number takes the type of a
floating-point column, an integer column is compared with a fraction as float64, and NaN is unequal
to everything.
"""

from __future__ import annotations

import ast
import keyword
import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import numpy as np

from sds.errors import SdsValueError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

Sign: TypeAlias = Literal["<", "<=", ">", ">=", "==", "!="]

_COMPARE: Mapping[Sign, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_MIRRORED: Mapping[Sign, Sign] = {
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
    "==": "==",
    "!=": "!=",
}
_MAX_CHARACTERS = 10_000
_SIGNS: Mapping[type[ast.cmpop], Sign] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}
_SPECIAL = frozenset({"inf", "nan"})
_EXAMPLE = 'write for example "energy > 1.3 and energy < 2"'


@dataclass(frozen=True, slots=True)
class Comparison:
    """A column compared with a number."""

    column: str
    sign: Sign
    number: float

    @property
    def columns(self) -> tuple[str, ...]:
        """The one column."""
        return (self.column,)

    def holds(self, values: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
        """Return in which rows it holds, shape (n,)."""
        return compare(values[self.column], self.sign, self.number)

    def __str__(self) -> str:
        plain = self.column.isidentifier() and not keyword.iskeyword(self.column)
        name = self.column if plain and self.column not in _SPECIAL else _in_backticks(self.column)
        return f"{name} {self.sign} {self.number!r}"


@dataclass(frozen=True, slots=True)
class CompoundCondition:
    """Several conditions: all of them (``and``), or at least one (``or``)."""

    word: Literal["and", "or"]
    parts: tuple[Condition, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns in the order in which they are first named."""
        return tuple(dict.fromkeys(name for part in self.parts for name in part.columns))

    def holds(self, values: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
        """Return in which rows it holds, shape (n,)."""
        join = np.logical_and if self.word == "and" else np.logical_or
        found = self.parts[0].holds(values)
        for part in self.parts[1:]:
            join(found, part.holds(values), out=found)
        return found

    def __str__(self) -> str:
        return f" {self.word} ".join(
            f"({part})" if isinstance(part, CompoundCondition) else str(part) for part in self.parts
        )


Condition: TypeAlias = Comparison | CompoundCondition


def _in_backticks(column: str) -> str:
    return "`" + column.replace("`", "``") + "`"


def compare(values: NDArray[Any], sign: Sign, number: float) -> NDArray[np.bool_]:
    """Return ``values > number``, or another comparison, as NumPy has it.

    Parameters
    ----------
    values
        Shape (n,): booleans (as 0 and 1), integers or floating-point numbers.
    number
        An int of any size, or a float. What is beyond the range of the type is as infinite.
    """
    if values.dtype.kind == "b":
        values = np.ascontiguousarray(values).view(np.uint8)
    with np.errstate(all="ignore"):
        try:
            found: NDArray[np.bool_] = _COMPARE[sign](values, number)
        except OverflowError:  # an int that is no float
            found = _COMPARE[sign](values, float("inf") if number > 0 else float("-inf"))
    return found


def left_over(condition: Condition, values: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
    """Return a mask of the rows that some columns of a condition do not rule out.

    Parameters
    ----------
    values
        At least one column; a comparison of another may hold in any row.
    """
    if isinstance(condition, Comparison):
        if condition.column in values:
            return condition.holds(values)
        return np.ones(len(next(iter(values.values()))), bool)
    join = np.logical_and if condition.word == "and" else np.logical_or
    found: NDArray[np.bool_] = join.reduce([left_over(part, values) for part in condition.parts])
    return found


def deciding_columns(condition: Condition) -> frozenset[str]:
    """Return the columns of which each can rule out rows by itself; of others `left_over` has all.

    >>> sorted(deciding_columns(parse_condition("a > 1 and b < 2 and (b > 1 or c > 1)")))
    ['a', 'b']
    """
    if isinstance(condition, Comparison):
        return frozenset(condition.columns)
    found = [deciding_columns(part) for part in condition.parts]
    if condition.word == "and":
        return frozenset.union(*found)
    return frozenset.intersection(*found)


def check_comparable(name: str, dtype: np.dtype[Any]) -> None:
    """Raise UnsupportedError for a column that cannot be compared with numbers."""
    if dtype.kind in "iufb" and dtype.subdtype is None:
        return
    kind = "text" if dtype.kind in "SUOT" else f"of type {dtype}"
    message = (
        f"column {name!r} is {kind}: conditions compare integers, floating-point numbers and "
        "booleans; read the rows and compare them in NumPy"
    )
    raise UnsupportedError(message)


def parse_condition(text: str) -> Condition:
    """Return the condition that a text says.

    Raises
    ------
    SdsValueError
        If it is none; names what is wrong.

    >>> str(parse_condition("1 < e <= 2 or x == nan"))
    '(e > 1 and e <= 2) or x == nan'
    """
    if len(text) > _MAX_CHARACTERS:
        message = f"a condition of {len(text)} characters is too long: write at most 10000"
        raise SdsValueError(message)
    return _parse(text)


@dataclass(frozen=True, slots=True)
class _Parsed:
    """A condition as Python's grammar has it, and the columns between backticks.

    Columns between backticks are parsed as words that occur nowhere else in the text.
    """

    text: str
    quoted: Mapping[str, str]

    def condition(self, node: ast.expr) -> Condition:
        if isinstance(node, ast.BoolOp):
            word: Literal["and", "or"] = "and" if isinstance(node.op, ast.And) else "or"
            return CompoundCondition(word, tuple(self.condition(part) for part in node.values))
        if not isinstance(node, ast.Compare) or len(node.ops) > 2:
            raise self.error(node, "a comparison of one column")
        operands = [self.operand(operand) for operand in (node.left, *node.comparators)]
        signs = [self.sign(node, op) for op in node.ops]
        if isinstance(operands[0], str) and len(signs) == 1 and not isinstance(operands[1], str):
            return Comparison(operands[0], signs[0], operands[1])
        first, column, *last = operands
        if isinstance(first, str) or not isinstance(column, str):
            raise self.error(node, "a comparison of one column with numbers")
        parts = [Comparison(column, _MIRRORED[signs[0]], first)]
        for number in last:
            if isinstance(number, str):
                raise self.error(node, "a comparison of one column with numbers")
            parts.append(Comparison(column, signs[1], number))
        return parts[0] if len(parts) == 1 else CompoundCondition("and", tuple(parts))

    def sign(self, node: ast.expr, op: ast.cmpop) -> Sign:
        if type(op) not in _SIGNS:
            raise self.error(node, "one of < <= > >= == !=")
        return _SIGNS[type(op)]

    def operand(self, node: ast.expr) -> str | float:
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            number = None if isinstance(node.operand, ast.UnaryOp) else self.operand(node.operand)
            if number is None or isinstance(number, str):
                raise self.error(node, "a number")
            return -number if isinstance(node.op, ast.USub) else number
        if isinstance(node, ast.Name):
            # Not node.id, which Python normalises: "\u00b5" would become another letter.
            name = ast.get_source_segment(self.text, node) or node.id
            return float(name) if name in _SPECIAL else self.quoted.get(name, name)
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            return cast("float", node.value)
        raise self.error(node, "a column or a number")

    def error(self, node: ast.expr, wanted: str) -> SdsValueError:
        found = ast.get_source_segment(self.text, node) or self.text
        for word, name in self.quoted.items():
            found = found.replace(word, _in_backticks(name))
        return SdsValueError(f"{found!r} stands in a condition where {wanted} should; {_EXAMPLE}")


def _parse(text: str) -> Condition:
    quoted: dict[str, str] = {}

    def as_word(match: re.Match[str]) -> str:
        word = f"column_{len(quoted)}"
        while word in text:
            word += "_"
        quoted[word] = match[1].replace("``", "`")
        return f" {word} "

    plain = re.sub(r"`((?:[^`]|``)+)`", as_word, text).strip()
    try:
        node = ast.parse(plain, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else "it is nested too deeply"
        raise SdsValueError(f"{text!r} is no condition: {reason}; {_EXAMPLE}") from error
    return _Parsed(plain, quoted).condition(node)
