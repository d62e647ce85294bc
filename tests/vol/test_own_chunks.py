"""Compressed originals whose chunks the core decodes: with no table, no replica, no server."""

import ctypes
import subprocess

import h5py
import hdf5plugin
import numpy as np
import pytest

from tests.redirected import settle
from tests.under_connector import decisions
from tests.vol.test_originals import ENGINE, both

SHAPE = (24, 90, 100)  # 844 KiB of float32, more than the caches of the programs below
OPEN = "with h5py.File(path, rdcc_nbytes=1 << 14) as file:"
READS = f"""
    {OPEN}
        data = file["d"]
        show("whole", data[...])
        show("across", data[:, :, 7])
        show("line", data[:, 3, 9])
        show("box", data[2:20, 5:80, 10:90])
        show("strided", data[::3, 1::2, ::7])
        show("blocks", data[:, [1, 5, 60], :])
        show("converted", data.astype("f8")[:, ::2])
        out = np.zeros((90, 30), data.dtype)
        data.read_direct(out, np.s_[1, :90, 5:25], np.s_[:, 7:27])
        show("into", out)
"""


@pytest.fixture
def write(tmp_path):
    """Write a dataset in chunks; without data, fill with what compresses."""

    def write(values=None, *, libver="earliest", userblock_size=0, **how):
        path = tmp_path / "chunks.h5"
        if values is None:
            values = np.random.default_rng(5).integers(0, 200, SHAPE)
        how = {"chunks": (5, 32, 33), "compression": "gzip", "dtype": "f4"} | how
        with h5py.File(path, "w", libver=libver, userblock_size=userblock_size) as file:
            file.create_dataset("d", data=values, **how)
        settle(path)
        return path

    return write


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"shuffle": True},
        {"shuffle": True, "fletcher32": True, "dtype": ">i2"},
        {"fletcher32": True, "dtype": "u1"},
        {"libver": "latest"},  # fixed array
        {"libver": "latest", "maxshape": (None, 90, 100)},  # extensible array
        {"libver": "latest", "maxshape": (None, None, 100)},  # B-tree 2
        {"libver": "latest", "chunks": SHAPE},  # single chunk
        {"chunks": SHAPE},
        {"userblock_size": 4096},
        {"chunks": (24, 1, 100), "dtype": "f8"},
    ],
)
def test_reads_of_more_than_hdf5_keeps_are_decoded_by_the_core(write, home, how, threads):
    served = both(READS, write(**how), home, SDS_THREADS=threads)
    assert served[ENGINE] >= 4
    assert set(served) <= {ENGINE, 0}


def test_chunks_larger_than_those_of_replicas_are_decoded(write, home):
    values = np.random.default_rng(5).integers(0, 99, (3, 600, 1000))
    path = write(values, chunks=(1, 600, 1000), shuffle=True)  # 2.3 MiB
    assert both(READS, path, home)[ENGINE] >= 4


@pytest.mark.parametrize(
    "reads",
    [
        "[data[row] for row in range(24)] + [data[...]]",  # the cache holds all
        "[data[5 * row + 3 : 5 * row + 8] for row in range(4)]",  # half of each chunk is kept
        "[data[:3, 5:70], data[1:4]]",
    ],
)
def test_what_hdf5_keeps_decoded_is_left_to_it(write, home, reads):
    program = f"""
    with h5py.File(path, rdcc_nbytes={1 << 20 if "..." in reads else 1 << 18}) as file:
        data = file["d"]
        for values in {reads}:
            show("row", values)
    """
    assert set(both(program, write(), home)) == {0}


def test_chunks_that_are_read_whole_are_decoded_where_hdf5_keeps_fewer(write, home):
    """Those HDF5 drops first."""
    program = """
    with h5py.File(path, rdcc_nbytes=200_000) as file:
        data = file["d"]
        for row in range(4):  # 253 kB of chunks each
            show("rows", data[5 * row : 5 * row + 5])
    """
    assert both(program, write(), home)[ENGINE] == 4


def test_a_file_whose_chunks_fail_is_left_to_hdf5(write, home):
    path = write()
    with h5py.File(path, "a") as file:
        for name in "abcefghi":
            sparse = file.create_dataset(name, SHAPE, "f4", chunks=(5, 32, 33), compression="gzip")
            sparse[:20] = 3
    settle(path)
    program = f"""
    {OPEN}
        for name in "abcefghi":
            show(name, file[name][...])
        show("d", file["d"][...])
    """
    assert set(both(program, path, home)) == {0}


