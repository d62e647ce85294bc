"""Contiguous originals that the engine reads past HDF5: with no table, no replica, no server."""

import textwrap
from dataclasses import replace

import h5py
import numpy as np
import pytest

from sds import _native
from sds.engine import MeasuredFileSystem, builtin_parameters, publish_measured
from sds.trace import read_spool
from tests.page_cache import drop_from_page_cache
from tests.redirected import reads_by_replica, redirect, settle
from tests.under_connector import (
    ROOT,
    connector_environment,
    decisions,
    native_environment,
    run_python,
)

EXTENT = (32, 64, 512)  # 8 MiB of float64: 256 KiB a plane
ENGINE = -1

# What the programs below begin with.
HELPERS = """
import hashlib, os, sys
import h5py, numpy as np

path = sys.argv[1]

def show(name, values):
    print(name, values.dtype, values.shape, hashlib.sha1(np.ascontiguousarray(values)).hexdigest())

def across(data, name="across"):
    show(name, data[:, :, 7])
"""

PAGE_CACHE = f"""
    sys.path.insert(0, {str(ROOT)!r})
    from tests.page_cache import drop_from_page_cache, load_into_page_cache
"""


@pytest.fixture
def cube(tmp_path):
    path = tmp_path / "cube.h5"
    values = np.random.default_rng(5).random(EXTENT)
    with h5py.File(path, "w") as file:
        file["f8"] = values
        file["i2"] = (values * 30000).astype(">i2")
        file["packed"] = np.array([(1, 2.5, b"x"), (3, 4.5, b"yz")] * 40000, "i4,>f8,S3")
    settle(path)
    return path


def run(program, path, env):
    return run_python(HELPERS + textwrap.dedent(program), path, env=env)


def both(program, path, home, *, env=None, **variables):
    """Run a program natively and under the connector; return who served its reads."""
    native = run(program, path, native_environment(**(env or {})))
    result = run(program, path, connector_environment(home.root, **variables, **(env or {})))
    assert (result.stdout, result.stderr) == (native.stdout, native.stderr)
    return reads_by_replica(home)


def test_reads_across_the_grain_need_no_replica(cube, home):
    program = """
    with h5py.File(path) as file:
        data = file["f8"]
        across(data)
        show("slab", data[:, :, 8:16])
        show("line", data[:, 3, 9])
        show("strided", data[::3, 1::2, ::64])
        show("converted", data.astype("f4")[:, :, 5])
        show("swapped", file["i2"].astype("i4")[:, ::2, 5])
        show("fancy", data[:, [1, 5, 60], 4])
        show("mask", data[np.arange(data.size).reshape(data.shape) % 9973 == 0])
        out = np.zeros((64, 80))
        data.read_direct(out, np.s_[:, :, 100], np.s_[3:35, 10:74])
        show("into", out)
        show("member", file["packed"]["f1"][::7000])
    """
    served = both(program, cube, home)
    assert served[ENGINE] >= 9
    assert set(served) <= {ENGINE, 0}


def test_what_gains_nothing_is_left_to_hdf5(cube, home):
    program = """
    with h5py.File(path) as file:
        data = file["f8"]
        data[3], data[...], data[2, 3, 4:90], data[5, 3:7, ::2], data[1:3, 5:50, :]
        for k in range(100):
            data[k % 32, 3, k : k + 8]
    """
    assert set(both(program, cube, home)) == {0}


def test_much_is_still_read_by_the_engine_after_many_small_reads(cube, home):
    program = """
    with h5py.File(path) as file:
        data = file["f8"]
        for k in range(1000):
            data[k % 32, 3, k % 500 : k % 500 + 8]
        for k in range(100):
            across(data)
    """
    served = both(program, cube, home)
    assert served == {ENGINE: 99, 0: 1001}  # the trace has the first one noticed


def test_many_small_reads_without_a_trace(cube, home, tmp_path):
    program = """
    with h5py.File(path) as file:
        data = file["f8"]
        for k in range(1000):
            data[k % 32, 3, k % 500 : k % 500 + 8]
        for k in range(15):  # of each eight, one is looked at
            across(data)
    """
    log = tmp_path / "log"
    assert not both(program, cube, home, SDS_TRACE=0, SDS_DEBUG=log)
    assert "engine" in [event for event, *_ in decisions(log)]


