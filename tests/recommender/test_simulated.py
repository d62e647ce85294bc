"""A machine fitted to a calibration's reads is one more model, chosen where it errs least."""

import math
from dataclasses import replace

import numpy as np
import pytest

from sds.analyzer import stated_pattern
from sds.errors import SdsValueError, SimulationLimitError
from sds.file_stripes import StripesSource
from sds.geometry import LOCAL_DISK_STRIPES, Hyperslab, StripeLayout
from sds.recommender import (
    CacheState,
    Calibration,
    CalibrationSettings,
    FileSystem,
    StoredArray,
    Via,
    models_for_advice,
    models_for_table,
    rank_layouts,
)
from sds.recommender.calibration_run import fit_measurement
from sds.recommender.cost import seconds_as_stored
from sds.recommender.simulated import (
    BUDGET_REQUESTS,
    NOT_JUDGED_ON_CHUNKS,
    SIMULATED,
    Simulation,
    SimulationBudget,
    begin_answer,
    notes_on_predictions,
    within_budget,
    without_simulation,
)
from sds.recommender.simulating import fit_simulation
from sds.recommender.traced import notes_on_refit
from tests.recommender.array_reads import described, timed_ways

CUBE = StoredArray(extent=(64, 64, 256), element_size_bytes=4, data_offset_bytes=1 << 20)


@pytest.fixture(scope="module")
def ways():
    return timed_ways()


@pytest.fixture(scope="module")
def simulations(ways):
    return fit_simulation(ways, described(), engine=None, without_processes=False)


@pytest.fixture(scope="module")
def calibration(ways, simulations):
    measurements = [
        replace(
            fit_measurement(
                way.samples, without_processes=False, via=way.via, cache=CacheState.COLD
            ),
            simulation=simulations[way.via],
        )
        for way in ways
    ]
    return Calibration(
        path="/array",
        file_system=FileSystem(mount_point="/array", kind="fuse", source="array", device=7),
        created="2026-11-22T00:00:00+00:00",
        settings=CalibrationSettings(machine=described()),
        elapsed_s=60.0,
        n_reads=sum(len(way.samples) for way in ways),
        cold_method="direct",
        complete=True,
        measurements=tuple(measurements),
    )


def test_it_predicts_what_it_was_not_fitted_to_better_than_all_others(simulations):
    for via in Via:
        found = simulations[via]
        assert found.refused == ""
        assert found.heldout.rms < 0.95 * found.other_rms
        assert found.heldout.median < 0.15
        assert found.n_left_out > 30
        assert found.heldout.n_patterns == math.ceil(29 / 4)


def test_the_best_model_of_advice_is_the_machine_and_of_tables_an_equation(calibration):
    advised = models_for_advice(calibration)
    assert [model.name for model in advised] == [SIMULATED, SIMULATED]
    assert [model.via for model in advised] == [Via.HDF5, Via.ENGINE]
    assert all(model.calibrated for model in advised)
    for model, measurement in zip(without_simulation(advised), calibration.measurements[::-1],
                                  strict=True):  # fmt: skip
        assert model == measurement.best_of_features
    assert SIMULATED not in {model.name for model in models_for_table(calibration)}


def test_it_survives_json(calibration):
    again = Calibration.from_json(calibration.to_json())
    assert again == calibration
    model, same = (models_for_advice(each)[1] for each in (calibration, again))
    slab = stated_pattern("[:, 3]", extent=CUBE.extent, element_size_bytes=4).call
    assert seconds_as_stored(model, CUBE, slab) == seconds_as_stored(same, CUBE, slab)


def test_predictions_are_of_the_reads_themselves(calibration, ways):
    """Not only of patterns left out: all reads, each as it lay, by as many processes."""
    for way in ways:
        model = calibration.best_model(via=way.via, cache=CacheState.COLD)
        errors = []
        for i, read in enumerate(way.placed):
            predicted = model.predict_placed(read, way.samples.features[i], CUBE.known_stripes)
            errors.append(abs(math.log(predicted.seconds / way.samples.seconds[i])))
            assert predicted.low < predicted.seconds < predicted.high
            assert predicted.calibrated
        assert np.median(errors) < 0.12


def test_of_features_alone_the_best_other_model_predicts(calibration, ways):
    model = calibration.best_model(via=Via.HDF5)
    features = ways[1].samples.features[0]
    assert model.predict(features) == model.baseline.predict(features)
    measures = ways[1].samples.measures()
    assert (model.predict_many(measures) == model.baseline.predict_many(measures)).all()


