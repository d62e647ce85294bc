"""The REST interface holds to its own OpenAPI, whatever it is asked."""

import re
import threading
from pathlib import Path

import pytest
import schemathesis
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import events, from_schema

from sds.home import Home
from sds.server.api.application import create_app
from sds.server.api.auth import Scope, Tokens
from sds.server.api.error_responses import PROBLEMS
from sds.server.operations.jobs import Background
from sds.server.operations.service import Service
from sds.server.settings import Settings
from tests.server.asgi import Client


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    home = Home(tmp_path_factory.mktemp("rest") / "home")
    with Service.open(home, Settings(lock_wait_s=0, max_queued_jobs=10**6)) as service:
        yield create_app(service, Background(service, threading.Event()))


def test_every_answer_is_one_that_the_schema_promises(app):
    """To what the schema allows, to what it does not, and at every limit that it states."""
    token = Tokens.load(app.state.service.home).token(Scope.OPERATE)
    config = SchemathesisConfig.from_dict(
        {
            "headers": {"Host": "127.0.0.1", "Authorization": f"Bearer {token}"},
            "seed": 1,
            "generation": {"database": "none", "deterministic": True, "max-examples": 10},
            # A path or a selection of the right type may name nothing that exists.
            "checks": {"positive_data_acceptance": {"enabled": False}},
            "phases": {"stateful": {"enabled": False}},
            # It says 503 here: the background is not started.
            "operations": [{"include-path": "/healthz", "enabled": False}],
        }
    )
    schema = schemathesis.openapi.from_dict(app.openapi(), config=config)
    schema.app = app
    tried, failed = set(), []
    for event in from_schema(schema).execute():
        assert not isinstance(event, events.NonFatalError | events.FatalError), event
        if isinstance(event, events.ScenarioFinished):
            tried.add((event.phase.name, event.recorder.label))
            failed += [
                (event.recorder.label, check.failure_info.failure, check.failure_info.code_sample)
                for checks in event.recorder.checks.values()
                for check in checks
                if check.failure_info is not None
            ]
    assert failed == []
    for phase in ("COVERAGE", "FUZZING"):
        assert {(phase, "POST /api/v1/jobs"), (phase, "GET /api/v1/plots/predicted")} <= tried
    described = {
        f"{method.upper()} {path}"
        for path, methods in app.openapi()["paths"].items()
        for method in methods
    }
    assert {label for _, label in tried} >= described - {"GET /healthz"}


def test_the_manual_names_every_operation(app):
    manual = Path(__file__).parents[3].joinpath("docs/reference/rest.md").read_text()
    rows = set(re.findall(r"^\| (GET|POST|DELETE) `([^`?]*)", manual, flags=re.MULTILINE))
    promised = {
        (method.upper(), re.sub(r"{\w+}", "{id}", path))
        for path, methods in app.openapi()["paths"].items()
        for method in methods
    }
    assert rows == promised


def test_the_manual_names_every_status():
    manual = Path(__file__).parents[3].joinpath("docs/reference/rest.md").read_text()
    rows = {int(status) for status in re.findall(r"^\| (\d{3}) \|", manual, flags=re.MULTILINE)}
    assert rows == set(PROBLEMS)


def test_the_page_shows_every_operation_and_value_and_fetches_nothing(app):
    page = Client(app).get("/docs")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    described = app.openapi()
    for path, methods in described["paths"].items():
        for method in methods:
            assert f"<h3>{method.upper()} {path}</h3>" in page.text
    defined = set(re.findall(r"<h3 id='(\w+)'>", page.text))
    assert defined == set(described["components"]["schemas"])
    targets = set(re.findall(r"(?:href|src)=.([^'\"]*)", page.text))
    assert targets - {f"#{name}" for name in defined} == {"openapi.json"}
    assert "<script" not in page.text