@pytest.mark.parametrize("n_small", [7, 31, 39, 63, 127])
def test_small_reads_between_others_do_not_keep_the_engine_away(cube, home, n_small):
    program = f"""
    with h5py.File(path) as file:
        data = file["f8"]
        for k in range(60):
            for small in range({n_small}):
                data[k % 32, 3, small : small + 8]
            across(data)
    """
    served = both(program, cube, home)
    n_missed = int(n_small >= 32)  # from then on it takes four times as many
    assert served == {ENGINE: 60 - n_missed, 0: 60 * n_small + n_missed}


def test_one_small_read_of_a_file_is_left_to_hdf5_but_not_many(cube, home):
    once = """
    with h5py.File(path) as file:
        show("line", file["f8"][:4, :, 9])
    """
    assert set(both(once, cube, home)) == {0}
    again = """
    with h5py.File(path) as file:
        for k in range(100):
            show("line", file["f8"][:4, :, k])
    """
    served = both(again, cube, home)
    assert served[0] <= 10 + 1
    assert served[ENGINE] >= 90


def test_one_small_read_of_a_file_whose_runs_lie_apart_needs_no_mapping(cube, home):
    once = """
    with h5py.File(path) as file:
        show("line", file["f8"][:24, 3, 9])
    """
    assert both(once, cube, home) == {ENGINE: 1}


def test_one_small_read_of_a_file_without_a_trace_is_not_even_judged(cube, home, tmp_path):
    """Nor another file's, however many a program reads; the second of a file is."""
    more = [cube.with_name(f"{k}.h5") for k in range(3)]
    for each in more:
        each.write_bytes(cube.read_bytes())
        settle(each)
    program = """
    import glob
    for each in sorted(glob.glob(os.path.join(os.path.dirname(path), "*.h5"))):
        with h5py.File(each) as file:
            show("line", file["f8"][:24, 3, 9])
            if each == path:
                show("line", file["f8"][:24, 5, 7])
    """
    log = tmp_path / "log"
    assert not both(program, cube, home, SDS_TRACE=0, SDS_DEBUG=log)
    assert [line[1] for line in decisions(log) if line[0] == "engine"] == [str(cube)]
    many = 'across(h5py.File(path)["f8"])'
    log.unlink()
    assert not both(many, cube, home, SDS_TRACE=0, SDS_DEBUG=log)
    assert [line[1] for line in decisions(log) if line[0] == "engine"] == [str(cube)]


def test_what_is_read_as_fast_from_the_device_is_read_by_the_engine_from_the_cache(tmp_path, home):
    path = tmp_path / "rows.h5"
    with h5py.File(path, "w") as file:
        file["rows"] = np.random.default_rng(6).random((2048, 2560), "f4")  # 10 KiB a row
    settle(path)
    program = """
    load_into_page_cache(path)
    with h5py.File(path) as file:
        show("column", file["rows"][:, 700])
    """
    program = textwrap.dedent(PAGE_CACHE) + textwrap.dedent(program)
    assert both(program, path, home) == {ENGINE: 1}


# What a program begins with that reads from the device. The file system has to give its pages up;
# those that the kernel is still reading ahead stay a little longer. A read, even one that does not
# wait, would have the kernel read.
COLD = (
    PAGE_CACHE
    + """
    drop_from_page_cache(path)
"""
)


def served_cold(program, values, tmp_path, home):
    """Return who served a program's reads of an array that nothing of is cached."""
    path = tmp_path / "cold.h5"
    with h5py.File(path, "w") as file:
        file["x"] = values
    settle(path)
    drop_from_page_cache(path)  # or skip the test, which the program cannot
    return both(textwrap.dedent(COLD) + textwrap.dedent(program), path, home)


def test_a_stream_from_the_device_is_hdf5s_and_the_engines_once_it_is_cached(tmp_path, home):
    """HDF5 has the kernel read ahead, of which the next reads profit as they do without SDS."""
    program = """
    with h5py.File(path) as file:
        show("columns", file["x"][:, :3])
        load_into_page_cache(path)
        for k in range(3):
            show("columns", file["x"][:, k : k + 3])
    """
    values = np.random.default_rng(1).random((2000, 500))
    assert served_cold(program, values, tmp_path, home) == {0: 1, ENGINE: 3}


