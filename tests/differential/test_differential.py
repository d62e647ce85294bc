"""Whatever a program reads, and whatever befalls tables and replicas: as without SDS."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sds.home import Home
from tests.differential.oracle import Oracle
from tests.differential.programs import programs
from tests.redirected import reads_by_replica, replicas_served
from tests.sizes import repeated

# The examples share two long-lived processes; each has a file of its own.
LAW = settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.fixture(scope="module")
def oracle(tmp_path_factory):
    directory = tmp_path_factory.mktemp("differential")
    home = Home(directory / "home")
    home.create()
    made = Oracle(directory, home)
    yield made
    made.close()


@given(program=programs())
@settings(LAW, max_examples=repeated(20, 100))
def test_reads_give_what_they_give_natively(oracle, program):
    oracle.check(program)


@given(program=programs(), seed=st.integers(0, 2**32 - 1))
@settings(LAW, max_examples=repeated(20, 100))
def test_reads_give_what_they_give_natively_while_replicas_change(oracle, program, seed):
    oracle.check(program, sabotage_seed=seed)


def test_replicas_and_the_engine_served_a_good_part_of_it(oracle):
    # Of programs that read boxes of what has a replica, one served 0.65 to 1 in 17 runs.
    pairs = replicas_served(oracle.home)
    files = {file for file, _ in pairs}
    assert len(oracle.eligible & files) > 0.5 * len(oracle.eligible) > 2
    assert len(oracle.of_segments & pairs) > 0.1 * len(oracle.of_segments) > 0
    # Numbers and shares vary with the programs drawn: each floor is less than half the least of
    # five runs of 20 examples each.
    served = reads_by_replica(oracle.home)
    from_replicas = sum(n for replica, n in served.items() if replica > 0)
    assert oracle.n_reads > 1000
    # No replica serves what was written, nor under another name.
    assert from_replicas > 0.06 * oracle.n_others > 30
    assert served[-1] > 0.03 * oracle.n_reads
    assert 0 < oracle.n_errors < 0.5 * oracle.n_reads
    assert oracle.n_by_links > 0.1 * oracle.n_reads
    assert oracle.n_after_writes > 0.005 * oracle.n_reads
    assert oracle.n_writes > 10
    assert len(oracle.sabotage) > 4, "tables and replicas were left alone"
