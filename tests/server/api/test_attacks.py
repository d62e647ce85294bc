"""What another account, a page of the web or a broken client can do to a server: nothing."""

import hashlib
import hmac
import http.client
import json
import os
import re
import resource
import secrets
import signal
import socket
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from sds.errors import PermissionDeniedError
from sds.home import Home
from sds.server.api.admission import MAX_BODY_BYTES
from sds.server.api.connection_limits import MAX_TCP_CONNECTIONS
from sds.server.local_socket import listen_at
from sds.server.main import _listen
from sds.server.remote_service import Connection, connect, server_address
from sds.server.settings import Settings
from tests.robustness.conftest import needs_root
from tests.server.running import PATIENCE_S, Server

NOBODY = 65534


@pytest.fixture
def start(tmp_path):
    begun = []

    def start(*arguments, home=tmp_path / "home", **environment):
        server = Server(Home(home), *arguments, **environment)
        begun.append(server)
        return server.wait_until_it_listens()

    yield start
    for server in begun:
        server.kill()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A server that listens at its socket and at a TCP port, for tests that leave it as it is."""
    server = Server(Home(tmp_path_factory.mktemp("served") / "home"), "--port", "0")
    yield server.wait_until_it_listens()
    server.kill()


def tcp(server):
    url = server.client.base_url
    return socket.create_connection((url.host, url.port), timeout=PATIENCE_S)


# ---- the command line and the server know each other


def test_the_command_line_needs_no_token_and_sends_none(start):
    """Not even where there is none that it could send."""
    served = start("--port", "0")
    served.home.token.unlink()
    with connect(served.home) as operations:
        assert operations.status().server_pid == served.process.pid
        assert operations.ingest().reads == 0  # a job: what only `operate` may do


def listen_as_impostor(heard):
    """Listen at a TCP port and at nothing else; keep what is said there."""
    listener = socket.create_server(("127.0.0.1", 0))

    def hear():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                heard.append(connection.recv(1 << 16))
                connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n{"ok":true}')

    threading.Thread(target=hear, daemon=True).start()
    return listener


def test_who_listens_at_the_port_of_a_dead_server_hears_nothing(start):
    server = start("--port", "0")
    server.kill()
    address = json.loads(server.home.server_address.read_text())
    heard = []
    with listen_as_impostor(heard) as listener:
        address["url"] = f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.home.server_address.write_text(json.dumps(address))
        assert server_address(server.home) is None
        with connect(server.home) as operations:
            assert operations.status().server is None
    assert heard == []


@needs_root("becomes another account")
def test_a_socket_of_another_account_is_told_nothing(tmp_path):
    """The client looks who answers before it sends a byte."""
    path = tmp_path / "s"
    with listen_at(path) as listener:
        path.chmod(0o777)
        for folder in (tmp_path, *tmp_path.parents[:3]):
            folder.chmod(0o755)
        child = os.fork()
        if child == 0:
            os.setuid(NOBODY)
            asking = Connection(path, users=frozenset({NOBODY}), timeout_s=PATIENCE_S)
            try:
                asking.request("GET", "/healthz")
            except PermissionDeniedError as error:
                os._exit(0 if "account 0 answers" in str(error) else 2)
            os._exit(1)
        connection, _ = listener.accept()
        with connection:
            assert connection.recv(100) == b""
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@needs_root("becomes another account")
def test_another_account_reaches_no_operation_through_the_socket(served):
    """It cannot connect; were the mode wrong, it would need a token."""
    program = (
        "import os, socket, sys; os.setuid(65534)\n"
        "s = socket.socket(socket.AF_UNIX)\n"
        "s.connect(sys.argv[1])\n"
        "s.sendall(b'GET /api/v1/status HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n')\n"
        "print(s.recv(100).split()[1].decode())\n"
    )
    path = served.home.server_socket
    ask = [sys.executable, "-c", program, path]
    refused = subprocess.run(ask, capture_output=True, text=True, check=False)
    assert "PermissionError" in refused.stderr
    folders = [folder for folder in path.parents if folder != Path("/")]
    modes = [folder.stat().st_mode for folder in folders]
    try:
        for folder in folders:
            folder.chmod(0o755)
        path.chmod(0o777)
        asked = subprocess.run(ask, capture_output=True, text=True, check=True)
    finally:
        for folder, mode in zip(folders, modes, strict=True):
            folder.chmod(mode)
    assert asked.stdout.strip() == "401"


def test_a_page_in_a_browser_operates_nothing_through_a_forwarded_socket(served):
    """`ssh -L PORT:server.sock` makes every page of the web a program of this account."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(served.home.server_socket))
        connection.sendall(
            b"POST /api/v1/jobs/1/cancel HTTP/1.1\r\nHost: localhost\r\n"
            b"Origin: https://evil.example\r\nContent-Length: 0\r\n\r\n"
        )
        assert connection.recv(100).split()[1] == b"401"


