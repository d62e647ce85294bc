"""A package of an extra that is missing is named with what installs it."""

import importlib.util

import pytest
from fastapi import FastAPI

from sds.errors import MissingExtraError
from sds.extras import extras, missing_extra
from sds.server.api.error_responses import add_error_handlers
from tests.server.asgi import Client

INSTALL = "install it with: pip install 'sds-hdf5[models]'"


@pytest.mark.parametrize(
    ("module", "extra"),
    [
        ("sqlalchemy.orm", "server"),
        ("sklearn", "models"),
        ("matplotlib", "plots"),
        ("netCDF4", "demo"),
    ],
)  # fmt: skip
def test_the_extra_is_that_of_the_distribution(module, extra):
    error = missing_extra(ModuleNotFoundError(name=module))
    assert isinstance(error, MissingExtraError)
    assert f"[{extra}]" in str(error)


def test_other_errors_stay_what_they_are():
    assert missing_extra(ModuleNotFoundError(name="sds.no_such_module")) is None
    assert missing_extra(ImportError(name="scipy")) is None
    assert missing_extra(ValueError()) is None


def test_every_module_of_an_extra_has_the_name_that_is_looked_up():
    named = [name for name in extras() if name != "sds_hdf5"]
    assert all(importlib.util.find_spec(name) for name in named if name != "mpich")


def test_a_request_says_it_too():
    app = FastAPI()
    add_error_handlers(app)

    @app.get("/fit")
    def fit():
        raise ModuleNotFoundError("No module named 'statsmodels'", name="statsmodels")

    answer = Client(app, base_url="http://127.0.0.1").get("/fit")
    assert answer.status_code == 422
    assert answer.json()["error"] == "MissingExtraError"
    assert answer.json()["message"].endswith(INSTALL)
