import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sds.errors import SdsValueError, UnsupportedError
from sds.queries.conditions import (
    Comparison,
    CompoundCondition,
    check_comparable,
    compare,
    deciding_columns,
    left_over,
    parse_condition,
)

SIGNS = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}

numbers = st.one_of(
    st.integers(-(2**70), 2**70), st.floats(width=64), st.sampled_from([0, -0.0, 1, 1.5])
)
comparisons = st.builds(
    Comparison,
    st.sampled_from(["e", "x_1", "p T", "and", "inf", "größe", "`q`", "a``b"]),
    st.sampled_from(list(SIGNS)),
    numbers,
)


def _flat(word, parts):
    return CompoundCondition(word, tuple(parts))


conditions = st.recursive(
    comparisons,
    lambda inner: st.builds(
        _flat, st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=4)
    ),
    max_leaves=12,
)


@given(condition=conditions)
def test_what_is_written_is_parsed_again(condition):
    assert str(parse_condition(str(condition))) == str(condition)


@given(
    condition=conditions,
    values=st.lists(st.one_of(st.integers(-3, 3), st.just(float("nan"))), min_size=1),
)
def test_columns_that_decide_nothing_alone_leave_every_row_over(condition, values):
    deciding = deciding_columns(condition)
    assert deciding <= set(condition.columns)
    for name in set(condition.columns) - deciding:
        assert left_over(condition, {name: np.array(values, "f8")}).all()


@pytest.mark.parametrize(
    ("text", "deciding"),
    [
        ("a > 1", "a"),
        ("a > 1 and b > 1", "ab"),
        ("a > 1 or b > 1", ""),
        ("a > 1 or a < 0", "a"),
        ("a > 1 and (b > 1 or c > 1)", "a"),
        ("a > 1 and b > 1 or a < 0", "a"),
    ],
)
def test_which_columns_rule_out_rows_by_themselves(text, deciding):
    assert deciding_columns(parse_condition(text)) == set(deciding)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("energy > 1.3", "energy > 1.3"),
        ("  energy>1.3  ", "energy > 1.3"),
        ("1.3 < energy", "energy > 1.3"),
        ("1 <= e < 2", "e >= 1 and e < 2"),
        ("a < 1 or b < 2 and c < 3", "a < 1 or (b < 2 and c < 3)"),
        ("(a < 1 or b < 2) and c < 3", "(a < 1 or b < 2) and c < 3"),
        ("e > -1e-3", "e > -0.001"),
        ("e == 1_000", "e == 1000"),
        ("e < -inf or e != nan", "e < -inf or e != nan"),
        ("`p T [GeV]` >= .5", "`p T [GeV]` >= 0.5"),
        ("`a``b` > 1 and `c` < 2", "`a``b` > 1 and c < 2"),
        ("id == 18446744073709551615", "id == 18446744073709551615"),
        ("infinite > 1 and nanny < 2", "infinite > 1 and nanny < 2"),
        ("\u00b5 > 1", "\u00b5 > 1"),
        ("`a b` > 1 and column_0 < 2", "`a b` > 1 and column_0 < 2"),
        ("`not` == 0x10", "`not` == 16"),
    ],
)
def test_precedence_and_notation(text, said):
    assert str(parse_condition(text)) == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no condition"),
        ("energy", "'energy' stands in a condition where a comparison"),
        ("energy >", "is no condition"),
        ("energy > 1.3.4", "is no condition"),
        ("energy = 3", "is no condition"),
        ("energy > x", "'energy > x' stands in a condition where a comparison of one column with"),
        ("1 > 2", "'1 > 2' stands in a condition where a comparison of one column with"),
        ("e < 1 < 2", "a comparison of one column with numbers"),
        ("1 < e < x", "a comparison of one column with numbers"),
        ("1 < e < 2 < 3", "a comparison of one column"),
        ("e in 1", "one of <"),
        ("e < -x", "'-x' stands in a condition where a number"),
        ("e < 1j", "'1j' stands in a condition where a column or a number"),
        ("e < True", "'True' stands in a condition where a column or a number"),
        ("(e < 1", "is no condition"),
        ("e < 1)", "is no condition"),
        ("e < 1 and", "is no condition"),
        ("not e < 1", "'not e < 1' stands in a condition where a comparison"),
        ("__import__('os').system('x') > 1", "where a column or a number"),
        ("e > 'a'", "\"'a'\" stands in a condition where a column or a number"),
        ("`` > 1", "is no condition"),
        ("`a b` > `c d`", "'`a b`  >  `c d`' stands"),
        ("(" * 1000 + "e < 1" + ")" * 1000, "is no condition"),
        ("-" * 9000 + "1 < e", "is no condition"),
        ("e < " + "1" * 20_000, "too long"),
        ("e < 1__0", "is no condition"),
        ("e < 1\0", "is no condition"),
    ],
)
def test_what_is_no_condition_is_refused_with_the_reason(text, said):
    with pytest.raises(SdsValueError, match=said):
        parse_condition(text)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@given(
    dtype=st.sampled_from(["i1", ">i8", "u8", "<f2", ">f4", "f8"]),
    sign=st.sampled_from(list(SIGNS)),
    number=numbers,
    seed=st.integers(0, 50),
)
def test_a_comparison_is_numpys(dtype, sign, number, seed):
    values = np.frombuffer(np.random.default_rng(seed).bytes(64), dtype)
    assert compare(values, sign, number).tolist() == SIGNS[sign](values, number).tolist()


def test_numbers_beyond_every_float_are_as_infinite():
    values = np.array([-np.inf, 0, np.inf, np.nan])
    assert compare(values, "<", 10**400).tolist() == [True, True, False, False]
    assert compare(values, ">", -(10**400)).tolist() == [False, True, True, False]


def test_booleans_are_zero_and_one():
    values = np.array([False, True])
    assert compare(values, "==", 1).tolist() == [False, True]
    assert compare(values, "<", 10**30).tolist() == [True, True]


def test_conditions_hold_row_by_row():
    values = {"a": np.array([1, 2, 3, 4]), "b": np.array([0.0, np.nan, 1.0, 5.0])}
    condition = parse_condition("a >= 2 and (b < 1 or b > 4) or a == 1")
    assert condition.columns == ("a", "b")
    assert condition.holds(values).tolist() == [True, False, False, True]


def test_columns_that_are_no_numbers_are_refused():
    check_comparable("x", np.dtype("f8"))
    with pytest.raises(UnsupportedError, match="'tag' is text"):
        check_comparable("tag", np.dtype("S3"))
    with pytest.raises(UnsupportedError, match="of type complex64"):
        check_comparable("z", np.dtype("c8"))
