"""A server in mode auto: programs run, and nobody types advise or reorganize."""

from __future__ import annotations

import contextlib

import pytest

from tests.end_to_end.conftest import BY_HDF5, native, serving
from tests.waiting import wait_until

PLANES = range(0, 60, 2)


def test_the_server_builds_what_pays_and_proves_it(sds, cube, program, tmp_path):
    expected = native(program, cube, *PLANES)
    sds.environment |= {
        "SDS_MODE": "auto", "SDS_EVALUATE_INTERVAL_S": "0.2", "SDS_INGEST_INTERVAL_S": "0.2",
        "SDS_QUIET_SOURCE_S": "0",
    }  # fmt: skip

    def replicas():
        return sds("replicas", "list", "--json").json["replicas"]

    def run():
        printed, decisions = sds.read(program, cube, *PLANES, **BY_HDF5)
        assert printed == expected
        return decisions

    with serving(sds, tmp_path):
        run()
        wait_until(
            lambda: any(one["state"] == "shadow" for one in replicas()),
            (tmp_path / "server.log").read_text,
        )
        wait_until(lambda: not sds("status", "--json").json["jobs"]["queued"], "an empty queue")

        def is_proven():
            run()
            return any(one["state"] == "active" for one in replicas())

        wait_until(is_proven, (tmp_path / "server.log").read_text)
        assert "served" in run()
        shown = sds("status").out
        assert "auto; " in shown
        assert "no: mode auto may remove it" in sds("replicas", "show", cube).out
        assert sds("replicas", "pin", cube).out == "replica 1 is pinned\n"
        assert [one["pinned"] for one in replicas()] == [True]
        assert "mode auto may remove it" in sds("replicas", "unpin", "1").out
        assert [one["pinned"] for one in sds("replicas", "pin", "1", "--json").json["replicas"]]

    events = sds("events", "--limit", "1000", "--json").json["events"]
    kinds = [event["kind"] for event in reversed(events)]
    order = [kinds.index(kind) for kind in ("planned", "building", "shadow", "active")]
    assert order == sorted(order)
    lines = sds("events").out.splitlines()
    assert any(" active: measured faster in shadow" in line for line in lines)
    assert "--shadow: order 2," in sds("events").out


def test_without_events_that_is_said(sds):
    assert sds("events").out == "nothing has happened yet\n"


@pytest.mark.parametrize("has_server", [False, True])
def test_advice_without_a_name_is_on_all_that_was_read(sds, cube, program, tmp_path, has_server):
    """And a server keeps it, for status to show."""
    sds.environment |= {"SDS_EVALUATE_INTERVAL_S": "0.2", "SDS_INGEST_INTERVAL_S": "0.2"}
    with serving(sds, tmp_path) if has_server else contextlib.nullcontext():
        assert "Build nothing" in sds("advise").out
        sds.read(program, cube, *PLANES, **BY_HDF5)
        every, one = (sds("advise", *name, "--json").json for name in ((), (cube,)))
        assert every["command"] == one["command"]
        assert f"sds reorganize {cube}:/image/cube" in sds("advise").out.replace("\n", " ")
        for option, value in (("--budget", "1G"), ("--reads", "3"), ("--columns", "x")):
            refused = sds("advise", option, value)
            assert refused.code == 2
            assert f"{option} without a file" in refused.err
        if not has_server:
            assert sds("status", "--json").json["advice"] is None
            return
        wait_until(lambda: sds("status", "--json").json["advice"], "an evaluation")
        wait_until(lambda: every["command"] in sds("status").out, "the command")
