"""Reads by HDF5's C interface that Python packages never make, native and under the connector.

Results, buffers and what is printed are those of the native library. Only where a call fails, a C
program that has errors printed sees them twice: each layer of a VOL prints its own.
"""

import h5py
import numpy as np
import pytest

from sds.home import Home
from tests.redirected import reads_by_replica, redirect, settle
from tests.under_connector import connector_environment, native_environment, run_python

# HDF5 of h5py's wheel, without h5py, which would turn the printing of errors off.
C_PROGRAM = """
    import ctypes as C, glob, importlib.util, os, sys
    package = os.path.dirname(importlib.util.find_spec("h5py").origin)
    lib = C.CDLL(glob.glob(package + "/../h5py.libs/libhdf5-*")[0])
    lib.H5open()
    hid, sizes = C.c_int64, C.POINTER(C.c_uint64)

    def function(name, *arguments, result=hid):
        found = lib[name]
        found.restype, found.argtypes = result, arguments
        return found

    def variable(name):
        return hid.in_dll(lib, name).value

    def numbers(*values, of=C.c_uint64):
        return (of * len(values))(*values)

    H5Dread = function("H5Dread", hid, hid, hid, hid, hid, C.c_void_p, result=C.c_int)
    H5Screate_simple = function("H5Screate_simple", C.c_int, sizes, sizes)
    H5Sselect_hyperslab = function(
        "H5Sselect_hyperslab", hid, C.c_int, *[sizes] * 4, result=C.c_int)
    H5Soffset_simple = function(
        "H5Soffset_simple", hid, C.POINTER(C.c_int64), result=C.c_int)
    double = variable("H5T_NATIVE_DOUBLE_g")
    file = function("H5Fopen", C.c_char_p, C.c_uint, hid)(sys.argv[1].encode(), 0, 0)
    H5Dopen = function("H5Dopen2", hid, C.c_char_p, hid)
    cube, unwritten = H5Dopen(file, b"/cube", 0), H5Dopen(file, b"/unwritten", 0)
    buffer = (C.c_double * 5000)(*[-1.0] * 5000)

    def space(*extent):
        return H5Screate_simple(len(extent), numbers(*extent), None)

    def plane(k, extent=(9, 14, 11)):
        made = space(*extent)
        H5Sselect_hyperslab(made, 0, numbers(0, 0, k), None, numbers(9, 14, 1), None)
        return made

    def moved(made, *by):
        H5Soffset_simple(made, numbers(*by, of=C.c_int64))
        return made

    def part(made, start, count):
        H5Sselect_hyperslab(made, 0, numbers(start), None, numbers(count), None)
        return made

    packed, defaults = space(126), 0
    transfer = function("H5Pcreate", hid)(variable("H5P_CLS_DATASET_XFER_ID_g"))
    result = H5Dread(CALL)
    print(result, hash(bytes(buffer)))
"""

READS = {
    "plain": "cube, double, packed, plane(3), defaults, buffer",
    "a transfer property list": "cube, double, packed, plane(3), transfer, buffer",
    "never written": "unwritten, double, 0, 0, defaults, buffer",
    "offset in the file": "cube, double, packed, moved(plane(3), 0, 0, 2), defaults, buffer",
    "offset in memory": (
        "cube, double, moved(part(space(136), 0, 126), 5), plane(3), defaults, buffer"
    ),
    "memory like the dataset": "cube, double, 0, plane(3), defaults, buffer",
    "extent that is greater": "cube, double, packed, plane(3, (9, 14, 20)), defaults, buffer",
    "extent that is less": "cube, double, packed, plane(7, (9, 14, 5)), defaults, buffer",
    "outside of the dataset": "cube, double, packed, plane(15, (9, 14, 20)), defaults, buffer",
    "no buffer": "cube, double, packed, plane(3), defaults, None",
    "too little memory": "cube, double, space(7), plane(3), defaults, buffer",
    "no type": "cube, 1234567, packed, plane(3), defaults, buffer",
    "a string type": "cube, variable('H5T_C_S1_g'), packed, plane(3), defaults, buffer",
    "no space": "cube, double, double, plane(3), defaults, buffer",
}
SERVED = {
    "plain",
    "a transfer property list",
    "offset in the file",
    "offset in memory",
    "memory like the dataset",
}


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path / "home")
    home.create()
    return home


@pytest.fixture
def source(tmp_path, home):
    path = tmp_path / "source.h5"
    with h5py.File(path, "w") as file:
        file["cube"] = np.arange(9 * 14 * 11, dtype="f8").reshape(9, 14, 11)
        file.create_dataset("unwritten", (4, 5, 6), "f8")
    settle(path)
    redirect(path, [("/cube", (2, 0, 1)), ("/unwritten", (2, 1, 0))], home)
    return path


@pytest.mark.parametrize("name", READS)
def test_a_read_is_the_native_one(name, source, home):
    program = C_PROGRAM.replace("CALL", READS[name])
    fixed = {"PYTHONHASHSEED": "0"}
    native = run_python(program, source, env=native_environment(**fixed))
    under = run_python(program, source, env=connector_environment(home.root, **fixed))
    assert under.stdout == native.stdout
    assert bool(under.stderr) == bool(native.stderr)
    served = reads_by_replica(home)
    assert any(replica > 0 for replica in served) == (name in SERVED)
