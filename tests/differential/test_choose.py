"""Connector, `sds.read`, advice and the redirect table choose what serves a read alike."""

import dataclasses
import json
import math
import os
from pathlib import Path

import h5py
import numpy as np
import pytest

from sds import _native
from sds.client import replica_reader
from sds.explain.explanation import compare
from sds.explain.hypothetical_layout import HypotheticalLayout
from sds.geometry import (
    Box,
    Filter,
    Hyperslab,
    RaidLayout,
    ReplicaLayout,
    SegmentList,
    StripeLayout,
)
from sds.hdf5.dataset import describe_open_dataset
from sds.hdf5.identity import FileIdentity
from sds.home import Home
from sds.recommender.candidates.cost_matrix import read_costs
from sds.recommender.candidates.replica_cost import size_bytes
from sds.recommender.models.cost_model import (
    CostModel,
    GapKind,
    HeldoutError,
    ModelKind,
    serving_margin,
)
from sds.recommender.models.read_cost import StoredArray
from sds.redirect.tables import (
    RedirectTable,
    TableCandidate,
    TableDataset,
    TableModel,
    publish_table,
)
from sds.trace import read_spool
from sds.trace.spool_format import SUFFIX
from tests.redirected import settle, table_of, write_replica
from tests.sizes import repeated
from tests.under_connector import connector_environment, run_python

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


