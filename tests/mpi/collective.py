"""Program of test_collective: collective transfers, compared with what single reads give.

Run under mpiexec with the name of a scenario and a directory; each rank raises where bytes differ.
"""

import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from sds.errors import SdsError
from sds.geometry.storage_layout import StripeLayout
from sds.organizer.collective import CollectiveSettings, Order, read_all, write_all

world = MPI.COMM_WORLD
SIZE = 2_000_000


def random_settings(random):
    return CollectiveSettings(
        buffer_bytes=int(random.integers(1000, 200_000)),
        threshold=float(random.random()),
        order=random.choice([None, "conventional", "coloring", "greedy"]),
        partition=random.choice(["even", "cyclic"]),
        n_aggregators=random.choice([None, 1, 2, 3]),
        stripes=StripeLayout(
            stripe_size_bytes=int(random.integers(500, 100_000)),
            stripe_count=int(random.integers(1, 7)),
        ),
    )


def random_reads(folder):
    """Regions of any kind, those of the ranks and of one rank overlapping, memory in any order."""
    path = folder / "data"
    data = np.random.default_rng(0).integers(0, 256, SIZE).astype(np.uint8)
    if world.rank == 0:
        data.tofile(path)
    world.Barrier()
    for trial in range(int(sys.argv[3])):
        alike = np.random.default_rng(trial)
        settings = random_settings(alike)
        random = np.random.default_rng((trial, world.rank))
        n = int(random.integers(0, 200))
        offsets, lengths = random.integers(0, SIZE - 5000, n), random.integers(0, 5000, n)
        total = int(lengths.sum())
        cuts = np.unique(np.append(random.integers(0, total + 1, 20), [0, total]))
        in_memory = np.diff(cuts)
        order = random.permutation(len(in_memory))
        places = np.empty_like(in_memory)
        places[order] = np.cumsum(in_memory[order]) - in_memory[order]
        out = np.full(total + 10, 7, np.uint8)
        read_all(world, path, offsets, lengths, places, in_memory, out, settings)
        wanted = np.full(total + 10, 7, np.uint8)
        packed = np.concatenate(
            [data[:0], *(data[o : o + n] for o, n in zip(offsets, lengths, strict=True))]
        )
        for first, place, n_bytes in zip(cuts, places, in_memory, strict=False):
            wanted[place : place + n_bytes] = packed[first : first + n_bytes]
        assert np.array_equal(out, wanted), (trial, settings)


def random_writes(folder):
    """Regions of all ranks, none overlapping, with gaps that must stay as they are."""
    path = folder / "data"
    for trial in range(int(sys.argv[3])):
        alike = np.random.default_rng(trial)
        settings = random_settings(alike)
        before = alike.integers(0, 256, SIZE).astype(np.uint8)
        after = alike.integers(0, 256, SIZE).astype(np.uint8)
        cuts = np.unique(alike.integers(0, SIZE, 300))
        owners = alike.integers(0, world.size + 1, len(cuts) - 1)  # some of nobody
        if world.rank == 0:
            before.tofile(path)
        world.Barrier()
        mine = np.random.default_rng(world.rank).permutation(np.flatnonzero(owners == world.rank))
        offsets, lengths = cuts[mine], np.diff(cuts)[mine]
        data = np.concatenate(
            [after[:0], *(after[o : o + n] for o, n in zip(offsets, lengths, strict=True))]
        )
        write_all(world, path, offsets, lengths, None, None, data, settings)
        wanted = before.copy()
        for owner, first, end in zip(owners, cuts, cuts[1:], strict=False):
            if owner < world.size:
                wanted[first:end] = after[first:end]
        assert np.array_equal(np.fromfile(path, np.uint8), wanted), (trial, settings)
        world.Barrier()


def dealt_cells(folder):
    """Thousands of short regions of each rank, as a climate model deals the cells of a grid."""
    path = folder / "data"
    cuts = np.unique(np.random.default_rng(1).integers(0, SIZE // 8, 40_000)) * 8
    owners = np.random.default_rng(2).integers(0, world.size, len(cuts) - 1)
    offsets, lengths = cuts[:-1][owners == world.rank], np.diff(cuts)[owners == world.rank]
    settings = CollectiveSettings(
        buffer_bytes=100_000,
        n_aggregators=2,
        stripes=StripeLayout(stripe_size_bytes=32768, stripe_count=4),
    )
    if world.rank == 0:
        path.write_bytes(b"")
    world.Barrier()
    mine = np.random.default_rng((3, world.rank)).random(int(lengths.sum()) // 8)
    written = write_all(world, path, offsets, lengths, None, None, mine, settings)
    got = np.zeros_like(mine)
    read = read_all(world, path, offsets, lengths, None, None, got, settings)
    assert np.array_equal(got, mine)
    assert written.order is read.order is Order.COLORING
    total = int(cuts[-1] - cuts[0])
    for report in (written, read):
        # Each byte once, and no more iterations than an aggregator has buffers and remainders.
        assert world.allreduce(report.io_bytes) == total
        assert report.n_iterations <= SIZE // 2 // 100_000 + 4


def errors(folder):
    """What one rank cannot do ends the call on every rank, and the next call works."""
    path = folder / "data"
    if world.rank == 0:
        path.write_bytes(bytes(1000))
    world.Barrier()
    last = world.rank == world.size - 1
    here, out = np.array([0]), np.zeros(2000, np.uint8)
    read_only = np.zeros(2000, np.uint8)
    read_only.flags.writeable = False

    def fails(call, on_one, on_others):
        said = "no error"
        try:
            call()
        except SdsError as error:
            said = str(error)
        assert (on_one if last else on_others) in said, (world.rank, said)
        read_all(world, path, here, np.array([1000]), None, None, out)

    last_rank = f"rank {world.size - 1}: "
    bad = here - 5 if last else here
    n = np.array([10])
    fails(lambda: read_all(world, path, bad, n, None, None, out), "are negative", last_rank)
    where = np.array([1995]) if last else here
    fails(lambda: read_all(world, path, here, n, where, n, out), "byte 2005 of memory", last_rank)
    both, where = np.array([100, 0]), np.array([0, 0 if last else 50])
    fails(
        lambda: read_all(world, path, both, np.array([10, 10]), where, np.array([10, 10]), out),
        "regions of memory overlap",
        last_rank,
    )
    huge = np.array([2**63 + 5 if last else 5], np.uint64)
    fails(lambda: read_all(world, path, here, huge, None, None, out), "beyond 2**62", last_rank)
    small = here.astype(np.int32) if last else here
    read_all(world, path, small, n.astype(np.int32), None, None, out)
    memory = read_only if last else out
    fails(lambda: read_all(world, path, here, n, None, None, memory), "not writable", last_rank)
    twice = np.array([0, 5]) if last else np.array([0, 50])
    fails(
        lambda: write_all(world, path, twice, np.array([10, 10]), None, None, out),
        "overlap; write each byte once",
        last_rank,
    )
    if world.size > 1:
        one = CollectiveSettings(buffer_bytes=100 if last else 101)
        different = "ranks name different files or settings"
        fails(lambda: read_all(world, path, here, n, None, None, out, one), different, different)
    fails(
        lambda: read_all(world, folder / "missing", here, n, None, None, out),
        "no such file",
        "no such file",
    )
    # Beyond the end of the file: the aggregator fails in one of its iterations.
    small = CollectiveSettings(buffer_bytes=200, n_aggregators=1)
    long = np.array([2000])
    fails(lambda: read_all(world, path, here, long, None, None, out, small), "1000", "1000")


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]))
