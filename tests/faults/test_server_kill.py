"""kill -9 of the server, at any moment: no job lost, every read counted once, nothing half-made."""

import hashlib
import itertools
import random
import socket
import time

import h5py
import numpy as np

from sds import _spool_writer
from sds.home import Home
from sds.organizer import verify_replica
from sds.redirect.tables import RedirectTable
from tests.redirected import settle
from tests.server.conftest import add_planes
from tests.server.running import Server
from tests.sizes import repeated
from tests.waiting import wait_until

KILLS = repeated(8, 20)
EARLY = 0.4  # share of kills that hit a server which has just been started
READS = 16
LAYOUTS = [
    {"order": [2, 0, 1]},
    {
        "order": [2, 0, 1],
        "segments": {"tile_shape": [5, 9, 8], "tiles": [*range(3, 300, 2)], "lengths": [100, 49]},
    },
    {"order": [1, 2, 0]},
    {"order": [2, 1, 0]},
]


def test_a_server_that_is_killed_again_and_again_loses_and_invents_nothing(tmp_path):
    rng = random.Random(20261121)  # noqa: S311  (when to kill is no secret)
    home = Home(tmp_path / "home")
    home.create()
    home.config.write_text("ingest_interval_s = 0.02\njob_attempts = 1000\n")
    sources = [tmp_path / f"run{i}.h5" for i in range(3)]
    for path in sources:
        make_cube(path, (32, 48, 64))
        settle(path)
    originals = [digest(path) for path in sources]
    wanted = itertools.cycle(itertools.product(sources, LAYOUTS))

    submitted, written = {}, 0
    for kill in range(KILLS):
        server = Server(home)
        if rng.random() >= EARLY:
            server.wait_until_it_listens()
            source, layout = next(wanted)
            answer = server.client.post("/api/v1/jobs", json=reorganize(source, layout))
            submitted[answer.json()["id"]] = (source, layout)
        for _ in range(rng.randint(1, 8)):
            write_trace(home, sources[kill % 3], number=written)
            written += 1
            time.sleep(rng.uniform(0, 0.1))  # the kill comes at a moment like any other
        server.kill()
        assert_published_is_whole(home)

    last = Server(home).wait_until_it_listens()
    assert submitted
    assert written
    for job_id, (_, layout) in submitted.items():
        job = last.wait_for(job_id)
        assert job["state"] == "done", job
        assert {name: job["request"][name] for name in layout} == layout
    assert len(last.client.get("/api/v1/jobs").json()["jobs"]) == len(submitted)

    wait_until(
        lambda: not last.client.get("/api/v1/status").json()["spool_pending_bytes"],
        "all traces are ingested",
    )
    patterns = last.client.get("/api/v1/patterns").json()["patterns"]
    assert sum(p["pattern"]["n_calls"] for p in patterns) == written * READS

    replicas = last.client.get("/api/v1/replicas").json()["replicas"]
    assert {(r["file"], tuple(r["order"]), r["segments"] is not None) for r in replicas} == {
        (str(source), tuple(layout["order"]), "segments" in layout)
        for source, layout in submitted.values()
    }
    assert {r["state"] for r in replicas} == {"active"}
    assert last.terminate() == 0
    assert_published_is_whole(home)
    assert [digest(path) for path in sources] == originals
    leftovers = [p for p in home.replicas.rglob("*") if p.is_file()]
    assert {str(p) for p in leftovers} == {r["path"] for r in replicas}


def reorganize(source, layout):
    return {"kind": "reorganize", "file": str(source), "dataset": "/cube", **layout}


def make_cube(path, extent):
    with h5py.File(path, "w") as handle:
        handle["cube"] = np.random.default_rng(1).random(extent, dtype=np.float32)


def write_trace(home, source, *, number):
    """Put the trace of a process that has ended into the spool, whole.

    No process of that number lives: a file that is still written would be taken for complete.
    """
    writing = home.root.parent / "writing"
    writing.mkdir(exist_ok=True)
    writer = _spool_writer.SpoolWriter(
        writing,
        pid=2**22 + 1 + number,
        start_ns=1_000 + number,
        host=socket.gethostname(),
        executable="reader",
    )
    add_planes(writer, source, READS)
    writer.close()
    (trace,) = writing.iterdir()
    trace.rename(home.spool / trace.name)


def assert_published_is_whole(home):
    """Every table can be read, and every replica it names is whole."""
    for path in home.tables.glob("[!.]*"):
        table = RedirectTable.from_bytes(path.read_bytes())
        for dataset in table.datasets:
            for candidate in dataset.candidates:
                report = verify_replica(candidate.path)
                assert report.ok, report.problems


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()
