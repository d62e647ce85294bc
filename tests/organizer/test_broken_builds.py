"""The tests can see: an organizer with one defect fails the test that is named beside it here."""

import inspect

import h5py
import pytest

from sds.errors import SourceChangedError
from sds.home import Home
from sds.organizer import build, reorganize
from sds.organizer.reorganizers import transposer
from tests.organizer import test_build
from tests.organizer.sources import make_cube


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


@pytest.fixture
def cube(tmp_path):
    make_cube(tmp_path / "cube.h5")
    return tmp_path / "cube.h5"


def replaces_what_appeared(monkeypatch):
    """The replica takes the place of what came to lie at its path meanwhile."""
    monkeypatch.setattr(build, "_publish", lambda plan, staged, **_: staged.replace(plan.output))


def shows_the_replica(monkeypatch):
    """Every account may read the replica."""
    stage = build._stage

    def stage_for_all(plan, staged, journal):
        stage(plan, staged, journal)
        staged.chmod(0o644)

    monkeypatch.setattr(build, "_stage", stage_for_all)


def shows_the_home(monkeypatch):
    """Every account may list the home."""

    def make_public(directory):
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o755)

    monkeypatch.setattr("sds.home.make_private", make_public)


DEFECTS = [
    (replaces_what_appeared, test_build.test_a_file_that_appears_during_the_build_is_kept),
    (shows_the_replica, test_build.test_the_replica_and_its_directories_are_private),
    (shows_the_home, test_build.test_the_replica_and_its_directories_are_private),
]


@pytest.fixture
def given(cube, home, tmp_path):
    """Return what the tests of builds are given."""
    return {"cube": cube, "home": home, "kind": {}, "tmp_path": tmp_path}


@pytest.mark.parametrize(("defect", "law"), DEFECTS, ids=lambda value: value.__name__)
def test_a_defect_is_caught(defect, law, given, monkeypatch):
    defect(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        law(**{name: given[name] for name in inspect.signature(law).parameters})


def test_a_build_that_opens_its_source_for_writing_is_abandoned(cube, home, monkeypatch):
    create = transposer.create_container

    def create_and_touch(staged, plan):
        h5py.File(plan.source_path, "r+", locking=False).close()
        create(staged, plan)

    monkeypatch.setattr(transposer, "create_container", create_and_touch)
    with pytest.raises(SourceChangedError, match="is abandoned"):
        reorganize(test_build.planned(cube, home, {}), home=home)
