import subprocess
import sys
import textwrap

import h5py
import numpy as np
import pytest

from sds.errors import (
    ConfigurationError,
    InsufficientSpaceError,
    LayoutError,
    NotFoundError,
    SdsValueError,
    VerificationError,
)
from sds.geometry import SegmentList
from sds.home import Home
from sds.organizer import find_organizers, load_organizer, plan_reorganization, reorganize
from sds.organizer.reorganizers.transposer import Transposer
from tests.organizer.sources import make_cube

PACKAGE = '''
import dataclasses, errno
import h5py
from sds.organizer.reorganizers.transposer import Transposer


class Rot(Transposer):
    """Turns the axes round by one, whatever order was asked for."""

    def plan(self, source, request):
        rank = len(source.description.extent)
        order = (rank - 1, *range(rank - 1))
        request = dataclasses.replace(request, order=order)
        return dataclasses.replace(super().plan(source, request), organizer="rot")


class Liar(Transposer):
    def plan(self, source, request):
        return dataclasses.replace(super().plan(source, request), organizer="liar")

    def execute(self, plan, staged, *, checkpoint, progress=None):
        replica = super().execute(plan, staged, checkpoint=checkpoint, progress=progress)
        with staged.open("r+b") as stream:
            stream.seek(replica.data_offset_bytes)
            stream.write(b"lie")
        return replica


class Hog(Liar):
    def plan(self, source, request):
        return dataclasses.replace(super().plan(source, request), organizer="hog")

    def execute(self, plan, staged, *, checkpoint, progress=None):
        staged.write_bytes(bytes(1000))
        raise OSError(errno.ENOSPC, "No space left on device")


class Nothing:
    pass
'''


@pytest.fixture
def third_party(tmp_path, monkeypatch):
    """Install a package with organizers of its own, as pip lays it out."""
    site = tmp_path / "site"
    (site / "sds_rot-1.0.dist-info").mkdir(parents=True)
    (site / "sds_rot.py").write_text(PACKAGE)
    (site / "sds_rot-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: sds-rot\nVersion: 1.0\n"
    )
    (site / "sds_rot-1.0.dist-info" / "entry_points.txt").write_text(
        textwrap.dedent("""\
            [sds.organizers]
            rot = sds_rot:Rot
            liar = sds_rot:Liar
            hog = sds_rot:Hog
            nothing = sds_rot:Nothing
            gone = sds_rot:Gone
            """)
    )
    monkeypatch.syspath_prepend(str(site))
    yield site
    sys.modules.pop("sds_rot", None)


@pytest.fixture
def cube(tmp_path):
    make_cube(tmp_path / "cube.h5")
    return tmp_path / "cube.h5"


def test_the_transposer_is_found_by_its_entry_point():
    assert find_organizers()["transposer"] == "sds.organizer.reorganizers.transposer:Transposer"
    assert isinstance(load_organizer(), Transposer)


@pytest.mark.usefixtures("third_party")
def test_a_third_party_organizer_is_found_and_run(cube, tmp_path):
    assert find_organizers()["rot"] == "sds_rot:Rot"
    home = Home(tmp_path / "home")
    plan = plan_reorganization(cube, "/cube", order=(0, 1, 2), home=home, organizer="rot")
    replica = reorganize(plan, home=home)
    assert replica.order == (2, 0, 1)
    with h5py.File(replica.path) as copy, h5py.File(cube) as original:
        np.testing.assert_array_equal(copy["cube"][...], original["cube"][...].transpose(2, 0, 1))


@pytest.mark.usefixtures("third_party")
def test_ranks_do_not_stand_in_for_an_organizer_of_another_package(cube, tmp_path):
    home = Home(tmp_path / "home")
    plan = plan_reorganization(cube, "/cube", order=(0, 1, 2), home=home, organizer="rot")
    with pytest.raises(SdsValueError, match="organizer 'rot' works alone: leave out n_ranks=2"):
        reorganize(plan, home=home, n_ranks=2)
    assert not plan.output.exists()


@pytest.mark.usefixtures("third_party")
def test_an_organizer_that_knows_no_segments_is_not_asked_for_them(cube, tmp_path):
    segments = SegmentList(tile_shape=(2, 2, 2), tiles=(3,), lengths=(1,))
    asked = {"order": (0, 1, 2), "home": Home(tmp_path / "home"), "segments": segments}
    with pytest.raises(LayoutError, match="organizer 'rot' gathers no tiles: leave segments"):
        plan_reorganization(cube, "/cube", organizer="rot", **asked)


@pytest.mark.usefixtures("third_party")
def test_what_a_third_party_organizer_writes_is_compared_before_it_is_published(cube, tmp_path):
    home = Home(tmp_path / "home")
    plan = plan_reorganization(cube, "/cube", order=(2, 1, 0), home=home, organizer="liar")
    with pytest.raises(VerificationError, match=r"differs from .*not published.*1 of 1 blocks"):
        reorganize(plan, home=home)
    assert not plan.output.exists()


@pytest.mark.usefixtures("third_party")
def test_a_disk_that_fills_up_is_cleaned_and_the_need_is_named(cube, tmp_path):
    home = Home(tmp_path / "home")
    plan = plan_reorganization(cube, "/cube", order=(2, 1, 0), home=home, organizer="hog")
    with pytest.raises(InsufficientSpaceError, match=f"needs {plan.space_needed_bytes} bytes"):
        reorganize(plan, home=home)
    assert not list(home.replicas.rglob("*.partial"))


@pytest.mark.usefixtures("third_party")
def test_what_is_no_organizer_is_refused():
    with pytest.raises(NotFoundError, match=r"installed: .*transposer"):
        load_organizer("sorter")
    with pytest.raises(ConfigurationError, match="lacks plan, execute or verify"):
        load_organizer("nothing")
    with pytest.raises(ConfigurationError, match="cannot be loaded"):
        load_organizer("gone")


def test_importing_the_organizer_loads_no_hdf5():
    program = "import sds.organizer, sys; print([m for m in ('h5py',) if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert result.stdout.strip() == "[]"
