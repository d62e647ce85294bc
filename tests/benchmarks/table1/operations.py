"""Operations whose times follow a law of storage: clients, servers and disks."""

from __future__ import annotations

import numpy as np

from benchmarks.table1.evaluation import Observed
from benchmarks.table1.operation_features import measure_operation
from benchmarks.table1.protocol import Experiment
from sds.geometry import ContiguousLayout
from sds.recommender.models.feature_matrix import FeatureMatrix

SMALL = Experiment(extent=(64, 64, 4096), n_processes=64, n_training=12)

# Seconds: always; per run and trip; per byte sent in step and by each server; per seek and block.
LAW = (5e-3, 10e-6, 200e-6, 1e-9, 4e-9, 5e-3, 4e-6)


def seconds_by_law(features, law=LAW):
    """The law, written out anew."""
    c = law
    seconds = (
        c[0] * features["first_visits"]
        + c[1] * features["runs_most"]
        + c[2] * features["trips_most"]
    )
    seconds = seconds + c[3] * features["step_bytes"] + c[4] * features["ost_bytes"]
    for gaps, distance in (("later_fetches", "fetch_distance"), ("disk_segments", "disk_distance")):
        seconds = seconds + np.minimum(c[5] * features[gaps], c[6] * features[distance])
    return seconds + c[6] * features["disk_blocks"]


class Storage:
    """Observes patterns by a law, with noise that depends on the pattern alone."""

    def __init__(self, experiment=SMALL, *, noise=0.0):
        self.experiment = experiment
        self.noise = noise
        self.known = {}

    def observe(self, pattern):
        if pattern not in self.known:
            experiment = self.experiment
            operations = tuple(
                measure_operation(
                    experiment.extent,
                    pattern.reads(),
                    ContiguousLayout(element_size_bytes=experiment.element_size_bytes, order=order),
                    experiment.stripes,
                    experiment.raid,
                )
                for order in experiment.orders
            )
            seconds = seconds_by_law(FeatureMatrix.of_operations(operations))
            random = np.random.default_rng(sum(map(ord, pattern.name)))
            seconds = seconds * np.exp(self.noise * random.normal(size=len(seconds)))
            self.known[pattern] = Observed(seconds=tuple(seconds.tolist()), operations=operations)
        return self.known[pattern]

    def times(self, pattern):
        return self.observe(pattern).seconds