def test_what_hdf5_would_soon_have_cached_is_not_the_engines_to_pick_from_the_device(
    tmp_path, home
):
    """Though the first read alone would gain: a third of the array is what HDF5 reads for it."""
    program = """
    with h5py.File(path) as file:
        show("box", file["x"][100:600, 3539:4401])
    """
    values = np.arange(1500 * 5821, dtype="f4").reshape(1500, 5821)
    assert served_cold(program, values, tmp_path, home) == {0: 1}


def test_runs_far_apart_are_the_engines_from_the_device_too(tmp_path, home):
    program = """
    with h5py.File(path) as file:
        for k in range(3):
            show("column", file["x"][:, 100000 * k + 5])
            drop_from_page_cache(path)
    """
    values = np.arange(64 << 18, dtype="f4").reshape(64, 1 << 18)
    assert served_cold(program, values, tmp_path, home) == {ENGINE: 3}


def test_what_turns_out_not_to_be_cached_counts_as_no_failure_of_the_engine(tmp_path, home):
    program = """
    with h5py.File(path) as file:
        for k in range(10):
            drop_from_page_cache(path)
            show("columns", file["x"][:, k : k + 3])
        load_into_page_cache(path)
        for k in range(10):
            show("columns", file["x"][:, k : k + 3])
    """
    values = np.random.default_rng(1).random((2000, 500))
    assert served_cold(program, values, tmp_path, home) == {0: 10, ENGINE: 10}


def test_what_hdf5_reads_with_few_calls_is_left_to_it(cube, home):
    """Its buffer stays in the processor's caches: two calls take less than to serve the read."""
    program = """
    with h5py.File(path) as file:
        data = file["f8"]
        for k in range(20):
            data[0, 3:20, k], data[1, 2:26, k], data[2, :48, k], data[k % 32, 5:50, 7:9]
    """
    assert set(both(program, cube, home)) == {0}


@pytest.mark.parametrize("variables", [{"SDS_ENGINE": 0}, {"SDS_DISABLE": 1}])
def test_switched_off(cube, home, variables):
    served = both('across(h5py.File(path)["f8"])', cube, home, **variables)
    assert ENGINE not in served


def test_replicas_and_the_engine_are_switched_off_apart(cube, home):
    assert both('across(h5py.File(path)["f8"])', cube, home, SDS_REDIRECT=0) == {ENGINE: 1}


def test_it_needs_no_home(cube, tmp_path, home):
    log = tmp_path / "log"
    env = connector_environment(home.root, SDS_DEBUG=log)
    for name in ("SDS_HOME", "HOME", "XDG_DATA_HOME"):
        env.pop(name, None)
    run('across(h5py.File(path)["f8"])', cube, env)
    assert ("engine", str(cube), "/f8") in [line[:3] for line in decisions(log)]


def test_the_log_and_the_trace_tell(cube, home, tmp_path):
    log = tmp_path / "log"
    program = """
    with h5py.File(path) as file:
        data = file["f8"]
        for k in range(10):
            across(data)
            data[k]
    """
    both(program, cube, home, SDS_DEBUG=log)
    told = [line for line in decisions(log) if line[0] == "engine"]
    assert told == [("engine", str(cube), "/f8", told[0][3])]
    (spool,) = [read_spool(path) for path in home.spool.iterdir()]
    by_engine = spool.records.served_by == ENGINE
    # Their times are not HDF5's: they are records of their own.
    assert spool.records.n_reads[by_engine].sum() == 10
    assert spool.records.n_reads[~by_engine].sum() == 10


PACKAGES = {
    "h5py": 'import h5py; print(h5py.File(path)["f8"][:, :, 7].sum())',
    "netCDF4": 'import netCDF4; print(netCDF4.Dataset(path)["f8"][:, :, 7].sum())',
    "tables": "import tables; print(tables.open_file(path).root.f8[:, :, 7].sum())",
}


