"""Commands in this process, each test with a home of its own."""

import pytest


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    root = tmp_path / "home"
    monkeypatch.setenv("SDS_HOME", str(root))
    return root
