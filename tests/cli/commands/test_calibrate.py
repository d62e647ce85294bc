"""`sds calibrate`: what it prints of a measurement, and of traces beside one."""

import pytest


@pytest.fixture
def measured(sds, tmp_path):
    for budget_s in (3, 30, 3000):  # the least in which this machine reads enough to fit
        done = sds("calibrate", tmp_path, "--size", "1M", "--budget", budget_s)
        if done.code == 0:
            break
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
