"""``sds policy``: modes by directory, file and dataset."""

import pytest


@pytest.fixture
def policy(sds, tmp_path, monkeypatch):
    monkeypatch.setenv("SDS_HOME", str(tmp_path / "home"))
    return lambda *words: sds("policy", *words)


def test_modes_are_set_listed_and_unset(policy, tmp_path):
    assert policy().out == "observe everywhere (the setting mode)\n"
    assert policy("set", tmp_path, "auto").out == f"{tmp_path} is auto from now on\n"
    dataset = f"{tmp_path}/a.h5:/x"
    policy("set", dataset, "off")
    policy("set", dataset, "observe")
    listed = policy("list", "--json").json
    assert listed["mode"] == "observe"
    assert [(one["path"], one["dataset"], one["mode"]) for one in listed["policies"]] == [
        (str(tmp_path), None, "auto"),
        (f"{tmp_path}/a.h5", "/x", "observe"),
    ]
    assert dataset in policy().out
    assert "observe everywhere else" in policy().out
    assert "has no policy of its own now" in policy("unset", dataset).out
    assert [one["dataset"] for one in policy("--json").json["policies"]] == [None]


def test_a_budget_is_set_with_a_mode_and_goes_with_the_next(policy, tmp_path):
    said = policy("set", tmp_path, "auto", "--budget", "2G").out
    assert said == f"{tmp_path} is auto from now on, its replicas within 2 GiB\n"
    assert "2 GiB" in policy().out
    assert policy("--json").json["policies"][0]["budget_bytes"] == 2 << 30
    policy("set", tmp_path, "auto")
    assert policy("--json").json["policies"][0]["budget_bytes"] is None
    assert policy("set", tmp_path, "auto", "--budget", "much").code == 2
    assert policy("set", tmp_path, "auto", "--budget", "99999999T").code == 2
    assert "within 0 B" in policy("set", tmp_path, "auto", "--budget", "0").out


def test_what_cannot_be_is_refused(policy, tmp_path):
    assert policy("set", tmp_path, "often").code == 2
    assert "off, observe or auto" in policy("set", tmp_path, "often").err
    refused = policy("unset", tmp_path)
    assert (refused.code, "has no policy" in refused.err) == (3, True)
