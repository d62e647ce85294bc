import threading

import h5py
import numpy as np
import pytest
from sqlalchemy.exc import OperationalError

from sds import errors
from sds.catalog.job_queue import JobQueue
from sds.catalog.records import JobState
from sds.server.api.admission import host_name
from sds.server.api.application import create_app
from sds.server.api.auth import Scope, Tokens
from sds.server.api.error_responses import STATUS, problem_of, status_of
from sds.server.operations.jobs import Background, child_runner
from sds.server.operations.service import Service
from sds.server.operations.stages import CutOffError
from sds.server.settings import Settings
from tests.server.asgi import Client
from tests.server.running import PATIENCE_S

READ_PATHS = [
    "datasets",
    "patterns",
    "recommendations",
    "replicas",
    "jobs",
    "status",
    "events",
    "calibrations",
]


@pytest.fixture
def client(app, home):
    token = Tokens.load(home).token(Scope.OPERATE)
    return Client(app, base_url="http://127.0.0.1", headers={"Authorization": f"Bearer {token}"})


@pytest.fixture
def visitor(app):
    return Client(app, base_url="http://127.0.0.1")


def test_lists_are_objects_with_one_stable_key(client):
    for path in READ_PATHS:
        answer = client.get(f"/api/v1/{path}")
        assert answer.status_code == 200
        if path != "status":
            others = {"calibrations": {"notes": []}, "replicas": {"total": 0, "next": None}}
            assert answer.json() == {path: [], **others.get(path, {})}


@pytest.mark.parametrize("authorization", [None, "Bearer", "Bearer nonsense", "Basic b3BlcmF0ZQ=="])
def test_nothing_is_told_without_a_token(visitor, authorization):
    headers = {} if authorization is None else {"Authorization": authorization}
    for path in READ_PATHS:
        answer = visitor.get(f"/api/v1/{path}", headers=headers)
        assert answer.status_code == 401
        assert answer.headers["WWW-Authenticate"] == "Bearer"
        assert answer.json()["error"] == "UnauthorizedError"


@pytest.mark.parametrize("resource", ["datasets", "patterns", "recommendations", "replicas"])
def test_a_file_that_no_path_can_name_is_refused(client, resource):
    answer = client.get(f"/api/v1/{resource}", params={"file": "/a\0b"})
    assert (answer.status_code, answer.json()["error"]) == (422, "SdsValueError")
    assert "is no path" in answer.json()["message"]


def test_a_token_to_read_may_not_operate(visitor, home):
    headers = {"Authorization": f"Bearer {Tokens.load(home).token(Scope.READ)}"}
    assert visitor.get("/api/v1/jobs", headers=headers).status_code == 200
    for method, path in [
        ("POST", "jobs"),
        ("POST", "jobs/1/cancel"),
        ("POST", "advise"),
        ("POST", "what-if"),
        ("DELETE", "replicas/1"),
    ]:
        answer = visitor.request(
            method, f"/api/v1/{path}", headers=headers, json={"kind": "ingest"}
        )
        assert (answer.status_code, answer.json()["error"]) == (403, "ForbiddenError")


def test_every_operation_needs_a_token_but_health(app):
    for path, methods in app.openapi()["paths"].items():
        for operation in methods.values():
            assert ("security" in operation) is path.startswith("/api/v1/"), path


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "[::2]:80"])
def test_requests_for_another_host_are_refused(client, host):
    for path in ("/api/v1/status", "/healthz", "/docs"):
        answer = client.get(path, headers={"Host": host})
        assert (answer.status_code, answer.json()["error"]) == (403, "ForbiddenError")


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost", "LOCALHOST:1", "[::1]:80"])
def test_requests_for_this_host_are_not(client, host):
    assert client.get("/api/v1/status", headers={"Host": host}).status_code == 200


