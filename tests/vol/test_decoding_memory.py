"""Threads that decode chunks of replicas, through several HDF5 libraries at a time.

glibc's malloc has memory of its own for each few threads, and keeps there what they free.
"""

import subprocess

import h5py
import numpy as np
import pytest

from tests.redirected import publish_candidates, reads_by_replica, settle, write_replica
from tests.vol.test_cost import MIB, private_memory

N_DATASETS = 15

# A program's own malloc: the connector cannot tell what it does with what is freed.
OWN_MALLOC = """
#include <stddef.h>
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void __libc_free(void *);
void *malloc(size_t n) { return __libc_malloc(n); }
void *calloc(size_t n, size_t size) { return __libc_calloc(n, size); }
void *realloc(void *p, size_t n) { return __libc_realloc(p, n); }
void free(void *p) { __libc_free(p); }
"""

READ = """
    import netCDF4, tables
    path = sys.argv[1]
    open_files = h5py.File(path), netCDF4.Dataset(path), tables.open_file(path)
    libraries = [lambda n: open_files[0][n], lambda n: open_files[1][n],
                 lambda n: open_files[2].root[n]]
    locks = [threading.Lock() for _ in libraries]   # two of them are for one thread at a time
    names = [f"{i:02d}" for i in range(15)]
    np.ones(3 << 20)   # once such sizes were freed, malloc keeps more
    failed = []

    def expected(name, k):
        element = np.arange(64 * 64).reshape(64, 64, 1)
        return (element * (int(name) + 7) + np.arange(k, k + 4)) % 9973

    def read(number):
        for i in range(18):
            name, k = names[(5 * number + i) % 15], 4 * ((number + i) % 16)
            which = (number + i // 6) % 3
            with locks[which]:
                found = libraries[which](name)[:, :, k : k + 4]
            if not np.array_equal(found, expected(name, k)):
                failed.append((name, k))
            if i % 6 == 0:
                time.sleep(0.06)   # longer than a replica is kept open in vain

    threads = [threading.Thread(target=read, args=(number,)) for number in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print_private_memory()
    assert not failed, failed
    open_files[2].close()
"""


@pytest.fixture
def replicas(tmp_path, home, request):
    """Return a file of datasets with replicas in chunks of 1 MiB, with these filters."""
    path = tmp_path / "source.h5"
    element = np.arange(64 * 64).reshape(64, 64, 1)
    with h5py.File(path, "w") as file:
        for i in range(N_DATASETS):
            file[f"{i:02d}"] = ((element * (i + 7) + np.arange(64)) % 9973).astype("i4")
    settle(path)
    publish_candidates(
        path,
        {
            f"/{i:02d}": [
                write_replica(
                    path, f"/{i:02d}", (2, 0, 1), home,
                    number=i + 1, chunks=(64, 64, 64), **request.param,
                )
            ]
            for i in range(N_DATASETS)
        },
        home,
    )  # fmt: skip
    return path


def own_malloc(directory):
    """Return the variables with which a program has a malloc of its own."""
    source, library = directory / "malloc.c", directory / "libmalloc.so"
    source.write_text(OWN_MALLOC)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    return {"LD_PRELOAD": library}


GZIP = {"compression": "gzip", "compression_opts": 1, "shuffle": True}


@pytest.mark.parametrize("replicas", [GZIP], indirect=True)
@pytest.mark.parametrize("where", ["alone", "under MPI", "own malloc"])
def test_three_libraries_decode_in_little_memory(where, replicas, home, tmp_path):
    variables = {}
    if where == "under MPI":
        variables = {"PMIX_RANK": "0"}
    elif where == "own malloc":
        variables = own_malloc(tmp_path)
    more = private_memory(READ, replicas, home=home, **variables)
    assert sum(n for replica, n in reads_by_replica(home).items() if replica > 0) > 50
    assert more <= 8 * MIB, more / MIB


# LZF is h5py's own, which alone decodes it.
@pytest.mark.parametrize(
    "replicas", [{"compression": "lzf"}, {"shuffle": True}, {}], indirect=True, ids=str
)
def test_chunks_that_hdf5_decodes_or_that_are_not_compressed_take_little(replicas, home):
    more = private_memory(READ, replicas, home=home)
    assert sum(n for replica, n in reads_by_replica(home).items() if replica > 0) > 10
    assert more <= 8 * MIB, more / MIB
