"""What planning a read costs, and what the strategies of the papers ask of a file.

    python -m benchmarks.plan [MAP]

MAP: an HDF5 file with the request lists of a decomposition as E3SM-IO writes them
(D1.offsets, D1.lengths, D1.nreqs, ...). Without one that part is left out.

Nothing is read but MAP. The targets: 20 us for choosing a plan, 1 us a region of a list.
"""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import h5py
import numpy as np

from sds import _native
from sds.engine import (
    CHEN_2014_READS,
    Cache,
    FileState,
    Strategy,
    plan_extents,
    plan_selection,
)
from sds.geometry import (
    LOCAL_DISK_RAID,
    LOCAL_DISK_STRIPES,
    ContiguousLayout,
    RaidLayout,
    StripeLayout,
    extent_features,
    parse_selection,
)
from sds.geometry.native_layout import storage_arguments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from sds.engine import PmdCosts, ReadPlan

GIB = 1 << 30
KIB = 1 << 10
PVFS_STRIPES = StripeLayout(stripe_size_bytes=16 * KIB, stripe_count=8)
"""Ching 2002, Sec. 4.1: 8 I/O nodes."""

NAMED = (Strategy.MULTIPLE, Strategy.LIST, Strategy.SIEVE)
SELECTIONS = ("[:, 7, 5]", "[:, :, 5]", "[7:71, 9:73, 11:75]", "[::8, ::8, ::8]")
"""Of an array of (256, 256, 4096) doubles."""

CLIENTS = (1, 2, 4, 8, 16)
NODES = range(1, 17)


@dataclass(frozen=True, slots=True, kw_only=True)
class Strided:
    """Equal runs at equal distances."""

    run_bytes: int
    count: int
    stride_bytes: int

    def plan(self, strategy: Strategy) -> _native.ReadPlan:
        """Return how a cold read of it would be carried out."""
        return _native.plan_runs(
            0, self.run_bytes, (self.count,), (self.stride_bytes,), strategy=strategy
        )

    def requests(self) -> dict[Strategy, int]:
        """Return how many requests the strategies of Ching 2002 make."""
        return {strategy: self.plan(strategy)["requests"] for strategy in NAMED}

    def servers_of_a_list_request(self) -> int:
        """Return how many of the servers the first request of list I/O reaches."""
        starts = np.arange(min(self.count, 64)) * self.stride_bytes
        raid = RaidLayout.of(unit_bytes=4 * KIB, data_disks=1)
        lengths = np.full(len(starts), self.run_bytes)
        return extent_features(starts, lengths, PVFS_STRIPES, raid).osts_touched


def cyclic(clients: int, accesses: int) -> Strided:
    """Return one client's part of 1 GiB dealt out in turn, in so many accesses."""
    run = GIB // (clients * accesses)
    return Strided(run_bytes=run, count=accesses, stride_bytes=clients * run)


def block_block(side: int, accesses: int) -> Strided:
    """Return one client's block of 1 GiB cut into side x side blocks, in so many accesses."""
    run = GIB // (side * side * accesses)
    return Strided(run_bytes=run, count=accesses, stride_bytes=side * run)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Requests and holes of a scenario of Chen 2014; the paper gives no sizes: these are SDS's."""

    name: str
    requests: tuple[int, ...]
    holes: tuple[int, ...]

    def groups(self, merges: Callable[[int], bool]) -> list[int]:
        """Return the bytes of the groups (Algorithm 2), holes included."""
        groups = [self.requests[0]]
        for hole, request in zip(self.holes, self.requests[1:], strict=True):
            if merges(hole):
                groups[-1] += hole + request
            else:
                groups.append(request)
        return groups

    def seconds(self, costs: PmdCosts, *, clients: int, nodes: int) -> dict[str, float]:
        """Return the model's time by each way to read."""
        spent = partial(costs.request_s, clients=clients, nodes=nodes)
        merges = partial(costs.merges, clients=clients, nodes=nodes)
        useful, between = sum(self.requests), sum(self.holes)
        whole = sum(map(spent, self.groups(lambda _hole: True)))
        direct = sum(map(spent, self.requests))
        return {
            "direct": direct,
            "sieving": whole,
            "2:1 rule": whole if _native.ratio_rule_sieves(useful, between) else direct,
            "pmd": sum(map(spent, self.groups(merges))),
        }