@pytest.mark.parametrize(
    "how",
    [
        dict(hdf5plugin.Blosc()),
        dict(hdf5plugin.BZip2()),
        {"compression": None},
        {"compression": None, "fletcher32": True},
        {"compression": None, "shuffle": True},
        {"scaleoffset": 0, "dtype": "i4", "compression": "gzip"},
        {"dtype": h5py.string_dtype(), "values": np.array([["a", "bc"]] * 5000, dtype=object)},
    ],
)
def test_other_filters_and_types_are_left_to_hdf5(write, home, how):
    values = how.pop("values", None)
    if values is not None:
        how["chunks"] = (100, 1)
    program = f"""
    import hdf5plugin
    {OPEN}
        print(hashlib.sha1(repr(file["d"][...].tolist()).encode()).hexdigest())
    """
    assert set(both(program, write(values, **how), home)) == {0}


def test_edges_that_are_stored_without_filters_are_left_to_hdf5(tmp_path, home):
    """H5Pset_chunk_opts, which h5py does not wrap."""
    call = ctypes.CDLL(h5py.h5d.__file__).H5Pset_chunk_opts
    call.argtypes, call.restype = [ctypes.c_int64, ctypes.c_uint], ctypes.c_int
    path = tmp_path / "edges.h5"
    with h5py.File(path, "w", libver="latest") as file:
        dcpl = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        dcpl.set_chunk((5, 32, 33))
        dcpl.set_shuffle()
        dcpl.set_deflate(4)
        assert call(dcpl.id, 2) >= 0
        space = h5py.h5s.create_simple(SHAPE)
        data = h5py.h5d.create(file.id, b"d", h5py.h5t.NATIVE_FLOAT, space, dcpl)
        values = np.random.default_rng(5).integers(0, 200, SHAPE).astype("f4")
        data.write(h5py.h5s.ALL, h5py.h5s.ALL, values)
    settle(path)
    assert set(both(READS, path, home)) == {0}


def test_switched_off_with_the_engine(write, home):
    assert set(both(READS, write(), home, SDS_ENGINE="0")) == {0}


def test_missing_chunks_have_the_fill_value(write, home):
    path = write()
    with h5py.File(path, "a") as file:
        del file["d"]
        data = file.create_dataset(
            "d", SHAPE, "f4", chunks=(5, 32, 33), compression="gzip", fillvalue=7
        )
        data[:5] = 1
        data[20:, 64:] = 2
    settle(path)
    served = both(READS, path, home)
    assert served.keys() <= {0, ENGINE}
    assert served[0] >= 7, "after the first missing chunk HDF5 reads all"


def test_chunks_without_some_filters(write, home):
    path = write(shuffle=True)
    raw = np.arange(5 * 32 * 33, dtype="f4")
    with h5py.File(path, "a") as file:
        file["d"].id.write_direct_chunk((5, 32, 33), raw.tobytes(), filter_mask=3)
    settle(path)
    assert both(READS, path, home)[ENGINE] >= 4


ERRORS = f"""
    {OPEN}
        data = file["d"]
        for index in np.s_[:, :, 7], np.s_[...], np.s_[:5], np.s_[5:], np.s_[:, 3, 9]:
            try:
                show("read", data[index])
            except OSError as error:
                print(str(error))
"""


