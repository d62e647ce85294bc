"""Encoding of trails in the catalog: some tens of bytes a read, a few after compression."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any

from sqlalchemy import LargeBinary
from sqlalchemy.types import TypeDecorator

from sds.catalog.database import damaged

if TYPE_CHECKING:
    from sqlalchemy.engine import Dialect

    from sds.analyzer import ReadTrail

_PARTS = ("start", "stride", "count", "block")


class AsTrail(TypeDecorator["ReadTrail"]):
    """Store a trail as bytes: a line of JSON, then its columns, compressed."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: ReadTrail | None, dialect: Dialect) -> bytes | None:  # noqa: ARG002
        """Return the bytes of a trail; None is NULL."""
        return None if value is None else encode_trail(value)

    def process_result_value(self, value: Any | None, dialect: Dialect) -> ReadTrail | None:  # noqa: ANN401, ARG002
        """Return the trail of its bytes; CatalogError where they are none."""
        if value is None:
            return None
        try:
            return decode_trail(bytes(value))
        except (zlib.error, ValueError, KeyError, TypeError, IndexError) as error:
            raise damaged("database", f"a trail of reads is damaged ({error})") from error


def encode_trail(trail: ReadTrail) -> bytes:
    """Return a trail as bytes: zlib of ``{"extent": [...], "processes": [...]}``, and a new line.

    Then columns of little-endian int64, each as differences from one read to the next: process,
    time_ns, n_reads, and start, stride, count and block of each axis.
    """
    import numpy as np  # noqa: PLC0415  (`sds status` does without)

    slabs = trail.selection
    selected = [column for part in _PARTS for column in getattr(slabs, part).T]
    columns = np.stack([trail.process, trail.time_ns, trail.n_reads, *selected])
    head = json.dumps({"extent": trail.extent, "processes": trail.processes})
    differences = np.diff(columns, axis=1, prepend=0).astype("<i8")
    return zlib.compress(head.encode() + b"\n" + differences.tobytes())


def decode_trail(stored: bytes) -> ReadTrail:
    """Return the trail that `encode_trail` wrote."""
    import numpy as np  # noqa: PLC0415

    from sds.analyzer import ReadTrail  # noqa: PLC0415
    from sds.analyzer.logical_reads import Slabs  # noqa: PLC0415

    head, _, rest = zlib.decompress(stored).partition(b"\n")
    said = json.loads(head)
    rank = len(said["extent"])
    columns = np.frombuffer(rest, dtype="<i8").reshape(3 + len(_PARTS) * rank, -1)
    process, time_ns, n_reads, *selected = np.cumsum(columns, axis=1, dtype=np.int64)
    parts = {
        name: np.stack(selected[i * rank : (i + 1) * rank], axis=1) for i, name in enumerate(_PARTS)
    }
    return ReadTrail(
        extent=tuple(said["extent"]),
        processes=tuple(said["processes"]),
        process=process,
        time_ns=time_ns,
        n_reads=n_reads,
        selection=Slabs(**parts),
    )
