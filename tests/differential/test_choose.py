"""Connector, `sds.read`, advice and the redirect table choose what serves a read alike.

`SDS_TEST_CHOICES` names how many reads are drawn for each; a few hundred by default.
"""

import dataclasses
import json
import os
from pathlib import Path

import h5py
import numpy as np
import pytest

from sds import _native
from sds.client import replica_reader
from sds.geometry import Box, Hyperslab, RaidLayout, StripeLayout
from sds.hdf5.dataset import describe_open_dataset
from sds.home import Home
from sds.redirect.tables import TableModel, publish_table
from sds.trace import read_spool
from sds.trace.spool_format import SUFFIX
from tests.redirected import settle, table_of, write_replica
from tests.under_connector import connector_environment, run_python

N_READS = int(os.environ.get("SDS_TEST_CHOICES", "300"))
READS_OF_A_PROGRAM = 100
KINDS = {0: 3, 3: 3, 4: 4, 6: 8, 16: 7, 17: 8}  # terms by kind of equation

PROGRAM = """
    import json, sys
    import h5py, numpy as np
    with h5py.File(sys.argv[1]) as file:
        file["warm"][:, :, 3]  # the first read of a file that is not mapped is judged by itself
        for name, *axes in json.loads(sys.argv[2]):
            data = file[name]
            space = data.id.get_space()
            start, stride, count, block = map(tuple, axes)
            space.select_hyperslab(start, count, stride, block)
            shape = tuple(c * b for c, b in zip(count, block))
            out = np.empty(shape, data.dtype)
            data.id.read(h5py.h5s.create_simple(shape), space, out)
"""


def draw_model(rng):
    kind = int(rng.choice(list(KINDS)))
    coefficients = 10.0 ** rng.uniform(-9, -4, KINDS[kind]) * rng.integers(0, 2, KINDS[kind])
    if kind in {0, 17}:
        coefficients[2:4] *= 1e-3  # of bytes
    return TableModel(
        kind=kind,
        gap=int(rng.integers(3)),
        calibrated=bool(rng.integers(2)),
        coefficients=tuple(coefficients.tolist()),
        floor_s=float(10.0 ** rng.uniform(-6, -5)),
    )


def draw_disks(rng):
    return {
        "stripes": StripeLayout(
            stripe_size_bytes=int(rng.choice([4096, 65536, 1 << 20])),
            stripe_count=int(rng.integers(1, 5)),
        ),
        "raid": RaidLayout(
            unit_bytes=int(rng.choice([512, 4096])),
            data_disks=int(rng.integers(1, 4)),
            min_request_bytes=4096,
        ),
    }


