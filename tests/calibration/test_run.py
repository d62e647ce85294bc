import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sds import _native
from sds.calibration.design import MIN_SPACE_BYTES, array_extent, designed_reads
from sds.calibration.models_in_use import comparable_models, models_for_table
from sds.calibration.reader_pool import Readers
from sds.calibration.results import Calibration, CalibrationSettings
from sds.calibration.run import calibrate
from sds.calibration.scratch_file import (
    eviction_works,
    file_system_of,
    keeps_pages,
    write_array,
)
from sds.errors import (
    FileMissingError,
    InsufficientSpaceError,
    PermissionDeniedError,
    RankDeficientError,
    SdsError,
    SdsValueError,
)
from sds.geometry import Hyperslab
from sds.recommender.models.cost_model import CacheState, ModelKind, Via
from sds.recommender.models.read_cost import contiguous_throughput

TINY = CalibrationSettings(space_bytes=1 << 20, budget_s=3000.0, max_rounds=1)


@pytest.fixture(scope="module")
def calibration(tmp_path_factory):
    path = tmp_path_factory.mktemp("calibrate")
    shares = []
    result = calibrate(path, settings=TINY, progress=lambda share, _what: shares.append(share))
    assert list(path.iterdir()) == [], "nothing is left behind"
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    return result


def test_both_ways_are_measured_with_several_processes(calibration):
    vias = {m.via for m in calibration.measurements}
    assert vias == {Via.HDF5, Via.ENGINE}
    for measurement in calibration.measurements:
        assert set(measurement.samples.processes_per_ost) == {1.0, 2.0, 4.0}
        assert len(set(measurement.samples.patterns)) > 20
        assert min(measurement.samples.seconds) > 0


def test_the_chosen_model_is_no_worse_than_the_built_in_one(calibration):
    for measurement in calibration.measurements:
        errors = {t.name: t.heldout for t in measurement.choice.trials}
        assert measurement.choice.chosen.heldout.rms <= errors["builtin"].rms
        fitted = {t.model.kind for t in measurement.choice.trials if t.model}
        assert {ModelKind.EQ4, ModelKind.EQ6} <= fitted


def test_it_says_what_it_holds_for(calibration):
    assert calibration.file_system.device == Path(calibration.path).stat().st_dev
    assert Path(calibration.path).is_relative_to(calibration.file_system.mount_point)
    assert "DONTNEED" in calibration.cold_method or calibration.cold_method.startswith("none")
    of_models = sum(len(m.samples) for m in calibration.measurements)
    assert calibration.n_reads == of_models + calibration.engine.n_reads


def test_it_survives_json(calibration):
    assert Calibration.from_json(calibration.to_json()) == calibration


def test_tables_get_models_of_one_measurement(calibration):
    original, replica = comparable_models(calibration)
    assert (original.via, replica.via) == (Via.HDF5, Via.ENGINE)
    assert original.calibrated == replica.calibrated
    table_original, table_replica = models_for_table(calibration)
    equation, engine = (calibration.chosen_model(via=via) for via in Via)
    assert table_original == equation
    assert table_replica.floor_s > engine.floor_s, "the model's error speaks for the original"
    assert contiguous_throughput(original) > 0


def test_one_process_count_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(RankDeficientError, match="P does not vary"):
        calibrate(tmp_path, settings=CalibrationSettings(processes=(2,)))
    assert list(tmp_path.iterdir()) == []


def test_one_process_count_fits_without_p(tmp_path):
    settings = CalibrationSettings(
        space_bytes=MIN_SPACE_BYTES,
        budget_s=3000.0,
        max_rounds=1,
        processes=(1,),
        vias=(Via.ENGINE,),
        without_processes=True,
    )
    result = calibrate(tmp_path, settings=settings)
    for measurement in result.measurements:
        kinds = {t.model.kind for t in measurement.choice.trials if t.model}
        assert ModelKind.EQ4 not in kinds
    assert comparable_models(result)[0].calibrated is False, "one way alone compares nothing"


class Cancelled(Exception):  # noqa: N818 - what a user's callback may raise
    pass