def test_a_home_of_a_long_path_has_a_socket_too(start, tmp_path):
    """The kernel's addresses have 107 bytes."""
    server_home = tmp_path / ("a" * 100) / ("b" * 100)
    server = start("--port", "0", home=server_home)
    with connect(server.home) as operations:
        assert operations.ingest().reads == 0  # with no token: by the socket
        assert operations.status().server_pid == server.process.pid


def test_over_tcp_the_server_proves_that_it_knows_the_token_first(served):
    url = served.client.base_url
    with closing(http.client.HTTPConnection(url.host, url.port, timeout=PATIENCE_S)) as connection:
        challenge = secrets.token_hex(16)
        connection.request("GET", f"/proof?challenge={challenge}")
        given = json.loads(connection.getresponse().read())
        said = f"sds-server {challenge} {url.port} {connection.sock.getsockname()[1]}".encode()
        for scope in ("read", "operate"):
            known = hmac.new(served.token(scope).encode(), said, hashlib.sha256).hexdigest()
            assert given[scope] == known
        # Now the token may go, on this very connection.
        headers = {"Authorization": f"Bearer {served.token('read')}"}
        connection.request("GET", "/api/v1/status", headers=headers)
        with connection.getresponse() as answer:
            assert answer.status == 200


def test_a_proof_is_worth_nothing_on_another_connection(served):
    """Whoever passes challenges on to the true server cannot pass its answers back."""
    challenge = secrets.token_hex(16)
    given = []
    for _ in range(2):
        with tcp(served) as connection:
            connection.sendall(
                f"GET /proof?challenge={challenge} HTTP/1.1\r\nHost: localhost\r\n"
                "Connection: close\r\n\r\n".encode()
            )
            given.append(connection.makefile("rb").read().rpartition(b"\r\n\r\n")[2])
    assert given[0] != given[1]


def test_answers_over_tcp_do_not_wait_for_acknowledgements(home):
    """What asyncio looks at before it sets TCP_NODELAY."""
    home.create()
    listeners = _listen(home, Settings(port=0))
    try:
        assert listeners[1].proto == socket.IPPROTO_TCP
    finally:
        for listener in listeners:
            listener.close()


# ---- requests that nobody asked for


def forget_peak(server):
    Path(f"/proc/{server.process.pid}/clear_refs").write_text("5")


