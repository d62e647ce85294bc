"""The most specific policy that names a dataset decides what the evaluator makes of its reads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sds.catalog.records import PolicyRecord
from sds.server.operations.evaluation import modes
from sds.server.operations.evaluation.modes import Modes, is_within


def policies(**modes):
    """Return policies from `PATH` or `PATH:DATASET` and modes."""
    found = []
    for name, mode in modes.items():
        path, _, dataset = name.partition(":")
        found.append(PolicyRecord(path=path, dataset=dataset or None, mode=mode, set_ns=1))
    return found


@pytest.mark.parametrize(
    ("file", "dataset", "expected"),
    [
        ("/data/a.h5", "/x", "observe"),
        ("/data/project/a.h5", "/x", "auto"),
        ("/data/project/old/deep/a.h5", "/x", "off"),
        ("/data/project/old/one.h5", "/x", "auto"),
        ("/data/project/old/one.h5", "/y", "observe"),
        ("/data/projects/a.h5", "/x", "observe"),
        ("/data/project", "/x", "auto"),
    ],
)
def test_what_is_more_specific_wins(file, dataset, expected):
    modes = Modes(
        policies(
            **{
                "/data/project": "auto",
                "/data/project/old": "off",
                "/data/project/old/one.h5": "auto",
                "/data/project/old/one.h5:/y": "observe",
            }
        ),
        "observe",
    )
    assert modes.of(file, dataset) == expected


MODES = st.sampled_from(["off", "observe", "auto"])


@given(st.dictionaries(st.sampled_from(["/", "/a", "/a/b", "/a/b/c.h5"]), MODES), MODES)
def test_what_is_said_of_all_is_said_of_each(given_modes, default):
    modes = Modes(policies(**given_modes), default)
    each = {modes.of(file, "/x") for file in ("/a/b/c.h5", "/a/b/d.h5", "/a/e.h5", "/f.h5")}
    if modes.are_all_off:
        assert each == {"off"}
    if modes.are_all_auto:
        assert each == {"auto"}
    if not modes.is_any_auto:
        assert "auto" not in each


@pytest.mark.parametrize(
    ("hours", "now", "expected"),
    [
        (None, "12:00", True),
        ("08:00-18:00", "07:59", False),
        ("08:00-18:00", "08:00", True),
        ("08:00-18:00", "18:00", False),
        ("22:00-06:00", "23:59", True),
        ("22:00-06:00", "00:00", True),
        ("22:00-06:00", "06:00", False),
        ("22:00-06:00", "12:00", False),
        ("06:00-06:00", "12:00", True),
    ],
)
def test_hours_may_go_past_midnight(monkeypatch, hours, now, expected):
    monkeypatch.setattr(modes.time, "strftime", lambda *_: now)
    assert is_within(hours) is expected
