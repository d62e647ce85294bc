"""A block of a replica that differs from its checksum: found, not served any more, reported.

The files here keep the identity that was published, as where a disk returns other bytes than were
written.
"""

import os
import tempfile
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sds
from benchmarks.original_reads import evict
from sds import _native
from sds.errors import FormatError
from sds.hdf5.identity import identity_of
from sds.home import Home, damage_report
from sds.organizer import plan_reorganization, reorganize
from sds.redirect.tables import publish_table
from tests.redirected import reads_by_replica, settle, table_of, with_models
from tests.sizes import repeated
from tests.under_connector import connector_environment, decisions, run_python

MIB = 1 << 20
N_BLOCKS = 4


def make(path, n_blocks):
    """Write a square of some MiB, and return its replica and its home."""
    values = np.arange(n_blocks * MIB // 4, dtype="<i4").reshape(1024, -1)
    with h5py.File(path, "w") as file:
        file["d"] = values
    settle(path)
    home = Home(path.parent / "home")
    return reorganize(plan_reorganization(path, "/d", order=(1, 0), home=home), home=home), home


def flip(replica, at):
    """Change a byte of the elements."""
    with replica.path.open("r+b") as stream:
        stream.seek(replica.data_offset_bytes + at)
        byte = stream.read(1)
        stream.seek(replica.data_offset_bytes + at)
        stream.write(bytes([byte[0] ^ 0x10]))


def publish(source, replica, home):
    """Publish a replica as it is now, for the connector cheaper than its source."""
    table = table_of(source, [(7, replace(replica, identity=identity_of(replica.path)))])
    publish_table(home, with_models(table, original_s=1.0, replica_s=1e-6))


@pytest.fixture
def place():
    """A directory on a disk, so that its files can be evicted from the page cache."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        yield Path(directory)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return make(tmp_path_factory.mktemp("whole") / "d.h5", N_BLOCKS)[0]


def reader(replica, **options):
    return _native.ReadFile(
        os.fspath(replica.path), replica_data=(replica.data_offset_bytes, replica.size_bytes),
        **options,
    )  # fmt: skip


def read(file, replica, runs):
    first, run_bytes, counts, strides = runs
    out = np.empty(run_bytes * int(np.prod(counts, dtype=int)), np.uint8)
    file.read_runs(replica.data_offset_bytes + first, run_bytes, counts, strides, out.data)
    return out


@given(
    at=st.integers(0, N_BLOCKS * MIB - 1),
    first=st.integers(0, N_BLOCKS * MIB // 2),
    run_bytes=st.integers(1, MIB // 2),
    n_runs=st.integers(1, 3),
)
@settings(
    max_examples=repeated(20, 60), suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_checked_reads_fail_where_they_touch_the_block_and_are_right_elsewhere(
    whole, at, first, run_bytes, n_runs
):
    runs = (first, run_bytes, [n_runs], [run_bytes + 4096])
    expected = read(_native.ReadFile(os.fspath(whole.path)), whole, runs)
    touched = {
        block
        for run in range(n_runs)
        for block in range(
            (first + run * (run_bytes + 4096)) // MIB,
            (first + run * (run_bytes + 4096) + run_bytes - 1) // MIB + 1,
        )
    }
    file = reader(whole, checks_all=True)
    np.testing.assert_array_equal(read(file, whole, runs), expected)
    assert not file.is_damaged
    flip(whole, at)
    try:
        file = reader(whole, checks_all=True)
        if at // MIB in touched:
            for _ in range(2):
                with pytest.raises(FormatError):
                    read(file, whole, runs)
            assert file.is_damaged
        else:
            np.testing.assert_array_equal(read(file, whole, runs), expected)
    finally:
        flip(whole, at)


def test_one_block_is_checked_once_eight_were_read_and_again_with_every_256(tmp_path):
    replica, _ = make(tmp_path / "d.h5", 1)
    everything = (0, MIB, [], [])
    file = reader(replica)
    for _ in range(8):
        read(file, replica, everything)
    flip(replica, 12345)
    for _ in range(255):
        read(file, replica, everything)
    with pytest.raises(FormatError):
        read(file, replica, everything)
    assert file.is_damaged
    file = reader(replica)
    for _ in range(7):
        read(file, replica, everything)
    with pytest.raises(FormatError):
        read(file, replica, everything)


def test_one_block_is_checked_sooner_where_the_process_has_not_opened_the_replica_yet(tmp_path):
    replica, _ = make(tmp_path / "d.h5", 1)
    flip(replica, MIB // 2)
    almost, rest = (0, MIB - 4, [], []), (MIB - 4, 4, [], [])
    file = reader(replica, checks_soon=True)
    read(file, replica, almost)
    with pytest.raises(FormatError):
        read(file, replica, rest)


READ_COLUMNS = """
    import sys, h5py, numpy as np
    expected = np.arange({n} << 18, dtype="<i4").reshape(1024, -1)
    wrong = []
    for opened in range({opens}):
        with h5py.File(sys.argv[1]) as file:
            for turn in range({turns}):
                wrong.append(not np.array_equal(file["d"][:, 1:], expected[:, 1:]))
    print("".join("x" if one else "." for one in wrong))
"""


def run_reads(path, home, log, *, n_blocks, opens=1, turns=2, **variables):
    """Return a dot for each read of all columns but one, an x where it was wrong."""
    # The engine would read the source at the cost of its replica.
    variables |= {"SDS_ENGINE": 0}
    env = connector_environment(home.root, SDS_DEBUG=log, **variables)
    source = READ_COLUMNS.format(n=n_blocks, opens=opens, turns=turns)
    return run_python(source, path, env=env).stdout.strip()


@pytest.mark.parametrize("how", ["environment", "home"])
def test_a_program_whose_reads_are_verified_gets_no_damaged_byte(tmp_path, how):
    path = tmp_path / "d.h5"
    replica, home = make(path, N_BLOCKS)
    variables = {"SDS_VERIFY_READS": 1} if how == "environment" else {}
    if how == "home":
        home.verify_reads.touch()
    publish(path, replica, home)
    assert run_reads(path, home, tmp_path / "sound", n_blocks=N_BLOCKS, **variables) == ".."
    assert decisions(tmp_path / "sound")[-1][0] == "served"
    assert not list(home.spool.glob("*.damaged"))
    flip(replica, 3 * MIB + 17)
    publish(path, replica, home)
    log = tmp_path / "damaged"
    assert run_reads(path, home, log, n_blocks=N_BLOCKS, opens=2, **variables) == "...."
    reasons = [line[-1] for line in decisions(log)]
    assert any("differs from its checksum" in reason for reason in reasons)
    assert any("was found to be damaged" in reason for reason in reasons)
    assert damage_report(home, 7).exists()


def test_a_damaged_block_that_is_sampled_is_not_served_from_then_on(tmp_path):
    path = tmp_path / "d.h5"
    replica, home = make(path, 1)
    flip(replica, MIB // 2)
    publish(path, replica, home)
    # Two reads of 255 of 256 columns are more than a block.
    found = run_reads(path, home, tmp_path / "log", n_blocks=1, opens=2, turns=3)
    assert found == "x....."
    assert damage_report(home, 7).exists()


@pytest.mark.parametrize("how", ["environment", "home"])
def test_sds_read_verifies_and_reports_as_well(place, monkeypatch, how):
    path = place / "d.h5"
    replica, home = make(path, N_BLOCKS)
    monkeypatch.setenv("SDS_HOME", os.fspath(home.root))
    if how == "home":
        home.verify_reads.touch()
    else:
        monkeypatch.setenv("SDS_VERIFY_READS", "1")
    flip(replica, MIB + 5)  # of column 256
    now = replace(replica, identity=identity_of(replica.path))
    publish_table(home, table_of(path, [(7, now)]))
    evict(path)  # a source in memory would serve
    expected = np.arange(N_BLOCKS << 18, dtype="<i4").reshape(1024, -1)
    for _ in range(3):
        np.testing.assert_array_equal(sds.read(path, "/d", np.s_[:, 250:260]), expected[:, 250:260])
    assert damage_report(home, 7).exists()


def test_a_replica_without_checksums_behind_its_end_serves_no_verified_read(tmp_path):
    path = tmp_path / "d.h5"
    replica, home = make(path, 1)
    with h5py.File(replica.path, "r+"):
        pass  # cuts off what lies behind the end, as if it were of an older format
    size = replica.path.stat().st_size
    with replica.path.open("rb") as stream:
        content = stream.read()
    at = replica.data_offset_bytes
    crc = _native.crc32c(content[at + replica.size_bytes : size], _native.crc32c(content[:at]))
    older = replace(replica, metadata_crc32c=crc)
    publish(path, older, home)
    assert run_reads(path, home, tmp_path / "log", n_blocks=1, turns=20) == "." * 20
    assert reads_by_replica(home) == {7: 20}
    assert run_reads(path, home, tmp_path / "asked", n_blocks=1, SDS_VERIFY_READS=1) == ".."
    reasons = [line[-1] for line in decisions(tmp_path / "asked")]
    assert any("built by an older SDS" in reason for reason in reasons)
