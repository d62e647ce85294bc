"""Files whose reads are redirected: real replicas, and tables that say what the test wants."""

import dataclasses
import os

import h5py
import numpy as np

from sds import _native
from sds.calibration.models_in_use import models_for_table
from sds.engine import MeasuredFileSystem, builtin_parameters, publish_measured
from sds.geometry import LOCAL_DISK_RAID, LOCAL_DISK_STRIPES, Box
from sds.hdf5.dataset import describe_open_dataset
from sds.hdf5.identity import identity_of
from sds.hdf5.type_digest import type_crc32c
from sds.organizer import plan_reorganization, reorganize
from sds.redirect.tables import (
    RedirectTable,
    TableCandidate,
    TableDataset,
    TableModel,
    publish_table,
)
from sds.trace import read_spool
from sds.trace.spool_format import SUFFIX


def settle(path):
    """Date a file back, so that its identity counts at once."""
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns - 10**10))


TMPFS = 0x01021994


def go_past_the_page_cache(path, home):
    """Have long cold reads go past the page cache, as if that had been measured to be faster.

    Returns whether the file's file system takes such reads.
    """
    kind = _native.ReadFile(path).file_system_type
    fast = dataclasses.replace(builtin_parameters(), is_measured=True, direct_s_per_byte=1e-11)
    publish_measured(home, [MeasuredFileSystem(mount_point="/", kind=kind, parameters=fast)])
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        return False
    return kind != TMPFS


def with_models(table, *, original_s, replica_s):
    """Return the table with predictions that are the same for every read."""

    def constant(seconds):
        return dataclasses.replace(
            table.datasets[0].model,
            calibrated=True,
            coefficients=(0.0, 0.0, 0.0),
            floor_s=seconds,
        )

    return dataclasses.replace(
        table,
        datasets=tuple(
            dataclasses.replace(
                dataset,
                model=constant(original_s),
                candidates=tuple(
                    dataclasses.replace(candidate, model=constant(replica_s))
                    for candidate in dataset.candidates
                ),
            )
            for dataset in table.datasets
        ),
    )


def stored_model(model):
    """Return a cost model as a table has it."""
    return TableModel(
        kind=model.kind.code,
        gap=model.gap.code,
        calibrated=model.calibrated,
        coefficients=model.coefficients,
        floor_s=model.floor_s,
    )


def table_of(source, replicas, *, paths=()):
    """Return the table of a source with these (number, replica)s, under the built-in models.

    paths
        Datasets to enter, beside those of the replicas.
    """
    layout = {"stripes": LOCAL_DISK_STRIPES, "raid": LOCAL_DISK_RAID}
    original, from_replica = map(stored_model, models_for_table(None))
    datasets = []
    with h5py.File(source) as handle:
        for path in dict.fromkeys([*(replica.dataset_path for _, replica in replicas), *paths]):
            found = handle[path]
            described = describe_open_dataset(found, source)
            file_type = found.id.get_type()
            candidates = tuple(
                TableCandidate(
                    replica_id=number,
                    path=replica.path,
                    identity=replica.identity,
                    data_offset_bytes=replica.data_offset_bytes,
                    metadata_crc32c=replica.metadata_crc32c,
                    order=replica.order,
                    model=from_replica,
                    chunk_shape=replica.chunk_shape,
                    stored_bytes=replica.stored_bytes if replica.chunk_shape else 0,
                    decode_s_per_byte=replica.decode_s_per_byte,
                    region=replica.region,
                    segments=replica.segments,
                    **layout,
                )
                for number, replica in replicas
                if replica.dataset_path == path
            )
            datasets.append(
                TableDataset(
                    path=path,
                    extent=described.extent,
                    element_size_bytes=described.element_size_bytes,
                    type_crc32c=type_crc32c(file_type),
                    type_class=int(file_type.get_class()),
                    data_offset_bytes=described.data_offset_bytes,
                    model=original,
                    candidates=candidates,
                    chunk_shape=described.chunk_shape,
                    stored_bytes=described.stored_bytes if described.chunk_shape else 0,
                    **layout,
                )
            )
    identity = replicas[0][1].source_identity if replicas else identity_of(source)
    return RedirectTable(source_path=source, source_identity=identity, datasets=tuple(datasets))


def stored_values(stored, order, region, segments):
    """Return the elements that a replica of an h5py dataset holds, as it holds them."""
    if segments is None:
        box = Box.whole(stored.shape) if region is None else region
        return np.ascontiguousarray(part_of(stored, box).transpose(order))
    tiles = np.zeros((len(segments.tiles), *segments.tile_shape), stored.dtype)
    for tile, number in zip(tiles, segments.tiles, strict=True):
        box = segments.box(number, stored.shape)
        tile[tuple(slice(n) for n in box.extent)] = part_of(stored, box)
    return np.ascontiguousarray(tiles.transpose(0, *(1 + axis for axis in order)))


def part_of(stored, box):
    """Return the elements of an h5py dataset in a box."""
    return stored[tuple(slice(a, a + n) for a, n in zip(box.start, box.extent, strict=True))]


