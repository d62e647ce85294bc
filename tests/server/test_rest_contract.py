"""The REST interface holds to its own OpenAPI, whatever it is asked."""

import re
import threading
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from sds.home import Home
from sds.server.app import create_app
from sds.server.auth import Scope, Tokens
from sds.server.errors import PROBLEMS
from sds.server.jobs import Background
from sds.server.service import Service
from sds.server.settings import Settings
from tests.server.asgi import Client


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    home = Home(tmp_path_factory.mktemp("rest") / "home")
    with Service.open(home, Settings(lock_wait_s=0)) as service:
        yield create_app(service, Background(service, threading.Event()))


def operations(app):
    schema = schemathesis.openapi.from_dict(app.openapi())
    schema.app = app
    return [found.ok() for found in schema.get_all_operations()]


def test_every_answer_is_one_that_the_schema_promises(app):
    token = Tokens.load(app.state.service.home).token(Scope.OPERATE)
    headers = {"Host": "127.0.0.1", "Authorization": f"Bearer {token}"}
    tried = []
    for operation in operations(app):
        if operation.path == "/healthz":
            continue  # says 503 here: the background is not started

        @given(case=operation.as_strategy())
        @settings(
            max_examples=20,
            derandomize=True,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def check(case):
            # A path or a selection of the right type may name nothing that exists.
            case.call_and_validate(headers=headers, excluded_checks=[positive_data_acceptance])

        check()
        tried.append(operation.label)
    assert {"POST /api/v1/jobs", "GET /api/v1/plots/predicted"} <= set(tried)
    assert len(tried) >= 18


def test_the_manual_names_every_operation(app):
    manual = Path(__file__).parents[2].joinpath("docs/reference/rest.md").read_text()
    rows = set(re.findall(r"^\| (GET|POST|DELETE) `([^`?]*)", manual, flags=re.MULTILINE))
    promised = {
        (method.upper(), re.sub(r"{\w+}", "{id}", path))
        for path, methods in app.openapi()["paths"].items()
        for method in methods
    }
    assert rows == promised


def test_the_manual_names_every_status():
    manual = Path(__file__).parents[2].joinpath("docs/reference/rest.md").read_text()
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