@pytest.mark.parametrize("package", PACKAGES)
def test_every_hdf5_of_the_packages(cube, home, package):
    program = f"""
    {PACKAGES[package]}
    """
    assert both(program, cube, home) == {ENGINE: 1}
    (spool,) = [read_spool(path) for path in home.spool.iterdir()]
    assert {"h5py": "2.0", "netCDF4": "2.2", "tables": "1.14"}[package] in {
        dataset.hdf5_version.rpartition(".")[0] for dataset in spool.datasets
    }


def test_three_hdf5_in_one_process(cube, home):
    program = "\n".join(f"    {PACKAGES[p]}" for p in ("tables", "h5py", "netCDF4", "h5py"))
    assert both(program, cube, home) == {ENGINE: 4}


# ---- where the bytes lie


def test_a_user_block_moves_the_data(tmp_path, home):
    path = tmp_path / "user.h5"
    with h5py.File(path, "w", userblock_size=4096) as file:
        file["f8"] = np.random.default_rng(6).random(EXTENT)
    assert both('across(h5py.File(path)["f8"])', path, home) == {ENGINE: 1}


def test_what_lies_nowhere_behind_a_user_block_is_not_read(tmp_path, home):
    path, other = tmp_path / "user.h5", tmp_path / "outside.raw"
    with h5py.File(path, "w", userblock_size=512) as file:
        file.create_dataset("unwritten", EXTENT, "f8", fillvalue=3.5)
        outside = [(str(other), 0, h5py.h5f.UNLIMITED)]
        file.create_dataset("external", data=np.ones(EXTENT), external=outside)
        file["f8"] = np.random.default_rng(6).random(EXTENT)
    program = """
    with h5py.File(path) as file:
        for name in ("unwritten", "external", "f8"):
            across(file[name], name)
    """
    assert both(program, path, home, SDS_ENGINE="always")[ENGINE] == 1
    (spool,) = map(read_spool, home.spool.iterdir())
    offset = {dataset.path: dataset.data_offset_bytes for dataset in spool.datasets}
    assert offset["/unwritten"] == offset["/external"] == -1 < offset["/f8"]


def test_many_layouts(tmp_path, home):
    path, other = tmp_path / "layouts.h5", tmp_path / "outside.raw"
    values = np.random.default_rng(7).random(EXTENT)
    with h5py.File(path, "w") as file:
        file["plain"] = values
        file.create_dataset("chunked", data=values, chunks=(8, 8, 64))
        file.create_dataset("packed", data=values, chunks=(8, 8, 64), compression="gzip")
        file.create_dataset("external", data=values, external=[(str(other), 0, h5py.h5f.UNLIMITED)])
        file.create_dataset("unwritten", EXTENT, "f8", fillvalue=3.5)
        virtual = h5py.VirtualLayout(EXTENT, "f8")
        virtual[...] = h5py.VirtualSource(path, "plain", EXTENT)
        file.create_virtual_dataset("virtual", virtual)
        file["objects"] = np.array([b"x" * n for n in range(5000)], dtype=object)
        file["references"] = np.full(40000, file["plain"].ref, dtype=h5py.ref_dtype)
        file["scalar"] = 5.0
        file["empty"] = h5py.Empty("f8")
        file["nothing"] = np.zeros((0, 5))
    program = """
    with h5py.File(path) as file:
        for name in ("plain", "chunked", "packed", "external", "unwritten", "virtual"):
            across(file[name], name)
        show("objects", file["objects"][::500].astype("S"))
        print(len({file[r].name for r in file["references"][::9000]}))
        show("scalar", file["scalar"][...]), file["empty"][...], show("none", file["nothing"][...])
    """
    served = both(program, path, home, SDS_ENGINE="always")
    assert served[ENGINE] == 2, "the contiguous one, and the deflated one by the core"
    again = both(program, path, home)
    n = sum(served.values())  # HDF5's cache may hold all of the deflated one
    assert again == {ENGINE: 3, 0: 2 * n - 3}


def test_data_behind_what_hdf5_takes_for_the_end_of_the_file(tmp_path, home):
    """A damaged superblock: HDF5 refuses what the file holds all the same."""
    path = tmp_path / "short.h5"
    with h5py.File(path, "w", libver=("earliest", "v108")) as file:
        file["f8"] = np.random.default_rng(6).random(EXTENT)
        offset = file["f8"].id.get_offset()
    content = bytearray(path.read_bytes())
    end = content.index(len(content).to_bytes(8, "little"), 0, 64)
    content[end : end + 8] = (offset + 100_000).to_bytes(8, "little")
    path.write_bytes(content)
    program = """
    with h5py.File(path) as file:
        try:
            across(file["f8"])
        except (KeyError, OSError) as error:
            print(str(error)[:60])
    """
    assert ENGINE not in both(program, path, home, SDS_ENGINE="always")