def peak_bytes(server):
    for line in Path(f"/proc/{server.process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    raise AssertionError("no VmHWM")


def send_body(server, head, n_bytes):
    """Send a request with a long body, as far as the server takes it; return the status."""
    with tcp(server) as connection:
        connection.sendall(head.encode())
        connection.settimeout(PATIENCE_S)
        answered = threading.Event()

        def send():
            block = b"x" * (1 << 20)
            try:
                for _ in range(n_bytes >> 20):
                    if answered.is_set():
                        return
                    connection.sendall(block)
            except OSError:
                return

        sender = threading.Thread(target=send)
        sender.start()
        status = connection.recv(100).split()[1]
        answered.set()
        connection.shutdown(socket.SHUT_RDWR)
        sender.join()
        return int(status)


@pytest.mark.parametrize("framing", ["Content-Length: 1572864000", "Transfer-Encoding: chunked"])
def test_a_body_without_a_token_is_not_kept(served, framing):
    forget_peak(served)
    before = peak_bytes(served)
    head = f"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\n{framing}\r\n\r\n"
    if "chunked" in framing:
        head += "40000000\r\n"
    assert send_body(served, head, 256 << 20) == 401
    assert peak_bytes(served) - before < 64 << 20


@pytest.mark.parametrize("framing", ["Content-Length: 1572864000", "Transfer-Encoding: chunked"])
def test_a_body_with_a_token_has_a_size(served, framing):
    forget_peak(served)
    before = peak_bytes(served)
    head = (
        f"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\n{framing}\r\n"
        f"Authorization: Bearer {served.token('operate')}\r\n\r\n"
    )
    if "chunked" in framing:
        head += "40000000\r\n"
    assert send_body(served, head, 256 << 20) == 413
    assert peak_bytes(served) - before < 8 * MAX_BODY_BYTES


def test_unfinished_requests_keep_nobody_out(start):
    """1,100 of them, by an account that has no token; and the log does not grow."""
    served = start("--port", "0")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    log = served.home.root / "server.log"
    held = []
    try:
        for i in range(1100):
            connection = tcp(served)
            held.append(connection)
            unfinished = b"GET / HTTP/1.1\r\nX-Slow: "
            if i % 2:
                unfinished = b"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"
            connection.sendall(unfinished)
        n_bytes = log.stat().st_size
        with connect(served.home) as operations:
            assert operations.status().server_pid == served.process.pid
            assert operations.ingest().reads == 0
        assert served.client.get("/api/v1/status").status_code == 200  # over TCP, with the token
        descriptors = len(list(Path(f"/proc/{served.process.pid}/fd").iterdir()))
        assert descriptors < MAX_TCP_CONNECTIONS + 100
        assert log.stat().st_size - n_bytes < 1 << 16
    finally:
        for connection in held:
            connection.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_an_unfinished_request_is_ended(served):
    """One that never begins, one whose head does not end, one whose body does not, with a token."""
    unfinished = (
        b"",
        b"GET /api/v1/status HTTP/1.1\r\nX-Slow: ",
        b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n"
        b"Authorization: Bearer " + served.token("operate").encode() + b"\r\n\r\n{",
    )
    held = [tcp(served) for _ in unfinished]
    for connection, sent in zip(held, unfinished, strict=True):
        connection.sendall(sent)
    answers = []
    for connection in held:
        try:
            answers.append(connection.recv(1 << 16))
        except ConnectionResetError:
            answers.append(b"")
        connection.close()
    assert answers[:2] == [b"", b""]
    assert answers[2].split()[1] == b"408"


def test_a_body_that_is_cut_off_does_nothing(served):
    """Also where what arrived of it is a whole request."""
    body = b'{"kind": "ingest"}'
    before = served.client.get("/api/v1/jobs").json()
    with tcp(served) as connection:
        connection.sendall(
            b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\n"
            b"Authorization: Bearer " + served.token("operate").encode() + b"\r\n"
            b"Content-Length: " + str(len(body) + 1).encode() + b"\r\n\r\n" + body
        )
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1 << 16)
    assert served.client.get("/api/v1/jobs").json() == before


def test_nonsense_does_not_fill_the_log(served):
    log = served.home.root / "server.log"
    before = log.stat().st_size
    for _ in range(200):
        with tcp(served) as connection:
            connection.sendall(b"\x16\x03\x01 no HTTP at all\r\n\r\n")
            assert b" 400 " in connection.recv(100)
    assert log.stat().st_size - before < 4096


# ---- files that are none, and file systems that do not answer


def test_a_pipe_in_place_of_a_file_holds_nobody(start, tmp_path):
    """To open one waits for whoever writes it, for ever, and no other thread runs meanwhile."""
    served = start("--port", "0")
    pipe = tmp_path / "pipe.h5"
    os.mkfifo(pipe)
    body = {"datasets": [{"file": str(pipe), "dataset": "/d"}], "selection": "[0]"}
    answer = served.client.post("/api/v1/advise", json=body)
    assert (answer.status_code, answer.json()["error"]) == (422, "NotHdf5Error")
    assert "is a pipe" in answer.json()["message"]
    job = {"kind": "reorganize", "file": str(pipe), "dataset": "/d", "order": [0]}
    failed = served.wait_for(served.client.post("/api/v1/jobs", json=job).json()["id"])
    assert "is a pipe" in failed["error"]
    assert served.terminate() == 0


