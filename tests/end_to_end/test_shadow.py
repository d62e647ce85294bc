"""A replica in shadow, from its build to its proof, as a user sees it."""

from __future__ import annotations

from tests.end_to_end.conftest import BY_HDF5, native

PLANES = range(0, 60, 2)


def test_a_replica_proves_itself(sds_both, cube, program):
    """Planes across a small file in memory take HDF5 many times as long as the replica."""
    expected = native(program, cube, *PLANES)
    built = sds_both("reorganize", f"{cube}:/image/cube", "--order", "2,0,1", "--shadow")
    assert "1, shadow" in built.out
    assert "read half of what it gains from it" in built.out

    printed, decisions = sds_both.read(program, cube, *PLANES, **BY_HDF5)
    assert printed == expected
    assert "served" in decisions
    sds_both("ingest")
    (replica,) = sds_both("replicas", "list", "--json").json["replicas"]
    assert replica["state"] == "active", replica["reason"]
    assert "measured faster in shadow: plane fixing axis 2" in replica["reason"]
    assert "measured faster" in sds_both("replicas", "show", "1").out

    printed, decisions = sds_both.read(program, cube, *PLANES, **BY_HDF5)
    assert printed == expected
    sds_both("ingest")
    report = sds_both("report", cube, "--json").json
    planes = next(each for each in report["patterns"] if "axis 2" in each["description"])
    served = {times["served_by"]: times["n"] for times in planes["served"]}
    n = len(PLANES)
    assert served == {0: n // 2, 1: n // 2 + n}


def test_queries_leave_no_trace_to_measure(sds, cube):
    refused = sds("reorganize", f"{cube}:/image", "--sort", "energy", "--shadow")
    assert refused.code == 2
    assert "--shadow measures reads of programs" in refused.err