# ---- what is doubtful


@pytest.mark.parametrize("engine", ["1", "always"])
def test_what_this_process_writes_is_read_by_hdf5(cube, home, engine):
    """HDF5 has in memory what it has not written yet, whoever of its handles is asked."""
    program = """
    with h5py.File(path, "r+") as file:
        file["f8"][:, :, 7] = 1
        across(file["f8"], "writer")
        across(h5py.File(path, "r")["f8"], "reader beside the writer")
    """
    native_copy = cube.read_bytes()
    native = run(program, cube, native_environment()).stdout
    cube.write_bytes(native_copy)
    env = connector_environment(home.root, SDS_ENGINE=engine)
    assert run(program, cube, env).stdout == native
    assert reads_by_replica(home).keys() == {0}


def test_a_reader_that_was_there_before_a_writer_of_another_hdf5(cube, home):
    program = """
    import netCDF4
    reader = netCDF4.Dataset(path)
    show("before", reader["f8"][:, :, 7].data)
    with h5py.File(path, "r+") as writer:
        show("while", reader["f8"][:, :, 8].data)
    """
    env = {"HDF5_USE_FILE_LOCKING": "FALSE"}
    assert both(program, cube, home, env=env) == {ENGINE: 1, 0: 1}


HANDLES = {
    "core": 'file = h5py.File(path, driver="core", backing_store=False)',
    "stdio": 'file = h5py.File(path, driver="stdio")',
    "split": 'file = h5py.File(path[:-3], driver="split", meta_ext=b".h5", raw_ext=b"-r.h5")',
    "fileobj": 'file = h5py.File(open(path, "rb"))',
    "page buffer": "file = h5py.File(path, page_buf_size=1 << 20)",
    "swmr": "file = h5py.File(path, swmr=True)",
    "swmr, then plain": "one = h5py.File(path, swmr=True); file = h5py.File(path)",
}


@pytest.mark.parametrize("how", HANDLES)
def test_other_ways_to_open_a_file_are_left_to_hdf5(tmp_path, home, how):
    path = tmp_path / "odd.h5"
    options = {
        "split": {"driver": "split", "meta_ext": b".h5", "raw_ext": b"-r.h5"},
        "page buffer": {"fs_strategy": "page", "fs_page_size": 4096},
    }.get(how, {})
    name = str(path)[:-3] if how == "split" else path
    with h5py.File(name, "w", libver="latest", **options) as file:
        file["f8"] = np.random.default_rng(6).random(EXTENT)
    program = f"""
    {HANDLES[how]}
    across(file["f8"])
    """
    assert both(program, path, home, SDS_ENGINE="always") == {0: 1}


def test_properties_of_transfers(cube, home):
    program = """
    with h5py.File(path) as file:
        data, out = file["f8"], np.empty((32, 64))
        space, plist = data.id.get_space(), h5py.h5p.create(h5py.h5p.DATASET_XFER)
        space.select_hyperslab((0, 0, 3), (32, 64, 1))
        data.id.read(h5py.h5s.create_simple(out.shape), space, out, dxpl=plist)
        show("plain list", out)
    """
    assert both(program, cube, home) == {ENGINE: 1}


# ---- sabotage: compared with HDF5 where its answer is defined

CHANGES = {
    "unlinked": "os.unlink(path)",
    "renamed": 'os.rename(path, path + ".old")',
    "replaced": 'os.unlink(path); open(path, "wb").write(b"x" * (9 << 20))',
    "touched": "os.utime(path)",
    "made unreadable": "os.chmod(path, 0)",
    "grown": 'open(path, "ab").write(b"x" * 5000)',
    # Behind the end of the file HDF5 reads zeros.
    "cut": "os.truncate(path, end - (3 << 20))",
    "emptied": "os.truncate(path, 0)",
    # Bytes that no window of HDF5's holds yet.
    "rewritten": 'with open(path, "r+b") as raw: raw.seek(begin); raw.write(bytes(end - begin))',
}


