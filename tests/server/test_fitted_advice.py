"""A fitted machine gives advice by itself, and where it cannot, that is said."""

from dataclasses import replace

import h5py
import numpy as np
import pytest

from sds.catalog.filesystems import filesystem_of
from sds.errors import SimulationLimitError
from sds.explain import best_of, compare, explain
from sds.recommender import HeldoutError, Via, choose_portfolio, models_for_advice
from sds.recommender.simulated import (
    BUDGET_REQUESTS,
    NOT_JUDGED_ON_CHUNKS,
    SIMULATED,
    Simulation,
)
from sds.server.known_reads import KnownReads
from sds.server.models import configured_machine
from sds.server.reports import NamedDataset, PortfolioRequest, WhatIfRequest
from sds.server.settings import Settings
from sds.supposed import Supposed
from tests.fake_lfs import answering, plain, put_lfs
from tests.plots.evidence import calibration
from tests.recommender.array_reads import described

EXTENT = (64, 64, 256)


@pytest.fixture
def cube(tmp_path):
    path = tmp_path / "cube.h5"
    with h5py.File(path, "w") as handle:
        handle["d"] = np.zeros(EXTENT, "<f4")
    return path


def with_machine(parameters):
    """Return a calibration by both ways with a machine that errs little."""
    made = calibration()
    (by_hdf5,) = made.measurements
    heldout = HeldoutError(median=0.05, p95=0.2, rms=0.1, rank_correlation=0.99, n_patterns=9)
    simulation = Simulation(parameters=parameters, heldout=heldout, other_rms=0.5)
    both = (replace(by_hdf5, via=via, simulation=simulation) for via in (Via.HDF5, Via.ENGINE))
    return replace(made, measurements=tuple(both))


def keep(service, path, calibrated, *, device=None):
    return service._store.add_calibration(
        mount_point=str(filesystem_of(path).mount_point),
        device=path.stat().st_dev if device is None else device,
        calibration=calibrated,
    )


@pytest.fixture
def fitted(service, cube):
    return keep(service, cube, with_machine(described()))


def test_the_catalog_keeps_it(service, fitted):
    (record,) = service.calibrations()
    assert record == fitted
    assert {m.simulation.parameters for m in record.calibration.measurements} == {described()}


@pytest.mark.usefixtures("fitted")
def test_all_advice_is_by_it_and_names_it(service, cube):
    advice = service.advise(str(cube), "/d", selection="[:, :, 5]", n_reads=1000)
    (record,) = advice.recommendations
    found = record.recommendation
    assert (found.model_original, found.model_replica) == (SIMULATED, SIMULATED)
    assert found.interval_original == pytest.approx(np.exp(0.2))
    assert found.order is not None
    assert advice.notes == ()

    request = PortfolioRequest(
        datasets=(NamedDataset(file=str(cube), dataset="/d"),),
        selection="[:, :, 5]",
        n_reads=1000,
        budget_bytes=1 << 30,
    )
    (names,) = service.portfolio(request).portfolio.models
    assert (names.original, names.replica) == (SIMULATED, SIMULATED)

    answer = service.what_if(
        WhatIfRequest(
            file=str(cube), dataset="/d", selection="[:, :, 5]", n_reads=1000, order=(2, 0, 1)
        )
    )
    assert (answer.models.original, answer.models.replica) == (SIMULATED, SIMULATED)
    assert answer.saving.seconds > 0
    assert answer.notes == ()


def test_what_cannot_be_simulated_is_advised_on_by_others_and_that_is_said(service, cube):
    """All reads, not some: times that are compared are of one origin."""
    impatient = replace(described(), max_events=10)
    made = with_machine(impatient)
    keep(service, cube, made)
    others = [m.best_of_features.name for m in made.measurements]
    advice = service.advise(str(cube), "/d", selection="[:, :, 5]", n_reads=1000)
    (record,) = advice.recommendations
    found = record.recommendation
    assert [found.model_original, found.model_replica] == others
    (words,) = advice.notes
    assert words.startswith(f"predicted by {others[0]}, not by the fitted machine: of one read, ")
    answer = service.what_if(
        WhatIfRequest(file=str(cube), dataset="/d", selection="[:, :, 5]", order=(2, 0, 1))
    )
    assert answer.models.original == others[0]
    assert answer.notes == (words,)


@pytest.mark.usefixtures("fitted")
def test_explain_names_it_with_its_interval_or_says_why_not(service, cube):
    original, _ = models_for_advice(service.calibrations()[0].calibration)
    found = explain(cube, "/d", "[:, :, 5]", model=original)
    assert found.model == SIMULATED
    assert found.calibrated
    assert found.predicted_high_s / found.predicted_s == pytest.approx(np.exp(0.2))

    original.budget.left = 0
    again = explain(cube, "/d", "[3, :, 5]", model=original)
    assert again.model == original.baseline.name
    assert any("not by the fitted machine: of one read, all reads" in n for n in again.notes)


