"""Sorted replicas in the service: listed, checked, removed as others; no read is redirected."""

import errno
import os
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

import sds
from sds.catalog.records import ReplicaState
from sds.catalog.requests import ReorganizeRequest, SortRequest
from sds.errors import SdsError, SdsValueError, UnsupportedError
from sds.redirect.sorted_replicas import sorted_path
from sds.redirect.tables import table_path
from sds.server.operations.advice_reports import (
    AdviceRequest,
    NamedDataset,
    QueriedTable,
    WhatIfRequest,
)
from sds.server.operations.service import Service
from sds.server.operations.sort_advice import QueryRequest
from tests.organizer.sources import settle


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "particles.h5"
    rng = np.random.default_rng(4)
    with h5py.File(path, "w") as handle:
        handle["p/energy"] = rng.exponential(size=2000).astype("<f4")
        handle["p/x"] = rng.random(2000)
        rows = np.zeros(1000, [("energy", "<f4"), ("id", "<i8")])
        rows["energy"] = rng.random(1000)
        handle["events"] = rows
    settle(path)
    return path


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Return a file of a table that takes long to scan."""
    path = tmp_path_factory.mktemp("large") / "large.h5"
    with h5py.File(path, "w") as file:
        file["p/energy"] = np.arange(8_000_000, dtype="f8")
        file["p/x"] = np.zeros(8_000_000, "i1")
    settle(path)
    return path


@pytest.fixture
def service(home, monkeypatch):
    monkeypatch.setenv("SDS_HOME", str(home.root))
    with Service.open(home) as opened:
        yield opened


def sort(service, source, table="/p", **options):
    return service.reorganize(SortRequest(file=str(source), dataset=table, key="energy", **options))


def answers(source, table="/p", condition="energy > 3"):
    """Whether a sorted replica answers; what it says is what a scan says."""
    scanned = sds.query(source, condition, table=table, strategy="scan")
    try:
        found = sds.query(source, condition, table=table, strategy="sorted")
    except UnsupportedError:
        return False
    assert found.tobytes() == scanned.tobytes()
    return True


@pytest.mark.parametrize("table", ["/p", "/events"])
def test_a_sorted_replica_is_listed_and_answers(service, source, home, table):
    record = sort(service, source, table)
    assert (record.state, record.sort.key, record.order) == (ReplicaState.ACTIVE, "energy", (0,))
    assert service.replicas(str(source)) == (record,)
    assert record.replica.sort == record.sort == record.layout.sort
    assert answers(source, table, "energy > 0.9")
    # No program's read is redirected to it.
    assert not table_path(home, source).exists()
    assert sort(service, source, table).id == record.id


def test_sorted_and_other_replicas_of_a_file_serve_side_by_side(service, source, home):
    sort(service, source, "/events", columns=("id",))
    other = service.reorganize(
        ReorganizeRequest(file=str(source), dataset="/events", order=(0,), chunks="auto")
    )
    assert other.state is ReplicaState.ACTIVE
    assert table_path(home, source).exists()
    assert answers(source, "/events", "energy > 0.9")
    service.remove(other.id)
    assert not table_path(home, source).exists()
    assert answers(source, "/events", "energy > 0.9")


def test_a_replica_that_is_removed_does_not_answer(service, source, home):
    record = sort(service, source)
    service.remove(record.id)
    assert not Path(record.path).exists()
    assert not sorted_path(home, source).exists()
    assert not answers(source)


def test_a_damaged_replica_is_found_and_answers_no_more(service, source):
    record = sort(service, source)
    with h5py.File(record.path) as copy:
        at = copy["p/x"].id.get_offset()
    with Path(record.path).open("r+b") as stream:
        stream.seek(at)
        stream.write(b"damage")
    report = service.verify(record.id)
    assert not report.ok
    assert service.replica(record.id).state is ReplicaState.DAMAGED
    assert not answers(source)


def test_a_changed_source_retires_it(service, source):
    record = sort(service, source)
    with h5py.File(source, "r+") as handle:
        handle["p/energy"][0] = 50
    settle(source)
    assert not answers(source)
    service.collect_garbage()
    assert service.replica(record.id).state is ReplicaState.RETIRED
    assert not Path(record.path).exists()


def test_a_source_whose_mode_changed_is_compared_again(service, source):
    record = sort(service, source)
    source.chmod(0o640)
    assert not answers(source)
    service.collect_garbage()
    assert service.replica(record.id).state is ReplicaState.ACTIVE
    assert answers(source)


def test_blocks_of_another_size_are_compared_as_they_are(service, source, monkeypatch):
    """What another SDS has built, with other blocks than this one would choose."""
    monkeypatch.setattr("sds.organizer.plans.sort_plan._BLOCK_ROWS", 128)
    record = sort(service, source)
    monkeypatch.undo()
    monkeypatch.setenv("SDS_HOME", str(service.home.root))
    with h5py.File(record.path) as copy:
        assert copy.attrs["sds_sort_block_rows"] == 128
    source.chmod(0o640)
    service.collect_garbage()
    assert service.replica(record.id).state is ReplicaState.ACTIVE
    assert answers(source)


def test_a_list_that_cannot_be_written_is_withdrawn_and_tables_are_as_they_should_be(
    service, source, home, monkeypatch
):
    damaged = sort(service, source)
    sort(service, source, "/events")
    Path(damaged.path).unlink()
    other = service.reorganize(
        ReorganizeRequest(file=str(source), dataset="/events", order=(0,), chunks="auto")
    )
    table_path(home, source).unlink()
    replaced = Path.replace

    def full(self, target):
        if Path(target).parent == home.sorted:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return replaced(self, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", full)
        with pytest.raises(OSError, match="No space left"):
            service._publisher.publish(str(source))
    assert not sorted_path(home, source).exists()
    assert table_path(home, source).exists()
    assert service.replica(other.id).state is ReplicaState.ACTIVE
    # The next time there is room, what is left answers again.
    service._publisher.publish(str(source))
    assert answers(source, "/events", "energy > 0.9")
    assert not answers(source)


def test_a_crash_leaves_a_list_that_recovery_repairs(service, source, home, tmp_path):
    record = sort(service, source)
    stray = home.sorted / "0123456789abcdef.json"
    stray.write_text("{}")
    sorted_path(home, source).unlink()
    service.recover()
    assert not stray.exists()
    assert answers(source)
    # Begun, and cut off before its file was whole.
    half = tmp_path / "half.h5"
    half.write_bytes(b"half")
    service._store.begin_replica(
        _facts(service, record), layout=record.layout, path=str(half), size_bytes=1
    )
    assert len(service.recover().replicas_dropped) == 1


def _facts(service, record):
    from sds.organizer import plan_sorting
    from sds.server.operations.builder import facts_of_plan

    return facts_of_plan(plan_sorting(record.file, record.dataset, key="energy", home=service.home))


def test_a_replica_in_place_of_the_users_choice(service, source, tmp_path):
    record = sort(service, source, output=str(tmp_path / "mine.h5"))
    assert record.path == str(tmp_path / "mine.h5")
    assert answers(source)


def test_advice_on_reads_leaves_sorted_replicas_out(service, source):
    """A compound table is a dataset, too, that programs read by rows."""
    record = sort(service, source, "/events")
    named = (NamedDataset(file=str(source), dataset="/events"),)
    found = service.advise(AdviceRequest(datasets=named, selection="[0:10]", n_reads=5))
    assert found.portfolio.seconds_now == found.portfolio.seconds_then > 0
    question = WhatIfRequest(
        file=str(source), dataset="/events", selection="[0:10]", without=(record.id,)
    )
    with pytest.raises(SdsValueError, match="sorted by energy"):
        service.what_if(question)


def queried(source, table="/p", *conditions, **options):
    queries = tuple(
        QueryRequest(condition=text, **options) for text in conditions or ("energy > 5",)
    )
    return QueriedTable(file=str(source), table=table, queries=queries)


@pytest.mark.parametrize("table", ["/p", "/events"])
def test_advice_on_queries_is_kept_in_the_catalog(service, source, table):
    for condition, per_day in (("energy > 5", 3), ("energy > 6", 1)):
        asked = queried(source, table, condition, per_day=per_day)
        given = service.advise(AdviceRequest(tables=(asked,)))
        (kept,) = service.recommendations(str(source), table)
        assert (kept.recommendation,) == given.portfolio.of_each()
        assert (kept.file, kept.dataset) == (str(source), table)
        assert service.recommendations() == (kept,)
    assert service.recommendations(str(source), "/other") == ()


def test_a_portfolio_has_the_sorted_replicas_that_there_are(service, large):
    request = AdviceRequest(tables=(queried(large, "/p", "energy > 7999990", per_day=1000),))
    (chosen,) = service.advise(request).portfolio.layouts
    assert chosen.layout.sort.key == "energy"
    record = sort(service, large)
    assert service.advise(request).portfolio.layouts == ()
    # Taken away, what it saves is lost.
    question = WhatIfRequest(
        file=str(large), dataset="/p", queries=request.tables[0].queries, without=(record.id,)
    )
    lost = service.what_if(question)
    assert lost.saving.seconds == pytest.approx(-chosen.saving.seconds)
    service.remove(record.id)
    with pytest.raises(SdsValueError, match="retired"):
        service.what_if(question)


def test_a_table_that_is_read_as_well_is_in_the_portfolio_once_as_each(service, source, large):
    request = AdviceRequest(
        datasets=(NamedDataset(file=str(source), dataset="/events"),),
        tables=(
            queried(source, "/events", "energy > 1"),
            queried(large, "/p", "energy > 7999990", per_day=1000),
        ),
        selection="[0:10]",
        n_reads=5,
    )
    advice = service.advise(request)
    assert [layout.target for layout in advice.portfolio.layouts] == [f"{large}:/p"]
    assert advice.portfolio.n_patterns == 3
    with pytest.raises(SdsValueError, match="same table twice"):
        service.advise(replace(request, tables=request.tables * 2))
    with pytest.raises(SdsValueError, match="name at least one"):
        service.advise(AdviceRequest())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sort": "energy", "queries": ()}, "sorted by energy .* state some"),
        ({"sort": "energy", "order": (0,)}, "no axis order"),
        ({"sort": "energy", "selection": "[0]"}, "no axis order"),
        ({"columns": ("x", "y")}, "columns x, y without a key"),
        ({"columns": ("x",), "queries": ()}, "columns x without a key"),
        (
            {"columns": ("x",), "queries": (), "order": (0,)},
            "columns x without a key",
        ),
        ({}, "no change given"),
    ],
)
def test_a_question_about_no_sorted_replica_is_refused(service, source, options, said):
    options = {"queries": queried(source).queries} | options
    question = WhatIfRequest(file=str(source), dataset="/p", **options)
    with pytest.raises(SdsError, match=said):
        service.what_if(question)


def test_columns_in_another_order_are_the_same_replica(service, source):
    first = sort(service, source, columns=("x", "energy"))
    assert sort(service, source, columns=("energy", "x")).id == first.id
    assert sort(service, source, columns=("x",)).id == first.id
    assert len(service.replicas()) == 1


def test_rows_with_holes_are_as_large_as_the_file_has_them(service, tmp_path):
    path = tmp_path / "padded.h5"
    rows = np.zeros(1000, np.dtype([("e", "i1"), ("x", "f8")], align=True))
    with h5py.File(path, "w") as file:
        file["t"] = rows
    settle(path)
    service.reorganize(SortRequest(file=str(path), dataset="/t", key="e"))
    (kept,) = service.datasets()
    assert kept.element_size_bytes == rows.dtype.itemsize == 16
    service.advise(AdviceRequest(tables=(queried(path, "/t", "e > 1"),)))
    (kept,) = service.datasets()
    assert kept.element_size_bytes == 16


def test_a_request_with_too_little_memory_is_refused():
    with pytest.raises(SdsValueError, match="at least 1M"):
        SortRequest(file="/a", dataset="/t", key="e", memory_bytes=5)
