"""A write through the connector: the table of the file that is written goes first, and no other."""

import h5py
import numpy as np
import pytest

from sds.redirect.tables import publish_table, read_table, table_path
from tests.redirected import reads_by_replica, redirect, settle
from tests.robustness.conftest import SHAPE, values_of, write_cube
from tests.under_connector import connector_environment, native_environment, run_python


def growing_cube(path, **creation):
    with h5py.File(path, "w") as file:
        data = file.create_dataset(
            "cube", data=values_of(), chunks=(3, 7, 11), maxshape=(None, 14, 11), **creation
        )
        data.attrs["unit"] = "K"
    settle(path)
    return path


def netcdf_cube(path, home):
    import netCDF4

    with netCDF4.Dataset(path, "w") as file:
        for name, length in zip("xyz", SHAPE, strict=True):
            file.createDimension(name, length)
        file.createVariable("cube", "f8", tuple("xyz"), contiguous=True)[:] = values_of()
    settle(path)
    redirect(path, [("/cube", (2, 0, 1))], home)
    return path


WRITES = {
    "values": "file['cube'][0, 0, 3] = 77",
    "several values": "file['cube'][[1, 4], 2:5, 3] = 77",
    "a chunk": "file['cube'].id.write_direct_chunk((0, 0, 0), b'\\0' * (3 * 7 * 11 * 8))",
    "the extent": "file['cube'].resize((10, 14, 11))",
    "an attribute": "file['cube'].attrs['unit'] = 'C'",
    "a new attribute": "file['cube'].attrs['other'] = 1",
    "an attribute less": "del file['cube'].attrs['unit']",
    "a link": "file['alias'] = file['cube']",
    "a soft link": "file['soft'] = h5py.SoftLink('/cube')",
    "a name": "file.move('cube', 'renamed')",
    "a link less": "del file['cube']",
    "a group": "file.create_group('more')",
    "a dataset": "file['more'] = 1",
    "a copy": "file.copy('cube', 'copied')",
    "a type": "file['type'] = np.dtype('f4')",
    "values by way of the file of an object": "file['cube'].file['cube'][0, 0, 3] = 77",
    "values by way of a reference": "file[file['cube'].ref][0, 0, 3] = 77",
}


@pytest.mark.parametrize("what", WRITES)
def test_what_is_written_loses_its_table_before(what, home, tmp_path):
    """And a file beside it that is open for writing as well, but not written, keeps its own."""
    path, beside = growing_cube(tmp_path / "cube.h5"), write_cube(tmp_path / "beside.h5")
    redirect(path, [("/cube", (2, 0, 1))], home)
    redirect(beside, [("/cube", (2, 0, 1))], home)
    text = f"""
        import os, sys, h5py, numpy as np
        path, beside, table, table_beside = sys.argv[1:]
        with h5py.File(beside, "r+") as other, h5py.File(path, "r+") as file:
            other["cube"][0, 0, 0], file["cube"][0, 0, 0]
            assert os.path.exists(table) and os.path.exists(table_beside)
            {WRITES[what]}
            assert not os.path.exists(table)
        assert os.path.exists(table_beside)
    """
    tables = table_path(home, path), table_path(home, beside)
    run_python(text, path, beside, *tables, env=connector_environment(home.root))


def test_opening_and_reading_leave_the_table(cube, home):
    text = """
        import sys, h5py
        with h5py.File(sys.argv[1], "r+") as file:
            file["cube"][:, :, 3], file["cube"].attrs.get("x"), list(file), "y" in file
            file.flush()
        with h5py.File(sys.argv[1], "r") as file:
            try:
                file["cube"][0] = 1
            except (OSError, ValueError) as error:
                print(type(error).__name__)
            try:
                file["other"] = 1
            except (OSError, ValueError) as error:
                print(type(error).__name__)
    """
    native = run_python(text, cube, env=native_environment()).stdout
    assert run_python(text, cube, env=connector_environment(home.root)).stdout == native
    assert len(native.split()) == 2
    assert table_path(home, cube).exists()


