"""Programs have the filters that they have natively: HDF5 looks for plugins where it did."""

import sys

import h5py
import hdf5plugin
import numpy as np
import pytest

from tests.hdf5_builds import hdf5_build
from tests.redirect.launch.test_preload import HERE, compare

# What each package knows of filters: those that HDF5 has, where it looks, and what it can read.
H5PY = """
import sys, h5py
print([h5py.h5pl.get(i) for i in range(h5py.h5pl.size())])
numbers = (1, 2, 3, 4, 307, 32001, 32004, 32008, 32015, 32026)
print([number for number in numbers if h5py.h5z.filter_avail(number)])
with h5py.File(sys.argv[1]) as file:
    for name in file:
        try:
            print(name, file[name][:].sum())
        except OSError as error:
            print(name, error)
"""
NETCDF4 = """
import os, sys, netCDF4
print(os.environ["HDF5_PLUGIN_PATH"])
with netCDF4.Dataset(sys.argv[1]) as file:
    for kind in ("zlib", "szip", "zstd", "bzip2", "blosc"):
        print(kind, getattr(file, f"has_{kind}_filter")() if kind != "zlib" else "")
    for name in file.variables:
        try:
            print(name, file[name][:].sum())
        except (OSError, RuntimeError) as error:
            print(name, error)
"""
TABLES = """
import sys, tables
tables.parameters.HDF5_DISABLE_ERRORS = True
print([tables.which_lib_version(name) for name in ("zlib", "lzo", "bzip2", "blosc", "blosc2")])
with tables.open_file(sys.argv[1]) as file:
    for node in file.iter_nodes("/"):
        try:
            print(node._v_name, node[:].sum())
        except tables.HDF5ExtError as error:
            print(node._v_name, "is not read")
"""
BOTH = H5PY.replace("import sys, h5py", "import sys, netCDF4, h5py")
PROGRAMS = {"h5py": H5PY, "netCDF4": NETCDF4, "tables": TABLES, "h5py after netCDF4": BOTH}


@pytest.fixture(scope="module")
def filtered(tmp_path_factory):
    """A file with a dataset in each of some filters."""
    path = tmp_path_factory.mktemp("filters") / "filtered.h5"
    filters = {
        "deflate": {"compression": "gzip"}, "zstd": hdf5plugin.Zstd(), "blosc": hdf5plugin.Blosc(),
        "lz4": hdf5plugin.LZ4(), "bitshuffle": hdf5plugin.Bitshuffle(), "none": {},
    }  # fmt: skip
    with h5py.File(path, "w") as file:
        for name, options in filters.items():
            file.create_dataset(name, data=np.arange(1000, dtype="i4"), chunks=(100,), **options)
    return path


@pytest.mark.parametrize("plugins", [None, "", hdf5plugin.PLUGIN_PATH, "/none"])
@pytest.mark.parametrize("package", PROGRAMS)
def test_a_package_has_the_filters_that_it_has_natively(package, plugins, filtered, home):
    variables = {} if plugins is None else {"HDF5_PLUGIN_PATH": plugins}
    command = [sys.executable, "-W", "ignore", "-c", PROGRAMS[package], filtered]
    native, served = compare(command, home, **variables)
    assert native[0] == 0, native
    assert served
    # What is compared differs with the variable, so that it says something.
    reads_zstd = b"zstd 499500" in native[1]
    assert reads_zstd == (plugins == hdf5plugin.PLUGIN_PATH or (
        plugins is None and "netCDF4" in package
    )), native  # fmt: skip


@pytest.mark.parametrize("plugins", [None, "", hdf5plugin.PLUGIN_PATH, "/none"])
@pytest.mark.parametrize("version", ["1.14.6", "2.0.0", "2.2.0"])
def test_a_program_in_c_has_the_filters_that_it_has_natively(version, plugins, home, tmp_path):
    program = hdf5_build(version).compile(HERE / "launched.c", tmp_path / "program")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", data=[1, 2, 3, 4], dtype="i4")
    variables = {} if plugins is None else {"HDF5_PLUGIN_PATH": plugins}
    native, served = compare([program, tmp_path / "x.h5", "read"], home, **variables)
    assert served == [version]
    assert (b"32015: 1" in native[1]) == (plugins == hdf5plugin.PLUGIN_PATH)