def test_of_another_device_it_is_not_used_and_that_is_said(service, cube):
    keep(service, cube, with_machine(described()), device=2**40)
    advice = service.advise(str(cube), "/d", selection="[:, :, 5]", n_reads=1000)
    assert advice.recommendations[0].recommendation.model_original == "builtin"
    assert any("was calibrated as another device" in note for note in advice.notes)


def test_configured_striping_describes_a_machine():
    assert configured_machine(Settings()) is None
    machine = configured_machine(
        Settings(stripe_size_bytes=1 << 20, stripe_count=4, raid_data_disks=8, ost_count=2)
    )
    assert (machine.stripes.stripe_count, machine.n_osts) == (4, 4)
    assert machine.raid.data_disks == 8
    assert configured_machine(Settings(stripe_size_bytes=1000)) is None  # no multiple of a page


@pytest.fixture
def cubes(tmp_path):
    path = tmp_path / "cubes.h5"
    with h5py.File(path, "w") as handle:
        for name in ("a", "b"):
            handle[name] = np.zeros(EXTENT, "<f4")
        handle.create_dataset("chunked", data=np.zeros(EXTENT, "<f4"), chunks=(16, 16, 64))
    return path


def reads_of(known, path, name):
    (found,), _ = known.of(
        str(path), name, selection="[:, :, 5]", n_reads=1000, progress=lambda *_: None
    )
    return found.reads


@pytest.mark.usefixtures("fitted")
def test_all_datasets_of_one_request_share_one_budget(service, cubes):
    known = KnownReads(service._store, service._models)
    first, second = (reads_of(known, cubes, name) for name in ("/a", "/b"))
    assert first.models is second.models
    assert all(model.budget is known.budget for model in first.models)
    choose_portfolio([first])
    one = BUDGET_REQUESTS - known.budget.left
    assert one > 0
    choose_portfolio([first])
    assert BUDGET_REQUESTS - known.budget.left == one, "each read is simulated once"
    known.budget.left = 1
    with pytest.raises(SimulationLimitError, match="all reads together"):
        choose_portfolio([first, second])
    again = KnownReads(service._store, service._models)
    assert reads_of(again, cubes, "/a").models[0].budget.left == BUDGET_REQUESTS


@pytest.mark.usefixtures("fitted")
def test_where_chunks_are_simulated_it_is_said_that_the_error_is_of_others(service, cubes):
    advice = service.advise(str(cubes), "/chunked", selection="[:, :, 5]", n_reads=1000)
    assert advice.recommendations[0].recommendation.model_original == SIMULATED
    assert advice.notes == (NOT_JUDGED_ON_CHUNKS,)
    original, _ = models_for_advice(service.calibrations()[0].calibration)
    chunks = Supposed(order=(0, 1, 2), chunks=(16, 16, 64))
    found = compare(cubes, "/a", "[:, :, 5]", (chunks, Supposed()), model_for=lambda _: original)
    assert {each.model for each in found} == {SIMULATED}
    assert [NOT_JUDGED_ON_CHUNKS in each.notes for each in found] == [True, False]


@pytest.mark.usefixtures("fitted")
def test_explain_compares_no_simulated_time_with_another(service, cubes):
    original, _ = models_for_advice(service.calibrations()[0].calibration)
    layouts = (Supposed(), Supposed(order=(2, 0, 1)))
    both = compare(cubes, "/a", "[:, :, 5]", layouts, model_for=lambda _: original)
    assert best_of(both) == 1
    one = compare(
        cubes,
        "/a",
        "[:, :, 5]",
        layouts,
        model_for=lambda layout: original if layout.is_replica else original.baseline,
    )
    assert best_of(one) is None


@pytest.mark.usefixtures("fitted")
def test_what_lustre_says_counts_also_where_it_is_what_would_be_assumed(
    service, cube, tmp_path, monkeypatch
):
    put_lfs(tmp_path, monkeypatch, answering(plain(1, 1 << 20)))
    advice = service.advise(str(cube), "/d", selection="[:, :, 5]", n_reads=1000)
    assert advice.recommendations[0].recommendation.model_original != SIMULATED
    (words,) = advice.notes
    assert words.endswith("its file is striped otherwise than the machine that was fitted")
    original, _ = models_for_advice(service.calibrations()[0].calibration)
    found = explain(cube, "/d", "[:, :, 5]", model=original)
    assert found.model == original.baseline.name
    assert words in found.notes