@pytest.mark.parametrize("library", ["netCDF4", "tables"])
def test_other_libraries_that_write(library, home, tmp_path):
    path = netcdf_cube(tmp_path / "cube.nc", home)
    writes = {
        "netCDF4": """
        import netCDF4
        with netCDF4.Dataset(sys.argv[1], "a") as file:
            file["cube"][0, 0, 3] = 77
        """,
        "tables": """
        import tables
        with tables.open_file(sys.argv[1], "a") as file:
            file.root.cube[0, 0, 3] = 77
        """,
    }[library]
    text = f"""
        import sys, h5py
        with h5py.File(sys.argv[1]) as file:
            print(file["cube"][:, :, 3][0, 0])
        {writes}
        with h5py.File(sys.argv[1]) as file:
            print(file["cube"][:, :, 3][0, 0])
    """
    result = run_python(text, path, env=connector_environment(home.root))
    assert result.stdout == "3.0\n77.0\n"
    assert not table_path(home, path).exists()


@pytest.mark.parametrize("writer", ["h5py", "netCDF4"])
def test_another_library_of_the_process_writes_what_this_one_has_open(writer, home, tmp_path):
    """What a writer has not flushed shows in no identity; its reader must not be redirected."""
    path = netcdf_cube(tmp_path / "cube.nc", home)
    text = """
        import sys, os, h5py, netCDF4, tables
        os.environ["HDF5_USE_FILE_LOCKING"] = "FALSE"
        with tables.open_file(sys.argv[1]) as reader:
            assert reader.root.cube[:, :, 3][0, 0] == 3
            if sys.argv[2] == "h5py":
                file = h5py.File(sys.argv[1], "r+", locking=False)
            else:
                file = netCDF4.Dataset(sys.argv[1], "r+")
            file["cube"][0, 0, 4] = 77
            reader.root.cube[:, :, 3]
            file.close()
            print(reader.root.cube[:, :, 5][0, 0])
    """
    env = connector_environment(home.root, HDF5_USE_FILE_LOCKING="FALSE")
    assert run_python(text, path, writer, env=env).stdout == "5.0\n"
    assert reads_by_replica(home) == {0: 2, 1: 1}


# ---- files that HDF5 opens by itself, and files within files


@pytest.fixture
def outer(tmp_path, cube):
    """Return a file that leads to the cube by an external link, and has a place to mount it."""
    path = tmp_path / "outer.h5"
    with h5py.File(path, "w") as file:
        file["own"] = np.zeros(3)
        file["link"] = h5py.ExternalLink(str(cube), "/cube")
        file.create_group("mounted")
    settle(path)
    return path


def test_written_through_an_external_link(cube, outer, home):
    redirect(outer, [("/own", (0,))], home)
    text = """
        import os, sys, h5py
        outer, table, own_table = sys.argv[1:]
        with h5py.File(outer, "r+") as file:
            file["link"][0, 0, 3]
            assert os.path.exists(table)
            file["link"][0, 0, 3] = 77
            assert not os.path.exists(table) and os.path.exists(own_table)
    """
    tables = table_path(home, cube), table_path(home, outer)
    run_python(text, outer, *tables, env=connector_environment(home.root))


@pytest.mark.parametrize("keeps_table", [False, True])
def test_what_was_written_through_a_link_and_not_flushed_is_seen(keeps_table, cube, outer, home):
    """HDF5 has the file open for writing, whatever the program asks of it, and its identity is
    still that of the table, which may stay where it cannot be removed: in another account's home.
    """
    text = """
        import os, shutil, sys, h5py
        outer, cube, table, keeps = sys.argv[1:]
        kept = open(table, "rb").read()
        with h5py.File(outer, "r+") as file:
            link = file["link"]
            link[0, 0, 3] = 77
            assert not os.path.exists(table)
            if keeps == "True":
                with open(table, "wb") as again:
                    again.write(kept)
            with h5py.File(cube, "r") as reader:
                print(reader["cube"][:, :, 3][0, 0])
                link[0, 0, 3] = 78
                print(reader["cube"][:, :, 3][0, 0])
    """
    arguments = outer, cube, table_path(home, cube), keeps_table
    result = run_python(text, *arguments, env=connector_environment(home.root))
    assert result.stdout == "77.0\n78.0\n"
    assert reads_by_replica(home) == {0: 2}


