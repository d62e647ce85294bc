"""A home in which others could have put something is refused, and no path leads out of one."""

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from sds.catalog.records import ReplicaState
from sds.catalog.requests import ReorganizeRequest
from sds.errors import (
    ConfigurationError,
    InsufficientSpaceError,
    PermissionDeniedError,
    QueueFullError,
)
from sds.home import Home
from sds.server.lock import HomeLock
from sds.server.operations.service import Service
from sds.server.settings import Settings, load_settings
from tests.redirected import settle
from tests.robustness.conftest import needs_root
from tests.server.running import Server
from tests.waiting import PATIENCE_S, wait_until

OTHER = 54321
PLACES = ("", "spool", "tables", "sorted", "replicas", "config.toml", "token", "sds.db", "lock")


@pytest.fixture
def made(home):
    with Service.open(home):
        pass
    home.config.write_text("port = 1111\n")
    home.config.chmod(0o600)
    home.token.touch(0o600)
    home.lock.touch(0o600)
    return home


def doors(home):
    """What a command or a server does first with a home."""
    return (home.create, home.check, lambda: load_settings(home), lambda: Service.open(home))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "mode", [0o002, pytest.param(0o020, marks=needs_root("gives files to another group"))]
)
def test_what_others_may_write_is_refused_with_mode_and_remedy(made, place, mode):
    path = made.root / place
    if mode == 0o020:
        os.chown(path, -1, OTHER)
    path.chmod(path.stat().st_mode | mode)
    for door in doors(made):
        with pytest.raises(PermissionDeniedError, match=r"may be written by.*chmod go-w") as found:
            door()
        assert str(path) in str(found.value)
        assert f"{path.stat().st_mode & 0o777:o}" in str(found.value)


@needs_root("gives files to another account")
@pytest.mark.parametrize("place", PLACES)
def test_what_belongs_to_another_account_is_refused(made, place):
    os.chown(made.root / place, OTHER, -1)
    for door in doors(made):
        with pytest.raises(PermissionDeniedError, match=rf"belongs to account {OTHER}"):
            door()


@needs_root("gives files to another account")
def test_a_link_that_another_account_made_is_not_followed(made, tmp_path):
    (tmp_path / "config.toml").write_text("port = 2222\n")
    made.config.unlink()
    made.config.symlink_to(tmp_path / "config.toml")
    assert load_settings(made).port == 2222  # one's own is
    os.chown(made.config, OTHER, -1, follow_symlinks=False)
    with pytest.raises(PermissionDeniedError, match=f"account {OTHER}"):
        load_settings(made)


def test_a_group_of_the_owner_alone_may_write(made):
    """As where each account has a group of its own name, and umask 002."""
    made.root.chmod(0o770)
    made.config.chmod(0o660)
    assert load_settings(made).port == 1111


@pytest.mark.parametrize("target", ["a file", "nothing"])
def test_a_lock_that_is_a_link_is_refused_and_its_target_left_alone(made, tmp_path, target):
    precious = tmp_path / "precious"
    if target == "a file":
        precious.write_text("data")
    made.lock.unlink()
    made.lock.symlink_to(precious)
    with pytest.raises(ConfigurationError, match=r"lock cannot be the lock.*remove it"):
        HomeLock(made, wait_s=0).acquire()
    assert (precious.read_text() == "data") if target == "a file" else not precious.exists()


def test_a_lock_that_is_a_pipe_is_refused(made):
    made.lock.unlink()
    os.mkfifo(made.lock)
    with pytest.raises(ConfigurationError, match="regular file"):
        HomeLock(made, wait_s=0).acquire()


def test_tokens_behind_a_link_are_refused(made, tmp_path):
    from sds.server.api.auth import Tokens

    made.token.unlink()
    Tokens.load(made)
    made.token.rename(tmp_path / "token")
    made.token.symlink_to(tmp_path / "token")
    with pytest.raises(PermissionDeniedError, match="is a link"):
        Tokens.load(made)


def test_a_socket_or_pipe_in_place_of_the_settings_is_refused(made):
    made.config.unlink()
    os.mkfifo(made.config, 0o600)
    with pytest.raises(ConfigurationError, match="no regular file"):
        load_settings(made)


