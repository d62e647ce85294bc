"""Originals that the program's chunk cache holds: replicas that are slower than it give way."""

import h5py
import numpy as np
import pytest

from sds.organizer import plan_reorganization, reorganize
from sds.redirect.tables import publish_table
from tests.redirected import reads_by_replica, settle, table_of, with_models
from tests.under_connector import (
    connector_environment,
    decisions,
    native_environment,
    run_python,
)

SHAPE = (64, 256, 256)
N_BYTES = 4 * 64 * 256 * 256
N_READS = 3 * SHAPE[0]

READ = """
    import sys, h5py, numpy as np
    size = int(sys.argv[2])
    values = np.arange({n}, dtype="<i4").reshape({shape}) // 7
    with h5py.File(sys.argv[1], rdcc_nbytes=size, rdcc_nslots=1009) as file:
        data = file["d"]
        right = [np.array_equal(data[i], values[i]) for _ in range(3) for i in range({shape}[0])]
    print(sum(right))
"""


OUTSIDE = """
    import sys, h5py, numpy as np
    from h5py import h5s
    with h5py.File(sys.argv[1], rdcc_nbytes={size}, rdcc_nslots=1009) as file:
        data, largest = file["d"], 2**64 - 2
        memory, out = h5s.create_simple((1,)), np.empty(1, "i4")
        for start in ((63, 255, 256), (64, 0, 0), (2**63, 0, 0), (0, 0, largest - 1)):
            space = h5s.create_simple((largest, 1024, largest))
            space.select_hyperslab(start, (1, 1, 1))
            try:
                data.id.read(memory, space, out)
                print("read", start)
            except (OSError, ValueError, RuntimeError):
                print("refused", start)
        print(data[1, 2, 3])
"""


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """A dataset in compressed chunks, and a replica in another order that is taken for cheaper."""
    from sds.home import Home

    place = tmp_path_factory.mktemp("kept")
    path, home = place / "d.h5", Home(place / "home")
    with h5py.File(path, "w") as file:
        values = np.arange(N_BYTES // 4, dtype="<i4").reshape(SHAPE) // 7
        file.create_dataset("d", data=values, chunks=(64, 64, 64), compression=1)
    settle(path)
    plan = plan_reorganization(path, "/d", order=(2, 0, 1), chunks=(64, 64, 64), home=home)
    replica = reorganize(plan, home=home)
    publish_table(home, with_models(table_of(path, [(7, replica)]), original_s=1, replica_s=1e-6))
    return path, home


@pytest.mark.parametrize("holds_all", [True, False])
def test_a_cache_that_holds_all_chunks_is_used(published, tmp_path, holds_all):
    path, home = published
    for spool in home.spool.glob("*"):
        spool.unlink()
    log = tmp_path / "log"
    env = connector_environment(home.root, SDS_DEBUG=log)
    size = N_BYTES if holds_all else N_BYTES - 1
    said = run_python(READ.format(n=N_BYTES // 4, shape=SHAPE), path, size, env=env).stdout
    assert int(said) == N_READS
    served = reads_by_replica(home).get(7, 0)
    gave_way = any("the program's chunk cache" in line[-1] for line in decisions(log))
    assert gave_way == holds_all
    if holds_all:
        assert 0 < served < N_READS // 2
    else:
        assert served == N_READS


def test_selections_outside_the_dataset_are_left_to_hdf5(published):
    path, home = published
    program = OUTSIDE.format(size=N_BYTES)
    expected = run_python(program, path, env=native_environment()).stdout
    assert expected.endswith(f"\n{(1 * 65536 + 2 * 256 + 3) // 7}\n")
    assert run_python(program, path, env=connector_environment(home.root)).stdout == expected