def test_written_where_it_is_mounted(cube, outer, home):
    redirect(outer, [("/own", (0,))], home)
    text = """
        import os, sys, h5py
        outer, cube, table, own_table = sys.argv[1:]
        with h5py.File(outer, "r+") as file, h5py.File(cube, "r+") as inner:
            h5py.h5f.mount(file.id, b"mounted", inner.id)
            file["mounted/cube"][0, 0, 3]
            assert os.path.exists(table)
            file["mounted/cube"][0, 0, 3] = 77
            assert not os.path.exists(table) and os.path.exists(own_table)
            h5py.h5f.unmount(file.id, b"mounted")
    """
    tables = table_path(home, cube), table_path(home, outer)
    run_python(text, outer, cube, *tables, env=connector_environment(home.root))


def test_a_table_that_comes_while_the_file_is_written_goes_too(cube, home):
    table = read_table(home, cube)
    publish_table(home, table)
    text = """
        import os, signal, sys, h5py
        signal.alarm(300)   # what hangs ends
        path, table = sys.argv[1:]
        with h5py.File(path, "r+") as file:
            kept = open(table, "rb").read()
            file["cube"][0, 0, 3] = 77
            assert not os.path.exists(table)
            with open(table, "wb") as again:
                again.write(kept)
            while os.path.exists(table):   # until the next look
                file["cube"][0, 0, 3] = 78
    """
    run_python(text, cube, table_path(home, cube), env=connector_environment(home.root))


@pytest.mark.parametrize("driver", ["stdio", "core"])
def test_written_through_another_driver(driver, cube, home):
    """An image in memory is no write until HDF5 writes it back, which its identity shows."""
    text = """
        import os, sys, h5py
        path, table, driver = sys.argv[1:]
        with h5py.File(path, "r+", driver=driver) as file:
            file["cube"][0, 0, 3] = 77
            print(os.path.exists(table))
        with h5py.File(path) as file:
            print(file["cube"][:, :, 3][0, 0])
    """
    result = run_python(
        text, cube, table_path(home, cube), driver, env=connector_environment(home.root)
    )
    assert result.stdout == f"{driver == 'core'}\n77.0\n"
    assert set(reads_by_replica(home)) == {0}


def test_truncated_created_anew_and_removed(cube, home, tmp_path):
    text = """
        import os, sys, h5py
        table, path = sys.argv[1:]
        with h5py.File(path, "w") as file:
            assert not os.path.exists(table)
            file["cube"] = [[[1.0, 2, 3, 4]]]
        with h5py.File(path) as file:
            print(file["cube"][:, :, 3])
    """
    env = connector_environment(home.root)
    result = run_python(text, table_path(home, cube), cube, env=env)
    assert result.stdout == "[[4.]]\n"
    other = write_cube(tmp_path / "other.h5")
    redirect(other, [("/cube", (2, 0, 1))], home)
    text = """
        import ctypes, os, sys, h5py
        with open("/proc/self/maps") as maps:
            library = next(l[l.index("/") :].rstrip() for l in maps if "/libhdf5-" in l)
        h5py.get_config()
        access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
        delete = ctypes.CDLL(library).H5Fdelete
        delete.argtypes = [ctypes.c_char_p, ctypes.c_int64]
        assert delete(sys.argv[2].encode(), access.id) >= 0
        assert not os.path.exists(sys.argv[1]) and not os.path.exists(sys.argv[2])
    """
    run_python(text, table_path(home, other), other, env=env)


def test_no_table_is_removed_where_sds_is_switched_off(cube, home):
    text = """
        import sys, h5py
        with h5py.File(sys.argv[1], "r+") as file:
            file["cube"][0, 0, 3] = 77
    """
    run_python(text, cube, env=connector_environment(home.root, SDS_REDIRECT=0))
    assert table_path(home, cube).exists()
    text = 'import sys, h5py; print(h5py.File(sys.argv[1])["cube"][:, :, 3][0, 0])'
    result = run_python(text, cube, env=connector_environment(home.root))
    assert result.stdout == "77.0\n"  # its identity tells