def test_a_setting_allows_more_hosts(home):
    with Service.open(home, Settings(allowed_hosts=("login1",))) as service:
        app = create_app(service, Background(service, threading.Event()))
        client = Client(app, base_url="http://login1")
        assert client.get("/readyz").json() == {"ok": True}
        assert client.get("/readyz", headers={"Host": "127.0.0.1"}).status_code == 403


@pytest.mark.parametrize(
    ("header", "name"),
    [("a.b:80", "a.b"), ("[::1]:80", "::1"), ("[::1", "::1"), ("", ""), ("A", "a")],
)
def test_host_names(header, name):
    assert host_name(header) == name


def test_a_problem_says_what_value_remedy(client):
    answer = client.get("/api/v1/replicas/7")
    assert answer.status_code == 404
    assert answer.json() == {
        "error": "NotFoundError",
        "message": "there is no replica 7; `sds replicas` lists those there are",
        "remedy": "`sds replicas` lists those there are",
    }


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        (
            {"kind": "reorganize", "file": "/a", "dataset": "/d", "order": [0, 0]},
            "LayoutError",
            "0,0",
        ),
        (
            {
                "kind": "reorganize",
                "file": "/a",
                "dataset": "/d",
                "order": [1, 0],
                "segments": {"tile_shape": [4, 4], "tiles": [3, 3], "lengths": [2]},
            },
            "LayoutError",
            "listed twice",
        ),
        (
            {
                "kind": "reorganize",
                "file": "/a",
                "dataset": "/d",
                "order": [1, 0],
                "chunks": "auto",
                "segments": {"tile_shape": [4, 4], "tiles": [3], "lengths": [1]},
            },
            "LayoutError",
            "chunks and segments exclude each other",
        ),
        ({"kind": "melt"}, "SdsValueError", "melt"),
        ({}, "SdsValueError", "kind"),
        ({"kind": "calibrate", "path": "/a", "settings": {"budget_s": -1}}, "SdsValueError", "-1"),
    ],
)
def test_a_bad_job_is_refused_with_the_error_of_sds(client, body, error, message):
    answer = client.post("/api/v1/jobs", json=body)
    assert answer.status_code == 422
    assert answer.json()["error"] == error
    assert message in answer.json()["message"]


def test_a_bad_question_is_refused_with_the_error_of_sds(client, source):
    named = {"datasets": [{"file": str(source), "dataset": "/cube"}]}
    answer = client.post("/api/v1/advise", json={**named, "selection": "[999]"})
    assert (answer.status_code, answer.json()["error"]) == (422, "SelectionError")


def test_advice_on_queries_over_rest_is_that_of_the_service(client, service, tmp_path):
    path = tmp_path / "run.h5"
    with h5py.File(path, "w") as file:
        file["p/e"] = np.arange(8e6)
        file["p/x"] = np.zeros(8_000_000, "i1")
    queries = [{"condition": "e > 7999990", "columns": ["x"], "per_day": 1e3}]
    table = {"file": str(path), "table": "/p", "queries": queries}
    answer = client.post("/api/v1/advise", json={"tables": [table]})
    assert answer.status_code == 200, answer.json()
    chosen = answer.json()["portfolio"]
    assert [layout["layout"]["sort"]["key"] for layout in chosen["layouts"]] == ["e"]
    (kept,) = client.get("/api/v1/recommendations").json()["recommendations"]
    assert kept["recommendation"]["layouts"] == chosen["layouts"]
    none = client.get("/api/v1/recommendations", params={"dataset": "/q"}).json()
    assert none == {"recommendations": []}
    assert [one.dataset for one in service.recommendations()] == ["/p"]
    question = {"file": str(path), "dataset": "/p", "sort": "e", "queries": queries}
    supposed = client.post("/api/v1/what-if", json=question).json()
    assert supposed["saving"] == chosen["saving"]


