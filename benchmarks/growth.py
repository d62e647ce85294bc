"""What commands and the server take as a home grows: ``python -m benchmarks.growth [--upto N]``.

Homes of 10^2 to 10^5 replicas, ten of each source, and as many spool files as replicas, one of a
process each. Only what a step changes may cost time: one more replica of a tiny file, a start of
the server with nothing left to do, a page of a list, a look into a spool where nothing happened.

Replicas are copies of one that the organizer built, with their own source written into them, and
their rows are inserted at once; the tables are published by the product. Reading a file for the
first time after it was written is not part of what is measured.
"""

from __future__ import annotations

import itertools
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import h5py
import numpy as np
from sqlalchemy import insert

from sds import _native
from sds.catalog.records import ReorganizeRequest, ReplicaState
from sds.catalog.rows import DatasetRow, ReplicaRow, SourceFileRow
from sds.home import Home
from sds.identity import FileIdentity, identity_of
from sds.organizer.blocks import metadata_checksum
from sds.organizer.replica import SOURCE, SOURCE_IDENTITY, describe_replica, stored_path
from sds.server.service import Service
from sds.server.settings import Settings

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
    identity = identity_of(source)
    path.write_bytes(content)
    with h5py.File(path, "r+", locking=False) as handle:
        handle.attrs.modify(SOURCE, stored_path(source))
        before = handle.attrs[SOURCE_IDENTITY]
        fields = identity.inode, identity.size_bytes, identity.mtime_ns, identity.ctime_ns
        handle.attrs.modify(SOURCE_IDENTITY, np.array(fields, dtype=before.dtype))
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
