"""Chunks that others than the organizer stored: they are read right, or from the original."""

import dataclasses
import subprocess
import zlib

import h5py
import numpy as np
import pytest

from sds.hdf5.identity import identity_of
from tests.false_libraries import WRONG_LIBDEFLATE
from tests.redirected import publish_candidates, settle, write_replica
from tests.under_connector import native_environment, run_python
from tests.vol.test_kinds import run_and_tell

CHUNK = (4, 8, 16)
ORDER = (2, 0, 1)
COULD_NOT = "the replica could not be read"

READ = """
    import sys, h5py, numpy as np
    with h5py.File(sys.argv[1]) as file:
        data = file["cube"]
        for index in (np.s_[:, :, 1], np.s_[3, 2:9, :5], np.s_[:, ::7, ::5], np.s_[:, :, :7]):
            print(data[index].tolist())
"""
N_READS = 4


@pytest.fixture
def cube(tmp_path):
    path = tmp_path / "cube.h5"
    values = np.zeros((16, 32, 8), "i4")
    values[:, :, :4] = np.random.default_rng(1).integers(0, 999, (16, 32, 4))
    with h5py.File(path, "w") as file:
        file["cube"] = values  # zeros where the last chunks of replicas are
    settle(path)
    return path


def fletcher32(content):
    """Return HDF5's checksum as it is stored."""
    first = second = 0
    for word in np.frombuffer(content + bytes(len(content) % 2), ">u2").tolist():
        first = (first + word) % 65535 or 65535
        second = (second + first) % 65535 or 65535
    return (second << 16 | first).to_bytes(4, "little")


def with_checksum(content):
    return content + fletcher32(content)


def replica_with(cube, home, change, **storage):
    """Write a replica, change its file by change(dataset, elements), and publish it."""
    replica = write_replica(cube, "/cube", ORDER, home, chunks=CHUNK, **storage)
    with h5py.File(cube) as file:
        elements = file["cube"][...].transpose(ORDER)
    with h5py.File(replica.path, "r+") as file:
        change(file["cube"], elements)
    replica = dataclasses.replace(replica, identity=identity_of(replica.path))
    publish_candidates(cube, {"/cube": [replica]}, home)


def check(cube, home, n_served):
    native = run_python(READ, cube, env=native_environment()).stdout
    found, served, reasons = run_and_tell(READ, cube, home=home)
    assert found == native
    assert served == n_served
    return reasons


def chunk_of(elements):
    """Return the bytes of the first chunk."""
    return np.ascontiguousarray(elements[tuple(slice(0, n) for n in CHUNK)]).tobytes()


def shuffled(content):
    return np.frombuffer(content, "u1").reshape(-1, 4).T.tobytes()


def deflated(content, window=15):
    coder = zlib.compressobj(6, zlib.DEFLATED, window)
    return coder.compress(content) + coder.flush()


FIRST = (0, 0, 0)
GZIP = {"compression": "gzip", "shuffle": True}  # filters 0: shuffle, 1: deflate, 2: Fletcher32
SERVED = {
    "as HDF5 stores it": lambda c: (deflated(shuffled(c)), 0),
    "a smaller window": lambda c: (deflated(shuffled(c), 9), 0),
    "not deflated": lambda c: (shuffled(c), 0b010),
    "not shuffled": lambda c: (deflated(c), 0b001),
    "neither": lambda c: (c, 0b011),
    "with something behind": lambda c: (deflated(shuffled(c)) + b"more", 0),
}
REFUSED = {
    "too short": lambda c: deflated(shuffled(c[:-4])),
    "too long": lambda c: deflated(shuffled(c + bytes(4))),
    "grows without end": lambda _: deflated(bytes(64 << 20)),
    "larger than any": lambda c: bytes(2 * len(c)),
    "nothing": lambda _: b"",
    "no stream": lambda _: b"\x78\x9c" + b"abcdefgh",
    "another stream": lambda _: b"abcdefgh",
}


@pytest.mark.parametrize("how", SERVED)
def test_however_a_chunk_is_stored(how, cube, home):
    def change(dataset, elements):
        content, mask = SERVED[how](chunk_of(elements))
        dataset.id.write_direct_chunk(FIRST, with_checksum(content), mask)

    replica_with(cube, home, change, **GZIP)
    check(cube, home, N_READS)


@pytest.mark.parametrize("how", REFUSED)
def test_a_chunk_that_no_filter_wrote(how, cube, home):
    def change(dataset, elements):
        dataset.id.write_direct_chunk(FIRST, with_checksum(REFUSED[how](chunk_of(elements))), 0)

    replica_with(cube, home, change, **GZIP)
    assert COULD_NOT in check(cube, home, 0)


@pytest.mark.parametrize("mask", [0b100, 0b111, 0b1000, 1 << 31])
def test_a_chunk_whose_mask_skips_its_checksum_or_filters_that_are_none(mask, cube, home):
    def change(dataset, elements):
        content = chunk_of(elements)
        content = content if mask == 0b111 else with_checksum(deflated(shuffled(content)))
        dataset.id.write_direct_chunk(FIRST, content, mask)

    replica_with(cube, home, change, **GZIP)
    assert COULD_NOT in check(cube, home, 0)


