import hashlib
import os
import stat
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from sds import _native
from sds.errors import (
    BusyError,
    ConfigurationError,
    DatasetNotFoundError,
    FileMissingError,
    LayoutError,
    NotHdf5Error,
    SdsValueError,
    SourceChangedError,
    UnsupportedError,
)
from sds.geometry import SegmentList
from sds.home import Home
from sds.organizer import describe_replica, plan_reorganization, reorganize
from sds.organizer.journal import journal_directory, open_journal, plan_digest
from sds.redirect.launch.connector import CONNECTOR, switched_on
from tests.accounts import becomes_nobody
from tests.organizer.sources import gathered, make_cube, settle


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


@pytest.fixture
def reachable():
    """Return a folder that every account can reach; those of pytest are their owner's alone."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def cube(tmp_path):
    path = tmp_path / "cube.h5"
    make_cube(path)
    return path


SEGMENTS = SegmentList(tile_shape=(2, 3, 3), tiles=(11, 0, 6, 1), lengths=(3, 1))


@pytest.fixture(params=["contiguous", "chunked", "segments"])
def kind(request):
    if request.param == "contiguous":
        return {}
    if request.param == "segments":
        return {"segments": SEGMENTS}
    return {"chunks": (2, 3, 2), "filters": "shuffle,gzip:1", "region": "[1:, :, 1:]"}


def planned(cube, home, kind, **options):
    return plan_reorganization(cube, "/cube", order=(2, 0, 1), home=home, **kind, **options)


def wanted(cube, kind):
    with h5py.File(cube) as original:
        elements = original["cube"][...]
    if "segments" in kind:
        return gathered(elements, SEGMENTS, (2, 0, 1))
    return (elements[1:, :, 1:] if kind else elements).transpose(2, 0, 1)


def leftovers(*directories):
    return [
        path
        for directory in directories
        for pattern in ("*.partial", "*.json", "*.undo")
        for path in directory.rglob(pattern)
    ]


def test_the_replica_and_its_directories_are_private(cube, home, kind):
    replica = reorganize(planned(cube, home, kind), home=home)
    assert stat.S_IMODE(replica.path.stat().st_mode) == 0o600
    for directory in (home.root, home.replicas, replica.path.parent):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert not leftovers(home.root)
    assert describe_replica(replica.path) == replica


@pytest.mark.parametrize("n", [20, 40])
def test_elements_begin_where_predictions_have_them(tmp_path, home, n):
    cube = tmp_path / "cube.h5"
    make_cube(cube, (n, n, n))
    replica = reorganize(plan_reorganization(cube, "/cube", order=(2, 0, 1), home=home), home=home)
    assert replica.data_offset_bytes == _native.replica_data_offset(4 * n**3)


def test_a_second_order_adds_a_replica(cube, home):
    first = reorganize(plan_reorganization(cube, "/cube", order=(2, 0, 1), home=home), home=home)
    second = reorganize(plan_reorganization(cube, "/cube", order=(1, 2, 0), home=home), home=home)
    assert first.path != second.path
    assert describe_replica(first.path) == first


def test_a_good_replica_is_not_built_again(cube, home, kind):
    plan = planned(cube, home, kind)
    first = reorganize(plan, home=home)
    assert reorganize(plan, home=home).identity == first.identity
    assert reorganize(plan, home=home, rebuild=True).identity != first.identity


def test_a_damaged_or_outdated_replica_is_built_again(cube, home, kind):
    plan = planned(cube, home, kind)
    path = reorganize(plan, home=home).path
    for position in (-1, 0, 1000):
        with path.open("r+b") as stream:
            stream.seek(position, os.SEEK_END if position < 0 else os.SEEK_SET)
            stream.write(b"\xa5")
        again = reorganize(plan, home=home)
        with h5py.File(again.path) as copy:
            np.testing.assert_array_equal(copy["cube"][...], wanted(cube, kind))
    make_cube(cube, dtype="<f8")
    again = reorganize(planned(cube, home, kind), home=home)
    assert again.element_size_bytes == 8


def test_output_may_be_chosen_and_is_never_someone_elses_file(cube, home, tmp_path):
    output = tmp_path / "mine.h5"
    plan = plan_reorganization(cube, "/cube", order=(2, 0, 1), home=home, output=output)
    assert reorganize(plan, home=home).path == output
    reorganize(plan, home=home, rebuild=True)
    with pytest.raises(SdsValueError, match=r"is the replica of .*order 2,0,1: name another file"):
        plan_reorganization(cube, "/cube", order=(1, 0, 2), home=home, output=output)
    for other in (cube, tmp_path / "text", tmp_path / "link", tmp_path / "folder"):
        if other.name == "text":
            other.write_text("keep me")
        elif other.name == "link":
            other.symlink_to(tmp_path / "nowhere")
        elif other.name == "folder":
            other.mkdir()
        with pytest.raises(SdsValueError, match="exists and is no replica"):
            plan_reorganization(cube, "/cube", order=(2, 0, 1), home=home, output=other)
    assert (tmp_path / "text").read_text() == "keep me"


def test_an_output_holds_one_kind(cube, home, tmp_path, kind):
    output = tmp_path / "mine.h5"
    reorganize(planned(cube, home, kind, output=output), home=home)
    other = {} if kind else {"region": "[1:, :, 1:]"}
    said = "/cube in order 2,0,1"
    if "chunks" in kind:
        said = r"/cube \[1:6, 0:5, 1:4\], chunked, in order 2,0,1"
    elif kind:
        said = "/cube, 4 tiles of 2x3x3, in order 2,0,1"
    with pytest.raises(SdsValueError, match=f"is the replica of .*{said}: name another file"):
        planned(cube, home, other, output=output)
    again = planned(cube, home, kind, output=output)
    assert reorganize(again, home=home).path == output


def test_the_name_of_each_kind_is_its_own(cube, home):
    kinds = [
        {},
        {"chunks": (2, 3, 2)},
        {"chunks": (2, 3, 2), "filters": "gzip:1"},
        {"chunks": (2, 3, 2), "filters": "gzip:2"},
        {"chunks": (2, 2, 3)},
        {"region": "[1:]"},
        {"region": "[2:]"},
        {"region": "[1:]", "chunks": (2, 3, 2)},
        {"segments": SEGMENTS},
        {"segments": replace(SEGMENTS, tiles=SEGMENTS.tiles[::-1])},
        {"segments": replace(SEGMENTS, lengths=(1, 3))},
        {"segments": replace(SEGMENTS, tile_shape=(2, 3, 2))},
    ]
    outputs = [planned(cube, home, kind).output for kind in kinds]
    assert len(set(outputs)) == len(kinds)
    assert outputs[0].name.endswith("-2_0_1.h5")
    assert "-2x3x2-gzip-" in outputs[2].name
    assert "-2_0_1-tiles-2x3x3-" in outputs[8].name
    # Asked for otherwise, but the same.
    assert planned(cube, home, {"region": "[:, ...]"}).output == outputs[0]
    assert planned(cube, home, {"chunks": "contiguous", "filters": "none"}).output == outputs[0]
    assert planned(cube, home, {"region": "[1:6, 0:5, :99]"}).output == outputs[5]


def test_names_stay_what_they_were(cube, home):
    """A replica is found again by its name, whatever layouts have learned to say since."""
    kind = {"chunks": (2, 3, 2), "filters": "gzip:1", "region": "[1:]"}
    content = (
        '{"chunk_shape": [2, 3, 2], "filters": [{"code": 1, "name": "gzip", "options": [1]}], '
        '"order": [2, 0, 1], "region": {"extent": [5, 5, 4], "start": [1, 0, 0]}}'
    )
    tag = hashlib.sha256(content.encode()).hexdigest()[:8]
    assert planned(cube, home, kind).output.name.endswith(f"-2_0_1-2x3x2-gzip-part-{tag}.h5")


def test_a_file_that_appears_during_the_build_is_kept(cube, home, tmp_path):
    output = tmp_path / "mine.h5"
    plan = plan_reorganization(cube, "/cube", order=(2, 0, 1), home=home, output=output)
    with pytest.raises(SdsValueError, match="appeared during the build"):
        reorganize(plan, home=home, progress=lambda *_: output.write_text("other"))
    assert output.read_text() == "other"
    assert not leftovers(tmp_path)


def test_a_missing_output_directory_is_named(cube, home, tmp_path):
    output = tmp_path / "missing" / "mine.h5"
    plan = plan_reorganization(cube, "/cube", order=(2, 0, 1), home=home, output=output)
    with pytest.raises(FileMissingError, match=r"no directory .*missing: create it"):
        reorganize(plan, home=home)


@becomes_nobody
@pytest.mark.parametrize("where", ["output", "home"])
def test_no_permission_to_write_is_a_clear_error(reachable, where):
    cube, home = reachable / "cube.h5", reachable / "home"
    make_cube(cube)
    cube.chmod(0o644)
    home.mkdir()
    (reachable / "closed").mkdir(mode=0o755)
    if where == "output":
        os.chown(home, 65534, 65534)
    program = f"""