@pytest.mark.parametrize("special", [os.mkfifo, lambda path: listen_at(path).close()])
def test_no_door_waits_for_a_pipe(tmp_path, special):
    import sds
    from sds.errors import SdsError
    from sds.hdf5.dataset import describe_dataset
    from sds.organizer import describe_replica, plan_reorganization

    path = tmp_path / "special"
    special(path)
    doors = (
        lambda: sds.read(path, "/d", ...),
        lambda: sds.query(path, "e > 1", table="/t"),
        lambda: sds.read_list(path, [0], [8], None, None, bytearray(8)),
        lambda: describe_dataset(path, "/d"),
        lambda: describe_replica(path),
        lambda: plan_reorganization(path, "/d", order=(0,), home=Home(tmp_path / "home")),
    )
    for door in doors:
        with pytest.raises((SdsError, OSError)):
            door()


@pytest.fixture
def stuck(tmp_path, tool):
    """A folder on a file system whose server answers nothing, but for what is cached."""
    import h5py

    from tests.robustness.failing_device import FailingDevice, build_server

    device = FailingDevice(
        "fuse", build_server(tmp_path / "failing_fs", tool), tmp_path / "mount", tmp_path
    )
    with h5py.File(device.folder / "cube.h5", "w") as file:
        file["d"] = [1.0, 2.0]
    device.put_to_use()
    device.hang()
    yield device.folder
    device.close()


@needs_root("mounts")
def test_a_file_system_that_does_not_answer_holds_nobody(start, stuck):
    server = start("--port", "0", SDS_REQUEST_LIMIT_S="2")
    cube = str(stuck / "cube.h5")
    job = {"kind": "reorganize", "file": cube, "dataset": "/d", "order": [0]}
    running = server.client.post("/api/v1/jobs", json=job).json()["id"]
    server.wait_for(running, ("running",))
    for method, path, options in (
        ("POST", "advise", {"json": {"datasets": [{"file": cube, "dataset": "/d"}]}}),
        ("GET", "replicas", {"params": {"file": cube}}),
        ("GET", "plots/predicted", {"params": {"path": cube}}),
    ):
        answer = server.client.request(method, f"/api/v1/{path}", **options)
        assert (answer.status_code, answer.json()["error"]) == (504, "RequestTimeoutError")
        assert server.client.get("/api/v1/status").status_code == 200
    assert server.client.get(f"/api/v1/jobs/{running}").json()["state"] == "running"
    assert server.client.get("/healthz").status_code == 200
    server.client.post(f"/api/v1/jobs/{running}/cancel")
    assert server.wait_for(running)["state"] == "cancelled"
    server.client.post("/api/v1/jobs", json=job)
    assert server.terminate() == 0


HOLDER = """
import ctypes, signal, sys, time
from sds import _native
signal.signal(signal.SIGTERM, lambda *_: print("heard", flush=True))
_native.end_after_signal(signal.SIGTERM, int(sys.argv[2]))
print("ready", flush=True)
if sys.argv[1] == "held":
    ctypes.PyDLL(None).pause()  # as no call of SDS should: with the interpreter held
    ctypes.PyDLL(None).sleep(600)
while True:  # a signal that comes right before a call that waits is heard after it
    time.sleep(0.01)
"""


def hold(interpreter, limit_s):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, interpreter, str(limit_s)],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    return process


@pytest.mark.parametrize("interpreter", ["held", "free"])
def test_a_signal_ends_also_a_process_whose_interpreter_is_held(interpreter):
    with hold(interpreter, 1) as process:
        assert process.wait(PATIENCE_S) == -signal.SIGALRM


def test_a_signal_reaches_its_handler_before_it_ends_the_process():
    with hold("free", PATIENCE_S) as process:
        assert process.stdout.readline() == "heard\n"
        process.kill()


# ---- the table of all this


def test_the_manual_s_table_names_tests_that_exist():
    tests = Path(__file__).parents[2]
    page = (tests.parent / "docs/explanation/security.md").read_text()
    defined = {
        name
        for file in tests.rglob("test_*.py")
        for name in re.findall(r"^def test_(?:a_|an_|the_)?(\w+)", file.read_text(), re.MULTILINE)
    }
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| ")]
    named = {name for row in rows for name in re.findall(r"`([\w./]+)`", row[-2])}
    assert len(named) > 30
    for name in named:
        short = re.sub("^(a|an|the)_", "", name)
        assert (
            (tests.parent / name).exists()
            or any(tests.rglob(name))
            or any(test.startswith(short) for test in defined)
        ), name