def draw_segments(rng, extent):
    """Draw tiles, most of a dataset, in up to three segments."""
    shape = tuple(int(rng.integers(max(1, n // 4), n + 1)) for n in extent)
    n_tiles = math.prod(-(-n // t) for n, t in zip(extent, shape, strict=True))
    tiles = rng.permutation(n_tiles)[: max(1, n_tiles - int(rng.integers(0, 3)))]
    cuts = np.unique(rng.integers(1, len(tiles) + 1, 2))
    lengths = np.diff([0, *cuts[cuts < len(tiles)], len(tiles)])
    return SegmentList(
        tile_shape=shape, tiles=tuple(tiles.tolist()), lengths=tuple(lengths.tolist())
    )


def draw_candidate(rng, path, dataset, home, number):
    name, extent = dataset.path, dataset.extent
    order = tuple(int(axis) for axis in rng.permutation(len(extent)))
    if rng.random() < 0.25:
        segments = draw_segments(rng, extent)
        return write_replica(path, name, order, home, number=number, segments=segments)
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


def chosen_by_table(table, path, reads, *, cold=False):
    """Return the replica that serves each read by its table, 0 where that is the original.

    cold: whatever the page cache holds.
    """
    source = None if cold else _native.ReadFile(path)
    entries = {
        dataset.path: _native.TableEntry(dataclasses.replace(table, datasets=(dataset,)).to_bytes())
        for dataset in table.datasets
    }
    found = []
    for dataset, slab in reads:
        axes = (slab.start, slab.stride, slab.count, slab.block)
        number, _ = entries[dataset.path].choose(
            *axes,
            source,
            None
            if cold
            else lambda k, dataset=dataset: _native.ReadFile(dataset.candidates[k].path),
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


@pytest.mark.parametrize("seed", range(repeated(3, 30)))
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
    slices = [read for read in reads if "*" not in str(read[1])]  # none has blocks and gaps
    assert explained(home, path, slices) == chosen_by_table(table, path, slices, cold=True)


def explained(home, path, reads):
    """Return which replica `sds explain` names for each read, 0 for the original."""
    found = []
    for dataset, slab in reads:
        (one,) = compare(path, dataset.path, str(slab), [HypotheticalLayout()], home=home)
        found.append(0 if one.served_by is None else one.served_by.replica_id)
    return found


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


IDENTITY = FileIdentity(inode=7, size_bytes=1 << 40, mtime_ns=1, ctime_ns=1)
GZIP = (Filter(code=1, name="gzip", options=(1,)),)
DISKS = ("stripes", "raid")


def draw_equation(rng, *, calibrated):
    drawn = draw_model(rng)
    error = float(rng.uniform(0.05, 0.6))
    heldout = HeldoutError(
        median=error / 2, p95=2 * error, rms=error, rank_correlation=0.9, n_patterns=30
    )
    return CostModel(
        kind=next(kind for kind in ModelKind if kind.code == drawn.kind),
        gap=next(gap for gap in GapKind if gap.code == drawn.gap),
        coefficients=drawn.coefficients,
        floor_s=drawn.floor_s,
        calibrated=calibrated,
        heldout=heldout if calibrated else None,
    )


def draw_array(rng):
    extent, size = draw_extent(rng), int(rng.choice([1, 4, 8, 16]))
    storage = {"data_offset_bytes": int(rng.choice([2048, 6152]))}
    if rng.random() < 0.4:
        chunks = tuple(int(rng.integers(1, n + 1)) for n in extent)
        stored = math.prod(-(-n // c) * c for n, c in zip(extent, chunks, strict=True)) * size
        storage = {
            "chunks": chunks,
            "stored_bytes": max(1, int(stored * rng.uniform(0.1, 1))),
            "decode_s_per_byte": float(rng.choice([0, 2e-9])),
        }
    return StoredArray(extent=extent, element_size_bytes=size, **storage, **draw_disks(rng))


def draw_layout(rng, extent, *, is_contiguous):
    order = tuple(int(axis) for axis in rng.permutation(len(extent)))
    region = Box.whole(extent)
    if rng.random() < 0.3:
        low = [int(rng.integers(0, max(1, n // 3))) for n in extent]
        region = Box(
            start=tuple(low),
            extent=tuple(int(rng.integers(1, n - a + 1)) for n, a in zip(extent, low, strict=True)),
        )
    if is_contiguous or rng.random() < 0.5:
        return ReplicaLayout(order=order, region=region)
    stored = [region.extent[axis] for axis in order]
    return ReplicaLayout(
        order=order,
        region=region,
        chunk_shape=tuple(int(rng.integers(1, n + 1)) for n in stored),
        filters=GZIP if rng.random() < 0.5 else (),
    )


def table_model(model, margin=1.0):
    return TableModel(
        kind=model.kind.code,
        gap=model.gap.code,
        calibrated=model.calibrated,
        coefficients=tuple(margin * one for one in model.coefficients),
        floor_s=margin * model.floor_s,
    )


def entry_of(array, models, layouts):
    """Return the entry of a table that was published with these replicas."""
    original, engine = models
    disks = {name: getattr(array, name) for name in DISKS}
    candidates = []
    for number, layout in enumerate(layouts):
        chunks = layout.chunk_shape
        model = original if chunks else engine
        candidates.append(
            TableCandidate(
                replica_id=number + 1,
                path=Path(f"/replica/{number}"),
                identity=IDENTITY,
                data_offset_bytes=0
                if chunks
                else _native.replica_data_offset(size_bytes(layout, array)),
                metadata_crc32c=0,
                order=layout.order,
                model=table_model(model, serving_margin(original, model)),
                chunk_shape=chunks,
                stored_bytes=size_bytes(layout, array) if chunks else 0,
                decode_s_per_byte=array.decode_s_per_byte if layout.filters else 0.0,
                region=layout.region,
                **disks,
            )
        )
    chunked = array.chunks is not None
    dataset = TableDataset(
        path="/x",
        extent=array.extent,
        element_size_bytes=array.element_size_bytes,
        type_crc32c=0,
        type_class=1,
        data_offset_bytes=None if chunked else array.data_offset_bytes,
        model=table_model(original),
        candidates=tuple(candidates),
        chunk_shape=array.chunks,
        stored_bytes=array.stored_chunk_bytes * array.n_chunks if chunked else 0,
        decode_s_per_byte=array.decode_s_per_byte if chunked else 0.0,
        **disks,
    )
    table = RedirectTable(
        source_path=Path("/source"), source_identity=IDENTITY, datasets=(dataset,)
    )
    return _native.TableEntry(table.to_bytes())


@pytest.mark.parametrize("seed", range(repeated(20, 200)))
def test_advice_is_what_a_table_says(seed):
    """The same replica, and the same seconds, of reads that nothing is known in memory of.

    One replica at least is contiguous: a table has the engine's model from that.
    """
    rng = np.random.default_rng(seed)
    n_served = 0
    for _ in range(100):
        array = draw_array(rng)
        calibrated = bool(rng.integers(2))
        original = draw_equation(rng, calibrated=calibrated)
        engine = draw_equation(rng, calibrated=True) if calibrated else original
        layouts = [
            draw_layout(rng, array.extent, is_contiguous=i == 0)
            for i in range(int(rng.integers(1, 5)))
        ]
        entry = entry_of(array, (original, engine), layouts)
        slab = draw_slab(rng, array.extent)
        costs = read_costs(array, (original, engine), [slab], [1], layouts)
        axes = (slab.start, slab.stride, slab.count, slab.block)
        chosen, _ = entry.choose(*axes, None, None)
        assert costs.chosen()[0] == (-1 if chosen is None else chosen), (array, layouts, slab)
        by_hdf5, _, *candidates = entry.seconds(*axes)
        assert by_hdf5 == pytest.approx(costs.by_hdf5[0], rel=1e-9)
        for compared, seconds, found in zip(
            costs.compared[0], costs.replicas[0], candidates, strict=True
        ):
            assert (found >= 0) == math.isfinite(seconds)
            if math.isfinite(compared):
                assert compared == pytest.approx(found, rel=1e-9)
        n_served += chosen is not None
    assert 10 < n_served < 90
