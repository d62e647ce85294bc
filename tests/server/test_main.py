import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from sds.errors import ConfigurationError
from sds.home import Home
from sds.server.main import _listen
from sds.server.operations.service import Service
from sds.server.settings import Settings
from tests.server.running import Server
from tests.waiting import PATIENCE_S


@pytest.fixture
def start(tmp_path):
    begun = []

    def start(*arguments, home=tmp_path / "home", **environment):
        server = Server(Home(home), *arguments, **environment)
        begun.append(server)
        return server

    yield start
    for server in begun:
        server.kill()


def run(home, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "sds.server.main", "--home", home, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_a_server_says_where_it_listens_and_ends_cleanly(start):
    server = start().wait_until_it_listens()
    address = server.home.server_address
    assert address.stat().st_mode & 0o777 == 0o600
    assert json.loads(address.read_text())["pid"] == server.process.pid
    status = server.client.get("/api/v1/status").json()
    assert (status["server_pid"], status["server"]) == (
        server.process.pid,
        str(server.home.server_socket),
    )
    assert server.client.get("/openapi.json").json()["info"]["title"] == "SDS"
    assert server.terminate() == 0
    assert not address.exists()
    assert not server.home.server_socket.exists()


def test_what_a_home_holds_is_private(start):
    server = start().wait_until_it_listens()
    server.terminate()
    for path in server.home.root.iterdir():
        if path.name != "server.log":
            assert path.stat().st_mode & 0o077 == 0, path


def test_a_second_server_is_refused_with_pid_and_address_of_the_first(start, tmp_path):
    server = start().wait_until_it_listens()
    second = run(tmp_path / "home")
    assert second.returncode == 1
    assert str(server.process.pid) in second.stderr
    assert str(server.home.server_socket) in second.stderr
    assert "Traceback" not in second.stderr
    assert server.client.get("/healthz").status_code == 200


def test_the_address_of_a_killed_server_is_replaced(start):
    first = start().wait_until_it_listens()
    first.kill()
    assert first.home.server_address.exists()
    with Service.open(first.home) as service:
        assert service.status().server is None
    second = start().wait_until_it_listens()
    assert json.loads(second.home.server_address.read_text())["pid"] == second.process.pid


def test_a_unix_socket_is_private_and_survives_a_kill(start, tmp_path):
    path = tmp_path / "s"
    for _ in range(2):
        server = start("--socket", path).wait_until_it_listens()
        assert path.stat().st_mode & 0o777 == 0o600
        assert server.client.get("/api/v1/jobs").json() == {"jobs": []}
        server.kill()
    last = start("--socket", path).wait_until_it_listens()
    assert last.terminate() == 0
    assert not path.exists()


def test_a_port_can_be_chosen_and_a_taken_one_is_named(start, tmp_path):
    url = start("--port", "0").wait_until_it_listens().client.base_url
    other = run(tmp_path / "other", "--port", str(url.port))
    assert other.returncode == 1
    assert f"127.0.0.1:{url.port}" in other.stderr


def test_other_hosts_than_this_one_are_not_listened_to(home):
    with pytest.raises(ConfigurationError, match=r"0\.0\.0\.0.*ssh -L"):
        _listen(home, Settings(host="0.0.0.0"))  # noqa: S104  (refused)


def test_an_old_catalog_is_refused_with_the_command_that_mends_it(start, tmp_path):
    server = start().wait_until_it_listens()
    server.terminate()
    connection = sqlite3.connect(server.home.database)
    connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.commit()
    connection.close()
    refused = run(tmp_path / "home")
    assert refused.returncode == 1
    assert "revision 9999" in refused.stderr
    assert "pip install --upgrade" in refused.stderr
    upgraded = run(tmp_path / "home", "upgrade")
    assert upgraded.returncode == 1
    assert "9999" in upgraded.stderr


def test_upgrade_makes_a_catalog_that_serves(start, tmp_path):
    assert run(tmp_path / "home", "upgrade").returncode == 0
    assert run(tmp_path / "home", "upgrade").returncode == 0
    start().wait_until_it_listens()


def test_a_wrong_setting_is_named(tmp_path):
    Home(tmp_path).create()
    Home(tmp_path).config.write_text("prt = 1\n")
    refused = run(tmp_path)
    assert (refused.returncode, "'prt'" in refused.stderr) == (1, True)


def test_a_home_that_cannot_be_created_is_named():
    refused = run(Path("/proc/sds"))
    assert refused.returncode == 1
    assert "/proc/sds" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_sigterm_cuts_a_job_off_and_the_next_server_does_it(start, source):
    """Also under a variable that would put the server itself under the connector."""
    server = start(HDF5_VOL_CONNECTOR="nothing under_vol=0;under_info={}").wait_until_it_listens()
    body = {"kind": "reorganize", "file": str(source), "dataset": "/cube", "order": [2, 0, 1]}
    job = server.client.post("/api/v1/jobs", json=body).json()
    server.wait_for(job["id"], ("running", "done"))
    assert server.terminate() == 0
    done = start().wait_until_it_listens().wait_for(job["id"])
    assert (done["state"], done["error"]) == ("done", "")
    assert done["attempts"] in {1, 2}


def test_help_is_quick_and_complete():
    shown = run(os.devnull, "--help")
    assert shown.returncode == 0
    for word in ("upgrade", "--host", "--port", "--socket", "--home"):
        assert word in shown.stdout
