"""The command line in this process: what it prints, and how it ends."""

import json
from dataclasses import dataclass

import pytest

from sds.cli.command_line import run_command


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    root = tmp_path / "home"
    monkeypatch.setenv("SDS_HOME", str(root))
    return root


@pytest.fixture
def sds(capfd, monkeypatch):
    def run(*words):
        capfd.readouterr()
        with monkeypatch.context() as own:
            own.setenv("HDF5_VOL_CONNECTOR", "")  # a command may set it
            code = run_command([str(word) for word in words])
        return Result(int(code), *capfd.readouterr())

    return run
