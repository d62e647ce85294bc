"""A calibration that a busy machine disturbed does not end the demonstration."""

import threading
from dataclasses import replace
from functools import partial

import pytest

from sds.cli.output import progress_bar
from sds.demo import driver
from sds.demo.comparison import find_program
from sds.demo.sample_files import extents_of
from sds.demo.work_of_server import advice_of_server
from sds.demo.workspace import make_workplace
from sds.errors import SdsError
from sds.mounts import filesystem_of
from sds.recommender.models.cost_model import HeldoutError, Via
from sds.server.operations.jobs import Background, child_runner
from sds.server.operations.service import Service
from sds.server.settings import Settings
from tests.plots.evidence import calibration
from tests.waiting import PATIENCE_S


def disturbed(device):
    """Return a calibration whose models err by so much that no gain is told from none."""
    made = calibration(device)
    (cold,) = made.measurements
    error = HeldoutError(median=20.0, p95=40.0, rms=20.0, rank_correlation=0.1, n_patterns=9)
    chosen = replace(cold.choice.chosen, heldout=error)
    choice = replace(cold.choice, chosen=chosen)
    ways = (replace(cold, via=via, choice=choice) for via in (Via.HDF5, Via.ENGINE))
    return replace(made, measurements=tuple(ways))


def test_what_a_disturbed_calibration_cannot_tell_is_measured_again(tmp_path, monkeypatch):
    place, size_bytes = make_workplace(tmp_path, 24 << 20)
    lines = []
    edges = {"say": lines.append, "bar": progress_bar}
    driver._make_files(place, size_bytes, **edges)
    programs = tuple(map(find_program, ("image", "series")))
    stop = threading.Event()
    settings = Settings(
        mode="off", ingest_interval_s=0.1, evaluate_interval_s=0.1, advice_min_s=0.0
    )
    with Service.open(place.home, settings, run=child_runner(stop)) as service:
        driver._watch(place, programs, extents_of(size_bytes), service, by_engine=False, **edges)
        root = place.root
        record = service._store.add_calibration(
            mount_point=str(filesystem_of(root).mount_point),
            device=root.stat().st_dev,
            calibration=disturbed(root.stat().st_dev),
        )
        monkeypatch.setattr(driver, "_CALIBRATION_BYTES", 16 << 20)
        background = Background(service, stop)
        background.start()
        advice_of = partial(advice_of_server, service, root, (place.cube, place.grid), **edges)
        with pytest.raises(SdsError, match=r"cannot tell from no gain.*try again"):
            advice_of(calibrate=None)
        assert service.calibrations() == (record,)

        for again_s in (1.0, 30.0, 3000.0):  # the least in which this machine reads enough to fit
            lines.clear()
            again = partial(driver._calibrate, place, service, budget_s=again_s, **edges)
            try:
                outcome = {found.dataset for found in advice_of(calibrate=again)}
            except SdsError as error:  # what is measured while tests run may tell too little too
                outcome = str(error)
            (measured,) = service.calibrations()
            if measured.calibration.settings.budget_s == again_s:
                break
        background.end(PATIENCE_S)
        assert outcome == {"/image/cube", "/t2m"} or "try again" in outcome
        assert measured.calibration.settings.budget_s == again_s
    assert lines[0].startswith("no advice yet for ")
    assert "cannot tell from no gain" in lines[0]
    assert lines[1].startswith("calibrated ")