def test_layouts_are_ranked_by_it(calibration):
    pattern = stated_pattern("[:, :, 5]", extent=CUBE.extent, element_size_bytes=4,
                             n_reads_per_day=1000)  # fmt: skip
    found = rank_layouts([pattern], array=CUBE, models=models_for_advice(calibration))
    assert (found.model_original, found.model_replica) == (SIMULATED, SIMULATED)
    assert found.calibrated
    assert found.order is not None
    assert found.order[0] == 2


def test_it_advises_on_all_ways_of_reading_or_on_none(calibration):
    """Times that are compared are of one origin."""
    assert calibration.machine_advises
    for refused in Via:
        some = replace(
            calibration,
            measurements=tuple(
                replace(m, simulation=Simulation(refused="worse")) if m.via is refused else m
                for m in calibration.measurements
            ),
        )
        assert not some.machine_advises
        others = {m.via: m.best_of_features for m in some.measurements}
        assert models_for_advice(some) == (others[Via.HDF5], others[Via.ENGINE])
        assert all(some.best_model(via=via) == others[via] for via in Via)


def test_models_of_one_piece_of_advice_share_a_budget(calibration):
    models = models_for_advice(calibration)
    slab = stated_pattern("[:, 3]", extent=CUBE.extent, element_size_bytes=4).call
    left = [BUDGET_REQUESTS]
    for model in models:
        seconds_as_stored(model, CUBE, slab)
        left.append(models[0].budget.left)
    assert left[0] > left[1] > left[2] == models[1].budget.left
    budget = SimulationBudget(left=1)
    for model in within_budget(models_for_advice(calibration), budget):
        with pytest.raises(SimulationLimitError, match="all reads together"):
            seconds_as_stored(model, CUBE, slab)
    assert budget.left == 1


def test_striping_that_is_told_has_to_be_the_machine_s_also_where_it_is_a_local_disk_s(calibration):
    """1 MiB on one OST is what is assumed where nobody says, and what Lustre has by default."""
    model = calibration.best_model(via=Via.ENGINE)
    slab = stated_pattern("[:, 3]", extent=CUBE.extent, element_size_bytes=4).call
    assert CUBE.stripes == LOCAL_DISK_STRIPES != model.parameters.stripes
    assert seconds_as_stored(model, CUBE, slab) > 0
    for source in set(StripesSource) - {StripesSource.ASSUMED}:
        told = replace(CUBE, stripes_source=source)
        with pytest.raises(SimulationLimitError, match="striped otherwise than the machine"):
            seconds_as_stored(model, told, slab)
        as_it = replace(told, stripes=model.parameters.stripes)
        assert seconds_as_stored(model, as_it, slab) == seconds_as_stored(model, CUBE, slab)


def test_of_chunks_it_is_said_that_its_error_was_not_measured(calibration):
    models = models_for_advice(calibration)
    slab = stated_pattern("[:, 3]", extent=CUBE.extent, element_size_bytes=4).call
    seconds_as_stored(models[0], CUBE, slab)
    assert notes_on_predictions(models) == ()
    seconds_as_stored(models[0], replace(CUBE, chunks=(16, 16, 16)), slab)
    assert notes_on_predictions(models) == (NOT_JUDGED_ON_CHUNKS,)
    # What another answer is made of is said there; times that are known already count as well.
    begin_answer(models)
    assert notes_on_predictions(models) == ()
    seconds_as_stored(models[0], replace(CUBE, chunks=(16, 16, 16)), slab)
    assert notes_on_predictions(models) == (NOT_JUDGED_ON_CHUNKS,)


def test_several_processes_read_chunks_of_which_each_touches_as_many(calibration):
    model = calibration.best_model(via=Via.HDF5)
    array = replace(CUBE, extent=(256, 256, 256), chunks=(256, 16, 16))
    slab = stated_pattern("[0, 0:128, 0:32]", extent=array.extent, element_size_bytes=4).call
    alone, together = (seconds_as_stored(model, array, slab, n_concurrent=n) for n in (1, 4))
    assert together > alone > 0


def test_models_that_traces_were_fitted_to_are_not_judged_beside_it(calibration):
    assert notes_on_refit(calibration) == ()
    traced = tuple(replace(m, n_traced=1) for m in calibration.measurements)
    (words,) = notes_on_refit(replace(calibration, measurements=traced))
    assert words.endswith("run sds calibrate /array again")
    without = tuple(replace(m, simulation=None) for m in traced)
    assert notes_on_refit(replace(calibration, measurements=without)) == ()