MIXED = Scenario(
    name="1, mixed",
    requests=(64_000, 4_000, 256_000, 16_000, 1_000, 128_000, 32_000, 8_000),
    holes=(2_000, 900_000, 8_000, 30_000, 20_000_000, 100_000, 1_000),
)
SPARSE = Scenario(name="2, sparse", requests=(16_000,) * 8, holes=(20_000_000,) * 7)
DENSE = Scenario(name="3, dense", requests=(64_000,) * 8, holes=(8_000,) * 7)
SCENARIOS = (MIXED, SPARSE, DENSE)


def table(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """Print a table in Markdown."""
    columns = list(columns)
    print("|", " | ".join(columns), "|")
    print("|" + "---|" * len(columns))
    for row in rows:
        print("|", " | ".join(f"{v:.4g}" if isinstance(v, float) else str(v) for v in row), "|")
    print()


def median_s(work: Callable[[], object], *, rounds: int = 7, repeats: int = 200) -> float:
    """Return the seconds of one call: the median over rounds."""
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        for _ in range(repeats):
            work()
        times.append((time.perf_counter() - begin) / repeats)
    return statistics.median(times)


def print_plan_times() -> None:
    """Print what one plan takes, by what is read and whether it is cached."""
    extent = (256, 256, 4096)
    layout = ContiguousLayout(element_size_bytes=8, data_offset_bytes=2048)
    rows = []
    for selection in SELECTIONS:
        slab = parse_selection(selection, extent)
        runs = _native.runs(extent, 8, 2048, slab.start, slab.stride, slab.count, slab.block)
        for cache in (Cache.WARM, Cache.COLD):
            core = partial(
                _native.plan_runs,
                *runs,
                cache=cache,
                may_map=True,
                may_queue=True,
                may_read_directly=True,
            )
            whole = partial(plan_selection, extent, slab, layout, state=FileState(cache=cache))
            found = core()
            what = selection, found["runs"], cache, found["executor"], found["requests"]
            rows.append((*what, 1e6 * median_s(core), 1e6 * median_s(whole)))
    columns = ("read", "runs", "cache", "by", "requests", "core, us", "in Python, us")
    table(columns, rows)


def print_choice_times() -> None:
    """Print what it takes to choose between the original and a replica, and to plan the read.

    As the connector does it: the features and the predicted time of each, with no more than 50 us
    for the features, then a plan.
    """
    extent, order = (256, 256, 4096), (2, 0, 1)
    turned = tuple(extent[axis] for axis in order)
    raid = RaidLayout.of(unit_bytes=128 * KIB, data_disks=8)
    stripings = {
        "one disk": storage_arguments(LOCAL_DISK_STRIPES, LOCAL_DISK_RAID),
        "8 stripes": storage_arguments(
            StripeLayout(stripe_size_bytes=1 << 20, stripe_count=8), raid
        ),
    }
    model = _native.builtin_model()
    rows = []
    for selection in SELECTIONS:
        slab = parse_selection(selection, extent)
        stored = slab.permuted(order)
        layouts = [
            (shape, 8, 4096, found.start, found.stride, found.count, found.block)
            for shape, found in ((extent, slab), (turned, stored))
        ]
        for name, storage in stripings.items():
            found = [partial(_native.features, *layout, *storage, 50_000) for layout in layouts]
            features = [find() for find in found]
            predicted = [partial(_native.predict, *model, one, 1.0) for one in features]
            plan = partial(_native.plan_runs, *_native.runs(*layouts[0]), cache=Cache.COLD)
            times = [sum(map(median_s, steps)) * 1e6 for steps in (found, predicted, [plan])]
            exact = "exact" if all(one["exact"] for one in features) else "bounded"
            rows.append((selection, name, exact, *times, sum(times)))
    columns = ("read", "storage", "features", "features, us", "predictions, us", "plan, us", "all")
    table(columns, rows)


def read_lists(path: str, element_bytes: int = 8) -> dict[str, tuple[NDArray[np.int64], ...]]:
    """Return offsets and lengths in bytes of the longest list of one process, and of all."""
    lists = {}
    with h5py.File(path) as file:
        for name in ("D1", "D2", "D3"):
            offsets = file[f"{name}.offsets"][:].astype(np.int64) * element_bytes
            lengths = file[f"{name}.lengths"][:].astype(np.int64) * element_bytes
            ends = np.cumsum(file[f"{name}.nreqs"][:])
            longest = int(np.argmax(np.diff(ends, prepend=0)))
            one = slice(ends[longest - 1] if longest else 0, ends[longest])
            for label, part in (("one process", one), ("all", slice(None))):
                order = np.argsort(offsets[part], kind="stable")
                lists[f"{name}, {label}"] = (offsets[part][order], lengths[part][order])
    return lists


def print_lists(path: str) -> None:
    """Print requests, bytes and predicted times of real lists, and what planning them takes."""
    rows = []
    for name, (offsets, lengths) in read_lists(path).items():
        for strategy in Strategy:
            plans: dict[Cache, ReadPlan] = {}
            for cache in (Cache.WARM, Cache.COLD):
                make = partial(
                    plan_extents, offsets, lengths, strategy=strategy, state=FileState(cache=cache)
                )
                plans[cache] = make()
            spent = median_s(make, repeats=20) / len(offsets)
            cold, warm = plans[Cache.COLD], plans[Cache.WARM]
            by = warm.executor, cold.executor, cold.requests, cold.bytes_read / cold.bytes_useful
            predicted_us = 1e6 * warm.predicted_s, 1e6 * cold.predicted_s
            rows.append((name, len(offsets), strategy, *by, *predicted_us, 1e9 * spent))
    columns = ("list", "regions", "strategy", "warm by", "cold by", "requests, cold")
    columns += ("bytes read / useful", "warm, us", "cold, us", "plan, ns a region")
    table(columns, rows)


def print_ching() -> None:
    """Print the requests of Ching 2002's artificial benchmark."""
    columns = ("clients", "accesses", "bytes", *NAMED, "useful, sieve, %", "servers a list request")
    for title, shape, clients in (
        ("one-dimensional cyclic", cyclic, (8, 16, 32)),
        ("block-block", lambda n, a: block_block(round(n**0.5), a), (4, 9, 16)),
    ):
        print(f"{title}: 1 GiB\n")
        rows = []
        for n in clients:
            for accesses in (1000, 10_000, 100_000, 400_000, 800_000):
                of = shape(n, accesses)
                sieve = of.plan(Strategy.SIEVE)
                useful = 100 * sieve["bytes_useful"] / sieve["bytes_read"]
                requests = of.requests().values()
                servers = of.servers_of_a_list_request()
                rows.append((n, accesses, of.run_bytes, *requests, useful, servers))
        table(columns, rows)


def print_chen() -> None:
    """Print the sweeps of Chen 2014, Sec. 4.3, by its model: seconds for one pattern."""
    ways = tuple(DENSE.seconds(CHEN_2014_READS, clients=1, nodes=1))
    for title, points in (
        ("over p at n = 16", [(p, 16) for p in CLIENTS]),
        ("over n at p = 16", [(16, n) for n in NODES]),
    ):
        print(f"{title}: milliseconds by the published model\n")
        rows = []
        for scenario in SCENARIOS:
            for p, n in points:
                spent = scenario.seconds(CHEN_2014_READS, clients=p, nodes=n)
                hole = CHEN_2014_READS.break_even_bytes(clients=p, nodes=n) / 1e6
                rows.append((scenario.name, p, n, hole, *(1e3 * spent[way] for way in ways)))
        table(("scenario", "p", "n", "break-even, MB", *ways), rows)


def flash(processes: int) -> dict[Strategy, int]:
    """Return the requests of one process of FLASH I/O, whose doubles lie apart in memory."""
    regions = np.arange(24)[:, None] * 80 * processes + np.arange(80) * processes
    offsets = (regions.reshape(-1, 1) * 4096 + np.arange(512) * 8).ravel()
    lengths = np.full(len(offsets), 8)
    return {name: plan_extents(offsets, lengths, strategy=name).requests for name in NAMED}


def print_applications() -> None:
    """Print the requests of the two applications of Ching 2002."""
    tile = Strided(run_bytes=3072, count=768, stride_bytes=2532 * 3)
    rows = [(f"FLASH I/O, {n} processes", *flash(n).values()) for n in (2, 4, 5)]
    rows.append(("tiled visualisation", *tile.requests().values()))
    table(("pattern", *NAMED), rows)


def main() -> None:
    """Print every table."""
    print("Plans; target 20 us\n")
    print_plan_times()
    print("Choosing between the original and a replica, and planning; target 20 us\n")
    print_choice_times()
    if len(sys.argv) > 1:
        print(f"Lists of {sys.argv[1]}; target 1000 ns a region\n")
        print_lists(sys.argv[1])
    print("Requests (Ching 2002)\n")
    print_applications()
    print_ching()
    print("Sieving (Chen 2014)\n")
    print_chen()


if __name__ == "__main__":
    main()
