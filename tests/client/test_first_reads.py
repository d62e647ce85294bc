"""First reads of replicas: what they ask for is fetched while the replica is checked."""

import tempfile
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from sds.home import Home
from sds.redirect.tables import publish_table
from tests.page_cache import drop_from_page_cache, pages_cached
from tests.redirected import redirect, settle
from tests.under_connector import connector_environment, native_environment, run_python
from tests.waiting import wait_until

SHAPE = (128, 128, 200)
PLANE_PAGES = 128 * 128 * 8 // 4096

PROGRAMS = {
    "the connector": """
        import sys
        import h5py, numpy as np
        with h5py.File(sys.argv[1]) as file:
            np.save(sys.argv[2], file["cube"][:, :, 93])
    """,
    "the first call of sds.read": """
        import sys
        import numpy as np
        import sds
        np.save(sys.argv[2], sds.read(sys.argv[1], "/cube", np.s_[:, :, 93]))
    """,
    "a later call of sds.read": """
        import sys
        import numpy as np
        import sds
        from sds.client import replica_reader
        replica_reader.SETTLED_S = 0.0  # the table was written just now
        sds.read(sys.argv[1], "/cube", np.s_[1, 2, 3])
        np.save(sys.argv[2], sds.read(sys.argv[1], "/cube", np.s_[:, :, 93]))
    """,
}


@pytest.fixture(scope="module")
def cube():
    """A file, its home and its redirect table, where the page cache can be emptied."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:  # /tmp may be in memory
        path, home = Path(directory, "cube.h5"), Home(Path(directory, "home"))
        home.create()
        with h5py.File(path, "w") as file:
            file["cube"] = np.random.default_rng(7).random(SHAPE)
        settle(path)
        yield path, home, redirect(path, [("/cube", (2, 0, 1))], home, always=False)


def read_cold(by, cube, table):
    """Return a plane, and how many pages of the replica are cached once its fetching is over."""
    path, home, _ = cube
    publish_table(home, table)
    (replica,) = (candidate.path for candidate in table.datasets[0].candidates)
    is_connector = by == "the connector"
    env = (
        connector_environment(home.root) if is_connector else native_environment(SDS_HOME=home.root)
    )
    result = path.with_name("plane.npy")
    drop_from_page_cache(replica)
    drop_from_page_cache(path)  # a source in memory would serve
    run_python(PROGRAMS[by], path, result, env=env)
    n_pages = wait_until(
        lambda: (n := pages_cached(replica).sum()) >= PLANE_PAGES and n,
        lambda: f"{PLANE_PAGES} pages, but {pages_cached(replica).sum()}, are fetched",
    )
    return np.load(result), n_pages


@pytest.mark.parametrize("by", PROGRAMS)
def test_a_plane_is_fetched_before_its_replica_is_found_to_be_good(by, cube):
    """Seen where it is not: the original is read, and the plane has been fetched all the same."""
    path, _, table = cube
    with h5py.File(path) as file:
        expected = file["cube"][:, :, 93]
    (dataset,) = table.datasets
    (candidate,) = dataset.candidates
    wrong = replace(candidate, metadata_crc32c=candidate.metadata_crc32c ^ 1)
    refused = replace(table, datasets=(replace(dataset, candidates=(wrong,)),))
    for one in (table, refused):
        values, n_pages = read_cold(by, cube, one)
        assert np.array_equal(values, expected)
        # With what lies around the dataset, and what the kernel reads ahead of that.
        assert PLANE_PAGES <= n_pages < 8 * PLANE_PAGES
