import pytest

from tests.plots.evidence import calibration


@pytest.fixture(scope="session")
def measured():
    return calibration()
