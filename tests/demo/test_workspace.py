"""Where the demonstration may write is known before it works, not after."""

import os
import tempfile
from pathlib import Path

import pytest

from sds.demo import workspace
from sds.errors import FileMissingError, PermissionDeniedError


@pytest.fixture
def read_only(tmp_path, monkeypatch):
    """Return a directory that cannot be written, for root too."""
    directory = tmp_path / "read only"
    directory.mkdir()
    access = os.access

    def refuse(path, mode):
        return Path(path) != directory and access(path, mode)

    monkeypatch.setattr(workspace.os, "access", refuse)
    return directory


def test_the_figure_is_drawn_where_the_user_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert workspace.figure_path(None) == tmp_path / "sds-demo.png"
    assert workspace.figure_path(Path("mine.png")) == tmp_path / "mine.png"


def test_files_and_figure_go_elsewhere_from_a_directory_that_cannot_be_written(
    read_only, monkeypatch
):
    monkeypatch.chdir(read_only)
    temporary = Path(tempfile.gettempdir())
    assert workspace.figure_path(None) == temporary / "sds-demo.png"
    workplace, _ = workspace.make_workplace(None, 1 << 20)
    assert workplace.root.parent == temporary.resolve()
    workplace.remove()


def test_a_place_that_is_named_is_taken_or_refused(read_only, tmp_path):
    with pytest.raises(PermissionDeniedError, match=r"read only/x\.png; name another --output"):
        workspace.figure_path(read_only / "x.png")
    with pytest.raises(PermissionDeniedError, match="name another --directory"):
        workspace.make_workplace(read_only, 1 << 20)
    with pytest.raises(FileMissingError, match="name another --output"):
        workspace.figure_path(tmp_path / "none" / "x.png")