@pytest.mark.parametrize("engine", ["1", "always"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changes_while_it_is_open(cube, home, change, engine):
    program = f"""
    import shutil
    original, path = path, path + ".copy"
    if os.path.exists(path):
        os.unlink(path)
    shutil.copy(original, path)
    with h5py.File(path) as file:
        data = file["f8"]
        begin, end = data.id.get_offset(), data.id.get_offset() + data.id.get_storage_size()
        for k in range(5):
            show("before", data[:, :, k])
            show("one", data[0, 0, :5])
        {CHANGES[change]}
        show("past what HDF5 has in its buffer", data[31, 63, 500:505])
        for k in range(5, 10):
            show("after", data[:, :, k])
        show("points", data[::2, 1::3, 9])
    """
    assert ENGINE in both(program, cube, home, SDS_ENGINE=engine)


def test_a_descriptor_that_the_program_closes(cube, home):
    """HDF5 fails, and so does the program."""
    program = """
    file = h5py.File(path)
    data = file["f8"]
    across(data)
    fd = file.id.get_vfd_handle()
    os.close(fd)
    try:
        across(data)
    except OSError as error:
        print(type(error), error.errno)
    assert os.open(os.devnull, os.O_RDONLY) == fd
    show("nothing", data[16:, :, 7])
    os._exit(0)
    """
    both(program, cube, home, SDS_TRACE=0)


def test_the_programs_descriptors_and_locks_are_its_own(cube, home):
    program = """
    import fcntl, subprocess
    def n_open():
        return len(os.listdir("/proc/self/fd"))
    raw = open(path, "r+b")
    before = n_open()
    first, second = h5py.File(path), h5py.File(path)
    opened = n_open()
    across(first["f8"]), across(second["f8"])
    print(n_open() - opened, "descriptors more")
    fcntl.lockf(raw, fcntl.LOCK_EX)
    second.close()
    other = '''if True:
        import fcntl, sys
        try:
            fcntl.lockf(open(sys.argv[1], "r+b"), fcntl.LOCK_EX | fcntl.LOCK_NB)
            print("free")
        except OSError:
            print("locked")
    '''
    print(subprocess.run([sys.executable, "-c", other, path], capture_output=True, text=True,
                         env={}).stdout)
    across(first["f8"])
    first.close()
    print(n_open() - before)
    """
    served = both(program, cube, home)
    assert served == {ENGINE: 3}


# ---- lives of handles


@pytest.mark.parametrize("degree", ["WEAK", "SEMI", "STRONG"])
def test_objects_that_outlive_their_file(cube, home, degree):
    program = f"""
    degree = h5py.h5f.CLOSE_{degree}
    fapl = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    fapl.set_fclose_degree(degree)
    for _ in range(3):
        file = h5py.h5f.open(path.encode(), h5py.h5f.ACC_RDONLY, fapl)
        data = h5py.Dataset(h5py.h5d.open(file, b"f8"))
        group = h5py.h5g.open(file, b"/")
        across(data)
        if degree == h5py.h5f.CLOSE_SEMI:
            del data, group
        file.close()
        if degree == h5py.h5f.CLOSE_WEAK:
            across(data, "after the file")
        if degree == h5py.h5f.CLOSE_STRONG:
            print(bool(data))
    file = h5py.h5f.open(path.encode(), h5py.h5f.ACC_RDONLY, fapl)
    across(h5py.Dataset(h5py.h5d.open(file, b"f8")))  # open when the program ends
    """
    assert both(program, cube, home) == {ENGINE: 7 if degree == "WEAK" else 4}


@pytest.mark.parametrize("order", ["file first", "dataset first"])
def test_a_file_can_be_opened_for_writing_as_soon_as_it_is_closed(cube, home, order):
    """A mapping would keep HDF5's lock on the file."""
    close = "file.close(); del data" if order == "file first" else "del data; file.close()"
    program = f"""
    for k in range(4):
        fapl = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
        file = h5py.h5f.open(path.encode(), h5py.h5f.ACC_RDONLY, fapl)
        data = h5py.Dataset(h5py.h5d.open(file, b"f8"))
        for _ in range(3):
            show("across", data[:, :, k])
        {close}
        with h5py.File(path, "r+") as writer:
            writer["f8"][3, :, k + 1] = 5
    """
    before = cube.read_bytes()
    native = run(program, cube, native_environment()).stdout
    cube.write_bytes(before)
    assert run(program, cube, connector_environment(home.root)).stdout == native
    assert reads_by_replica(home)[ENGINE] == 12


@pytest.mark.parametrize("opened_by", ["external link to itself", "H5Freopen", "two handles"])
def test_hdf5_closes_a_file_however_it_was_opened_again(opened_by, cube, home):
    """HDF5 opens it anew for a link, and closes that with what was reached through it."""
    with h5py.File(cube, "r+") as file:
        file["itself"] = h5py.ExternalLink(cube.name, "/f8")
    settle(cube)
    again = {
        "external link to itself": "data = h5py.h5d.open(file, b'itself')",
        "H5Freopen": "other = file.reopen(); data = h5py.h5d.open(other, b'f8'); other.close()",
        "two handles": "other = h5py.h5f.open(path.encode(), h5py.h5f.ACC_RDONLY, fapl); "
        "data = h5py.h5d.open(other, b'f8'); other.close()",
    }[opened_by]
    program = f"""
    fapl = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    file = h5py.h5f.open(path.encode(), h5py.h5f.ACC_RDONLY, fapl)
    {again}
    show("across", h5py.Dataset(data)[:, :, 2])
    del data
    file.close()
    with h5py.File(path, "r+") as writer:
        show("written", writer["f8"][3, :, 2])
    """
    native = run(program, cube, native_environment()).stdout
    assert run(program, cube, connector_environment(home.root)).stdout == native


def test_an_object_of_another_file_keeps_no_lock(cube, tmp_path, home):
    """Reached through a link in a file that is closed meanwhile."""
    with h5py.File(tmp_path / "target.h5", "w") as file:
        file["f8"] = np.zeros(EXTENT)
    with h5py.File(cube, "r+") as file:
        file["elsewhere"] = h5py.ExternalLink(str(tmp_path / "target.h5"), "/f8")
    program = """
    fapl = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    file = h5py.h5f.open(path.encode(), h5py.h5f.ACC_RDONLY, fapl)
    data = h5py.Dataset(h5py.h5d.open(file, b"f8"))
    across(data), across(data)
    linked = h5py.Dataset(h5py.h5d.open(file, b"elsewhere"))
    across(linked)
    del data
    file.close()
    h5py.File(path, "r+").close()
    across(linked)
    """
    assert both(program, cube, home)[ENGINE] == 2


def test_many_threads_and_files(cube, home):
    program = """
    import threading
    files = [h5py.File(path) for _ in range(4)]
    expected = files[0]["f8"][...]
    failures = []
    def work(n):
        for k in range(n, 400, 7):
            data = files[k % 4]["f8"]
            if not np.array_equal(data[:, :, k], expected[:, :, k]):
                failures.append(k)
    threads = [threading.Thread(target=work, args=(n,)) for n in range(7)]
    [t.start() for t in threads], [t.join() for t in threads]
    print(failures)
    """
    assert both(program, cube, home)[ENGINE] == 400


def test_children_read_on(cube, home):
    program = """
    file = h5py.File(path)
    data = file["f8"]
    across(data)
    for k in range(3):
        sys.stdout.flush()
        if (child := os.fork()) == 0:
            show("child", data[:, :, k])
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(child, 0)
        show("parent", data[:, :, k + 50])
    """
    both(program, cube, home)


def test_a_child_that_closes_what_it_inherits_keeps_no_lock(cube, home):
    """As daemons do."""
    program = """
    file = h5py.File(path)
    for k in range(5):
        across(file["f8"])
    ready, go = os.pipe(), os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        for descriptor in set(range(3, 100)) - {ready[1], go[0]}:
            try:
                os.close(descriptor)
            except OSError:
                pass
        os.write(ready[1], b"x")
        os.read(go[0], 1)
        os._exit(0)
    os.read(ready[0], 1)
    across(file["f8"])
    file.close()
    with h5py.File(path, "r+") as file:
        print("writable")
    os.write(go[1], b"x")
    print(os.waitpid(child, 0)[1])
    """
    assert both(program, cube, home, SDS_ENGINE="always")[ENGINE] == 6


def test_a_fork_while_another_is_being_prepared_leaves_it_whole(cube, home):
    """As by a signal handler: the outer child closes what it inherits, and keeps no lock."""
    # Registered before HDF5 loads SDS, it is called behind SDS's own: that holds a lock meanwhile.
    registered = """
    import ctypes, os
    libc = ctypes.PyDLL(None)
    inner = []

    @ctypes.PYFUNCTYPE(None)
    def fork_meanwhile():
        if inner or not armed:
            return
        inner.append(None)
        child = libc.fork()
        if child == 0:
            os._exit(7 if np.array_equal(file["f8"][:, :, 3], third) else 8)
        inner[0] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    armed = False
    libc.__register_atfork(fork_meanwhile, None, None, None)
    """
    program = """
    armed = True
    file = h5py.File(path)
    third = file["f8"][:, :, 3]
    for k in range(5):
        across(file["f8"])
    ready, go = os.pipe(), os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        for descriptor in set(range(3, 100)) - {ready[1], go[0]}:
            try:
                os.close(descriptor)
            except OSError:
                pass
        os.write(ready[1], b"x")
        os.read(go[0], 1)
        os._exit(0)
    os.read(ready[0], 1)
    print(inner)
    across(file["f8"])
    file.close()
    with h5py.File(path, "r+") as file:
        print("writable")
    os.write(go[1], b"x")
    print(os.waitpid(child, 0)[1])
    """
    source = textwrap.dedent(registered) + HELPERS + textwrap.dedent(program)
    native = run_python(source, cube, env=native_environment())
    env = connector_environment(home.root, SDS_ENGINE="always")
    result = run_python(source, cube, env=env)
    assert (result.stdout, result.stderr) == (native.stdout, native.stderr)
    assert "[7]\n" in result.stdout
    assert reads_by_replica(home)[ENGINE] == 7  # the child that ends by _exit loses its own


def test_external_links_lead_to_the_file_that_holds_the_data(cube, tmp_path, home):
    with h5py.File(tmp_path / "links.h5", "w") as file:
        file["there"] = h5py.ExternalLink(str(cube), "/f8")
        file["f8"] = np.zeros(EXTENT)
    program = f"""
    links = h5py.File({str(tmp_path / "links.h5")!r})
    across(links["there"], "HDF5 opens it")
    cube = h5py.File(path)
    across(links["there"], "opened as well")
    across(links["f8"])
    """
    served = both(program, cube, home, SDS_ENGINE="always")
    assert served == {0: 1, ENGINE: 2}


# ---- beside a table


def test_the_engine_reads_what_a_replica_does_not_serve(cube, home):
    redirect(cube, [("/f8", (2, 0, 1))], home)
    program = """
    with h5py.File(path) as file:
        across(file["f8"])          # from the replica
        show("i2", file["i2"][:, :, 4])  # the table does not name it
    """
    assert both(program, cube, home) == {1: 1, ENGINE: 1}


def test_where_the_table_says_the_original_the_engine_may_read_it(cube, home):
    from tests.redirected import publish_table, with_models

    table = redirect(cube, [("/f8", (1, 2, 0))], home)
    publish_table(home, with_models(table, original_s=0.0, replica_s=1.0))
    assert both('across(h5py.File(path)["f8"])', cube, home) == {ENGINE: 1}


def test_the_choice_goes_by_what_was_measured(cube, home):
    program = """
    with h5py.File(path) as file:
        across(file["f8"])
    """
    assert both(program, cube, home)[ENGINE] == 1
    # HDF5 picks runs from its buffer by itself, and neither queues nor maps.
    dear = dict.fromkeys(("pick_s", "vector_s", "queued_startup_s", "guard_s"), 1.0)
    system = MeasuredFileSystem(
        mount_point="/",
        kind=_native.ReadFile(cube).file_system_type,
        parameters=replace(builtin_parameters(), is_measured=True, call_s=1e-3, **dear),
    )
    publish_measured(home, [system])
    served = both(program, cube, home)
    assert (served[ENGINE], served[0]) == (1, 1)
