"""What commands and the server take as a home grows: ``python -m benchmarks.growth [--upto N]``.

Homes of 10^2 to 10^5 replicas, ten of each source, and as many spool files as replicas, one of a
process each. Only what a step changes may cost time: one more replica of a tiny file, a start of
the server with nothing left to do, a page of a list, a look into a spool where nothing happened.

Replicas are copies of one that the organizer built, with their own source written into them, and
their rows are inserted at once; the tables are published by the product. Reading a file for the
first time after it was written is not part of what is measured.
"""

from __future__ import annotations

import argparse
import dataclasses
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
from sqlalchemy import insert

from sds import _native
from sds.catalog.records import ReorganizeRequest, ReplicaState
from sds.catalog.rows import DatasetRow, ReplicaRow, SourceFileRow
from sds.home import Home
from sds.identity import FileIdentity, identity_of, source_identity
from sds.organizer.blocks import metadata_checksum
from sds.organizer.replica import SOURCE, SOURCE_IDENTITY, describe_replica, stored_path
from sds.server.service import Service
from sds.server.settings import Settings
from tests.replica_files import edited

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sds.catalog.store import Store
    from sds.organizer.replica import Replica

EXTENT = (2, 3, 4, 5)
PER_SOURCE = 10
ORDERS = list(itertools.permutations(range(4)))[1 : PER_SOURCE + 1]
READS = 20
_OLD_NS = 1_700_000_000 * 10**9  # before any identity has to settle
_ROWS_AT_ONCE = 10_000


def write_source(path: Path) -> FileIdentity:
    """Write a tiny file that nobody is busy with."""
    with h5py.File(path, "w") as handle:
        handle["cube"] = np.arange(np.prod(EXTENT), dtype="<f4").reshape(EXTENT)
    os.utime(path, ns=(_OLD_NS, _OLD_NS))
    return identity_of(path)


def _clone(template: Replica, content: bytes, path: Path, source: Path) -> Replica:
    """Write a copy of a replica that is of another source; describe it."""
    identity = source_identity(source)
    path.write_bytes(content)
    with edited(path) as (handle, _):
        handle.attrs.modify(SOURCE, stored_path(source))
        before = handle.attrs[SOURCE_IDENTITY]
        fields = np.array(dataclasses.astuple(identity), dtype=before.dtype)
        handle.attrs.modify(SOURCE_IDENTITY, fields)
    with path.open("rb") as stream:
        metadata_crc32c = metadata_checksum(
            stream.fileno(),
            data_offset_bytes=template.data_offset_bytes,
            size_bytes=template.size_bytes,
        )
    return replace(
        template,
        path=path,
        source_path=source,
        source_identity=identity,
        identity=identity_of(path),
        metadata_crc32c=metadata_crc32c,
    )


def _row(number: int, replica: Replica) -> dict[str, object]:
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
        "verified_ns": 1,
        "replica": replica,
    }


def _templates(root: Path) -> list[Replica]:
    """Build one replica in each order of a source, in a home that is only for that."""
    source = root / "sources" / f"{0:08}.h5"
    write_source(source)
    with Service.open(Home(root / "template"), Settings()) as service:
        records = [
            service.reorganize(ReorganizeRequest(file=str(source), dataset="/cube", order=order))
            for order in ORDERS
        ]
    return [record.replica for record in records if record.replica is not None]


def add_replicas(home: Home, root: Path, n: int) -> None:
    """Add n replicas to a home that has none, PER_SOURCE of each source below ``root``."""
    (root / "sources").mkdir()
    templates = _templates(root)
    contents = [template.path.read_bytes() for template in templates]
    original = templates[0].source_path.read_bytes()
    sources = [root / "sources" / f"{1 + i:08}.h5" for i in range(n // PER_SOURCE)]
    identities = []
    for source in sources:
        source.write_bytes(original)
        os.utime(source, ns=(_OLD_NS, _OLD_NS))
        identities.append(identity_of(source))

    def rows() -> Iterator[dict[str, object]]:
        number = 0
        for source in sources:
            place = home.replicas / source.stem
            place.mkdir()
            for i, (template, content) in enumerate(zip(templates, contents, strict=True)):
                number += 1
                yield _row(number, _clone(template, content, place / f"{i}.h5", source))

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
                    for i, (source, identity) in enumerate(zip(sources, identities, strict=True))
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


def add_spool_files(home: Home, root: Path, n: int, first: int = 0) -> None:
    """Add the traces of n processes that have ended, of READS reads each of one source."""
    source = root / "sources" / f"{1:08}.h5"
    starts = np.zeros((READS, 4), dtype=np.int64)
    starts[:, 3] = np.arange(READS) % EXTENT[3]
    identity = _native.identity(source)
    for i in range(first, first + n):
        writer = _native.SpoolWriter(
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
    publish_ms: float  # of each replica, of all tables
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


def measure(root: Path, n: int) -> Figures:
    """Make a home of n replicas and n spool files, and measure it."""
    home = Home(root / "home")
    home.create()
    add_replicas(home, root, n)
    with Service.open(home, Settings()) as service:
        began = time.perf_counter()
        while service.catch_up():
            pass
        publish_s = time.perf_counter() - began
        service.recover()
        add_spool_files(home, root, n)
        began = time.process_time()
        counted = service.ingest()
        ingest_s = time.process_time() - began
        if counted.files_complete != n:
            raise SystemExit(f"{counted.files_complete} of {n} traces were counted")
    tiny = root / "tiny.h5"
    write_source(tiny)
    walls, cpus = zip(*[_reorganize(home, tiny, order) for order in ORDERS[:ROUNDS]], strict=True)
    with _server(home) as (process, client, start_s):
        start_cpu_s = _used_s(process.pid)
        source = str(root / "sources" / f"{1:08}.h5")
        question = {"file": source, "dataset": "/cube", "selection": "[:, :, :, 0]"}
        status_s = _median(client, "GET", "status")
        page_s = _median(client, "GET", "replicas?limit=100")
        advise_s = _median(client, "POST", "advise", question)
        idle = _idle_share(process.pid)
    return Figures(
        replicas=n,
        spool_files=n,
        publish_ms=1e3 * publish_s / n,
        reorganize_s=statistics.median(walls),
        reorganize_cpu_s=statistics.median(cpus),
        start_s=start_s,
        start_cpu_s=start_cpu_s,
        status_ms=1e3 * status_s,
        page_ms=1e3 * page_s,
        advise_ms=1e3 * advise_s,
        ingest_ms=1e3 * ingest_s / n,
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
    parser.add_argument("--upto", type=int, default=100_000, help="replicas of the largest home")
    parser.add_argument("--directory", type=Path, help="where to make the homes; 1 GiB for 10^5")
    given = parser.parse_args()
    names = [field.name for field in fields(Figures)]
    print("  ".join(f"{name:>{max(8, len(name))}}" for name in names))
    n = 100
    while n <= given.upto:
        with tempfile.TemporaryDirectory(dir=given.directory) as root:
            found = measure(Path(root), n)
        shown = [getattr(found, name) for name in names]
        print(
            "  ".join(
                f"{value:>{max(8, len(name))}{'.2f' if isinstance(value, float) else ''}}"
                for name, value in zip(names, shown, strict=True)
            ),
            flush=True,
        )
        n *= 10


if __name__ == "__main__":
    main()
