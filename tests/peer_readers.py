"""Files as peers write them, and a program that reads them with every peer.

    python peer_readers.py READER FILE ...

prints one line for each variable of each file: the digest of a dozen of its selections.
"""

import hashlib
import itertools
import sys

import h5py
import netCDF4
import numpy as np

# The suffixes of the files that each can read: PyTables knows nothing of dimension scales.
READERS = {
    "h5py": (".nc", ".h5"),
    "netCDF4": (".nc",),
    "tables": (".h5",),
    "xarray-netcdf4": (".nc",),
    "xarray-h5netcdf": (".nc", ".h5"),
}
SHAPES = {"line": (61,), "plane": (17, 23), "cube": (9, 14, 11), "four": (5, 7, 4, 6)}
TYPES = ("f4", "f8", "i2", "u1")


def make_netcdf(path, **storage):
    """Write a netCDF-4 file: dimensions, packed and masked variables, one without bounds."""
    random = np.random.default_rng(3)
    with netCDF4.Dataset(path, "w") as file:
        for name, shape in SHAPES.items():
            dimensions = tuple(f"{name}_{axis}" for axis in range(len(shape)))
            for dimension, length in zip(dimensions, shape, strict=True):
                file.createDimension(dimension, length)
            for dtype in TYPES:
                values = random.integers(0, 200, shape)
                variable = file.createVariable(
                    f"{name}_{dtype}", dtype, dimensions, fill_value=7, **storage
                )
                variable[:] = values.astype(dtype)
        packed = file.createVariable("packed", "i2", ("cube_0", "cube_1", "cube_2"), **storage)
        packed.scale_factor, packed.add_offset = 0.25, 100.0
        packed[:] = 100 + 0.25 * random.integers(-300, 300, SHAPES["cube"])


def make_hdf5(path, **storage):
    """Write an HDF5 file with big-endian, compound and boolean data."""
    values = np.random.default_rng(4).integers(-30000, 30000, SHAPES["cube"])
    with h5py.File(path, "w") as file:
        group = file.create_group("group")
        for name, data in {
            "big": values.astype(">i4"),
            "half": values.astype("f2"),
            "records": np.rec.fromarrays([values, values * 0.5], names="n,x"),
        }.items():
            group.create_dataset(name, data=data, **storage)


def make_files(folder):
    """Write the files, and return them."""
    chunks = {"chunks": (4, 5, 3)}
    made = {
        "contiguous.nc": lambda path: make_netcdf(path, contiguous=True),
        "compressed.nc": lambda path: make_netcdf(path, zlib=True, shuffle=True),
        "contiguous.h5": make_hdf5,
        "chunked.h5": lambda path: make_hdf5(path, **chunks, compression="gzip"),
    }
    for name, make in made.items():
        make(folder / name)
    return [folder / name for name in made]


def selections(shape):
    """Return selections: all, planes across each axis, strided boxes, single elements."""
    yield (slice(None),) * len(shape)
    for axis, length in enumerate(shape):
        for index in (0, length // 2):
            yield tuple(
                slice(index, index + 1) if k == axis else slice(None) for k in range(len(shape))
            )
    yield tuple(slice(length // 4, length - 1, 2) for length in shape)
    yield tuple(slice(1, 3) for _ in shape)
    yield tuple(slice(length - 1, length) for length in shape)


def each_variable(reader, path):
    """Yield the name, shape and a function that reads a selection, of every variable."""
    if reader == "h5py":
        with h5py.File(path) as file:
            found = []
            file.visititems(
                lambda name, item: (
                    found.append((name, item)) if isinstance(item, h5py.Dataset) else None
                )
            )
            for name, item in found:
                yield name, item.shape, item.__getitem__
    elif reader == "netCDF4":
        with netCDF4.Dataset(path) as file:
            for name, item in file.variables.items():
                yield name, item.shape, item.__getitem__
    elif reader == "tables":
        import tables

        with tables.open_file(path) as file:
            for item in file.walk_nodes("/", "Array"):
                yield item._v_pathname, item.shape, item.__getitem__
    else:
        import xarray

        engine = reader.partition("-")[2]
        options = {} if path.endswith(".nc") else {"phony_dims": "sort", "group": "group"}
        with xarray.open_dataset(path, engine=engine, **options) as file:
            for name, item in sorted(file.variables.items()):
                yield name, item.shape, lambda index, item=item: item[index].to_numpy()


def digest_of(shape, read):
    digest = hashlib.sha256()
    for index in selections(shape):
        values = np.ma.asarray(read(index))
        digest.update(repr((values.dtype, values.shape)).encode())
        digest.update(np.ascontiguousarray(values.filled()).tobytes())
        digest.update(np.ma.getmaskarray(values).tobytes())
    return digest.hexdigest()


def replica_orders(path):
    """Return (dataset, order) of replicas for a file's datasets: every order of a cube."""
    orders = []

    def add(name, item):
        if isinstance(item, h5py.Dataset) and item.dtype.kind != "O":
            rank = item.ndim
            every = itertools.permutations(range(rank)) if rank == 3 else [range(rank)[::-1]]
            orders.extend((f"/{name}", tuple(order)) for order in every)

    with h5py.File(path) as file:
        file.visititems(add)
    return orders


if __name__ == "__main__":
    reader, *files = sys.argv[1:]
    for file in files:
        for name, shape, read in each_variable(reader, file):
            print(file.rpartition("/")[2], name, shape, digest_of(shape, read))  # noqa: T201
