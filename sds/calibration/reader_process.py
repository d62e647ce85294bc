"""Reading process of a calibration: takes reads over stdin, answers with the seconds of each.

It says ``up`` first. Then, per read, two lines in and two out: the read (JSON) is answered by
``ready`` once all is open, ``go NANOSECONDS`` (CLOCK_MONOTONIC) by the nanoseconds that the read
took. A program of its own, so that several read at one time and none inherits the state of its
parent.
"""

from __future__ import annotations

import json
import math
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import h5py
import numpy as np

from sds import _native

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sds.calibration.results import ReadRequest


@contextmanager
def open_read(request: ReadRequest) -> Iterator[Callable[[], object]]:
    """Yield a function that carries out the read; its file is open and its memory allocated."""
    count, stride, start = request["count"], request["stride"], request["start"]
    block = (1,) * len(count)
    if request["via"] == "engine":
        element_size = request["element_size_bytes"]
        bytes_out = np.empty(math.prod(count) * element_size, dtype=np.uint8)
        runs = _native.runs(
            request["extent"],
            element_size,
            request["data_offset_bytes"],
            start,
            stride,
            count,
            block,
        )
        file = _native.ReadFile(request["file"], may_map=False)
        yield lambda: file.read_runs(*runs, bytes_out.data, request["strategy"])
        return
    # Opened anew for each read: an open dataset keeps what it read last in its sieve buffer.
    with h5py.File(request["file"], "r", locking=False) as handle:
        dataset = handle[request["dataset"]].id
        in_file = dataset.get_space()
        in_file.select_hyperslab(tuple(start), tuple(count), tuple(stride), block)
        out = np.empty(count, dtype=np.float32)
        in_memory = h5py.h5s.create_simple(tuple(count))
        yield lambda: dataset.read(in_memory, in_file, out)


def serve(lines: Iterator[str], answer: Callable[[str], None]) -> None:
    """Say that all is imported, then answer requests until the input ends."""
    answer("up")
    for line in lines:
        with open_read(json.loads(line)) as read:
            answer("ready")
            _, start_ns = next(lines).split()
            time.sleep(max(0, int(start_ns) - time.monotonic_ns()) * 1e-9)
            begin_ns = time.perf_counter_ns()
            read()
            elapsed_ns = time.perf_counter_ns() - begin_ns
        answer(str(elapsed_ns))


def main() -> None:
    """Serve standard input."""

    def answer(text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    serve(iter(sys.stdin.readline, ""), answer)


if __name__ == "__main__":
    main()
