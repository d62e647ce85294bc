"""Selections and storage for hypothesis: small enough to walk, shaped to be awkward."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hypothesis import strategies as st

MAX_BYTES = 60_000


@dataclass(frozen=True)
class Case:
    """A selection of an array in a file."""

    extent: tuple[int, ...]
    element_bytes: int
    offset_bytes: int
    start: tuple[int, ...]
    stride: tuple[int, ...]
    count: tuple[int, ...]
    block: tuple[int, ...]

    @property
    def arguments(self):
        return (
            self.extent,
            self.element_bytes,
            self.offset_bytes,
            self.start,
            self.stride,
            self.count,
            self.block,
        )


@st.composite
def axis_slabs(draw, length):
    """(start, stride, count, block) that fits an axis; now and then empty or whole."""
    if length == 0:
        return 0, 1, 0, 1
    kind = draw(st.sampled_from(["any", "any", "any", "whole", "single", "steps", "none"]))
    if kind == "whole":
        return 0, 1, 1, length
    if kind == "single":
        return draw(st.integers(0, length - 1)), 1, 1, 1
    if kind == "none":
        return draw(st.integers(0, length)), 1, 0, 1
    start = draw(st.integers(0, min(length - 1, 7)))
    block = 1 if kind == "steps" else draw(st.integers(1, length - start))
    stride = draw(st.integers(block, max(block, min(length, block + 9))))
    most = (length - start - block) // stride + 1
    return start, stride, draw(st.integers(1, most)), block


@st.composite
def cases(draw, max_rank=5):
    """Selections of arrays of up to MAX_BYTES."""
    rank = draw(st.integers(0, max_rank))
    element_bytes = draw(st.sampled_from([1, 2, 3, 4, 8, 16, 24]))
    room = MAX_BYTES // element_bytes
    extent = []
    for axis in range(rank):
        most = max(1, round(room ** (1 / (rank - axis)) * 2))
        length = draw(st.integers(1, min(most, room)))
        extent.append(length)
        room //= length
    order = draw(st.permutations(range(rank)))
    extent = [extent[axis] for axis in order]
    if rank and draw(st.integers(0, 30)) == 0:
        extent[0] = 0
    slabs = [draw(axis_slabs(length)) for length in extent]
    start, stride, count, block = zip(*slabs, strict=True) if slabs else ((), (), (), ())
    offset = draw(st.sampled_from([0, 0, 1, 512, 2048, 2051, 4096, 10_007, 1_048_571]))
    return Case(tuple(extent), element_bytes, offset, start, stride, count, block)


@st.composite
def layouts(draw):
    """Striping and RAID, from everyday to absurd."""
    everyday = draw(st.booleans())
    if everyday:
        unit = draw(st.sampled_from([16, 64, 512, 4096]))
        disks = draw(st.sampled_from([1, 2, 3, 4, 8]))
        request = draw(st.sampled_from([unit, unit * disks, 2 * unit * disks, 4 * unit]))
        stripe = request * draw(st.sampled_from([1, 2, 3, 4, 16]))
    else:
        unit = draw(st.integers(1, 300))
        disks = draw(st.integers(1, 9))
        request = draw(st.integers(1, 400))
        stripe = draw(st.integers(1, 2000))
    return {
        "stripe_bytes": stripe,
        "stripe_count": draw(st.integers(1, 7)),
        "unit_bytes": unit,
        "data_disks": disks,
        "min_request_bytes": request,
    }


@st.composite
def component_layouts(draw):
    """A file in several stripe components, whose OSTs may be the same; and RAID."""
    layout = draw(layouts())
    sizes = [layout.pop("stripe_bytes"), *draw(st.lists(st.integers(1, 3000), max_size=3))]
    del layout["stripe_count"]
    ends = sorted(
        draw(st.sets(st.integers(1, 80_000), min_size=len(sizes) - 1, max_size=len(sizes) - 1))
    )
    begins = [0, *ends]
    osts = st.lists(st.integers(0, 9), min_size=1, max_size=6)
    return layout | {
        "components": [
            (begin, end, size, draw(osts))
            for begin, end, size in zip(begins, [*ends, 2**63 - 1], sizes, strict=True)
        ]
    }


def n_elements(case):
    return math.prod(case.extent)