# ---- what a catalog says that somebody wrote


@pytest.mark.parametrize("state", [ReplicaState.BUILDING, ReplicaState.RETIRED])
@pytest.mark.parametrize("through", ["dots", "link", "directory"])
def test_no_path_of_the_catalog_leads_out_of_the_home(home, source, tmp_path, state, through):
    precious = tmp_path / "precious.h5"
    precious.write_bytes(b"data")
    with Service.open(home) as service:
        request = ReorganizeRequest(file=str(source), dataset="/cube", order=(2, 0, 1))
        replica = service.reorganize(request)
    path = home.replicas / ".." / ".." / precious.name
    if through == "link":
        (home.replicas / "out").symlink_to(tmp_path)
        path = home.replicas / "out" / precious.name
    elif through == "directory":
        path = home.replicas / ".."
    with closing(sqlite3.connect(home.database)) as connection:
        connection.execute("UPDATE replica SET path = ?, state = ?", (str(path), state))
        connection.commit()
    with Service.open(home) as service:
        service.recover()
        service.collect_garbage()
        service.remove(replica.id)
    assert precious.read_bytes() == b"data"


def test_no_name_of_a_spool_file_leads_out_of_the_spool(home, tmp_path, write_spool):
    precious = tmp_path / "precious"
    precious.write_bytes(b"data")
    write_spool(4)
    with Service.open(home, Settings(spool_keep_days=0)) as service:
        service.ingest()
        with closing(sqlite3.connect(home.database)) as connection:
            connection.execute(
                "UPDATE spool_file SET name = ?, inode = ?, complete = 1",
                ("../../precious", str(precious.stat().st_ino)),
            )
            connection.commit()
        service.collect_garbage()
    assert precious.read_bytes() == b"data"


# ---- what is bounded, and what is noted


def test_as_many_jobs_wait_as_the_setting_says(app, home):
    from sds.server.api.auth import Scope, Tokens
    from tests.server.asgi import Client

    app.state.service.settings = Settings(max_queued_jobs=3)
    headers = {"Authorization": f"Bearer {Tokens.load(home).token(Scope.OPERATE)}"}
    client = Client(app, headers=headers)
    jobs = [client.post("/api/v1/jobs", json={"kind": "ingest"}) for _ in range(4)]
    assert [job.status_code for job in jobs] == [202, 202, 202, 429]
    assert jobs[-1].json()["error"] == QueueFullError.__name__
    assert "3 jobs wait" in jobs[-1].json()["message"]
    assert "max_queued_jobs is 3" in jobs[-1].json()["message"]
    client.post(f"/api/v1/jobs/{jobs[0].json()['id']}/cancel")
    assert client.post("/api/v1/jobs", json={"kind": "ingest"}).status_code == 202


def test_replicas_stay_within_the_budget_unless_forced(home, source):
    asked = {"file": str(source), "dataset": "/cube"}
    n_bytes = 24 * 20 * 16 * 4
    with Service.open(home, Settings(replica_budget_bytes=n_bytes + 1)) as service:
        first = ReorganizeRequest(**asked, order=(2, 0, 1))
        service.reorganize(first)
        service.reorganize(first)  # the same again takes no more
        second = ReorganizeRequest(**asked, order=(1, 2, 0))
        with pytest.raises(InsufficientSpaceError, match=r"replica_budget_bytes.*--force") as found:
            service.reorganize(second)
        assert f"{n_bytes} bytes beside {n_bytes} bytes" in str(found.value)
        assert f"allows {n_bytes + 1}" in str(found.value)
        assert len(service.replicas()) == 1
        forced = ReorganizeRequest(**asked, order=(1, 2, 0), force=True)
        assert service.reorganize(forced).state is ReplicaState.ACTIVE