@pytest.mark.parametrize(
    ("change", "status", "said"),
    [
        ({"file": "run.h5"}, 422, "absolute"),
        ({"file": "/no.h5"}, 404, "/no.h5"),
        ({"file": "/a\0b"}, 422, "is no path"),
        ({"table": "/q"}, 404, "/q"),
        ({"queries": []}, 422, "no query of"),
        ({"queries": [{"condition": "e >"}]}, 422, "'e >' is no condition"),
        ({"queries": [{"condition": "y > 1"}]}, 404, "no dataset '/p/y'"),
        ({"queries": [{"condition": "e > 1", "columns": ["y"]}]}, 404, "no column 'y'"),
        ({"queries": [{"condition": "e > 1", "columns": []}]}, 422, "no columns are named"),
        ({"queries": [{"condition": "e > 1", "per_day": 0}]}, 422, "0 times a day"),
    ],
)
def test_a_bad_question_about_queries_says_what_is_wrong(client, tmp_path, change, status, said):
    path = tmp_path / "run.h5"
    with h5py.File(path, "w") as file:
        file["p/e"] = np.arange(1000.0)
    table = {"file": str(path), "table": "/p", "queries": [{"condition": "e > 1"}]} | change
    answer = client.post("/api/v1/advise", json={"tables": [table]})
    assert answer.status_code == status, answer.json()
    assert said in answer.json()["message"]


def test_advice_and_what_if_over_rest_are_those_of_the_service(client, wide):
    reads = {"selection": "[:, :, 3]", "n_reads": 10**6}
    question = {"datasets": [{"file": str(wide), "dataset": "/cube"}], **reads}
    answer = client.post("/api/v1/advise", json=question)
    assert answer.status_code == 200
    (layout,) = answer.json()["portfolio"]["layouts"]
    assert layout["layout"]["order"] == [2, 0, 1]
    low, seconds, high = (layout["saving"][name] for name in ("low", "seconds", "high"))
    assert low < seconds < high
    assert answer.json()["stripes"]["command"] is None
    supposed = {"file": str(wide), "dataset": "/cube", "order": [2, 0, 1], **reads}
    answer = client.post("/api/v1/what-if", json=supposed)
    assert answer.status_code == 200
    assert answer.json()["saving"] == pytest.approx(layout["saving"])
    for path, body, status, words in (
        ("advise", {"datasets": [{"file": "cube.h5"}]}, 422, "absolute"),
        ("advise", {"datasets": []}, 422, "at least one"),
        ("advise", {**question, "budget_bytes": -1}, 422, "budget_bytes"),
        ("what-if", {**supposed, "file": "cube.h5"}, 422, "absolute"),
        ("what-if", {**supposed, "order": [0, 0, 1]}, 422, "0,0,1"),
        ("what-if", {**supposed, "without": [99]}, 404, "99"),
    ):
        answer = client.post(f"/api/v1/{path}", json=body)
        assert answer.status_code == status
        assert words in answer.json()["message"]


def test_what_recurs_over_rest_is_what_a_job_takes(client, service, source, write_spool):
    write_spool(48)  # each plane twice
    service.ingest()
    question = {"file": str(source), "dataset": "/cube", "tiles": [24, 20, 1]}
    answer = client.post("/api/v1/recurring", json=question)
    assert answer.status_code == 200
    segments = answer.json()
    assert segments["tile_shape"] == [24, 20, 1]
    assert sorted(segments["tiles"]) == list(range(16))
    assert sum(segments["lengths"]) == 16
    job = {"kind": "reorganize", "file": str(source), "dataset": "/cube", "order": [0, 1, 2]}
    assert client.post("/api/v1/jobs", json=job | {"segments": segments}).status_code == 202
    supposed = {**question, "order": [2, 0, 1]}
    answer = client.post("/api/v1/what-if", json=supposed)
    assert answer.status_code == 200
    assert answer.json()["added"] == ["order 2,0,1, 16 tiles 24x20x1 in 1 segment"]
    for path, body, words in (
        ("recurring", {**question, "file": "cube.h5"}, "absolute"),
        ("recurring", {**question, "tiles": [24, 20]}, "give each of its axes a length"),
        ("recurring", {**question, "tiles": []}, "tiles of no elements"),
        ("recurring", {**question, "min_reads": 0}, "min_reads must be at least 1"),
        ("recurring", {**question, "min_reads": 9}, "was read 9 times or more"),
        ("what-if", {**supposed, "region": "[:3]"}, "stored contiguously"),
    ):
        answer = client.post(f"/api/v1/{path}", json=body)
        assert answer.status_code == 422
        assert words in answer.json()["message"]