def test_without_a_described_machine_nothing_changes(calibration):
    plain = [replace(m, simulation=None) for m in calibration.measurements]
    assert [m.best for m in plain] == [m.best_of_features for m in plain]
    refused = Simulation(refused="too few reads")
    kept = [replace(m, simulation=refused) for m in calibration.measurements]
    assert [m.best for m in kept] == [m.best_of_features for m in kept]


def test_a_worse_machine_is_not_used(ways):
    """Its disks are those of another array, and what is searched does not make up for that."""
    wrong = replace(
        described(),
        ost_forgets=False,
        fetch_bytes=0,
        read_ahead_bytes=1 << 20,
        client_bytes_per_s=1e6,
    )
    found = fit_simulation(ways, wrong, engine=None, without_processes=False)
    for via in Via:
        assert "others predict what neither has seen as well" in found[via].refused
        assert found[via].heldout.rms > 0.95 * found[via].other_rms


def test_what_is_beyond_the_limits_is_refused_in_words(calibration):
    model = calibration.best_model(via=Via.ENGINE)
    slab = stated_pattern("[:, 3]", extent=CUBE.extent, element_size_bytes=4).call
    model.budget.left = 1
    with pytest.raises(SimulationLimitError, match=r"all reads together take over 2,097,152 req"):
        seconds_as_stored(model, CUBE, slab)

    model = calibration.best_model(via=Via.HDF5)
    large = StoredArray(extent=(1 << 17, 1 << 15), element_size_bytes=4)
    slab = stated_pattern("[:, 3]", extent=large.extent, element_size_bytes=4).call
    with pytest.raises(SimulationLimitError, match="takes 131,072 requests, and at most 65,536"):
        seconds_as_stored(model, large, slab)

    elsewhere = replace(CUBE, stripes=StripeLayout(stripe_size_bytes=1 << 20, stripe_count=9))
    slab = stated_pattern("[3]", extent=CUBE.extent, element_size_bytes=4).call
    with pytest.raises(SimulationLimitError, match="striped otherwise than the machine"):
        seconds_as_stored(model, elsewhere, slab)

    huge = StoredArray(extent=(1 << 30, 1 << 10), element_size_bytes=4)
    slab = stated_pattern("[3]", extent=huge.extent, element_size_bytes=4).call
    with pytest.raises(SimulationLimitError, match="stripe it over more OSTs"):
        seconds_as_stored(model, huge, slab)


def test_each_read_is_simulated_once(calibration):
    model = calibration.best_model(via=Via.ENGINE)
    slab = stated_pattern("[:, 3]", extent=CUBE.extent, element_size_bytes=4).call
    before = model.budget.left
    first = seconds_as_stored(model, CUBE, slab)
    spent = before - model.budget.left
    assert spent > 0
    assert seconds_as_stored(model, CUBE, slab) == first
    assert before - model.budget.left == spent


def test_reads_that_cannot_be_simulated_are_counted(ways):
    """Here one whose processes do not read alike."""
    (odd,) = [way for way in ways if way.via is Via.HDF5]
    point = Hyperslab(start=(0, 0, 0), stride=(1, 1, 1), count=(1, 1, 1), block=(1, 1, 1))
    unlike = replace(odd.placed[0], slabs=(point, replace(point, count=(1, 1, 9))))
    found = fit_simulation(
        [replace(odd, placed=[unlike, *odd.placed[1:]])],
        described(),
        engine=None,
        without_processes=False,
    )
    assert found[Via.HDF5].n_excluded == 1
    few = replace(odd, samples=odd.samples.take(range(9)), placed=[unlike, *odd.placed[1:9]])
    told = fit_simulation([few], described(), engine=None, without_processes=False)
    assert told[Via.HDF5].n_excluded == 1


def test_too_few_reads_and_impossible_guesses_are_told(ways):
    few = [replace(way, samples=way.samples.take(range(9)), placed=way.placed[:9]) for way in ways]
    found = fit_simulation(few, described(), engine=None, without_processes=False)
    assert all("too few for 6 numbers" in each.refused for each in found.values())
    none = replace(described(), client_jitter_s=0.0)
    found = fit_simulation(ways, none, engine=None, without_processes=False)
    assert all(
        "client_jitter_s is 0.0: the search needs" in each.refused for each in found.values()
    )
    with pytest.raises(SdsValueError, match="without its numbers or its error"):
        Simulation()
