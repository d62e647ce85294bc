"""The data behind figures over REST: those of `sds.plots.figure_values`, to whoever may read."""

from dataclasses import replace

import pytest
from pydantic import TypeAdapter

from sds.calibration.results import Calibration
from sds.errors import NotFoundError, SdsValueError
from sds.plots import Kind
from sds.plots.figure_values import DATA_OF, figure_data
from sds.recommender.models.cost_model import CacheState
from sds.server.api.auth import Scope, Tokens
from tests.plots.evidence import calibration, keep
from tests.server.asgi import Client

MODEL = "eq4, block gap count, relative"


@pytest.fixture(scope="module")
def made():
    return calibration()


@pytest.fixture
def measured(service, home, made):
    """A home whose own file system is calibrated, and that of an elsewhere that is gone."""
    service._store.add_calibration(mount_point="/elsewhere", device=2**40, calibration=made)
    keep(service, home, made)
    return made


@pytest.fixture
def client(app, home):
    token = Tokens.load(home).token(Scope.READ)
    return Client(app, headers={"Authorization": f"Bearer {token}"})


@pytest.mark.parametrize("kind", Kind)
def test_a_figure_has_the_data_that_the_command_draws(client, home, measured, kind):
    asked = {"path": str(home.root), "model": MODEL, "via": "hdf5", "cache": "cold"}
    answer = client.get(f"/api/v1/plots/{kind}", params=asked)
    assert answer.status_code == 200
    found = TypeAdapter(DATA_OF[kind]).validate_json(answer.content)
    assert found == figure_data(kind, measured, cache=CacheState.COLD, model=MODEL)


@pytest.mark.parametrize(
    ("asked", "status", "error", "said"),
    [
        ({}, 422, "SdsValueError", "several file systems are calibrated"),
        ({"path": "relative"}, 422, "SdsValueError", "relative"),
        ({"path": "/a\0b"}, 422, "SdsValueError", "is no path"),
        ({"path": "/" + "x" * 300}, 422, "SdsValueError", "cannot be looked at"),
        ({"path": "/proc/self"}, 404, "NotFoundError", "sds calibrate"),
        ({"path": "HOME", "model": "eq7"}, 404, "NotFoundError", "'eq7'"),
        ({"path": "HOME", "via": "engine"}, 404, "NotFoundError", "it has hdf5 cold"),
        ({"path": "HOME", "cache": "warm"}, 404, "NotFoundError", "hdf5 warm"),
        ({"path": "HOME", "via": "telepathy"}, 422, "SdsValueError", "telepathy"),
    ],
)
@pytest.mark.usefixtures("measured")
def test_what_is_not_there_is_named(client, home, asked, status, error, said):  # noqa: PLR0917
    asked = {k: str(home.root) if v == "HOME" else v for k, v in asked.items()}
    for kind in Kind:
        answer = client.get(f"/api/v1/plots/{kind}", params=asked)
        assert (answer.status_code, answer.json()["error"]) == (status, error), answer.text
        assert said in answer.json()["message"]


@pytest.mark.usefixtures("measured")
def test_a_figure_is_made_once_for_each_calibration(service, home, monkeypatch):
    made = []

    def counting(*args, **options):
        made.append(args)
        return figure_data(*args, **options)

    monkeypatch.setattr("sds.plots.figure_values.figure_data", counting)
    path = str(home.root)
    first = service.plot(Kind.PREDICTED, path, model=MODEL)
    assert service.plot(Kind.PREDICTED, path, model=MODEL) == first
    assert len(made) == 1
    service.plot(Kind.RESIDUALS, path, model=MODEL)
    service.plot(Kind.PREDICTED, path, model="service")
    assert len(made) == 3
    # Fitted anew: the same record, and other models.
    record = next(r for r in service.calibrations() if r.device == home.root.stat().st_dev)
    changed = replace(record.calibration, elapsed_s=2.0)
    service._store.replace_calibration(record.id, changed)
    service.plot(Kind.PREDICTED, path, model=MODEL)
    assert len(made) == 4


def test_calibrations_are_answered_whole(client, home, service):
    keep(service, home, calibration())
    (sent,) = client.get("/api/v1/calibrations").json()["calibrations"]
    assert TypeAdapter(Calibration).validate_python(sent["calibration"]) == calibration()


def test_without_a_calibration_the_remedy_is_named(client):
    answer = client.get("/api/v1/plots/predicted")
    assert answer.status_code == 404
    assert answer.json()["remedy"] == "run `sds calibrate DIRECTORY`"


def test_the_only_calibration_needs_no_path(client, service, made):
    service._store.add_calibration(mount_point="/elsewhere", device=2**40, calibration=made)
    answer = client.get("/api/v1/plots/coefficients")
    assert answer.status_code == 200
    assert answer.json()["about"]["origin"] == "measured"


def test_nothing_is_told_without_a_token(app):
    for kind in Kind:
        assert Client(app).get(f"/api/v1/plots/{kind}").status_code == 401


def test_the_description_has_an_example_of_every_figure(app):
    described = app.openapi()["paths"]
    for kind in Kind:
        answer = described[f"/api/v1/plots/{kind}"]["get"]["responses"]["200"]
        content = answer["content"]["application/json"]
        assert content["schema"]["$ref"].endswith(DATA_OF[kind].__name__)
        TypeAdapter(DATA_OF[kind]).validate_python(content["example"])


def test_the_service_says_the_same(service, home, measured):
    found = service.plot(Kind.COEFFICIENTS, str(home.root))
    assert found == figure_data(Kind.COEFFICIENTS, measured)
    with pytest.raises(NotFoundError, match="not calibrated"):
        service.plot(Kind.COEFFICIENTS, "/proc/self")
    with pytest.raises(SdsValueError, match="several"):
        service.plot(Kind.COEFFICIENTS)
