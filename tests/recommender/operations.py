"""Operations whose times follow a law of storage: clients, servers and disks at work together."""

from __future__ import annotations

import numpy as np

from sds.geometry import ContiguousLayout, IoMode, operation_features
from sds.recommender.judgement import Observed
from sds.recommender.measures import MeasureTable
from sds.recommender.protocol import Experiment

SMALL = Experiment(extent=(64, 64, 4096), n_processes=64, n_training=12)

# Seconds per run, per fetch; per request and byte of a server; per seek, block, root of distance.
LAW = (1e-3, 10e-6, 200e-6, 30e-6, 4e-9, 5e-3, 4e-6, 2e-6)


def touched(pattern, experiment, order):
    layout = ContiguousLayout(element_size_bytes=experiment.element_size_bytes, order=order)
    of = (experiment.extent, pattern.reads(), layout, experiment.stripes, experiment.raid)
    return (
        operation_features(*of),
        operation_features(*of, mode=IoMode.COLLECTIVE, n_aggregators=1),
    )


def seconds_by_law(measures, law=LAW):
    """The law, written out anew."""
    c = law
    client = c[1] * measures["runs_most"] + c[2] * measures["segments_most"]
    server = c[3] * measures["disk_requests"] + c[4] * measures["ost_bytes"]
    gaps, distance = measures["disk_segments"], measures["disk_distance"]
    seeks = c[5] * gaps + c[7] * np.sqrt(gaps * distance)
    disk = c[6] * measures["disk_blocks"] + np.minimum(c[6] * distance, seeks)
    return c[0] + (client**4 + server**4 + disk**4) ** 0.25


class Storage:
    """Observes patterns by a law, with noise that depends on the pattern alone."""

    def __init__(self, experiment=SMALL, *, noise=0.0):
        self.experiment = experiment
        self.noise = noise
        self.known = {}

    def observe(self, pattern):
        if pattern not in self.known:
            operations, unions = zip(
                *(touched(pattern, self.experiment, order) for order in self.experiment.orders),
                strict=True,
            )
            seconds = seconds_by_law(MeasureTable.of_operations(operations, unions))
            random = np.random.default_rng(sum(map(ord, pattern.name)))
            seconds = seconds * np.exp(self.noise * random.normal(size=len(seconds)))
            self.known[pattern] = Observed(
                seconds=tuple(seconds.tolist()), operations=operations, unions=unions
            )
        return self.known[pattern]

    def times(self, pattern):
        return self.observe(pattern).seconds
