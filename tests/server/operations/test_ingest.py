import os
import socket
from pathlib import Path

import numpy as np
import pytest

from sds import _spool_writer
from sds.server.operations.service import Service
from sds.server.settings import Settings
from tests.server.conftest import EXTENT, add_planes


def test_a_trace_is_counted_once_however_often_it_is_looked_at(service, write_spool):
    write_spool(16)
    report = service.ingest()
    assert (report.files, report.files_complete, report.reads) == (1, 1, 16)
    assert report.bytes_read == 4 * np.prod(EXTENT)
    assert service.ingest().files == 0
    (pattern,) = service.patterns()
    assert pattern.pattern.n_calls == 16
    assert pattern.pattern.axes == (0, 1)


def test_two_processes_with_the_same_pattern_add_up(service, write_spool):
    write_spool(16, start_ns=1)
    write_spool(16, start_ns=2)
    assert service.ingest().reads == 32
    (pattern,) = service.patterns()
    assert pattern.pattern.n_calls == 32
    (dataset,) = service.datasets()
    assert dataset.n_patterns == 1


def test_different_patterns_stay_apart(service, write_spool, source):
    write_spool(16, start_ns=1, axis=2)
    write_spool(20, start_ns=2, axis=1)
    service.ingest()
    assert {p.pattern.axes for p in service.patterns(str(source), "/cube")} == {(0, 1), (0, 2)}
    assert service.patterns(str(source), "/other") == ()


def test_a_growing_file_is_counted_piece_by_piece(service, home, source):
    writer = _spool_writer.SpoolWriter(
        home.spool, pid=os.getpid(), start_ns=2**62, host=socket.gethostname(), executable="x"
    )
    for n in (1, 2, 3):
        add_planes(writer, source, 16, first_ns=n * 10**12)
        writer.flush()
        report = service.ingest()
        assert (report.files_complete, report.reads) == (0, 16)
    writer.close()
    (pattern,) = service.patterns()
    assert pattern.pattern.n_calls == 48


def test_a_file_that_grows_after_it_seemed_complete_is_not_lost(service, home, source):
    """The process of another host had only been idle."""
    writer = _spool_writer.SpoolWriter(
        home.spool, pid=1, start_ns=5, host="another.example", executable="x"
    )
    add_planes(writer, source, 16)
    writer.flush()
    os.utime(writer.path, (1, 1))
    assert service.ingest().files_complete == 1
    add_planes(writer, source, 16, first_ns=2 * 10**18)
    writer.close()
    assert service.ingest().reads == 16


def test_a_file_that_grows_while_it_is_counted_is_not_lost(service, home, source):
    """What comes in then bears a time from before the end of counting."""
    writer = _spool_writer.SpoolWriter(
        home.spool, pid=2**22 + 1, start_ns=5, host=socket.gethostname(), executable="x"
    )
    add_planes(writer, source, 16)
    writer.flush()
    assert service.ingest().files_complete == 1
    add_planes(writer, source, 16, first_ns=2 * 10**18)
    writer.flush()
    os.utime(writer.path, (1, 1))
    assert service.ingest().reads == 16
    assert service.status().spool_pending_bytes == 0


def test_a_torn_tail_of_a_killed_process_is_told_and_the_rest_counts(service, home, write_spool):
    write_spool(16)
    (path,) = home.spool.iterdir()
    with path.open("ab") as stream:
        stream.write(path.read_bytes()[:20])
    report = service.ingest()
    assert report.reads == 16
    assert "torn" in report.problems[0]
    assert service.ingest().problems == ()
    status = service.status()
    assert "torn" in status.problems[0]
    assert status.spool_pending_bytes == 0, "nothing more will come of it"


def test_a_truncated_file_counts_what_is_whole(service, home, write_spool):
    write_spool(16)
    (path,) = home.spool.iterdir()
    os.truncate(path, path.stat().st_size - 3)
    report = service.ingest()
    assert report.files_complete == 1
    assert report.problems


@pytest.mark.parametrize("content", [b"", b"not a spool file at all" * 10])
def test_what_is_no_spool_file_is_told_once_and_left_alone(service, home, content):
    path = home.spool / f"{socket.gethostname()}-{2**22 + 1}-7.sdst-spool"
    path.write_bytes(content)
    report = service.ingest()
    assert len(report.problems) == 1
    assert service.ingest().files == 0
    assert path.read_bytes() == content


def test_an_empty_file_of_a_live_process_is_no_fault(service, home):
    path = home.spool / f"{socket.gethostname()}-{os.getpid()}-{2**62}.sdst-spool"
    path.touch()
    assert service.ingest().problems == ()


