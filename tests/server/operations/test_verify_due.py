"""Replicas are verified by and by, after an unclean end, and where a program reports damage."""

import json
import os
import time
from pathlib import Path

import pytest

from sds import _native
from sds.catalog.records import ReplicaState
from sds.catalog.requests import ReorganizeRequest
from sds.home import damage_report
from sds.organizer.verify import verify_file
from sds.redirect.tables import table_path
from sds.server.operations.service import Service
from sds.server.operations.verification import Verifier
from sds.server.settings import Settings
from tests.page_cache import drop_from_page_cache, pages_cached

DAY_NS = 86_400 * 10**9


@pytest.fixture
def built(service, source):
    """Two replicas of one source."""
    return [
        service.reorganize(ReorganizeRequest(file=str(source), dataset="/cube", order=order))
        for order in ((2, 0, 1), (1, 2, 0))
    ]


def flip(record):
    """Change a byte of the elements, as a disk does: the identity stays."""
    path = Path(record.path)
    content = bytearray(path.read_bytes())
    content[record.replica.data_offset_bytes + 100] ^= 1
    with path.open("r+b") as stream:
        stream.write(content)
    now = path.stat()
    os.utime(path, ns=(now.st_atime_ns, record.replica.identity.mtime_ns))


def verified_before(service, record, age_ns):
    with service._store.writing() as session:
        from sds.catalog.rows import ReplicaRow

        session.get(ReplicaRow, record.id).verified_ns = time.time_ns() - age_ns


def rounds(service):
    """Return how many looks find something to verify."""
    n = 0
    while service.verify_due():
        n += 1
        assert n < 10
    return n


def test_what_was_touched_is_verified_beside_the_counting_of_traces(service, built, monkeypatch):
    """After a restart that is every replica: no trace would be counted for hours."""
    for record in built:
        Path(record.path).chmod(0o400)
    compared = []
    verify = Verifier.verify

    def noted(verifier, records, *arguments, **options):
        compared.extend(record.id for record in records)
        return verify(verifier, records, *arguments, **options)

    monkeypatch.setattr(Verifier, "verify", noted)
    for _ in range(2):
        service.collect_garbage(16)
    assert compared == []
    assert not table_path(service.home, built[0].file).exists()
    assert rounds(service) == 2
    assert compared == [record.id for record in built]
    assert table_path(service.home, built[0].file).exists()
    service.collect_garbage(16)
    assert rounds(service) == 0


def test_each_replica_is_verified_once_it_is_due_the_longest_unverified_first(service, built):
    verified_before(service, built[0], 8 * DAY_NS)
    verified_before(service, built[1], 9 * DAY_NS)
    assert [one for one, _ in service._store.verified_longest_ago(9)] == [built[1].id, built[0].id]
    flip(built[0])
    assert rounds(service) == 2
    assert service.replica(built[0].id).state is ReplicaState.DAMAGED
    assert service.replica(built[1].id).state is ReplicaState.ACTIVE
    assert service.replica(built[1].id).verified_ns > time.time_ns() - DAY_NS


def test_the_interval_is_a_setting_and_0_is_never(home, service, built):
    verified_before(service, built[0], 8 * DAY_NS)
    for days, n in ((0.0, 0), (30.0, 0), (7.0, 1), (7.0, 0)):
        with Service.open(home, Settings(verify_interval_days=days, lock_wait_s=0.2)) as other:
            assert rounds(other) == n


@pytest.mark.parametrize("damaged", [False, True])
def test_what_a_program_reports_is_verified_at_once_and_trusted_no_further(
    service, source, built, damaged
):
    if damaged:
        flip(built[0])
    for name in (damage_report(service.home, built[0].id).name, "99.damaged", "none.damaged"):
        (service.home.spool / name).touch()
    assert rounds(service) == 1
    state = ReplicaState.DAMAGED if damaged else ReplicaState.ACTIVE
    assert service.replica(built[0].id).state is state
    assert not list(service.home.spool.glob("*.damaged"))
    assert table_path(service.home, source).exists()  # the other one serves


def test_a_server_that_ended_without_warning_has_its_replicas_verified(home, service, built):
    assert [record.state for record in service.replicas()] == [ReplicaState.ACTIVE] * len(built)
    settings = Settings(lock_wait_s=0.2)

    def run_with(mark):
        with Service.open(home, settings) as server:
            server.begin_run()
            if mark is not None:
                home.running.write_text(mark)
            else:
                server.end_run()
                assert not home.running.exists()

    def due():
        with Service.open(home, settings) as server:
            server.begin_run()
            n = rounds(server)
            server.end_run()
            return n

    run_with(None)
    assert due() == 0
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    now_ns = time.time_ns()
    for left, n in (
        ({"boot_id": boot_id, "started_ns": now_ns + DAY_NS}, 0),
        ({"boot_id": boot_id, "started_ns": now_ns - DAY_NS}, 2),
        ({"boot_id": "another", "started_ns": now_ns + DAY_NS}, 2),
    ):
        run_with(json.dumps(left))
        assert due() == n
        assert due() == 0
    run_with('{"boot')
    assert due() == 2


def test_the_setting_verify_reads_reaches_programs_through_the_home(home):
    for wanted in (True, False):
        with Service.open(home, Settings(verify_reads=wanted, lock_wait_s=0.2)) as service:
            service.begin_run()
            assert home.verify_reads.exists() == wanted
            service.end_run()


def test_a_quiet_verification_leaves_the_page_cache_and_the_priority_as_they_were(service, wide):
    record = service.reorganize(ReorganizeRequest(file=str(wide), dataset="/cube", order=(2, 0, 1)))
    path = Path(record.path)
    drop_from_page_cache(path)
    with path.open("rb", buffering=0) as stream:
        # No page beside it is on its way when the state is taken.
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        stream.seek(2 << 20)
        stream.read(4096)
    before, priority = pages_cached(path), _native.io_priority()
    assert verify_file(path, past_cache=True).ok
    after = pages_cached(path)
    # HDF5 reads the metadata, and the kernel a little further, at both ends.
    inner = slice((1 << 20) // 4096, (3 << 20) // 4096)
    assert before[inner].any()
    assert not before[inner].all()
    assert (after[inner] == before[inner]).all()
    damage_report(service.home, record.id).touch()
    assert service.verify_due()
    assert _native.io_priority() == priority


def test_past_the_cache_and_through_it_find_the_same_damage(service, built):
    path = Path(built[0].path)
    os.truncate(path, path.stat().st_size - 100)
    assert not verify_file(path, past_cache=True).ok
    path = Path(built[1].path)
    flip(built[1])
    reports = [verify_file(path, past_cache=past) for past in (False, True)]
    assert reports[0].damaged_blocks == reports[1].damaged_blocks == (0,)
    assert service is not None
