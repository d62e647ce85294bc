"""Replicas that `sds.read` keeps open: always the bytes that h5py returns."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

import h5py
import numpy as np
import pytest

import sds
from sds.client import open_files, open_replicas, reader, replica_reader
from sds.errors import SdsValueError, SelectionError
from sds.geometry import Box
from sds.hdf5.identity import identity_of
from sds.home import Home
from sds.redirect.tables import publish_table, read_table, table_path, withdraw_table
from tests.file_clock import wait_for_tick
from tests.redirected import publish_candidates, redirect, settle, write_replica
from tests.waiting import PATIENCE_S, wait_until

SHAPE = (24, 30, 40)
ACROSS = np.s_[:, :, 7]
ENDED = os.WEXITED | os.WNOHANG | os.WNOWAIT


@pytest.fixture(autouse=True, params=["step by step", "repeated"])
def home(request, tmp_path, monkeypatch):
    """Where replicas are; reads of a shape that was read before are made anew, or in one step."""
    if request.param == "step by step":
        monkeypatch.setattr(reader, "_repeat", lambda *_: None)
    home = Home(tmp_path / "home")
    home.create()
    monkeypatch.setenv("SDS_HOME", str(home.root))
    for name in ("SDS_DISABLE", "SDS_REDIRECT", "SDS_SERVICE_UID"):
        monkeypatch.delenv(name, raising=False)
    # Tables are kept at once; what is changed below is changed more than a clock's tick later.
    monkeypatch.setattr(replica_reader, "SETTLED_S", 0.0)
    sds.forget()
    yield home
    sds.forget()


@pytest.fixture
def reads(monkeypatch):
    """The contiguous replicas that were read, by their paths, and reads through HDF5 as None."""
    seen = []
    from_replica, anew, repeat = open_replicas.read_contiguous, reader._read_anew, reader._repeat

    def read_contiguous(replica, candidate, *arguments):
        seen.append(candidate.path)
        from_replica(replica, candidate, *arguments)

    def read_anew(*arguments, **options):
        seen.append(None)
        return anew(*arguments, **options)

    def repeated(file, *arguments):
        values = repeat(file, *arguments)
        if values is not None:
            (dataset,) = open_files.find_local(file).redirection._known.table.datasets
            (candidate,) = dataset.candidates
            seen.append(candidate.path)
        return values

    monkeypatch.setattr(open_replicas, "read_contiguous", read_contiguous)
    monkeypatch.setattr(reader, "_read_anew", read_anew)
    monkeypatch.setattr(reader, "_repeat", repeated)
    return seen


@pytest.fixture
def step_by_step(monkeypatch):
    monkeypatch.setattr(reader, "_repeat", lambda *_: None)


def values(seed):
    return np.random.default_rng(seed).random(SHAPE)


def make(path, seed, **storage):
    with h5py.File(path, "w") as handle:
        handle.create_dataset("x", data=values(seed), **storage)
    settle(path)
    return path


@pytest.fixture
def source(tmp_path, home):
    """A contiguous dataset with a replica that serves planes across the grain."""
    source = make(tmp_path / "source.h5", 0)
    redirect(source, [("/x", (2, 0, 1))], home, always=False)
    wait_for_tick(home.root)
    return source


def replica_of(source, home):
    return read_table(home, source).datasets[0].candidates[0].path


def read(source, index=ACROSS):
    return sds.read(source, "x", index)


def test_the_second_read_opens_nothing(source, home, reads):
    replica = replica_of(source, home)
    for _ in range(128):  # several decisions
        assert np.array_equal(read(source), values(0)[ACROSS])
    assert reads == [None] + [replica] * 128
    before = set(Path("/proc/self/fd").iterdir())
    read(source, np.s_[:, :, 9])
    assert set(Path("/proc/self/fd").iterdir()) == before
    assert open_files.find_opened(source).redirection._known.replicas


def test_what_is_read_before_is_looked_up_already(source, home, reads):
    assert sds.read(source, "x", (0, 0, 0)) == values(0)[0, 0, 0]
    assert np.array_equal(read(source), values(0)[ACROSS])
    assert reads == [None, replica_of(source, home)]


def test_an_interrupt_while_a_replica_is_opened_ends_the_read(source):
    assert sds.read(source, "x", (0, 0, 0)) == values(0)[0, 0, 0]  # from now on it is looked up

    def interrupt(frame, event, _):
        if event == "call" and frame.f_code is open_replicas.open_checked.__code__:
            signal.raise_signal(signal.SIGINT)

    before = sys.getprofile()
    sys.setprofile(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            read(source)
    finally:
        sys.setprofile(before)
    assert np.array_equal(read(source), values(0)[ACROSS])


def test_out_is_filled(source, home, reads):
    out = np.zeros(SHAPE[:2])
    for _ in range(2):
        assert sds.read(source, "x", ACROSS, out) is out
        assert np.array_equal(out, values(0)[ACROSS])
        out[:] = 0
    assert reads[-1] == replica_of(source, home)


@pytest.mark.parametrize("out", [bytearray(SHAPE[0]), [0] * SHAPE[0]], ids=["bytes", "list"])
def test_out_that_is_no_array_is_refused_in_words(tmp_path, home, out):
    source = tmp_path / "source.h5"
    with h5py.File(source, "w") as handle:
        handle["x"] = np.random.default_rng(0).integers(0, 256, SHAPE, dtype="u1")
    settle(source)
    redirect(source, [("/x", (2, 0, 1))], home, always=False)
    wait_for_tick(home.root)
    line = np.s_[:, 3, 7]
    for _ in range(2):
        read(source, line)
        with pytest.raises(SdsValueError, match=r"out is a (bytearray|list), not a NumPy array"):
            sds.read(source, "x", line, out)


def test_a_table_that_was_just_written_is_not_kept(source, home, reads, monkeypatch):
    monkeypatch.setattr(replica_reader, "SETTLED_S", 3600.0)
    for _ in range(2):
        assert np.array_equal(read(source), values(0)[ACROSS])
    assert reads == [None, replica_of(source, home)] * 2


@dataclass(frozen=True, kw_only=True)
class Place:
    """A source, one of its replicas, and the home of both."""

    replica: Path
    home: Home
    source: Path


def replaced(at):
    other = at.replica.with_suffix(".other")
    content = bytearray(at.replica.read_bytes())
    content[len(content) // 2] ^= 1
    other.write_bytes(content)
    other.chmod(0o600)
    other.replace(at.replica)


def damaged(at):
    with at.replica.open("r+b") as file:
        file.seek(4096 + 8 * 24 * 30 * 7)
        file.write(b"\xff" * 999)


def unlinked(at):
    at.replica.unlink()


def moved(at):
    at.replica.rename(at.replica.with_suffix(".away"))


def cut_short(at):
    os.truncate(at.replica, 4096)


def writable_by_others(at):
    at.replica.chmod(0o622)
    table = read_table(at.home, at.source)
    (dataset,) = table.datasets
    (candidate,) = dataset.candidates
    known = replace(candidate, identity=identity_of(at.replica))
    publish_table(at.home, replace(table, datasets=(replace(dataset, candidates=(known,)),)))


def linked(at):
    away = at.replica.with_suffix(".away")
    at.replica.rename(away)
    at.replica.symlink_to(away)


def without_table(at):
    withdraw_table(at.home, at.source)


def damaged_table(at):
    path = table_path(at.home, at.source)
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)


def table_writable_by_others(at):
    table_path(at.home, at.source).chmod(0o622)


def table_without_it(at):
    table = read_table(at.home, at.source)
    (dataset,) = table.datasets
    publish_table(at.home, replace(table, datasets=(replace(dataset, candidates=()),)))


def table_of_another_version(at):
    table = read_table(at.home, at.source)
    before = replace(table.source_identity, ctime_ns=table.source_identity.ctime_ns - 1)
    publish_table(at.home, replace(table, source_identity=before))


def wrong_checksum(at):
    table = read_table(at.home, at.source)
    (dataset,) = table.datasets
    (candidate,) = dataset.candidates
    wrong = replace(candidate, metadata_crc32c=candidate.metadata_crc32c ^ 1, replica_id=9)
    publish_table(at.home, replace(table, datasets=(replace(dataset, candidates=(wrong,)),)))


def turned_off(at):
    at.home.disabled.touch()


CHANGES = [
    replaced, damaged, unlinked, moved, cut_short, writable_by_others, linked, without_table,
    damaged_table, table_writable_by_others, table_without_it, table_of_another_version,
    wrong_checksum, turned_off,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_whatever_changes_between_two_reads(source, home, reads, change):
    replica = replica_of(source, home)
    for _ in range(2):
        read(source)
    assert reads[-1] == replica
    wait_for_tick(home.root)
    change(Place(replica=replica, home=home, source=source))
    del reads[:]
    for _ in range(2):
        assert np.array_equal(read(source), values(0)[ACROSS])
    assert replica not in reads


@pytest.mark.parametrize("variable", [("SDS_DISABLE", "1"), ("SDS_REDIRECT", "0")])
def test_the_environment_turns_it_off_at_once(source, home, reads, monkeypatch, variable):
    read(source)
    monkeypatch.setenv(*variable)
    del reads[:]
    assert np.array_equal(read(source), values(0)[ACROSS])
    monkeypatch.delenv(variable[0])
    assert np.array_equal(read(source), values(0)[ACROSS])
    assert reads == [replica_of(source, home)]


def test_another_home_has_its_own_replicas(source, home, reads, monkeypatch, tmp_path):
    read(source)
    monkeypatch.setenv("SDS_HOME", str(tmp_path / "nothing here"))
    del reads[:]
    assert np.array_equal(read(source), values(0)[ACROSS])
    assert reads == []
    monkeypatch.setenv("SDS_HOME", str(home.root))
    assert np.array_equal(read(source), values(0)[ACROSS])
    assert replica_of(source, home) in reads


def rewrite(source):
    with h5py.File(source, "r+") as handle:
        handle["x"][...] = values(1)
    settle(source)


def test_a_source_that_changes_between_two_reads(source, reads):
    read(source)
    rewrite(source)
    del reads[:]
    for _ in range(2):
        assert np.array_equal(read(source), values(1)[ACROSS])
    assert reads == [None]


@pytest.mark.usefixtures("step_by_step")
def test_a_source_that_changes_during_a_read(source, monkeypatch):
    read(source)
    from_replica = open_replicas.read_contiguous

    def read_contiguous(*arguments):
        from_replica(*arguments)
        rewrite(source)

    monkeypatch.setattr(open_replicas, "read_contiguous", read_contiguous)
    assert np.array_equal(read(source), values(1)[ACROSS])


@pytest.mark.usefixtures("step_by_step")
def test_a_replica_that_changes_during_a_read(source, home, monkeypatch, caplog):
    read(source)
    replica = replica_of(source, home)
    is_unchanged = open_replicas.is_unchanged
    n = 0

    def damaged_after_the_first_look(open_replica):
        nonlocal n
        n += 1
        if n == 2:
            damaged(Place(replica=replica, home=home, source=source))
        return is_unchanged(open_replica)

    monkeypatch.setattr(open_replicas, "is_unchanged", damaged_after_the_first_look)
    wait_for_tick(home.root)
    assert np.array_equal(read(source), values(0)[ACROSS])
    assert "changed while it was read" in caplog.text


class Meddling(np.ndarray):
    """Does something as soon as a read has begun and looks at it."""

    meddle = None

    @property
    def dtype(self):
        meddle, self.meddle = self.meddle, None
        if meddle is not None:
            meddle()
        return super().dtype

    @dtype.setter
    def dtype(self, value):
        np.ndarray.dtype.__set__(self, value)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_whatever_changes_when_a_read_has_begun(source, home, reads, change, request):
    replica = replica_of(source, home)
    for _ in range(2):
        read(source)
    wait_for_tick(home.root)
    out = np.zeros(SHAPE[:2]).view(Meddling)
    out.meddle = lambda: change(Place(replica=replica, home=home, source=source))
    del reads[:]
    assert sds.read(source, "x", ACROSS, out) is out
    assert out.meddle is None
    assert np.array_equal(out, values(0)[ACROSS])
    if request.node.callspec.params["home"] == "repeated":  # step by step, some looks come before
        assert replica not in reads


@pytest.mark.parametrize("replica_chunks", [None, (5, 24, 30)])
def test_a_replica_that_fails_is_tried_once(tmp_path, home, monkeypatch, caplog, replica_chunks):
    path = make(tmp_path / "cube.h5", 3, chunks=(4, 5, 40))
    replica = write_replica(path, "/x", (2, 0, 1), home, chunks=replica_chunks)
    publish_candidates(path, {"/x": [replica]}, home)
    wait_for_tick(home.root)
    served, tried = replica_reader.Redirection.serve, []

    def counted(*arguments, **options):
        outcome = served(*arguments, **options)
        tried.append(outcome)
        return outcome

    monkeypatch.setattr(replica_reader.Redirection, "serve", counted)
    read(path)
    assert tried == [replica_reader.Outcome.SERVED]
    os.truncate(replica.path, 1000)
    for index, n_warnings in ((ACROSS, 1), (np.s_[:, :, 9], 0), (ACROSS, 0)):
        tried.clear()
        caplog.clear()
        np.testing.assert_array_equal(read(path, index), values(3)[index])
        assert tried == [replica_reader.Outcome.ORIGINAL]
        assert caplog.text.count("from the original") == n_warnings


def test_a_source_that_changes_when_a_read_has_begun(source):
    for _ in range(2):
        read(source)
    out = np.zeros(SHAPE[:2]).view(Meddling)
    out.meddle = lambda: rewrite(source)
    assert np.array_equal(sds.read(source, "x", ACROSS, out), values(1)[ACROSS])


def test_what_hdf5_holds_back_is_read(source):
    for _ in range(2):
        read(source)
    with h5py.File(source, "r+") as handle:
        handle["x"][3, 4, 7] = 99.0
        assert read(source)[3, 4] == 99.0
    assert read(source)[3, 4] == 99.0


@pytest.mark.parametrize(
    "index",
    [
        np.s_[:, :, np.int64(7)], np.s_[:, :, -33], np.s_[..., 7], np.s_[:, 0:30, 7], "[:, :, 7]",
        np.s_[-24:, :, 7], np.s_[0:99:1, :, 7],
    ],
    ids=repr,
)  # fmt: skip
def test_other_words_for_the_same(source, index):
    for _ in range(2):
        read(source)
    assert np.array_equal(read(source, index), values(0)[ACROSS])


@pytest.mark.parametrize(
    "index",
    [
        np.s_[:, :, 40], np.s_[:, :, -41], np.s_[:, :, 2**70], np.s_[:, :, 7, 0], np.s_[::-1, :, 7],
        np.s_[:, :, "7"], np.s_[:, "a":, 7],
    ],
    ids=repr,
)  # fmt: skip
def test_what_cannot_be_selected(source, index):
    for _ in range(2):
        read(source)
    with pytest.raises(SelectionError):
        read(source, index)


@pytest.mark.parametrize(
    "out",
    [
        np.zeros(SHAPE[:2], "f4"), np.zeros(SHAPE[:2], ">f8"), np.zeros(SHAPE[1::-1]),
        np.zeros((*SHAPE[:2], 1)), np.zeros(SHAPE[1::-1]).T, np.zeros((24, 60))[:, ::2],
        np.broadcast_to(0.0, SHAPE[:2]),
    ],
    ids=["f4", ">f8", "turned", "rank 3", "column-major", "every second", "constant"],
)  # fmt: skip
def test_arrays_that_do_not_fit(source, out):
    for _ in range(2):
        read(source)
    with pytest.raises(SdsValueError, match="out"):
        sds.read(source, "x", ACROSS, out)
    assert not out.any()


def test_of_replicas_that_are_probed_only_the_one_that_serves_is_opened(
    tmp_path, home, monkeypatch
):
    source = make(tmp_path / "source.h5", 0)
    redirect(source, [("/x", (2, 0, 1)), ("/x", (2, 1, 0))], home, always=False)
    probed, opened = [], []
    open_unchecked, open_checked = open_replicas.open_unchecked, open_replicas.open_checked

    def note_probe(candidate):
        probed.append(candidate)
        return open_unchecked(candidate)

    def note_open(home, candidate, known, owner, run):
        opened.append((candidate, run))
        return open_checked(home, candidate, known, owner, run)

    monkeypatch.setattr(open_replicas, "open_unchecked", note_probe)
    monkeypatch.setattr(open_replicas, "open_checked", note_open)
    assert np.array_equal(read(source), values(0)[ACROSS])
    assert probed
    ((_, run),) = opened
    assert run is not None  # its plane is announced to the device


def test_decisions_are_made_anew_after_their_uses(source, monkeypatch):
    n = count_calls(
        monkeypatch, (replica_reader, "_decide"), (replica_reader.Redirection, "_open_to_repeat")
    )
    read(source, np.s_[:, :, 0])
    (decision,) = open_files.find_opened(source).redirection._known.decisions.values()
    for k in range(1, 3 * (decision.uses.n_left + 1)):
        read(source, np.s_[:, :, k % SHAPE[2]])
    assert sum(n.values()) == 3


def test_the_core_decides_about_shapes_that_were_not_read_before(source, request, monkeypatch):
    is_by_core = "repeated" in request.node.name
    expected = values(0)
    assert read(source, (0, 0, 0)) == expected[0, 0, 0]  # describes the dataset
    n = count_calls(
        monkeypatch, (replica_reader, "_decide"), (replica_reader.Redirection, "_open_to_repeat")
    )
    for index in (ACROSS, np.s_[:, ::3, 5], np.s_[2:9, :, 39]):
        assert np.array_equal(read(source, index), expected[index])
    from_replica = {"_decide": 0, "_open_to_repeat": 3} if is_by_core else {"_decide": 3}
    assert n == {"_open_to_repeat": 0} | from_replica
    for _ in range(3):  # one run of the original
        assert np.array_equal(read(source, np.s_[3, 4]), expected[3, 4])
    assert n["_decide"] == from_replica["_decide"] + 1
    assert n["_open_to_repeat"] == from_replica.get("_open_to_repeat", 0)


def count_calls(monkeypatch, *functions):
    """Count the calls of functions that modules or classes hold, by their names."""
    n = {}

    def counted(name, function):
        def call(*arguments, **options):
            n[name] += 1
            return function(*arguments, **options)

        return call

    for holder, name in functions:
        n[name] = 0
        monkeypatch.setattr(holder, name, counted(name, getattr(holder, name)))
    return n


def test_a_replica_built_anew_serves_again(source, home, reads):
    read(source)
    replica_of(source, home).unlink()
    assert np.array_equal(read(source), values(0)[ACROSS])
    redirect(source, [("/x", (2, 1, 0))], home, always=False)
    wait_for_tick(home.root)
    del reads[:]
    for _ in range(3):
        assert np.array_equal(read(source), values(0)[ACROSS])
    assert reads[-2:] == [replica_of(source, home)] * 2


def test_a_descriptor_that_the_program_closed_is_not_read(source, home, tmp_path):
    read(source)
    (replica,) = open_files.find_opened(source).redirection._known.replicas.values()
    number = replica.engine.fileno()
    os.close(number)
    assert np.array_equal(read(source), values(0)[ACROSS])
    (replica,) = open_files.find_opened(source).redirection._known.replicas.values()
    number = replica.engine.fileno()
    other = tmp_path / "other"
    shutil.copy(replica_of(source, home), other)
    other.write_bytes(bytes(other.stat().st_size))
    with other.open("rb") as file:
        os.dup2(file.fileno(), number)
        assert np.array_equal(read(source), values(0)[ACROSS])
        assert np.array_equal(read(source, np.s_[:, :, 8]), values(0)[:, :, 8])
        os.close(number)


def test_a_replica_that_was_deleted_gives_its_space_back(source, home):
    read(source)
    known = open_files.find_opened(source).redirection._known
    assert known.replicas
    open_files._sweep(time.monotonic())
    assert known.replicas
    replica_of(source, home).unlink()
    open_files._sweep(time.monotonic())
    assert not known.replicas


def test_what_is_kept_is_bounded(source):
    for k in range(replica_reader._MAX_DECISIONS + 9):
        index = np.s_[k % 7 : 20, k // 7 : 22, 5]
        assert np.array_equal(read(source, index), values(0)[index])
    known = open_files.find_opened(source).redirection._known
    assert 0 < len(known.decisions) <= replica_reader._MAX_DECISIONS


def test_replicas_beyond_the_bound_are_closed(tmp_path, home):
    source = make(tmp_path / "parts.h5", 0, chunks=(4, 5, 40))
    n = replica_reader._MAX_REPLICAS + 2
    parts = [Box(start=(0, 0, 6 * k), extent=(24, 30, 6)) for k in range(n)]
    candidates = [
        write_replica(source, "/x", (2, 0, 1), home, number=k + 1, region=part)
        for k, part in enumerate(parts)
    ]
    publish_candidates(source, {"/x": candidates}, home)
    wait_for_tick(home.root)
    for _ in range(3):
        for k in range(n):
            assert np.array_equal(read(source, np.s_[:, :, 6 * k + 2]), values(0)[:, :, 6 * k + 2])
    known = open_files.find_opened(source).redirection._known
    latest = known.table.datasets[0].candidates[-replica_reader._MAX_REPLICAS :]
    assert list(known.replicas) == [id(candidate) for candidate in latest]


@pytest.mark.parametrize("region", [None, Box(start=(3, 0, 10), extent=(20, 30, 29))])
@pytest.mark.parametrize("order", [(2, 0, 1), (2, 1, 0), (1, 2, 0), (0, 1, 2)])
def test_boxes_of_one_shape_anywhere(tmp_path, home, reads, order, region):
    source = make(tmp_path / "boxes.h5", 0, chunks=(4, 5, 40))
    replica = write_replica(source, "/x", order, home, region=region)
    publish_candidates(source, {"/x": [replica]}, home)
    wait_for_tick(home.root)
    box = Box.whole(SHAPE) if region is None else region
    random = np.random.default_rng(5)
    expected = values(0)
    for _ in range(12):
        lengths = [int(random.integers(1, n // 2)) for n in box.extent]
        steps = [int(random.integers(1, 3)) for _ in SHAPE]
        for _ in range(6):
            starts = [
                int(box.start[a] + random.integers(0, box.extent[a] - lengths[a] + 1))
                for a in range(3)
            ]
            index = tuple(
                slice(start, start + length, step)
                for start, length, step in zip(starts, lengths, steps, strict=True)
            )
            assert np.array_equal(read(source, index), expected[index]), index
    assert reads.count(replica.path) == 72
    assert reads.count(None) < 40  # decisions are made for a shape


@pytest.fixture
def hdf5_reads(monkeypatch):
    """The replicas that were opened and read through HDF5."""
    seen, through_hdf5 = [], open_replicas._read_through_hdf5

    def read_through_hdf5(replica, candidate, *arguments):
        seen.append(candidate.path)
        through_hdf5(replica, candidate, *arguments)

    monkeypatch.setattr(open_replicas, "_read_through_hdf5", read_through_hdf5)
    return seen


def with_chunks(source, home, order=(2, 0, 1), **storage):
    """Publish a replica of a source in chunks, and return its path."""
    replica = write_replica(source, "/x", order, home, chunks=(4, 9, 8), **storage)
    publish_candidates(source, {"/x": [replica]}, home)
    wait_for_tick(home.root)
    return replica.path


@pytest.mark.parametrize("storage", [{}, {"compression": "gzip", "shuffle": True}], ids=repr)
@pytest.mark.parametrize("order", [(2, 0, 1), (2, 1, 0)])
def test_replicas_in_chunks_stay_open(tmp_path, home, hdf5_reads, order, storage):
    source = make(tmp_path / "source.h5", 0, chunks=(4, 5, 40))
    replica = with_chunks(source, home, order, **storage)
    for k in (7, 8, 33, 7):
        assert np.array_equal(read(source, np.s_[:, :, k]), values(0)[:, :, k])
        assert np.array_equal(read(source, np.s_[1:9:3, 2:, k]), values(0)[1:9:3, 2:, k])
    assert hdf5_reads == [replica]
    wait_for_tick(home.root)
    damaged(Place(replica=replica, home=home, source=source))
    for k in (7, 8):
        assert np.array_equal(read(source, np.s_[:, :, k]), values(0)[:, :, k])
    assert hdf5_reads == [replica]


def test_damaged_chunks_are_never_returned(tmp_path, home, hdf5_reads):
    """Of a replica that was damaged before its identity was published: its checksums tell."""
    source = make(tmp_path / "source.h5", 0, chunks=(4, 5, 40))
    replica = write_replica(source, "/x", (2, 0, 1), home, chunks=(4, 9, 8))
    with h5py.File(replica.path) as handle:
        place = handle["x"].id.get_chunk_info(3).byte_offset
    with replica.path.open("r+b") as file:
        file.seek(place)
        file.write(b"\xff" * 99)
    settle(replica.path)
    replica = replace(replica, identity=identity_of(replica.path))
    publish_candidates(source, {"/x": [replica]}, home)
    wait_for_tick(home.root)
    # Of the plane with the damaged chunk HDF5 is asked every time, of the other one once.
    for n in range(3):
        assert np.array_equal(read(source, np.s_[:, :, 39]), values(0)[:, :, 39])
        assert bool(hdf5_reads) == (n == 0)
        assert np.array_equal(read(source, np.s_[:, :, 0]), values(0)[:, :, 0])
        assert hdf5_reads
        del hdf5_reads[:]


def test_a_child_of_fork_reads_on(source):
    read(source)
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(read(source), values(0)[ACROSS]) else 1)
    try:
        ended = wait_until(lambda: os.waitid(os.P_PID, child, ENDED), "the child has ended")
    except AssertionError:
        os.kill(child, signal.SIGKILL)
        raise
    finally:
        os.waitpid(child, 0)
    assert (ended.si_code, ended.si_status) == (os.CLD_EXITED, 0)
    assert np.array_equal(read(source), values(0)[ACROSS])


def test_threads_while_the_table_comes_and_goes(source, home):
    table = read_table(home, source)
    is_over = threading.Event()
    wrong, n_reads = [], [0] * 4

    def keep_reading(seed):
        random = np.random.default_rng(seed)
        while not is_over.is_set():
            k = int(random.integers(0, SHAPE[2]))
            if not np.array_equal(read(source, np.s_[:, :, k]), values(0)[:, :, k]):
                wrong.append(k)
            n_reads[seed] += 1

    def wait_for_reads():
        """Wait until each thread has begun and ended a read."""
        before = list(n_reads)
        wait_until(
            lambda: all(n >= begun + 2 for n, begun in zip(n_reads, before, strict=True)),
            lambda: f"two reads by each thread: {before}, then {n_reads}",
        )

    threads = [threading.Thread(target=keep_reading, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            withdraw_table(home, source)
            wait_for_reads()
            publish_table(home, table)
            wait_for_reads()
    finally:
        is_over.set()
        for thread in threads:
            thread.join(PATIENCE_S)
    assert not wrong


def test_the_file_is_the_one_that_the_table_describes(source, home, tmp_path):
    """A copy has its own identity, and no replicas."""
    copy = Path(shutil.copy(source, tmp_path / "copy.h5"))
    settle(copy)
    assert identity_of(copy) != identity_of(source)
    publish_table(home, replace(read_table(home, source), source_path=copy))
    wait_for_tick(home.root)
    for _ in range(2):
        assert np.array_equal(read(copy), values(0)[ACROSS])
    assert not open_files.find_opened(copy).redirection._known.replicas


@pytest.mark.parametrize("orders", [((2, 0, 1), (2, 0, 1)), ((2, 0, 1), (1, 2, 0))])
def test_two_replicas_of_one_number(tmp_path, home, orders):
    """A table that is wrong: the one is never read where the other is meant."""
    source, candidates = tmp_path / "two.h5", {}
    with h5py.File(source, "w") as handle:
        for seed, name in enumerate("xy"):
            handle.create_dataset(name, data=values(seed), chunks=SHAPE)
    settle(source)
    for number, (name, order) in enumerate(zip("xy", orders, strict=True), start=1):
        replica = write_replica(source, f"/{name}", order, home, number=number)
        candidates[f"/{name}"] = [replace(replica, replica_id=1)]
    publish_candidates(source, candidates, home)
    wait_for_tick(home.root)
    for _ in range(4):
        for seed, name in enumerate("xy"):
            assert np.array_equal(sds.read(source, name, ACROSS), values(seed)[ACROSS])
    known = open_files.find_opened(source).redirection._known
    assert len({replica.engine.fileno() for replica in known.replicas.values()}) == 2