def draw_slab(rng, extent):
    axes = []
    for n in extent:
        start = int(rng.integers(n))
        block = int(rng.integers(1, n - start + 1)) if rng.random() < 0.5 else 1
        stride = block + int(rng.integers(0, 4)) if rng.random() < 0.7 else block
        count = int(rng.integers(1, (n - start - block) // stride + 2))
        axes.append((start, stride if count > 1 else max(1, block), count, block))
    start, stride, count, block = (tuple(values) for values in zip(*axes, strict=True))
    return Hyperslab(start=start, stride=stride, count=count, block=block)


def draw_extent(rng):
    rank = int(rng.integers(1, 5))
    most = {1: 200_000, 2: 400, 3: 60, 4: 24}[rank]
    return tuple(int(rng.integers(2, most)) for _ in range(rank))


def draw_candidate(rng, path, dataset, home, number):
    name, extent = dataset.path, dataset.extent
    order = tuple(int(axis) for axis in rng.permutation(len(extent)))
    region, storage = None, {}
    if rng.random() < 0.3:
        low = [int(rng.integers(0, max(1, n // 3))) for n in extent]
        region = Box(
            start=tuple(low),
            extent=tuple(int(rng.integers(1, n - a + 1)) for n, a in zip(extent, low, strict=True)),
        )
    if rng.random() < 0.3:
        stored = [(region.extent if region else extent)[axis] for axis in order]
        storage = {"chunks": tuple(int(rng.integers(1, min(n, 32) + 1)) for n in stored)}
    return write_replica(path, name, order, home, number=number, region=region, **storage)


def make_source(directory, home, rng):
    """Write a source of a few datasets and publish replicas of them; return it and its table."""
    path = directory / "source.h5"
    with h5py.File(path, "w") as file:
        file["warm"] = np.zeros((40, 40, 64))
        for k in range(4):
            extent, size = draw_extent(rng), rng.choice(["u1", "f4", "f8", "c16"])
            chunks = tuple(min(n, 16) for n in extent) if k == 3 else None
            values = rng.integers(0, 100, extent).astype(size)
            file.create_dataset(f"d{k}", data=values, chunks=chunks)
    settle(path)
    table = table_of(path, [], paths=[f"/d{k}" for k in range(4)])
    datasets, number = [], 0
    for dataset in table.datasets:
        candidates = []
        for _ in range(int(rng.integers(1, 4))):
            number += 1
            one = draw_candidate(rng, path, dataset, home, number)
            candidates.append(dataclasses.replace(one, model=draw_model(rng), **draw_disks(rng)))
        drawn = {"model": draw_model(rng), **draw_disks(rng)}
        datasets.append(dataclasses.replace(dataset, candidates=tuple(candidates), **drawn))
    table = dataclasses.replace(table, datasets=tuple(datasets))
    publish_table(home, table)
    return path, table


def draw_reads(rng, table, n):
    """Draw reads, no two of one shape: those are decided alike and traced as one."""
    reads, shapes = [], set()
    for _ in range(100 * n):
        dataset = table.datasets[int(rng.integers(len(table.datasets)))]
        slab = draw_slab(rng, dataset.extent)
        axes = _extents((slab.start, slab.stride, slab.count, slab.block))
        shape = (dataset.path, tuple(axis[1:] for axis in axes))
        if shape not in shapes and slab.n_elements > 1:
            shapes.add(shape)
            reads.append((dataset, slab))
        if len(reads) == n:
            break
    return reads


def chosen_by_table(table, path, reads):
    """Return the replica that serves each read by its table, 0 where that is the original."""
    source = _native.ReadFile(path)
    entries = {
        dataset.path: _native.TableEntry(dataclasses.replace(table, datasets=(dataset,)).to_bytes())
        for dataset in table.datasets
    }
    found = []
    for dataset, slab in reads:
        axes = (slab.start, slab.stride, slab.count, slab.block)
        number, _ = entries[dataset.path].choose(
            *axes, source, lambda k, dataset=dataset: _native.ReadFile(dataset.candidates[k].path)
        )
        found.append(0 if number is None else dataset.candidates[number].replica_id)
    return found


def served_under_connector(home, path, reads):
    """Return which replica served each read of a program, 0 where that was the original."""
    listed = [[d.path, s.start, s.stride, s.count, s.block] for d, s in reads]
    run_python(PROGRAM, path, json.dumps(listed), env=connector_environment(home.root))
    served = {}
    for spool in home.spool.glob(f"*{SUFFIX}"):
        read = read_spool(spool)
        names = {dataset.id: dataset.path for dataset in read.datasets}
        records = read.records
        for i in range(len(records)):
            rank = int(records.rank[i])
            axes = tuple(
                tuple(getattr(records, axis)[i, :rank].tolist())
                for axis in ("start", "stride", "count", "block")
            )
            served[names[int(records.dataset_id[i])], _extents(axes)] = max(
                0, int(records.served_by[i])
            )
    return [served[d.path, _extents((s.start, s.stride, s.count, s.block))] for d, s in reads]


def _extents(axes):
    """Return a selection in one form: what is one block has many."""
    return tuple(
        (start, 1, 1, count * block)
        if count == 1 or stride == block
        else (start, stride, count, block)
        for start, stride, count, block in zip(*axes, strict=True)
    )


@pytest.mark.parametrize("seed", range(max(1, N_READS // READS_OF_A_PROGRAM)))
def test_connector_and_sds_read_choose_as_the_table(seed, tmp_path, monkeypatch):
    home = Home(tmp_path / "home")
    home.create()
    rng = np.random.default_rng(seed)
    path, table = make_source(tmp_path, home, rng)
    reads = draw_reads(rng, table, READS_OF_A_PROGRAM)
    expected = chosen_by_table(table, path, reads)
    assert served_under_connector(home, path, reads) == expected
    monkeypatch.setenv("SDS_HOME", str(home.root))
    assert served_by_sds_read(path, reads, monkeypatch) == expected


def served_by_sds_read(path, reads, monkeypatch):
    """Return which replica served each read of `sds.read`, 0 where that was the original."""
    made = []
    decide = replica_reader._decide

    def noting(*arguments):
        decision = decide(*arguments)
        made.append(0 if decision.candidate is None else decision.candidate.replica_id)
        return decision

    monkeypatch.setattr(replica_reader, "_decide", noting)
    found, home = [], Home(Path(os.environ["SDS_HOME"]))
    with h5py.File(path) as file:
        for dataset, slab in reads:
            stored = file[dataset.path]
            described = describe_open_dataset(stored, path)
            result = np.empty(slab.shape, described.dtype)
            reader = replica_reader.Redirection(path, path.stat(), _native.ReadFile(path))
            reader.serve(home, described, slab, result, dataset=stored)
            found.append(made.pop())
    return found