def test_what_nobody_foresaw_tells_no_secrets(visitor, service, monkeypatch, caplog):
    def fail():
        raise RuntimeError("password in " + __file__)

    monkeypatch.setattr(service.queue, "counts", fail)
    answer = visitor.get("/readyz")
    assert answer.status_code == 500
    assert answer.json()["message"] == "unexpected RuntimeError"
    assert "password" in caplog.text


def test_every_error_of_sds_has_a_status():
    def tree(kind):
        return {kind}.union(*(tree(sub) for sub in kind.__subclasses__()))

    for kind in tree(errors.SdsError):
        assert 400 <= status_of(kind("what; remedy")) < 600
    assert set(STATUS) <= tree(errors.SdsError)
    assert problem_of(errors.BusyError("a; b; c")).remedy == "c"
    assert problem_of(errors.BusyError("just what")).remedy is None


def test_tokens_are_private_and_stay(home):
    home.create()
    first = Tokens.load(home)
    assert home.token.stat().st_mode & 0o777 == 0o600
    assert Tokens.load(home).token(Scope.READ) == first.token(Scope.READ)
    assert first.token(Scope.READ) != first.token(Scope.OPERATE)
    home.token.chmod(0o644)
    with pytest.raises(errors.PermissionDeniedError, match="chmod 600"):
        Tokens.load(home)
    home.token.chmod(0o600)
    home.token.write_text("operate only\n")
    with pytest.raises(errors.ConfigurationError, match="read and an operate token"):
        Tokens.load(home)


@pytest.fixture
def living(home):
    """A client of an application whose background works."""
    stop = threading.Event()
    settings = Settings(ingest_interval_s=0.05)
    with Service.open(home, settings, run=child_runner(stop)) as service, service.lock.held():
        background = Background(service, stop)
        app = create_app(service, background)
        token = Tokens.load(home).token(Scope.OPERATE)
        background.start()
        yield Client(app, base_url="http://localhost", headers={"Authorization": f"Bearer {token}"})
        background.end(10)


def wait(client, job_id, *, states=("done", "failed", "cancelled")):
    import time

    give_up = time.monotonic() + PATIENCE_S
    while (job := client.get(f"/api/v1/jobs/{job_id}").json())["state"] not in states:
        assert time.monotonic() < give_up, job
        time.sleep(0.02)
    return job


def test_a_job_builds_a_replica_in_a_process_of_its_own(living, source):
    body = {"kind": "reorganize", "file": str(source), "dataset": "/cube", "order": [2, 0, 1]}
    answer = living.post("/api/v1/jobs", json=body)
    assert (answer.status_code, answer.json()["state"]) == (202, "queued")
    done = wait(living, answer.json()["id"])
    assert (done["state"], done["progress"], done["error"]) == ("done", 1.0, "")
    (replica,) = living.get("/api/v1/replicas").json()["replicas"]
    assert done["result"] == replica
    assert living.get(f"/api/v1/replicas/{replica['id']}").json() == replica
    verified = wait(living, living.post("/api/v1/jobs", json={"kind": "verify"}).json()["id"])
    assert verified["result"]["ok"] is True
    assert living.delete(f"/api/v1/replicas/{replica['id']}").json()["state"] == "retired"
    assert living.get("/api/v1/replicas").json() == {"replicas": [], "total": 0, "next": None}
    everything = living.get("/api/v1/replicas", params={"all_states": True}).json()["replicas"]
    assert len(everything) == 1


