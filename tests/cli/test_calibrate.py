"""`sds calibrate`: what it prints of a measurement, and of traces beside one."""

from dataclasses import replace
from pathlib import Path

import pytest

from sds.cli.calibrate import _print_calibration
from sds.recommender import HeldoutError, Via
from sds.recommender.simulated import Simulation
from tests.plots.evidence import calibration
from tests.recommender.array_reads import described


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


def with_machine(**hdf5):
    """Return a calibration by both ways, cold, with a machine; some of it otherwise for HDF5."""
    made = calibration()
    (cold,) = made.measurements
    heldout = HeldoutError(median=0.05, p95=0.2, rms=0.1, rank_correlation=0.99, n_patterns=9)
    machine = Simulation(parameters=described(), heldout=heldout, other_rms=0.5, n_left_out=12)
    ways = {Via.ENGINE: machine, Via.HDF5: replace(machine, **hdf5)}
    return replace(
        made,
        measurements=tuple(
            replace(cold, via=via, simulation=simulation) for via, simulation in ways.items()
        ),
    )


def printed(found, capfd):
    _print_calibration(found)
    return [" ".join(part.split()) for part in capfd.readouterr()]


def test_it_is_said_what_was_held_out_and_what_a_machine_was_judged_by(capfd):
    out, err = printed(with_machine(n_excluded=3), capfd)
    assert "engine, cold advice simulated x1.05 x1.22 patterns" in out
    assert out.count("layouts") + out.count("patterns") == 4
    for via in ("engine", "hdf5"):
        assert f"{via}, cold: the simulated machine is used for advice; it was judged by 12" in err
    assert "3 cold reads by hdf5 cannot be simulated" in err
    assert err.count("cannot be simulated") == 1


def test_a_machine_that_is_refused_for_one_way_is_named_for_neither(capfd):
    out, err = printed(with_machine(refused="others predict as well"), capfd)
    assert "simulated" not in out
    assert "hdf5, cold: the simulated machine is not used: others predict as well" in err
    assert "engine, cold: the simulated machine is not used: it is refused for reads of" in err
