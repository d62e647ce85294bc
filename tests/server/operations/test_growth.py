"""In a large home the work for one change is that in a small one.

Work is counted, never timed: calls that the interpreter makes, and instructions of SQLite's virtual
machine, which scan what no index finds.
"""

import contextlib
import errno
import os
import sys
from pathlib import Path

import pytest
from sqlalchemy import Engine, event

from benchmarks.growth import PER_SOURCE, add_replicas, add_spool_files, publish, write_source
from sds.catalog.records import ReplicaState
from sds.catalog.requests import ReorganizeRequest
from sds.home import Home
from sds.redirect.tables import read_table
from sds.server.operations import publisher
from sds.server.operations.service import Service
from sds.server.settings import Settings

SIZES = (1000, 3000)
SPOOL_FILES = (300, 900)


class Work:
    """Counts calls and instructions within ``with``."""

    def __init__(self):
        self.n = 0

    def __enter__(self):
        event.listen(Engine, "connect", self._watch)
        sys.setprofile(self._called)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)
        event.remove(Engine, "connect", self._watch)

    def _called(self, _, kind, __):
        self.n += kind in {"call", "c_call"}

    def _watch(self, connection, _):
        def step():
            self.n += 10

        connection.set_progress_handler(step, 10)


def make_home(root, n_replicas, n_spool):
    """Make a home that is in order, beside a tiny file of which there is no replica."""
    home = Home(root / "home")
    home.create()
    add_replicas(home, root, n_replicas)
    add_spool_files(home, root, n_spool)
    os.utime(home.spool, (1, 1))
    with Service.open(home, Settings()) as service:
        publish(service, n_sources=10)
        service.ingest()
        service.collect_garbage()
    write_source(root / "tiny.h5")
    return home


@pytest.fixture(scope="module")
def homes(tmp_path_factory):
    """Homes of different sizes."""
    return [
        make_home(tmp_path_factory.mktemp("growth"), n, n_spool)
        for n, n_spool in zip(SIZES, SPOOL_FILES, strict=True)
    ]


def work_of(home, operation):
    with Work() as work, Service.open(home, Settings()) as service:
        operation(service)
    return work.n


def reorganize(service):
    tiny = service.home.root.parent / "tiny.h5"
    record = service.reorganize(
        ReorganizeRequest(file=str(tiny), dataset="/cube", order=(3, 2, 1, 0))
    )
    service.remove(record.id)


def background_work(service):
    service.ingest(every_file=False)
    service.collect_garbage(16)
    assert not service.catch_up(set())
    assert not service.verify_due()


def look_at_one(service):
    (page,) = [service.replica_page(limit=20)]
    service.replicas(page.replicas[0].file)
    service.replicas(path=page.replicas[0].path)
    service.datasets(page.replicas[0].file)


