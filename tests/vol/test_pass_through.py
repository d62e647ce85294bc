"""The connector loads into unmodified wheels, and programs do not notice."""

import pytest

from sds.redirect.launch.connector import plugin_path
from tests.under_connector import (
    connector_environment,
    decisions,
    native_environment,
    run_python,
)

THREE_WHEELS = """
    import sys
    import h5py, netCDF4, numpy as np, tables
    directory = sys.argv[1]

    with h5py.File(f"{directory}/a.h5", "w") as file:
        file["x"] = np.arange(1000.0).reshape(10, 100)
        file["names"] = np.array([b"a", b"bb"], dtype=object)
        file["reference"] = file["x"].ref
        file["region"] = file["x"].regionref[2:4, :5]
        file["soft"] = h5py.SoftLink("/x")
        file["outside"] = h5py.ExternalLink(f"{directory}/b.h5", "/y")
        file["x"].attrs["unit"] = "keV"
    with h5py.File(f"{directory}/b.h5", "w") as file:
        file.create_dataset("y", data=np.arange(6), chunks=(2,), compression="gzip")
    with h5py.File(f"{directory}/a.h5") as file:
        print(file["soft"][3, 4], file["outside"][:], file["names"][1])
        print(file[file["reference"][()]][1, 1], file[file["region"][()]].shape)
        print(file["x"].attrs["unit"], file["x"].id.get_offset(), list(file))
        outside = file["outside"].id
        print(outside.get_chunk_info(0), outside.read_direct_chunk((0,))[1][:2])
    with h5py.File(f"{directory}/a.h5", "a") as file:
        del file["soft"]
        file.copy("x", "again")
        file["x"].attrs.modify("unit", "MeV")
        print(sorted(file), file["again"][-1, -1])
    with netCDF4.Dataset(f"{directory}/n.nc", "w") as file:
        file.createDimension("time", 5)
        file.createVariable("v", "f8", ("time",))[:] = np.arange(5.0)
    with netCDF4.Dataset(f"{directory}/n.nc") as file:
        print(file["v"][1:3])
    with tables.open_file(f"{directory}/t.h5", "w") as file:
        file.create_array("/", "a", np.arange(9))
    with tables.open_file(f"{directory}/t.h5") as file:
        print(file.root.a[4], file.list_nodes("/"))
"""

ERRORS = """
    import os, sys
    import h5py
    directory = sys.argv[1]

    def tell(name, mode):
        try:
            h5py.File(name, mode).close()
        except OSError as error:
            print(type(error).__name__, error.errno, mode)
        else:
            print("opened", mode)

    with open(f"{directory}/text", "w") as file:
        file.write("not HDF5")
    tell(f"{directory}/none.h5", "r")
    tell(f"{directory}/none.h5", "r+")
    tell(f"{directory}/text", "r")
    tell(f"{directory}/new.h5", "a")
    tell(f"{directory}/new.h5", "a")
    tell(f"{directory}/new.h5", "x")
    tell(f"{directory}/no/such/directory.h5", "w")
    try:
        h5py.File(f"{directory}/new.h5")["missing"]
    except KeyError as error:
        print(error)
    print(h5py.is_hdf5(f"{directory}/new.h5"), h5py.is_hdf5(f"{directory}/text"))
"""

# The library that h5py has loaded, called as a C program would.
LIBRARY = """
    import ctypes, sys
    import h5py, numpy as np
    with open("/proc/self/maps") as maps:
        path = next(line[line.index("/") :].rstrip() for line in maps if "/libhdf5-" in line)
    hdf5 = ctypes.CDLL(path)
"""

CAPABILITIES = (
    LIBRARY
    + """
    hdf5.H5Pget_vol_cap_flags.argtypes = [ctypes.c_int64, ctypes.POINTER(ctypes.c_uint64)]
    flags = ctypes.c_uint64()
    with h5py.File(sys.argv[1] + "/f.h5", "w") as file:
        for access in (h5py.h5p.create(h5py.h5p.FILE_ACCESS), file.id.get_access_plist()):
            assert hdf5.H5Pget_vol_cap_flags(access.id, ctypes.byref(flags)) >= 0
            print(bin(flags.value))
"""
)

