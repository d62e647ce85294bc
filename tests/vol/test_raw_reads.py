"""Reads by HDF5's C interface that Python packages never make, native and under the connector.

Results, buffers and what is printed are those of the native library. Only where a call fails, a C
program that has errors printed sees them twice: each layer of a VOL prints its own.
"""

import h5py
import numpy as np
import pytest

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
    H5Sselect_elements = function(
        "H5Sselect_elements", hid, C.c_int, C.c_size_t, sizes, result=C.c_int)
    double, char = variable("H5T_NATIVE_DOUBLE_g"), variable("H5T_NATIVE_SCHAR_g")
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

    def points(made, *places):
        flat = numbers(*[index for place in places for index in place])
        H5Sselect_elements(made, 0, len(places), flat)
        return made

    def two_planes(k, other):
        made = plane(k)
        H5Sselect_hyperslab(made, 1, numbers(0, 0, other), None, numbers(9, 14, 1), None)
        return made

    # Transfer properties.
    calls = []

    @C.CFUNCTYPE(C.c_int, C.c_int, hid, hid, C.c_void_p, C.c_void_p, C.c_void_p)
    def exception(kind, source, target, from_, to, data):
        calls.append(kind)
        C.memset(to, 77, 1)
        return 1   # H5T_CONV_HANDLED

    def with_property(name, *values):
        made = function("H5Pcreate", hid)(variable("H5P_CLS_DATASET_XFER_ID_g"))
        assert lib[name](hid(made), *values) >= 0
        return made

    packed, defaults = space(126), 0
    transfer = function("H5Pcreate", hid)(variable("H5P_CLS_DATASET_XFER_ID_g"))
    result = H5Dread(CALL)
    print(result, hash(bytes(buffer)), calls)
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
    "two planes": "cube, double, space(252), two_planes(3, 7), defaults, buffer",
    "points": "cube, double, space(2), points(space(9, 14, 11), (8, 2, 1), (0, 0, 5)), 0, buffer",
    "one block of memory": "cube, double, 1, plane(3), defaults, buffer",
    "one block of memory for points": (
        "cube, double, 1, points(space(9, 14, 11), (8, 2, 1), (0, 0, 5)), defaults, buffer"
    ),
    "points in memory": (
        "cube, double, points(space(20), (9,), (3,)), "
        "points(space(9, 14, 11), (8, 2, 1), (0, 0, 5)), defaults, buffer"
    ),
    "a point in memory twice": (
        "cube, double, points(space(20), (9,), (9,)), "
        "points(space(9, 14, 11), (8, 2, 1), (0, 0, 5)), defaults, buffer"
    ),
    "points like the dataset": (
        "cube, double, 0, points(space(9, 14, 11), (3, 2, 1), (0, 0, 5)), defaults, buffer"
    ),
    "nothing": "cube, double, space(0), part(space(9, 14, 11), 0, 0), defaults, buffer",
    "memory that is too short": (
        "cube, double, part(space(100), 0, 126), plane(3), defaults, buffer"
    ),
    "points outside": (
        "cube, double, space(1), moved(points(space(9, 14, 11), (8, 2, 1)), 2, 0, 0), 0, buffer"
    ),
    "no memory space": "cube, double, 2, plane(3), defaults, buffer",
    "a selection in the properties": (
        "cube, double, packed, 2, with_property('H5Pset_dataset_io_hyperslab_selection', "
        "C.c_uint(3), C.c_int(0), numbers(0, 0, 3), None, numbers(9, 14, 1), None), buffer"
    ),
    "values that do not fit": "cube, char, packed, plane(3), defaults, buffer",
    "values that do not fit, watched": (
        "cube, char, packed, plane(3), with_property('H5Pset_type_conv_cb', exception, None), "
        "buffer"
    ),
    "points watched": (
        "cube, char, space(2), points(space(9, 14, 11), (8, 2, 1), (0, 0, 5)), "
        "with_property('H5Pset_type_conv_cb', exception, None), buffer"
    ),
    "a small buffer": (
        "cube, char, packed, plane(3), "
        "with_property('H5Pset_buffer', C.c_size_t(1024), None, None), buffer"
    ),
    "a buffer that holds no element": (
        "cube, char, packed, plane(3), "
        "with_property('H5Pset_buffer', C.c_size_t(7), None, None), buffer"
    ),
    "a buffer that would hold no element": (
        "cube, double, packed, plane(3), "
        "with_property('H5Pset_buffer', C.c_size_t(7), None, None), buffer"
    ),
    "no checksums": (
        "cube, char, packed, two_planes(3, 3), with_property('H5Pset_edc_check', C.c_int(0)), "
        "buffer"
    ),
    "a transform": (
        "cube, double, packed, plane(3), with_property('H5Pset_data_transform', b'2*x+1'), buffer"
    ),
    "a transform of points": (
        "cube, double, space(1), points(space(9, 14, 11), (8, 2, 1)), "
        "with_property('H5Pset_data_transform', b'2*x+1'), buffer"
    ),
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
    "a buffer that would hold no element",
    "a transfer property list",
    "offset in the file",
    "offset in memory",
    "memory like the dataset",
    "two planes",
    "points",
    "one block of memory",
    "one block of memory for points",
    "points in memory",
    "points like the dataset",
    "values that do not fit",
    "a small buffer",
    "no checksums",
}


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
