"""kill -9 of a server in mode auto, at any moment between the first read and the proof.

Replicas are planned, built, put into shadow, proven or reverted. Whatever is cut off is reached
again or left cleanly, nothing is built twice, no file is left over, and the budget is kept.
"""

import collections
import itertools
import random
import socket
import time
from pathlib import Path

from sds import _spool_writer
from sds.catalog.records import LIVE_STATES, JobState, ReplicaState
from sds.home import Home
from sds.redirect.tables import RedirectTable
from sds.server.operations.service import Service
from tests.faults.test_server_kill import assert_published_is_whole, digest, make_cube
from tests.redirected import settle
from tests.server.conftest import add_planes
from tests.server.running import Server
from tests.sizes import repeated
from tests.waiting import wait_until

KILLS = repeated(8, 100)
SLOW = "run1.h5"
EXTENT = (32, 48, 64)
SIZE_BYTES = 32 * 48 * 64 * 4
BUDGET_BYTES = 3 * SIZE_BYTES
SETTINGS = f"""
mode = "auto"
ingest_interval_s = 0.02
evaluate_interval_s = 0.05
quiet_source_s = 0
advice_min_s = 0
advice_min_s_per_gib = 0
job_attempts = 1000
replica_budget_bytes = {BUDGET_BYTES}
"""


def test_a_server_that_builds_by_itself_may_be_killed_at_any_moment(tmp_path):
    rng = random.Random(20261128)  # noqa: S311  (when to kill is no secret)
    home = Home(tmp_path / "home")
    home.create()
    home.config.write_text(SETTINGS)
    sources = [tmp_path / f"run{i}.h5" for i in range(3)]
    for path in sources:
        make_cube(path, EXTENT)
        settle(path)
    originals = [digest(path) for path in sources]
    traces = Traces(home)

    for kill in range(KILLS):
        server = Server(home)
        if rng.random() < 0.6:
            server.wait_until_it_listens()
        for _ in range(rng.randint(1, 6)):
            traces.write_round(sources[kill % len(sources)])
            time.sleep(rng.uniform(0, 0.8))  # the kill comes at a moment like any other
        server.kill()
        assert_published_is_whole(home)
        check_catalog(home)

    last = Server(home).wait_until_it_listens()

    def is_settled():
        for source in sources:
            traces.write_round(source)
        with Service.open(home) as service:
            found = {(Path(one.file).name, one.state) for one in service.replicas(all_states=True)}
        return {(path.name, expected[path.name == SLOW]) for path in sources} <= found

    expected = {True: ReplicaState.REVERTED, False: ReplicaState.ACTIVE}
    try:
        wait_until(is_settled, (home.root / "server.log").read_text)
        wait_until(
            lambda: not {"queued", "running"} & {one["state"] for one in jobs_of(last)},
            "an end of jobs",
        )
    except BaseException:
        last.kill()
        raise
    assert last.terminate() == 0
    assert_published_is_whole(home)
    check_catalog(home)
    with Service.open(home) as service:
        service.recover()
        service.collect_garbage()
        paths = {one.path for one in service.replicas()}
        by_state = collections.Counter(one.state for one in service.replicas(all_states=True))
    assert {str(path) for path in home.replicas.rglob("*") if path.is_file()} == paths
    assert by_state[ReplicaState.ACTIVE] == len(sources) - 1
    assert [digest(path) for path in sources] == originals


def jobs_of(server):
    return server.client.get("/api/v1/jobs").json()["jobs"]


def check_catalog(home):
    """Nothing is built twice for the same thing, and no more than the budget holds."""
    with Service.open(home) as service:
        replicas = service.replicas(all_states=True)
        jobs = service.jobs()
    live = [one for one in replicas if one.state in {*LIVE_STATES, ReplicaState.BUILDING}]
    assert sum(one.size_bytes for one in live) <= BUDGET_BYTES
    tried = collections.Counter(
        (one.file, one.order, one.storage, one.segments is None)
        for one in replicas
        if one.state in {*LIVE_STATES, ReplicaState.BUILDING, ReplicaState.REVERTED}
    )
    assert not [kind for kind, n in tried.items() if n > 1], tried
    at_work = [job for job in jobs if job.state in {JobState.QUEUED, JobState.RUNNING}]
    requests = [job.request for job in at_work]
    assert all(requests.count(request) == 1 for request in requests)


class Traces:
    """Writes traces of programs that have ended, as the connector would by the tables of now."""

    def __init__(self, home):
        self._home = home
        self._numbers = itertools.count()
        self._writing = home.root.parent / "writing"
        self._writing.mkdir()

    def write_round(self, source):
        """Read planes of the original, and of both sides of each replica in shadow.

        Those of `SLOW` are slower than what they leave alone.
        """
        self._write(source, took_ns=30_000_000)
        for path in self._home.tables.glob("[!.]*"):
            table = RedirectTable.from_bytes(path.read_bytes())
            for candidate in (one for each in table.datasets for one in each.candidates):
                if candidate.shadow_permille < 1000 and table.source_path == source:
                    number = candidate.replica_id
                    took_ns = 90_000_000 if source.name == SLOW else 1_000_000
                    self._write(source, served_by=number, took_ns=took_ns)
                    self._write(source, left_by=number, took_ns=30_000_000)

    def _write(self, source, **how):
        number = next(self._numbers)
        writer = _spool_writer.SpoolWriter(
            self._writing, pid=2**22 + 1 + number, start_ns=1_000 + number,
            host=socket.gethostname(), executable="reader",
        )  # fmt: skip
        add_planes(writer, source, 30, extent=EXTENT, first_ns=time.time_ns(), **how)
        writer.close()
        (trace,) = self._writing.iterdir()
        trace.rename(self._home.spool / trace.name)