def test_a_trail_holds_where_the_reads_lay_in_order_of_time(service, home, source):
    """Pieces of a growing file, looked at again and again, make one trail."""
    writer = _spool_writer.SpoolWriter(
        home.spool, pid=os.getpid(), start_ns=2**62, host=socket.gethostname(), executable="x"
    )
    expected = []
    for n, axis in enumerate((1, 0, 1)):
        add_planes(writer, source, 7, axis=axis, first_ns=(n + 1) * 10**12)
        writer.flush()
        service.ingest()
        service.ingest()
        expected += [tuple(i if a == axis else 0 for a in range(3)) for i in range(7)]
    writer.close()
    trail = service._store.trail(str(source), "/cube")
    assert list(map(tuple, trail.selection.start.tolist())) == expected
    assert trail.extent == EXTENT
    assert len(trail.processes) == 1


def test_many_records_are_counted_in_bounded_pieces(service, home, source, monkeypatch):
    monkeypatch.setattr("sds.server.operations.ingest._RECORDS_PER_STEP", 2)
    writer = _spool_writer.SpoolWriter(
        home.spool, pid=2**22 + 1, start_ns=5, host=socket.gethostname(), executable="x"
    )
    for axis in (0, 1, 2, 1, 0):
        add_planes(writer, source, 7, axis=axis)
        writer.flush()
    writer.close()
    report = service.ingest()
    assert report.reads == 35
    assert sum(p.pattern.n_calls for p in service.patterns()) == 35


def test_spool_files_go_some_days_after_they_are_counted(home, write_spool):
    for days, left in ((7.0, 1), (0.0, 0)):
        settings = Settings(spool_keep_days=days)
        with Service.open(home, settings) as service:
            write_spool(16)
            service.ingest()
            assert len(service.collect_garbage().spool_files_removed) == 1 - left
        assert len(list(home.spool.iterdir())) == left


def test_a_setting_says_when_an_idle_process_of_another_host_has_ended(home, source):
    home.create()
    writer = _spool_writer.SpoolWriter(home.spool, pid=1, start_ns=5, host="other", executable="x")
    add_planes(writer, source, 16)
    writer.flush()
    os.utime(writer.path, (1, 1))
    settings = Settings(spool_idle_s=10**12)
    with Service.open(home, settings) as service:
        assert service.ingest().files_complete == 0
    with Service.open(home, Settings()) as service:
        assert service.ingest().files_complete == 1
    writer.close()


def test_a_file_of_a_live_process_is_read_again_only_when_it_has_grown(service, home, source):
    """Also where its end cannot be read: looking through that takes time."""
    writer = _spool_writer.SpoolWriter(
        home.spool, pid=os.getpid(), start_ns=2**62, host=socket.gethostname(), executable="x"
    )
    add_planes(writer, source, 16)
    writer.flush()
    size_bytes = Path(writer.path).stat().st_size
    os.truncate(writer.path, size_bytes + (32 << 20))

    def bytes_read():
        return int(Path("/proc/self/io").read_text().split()[1])

    before = bytes_read()
    assert service.ingest().reads == 16
    first = bytes_read() - before
    for every_file in (False, True):
        assert service.ingest(every_file=every_file).files == 0
    assert first > 32 << 20 > 8 * (bytes_read() - before - first)
    os.truncate(writer.path, size_bytes)
    add_planes(writer, source, 5, first_ns=2 * 10**18)
    writer.close()
    assert service.ingest().reads == 5


def test_a_sparse_trace_is_told_of_and_costs_nothing(service, home, write_spool):
    write_spool(16)
    (path,) = home.spool.iterdir()
    os.truncate(path, 1 << 40)
    report = service.ingest()
    assert "1099511627776 bytes long" in report.problems[0]
    assert service.ingest().problems == ()
    assert service.status().spool_pending_bytes == 0


@pytest.mark.parametrize("what", ["file", "dataset"])
def test_names_that_are_not_utf8_are_left_out_and_stop_nothing_else(
    service, home, write_spool, tmp_path, what
):
    latin = os.fsdecode(b"\xe9t\xe9")
    named = {"file": str(tmp_path / f"{latin}.h5")} if what == "file" else {"path": f"/{latin}"}
    home.create()
    writer = _spool_writer.SpoolWriter(
        home.spool, pid=2**22 + 3, start_ns=2, host=socket.gethostname(), executable="x"
    )
    source = tmp_path / "plain.h5"
    source.write_bytes(b"some bytes")
    add_planes(writer, source, 5, **named)
    add_planes(writer, source, 7)
    writer.close()
    write_spool(16)
    report = service.ingest()
    assert (report.files, report.files_complete, report.reads) == (2, 2, 23)
    (problem,) = report.problems
    assert "not counted: 5 reads of" in problem
    assert r"\udce9t\udce9" in problem
    assert sorted(p.pattern.n_calls for p in service.patterns()) == [7, 16]
    assert any(r"\udce9t" in event.reason for event in service.events())
    assert service.ingest().files == 0