import functools, os
from pathlib import Path
from sds.geometry import SegmentList
from sds.home import Home
from sds.errors import PermissionDeniedError
from sds.organizer import plan_reorganization, protocol, reorganize
# Everything is imported and found once before the rights are gone: the interpreter may lie in a
# closed place.
protocol.entry_points = functools.cache(protocol.entry_points)
warm = Home(Path({str(reachable / "warm")!r}))
reorganize(plan_reorganization({str(cube)!r}, "/cube", order=(1, 0, 2), home=warm), home=warm)
os.setgid(65534); os.setuid(65534)
home = Home(Path({str(home)!r}))
output = Path({str(reachable / "closed" / "r.h5")!r}) if {where == "output"} else None
plan = plan_reorganization({str(cube)!r}, "/cube", order=(2, 0, 1), home=home, output=output)
try:
    reorganize(plan, home=home)
except PermissionDeniedError as error:
    print(error)
"""
    result = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert "SDS_HOME" in result.stdout
    assert "closed" in result.stdout or where == "home"
    assert not leftovers(reachable)


def test_bad_requests_name_the_value_and_the_remedy(cube, home, tmp_path):
    with pytest.raises(LayoutError, match=r"order 0,0,1 is no permutation.*each of 0,1,2 once"):
        plan_reorganization(cube, "/cube", order=(0, 0, 1), home=home)
    with pytest.raises(LayoutError, match="order 1,0 is no permutation"):
        plan_reorganization(cube, "/cube", order=(1, 0), home=home)
    with pytest.raises(DatasetNotFoundError, match="it holds /cube"):
        plan_reorganization(cube, "/nothing", order=(0,), home=home)
    with pytest.raises(FileMissingError, match="nowhere"):
        plan_reorganization(tmp_path / "nowhere", "/d", order=(0,), home=home)
    (tmp_path / "text").write_text("no HDF5 here, but more than eight bytes")
    with pytest.raises(NotHdf5Error, match="not an HDF5 file"):
        plan_reorganization(tmp_path / "text", "/d", order=(0,), home=home)
    with pytest.raises(ConfigurationError, match=r"1000 bytes of memory.*allow at least"):
        plan_reorganization(cube, "/cube", order=(2, 0, 1), home=home, memory_bytes=1000)


def test_datasets_that_cannot_be_reorganized_are_refused_by_name(home, tmp_path):
    path = tmp_path / "odd.h5"
    with h5py.File(path, "w") as handle:
        handle["scalar"] = 1.0
        handle.create_dataset("empty", (3, 0), "f4")
        handle["null"] = h5py.Empty("f4")
        handle.create_dataset("text", (2, 2), h5py.string_dtype())
        handle.create_dataset("ragged", (2, 2), h5py.vlen_dtype("i4"))
        handle.create_dataset("pointer", (2, 2), h5py.ref_dtype)
        handle.create_dataset("outside", (2, 2), "i4", external=[(str(tmp_path / "raw"), 0, 16)])
        layout = h5py.VirtualLayout((2, 2), "f4")
        handle.create_virtual_dataset("virtual", layout)
    settle(path)
    for name, reason in {
        "scalar": "is a scalar",
        "empty": "is empty \\(extent 3x0\\)",
        "null": "null dataspace",
        "text": "lie outside the dataset",
        "ragged": "lie outside the dataset",
        "pointer": "lie outside the dataset",
        "outside": "other files \\(external\\)",
        "virtual": "other files \\(virtual\\)",
    }.items():
        with pytest.raises(UnsupportedError, match=f"/{name} in .*{reason}"):
            plan_reorganization(path, f"/{name}", order=(0, 1), home=home)


def test_a_source_that_changes_during_the_build_abandons_it(cube, home, kind):
    plan = planned(cube, home, kind)

    def touch(phase, *_):
        if phase == "copy":
            with h5py.File(cube, "r+") as handle:
                handle["cube"][0, 0, 0] = 99

    with pytest.raises(SourceChangedError, match="is abandoned"):
        reorganize(plan, home=home, progress=touch)
    assert not plan.output.exists()
    assert not leftovers(home.root)
    with pytest.raises(SourceChangedError):
        reorganize(plan, home=home)


def test_the_owner_can_open_the_source_for_writing_during_a_build(cube, home):
    plan = plan_reorganization(cube, "/cube", order=(2, 0, 1), home=home)
    program = f"import h5py; print(h5py.File({str(cube)!r}, 'r+', locking=True).mode)"
    opened = []

    def open_for_writing(*_):
        result = subprocess.run(
            [sys.executable, "-c", program], check=False, capture_output=True, text=True
        )
        opened.append(result.stdout.strip())

    with pytest.raises(SourceChangedError):  # HDF5 touches what it opens for writing
        reorganize(plan, home=home, progress=open_for_writing)
    assert set(opened) == {"r+"}


def test_a_fresh_source_is_waited_for_until_its_clock_can_be_trusted(cube, home):
    with h5py.File(cube, "r+") as handle:
        handle["cube"][0, 0, 0] = 5
    plan = plan_reorganization(cube, "/cube", order=(2, 0, 1), home=home)
    assert plan.source_identity.mtime_ns / 1e9 < time.time() - 1.9


def test_a_source_that_is_being_written_is_refused(cube, home):
    stop = threading.Event()

    def write():
        while not stop.wait(0.1):
            os.utime(cube)

    os.utime(cube)
    writer = threading.Thread(target=write)
    writer.start()
    try:
        with pytest.raises(SourceChangedError, match="is being written"):
            plan_reorganization(cube, "/cube", order=(2, 0, 1), home=home)
    finally:
        stop.set()
        writer.join()


def test_cancelling_from_progress_leaves_nothing_behind(cube, home, kind):
    class CancelledError(Exception):
        pass

    def cancel(*_):
        raise CancelledError

    plan = planned(cube, home, kind)
    with pytest.raises(CancelledError):
        reorganize(plan, home=home, progress=cancel)
    assert not leftovers(home.root)
    assert not plan.output.exists()


def test_two_builds_of_one_replica_do_not_meet(cube, home, kind):
    home.create()
    journal_directory(home).mkdir()
    plan = planned(cube, home, kind)
    with (
        open_journal(journal_directory(home) / f"{plan_digest(plan)}.json"),
        pytest.raises(BusyError, match="building this replica now"),
    ):
        reorganize(plan, home=home)


@pytest.mark.parametrize("variables", [{"HDF5_VOL_CONNECTOR": CONNECTOR}, "preloaded"])
def test_a_build_under_the_connector_is_refused(variables, cube, home, monkeypatch):
    variables = switched_on({}) if variables == "preloaded" else variables
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for value in ("", "0"):  # neither switches the connector off
        monkeypatch.setenv("SDS_DISABLE", value)
        with pytest.raises(ConfigurationError, match="SDS_DISABLE=1"):
            plan_reorganization(cube, "/cube", order=(2, 0, 1), home=home)
    monkeypatch.setenv("SDS_DISABLE", "1")
    plan_reorganization(cube, "/cube", order=(2, 0, 1), home=home)


def test_a_dataset_behind_an_external_link_belongs_to_its_own_file(cube, home, tmp_path):
    with h5py.File(tmp_path / "links.h5", "w") as handle:
        handle["there"] = h5py.ExternalLink(cube.name, "/cube")
    settle(tmp_path / "links.h5")
    plan = plan_reorganization(tmp_path / "links.h5", "/there", order=(2, 0, 1), home=home)
    assert (plan.source_path, plan.dataset_path) == (cube, "/cube")
    assert reorganize(plan, home=home).source_path == cube


def test_names_that_are_not_text_or_very_long_work(home, tmp_path):
    directory = tmp_path / os.fsdecode(b"caf\xe9")
    directory.mkdir()
    path = directory / ("n" * 200 + ".h5")
    with h5py.File(path, "w") as handle:
        handle["/g/" + "d" * 300] = np.eye(3)
        handle["/g/ü %/x"] = np.eye(3)
    settle(path)
    for dataset in ("/g/" + "d" * 300, "/g/ü %/x"):
        plan = plan_reorganization(path, dataset, order=(1, 0), home=home)
        assert reorganize(plan, home=home).source_path == path
