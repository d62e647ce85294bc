"""How much the order of iterations gains in collective reads, simulated.

    python -m benchmarks.collective_order

The pattern of Wang 2014, Sec. IV.B: IOR, in which each process reads 48 MiB of a shared file in one
call, stripes of 1 MiB, one aggregator for each OST. The I/O phase is simulated iteration by
iteration, as aggregators begin each together: in conventional order every aggregator reads a
buffer of its file domain, by offset; in the colored order no OST serves two of them at once. All
times are simulated (`sds.simulator`), of reads, without the shuffle phase, which is the same.
Gigabit Ethernet and OSTs of 8+2 disks of 7200 rpm as in `sds.simulator.hopper`; the paper's own
machine is not described further. Wang 2014 measured +47 % for reads and +63 % for writes with 6
aggregators and a buffer of 4 MiB, shuffle included.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sds.geometry.storage_layout import MIB, StripeLayout
from sds.organizer.collective import Partition
from sds.organizer.collective.pieces import Pieces, cut_at_items, item_begins
from sds.organizer.collective.schedule import IDLE, edge_coloring, greedy, in_turn
from sds.simulator import Operation, ReadStrategy, hopper, simulate

CALL_BYTES = 48 * MIB
STRIPE_BYTES = MIB
LINK_BYTES_PER_S = 117e6
OSTS = (4, 6, 8, 12)
BUFFERS = (MIB // 2, MIB, 2 * MIB, 4 * MIB, 8 * MIB)


def slab(offsets: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the hyperslab of the regions of an item, which lie at equal distances."""
    strides = np.unique(np.diff(offsets))
    if len(strides) > 1 or len(np.unique(lengths)) > 1:
        raise ValueError(f"regions at {offsets.tolist()} are no hyperslab")
    stride = int(strides[0]) if len(strides) else int(lengths[0])
    return np.array([offsets[0], stride, len(offsets), lengths[0]], np.int64)


def items_of(stripes: np.ndarray, buffer_bytes: int, *, merged: bool) -> list[np.ndarray]:
    """Return the items of a group as hyperslabs."""
    offsets = stripes * STRIPE_BYTES
    lengths = np.full(len(stripes), STRIPE_BYTES, np.int64)
    if merged:  # a file domain is one region
        offsets, lengths = offsets[:1], lengths.sum(keepdims=True)
    begins = item_begins(offsets, lengths, buffer_bytes=buffer_bytes, threshold=0.5)
    pieces = Pieces(offsets=offsets, lengths=lengths, memory=np.zeros_like(offsets))
    parts, items = cut_at_items(pieces, begins)
    return [
        slab(parts.offsets[items == item], parts.lengths[items == item])
        for item in range(len(begins))
    ]


def io_seconds(n_osts: int, buffer_bytes: int, order: str) -> tuple[float, int]:
    """Return the simulated seconds of the I/O phase, and the number of iterations."""
    n_stripes = n_osts * CALL_BYTES // STRIPE_BYTES
    stripes = np.arange(n_stripes)
    owners = Partition.EVEN.aggregators_of(stripes, first=0, end=n_stripes, n_aggregators=n_osts)
    n_groups = 1 if order == "conventional" else n_osts
    groups = [
        [
            items_of(
                stripes[(owners == owner) & (stripes % n_groups == group)],
                buffer_bytes,
                merged=n_groups == 1,
            )
            for group in range(n_groups)
        ]
        for owner in range(n_osts)
    ]
    counts = np.array([[len(items) for items in of_one] for of_one in groups])
    schedule = {"conventional": in_turn, "greedy": greedy, "coloring": edge_coloring}[order](counts)
    machine = replace(
        hopper(),
        stripes=StripeLayout(stripe_size_bytes=STRIPE_BYTES, stripe_count=n_osts),
        ost_bytes_per_s=LINK_BYTES_PER_S,
        client_bytes_per_s=LINK_BYTES_PER_S,
        processes_per_node=1,
    )
    taken = np.zeros_like(counts)
    total_s = 0.0
    for row in schedule:
        slabs = np.zeros((n_osts, 4, 1), np.int64)
        slabs[:, 1] = 1
        for owner, group in enumerate(row):
            if group != IDLE:
                slabs[owner, :, 0] = groups[owner][group][taken[owner, group]]
                taken[owner, group] += 1
        operation = Operation(
            extent=(n_osts * CALL_BYTES,),
            element_size_bytes=1,
            slabs=slabs,
            strategy=ReadStrategy.LIST,
        )
        total_s += simulate(operation, machine).seconds
    return total_s, len(schedule)


def main() -> None:
    """Print the table."""
    print("IOR, 48 MiB a process, one aggregator per OST, stripes of 1 MiB; I/O phase, simulated")
    head = ("OSTs", "buffer", "conventional", "greedy", "coloring", "gain in bandwidth")
    print(f"{head[0]:>4} {head[1]:>8} {head[2]:>20} {head[3]:>20} {head[4]:>20} {head[5]:>18}")
    for n_osts in OSTS:
        for buffer_bytes in BUFFERS:
            found = {
                order: io_seconds(n_osts, buffer_bytes, order)
                for order in ("conventional", "greedy", "coloring")
            }
            cells = [f"{seconds:.2f} s in {n}" for seconds, n in found.values()]
            gain = found["conventional"][0] / found["coloring"][0] - 1
            size = f"{buffer_bytes / MIB:g} MiB"
            print(
                f"{n_osts:>4} {size:>8} {cells[0]:>20} {cells[1]:>20} {cells[2]:>20} {gain:>+18.0%}"
            )


if __name__ == "__main__":
    main()
