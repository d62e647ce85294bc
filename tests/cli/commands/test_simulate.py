"""``sds simulate``: its results as JSON and as text, and what it refuses."""

import h5py
import numpy as np
import pytest

from sds.geometry import ProcessReads, parse_selection
from sds.simulator import Operation, hopper, simulate

LIU = ("1024,1024,65536", "--element-size", "2")


def test_orders_are_compared(sds):
    orders = ("--order", "0,1,2", "--order", "2,0,1")
    found = sds("simulate", *LIU, "[:, 7, 300:310]", "--processes", "16", *orders, "--json")
    assert found.code == 0
    first, second = found.json["simulated"]
    assert first["n_processes"] == second["n_processes"] == 16
    assert (first["order"], second["order"]) == ([0, 1, 2], [2, 0, 1])
    assert first["time"]["kind"] == "simulated"
    assert first["time"]["bytes_useful"] == second["time"]["bytes_useful"] == 1024 * 10 * 2
    assert first["time"]["requests"] == 1024


def test_it_is_the_library_s_result(sds):
    slab = parse_selection("[0:64, 7, :]", (1024, 1024, 65536))
    operation = Operation.of(
        (1024, 1024, 65536),
        ProcessReads.decomposed(slab, (8, 1, 4)),
        element_size_bytes=2,
        mode="collective",
    )
    options = ("--parts", "8,1,4", "--mode", "collective", "--json")
    found = sds("simulate", *LIU, "[0:64, 7, :]", *options).json["simulated"][0]
    assert found["time"]["seconds"] == simulate(operation, hopper()).seconds


def test_text_says_that_it_is_simulated(sds):
    found = sds("simulate", *LIU, "[:, 7, 300]", "--processes", "4", "--strategy", "list")
    assert "simulated" in found.out
    assert "4 processes, independent; every time is simulated, none measured" in found.err


def test_datasets_and_stripes(sds, tmp_path):
    path = tmp_path / "cube.h5"
    with h5py.File(path, "w") as file:
        file["d"] = np.zeros((64, 64, 64), "f4")
        file["scalar"] = 1.0
    usual = sds("simulate", f"{path}:/d", "[:]", "--json").json["simulated"][0]["time"]
    assert usual["bytes_useful"] == 64**3 * 4
    assert len(usual["ost_busy_s"]) == 100
    stripes = ("--stripe-size", "64K", "--stripe-count", "2")
    narrow = sds("simulate", f"{path}:/d", "[:]", *stripes, "--json").json["simulated"][0]["time"]
    assert len(narrow["ost_busy_s"]) == 2
    scalar = sds("simulate", f"{path}:/scalar", "[...]", "--processes", "3", "--json").json
    assert scalar["simulated"][0]["time"]["bytes_useful"] == 24
    assert " scalar " in sds("simulate", f"{path}:/scalar", "[...]").out


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("12,x", "[:]", "--element-size", "2"), "neither FILE:/DATASET nor an extent"),
        (("12,12", "[:]"), "--element-size 2"),
        (("12,12", "[:, 12]", "--element-size", "2"), "12"),
        (("12,12", "[:]", "--element-size", "0"), "element_size_bytes is 0"),
        (("12,12", "[:]", "--element-size", "2", "--mode", "joint"), "there are independent"),
        (("12,12", "[:]", "--element-size", "2", "--strategy", "pmd"), "there are multiple"),
        (("12,12", "[:]", "--element-size", "2", "--processes", "0"), "0 processes"),
        (("12,12", "[:]", "--element-size", "2", "--parts", "2"), "a selection with 2 axes"),
        (("12,12", "[:]", "--element-size", "2", "--parts", "auto"), "a number for each axis"),
        (
            ("12,12", "[:]", "--element-size", "2", "--parts", "2,2", "--processes", "5"),
            "are 4 processes, --processes 5",
        ),
        (
            ("12,12", "[:]", "--element-size", "2", "--parts", "10000000,10000000"),
            "at most 1048576",
        ),
        (("12,12", "[:]", "--element-size", "2", "--order", "0,1,2"), "permutation"),
        (("12,12", "[:]", "--element-size", "2", "--stripe-size", "5000"), "no multiple"),
        (("12,12", "[:]", "--element-size", "2", "--stripe-count", "157"), "does not fit 156"),
    ],
)
def test_what_cannot_be_is_refused(sds, words, problem):
    found = sds("simulate", *words)
    assert found.code == 2
    assert problem in found.err
    assert found.out == ""


def test_a_dataset_has_an_element_size_of_its_own(sds, tmp_path):
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file["d"] = np.zeros(4)
    found = sds("simulate", f"{tmp_path}/f.h5:/d", "[:]", "--element-size", "2")
    assert found.code == 2
    assert "a dataset has its own" in found.err
