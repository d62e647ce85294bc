"""What holds for every test."""

import pytest

from sds.home import Home


@pytest.fixture(autouse=True, scope="session")
def _own_data_directory(tmp_path_factory):
    """Keep the copy of the connector, and homes that a test does not name, out of the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture
def home(tmp_path):
    """Make an empty home."""
    home = Home(tmp_path / "home")
    home.create()
    return home
