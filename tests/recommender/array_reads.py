"""Reads that a calibration of the mounted array timed (`benchmarks.disk_array`), cold.

An array of 64 x 64 x 256 elements of 4 bytes in two orders; of each shape the read with the median
time, by 1, 2 and 4 processes, through HDF5 and by the engine; the machine otherwise idle.
"""

import json
from pathlib import Path

from sds.machines.machine_file import parse_machine
from sds.recommender import Samples, StoredArray, Via
from sds.recommender.calibration_design import ELEMENT_SIZE_BYTES, designed_reads
from sds.recommender.cost import features_as_stored, greatest_features, processes_per_ost
from sds.recommender.placed import PlacedRead
from sds.recommender.simulating import PlacedSamples

EXTENT = (64, 64, 256)
DATA = Path(__file__).parents[1] / "data"


def described():
    """Return the array as its file describes it."""
    file = DATA / "array.toml"
    return parse_machine(file.read_text(), name=file.name).parameters


def timed_ways():
    """Return the reads of both ways, with what they touched."""
    designed = {read.name: read for read in designed_reads(EXTENT)}
    lines = [json.loads(line) for line in (DATA / "array_reads.jsonl").read_text().splitlines()]
    return [
        _way(via, [line for line in lines if line["via"] == via], designed)
        for via in (Via.ENGINE, Via.HDF5)
    ]


def _way(via, lines, designed):
    placed, features, processes = [], [], []
    for line in lines:
        order = tuple(map(int, line["order"].split(",")))
        array = StoredArray(
            extent=tuple(EXTENT[axis] for axis in order),
            element_size_bytes=ELEMENT_SIZE_BYTES,
            data_offset_bytes=line["offset"],
        )
        # Starts are of the stored order, shapes of the array's own.
        read = designed[line["pattern"]]
        back = [order.index(axis) for axis in range(3)]
        slabs = tuple(
            read.at(tuple(start[axis] for axis in back)).permuted(order) for start in line["starts"]
        )
        touched = greatest_features([features_as_stored(array, slab) for slab in slabs])
        placed.append(
            PlacedRead(
                extent=array.extent,
                element_size_bytes=ELEMENT_SIZE_BYTES,
                data_offset_bytes=line["offset"],
                slabs=slabs,
            )
        )
        features.append(touched)
        processes.append(processes_per_ost(touched, n_concurrent=len(slabs), stripe_count=1))
    samples = Samples(
        patterns=tuple(line["pattern"] for line in lines),
        layouts=tuple(line["order"] for line in lines),
        features=tuple(features),
        processes_per_ost=tuple(processes),
        seconds=tuple(line["seconds"] for line in lines),
    )
    return PlacedSamples(via=via, samples=samples, placed=placed)
