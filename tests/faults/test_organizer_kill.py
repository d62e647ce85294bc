"""Kill -9 during a build: the original is as it was, and nothing half-made is ever published."""

import hashlib
import json
import os

import h5py
import numpy as np
import pytest

from sds.errors import VerificationError
from sds.geometry import SegmentList
from sds.hdf5.identity import identity_of
from sds.home import Home
from sds.organizer import plan_reorganization, recover, reorganize, verify_replica
from sds.organizer.journal import journal_directory
from tests.faults.killed_builds import count_steps, kill_at
from tests.organizer.sources import gathered, make_cube

MEMORY = (4 << 20) + (1 << 19)
KINDS = {
    "contiguous": {},
    "chunked": {
        "chunks": [16, 32, 32],
        "filters": "shuffle,gzip:1",
        "region": "[3:, :, 5:250]",
    },
    "segments": {
        "segments": {
            "tile_shape": [1, 24, 24],  # cut off at the ends of two axes
            "tiles": np.random.default_rng(7).permutation(64 * 6 * 11)[:3000].tolist(),
            "lengths": [1000, 2000],
        },
    },
}
every_kind = pytest.mark.parametrize("kind", KINDS)
ORDER = (2, 0, 1)
BUILD = """
import json
from pathlib import Path
from sds.organizer.copy import stepwise_copy
from sds.geometry import SegmentList
from sds.home import Home
from sds.organizer import plan_reorganization, reorganize

stepwise_copy.CHECKPOINT_S = 0.002  # so that kills fall between checkpoints, too
stepwise_copy._NOTES_SHARE = 0
home = Home(Path(sys.argv[3]))
options = json.loads(sys.argv[5])
if "segments" in options:
    options["segments"] = SegmentList(**{k: tuple(v) for k, v in options["segments"].items()})
plan = plan_reorganization(
    sys.argv[2], "/cube", order=(2, 0, 1), home=home, memory_bytes=int(sys.argv[4]), **options
)
reorganize(plan, home=home, rebuild=True, progress=progress)
done()
"""


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def cube(tmp_path):
    path = tmp_path / "cube.h5"
    make_cube(path, (64, 128, 256), "<f4")  # 8 MiB: 32 slabs or more
    return path


def planned(cube, home, kind):
    options = dict(KINDS[kind])
    if "segments" in options:
        lists = {name: tuple(numbers) for name, numbers in options["segments"].items()}
        options["segments"] = SegmentList(**lists)
    return plan_reorganization(
        cube, "/cube", order=ORDER, home=home, memory_bytes=MEMORY, **options
    )


def wanted(cube, plan):
    """Return the elements that a replica is to hold."""
    box = zip(plan.region.start, plan.region.extent, strict=True)
    with h5py.File(cube) as original:
        if plan.layout.segments is not None:
            return gathered(original["cube"][...], plan.layout.segments, ORDER)
        elements = original["cube"][tuple(slice(a, a + n) for a, n in box)]
    return elements.transpose(ORDER)