@pytest.mark.parametrize("shift", [1, 4, 300])
def test_a_checksum_is_looked_at_before_anything_is_decoded(shift, cube, home):
    def change(dataset, elements):
        content = bytearray(with_checksum(deflated(shuffled(chunk_of(elements)))))
        content[-shift] ^= 1
        dataset.id.write_direct_chunk(FIRST, bytes(content), 0)

    replica_with(cube, home, change, **GZIP)
    assert COULD_NOT in check(cube, home, 0)


@pytest.mark.parametrize("storage", [{}, GZIP])
def test_chunks_that_were_never_written(storage, cube, home):
    def change(dataset, elements):
        name, file, dtype = dataset.name, dataset.file, dataset.dtype
        del file[name]
        made = file.create_dataset(
            name, elements.shape, dtype, chunks=CHUNK, fletcher32=True, fillvalue=0, **storage
        )
        made[:4] = elements[:4]
        assert made.id.get_num_chunks() < np.prod([-(-n // c) for n, c in zip(
            elements.shape, CHUNK, strict=True)])  # fmt: skip

    replica_with(cube, home, change, **storage)
    check(cube, home, N_READS)


@pytest.mark.parametrize(
    "storage",
    [
        {},
        {"shuffle": True},
        {"compression": "gzip"},
        {"compression": "gzip", "compression_opts": 0},
        GZIP,
        {"compression": "lzf", "shuffle": True},
    ],
)
def test_filters_of_every_kind(storage, cube, home):
    replica_with(cube, home, lambda *_: None, **storage)
    check(cube, home, N_READS)


OF_ITS_NAME = {
    "another library": WRONG_LIBDEFLATE,
    "an old one": "void *libdeflate_alloc_decompressor(void) { return 0; }",
    "none": "",
}


def make_libdeflate(folder, which):
    library = folder / "libdeflate.so.0"
    if which == "none":
        library.write_text("no library")
    else:
        compile_it = ["cc", "-shared", "-fPIC", "-x", "c", "-o", library, "-"]
        subprocess.run(compile_it, input=OF_ITS_NAME[which], text=True, check=True)


@pytest.mark.parametrize("which", OF_ITS_NAME)
@pytest.mark.parametrize("storage", [GZIP, {"compression": "gzip"}], ids=str)
def test_a_library_that_only_has_the_name_of_one_that_decodes(which, storage, cube, home, tmp_path):
    make_libdeflate(tmp_path, which)
    replica_with(cube, home, lambda *_: None, **storage)
    program = (
        """
    import ctypes
    libc = ctypes.CDLL(None)
    libc.dlerror.restype = ctypes.c_char_p
    """
        + READ.replace("for index", "libc.dlerror()\n        for index")
        + """
    print(libc.dlerror())
    """
    )
    native = run_python(program, cube, env=native_environment()).stdout
    assert native.endswith("None\n")
    found, served, _ = run_and_tell(program, cube, home=home, LD_LIBRARY_PATH=tmp_path)
    assert found == native
    assert served == N_READS


LOOK = """
    with open("/proc/self/maps") as maps:
        print("libdeflate" in maps.read())
"""


@pytest.mark.parametrize("storage", [{}, {"chunks": CHUNK} | GZIP], ids=["contiguous", "chunked"])
def test_what_decodes_is_loaded_where_a_replica_has_been_in_chunks(storage, cube, home, tmp_path):
    make_libdeflate(tmp_path, "an old one")
    replica = write_replica(cube, "/cube", ORDER, home, **storage)
    publish_candidates(cube, {"/cube": [replica]}, home)
    for engine in ("0", "1"):  # originals in chunks are decoded as well
        found, served, _ = run_and_tell(
            READ + LOOK, cube, home=home, LD_LIBRARY_PATH=tmp_path, SDS_ENGINE=engine
        )
        assert found.endswith(f"\n{bool(storage) or engine == '1'}\n")
        assert served == N_READS


def test_a_program_that_runs_before_there_is_a_replica_in_chunks(cube, home, tmp_path):
    make_libdeflate(tmp_path, "an old one")
    replica_with(cube, home, lambda *_: None, **GZIP)
    hidden = tmp_path / "hidden"
    home.chunked.rename(hidden)
    published = f"""
    import sys, h5py
    from pathlib import Path
    h5py.File(sys.argv[1]).close()
    Path({str(hidden)!r}).rename({str(home.chunked)!r})
    """
    native = run_python(READ, cube, env=native_environment()).stdout
    found, served, _ = run_and_tell(
        published + READ + LOOK, cube, home=home, LD_LIBRARY_PATH=tmp_path, SDS_ENGINE="0"
    )
    assert found == f"{native}False\n"
    assert served == N_READS
