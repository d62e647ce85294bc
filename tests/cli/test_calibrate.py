"""`sds calibrate`: what it prints of a measurement, and of traces beside one."""

from pathlib import Path

import pytest


@pytest.fixture
def measured(sds, tmp_path):
    done = sds("calibrate", tmp_path, "--size", "1M", "--budget", "3")
    assert done.code == 0, done.err
    return done


def test_a_calibration_says_what_it_measured(measured):
    for word in ("file system", "timed reads", "held-out error", "hdf5", "engine"):
        assert word in measured.out


@pytest.mark.usefixtures("measured")
def test_without_traces_the_models_stay(sds, tmp_path):
    found = sds("calibrate", tmp_path, "--refit", "--json")
    assert found.code == 0, found.err
    (report,) = found.json["file_systems"]
    assert (report["n_reads"], report["n_fitted"], report["refitted"]) == (0, 0, False)
    assert report["changed"] == ""
    assert "the same as before" in sds("calibrate", tmp_path, "--refit").out


def test_a_described_machine_is_fitted_too_and_it_is_said_what_came_of_it(sds, tmp_path):
    machine = Path(__file__).parents[1] / "data" / "array.toml"
    words = ("calibrate", tmp_path, "--size", "1M", "--budget", "6", "--machine", machine)
    done = sds(*words, "--json")
    assert done.code == 0, done.err
    cold = [m for m in done.json["calibration"]["measurements"] if m["cache"] == "cold"]
    for measurement in cold:
        found = measurement["simulation"]
        assert found["refused"] or found["heldout"]["rms"] < found["other_rms"]
    assert done.json["calibration"]["settings"]["machine"]["stripes"]["stripe_count"] == 2


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("version = 9", "is of version 9, this SDS reads up to 1: use a newer SDS"),
        ("disk_settle_s = nan", "disk_settle_s is nan; give 0 to 1000"),
        ("[fit]\nlog_error = 0.1", r"there is [fit], but no n_osts"),
    ],
)
def test_a_machine_that_cannot_be_is_refused_before_anything_is_measured(
    sds, tmp_path, content, words
):
    file = tmp_path / "machine.toml"
    file.write_text(content)
    done = sds("calibrate", tmp_path, "--machine", file)
    assert done.code != 0
    assert words in done.err
    assert list(tmp_path.glob(".sds-calibrate*")) == []
    together = sds("calibrate", tmp_path, "--machine", file, "--refit")
    assert "give --machine without it" in together.err
