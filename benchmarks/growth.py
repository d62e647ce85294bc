"""What commands and the server take as a home grows: ``python -m benchmarks.growth [N ...]``.

Homes of 10^2 to 10^5 replicas, ten of each source, and as many spool files as replicas, one of a
process each. Only what a step changes may cost time: one more replica of a tiny file, a start of
the server with nothing left to do, a page of a list, a look into a spool where nothing happened.

Replicas are copies of ten that the organizer built, each with its own source written into it;
sources are names of one file, so nothing else differs. Rows are inserted at once, as of replicas
that were verified just now. The tables of the first sources are published by the product, the
others are copies of these. Reading a file for the first time after it was written is not part of
what is measured.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

import h5py
import httpx
import numpy as np
from sqlalchemy import insert, update

from sds import _native, _spool_writer
from sds.catalog.records import ReplicaState
from sds.catalog.requests import ReorganizeRequest
from sds.catalog.rows import DatasetRow, ReplicaRow, SourceFileRow
from sds.hdf5.identity import identity_of
from sds.home import Home
from sds.organizer.replica_file.block_checksums import metadata_checksum
from sds.organizer.replica_file.replica import Replica, describe_replica
from sds.redirect.tables import read_table, table_path
from sds.server.operations.service import Service
from sds.server.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sds.catalog.records import ReplicaRecord
    from sds.catalog.store import Store
    from sds.redirect.tables import RedirectTable

EXTENT = (2, 3, 4, 5)
PER_SOURCE = 10
ORDERS = list(itertools.permutations(range(4)))[1 : PER_SOURCE + 1]
READS = 20
_OLD_NS = 1_700_000_000 * 10**9  # before any identity has to settle
_ROWS_AT_ONCE = 10_000  # a multiple of PER_SOURCE
_PUBLISHED = 100  # sources whose tables the product makes


def write_source(path: Path) -> None:
    """Write a tiny file that nobody is busy with."""
    with h5py.File(path, "w") as handle:
        handle["cube"] = np.arange(np.prod(EXTENT), dtype="<f4").reshape(EXTENT)
    os.utime(path, ns=(_OLD_NS, _OLD_NS))


@dataclass(frozen=True, slots=True)
class _Template:
    """A replica that the organizer built, its file, and where that names the source."""

    replica: Replica
    content: bytes
    at: slice

    @classmethod
    def of(cls, replica: Replica) -> _Template:
        content = replica.path.read_bytes()
        named = str(replica.source_path).encode()
        first = content.index(named)  # of the attribute; the plan, behind it, is for people
        return cls(replica, content, slice(first, first + len(named)))

    def clone(self, path: Path, source: Path) -> Replica:
        """Write a copy that is of another name of the source; describe it."""
        named = str(source).encode()
        if len(named) != self.at.stop - self.at.start:
            raise ValueError(source)
        with path.open("xb") as stream:
            stream.write(self.content[: self.at.start] + named + self.content[self.at.stop :])
        with path.open("rb") as stream:
            metadata_crc32c = metadata_checksum(
                stream.fileno(),
                data_offset_bytes=self.replica.data_offset_bytes,
                size_bytes=self.replica.size_bytes,
            )
        return replace(
            self.replica,
            path=path,
            source_path=source,
            identity=identity_of(path),
            metadata_crc32c=metadata_crc32c,
        )


def _row(number: int, replica: Replica, now_ns: int) -> dict[str, object]:
    return {
        "id": number,
        "dataset_id": 1 + (number - 1) // PER_SOURCE,
        "layout": replica.layout,
        "state": ReplicaState.ACTIVE,
        "path": str(replica.path),
        "source_identity": replica.source_identity,
        "size_bytes": replica.size_bytes,
        "stored_bytes": replica.stored_bytes,
        "n_tiles": 0,
        "has_file": True,
        "created_ns": 1,
        "changed_ns": 1,
        "reason": "every byte verified; asked for by name",
        "build_s": replica.build_s,
        "verified_ns": now_ns,
        "replica": replica,
    }


def _templates(root: Path, source: Path) -> list[_Template]:
    """Build one replica in each order of a source, in a home that is only for that."""
    with Service.open(Home(root / "template"), Settings()) as service:
        records = [
            service.reorganize(ReorganizeRequest(file=str(source), dataset="/cube", order=order))
            for order in ORDERS
        ]
    return [_Template.of(record.replica) for record in records if record.replica is not None]


def _sources(root: Path, n: int) -> list[Path]:
    """Return the paths of a home's sources."""
    return [root / "sources" / f"{1 + i:08}.h5" for i in range(n // PER_SOURCE)]


def add_replicas(home: Home, root: Path, n: int) -> None:
    """Add n replicas to a home that has none, PER_SOURCE of each source below ``root``.

    Their tables are to be published.
    """
    (root / "sources").mkdir()
    sources = _sources(root, n)
    write_source(sources[0])
    for source in sources[1:]:
        source.hardlink_to(sources[0])
    templates = _templates(root, sources[0])
    identity = templates[0].replica.source_identity
    now_ns = time.time_ns()

    def rows() -> Iterator[dict[str, object]]:
        number = 0
        for source in sources:
            place = home.replicas / source.stem
            place.mkdir()
            for i, template in enumerate(templates):
                number += 1
                yield _row(number, template.clone(place / f"{i}.h5", source), now_ns)

    with Service.open(home, Settings()) as service:
        store: Store = service._store  # noqa: SLF001  (rows as the product writes them)
        with store.writing() as session:
            session.execute(
                insert(SourceFileRow),
                [
                    {
                        "id": 1 + i,
                        "path": str(source),
                        "identity": identity,
                        "seen_ns": 1,
                        "published": "0",
                    }
                    for i, source in enumerate(sources)
                ],
            )
            session.execute(
                insert(DatasetRow),
                [
                    {
                        "id": 1 + i,
                        "source_file_id": 1 + i,
                        "path": "/cube",
                        "extent": EXTENT,
                        "element_size_bytes": 4,
                        "storage": "contiguous",
                        "data_offset_bytes": 2048,
                        "chunk_shape": None,
                    }
                    for i in range(len(sources))
                ],
            )
            every = rows()
            while some := list(itertools.islice(every, _ROWS_AT_ONCE)):
                session.execute(insert(ReplicaRow), some)
        (last,) = service.replicas(str(sources[-1]))[-1:]
        found = describe_replica(Path(last.path))
        if replace(found, created="", build_s=0.0) != replace(
            last.replica or found, created="", build_s=0.0
        ):
            raise SystemExit(f"a copied replica is not what its row says: {found}")


def publish(service: Service, n_sources: int) -> float:
    """Publish the tables of a home that has none; return the seconds per replica.

    The product does so for n sources, and its time is taken; those of the others are copied.
    """
    store, publisher = service._store, service._publisher  # noqa: SLF001  (some sources only)
    began = time.perf_counter()
    first = publisher.publish_outdated(n_sources)
    publish_s = (time.perf_counter() - began) / (PER_SOURCE * len(first))
    template = read_table(service.home, first[0])
    shown = store.published(first[0])
    after = 0
    copied: list[tuple[str, Path]] = []
    while page := store.replicas(after=after, limit=_ROWS_AT_ONCE):
        after = page[-1].id
        for source, records in itertools.groupby(page, key=lambda record: record.file):
            if source not in first:
                path = _copy_table(service.home, template, Path(source), list(records))
                copied.append((source, path))
    if copied:
        source, path = copied[-1]
        before = path.read_bytes()
        publisher.publish(source)
        if path.read_bytes() != before:
            raise SystemExit(f"a copied table is not what the product writes: {path}")
        with store.writing() as session:
            session.execute(update(SourceFileRow).values(published=shown))
    service.recover()  # notes that all of them are there
    return publish_s


def _copy_table(
    home: Home, template: RedirectTable, source: Path, records: list[ReplicaRecord]
) -> Path:
    """Write the table of a source whose replicas differ from those of another by name alone."""
    (dataset,) = template.datasets
    candidates = []
    for candidate, record in zip(dataset.candidates, records, strict=True):
        replica = record.replica
        if replica is None or replica.order != candidate.order:
            raise SystemExit(f"replica {record.id} is not what it was written to be")
        candidates.append(
            replace(
                candidate,
                replica_id=record.id,
                path=replica.path,
                identity=replica.identity,
                metadata_crc32c=replica.metadata_crc32c,
            )
        )
    table = replace(
        template,
        source_path=source,
        datasets=(replace(dataset, candidates=tuple(candidates)),),
    )
    path = table_path(home, source)
    path.write_bytes(table.to_bytes())
    path.chmod(0o600)
    return path


def add_spool_files(home: Home, root: Path, n: int, first: int = 0) -> None:
    """Add the traces of n processes that have ended, of READS reads each of one source."""
    source = root / "sources" / f"{1:08}.h5"
    starts = np.zeros((READS, 4), dtype=np.int64)
    starts[:, 3] = np.arange(READS) % EXTENT[3]
    identity = _native.identity(source)
    for i in range(first, first + n):
        writer = _spool_writer.SpoolWriter(
            home.spool, pid=2**22 + 1 + i, start_ns=i, host=os.uname().nodename, executable="x"
        )
        dataset = writer.add_dataset(
            file=str(source),
            path="/cube",
            identity=identity,
            extent=EXTENT,
            element_bytes=4,
            type_class=1,
            storage=1,
            data_offset_bytes=2048,
        )
        writer.add_reads(
            dataset,
            start=starts,
            stride=(1, 1, 1, 1),
            count=(2, 3, 4, 1),
            block=(1, 1, 1, 1),
            start_ns=_OLD_NS + np.arange(READS) * 1_000_000,
            elapsed_ns=np.full(READS, 500_000),
            n_elements=24,
        )
        writer.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What was measured of one home; times are medians of ROUNDS where a step can be repeated."""

    replicas: int
    spool_files: int
    publish_ms: float  # of each replica, of the first sources' tables
    reorganize_s: float  # a tiny file, by the command without a server
    reorganize_cpu_s: float
    start_s: float  # of sds-server, until it answers
    start_cpu_s: float
    status_ms: float
    page_ms: float  # of 100 replicas
    advise_ms: float  # of one stated read of one source
    ingest_ms: float  # of each trace, processor time
    idle_percent: float  # of one core, of a server with nothing to do


ROUNDS = 5
IDLE_S = 20.0
PATIENCE_S = 300.0


def make_home(root: Path, n: int) -> tuple[float, float]:
    """Make a home of n replicas and n spool files; return what publishing and ingest take of each.

    Seconds: on the clock, and of the processor.
    """
    home = Home(root / "home")
    home.create()
    add_replicas(home, root, n)
    with Service.open(home, Settings()) as service:
        publish_s = publish(service, _PUBLISHED)
        add_spool_files(home, root, n)
        began = time.process_time()
        counted = service.ingest()
        ingest_s = time.process_time() - began
        if counted.files_complete != n:
            raise SystemExit(f"{counted.files_complete} of {n} traces were counted")
    return publish_s, ingest_s / n


def measure(root: Path, n: int, publish_s: float, ingest_s: float) -> Figures:
    """Measure a home that `make_home` made."""
    home = Home(root / "home")
    tiny = root / "tiny.h5"
    write_source(tiny)
    walls, cpus = zip(*[_reorganize(home, tiny, order) for order in ORDERS[:ROUNDS]], strict=True)
    with _server(home) as (process, client, start_s):
        start_cpu_s = _used_s(process.pid)
        source = str(root / "sources" / f"{1:08}.h5")
        question = {
            "datasets": [{"file": source, "dataset": "/cube"}],
            "selection": "[:, :, :, 0]",
        }
        status_s = _median(client, "GET", "status")
        page_s = _median(client, "GET", "replicas?limit=100")
        advise_s = _median(client, "POST", "advise", question)
        idle = _idle_share(process.pid)
    return Figures(
        replicas=n,
        spool_files=n,
        publish_ms=1e3 * publish_s,
        reorganize_s=statistics.median(walls),
        reorganize_cpu_s=statistics.median(cpus),
        start_s=start_s,
        start_cpu_s=start_cpu_s,
        status_ms=1e3 * status_s,
        page_ms=1e3 * page_s,
        advise_ms=1e3 * advise_s,
        ingest_ms=1e3 * ingest_s,
        idle_percent=100 * idle,
    )


def _environment(home: Home) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return kept | {"SDS_HOME": str(home.root)}


def _reorganize(home: Home, source: Path, order: tuple[int, ...]) -> tuple[float, float]:
    """Return wall and processor seconds of one command."""
    axes = ",".join(map(str, order))
    command = [sys.executable, "-m", "sds.cli", "reorganize", f"{source}:/cube", "--order", axes]
    before = os.times()
    began = time.perf_counter()
    subprocess.run(command, env=_environment(home), check=True, stdout=subprocess.DEVNULL)
    wall_s = time.perf_counter() - began
    after = os.times()
    cpu_s = after.children_user + after.children_system
    return wall_s, cpu_s - before.children_user - before.children_system


@contextmanager
def _server(home: Home) -> Iterator[tuple[subprocess.Popen[bytes], httpx.Client, float]]:
    """Run a server; yield it, a client, and the seconds until it answered."""
    began = time.perf_counter()
    with (home.root / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "sds.server.main"],
            env=_environment(home),
            stdout=log,
            stderr=log,
        )
    try:
        client = None
        while client is None:
            if process.poll() is not None or time.perf_counter() - began > PATIENCE_S:
                raise SystemExit((home.root / "server.log").read_text())
            time.sleep(0.005)
            client = _client_of(home)
        with closing(client):
            yield process, client, time.perf_counter() - began
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def _client_of(home: Home) -> httpx.Client | None:
    """Return a client of the server of a home; None before it answers."""
    try:
        address = json.loads(home.server_address.read_text())
        token = dict(line.split() for line in home.token.read_text().splitlines())["operate"]
    except (FileNotFoundError, ValueError, KeyError):
        return None
    socket = address.get("socket")
    client = httpx.Client(
        base_url=address["url"] or "http://localhost",
        transport=httpx.HTTPTransport(uds=socket) if socket else None,
        headers={"Authorization": f"Bearer {token}"},
        trust_env=False,
        timeout=PATIENCE_S,
    )
    try:
        if client.get("/healthz").is_success:
            return client
    except httpx.TransportError:
        pass
    client.close()
    return None


def _median(client: httpx.Client, method: str, what: str, body: object = None) -> float:
    """Return the median time of a request, the first left out."""
    times = []
    for _ in range(ROUNDS + 1):
        began = time.perf_counter()
        client.request(method, f"/api/v1/{what}", json=body).raise_for_status()
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:])


def _used_s(pid: int) -> float:
    """Return the processor time of a process."""
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, stat[11:13])) / os.sysconf("SC_CLK_TCK")


def _idle_share(pid: int) -> float:
    """Return the share of a core that a process takes while nobody asks it anything."""
    time.sleep(8.0)  # the first looks into the spool know nothing yet
    before = _used_s(pid)
    time.sleep(IDLE_S)
    return (_used_s(pid) - before) / IDLE_S


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "replicas",
        nargs="*",
        type=int,
        default=[100, 1000, 10_000, 100_000],
        help="of each home (default: 100 to 100000, tenfold each time)",
    )
    parser.add_argument("--directory", type=Path, help="where to make the homes; 3 GiB for 10^5")
    given = parser.parse_args()
    names = [field.name for field in fields(Figures)]
    print("  ".join(f"{name:>{max(8, len(name))}}" for name in names))
    for n in given.replicas:
        with tempfile.TemporaryDirectory(dir=given.directory) as root:
            found = measure(Path(root), n, *make_home(Path(root), n))
        shown = [getattr(found, name) for name in names]
        print(
            "  ".join(
                f"{value:>{max(8, len(name))}{'.2f' if isinstance(value, float) else ''}}"
                for name, value in zip(names, shown, strict=True)
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