def test_a_job_gathers_the_tiles_that_it_names(living, source):
    body = {
        "kind": "reorganize",
        "file": str(source),
        "dataset": "/cube",
        "order": [1, 0, 2],
        "segments": {"tile_shape": [6, 5, 8], "tiles": [9, 2, 1], "lengths": [1, 2]},
    }
    done = wait(living, living.post("/api/v1/jobs", json=body).json()["id"])
    assert (done["state"], done["error"]) == ("done", "")
    (replica,) = living.get("/api/v1/replicas").json()["replicas"]
    assert done["result"] == replica
    assert done["request"]["segments"] == replica["segments"] == body["segments"]
    assert replica["region"] == {"start": [0, 0, 0], "extent": [12, 10, 16]}
    assert living.get("/api/v1/status").json()["tiles"] == 3


def test_a_job_that_cannot_be_done_says_why(living):
    body = {"kind": "reorganize", "file": "/nowhere.h5", "dataset": "/d", "order": [0, 1]}
    failed = wait(living, living.post("/api/v1/jobs", json=body).json()["id"])
    assert failed["state"] == "failed"
    assert failed["error"].startswith("FileMissingError: ")
    assert "/nowhere.h5" in failed["error"]


def test_the_background_counts_traces_by_itself(living, write_spool):
    import time

    write_spool(16)
    give_up = time.monotonic() + PATIENCE_S
    while living.get("/api/v1/status").json()["reads"] != 16:
        assert time.monotonic() < give_up
        time.sleep(0.02)
    assert living.get("/healthz").json() == {"ok": True}


def test_a_dead_background_shows_in_healthz(home):
    with Service.open(home, Settings()) as service:
        background = Background(service, threading.Event())
        client = Client(create_app(service, background), base_url="http://localhost")
        assert client.get("/healthz").status_code == 503
        assert client.get("/readyz").status_code == 200


def test_a_look_that_the_end_of_the_server_cuts_off_leaves_no_traceback(home, monkeypatch, caplog):
    cut_off = threading.Event()
    stop = threading.Event()

    def collect_garbage(*_):
        cut_off.set()
        raise CutOffError

    monkeypatch.setattr(Service, "collect_garbage", collect_garbage)
    with Service.open(home, Settings(ingest_interval_s=0.05)) as service, service.lock.held():
        background = Background(service, stop)
        background.start()
        assert cut_off.wait(PATIENCE_S)
        background.end(PATIENCE_S)
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    "error",
    [
        OperationalError("INSERT", {}, OSError("database is locked")),
        errors.InsufficientSpaceError("no room to write catalog"),
    ],
    ids=["locked", "full"],
)
def test_a_catalog_that_cannot_be_written_for_a_while_stops_no_thread(living, monkeypatch, error):
    failed = threading.Event()
    real = JobQueue.claim

    def claim(queue, **given):
        if not failed.is_set():
            failed.set()
            raise error
        return real(queue, **given)

    monkeypatch.setattr(JobQueue, "claim", claim)
    job = living.post("/api/v1/jobs", json={"kind": "ingest"}).json()
    assert wait(living, job["id"])["state"] == "done"
    assert failed.is_set()
    assert living.get("/healthz").status_code == 200


def test_states_of_jobs_can_be_asked_for(client, service):
    from sds.catalog.requests import IngestRequest

    waiting, cancelled = service.submit(IngestRequest()), service.submit(IngestRequest())
    assert client.post(f"/api/v1/jobs/{cancelled.id}/cancel").json()["state"] == "cancelled"
    found = client.get("/api/v1/jobs", params={"state": JobState.QUEUED}).json()["jobs"]
    assert [job["id"] for job in found] == [waiting.id]
