"""Packages that bring HDF5, alone and together: each is served from the same replica."""

import h5py
import numpy as np
import pytest
import xarray

from tests.redirected import reads_by_replica, redirect, settle
from tests.under_connector import connector_environment, decisions, native_environment, run_python

SHAPE = (12, 10, 8)

TOGETHER = """
    import sys
    import h5py, netCDF4, tables
    path = sys.argv[1]
    with h5py.File(path) as one, netCDF4.Dataset(path) as two, tables.open_file(path) as three:
        for k in range(8):
            planes = one["cube"][:, :, k], two["cube"][:, :, k], three.root.cube[:, :, k]
            print(*(plane.tolist() for plane in planes), sep="\\n")
        print(one["cube"][3, 4], two["cube"][3, 4], three.root.cube[3, 4])
"""
TAKING_TURNS = """
    import sys, threading
    import h5py, netCDF4, tables
    path, found = sys.argv[1], {}

    def read(name, open_file, get):
        sums = []
        for k in list(range(8)) * 5:
            with open_file(path) as file:
                sums.append(float(get(file)[:, :, k].sum()))
        found[name] = sums

    packages = (
        ("h5py", h5py.File, lambda file: file["cube"]),
        ("netCDF4", netCDF4.Dataset, lambda file: file["cube"]),
        ("tables", tables.open_file, lambda file: file.root.cube),
    )
    threads = [threading.Thread(target=read, args=package) for package in packages]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(sorted(found.items()))
"""
XARRAY = """
    import sys
    import xarray
    path, engine, target, chunks = sys.argv[1:]
    chunks = {"z": 4} if chunks == "dask" else None
    with xarray.open_dataset(path, engine=engine, chunks=chunks) as data:
        print(data["cube"].dims, data["cube"].attrs, data.attrs)
        print(data["cube"][:, :, 3].values.tolist())
        print(data["cube"].sel(x=4).mean("y").values.tolist())
        print(data["cube"].isel(z=slice(1, 9, 2), x=[1, 5]).values.tolist())
        data.load().to_netcdf(target, engine=engine)
    with xarray.open_dataset(target, engine=engine) as copy:
        print(copy["cube"].equals(data["cube"]), list(copy.coords))
"""


@pytest.fixture
def cube(tmp_path, home):
    path = tmp_path / "cube.nc"
    values = np.arange(np.prod(SHAPE), dtype=float).reshape(SHAPE)
    xarray.Dataset(
        {"cube": (("z", "y", "x"), values, {"unit": "K"})},
        {"x": np.arange(8), "z": np.linspace(0, 1, 12)},
        {"title": "a cube"},
    ).to_netcdf(path, engine="h5netcdf")
    with h5py.File(path) as file:
        assert file["cube"].chunks is None
    settle(path)
    redirect(path, [("/cube", (2, 0, 1))], home)
    return path


def test_three_packages_in_one_process_read_the_same_file(cube, home, tmp_path):
    log = tmp_path / "log"
    native = run_python(TOGETHER, cube, env=native_environment())
    under = run_python(TOGETHER, cube, env=connector_environment(home.root, SDS_DEBUG=log))
    assert (under.stdout, under.stderr) == (native.stdout, native.stderr)
    versions = {entry[3] for entry in decisions(log) if entry[0] == "bound"}
    assert versions == {"2.0.0", "2.2.0", "1.14.6"}
    assert reads_by_replica(home) == {0: 3, 1: 24}  # what lies in one piece is read there


def test_three_packages_in_threads(cube, home):
    native = run_python(TAKING_TURNS, cube, env=native_environment())
    under = run_python(TAKING_TURNS, cube, env=connector_environment(home.root))
    assert (under.stdout, under.stderr) == (native.stdout, native.stderr)
    assert reads_by_replica(home) == {1: 120}


@pytest.mark.parametrize("chunks", ["none", "dask"])
@pytest.mark.parametrize("engine", ["h5netcdf", "netcdf4"])
def test_xarray(engine, chunks, cube, home, tmp_path):
    arguments = (cube, engine, tmp_path / "copy.nc", chunks)
    native = run_python(XARRAY, *arguments, env=native_environment())
    under = run_python(XARRAY, *arguments, env=connector_environment(home.root))
    assert (under.stdout, under.stderr) == (native.stdout, native.stderr)
    assert "True" in under.stdout.splitlines()[-1]
    assert reads_by_replica(home)[1] >= 3
