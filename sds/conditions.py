"""Conditions on the columns of a table, such as ``energy > 1.3 and (x < 0 or x >= 10)``.

    condition  = all { "or" all }
    all        = one { "and" one }
    one        = "(" condition ")" | comparison
    comparison = operand operator operand [ operator operand ]
    operand    = column | number
    operator   = "<" | "<=" | ">" | ">=" | "==" | "!="

A comparison has one column; with a number on both sides, as in ``1 < energy <= 2``, it stands for
both. A column that is no plain word is written between backticks, its own backticks twice. Numbers
are as in Python, and ``inf`` and ``nan``. Nothing is evaluated but what this grammar knows.

A comparison means what NumPy makes of ``column > number``: the number takes the type of a
floating-point column, an integer column is compared with a fraction as float64, and NaN is unequal
to everything.
"""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from sds.errors import SdsValueError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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
_MAX_DEPTH = 100
_TOKEN = re.compile(
    r"""\s*(?:
    (?P<sign><=|>=|==|!=|<|>)
    |(?P<parenthesis>[()])
    |(?P<number>[+-]?(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d+)?(?![\w.]))
    |(?P<special>[+-]?(?:inf|nan)\b)
    |(?P<word>[^\W\d]\w*)
    |`(?P<quoted>(?:[^`]|``)+)`
    )""",
    re.VERBOSE,
)
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
        plain = re.fullmatch(r"[^\W\d]\w*", self.column)
        name = self.column
        if not plain or name in _RESERVED:
            name = "`" + name.replace("`", "``") + "`"
        return f"{name} {self.sign} {self.number!r}"


@dataclass(frozen=True, slots=True)
class Joined:
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
            f"({part})" if isinstance(part, Joined) else str(part) for part in self.parts
        )


Condition: TypeAlias = Comparison | Joined

_RESERVED = frozenset({"and", "or", "inf", "nan"})


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
    """Return in which rows a condition may hold, by what some of its columns say.

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
        If it is none; names the place.

    >>> str(parse_condition("1 < e <= 2 or x == nan"))
    '(e > 1 and e <= 2) or x == nan'
    """
    if len(text) > _MAX_CHARACTERS:
        message = f"a condition of {len(text)} characters is too long: write at most 10000"
        raise SdsValueError(message)
    return _Parser(text).parse()


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int


class _Parser:
    """A recursive descent through the grammar above."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split()
        self._next = 0
        self._depth = 0

    def parse(self) -> Condition:
        found = self._condition()
        token = self._peek()
        if token.kind != "end":
            raise self._error(token, "'and', 'or' or the end")
        return found

    def _split(self) -> list[_Token]:
        tokens = []
        at = 0
        end = len(self._text.rstrip())
        while at < end:
            match = _TOKEN.match(self._text, at)
            if match is None or match.lastgroup is None:
                at += len(self._text[at:]) - len(self._text[at:].lstrip())
                raise self._error(_Token("unknown", self._text[at], at), "a column or a number")
            kind = match.lastgroup
            text = match.group(kind)
            if kind == "quoted":
                text = text.replace("``", "`")
            if kind == "word" and text in {"and", "or"}:
                kind = text
            tokens.append(_Token(kind, text, match.start(match.lastgroup)))
            at = match.end()
        return [*tokens, _Token("end", "", end)]

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._tokens[self._next]
        self._next += token.kind != "end"
        return token

    def _error(self, token: _Token, wanted: str) -> SdsValueError:
        what = "the end" if token.kind == "end" else f"{token.text!r} at character {token.at + 1}"
        return SdsValueError(
            f"condition {self._text!r}: {what} stands where {wanted} should; {_EXAMPLE}"
        )

    def _condition(self) -> Condition:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            message = f"a condition nested more than {_MAX_DEPTH} deep: write it flatter"
            raise SdsValueError(message)
        parts = [self._all()]
        while self._peek().kind == "or":
            self._take()
            parts.append(self._all())
        self._depth -= 1
        return parts[0] if len(parts) == 1 else Joined("or", tuple(parts))

    def _all(self) -> Condition:
        parts = [self._one()]
        while self._peek().kind == "and":
            self._take()
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else Joined("and", tuple(parts))

    def _one(self) -> Condition:
        if self._peek().text != "(" or self._peek().kind != "parenthesis":
            return self._comparison()
        self._take()
        found = self._condition()
        token = self._take()
        if (token.kind, token.text) != ("parenthesis", ")"):
            raise self._error(token, "')'")
        return found

    def _comparison(self) -> Condition:
        first = self._operand()
        sign = self._sign()
        second = self._operand()
        between = self._peek().kind == "sign"
        if isinstance(first, str):
            if isinstance(second, str) or between:
                token = self._peek() if between else self._tokens[self._next - 1]
                raise self._error(token, "'and', 'or' or the end" if between else "a number")
            return Comparison(first, sign, second)
        if not isinstance(second, str):
            raise self._error(self._tokens[self._next - 1], "a column")
        comparison = Comparison(second, _MIRRORED[sign], first)
        if not between:
            return comparison
        sign = self._sign()
        last = self._operand()
        if isinstance(last, str):
            raise self._error(self._tokens[self._next - 1], "a number")
        return Joined("and", (comparison, Comparison(second, sign, last)))

    def _sign(self) -> Sign:
        token = self._take()
        if token.kind != "sign":
            raise self._error(token, "one of < <= > >= == !=")
        return next(sign for sign in _COMPARE if sign == token.text)

    def _operand(self) -> str | float:
        token = self._take()
        if token.kind in {"word", "quoted"}:
            return token.text
        if token.kind == "special":
            return float(token.text)
        if token.kind == "number":
            for kind in (int, float):
                try:
                    return kind(token.text)
                except ValueError:
                    continue
        raise self._error(token, "a column or a number")