@pytest.mark.parametrize("stop", [Cancelled, KeyboardInterrupt])
def test_it_cleans_up_when_it_is_stopped(tmp_path, stop):
    def progress(share, _what):
        if share > 0.1:
            raise stop

    with pytest.raises(stop):
        calibrate(tmp_path, settings=TINY, progress=progress)
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_calibration_left_goes_with_the_next(tmp_path):
    script = (
        "import os, sys, signal; from sds.calibration.run import calibrate, CalibrationSettings\n"
        "calibrate(sys.argv[1], settings=CalibrationSettings(space_bytes=1 << 20),"
        " progress=lambda share, _: share > 0.1 and os.kill(os.getpid(), signal.SIGKILL))"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    assert len(list(tmp_path.iterdir())) == 1
    settings = CalibrationSettings(
        space_bytes=MIN_SPACE_BYTES, budget_s=3000.0, max_rounds=1, vias=(Via.ENGINE,)
    )
    calibrate(tmp_path, settings=settings)
    assert list(tmp_path.iterdir()) == []


def test_bad_places_and_settings_are_refused(tmp_path):
    with pytest.raises(FileMissingError, match="does not exist"):
        calibrate(tmp_path / "missing", settings=TINY)
    with pytest.raises(InsufficientSpaceError, match="needs"):
        calibrate(tmp_path, settings=CalibrationSettings(space_bytes=1 << 60))
    with pytest.raises(SdsValueError, match="too few"):
        calibrate(tmp_path, settings=CalibrationSettings(space_bytes=1000))
    for bad in (
        {"budget_s": 0.0},
        {"budget_s": float("nan")},
        {"processes": (0, 1)},
        {"processes": ()},
        {"vias": ()},
    ):
        with pytest.raises(SdsValueError):
            CalibrationSettings(**bad)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def read_only(tmp_path):
    place = tmp_path / "read-only"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "ro,size=512m", "none", str(place)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("may not mount a file system here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_read_only_file_system_is_named(read_only):
    settings = replace(TINY, space_bytes=MIN_SPACE_BYTES)
    with pytest.raises(PermissionDeniedError, match="mounted read-only"):
        calibrate(read_only, settings=settings)


def test_whether_a_file_system_keeps_pages_is_seen(tmp_path):
    file = tmp_path / "data"
    file.write_bytes(bytes(1 << 20))
    with file.open("rb") as opened:
        assert keeps_pages(opened.fileno(), 1 << 20)


@pytest.mark.parametrize("space_bytes", [MIN_SPACE_BYTES, 1 << 20, 1 << 22])
def test_holes_in_a_small_file_do_not_count_as_memory(tmp_path, space_bytes):
    def answer(file):
        with file.open("rb") as opened:
            return eviction_works(opened.fileno(), file.stat().st_size)

    dense, sparse = tmp_path / "dense", tmp_path / "array.h5"
    dense.write_bytes(bytes(1 << 20))
    with dense.open("rb") as written:
        os.fsync(written.fileno())
    write_array(sparse, array_extent(space_bytes), seed=1, progress=lambda _share, _what: None)
    assert sparse.stat().st_blocks * 512 < sparse.stat().st_size
    assert answer(sparse) is answer(dense)


def test_a_budget_that_ends_at_once_says_so(tmp_path):
    with pytest.raises(SdsValueError):
        calibrate(tmp_path, settings=CalibrationSettings(space_bytes=1 << 20, budget_s=1e-6))
    assert list(tmp_path.iterdir()) == []


def test_a_reading_process_that_fails_is_quoted(tmp_path):
    request = {
        "via": "hdf5",
        "file": str(tmp_path / "gone.h5"),
        "dataset": "d",
        "data_offset_bytes": 0,
        "extent": (4, 4, 4),
        "start": (0, 0, 0),
        "stride": (1, 1, 1),
        "count": (1, 1, 1),
    }
    with (
        pytest.raises(SdsError, match=r"gone\.h5"),
        Readers(1, directory=tmp_path) as readers,
    ):
        readers.read([request])


def test_a_reading_process_that_is_gone_is_named(tmp_path):
    with Readers(1, directory=tmp_path) as readers:
        readers._processes[0].kill()
        readers._processes[0].wait()
        with pytest.raises(SdsError, match=r"ended \(status -9\)"):
            readers.read([{"start": (0,) * 10_000}])


@pytest.mark.parametrize("space_bytes", [MIN_SPACE_BYTES, 1 << 20, 10**8, 1 << 29])
def test_every_designed_read_fits_wherever_it_starts(space_bytes):
    extent = array_extent(space_bytes)
    assert 2 * 4 * extent[0] * extent[1] * extent[2] <= space_bytes
    names = set()
    for read in designed_reads(extent):
        room = read.room(extent)
        assert min(room) >= 1
        last = read.at(tuple(n - 1 for n in room))
        last.check_within(extent)
        assert isinstance(last, Hyperslab)
        names.add(read.name)
    assert len(names) == len(designed_reads(extent)) > 25


def test_the_cache_state_without_cold_reads_is_warm(calibration):
    warm = tuple(m for m in calibration.measurements if m.cache is CacheState.WARM)
    only_warm = replace(calibration, measurements=warm)
    assert only_warm.chosen_model(via=Via.HDF5).cache is CacheState.WARM
    assert only_warm.chosen_model(via=Via.HDF5, cache=CacheState.COLD) is None


def test_the_file_system_of_proc_is_proc():
    assert file_system_of(Path("/proc/self")).kind == "proc"


def test_the_engine_is_measured_too(calibration):
    engine = calibration.engine
    assert engine.parameters.is_measured
    assert engine.n_reads > 50
    assert engine.kind == _native.ReadFile(Path(calibration.path)).file_system_type
    assert Calibration.from_json(calibration.to_json()).engine == engine
