"""Write the golden files of the formats: ``python tests/data/make_golden.py``.

They are committed, and compared byte for byte with what the code writes: a file of a released
version must stay readable, so a change of a format is a new version and a new golden file.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from sds import _spool_writer
from sds.geometry import Box, RaidLayout, SegmentList, StripeLayout
from sds.hdf5.identity import FileIdentity
from sds.redirect.tables import RedirectTable, TableCandidate, TableDataset, TableModel

HERE = Path(__file__).parent
TABLE = HERE / "table-v4.sdst"
SPOOL = HERE / "trace-v1.sdst-spool"

LOCAL = RaidLayout(unit_bytes=4096, data_disks=1, min_request_bytes=4096)
ONE_STRIPE = StripeLayout(stripe_size_bytes=1 << 20, stripe_count=1)
BUILTIN = TableModel(kind=0, gap=0, calibrated=False, coefficients=(1e-5, 5e-5, 1e-9), floor_s=1e-6)
EQ6 = TableModel(
    kind=6,
    gap=2,
    calibrated=True,
    coefficients=(1e-4, 2e-5, 3e-6, 4e-3, 5e-9, 6e-6, 7e-7, 8e-10),
    floor_s=2e-5,
)


def golden_table() -> RedirectTable:
    """Return a table with everything: several datasets and replicas, a scalar, odd names."""
    candidate = TableCandidate(
        replica_id=7,
        path=Path("/scratch/sds/replicas/0a/run-cube-201.h5"),
        identity=FileIdentity(inode=99, size_bytes=1 << 36, mtime_ns=-1, ctime_ns=2**62),
        data_offset_bytes=4096,
        metadata_crc32c=0xDEADBEEF,
        order=(2, 0, 1),
        stripes=StripeLayout(stripe_size_bytes=1 << 20, stripe_count=100),
        raid=RaidLayout(unit_bytes=512, data_disks=8, min_request_bytes=4096),
        model=EQ6,
    )
    second = TableCandidate(
        replica_id=8,
        path=Path("/scratch/sds/replicas/0a/run-cube-120.h5"),
        identity=candidate.identity,
        data_offset_bytes=8192,
        metadata_crc32c=0,
        order=(1, 2, 0),
        stripes=ONE_STRIPE,
        raid=LOCAL,
        model=BUILTIN,
        shadow_permille=50,
    )
    chunked = replace(
        second,
        replica_id=9,
        path=Path("/scratch/sds/replicas/0a/run-cube-120-part.h5"),
        data_offset_bytes=0,
        chunk_shape=(64, 512, 16),
        stored_bytes=1 << 30,
        decode_s_per_byte=2.5e-9,
        region=Box(start=(0, 100, 2048), extent=(1000, 1, 2048)),
    )
    segments = replace(
        second,
        replica_id=10,
        path=Path("/scratch/sds/replicas/0a/run-cube-201-tiles.h5"),
        region=Box(start=(0, 128, 0), extent=(1000, 1872, 2048)),
        segments=SegmentList(
            tile_shape=(100, 64, 1024), tiles=(1160, 8, 9, 1277, 137), lengths=(3, 2)
        ),
    )
    cube = TableDataset(
        path="/entry/würfel",
        extent=(1000, 2000, 4096),
        element_size_bytes=4,
        type_crc32c=0x12345678,
        type_class=1,
        data_offset_bytes=2048,
        stripes=ONE_STRIPE,
        raid=LOCAL,
        model=BUILTIN,
        candidates=(candidate, second, chunked, segments),
    )
    scalar = TableDataset(
        path="/energy",
        extent=(),
        element_size_bytes=8,
        type_crc32c=1,
        type_class=0,
        data_offset_bytes=None,
        stripes=ONE_STRIPE,
        raid=LOCAL,
        model=BUILTIN,
        candidates=(),
    )
    packed = replace(
        cube,
        path="/entry/packed",
        data_offset_bytes=None,
        candidates=(replace(candidate, region=Box(start=(1, 2, 3), extent=(0, 1998, 4093))),),
        chunk_shape=(100, 100, 4096),
        stored_bytes=1 << 33,
        decode_s_per_byte=4e-9,
    )
    return RedirectTable(
        source_path=Path("/data/läufe/run \udcff.h5"),
        source_identity=FileIdentity(
            inode=2**64 - 1, size_bytes=1 << 40, mtime_ns=1, ctime_ns=2, instance=2**63 - 1
        ),
        datasets=(cube, scalar, packed),
    )


def golden_spool(directory: Path) -> bytes:
    """Return a spool file with every kind of block and record."""
    writer = _spool_writer.SpoolWriter(
        directory,
        pid=4711,
        rank=3,
        n_ranks=16,
        start_ns=1_700_000_000_000_000_000,
        host="nid00042",
        executable="/usr/bin/python3",
        job_id="123456",
        user="ada",
        flush_interval_ns=2**62,
    )
    cube = writer.add_dataset(
        file="/data/run.h5",
        path="/entry/cube",
        extent=(64, 128, 4096),
        element_bytes=4,
        data_offset_bytes=2048,
        hdf5_version="2.0.0",
        identity=(11, 134219776, 12, 13),
    )
    grid = writer.add_dataset(
        file="/data/grid.nc",
        path="",
        extent=(2**40, 3),
        chunk=(1024, 3),
        element_bytes=8,
        storage=2,
        n_filters=1,
        hdf5_version="1.14.6",
        identity=(2**64 - 1 - 2**63, 5, -6, 7),
    )
    origin = 1_700_000_001_000_000_000

    def add(dataset, start, shape, at, *, kind=2, served_by=0, collective=False):
        n = len(start)
        writer.add_reads(
            dataset,
            start=np.asarray(start, np.int64),
            stride=(1,) * len(shape),
            count=shape,
            block=(1,) * len(shape),
            start_ns=origin + at + 1000 * np.arange(n),
            elapsed_ns=700 + 37 * np.arange(n),
            kind=kind,
            n_elements=int(np.prod(shape)),
            served_by=served_by,
            collective=collective,
        )

    planes = [(0, j, 4 * k) for j in range(5) for k in range(7)]
    add(cube, planes, (64, 1, 4), 0)
    add(cube, [(i * i, 0, 0) for i in range(6)], (1, 128, 1), 10_000)
    add(grid, [(2**39, 0)], (1, 3), 20_000, collective=True)
    add(grid, [(5, 1), (5, 1), (5, 1)], (9, 2), 30_000, kind=3)
    add(cube, [(0, 0, 0)], (64, 128, 4096), 40_000, kind=1, served_by=7)
    path = Path(writer.path)
    writer.close()
    return path.read_bytes()


def main() -> None:
    """Write both files."""
    TABLE.write_bytes(golden_table().to_bytes())
    with tempfile.TemporaryDirectory() as directory:
        SPOOL.write_bytes(golden_spool(Path(directory)))


if __name__ == "__main__":
    main()
