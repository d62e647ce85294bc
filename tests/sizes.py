"""Two sizes of the tests: `make test` holds every law, `make test-all` repeats it many times."""

import os

IS_ALL = os.environ.get("SDS_TESTS") == "all"


def repeated(n, n_all):
    """Return how often to repeat a law: `n` times, in `make test-all` `n_all` times."""
    return n_all if IS_ALL else n