OPERATIONS = {
    "start": lambda service: service.recover(),
    "reorganize": reorganize,
    "look at one": look_at_one,
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_work_for_one_change_does_not_grow_with_the_home(homes, name):
    for home in homes:
        work_of(home, OPERATIONS[name])  # what is imported and made once is not counted
    small, large = (work_of(home, OPERATIONS[name]) for home in homes)
    assert large < 1.2 * small


def test_a_look_without_news_costs_less_than_the_first(homes):
    """What is known of each file is asked of the catalog once in a process."""
    for home in homes:
        with Work() as work, Service.open(home, Settings()) as service:
            service.ingest()
            service.verify_due()
            first = work.n
            background_work(service)
            background_work(service)
        assert work.n - first < first


def test_background_work_without_news_does_not_grow_with_the_home(homes):
    """Sources, replicas and files of ended processes are looked at a fixed number at a time."""
    more = []
    for home in homes:
        with Work() as work, Service.open(home, Settings()) as service:
            service.ingest()
            background_work(service)
            first = work.n
            for _ in range(10):
                background_work(service)
            more.append(work.n - first)
    assert more[1] < 1.1 * more[0]


def test_sums_cost_a_few_instructions_for_each_row(homes):
    """Rows of an index are added up; none is made into an object."""
    small, large = (work_of(home, lambda service: service.status()) for home in homes)
    more = SIZES[1] - SIZES[0] + 20 * (SPOOL_FILES[1] - SPOOL_FILES[0])
    assert large - small < 40 * more


@pytest.mark.parametrize("limit", [1, 7, 300, 1000])
def test_pages_together_are_the_list(homes, limit):
    with Service.open(homes[0], Settings()) as service:
        every = service.replicas()
        paged, after = [], 0
        while after is not None:
            page = service.replica_page(after=after, limit=limit)
            assert len(page.replicas) <= limit
            assert page.total == len(every) == SIZES[0]
            paged += page.replicas
            after = page.next
        assert tuple(paged) == every


def _tables(home):
    return {path.name: path.read_bytes() for path in home.tables.iterdir()}


@pytest.fixture
def changed(tmp_path):
    """A home to be changed, of more sources than a command looks at, and these."""
    home = make_home(tmp_path, 80 * PER_SOURCE, 0)
    return home, [str(tmp_path / "sources" / f"{1 + i:08}.h5") for i in range(80)]


def test_what_a_kill_left_unpublished_is_published_by_the_next_command(changed):
    """Wherever in the home: commands do not go through all of it."""
    home, sources = changed
    with Service.open(home, Settings()) as service:
        service.recover()
        hit = sources[:: len(sources) // 7]
        for file in hit:  # as a process that ends behind the transaction
            for record in service.replicas(file):
                service._store.set_replica(record.id, ReplicaState.DAMAGED, "a block differs")
        assert all(read_table(home, file) for file in hit)
    with Service.open(home, Settings()) as service:
        service.recover()
        assert len(_tables(home)) == len(sources) - len(hit)
        back = service._store.replicas(hit[3], states=frozenset({ReplicaState.DAMAGED}))
        service._store.set_replica(back[0].id, ReplicaState.ACTIVE, "verified")
    with Service.open(home, Settings()) as service:
        service.recover()
        (dataset,) = read_table(home, hit[3]).datasets
        assert [one.replica_id for one in dataset.candidates] == [back[0].id]


def test_tables_that_others_took_away_or_added_are_put_in_order(changed):
    home, sources = changed
    with Service.open(home, Settings()) as service:
        service.recover()
    before = _tables(home)
    names = sorted(before)
    for name in names[::10]:
        (home.tables / name).unlink()
    stray = home.tables / ("0" * 32 + ".sdst")
    stray.write_bytes(before[names[0]])
    with Service.open(home, Settings()) as service:
        assert service.recover().tables_withdrawn == (stray.name,)
    assert _tables(home) == before
    assert len(before) == len(sources)


def test_a_new_catalog_withdraws_what_it_does_not_know(changed):
    home, _ = changed
    for path in home.root.glob("sds.db*"):
        path.unlink()
    with Service.open(home, Settings()) as service:
        service.recover()
    assert _tables(home) == {}


def test_other_settings_reach_every_table_by_and_by(changed):
    home, sources = changed
    settings = Settings(stripe_size_bytes=65536, stripe_count=4)
    with Service.open(home, settings) as service:
        service.recover()
        striped = [read_table(home, file).datasets[0].stripes.stripe_count == 4 for file in sources]
        assert 0 < sum(striped) < len(sources), "a command does some of them"
        while service.catch_up(set()):
            pass
        assert all(read_table(home, file).datasets[0].stripes.stripe_count == 4 for file in sources)


def test_what_cannot_be_looked_at_keeps_no_other_from_being_published(changed, monkeypatch):
    """As where their file system is gone: they stay outdated, and are tried again later."""
    home, sources = changed
    gone = {*sources[::3], *sources[:30]}
    look = publisher.current_source

    def look_unless_gone(file, trusted):
        if file in gone:
            raise OSError(errno.ENOTCONN, "Transport endpoint is not connected", file)
        return look(file, trusted)

    monkeypatch.setattr(publisher, "current_source", look_unless_gone)
    with Service.open(home, Settings(stripe_size_bytes=65536, stripe_count=4)) as service:
        unreachable = set()
        while service.catch_up(unreachable):
            pass
        assert unreachable == gone
        striped = {
            file for file in sources if read_table(home, file).datasets[0].stripes.stripe_count == 4
        }
        assert striped == set(sources) - gone


def test_every_source_is_looked_at_wherever_a_command_begins(changed):
    """A background goes round; each round sees each source once."""
    home, sources = changed
    gone = sources[5::20]
    with Service.open(home, Settings()) as service:
        service.recover()
        for file in gone:
            for record in service.replicas(file)[: PER_SOURCE // 2]:
                with contextlib.suppress(FileNotFoundError):
                    Path(record.path).unlink()
        for _ in range(len(sources) // 16 + 1):
            service.collect_garbage(16)
        for file in gone:
            (dataset,) = read_table(home, file).datasets
            assert len(dataset.candidates) == PER_SOURCE - PER_SOURCE // 2
