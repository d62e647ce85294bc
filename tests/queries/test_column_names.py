"""Names of columns: what is written is read again, and what is read wrongly is refused."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sds.errors import SdsValueError
from sds.geometry import Box, ReplicaLayout, SortOrder
from sds.queries.column_names import format_columns, parse_columns
from sds.recommender.candidates.replica_cost import build_command

names = st.one_of(
    st.text(st.sampled_from(" ,`\n\t\r'\"\\$ab"), min_size=1),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1),
)


@given(columns=st.lists(names, min_size=1))
def test_names_of_any_characters_come_back(columns):
    assert parse_columns(format_columns(columns)) == tuple(columns)


@given(columns=st.lists(names, min_size=1, unique=True))
def test_the_command_of_a_sorted_replica_names_its_columns(columns):
    order = SortOrder(key=columns[0], columns=tuple(columns))
    layout = ReplicaLayout(order=(0,), region=Box.whole((9,)), sort=order)
    words = shlex.split(build_command(layout, (9,), "/data/a file.h5:/p"))
    assert words[:5] == ["sds", "reorganize", "/data/a file.h5:/p", "--sort", order.key]
    assert words[5] == "--columns"
    assert parse_columns(words[6]) == order.columns


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("energy", ("energy",)),
        (" energy , x\n", ("energy", "x")),
        ("`p, T` , x", ("p, T", "x")),
        ("` lead`,`tail `", (" lead", "tail ")),
        ("```q```", ("`q`",)),
        ("`a,``b`", ("a,`b",)),
        ("a`b", ("a`b",)),
        ("a\nb", ("a\nb",)),
    ],
)
def test_backticks_hold_what_a_list_cannot(text, columns):
    assert parse_columns(text) == columns


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "write names with commas"),
        ("energy,", "write names with commas"),
        ("a,, b", "write names with commas"),
        ("``", "write names with commas"),
        ("a, `b", "from character 3 a name is not closed"),
        ("`a`b", "from character 1 a name is not closed"),
    ],
)
def test_what_is_no_list_of_names_is_refused(text, said):
    with pytest.raises(SdsValueError, match=said):
        parse_columns(text)


def test_plain_names_need_no_backticks():
    assert format_columns(["energy", "p T", "größe"]) == "energy,p T,größe"