@every_kind
def test_kill_at_many_random_steps(cube, tmp_path, kind):
    """And between steps; what is half made is continued, begun anew or removed."""
    home = Home(tmp_path / "home")
    before = (sha256(cube), identity_of(cube))
    plan = planned(cube, home, kind)
    build = (BUILD, str(cube), str(home.root), str(MEMORY), json.dumps(KINDS[kind]))
    n_steps = count_steps(*build)
    assert n_steps > 20
    plan.output.unlink()
    rng = np.random.default_rng(20261121)
    outcomes = set()
    for kill in range(12):
        # A build that goes on where the last one was killed has fewer steps left.
        step = 1 + int(rng.integers(n_steps if kill % 3 else n_steps // 4)) if kill else 1
        kill_at(step, *build, after_s=rng.uniform(0, 0.05) if kill % 2 else None)
        half_made = list(home.replicas.rglob("*.partial"))
        outcomes.add((bool(half_made), plan.output.exists()))
        if plan.output.exists():
            report = verify_replica(plan.output)
            assert report.ok, report.problems
            with h5py.File(plan.output) as copy:
                np.testing.assert_array_equal(copy["cube"][...], wanted(cube, plan))
            if rng.random() < 0.7:
                plan.output.unlink()
        assert sha256(cube) == before[0]
    assert any(half_made for half_made, _ in outcomes)
    replica = reorganize(plan, home=home, rebuild=True)
    assert verify_replica(replica.path).ok
    recover(home, keep_s=0)
    assert not list(home.replicas.rglob("*.partial"))
    assert not list(journal_directory(home).iterdir())
    assert identity_of(cube) == before[1]


def interrupted(cube, home, monkeypatch, at=0.5, kind="contiguous"):
    """Interrupt a build as a terminal does, at a share of its copy."""
    monkeypatch.setattr("sds.organizer.copy.stepwise_copy.CHECKPOINT_S", 0.0)
    monkeypatch.setattr("sds.organizer.copy.stepwise_copy._NOTES_SHARE", 0)
    plan = planned(cube, home, kind)

    def interrupt(phase, done_bytes, total_bytes):
        if phase == "copy" and done_bytes > at * total_bytes:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reorganize(plan, home=home, progress=interrupt)
    return plan


@every_kind
def test_the_next_build_goes_on_where_the_last_was_interrupted(cube, tmp_path, monkeypatch, kind):
    home = Home(tmp_path / "home")
    plan = interrupted(cube, home, monkeypatch, kind=kind)
    assert not plan.output.exists()
    calls = []
    replica = reorganize(plan, home=home, progress=lambda *call: calls.append(call))
    first_done = next(done for phase, done, _ in calls if phase == "copy")
    total = next(total for phase, _, total in calls if phase == "copy")
    assert first_done > 0.4 * total > 0.3 * plan.size_bytes
    with h5py.File(replica.path) as copy:
        np.testing.assert_array_equal(copy["cube"][...], wanted(cube, plan))
    assert verify_replica(replica.path).ok
    assert not list(journal_directory(home).iterdir())


def test_tiles_are_gathered_again_from_any_step_on(cube, tmp_path, monkeypatch):
    """Stopped behind each step in turn: what is there is kept, what is not is copied."""
    home = Home(tmp_path / "home")
    monkeypatch.setattr("sds.organizer.copy.stepwise_copy.CHECKPOINT_S", 0.0)
    monkeypatch.setattr("sds.organizer.copy.stepwise_copy._NOTES_SHARE", 0)
    plan = planned(cube, home, "segments")
    n_steps = len(plan.steps())
    assert n_steps > 20

    class Stop(BaseException):
        pass

    seen = []

    def once_more(phase, done_bytes, _):
        if phase == "copy" and done_bytes not in seen:
            seen.append(done_bytes)
            raise Stop

    stopped = 0
    while True:
        try:
            replica = reorganize(plan, home=home, progress=once_more)
        except Stop:
            stopped += 1
        else:
            break
    assert stopped == len(set(seen)) > n_steps
    assert seen == sorted(seen)
    with h5py.File(replica.path) as copy:
        np.testing.assert_array_equal(copy["cube"][...], wanted(cube, plan))
    assert not list(home.replicas.rglob("*.partial"))


def test_a_build_goes_on_from_the_bytes_of_the_last_checkpoint(cube, tmp_path, monkeypatch):
    """HDF5 changes what leads to the chunks with every chunk; a kill may leave any of it behind."""
    home = Home(tmp_path / "home")
    plan = interrupted(cube, home, monkeypatch, kind="chunked")
    (staged,) = home.replicas.rglob("*.partial")
    (journal,) = journal_directory(home).glob("*.json")
    undo = [json.loads(line) for line in journal.read_bytes().splitlines()][-1]["undo"]
    with staged.open("r+b") as stream:
        for first, length in undo["ranges"]:
            stream.seek(first)
            stream.write(b"\xa5" * length)
        stream.seek(undo["size_bytes"])
        stream.write(b"\xa5" * 100_000)
    calls = []
    replica = reorganize(plan, home=home, progress=lambda *call: calls.append(call))
    assert next(done for phase, done, _ in calls if phase == "copy") > 0.4 * plan.size_bytes
    assert verify_replica(replica.path).ok
    with h5py.File(replica.path) as copy:
        np.testing.assert_array_equal(copy["cube"][...], wanted(cube, plan))


@pytest.mark.parametrize("damage", ["flipped", "short", "gone"])
def test_notes_of_overwritten_bytes_that_are_damaged_mean_a_new_beginning(
    cube, tmp_path, monkeypatch, damage
):
    home = Home(tmp_path / "home")
    plan = interrupted(cube, home, monkeypatch, kind="chunked")
    (undo,) = journal_directory(home).glob("*.undo")
    content = undo.read_bytes()
    if damage == "flipped":
        undo.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif damage == "short":
        undo.write_bytes(content[:-1])
    else:
        undo.unlink()
    calls = []
    replica = reorganize(plan, home=home, progress=lambda *call: calls.append(call))
    assert next(done for phase, done, _ in calls if phase == "copy") == 0
    assert verify_replica(replica.path).ok
    assert not list(journal_directory(home).iterdir())


@every_kind
def test_recover_leaves_what_can_be_continued_and_removes_the_rest(
    cube, tmp_path, monkeypatch, kind
):
    expected = {".partial", ".json"} | ({".undo"} if kind == "chunked" else set())
    home = Home(tmp_path / "home")
    interrupted(cube, home, monkeypatch, kind=kind)
    assert recover(home) == ()
    os.utime(cube)
    removed = recover(home)
    assert {path.suffix for path in removed} == expected
    assert not list(home.replicas.rglob("*.partial"))


def test_recover_removes_notes_whose_journal_is_gone(cube, tmp_path, monkeypatch):
    home = Home(tmp_path / "home")
    interrupted(cube, home, monkeypatch, kind="chunked")
    (journal,) = journal_directory(home).glob("*.json")
    assert recover(home) == ()
    journal.unlink()
    (undo,) = recover(home)
    assert undo.suffix == ".undo"
    assert not list(journal_directory(home).iterdir())


def test_recover_removes_what_is_too_old(cube, tmp_path, monkeypatch):
    home = Home(tmp_path / "home")
    interrupted(cube, home, monkeypatch)
    assert len(recover(home, keep_s=0)) == 2


def test_a_torn_or_damaged_journal_means_a_new_beginning(cube, tmp_path, monkeypatch):
    home = Home(tmp_path / "home")
    for damage in ("torn", "noise", "empty", "foreign"):
        plan = interrupted(cube, home, monkeypatch)
        (journal,) = journal_directory(home).glob("*.json")
        content = journal.read_bytes()
        if damage == "torn":
            journal.write_bytes(content[: len(content) // 2])
        elif damage == "noise":
            journal.write_bytes(b"\xff\x00 not json\n" + content)
        elif damage == "empty":
            journal.write_bytes(b"")
        else:
            line = json.loads(content.splitlines()[0])
            line["staged"] = os.fsencode(cube).hex()
            journal.write_bytes(json.dumps(line).encode() + b"\n")
        replica = reorganize(plan, home=home, rebuild=True)
        assert verify_replica(replica.path).ok
        assert cube.exists()
        replica.path.unlink()


def test_a_staged_file_that_was_replaced_is_not_continued(cube, tmp_path, monkeypatch):
    home = Home(tmp_path / "home")
    plan = interrupted(cube, home, monkeypatch)
    (staged,) = home.replicas.rglob("*.partial")
    staged.unlink()
    staged.write_bytes(b"something else")
    assert verify_replica(reorganize(plan, home=home).path).ok


@every_kind
def test_a_staged_file_that_loses_bytes_is_not_published(cube, tmp_path, kind):
    home = Home(tmp_path / "home")
    plan = planned(cube, home, kind)

    def cut(phase, *_):
        if phase == "verify":
            for staged in home.replicas.rglob("*.partial"):
                os.truncate(staged, 100_000)

    with pytest.raises(VerificationError, match=r"before its data does|cannot be read back"):
        reorganize(plan, home=home, progress=cut)
    assert not plan.output.exists()
    assert not list(home.replicas.rglob("*.partial"))