def write_replica(
    source, path, order, home, *, number=1, region=None, segments=None, libver=None, **storage
):
    """Write a replica with h5py itself and return its candidate under the built-in model.

    Parameters
    ----------
    region
        Box of the source that it holds; None: everything.
    segments
        Tiles that it holds instead.
    storage
        Passed to h5py's create_dataset: chunks, compression, ...; contiguous without chunks.
    """
    home.replicas.mkdir(parents=True, exist_ok=True)
    file = home.replicas / f"{source.stem}{path.replace('/', '.')}-{number}.h5"
    if "chunks" in storage:
        storage = {"fletcher32": True} | storage
    with h5py.File(source) as original:
        stored = original[path]
        values = stored_values(stored, order, region, segments)
        if segments is not None:
            around = segments.around(stored.shape)
            region = None if around == Box.whole(stored.shape) else around
        file_type = stored.id.get_type()
        with h5py.File(file, "w", libver=libver or ("v110", "v110")) as replica:
            made = replica.create_dataset(path, shape=values.shape, dtype=file_type, **storage)
            made[...] = values
            offset = made.id.get_offset()
            chunks = made.chunks
            stored_bytes = made.id.get_storage_size()
            n_bytes = made.id.get_type().get_size() * made.size
    file.chmod(0o600)
    described = {"data_offset_bytes": 0, "metadata_crc32c": 0}
    if chunks is None:
        content = file.read_bytes()
        around = _native.crc32c(content[offset + n_bytes :], _native.crc32c(content[:offset]))
        described = {"data_offset_bytes": offset, "metadata_crc32c": around}
    else:
        described |= {"chunk_shape": chunks, "stored_bytes": stored_bytes}
    return TableCandidate(
        replica_id=number,
        path=file,
        identity=identity_of(file),
        order=tuple(order),
        model=stored_model(models_for_table(None)[1]),
        region=region,
        segments=segments,
        stripes=LOCAL_DISK_STRIPES,
        raid=LOCAL_DISK_RAID,
        **described,
    )


def publish_candidates(source, candidates, home, *, always=True):
    """Publish these {dataset path: candidates} of a source and return the table."""
    table = table_of(source, [], paths=candidates)
    table = dataclasses.replace(
        table,
        datasets=tuple(
            dataclasses.replace(dataset, candidates=tuple(candidates[dataset.path]))
            for dataset in table.datasets
        ),
    )
    if always:
        table = with_models(table, original_s=1.0, replica_s=0.0)
    publish_table(home, table)
    return table


def redirect(source, orders, home, *, always=True):
    """Build a replica per (dataset path, order), publish them, and return the table.

    Parameters
    ----------
    orders
        A third member may hold more for plan_reorganization: chunks, filters, region.
    always
        Let every read be predicted cheaper from the replica.
    """
    replicas = []
    for number, (path, order, *more) in enumerate(orders, start=1):
        options = more[0] if more else {}
        plan = plan_reorganization(source, path, order=order, home=home, **options)
        replicas.append((number, reorganize(plan, home=home)))
    table = table_of(source, replicas)
    if always:
        table = with_models(table, original_s=1.0, replica_s=0.0)
    publish_table(home, table)
    return table


def redirected_cube(directory, home):
    """Write cube.h5 with a float64 "cube" of (6, 7, 8), counted from 0, and redirect it."""
    path = directory / "cube.h5"
    with h5py.File(path, "w") as file:
        file["cube"] = np.arange(6.0 * 7 * 8).reshape(6, 7, 8)
    settle(path)
    redirect(path, [("/cube", (2, 0, 1))], home)
    return path


def grid_and_array(directory, shape):
    """Write the same values as "t" of a netCDF file and "a" of an HDF5 file; return their paths."""
    import netCDF4

    grid, array = directory / "grid.nc", directory / "array.h5"
    values = np.arange(np.prod(shape), dtype="f4").reshape(shape)
    with netCDF4.Dataset(grid, "w") as file:
        for name, length in zip(("time", "lat", "lon"), shape, strict=True):
            file.createDimension(name, length)
        file.createVariable("t", "f4", ("time", "lat", "lon"), contiguous=True)[:] = values
    with h5py.File(array, "w") as file:
        file["a"] = values
    settle(grid)
    settle(array)
    return grid, array


def write_many_replicas(path, n, home):
    """Add "00" and on, with replicas 1 to n in chunks of 1 MiB, and "whole", with n + 1."""
    random = np.random.default_rng(0)
    with h5py.File(path, "a", libver="latest") as file:
        for i in range(n):
            file[f"{i:02d}"] = random.integers(0, 9999, (64, 64, 64), "i4")
        file["whole"] = np.arange(64 * 64 * 512, dtype="f4").reshape(64, 64, 512)
    settle(path)
    candidates = {
        f"/{i:02d}": [
            write_replica(
                path, f"/{i:02d}", (2, 0, 1), home, number=i + 1,
                chunks=(64, 64, 64), compression="gzip", compression_opts=1, shuffle=True,
            )
        ]
        for i in range(n)
    }  # fmt: skip
    candidates["/whole"] = [write_replica(path, "/whole", (2, 0, 1), home, number=n + 1)]
    publish_candidates(path, candidates, home)


def replicas_served(home):
    """Return (path of the file, number of the replica) of all replicas that served reads."""
    served = set()
    for path in home.spool.glob(f"*{SUFFIX}"):
        spool = read_spool(path)
        files = {dataset.id: dataset.file for dataset in spool.datasets}
        records = spool.records
        pairs = zip(records.dataset_id.tolist(), records.served_by.tolist(), strict=True)
        served |= {(files[dataset], number) for dataset, number in pairs if number > 0}
    return served


def reads_by_replica(home, *, n_elements=None):
    """Return how many reads each replica served, 0 standing for the originals.

    Of these -1 counts those that SDS's engine has read. n_elements: of reads of so many alone.
    """
    served = {}
    for path in home.spool.glob(f"*{SUFFIX}"):
        records = read_spool(path).records
        mine = slice(None) if n_elements is None else records.n_elements == n_elements
        counts = zip(records.served_by[mine].tolist(), records.n_reads[mine].tolist(), strict=True)
        for replica, n in counts:
            served[replica] = served.get(replica, 0) + n
    return served
