"""A replica in shadow, from its build to its proof, as a user sees it."""

from __future__ import annotations

from tests.end_to_end.conftest import BY_HDF5, native
from tests.waiting import wait_until

PLANES = range(0, 60, 2)


def test_a_replica_proves_itself(sds_both, cube, program):
    """Planes across a small file in memory take HDF5 many times as long as the replica."""
    expected = native(program, cube, *PLANES)
    built = sds_both("reorganize", f"{cube}:/image/cube", "--order", "2,0,1", "--shadow")
    assert "1, shadow" in built.out
    assert "are served half of the reads for which it is chosen" in built.out

    def replica():
        sds_both("ingest")
        (found,) = sds_both("replicas", "list", "--json").json["replicas"]
        return found

    def is_proven():
        assert sds_both.read(program, cube, *PLANES, **BY_HDF5)[0] == expected
        return replica()["state"] == "active"

    wait_until(is_proven, lambda: replica()["reason"])
    assert "measured faster in shadow: plane fixing axis 2" in replica()["reason"]
    assert "measured faster" in sds_both("replicas", "show", "1").out

    printed, decisions = sds_both.read(program, cube, *PLANES, **BY_HDF5)
    assert printed == expected
    assert "served" in decisions
    assert "the replica serves a share" not in decisions


def test_queries_leave_no_trace_to_measure(sds, cube):
    refused = sds("reorganize", f"{cube}:/image", "--sort", "energy", "--shadow")
    assert refused.code == 2
    assert "--shadow measures reads of programs" in refused.err