def do_damage(path, damage):
    """Damage one chunk as it is stored."""
    with h5py.File(path) as file:
        chunk = file["d"].id.get_chunk_info_by_coord((5, 32, 33))
    with path.open("r+b") as file:
        file.seek(chunk.byte_offset + (0 if damage == "first byte" else chunk.size // 2))
        if damage == "cut":
            file.write(bytes(chunk.size // 2))
        else:
            byte = file.read(1)[0]
            file.seek(-1, 1)
            file.write(bytes([byte ^ 0x10]))
    settle(path)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("fletcher32", [False, True])
@pytest.mark.parametrize("damage", ["first byte", "middle", "cut"])
def test_damaged_chunks_fail_as_natively(write, home, fletcher32, damage, threads):
    path = write(shuffle=True, fletcher32=fletcher32)
    do_damage(path, damage)
    both(ERRORS, path, home, SDS_THREADS=threads)


def test_a_file_that_this_program_writes_is_left_to_hdf5(write, home):
    program = """
    with h5py.File(path, "a", rdcc_nbytes=1 << 20) as file:
        file["d"][3] = 5
        show("whole", file["d"][...])
        with h5py.File(path, "r+", rdcc_nbytes=1 << 14) as again:
            show("again", again["d"][...])
    """
    assert set(both(program, write(), home)) == {0}


def test_reads_by_many_threads(write, home):
    program = f"""
    from concurrent.futures import ThreadPoolExecutor
    {OPEN}
        data = file["d"]
        with ThreadPoolExecutor(8) as pool:
            for plane in pool.map(lambda k: data[:, :, k], range(100)):
                show("plane", plane)
    """
    assert both(program, write(), home, SDS_THREADS=2)[ENGINE] >= 90


def test_reads_go_on_in_the_child_of_a_fork(write, home):
    program = f"""
    {OPEN}
        show("parent", file["d"][...])
        sys.stdout.flush()
        if (child := os.fork()) == 0:
            show("child", file["d"][:, :, 8])
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(child, 0)
        show("parent", file["d"][:, :, 9])
    """
    assert both(program, write(), home, SDS_THREADS=2)[ENGINE] >= 2


def test_the_log_says_so(write, home, tmp_path):
    log = tmp_path / "log"
    both(READS, write(), home, SDS_DEBUG=log)
    assert [event for event, *_ in decisions(log) if event in {"engine", "served"}] == ["engine"]


WITHOUT_LIBDEFLATE = "no library"
OWN_MEMORY = """
    import ctypes
    libc = ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    said = libc.fopen(b"/dev/shm/%d" % os.getpid(), b"w+")
    libc.malloc_info(0, ctypes.c_void_p(said))
    libc.fclose(ctypes.c_void_p(said))
    with open(f"/dev/shm/{os.getpid()}") as file:
        print(file.read().count("<heap nr="))
    os.remove(f"/dev/shm/{os.getpid()}")
"""


@pytest.mark.parametrize("threads", [1, 3])
def test_without_libdeflate_several_threads_decode_by_zlib(write, home, tmp_path, threads):
    (tmp_path / "libdeflate.so.0").write_text(WITHOUT_LIBDEFLATE)
    how = {"SDS_THREADS": threads, "LD_LIBRARY_PATH": tmp_path}
    served = both(READS, write(shuffle=True), home, **how)
    assert (served.get(ENGINE, 0) >= 4) == (threads > 1)


@pytest.mark.parametrize("has_libdeflate", [True, False])
def test_threads_take_no_memory_from_malloc(write, home, tmp_path, has_libdeflate):
    """It would keep it in an arena of its own for each."""
    if not has_libdeflate:
        (tmp_path / "libdeflate.so.0").write_text(WITHOUT_LIBDEFLATE)
    how = {"SDS_THREADS": 4, "LD_LIBRARY_PATH": tmp_path}
    assert both(READS + OWN_MEMORY, write(shuffle=True), home, **how)[ENGINE] >= 4


# HDF5's cache has room for twenty of the chunks.
WALK = """
    with h5py.File(path, rdcc_nbytes=20 << 14) as file:
        data = file["d"]
        for at in {reads}:
            show("at", data[at])
"""


@pytest.mark.parametrize(
    ("reads", "least", "most"),
    [
        # What was decoded is not asked for again: from the 25th chunk on.
        ("range(200)", 176, 176),
        ("np.random.default_rng(1).permutation(200)", 176, 176),
        ("np.tile(range(30), 10)", 276, 276),
        ("[slice(i, i + 2) for i in range(0, 200, 2)]", 88, 88),
        # It is: HDF5's cache serves every second read, or all after the first ones.
        ("np.repeat(range(200), 2)", 0, 0),
        ("[slice(i, i + 2) for i in range(199)]", 0, 0),
        ("np.tile(range(20), 30)", 0, 0),
        ("[(i, j) for i in range(20) for j in range(64)]", 0, 0),
        # Every tenth is: one thread saves more than that.
        ("np.repeat(range(200), np.tile([1] * 9 + [2], 20))", 194, 194),
        # The months of years, and lists: which chunks they ask for is not followed.
        ("[np.s_[0:120:12, row] for row in range(64)]", 0, 0),
        ("[np.s_[0:40:4, row] for row in range(64)]", 0, 0),
        ("[at for row in range(64) for at in (np.s_[[1, 90, 190], row], np.s_[:9, row])]", 0, 0),
        # Windows of which most was asked for before, though they are larger than the cache.
        ("[slice(i, i + 21) for i in range(20, 150)]", 0, 1),
        # And only later: a quarter of what the cache takes is at stake.
        ("[*range(100), *np.tile(range(19), 30)]", 99, 115),
    ],
)
def test_a_walk_is_decoded_once_the_cache_is_of_no_use(write, home, reads, least, most):
    values = np.random.default_rng(5).integers(0, 200, (200, 64, 64))
    path = write(values, chunks=(1, 64, 64))
    served = both(WALK.format(reads=reads), path, home, SDS_THREADS=1)
    assert least <= served.get(ENGINE, 0) <= most


def test_handles_of_a_dataset_share_what_hdf5_keeps(write, home):
    values = np.random.default_rng(5).integers(0, 200, (200, 64, 64))
    program = """
    with h5py.File(path, rdcc_nbytes=20 << 14) as file:
        handles = [h5py.Dataset(h5py.h5d.open(file.id, b"d")) for _ in range(8)]
        for at in range(200):
            for row, data in enumerate(handles):
                show("row", data[at, row])
    """
    path = write(values, chunks=(1, 64, 64))
    assert ENGINE not in both(program, path, home, SDS_THREADS=1)


def test_a_walk_goes_on_where_its_dataset_is_opened_for_each_read(write, home):
    values = np.random.default_rng(5).integers(0, 200, (200, 64, 64))
    program = """
    with h5py.File(path, rdcc_nbytes=20 << 14) as file:
        for at in range(200):
            show("at", file["d"][at])
    """
    path = write(values, chunks=(1, 64, 64))
    assert both(program, path, home, SDS_THREADS=1)[ENGINE] == 176


PLUGINS = [
    {"compression": "lzf"},
    {"compression": "lzf", "shuffle": True, "fletcher32": True},
    dict(hdf5plugin.LZ4()),
    dict(hdf5plugin.LZ4(nbytes=1024)),
    dict(hdf5plugin.Zstd()) | {"shuffle": True},
    dict(hdf5plugin.Bitshuffle(cname="lz4")),
    dict(hdf5plugin.Bitshuffle(nelems=512, cname="lz4")) | {"dtype": "u2", "fletcher32": True},
    dict(hdf5plugin.Bitshuffle(cname="zstd")) | {"dtype": "f8"},
]
OPENMP_PLUGIN = """
#include <stdlib.h>
void bshuf_bitunshuffle(void) { abort(); }
void LZ4_decompress_safe(void) { abort(); }
static const int described[] = {1, 32008};
const void *H5PLget_plugin_info(void) { return described; }
"""
WITH_PLUGINS = "\n    import hdf5plugin" + READS


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("how", PLUGINS, ids=str)
def test_codecs_of_plugins_are_used_by_several_threads(write, home, how, threads):
    """One thread is as fast as HDF5, which calls the same functions."""
    served = both(WITH_PLUGINS, write(**how), home, SDS_THREADS=threads)
    assert (served.get(ENGINE, 0) >= 4) == (threads > 1)


@pytest.mark.parametrize("how", [how for how in PLUGINS if "dtype" not in how], ids=str)
def test_what_no_codec_makes_smaller_is_decoded(write, home, how):
    values = np.random.default_rng(6).integers(0, 256, (*SHAPE[:2], 8 * SHAPE[2]), "u1")
    path = write(values, **how | {"chunks": (5, 32, 330), "dtype": "u1"})
    assert both(WITH_PLUGINS, path, home, SDS_THREADS=2)[ENGINE] >= 4


@pytest.mark.parametrize(
    ("how", "damage"),
    [
        (how, damage)
        for how in PLUGINS
        for damage in ("first byte", "middle", "cut")
        # Behind an LZF stream that is too short, HDF5 gives what happens to be in memory.
        if (how, damage) != ({"compression": "lzf"}, "cut")
    ],
)
def test_damaged_chunks_of_plugins_fail_as_natively(write, home, how, damage):
    path = write(**how)
    do_damage(path, damage)
    both("\n    import hdf5plugin" + ERRORS, path, home, SDS_THREADS=3)


def test_plugins_with_threads_of_their_own_are_left_to_hdf5(write, home, tmp_path):
    source, library = tmp_path / "plugin.c", tmp_path / "libh5openmp.so"
    source.write_text(OPENMP_PLUGIN)
    options = ["-shared", "-fPIC", "-Wl,--no-as-needed", "-fopenmp"]
    subprocess.run(["cc", *options, source, "-o", library], check=True)
    loads = f"\n    import ctypes; ctypes.CDLL({str(library)!r})"
    path = write(**hdf5plugin.Bitshuffle())
    assert ENGINE not in both(loads + WITH_PLUGINS, path, home, SDS_THREADS=3)


def test_functions_of_what_is_no_plugin_of_the_filter_are_not_called(write, home, tmp_path):
    source, library = tmp_path / "plugin.c", tmp_path / "libh5other.so"
    source.write_text(OPENMP_PLUGIN.replace("32008", "32007"))
    subprocess.run(["cc", "-shared", "-fPIC", source, "-o", library], check=True)
    loads = f"\n    import ctypes; ctypes.CDLL({str(library)!r})"
    path = write(**hdf5plugin.Bitshuffle())
    assert both(loads + WITH_PLUGINS, path, home, SDS_THREADS=3)[ENGINE] >= 4


def test_functions_of_plugins_are_not_called_once_a_library_was_unloaded(write, home, tmp_path):
    library = tmp_path / "libother.so"
    subprocess.run(
        ["cc", "-shared", "-x", "c", "-", "-o", library], input="int one;", text=True, check=True
    )
    program = f"""
    import ctypes, _ctypes, hdf5plugin
    {OPEN}
        data = file["d"]
        show("before", data[...])
        _ctypes.dlclose(ctypes.CDLL({str(library)!r})._handle)
        show("after", data[...])
        show("again", file["d"][...])
    """
    served = both(program, write(**hdf5plugin.Zstd()), home, SDS_THREADS=3)
    assert served == {ENGINE: 2, 0: 1}


OWN_FILTER = """
#include <stdlib.h>
#include <string.h>
enum { bytes = 5 * 32 * 33 * 4 };
static size_t sevens(unsigned flags, size_t n_values, const unsigned values[], size_t n,
                     size_t *size, void **buffer)
{
    free(*buffer);
    *buffer = malloc(bytes);
    return memset(*buffer, 7, bytes), *size = bytes;
}
const struct {
    int version, number;
    unsigned encodes, decodes;
    const char *name;
    void *can_apply, *set_local;
    size_t (*filter)(unsigned, size_t, const unsigned[], size_t, size_t *, void **);
} own_filter = {1, NUMBER, 1, 1, "sevens", 0, 0, sevens};
"""


@pytest.mark.parametrize("reads_before", [False, True])
@pytest.mark.parametrize("how", [*PLUGINS[2:3], *PLUGINS[5:6], PLUGINS[0]], ids=str)
def test_a_filter_that_the_program_has_in_place_of_a_plugin_is_called(
    write, home, tmp_path, how, reads_before
):
    path, library = write(**how), tmp_path / "own.so"
    with h5py.File(path) as file:
        number = file["d"].id.get_create_plist().get_filter(0)[0]
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", library],
        input=OWN_FILTER.replace("NUMBER", str(number)), text=True, check=True,
    )  # fmt: skip
    program = f"""
    import ctypes, hdf5plugin
    own = ctypes.CDLL({str(library)!r})
    if {reads_before}:
        {OPEN}
            show("before", file["d"][...])
    h5py.h5z.register_filter(ctypes.addressof(ctypes.c_char.in_dll(own, "own_filter")))
    {OPEN}
        show("whole", file["d"][...])
        assert (file["d"][...].view("u1") == 7).all()
    """
    served = both(program, path, home, SDS_THREADS=3)
    assert served.get(ENGINE, 0) == reads_before


def test_a_filter_that_is_missing_stays_missing(write, home):
    both(ERRORS, write(**hdf5plugin.Zstd()), home, SDS_THREADS=3)


def test_one_thread_where_address_space_is_short(write, home):
    limited = (
        "\n    import resource\n    resource.setrlimit(resource.RLIMIT_AS, (1 << 36, 1 << 36))"
    )
    for how, is_served in (hdf5plugin.Bitshuffle(), False), (hdf5plugin.Zstd(), True):
        served = both(limited + WITH_PLUGINS, write(**how), home, SDS_THREADS=3)
        assert (ENGINE in served) == is_served