def test_the_log_tells_what_became_of_replicas_and_holds_each_name_on_one_line(tmp_path):
    """Built, retired, deleted; of a file whose name would write a line of its own."""
    from tests.server.conftest import make_source

    source = make_source(tmp_path / "a\nCRITICAL sds: forged\x1b[2J.h5")
    server = Server(Home(tmp_path / "home"))
    try:
        server.wait_until_it_listens()
        body = {"kind": "reorganize", "file": str(source), "dataset": "/cube", "order": [2, 0, 1]}
        client = server.client
        done = server.wait_for(client.post("/api/v1/jobs", json=body).json()["id"])
        replica = done["result"]
        server.wait_for(client.post("/api/v1/jobs", json={**body, "dataset": "/n"}).json()["id"])
        client.delete(f"/api/v1/replicas/{replica['id']}")
    finally:
        server.terminate()
    log = (server.home.root / "server.log").read_text()
    assert "RecoveryReport(" not in log
    for said in (
        f"replica {replica['id']} active: every byte verified",
        f"replica {replica['id']} retired: removed by request",
        f"replica {replica['id']}: deleted {replica['path']}".replace("\n", "\\n"),
    ):
        assert said.replace("\x1b", "\\x1b") in log
    assert "a\\nCRITICAL sds: forged\\x1b[2J.h5" in log
    assert "\x1b" not in log
    assert not any(line.startswith("CRITICAL") for line in log.splitlines())


# ---- ends by signals, and disks that are full


def left_by_calibrations(directory):
    return list(directory.glob(".sds-calibrate-*"))


@pytest.mark.parametrize("end", ["terminate", "kill"])
def test_a_calibration_that_is_cut_off_leaves_nothing(tmp_path, end):
    """By the end of its server, orderly or not."""
    place = tmp_path / "place"
    place.mkdir()
    server = Server(Home(tmp_path / "home")).wait_until_it_listens()
    try:
        body = {"kind": "calibrate", "path": str(place)}
        job = server.client.post("/api/v1/jobs", json=body).json()

        def is_begun():
            state = server.client.get(f"/api/v1/jobs/{job['id']}").json()["state"]
            assert state in {"queued", "running"}
            return left_by_calibrations(place)

        wait_until(is_begun, "the calibration writes a file")
    finally:
        getattr(server, end)()
    wait_until(lambda: not left_by_calibrations(place), "what the calibration wrote is removed")


# As from a terminal: where the tests run under nohup, programs inherit that SIGHUP is ignored.
WITH_DEFAULTS = """
import os, signal, sys
for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
os.execv(sys.executable, [sys.executable, "-m", "sds.cli", *sys.argv[1:]])
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_ended_cleans_up_and_ends_by_that_signal(tmp_path, number):
    place = tmp_path / "place"
    place.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", WITH_DEFAULTS, "calibrate", place],
        env=os.environ | {"SDS_HOME": str(tmp_path / "home")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:

        def is_begun():
            assert process.poll() is None
            return left_by_calibrations(place)

        wait_until(is_begun, "the calibration writes a file")
        process.send_signal(number)
        _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == -number
    assert "Traceback" not in said
    assert not left_by_calibrations(place)


@needs_root("mounts")
@pytest.mark.parametrize("kilobytes", [8, 60, 120, 180, 200, 220, 260, 400])
def test_a_home_without_room_ends_in_status_7(tmp_path, kilobytes):
    """Too little for the tree, for the catalog, for what SQLite keeps beside it, for a replica."""
    import h5py
    import numpy as np

    cube = tmp_path / "cube.h5"
    with h5py.File(cube, "w") as file:
        file["d"] = np.zeros((128, 1024))
    settle(cube)
    place = tmp_path / "full"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", place]
    subprocess.run(mount, check=True, capture_output=True)
    try:
        ended = [
            subprocess.run(
                [sys.executable, "-m", "sds.cli", *words],
                env=os.environ | {"SDS_HOME": str(place / "home")},
                capture_output=True,
                text=True,
                check=False,
            )
            for words in (["status"], ["reorganize", f"{cube}:/d", "--order", "1,0"])
        ]
    finally:
        subprocess.run(["umount", "-l", place], check=True)
    assert ended[0].returncode in ({7} if kilobytes < 150 else {0, 7}), ended[0].stderr
    assert ended[1].returncode == 7, ended[1].stderr
    for done in ended:
        errors = [line for line in done.stderr.splitlines() if line.startswith("sds: error: ")]
        assert len(errors) == (done.returncode != 0), done.stderr
        assert "Traceback" not in done.stderr