TOKENS = (
    LIBRARY
    + """

    class Token(ctypes.Structure):
        _fields_ = [("bytes", ctypes.c_uint8 * 16)]

    hid = ctypes.c_int64
    hdf5.H5Otoken_to_str.argtypes = [hid, ctypes.POINTER(Token), ctypes.POINTER(ctypes.c_char_p)]
    hdf5.H5Otoken_from_str.argtypes = [hid, ctypes.c_char_p, ctypes.POINTER(Token)]
    hdf5.H5Otoken_cmp.argtypes = [hid, ctypes.POINTER(Token), ctypes.POINTER(Token),
                                  ctypes.POINTER(ctypes.c_int)]
    hdf5.H5Oopen_by_token.argtypes = [hid, Token]
    hdf5.H5Oopen_by_token.restype = hid
    hdf5.H5Oget_info3.argtypes = [hid, ctypes.c_void_p, ctypes.c_uint]
    hdf5.H5Oclose.argtypes = [hid]

    def token_of(identifier):
        # H5O_info2_t begins with the file number (unsigned long), then the token.
        info = (ctypes.c_uint8 * 512)()
        assert hdf5.H5Oget_info3(identifier, info, 1) >= 0
        return Token.from_buffer_copy(bytes(info[8:24]))

    with h5py.File(sys.argv[1] + "/t.h5", "w") as file:
        file["x"], file["y"] = np.arange(3), np.arange(4)
        datasets = [file["x"], file["y"]]
        x, y = (token_of(dataset.id.id) for dataset in datasets)
        order = ctypes.c_int(7)
        for left, right in ((x, x), (x, y), (y, x)):
            assert hdf5.H5Otoken_cmp(file.id.id, left, right, ctypes.byref(order)) >= 0
            print("compare", order.value)
        text = ctypes.c_char_p()
        assert hdf5.H5Otoken_to_str(file.id.id, x, ctypes.byref(text)) >= 0
        print("text", text.value)
        again = Token()
        assert hdf5.H5Otoken_from_str(file.id.id, text, ctypes.byref(again)) >= 0
        print("same", bytes(again.bytes) == bytes(x.bytes))
        opened = hdf5.H5Oopen_by_token(file.id.id, y)
        print("opened", h5py.h5i.get_name(h5py.h5d.DatasetID(opened)))
"""
)


@pytest.fixture
def home(tmp_path):
    path = tmp_path / "home"
    path.mkdir()
    return path


def both(source, tmp_path, home):
    """Return what the program prints natively and under the connector."""
    printed = []
    for name, env in (("native", native_environment()), ("sds", connector_environment(home))):
        directory = tmp_path / name
        directory.mkdir()
        printed.append(run_python(source, directory, env=env).stdout)
    return printed


def test_three_wheels_in_one_process(tmp_path, home):
    log = tmp_path / "log"
    native = run_python(THREE_WHEELS, tmp_path, env=native_environment())
    connector = run_python(
        THREE_WHEELS, tmp_path, env=connector_environment(home, SDS_DEBUG=log)
    )  # fmt: skip
    assert connector.stdout == native.stdout
    assert connector.stderr == native.stderr
    versions = {line[3] for line in decisions(log) if line[0] == "bound"}
    assert len(versions) == 3, versions


def test_errors_are_those_of_the_native_library(tmp_path, home):
    native, connector = both(ERRORS, tmp_path, home)
    assert connector == native
    assert "FileNotFoundError 2 r" in connector
    assert "FileExistsError 17 x" in connector


def test_errors_of_a_native_program_that_merely_finds_the_plugin(tmp_path):
    # After a failed open HDF5 loads every connector on its path, to ask whether it can read the
    # file.
    path = plugin_path().parent
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    alone = run_python(ERRORS, tmp_path / "a", env=native_environment())
    found = run_python(ERRORS, tmp_path / "b", env=native_environment(HDF5_PLUGIN_PATH=path))
    assert found.stdout == alone.stdout


def test_capabilities_are_those_of_the_native_library(tmp_path, home):
    native, connector = both(CAPABILITIES, tmp_path, home)
    assert connector == native


def test_tokens_are_those_of_the_native_library(tmp_path, home):
    native, connector = both(TOKENS, tmp_path, home)
    assert connector == native
    assert "same True" in connector


def test_direct_chunk_access_and_references_need_the_terminal_class(tmp_path, home):
    # HDF5 offers these to whoever is, or ends in, the native connector.
    source = """
        import sys
        import h5py, numpy as np
        with h5py.File(sys.argv[1] + "/c.h5", "w") as file:
            data = file.create_dataset("c", shape=(4, 4), chunks=(2, 2), dtype="u1")
            data.id.write_direct_chunk((0, 2), bytes(range(4)))
            print(data[:], data.id.get_num_chunks())
            reference = file["c"].regionref[1:3, 1:3]
            print(file[reference].id == data.id, h5py.h5r.get_name(reference, file.id))
    """
    native, connector = both(source, tmp_path, home)
    assert connector == native
