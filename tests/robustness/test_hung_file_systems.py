"""One source on a file system that does not answer holds nothing about any other."""

import json
import os
import subprocess
import sys

import pytest

from sds.catalog.requests import ReorganizeRequest
from sds.home import Home
from sds.server.operations.service import Service
from tests.robustness.failing_device import FailingDevice, build_server
from tests.server.conftest import make_source
from tests.server.running import Server
from tests.waiting import PATIENCE_S


@pytest.fixture
def hung(tmp_path, tool, monkeypatch):
    """A home with replicas 1 and 2 of two sources, the first of which cannot be looked at."""
    trusted = [str(tmp_path / "mount"), str(tmp_path)]
    monkeypatch.setenv("SDS_TRUSTED_DIRECTORIES", json.dumps(trusted))
    device = FailingDevice(
        "fuse", build_server(tmp_path / "failing_fs", tool), tmp_path / "mount", tmp_path
    )
    home = Home(tmp_path / "home")
    with Service.open(home) as service:
        for path in (device.folder / "cube.h5", tmp_path / "good.h5"):
            source = make_source(path)
            os.utime(source, (1e9, 1e9))
            service.reorganize(
                ReorganizeRequest(file=str(source), dataset="/cube", order=(2, 0, 1))
            )
    device.put_to_use()
    device.hang()
    yield home
    device.close()


def run(home, *words):
    done = subprocess.run(
        [sys.executable, "-m", "sds.cli", *words], env=os.environ | {"SDS_HOME": str(home.root)},
        capture_output=True, text=True, check=False, timeout=PATIENCE_S,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return done


def test_commands_about_other_files_are_done(hung):
    good = hung.root.with_name("good.h5")
    for words in (
        ("status",),
        ("ingest",),
        ("replicas",),
        ("replicas", "list", good),
        ("replicas", "verify", "2"),
        ("doctor", good),
        ("reorganize", f"{good}:/cube", "--order", "1,2,0"),
        ("replicas", "remove", "3"),
    ):
        done = run(hung, *words)
        assert done.returncode == 0, (words, done)
    done = run(hung, "replicas", "verify")
    assert done.returncode == 1
    said = dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)
    assert "does not answer" in said["replica 1"]
    assert said["replica 2"] == "ok"
    assert done.stdout.splitlines()[-1] == "1 replica verified, 0 damaged, 1 not verified"
    with Service.open(hung) as service:
        states = {record.id: record.state.value for record in service.replicas()}
    assert states == {1: "active", 2: "active"}
    # Also what concerns it is done as far as it can be.
    assert run(hung, "replicas", "remove", "1").returncode == 0
    with Service.open(hung) as service:
        assert service.replica(1).state.value == "retired"


def test_verification_that_is_due_ends(hung):
    with Service.open(hung) as service:
        service._store.forget_verified(since_ns=0)
        rounds = 0
        while service.verify_due():
            rounds += 1
            assert rounds < 10
        assert {record.state.value for record in service.replicas()} == {"active"}


def test_a_server_starts_and_works_beside_it(hung):
    cube = str(hung.root.with_name("mount") / "cube.h5")
    with Service.open(hung) as service:  # a job that was under way when the last server was killed
        service.submit(ReorganizeRequest(file=cube, dataset="/cube", order=(1, 0, 2)))
        service.queue.claim()
    server = Server(hung).wait_until_it_listens()
    try:
        server.wait_for(1, ("running",))
        server.client.post("/api/v1/jobs/1/cancel")
        assert server.wait_for(1)["state"] == "cancelled"
        good = str(hung.root.with_name("good.h5"))
        job = {"kind": "reorganize", "file": good, "dataset": "/cube", "order": [1, 2, 0]}
        number = server.client.post("/api/v1/jobs", json=job).json()["id"]
        assert server.wait_for(number)["state"] == "done"
        assert server.client.delete("/api/v1/replicas/1").status_code == 200
        assert server.client.get("/healthz").status_code == 200
    finally:
        assert server.terminate() == 0
    assert "Traceback" not in (hung.root / "server.log").read_text()
