import numpy as np
import pytest

from benchmarks._model_figures import evidence_of
from benchmarks.table1.evaluation import judge
from benchmarks.table1.protocol import draw_tests
from sds.plots.heldout_reads import Origin
from sds.recommender.models.model_selection import fitters_of
from tests.benchmarks.table1.operations import Storage


def test_judgements_of_several_seeds_are_put_together():
    storage = Storage(noise=0.05)
    experiment = storage.experiment
    fitters = [f for f in fitters_of() if f.name == "service"]
    judgements = [
        judge(draw_tests(seed, experiment, storage.times), experiment, storage.observe, fitters)
        for seed in (1, 2)
    ]
    found = evidence_of(
        judgements, experiment, model="service", origin=Origin.SIMULATED, subject="a law"
    )
    assert len(found) == 2 * 24 * 3
    assert found.layouts[:3] == ("[x,y,z]", "[x,z,y]", "[z,x,y]")
    first = judgements[0].of("service")
    assert found.observed_s[:3] == first.selections[0].measured_s
    assert found.predicted_s[:3] == first.selections[0].predicted_s
    assert found.patterns[0] == f"{first.selections[0].pattern} (seed 1)"
    errors = [j.of("service").model.log_error for j in judgements]
    assert found.interval_log == pytest.approx(1.96 * np.sqrt(np.mean(np.square(errors))))
