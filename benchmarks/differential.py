"""Compare what programs read natively and with SDS, whatever befalls tables and replicas.

``python -m benchmarks.differential [--reads N]``; not about speed. Random files, replicas and read
programs (tests/differential) run natively and under the connector, half of them while tables and
replicas are swapped, damaged, deleted and made anew. Ends with 1 at the first difference.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from sds.home import Home
from tests.differential.oracle import Oracle
from tests.differential.programs import Program, programs
from tests.redirected import reads_by_replica

EXAMPLES = 100  # between two lines of progress


def run_batch(oracle: Oracle, number: int) -> None:
    """Run so many programs, the same ones for the same number."""

    @hypothesis.seed(number)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(program=programs(), sabotage_seed=st.none() | st.integers(0, 2**32 - 1))
    def run(program: Program, sabotage_seed: int | None) -> None:
        oracle.check(program, sabotage_seed=sabotage_seed)

    run()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reads", type=int, default=100_000, help="at least so many")
    n_reads = parser.parse_args().reads
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as directory:
        home = Home(Path(directory, "home"))
        home.create()
        oracle = Oracle(Path(directory), home)
        batch = 0
        while oracle.n_reads < n_reads:
            run_batch(oracle, batch)
            batch += 1
            print(f"{oracle.n_reads} reads, no difference", file=sys.stderr, flush=True)
        oracle.close()
        served = reads_by_replica(home)
    rows = {
        "programs": batch * EXAMPLES,
        "reads, native against connector": oracle.n_reads,
        "of them refused by HDF5, in the same words": oracle.n_errors,
        "of them by links, also out of the file and back": oracle.n_by_links,
        "of them after writes": oracle.n_after_writes,
        "writes": oracle.n_writes,
        "served by replicas": sum(n for replica, n in served.items() if replica),
        **{f"{kind.replace('_', ' ')}, times": n for kind, n in sorted(oracle.sabotage.items())},
        "differences": 0,
        "seconds": round(time.perf_counter() - begin),
    }
    for what, n in rows.items():
        print(f"{what:>50} {n:>10}")


if __name__ == "__main__":
    main()
