"""``sds machine``: reads are timed, a described machine is fitted to them, and predicts."""

import errno
import json
import math
import os
import re

import pytest

from sds.machines.machine_file import parse_machine

# One queue and the page cache: what is known of a local disk.
DISK = """
n_osts = 1
page_bytes = 4096
read_ahead_bytes = 131072
read_ahead_gap_bytes = 4096
read_ahead_after = 1
rpc_bytes = 1048576
processes_per_node = 8
client_jitter_s = 20e-6
network_latency_s = 20e-6
disk_settle_s = 0.1e-3
disk_full_stroke_s = 0.1e-3
disk_revolution_s = 0.0
disk_bytes_per_s = 2e9
disk_first_s = 0.1e-3
disk_request_s = 1e-6
[stripes]
stripe_count = 1
[raid]
unit_bytes = 1048576
data_disks = 1
"""
MEASURE = ("--size", "16M", "--budget", "3000", "--processes", "1,2")


@pytest.fixture
def described(tmp_path):
    file = tmp_path / "disk.toml"
    file.write_text(DISK)
    return file


@pytest.fixture
def times(tmp_path):
    """Times of another machine than described: half as fast."""
    file = tmp_path / "times.jsonl"
    with file.open("w") as out:
        for i in range(40):
            read = {
                "extent": [64, 64, 64],
                "element_size_bytes": 4,
                "selection": f"[{i}:{i + 8}, :, {i}]",
                "processes": 1 + i % 2,
                "seconds": 1e-3 * (1 + i % 5),
            }
            out.write(json.dumps(read) + "\n")
    return file


def test_from_timed_reads_to_predictions(sds, tmp_path, described):
    times, fitted = tmp_path / "times.jsonl", tmp_path / "fitted.toml"
    measured = sds("machine", "measure", tmp_path, times, *MEASURE)
    assert measured.code == 0, measured.err
    n = len(times.read_text().splitlines())
    assert f"{n} timed reads, 48 of them different, in {times}" in measured.out

    fit = sds("machine", "fit", described, times, "-o", fitted, "--json")
    assert fit.code == 0, fit.err
    assert len(fit.json["reads"]) == 48
    machine = parse_machine(fitted.read_text(), name="fitted").fitted
    assert fit.json["machine"]["median_error"] == machine.median_error
    assert machine.n_left_out == sum(read["left_out"] for read in fit.json["reads"])

    asked = ("simulate", "64,64,256", "[:, 3]", "--element-size", "4", "--processes", "2")
    (found,) = sds(*asked, "--machine", fitted, "--json").json["simulated"]
    predicted = found["predicted"]
    factor = math.exp(machine.interval_error)
    assert predicted["high_s"] / predicted["seconds"] == pytest.approx(factor)
    assert len(found["time"]["ost_busy_s"]) == 1
    for other in (("--strategy", "list"), ("--mode", "collective")):
        (not_fitted,) = sds(*asked, "--machine", fitted, *other, "--json").json["simulated"]
        assert not_fitted["predicted"] is None
    text = sds(*asked, "--machine", fitted)
    assert "two in three within" in text.out
    assert "none measured" in text.err


def test_measuring_again_adds_times(sds, tmp_path):
    times = tmp_path / "times.jsonl"
    times.write_text("what is there stays\n")
    done = sds("machine", "measure", tmp_path, times, *MEASURE[:2], "--budget", "1e-9")
    assert done.code == 0, done.err
    assert times.read_text() == "what is there stays\n"
    assert "0 timed reads" in done.out
    assert "the time ended before all 96 were read; a larger --budget" in done.err


def test_a_fit_says_how_it_errs_by_processes_and_which_reads_are_worst(sds, described, times):
    found = sds("machine", "fit", described, times)
    assert found.code == 0, found.err
    for word in ("disk_settle_s", "error on reads left out", "within 20 %", "predicted worst"):
        assert word in found.out
    assert "nothing is kept: name a file with --output" in found.err


def test_a_described_machine_simulates_without_being_fitted(sds, described):
    asked = ("simulate", "64,64,256", "[:, 3]", "--element-size", "4", "--json")
    (here,) = sds(*asked, "--machine", described).json["simulated"]
    (hopper,) = sds(*asked).json["simulated"]
    assert here["predicted"] is hopper["predicted"] is None
    assert here["time"]["seconds"] != hopper["time"]["seconds"]


def test_a_fitted_machine_is_not_overwritten(sds, described, times):
    refused = sds("machine", "fit", described, times, "-o", described)
    assert refused.code != 0
    assert "exists: name another file, or replace it with --force" in refused.err
    assert described.read_text() == DISK


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_fitted(
    sds, described, times, tmp_path, monkeypatch
):
    def fits(*_):
        raise AssertionError

    monkeypatch.setattr("sds.machines.fit.fit_to_reads", fits)
    (tmp_path / "link.toml").symlink_to(tmp_path / "nowhere")
    for place, said in (
        (tmp_path / "nowhere" / "m.toml", "no such directory"),
        (tmp_path / "link.toml", "exists: name another file"),
    ):
        refused = sds("machine", "fit", described, times, "-o", place)
        assert refused.code != 0
        assert said in refused.err
    for place in (tmp_path, "/dev/null"):
        refused = sds("machine", "fit", described, times, "-o", place, "--force")
        assert "is no regular file" in refused.err


def test_a_full_disk_keeps_the_old_machine_and_what_was_found_is_printed(
    sds, described, times, monkeypatch
):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("sds.atomic_file.os.fsync", full)
    failed = sds("machine", "fit", described, times, "-o", described, "--force")
    assert failed.code != 0
    assert "No space left" in failed.err
    assert "error on reads left out" in failed.out
    assert described.read_text() == DISK


def test_a_fitted_machine_may_be_read_by_whom_files_may_be(sds, described, times, tmp_path):
    assert sds("machine", "fit", described, times, "-o", described, "--force").code == 0
    plain = tmp_path / "plain"
    plain.touch()
    assert described.stat().st_mode == plain.stat().st_mode
    assert parse_machine(described.read_text(), name="fitted").fitted


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("machine", "fit", "nowhere.toml", "times"), "no such file: nowhere.toml"),
        (("simulate", "8", "[:]", "--element-size", "1", "--machine", "no.toml"), "no such file"),
        (("machine", "measure", "nowhere", "times.jsonl"), "nowhere does not exist"),
        (("machine", "measure", ".", "times.jsonl", "--processes", "few"), "--processes 'few'"),
        (("machine", "measure", ".", "times.jsonl", "--processes", "0"), "give 1 to 256 each"),
        (("machine", "measure", ".", "times.jsonl", "--budget", "0"), "must be positive"),
    ],
)
def test_what_cannot_be_is_said(sds, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    refused = sds(*words)
    assert refused.code != 0
    assert re.search(said, refused.err), refused.err
