"""Runs read programs, and says what each read gave: ``python -m tests.differential.worker``.

Programs come pickled on standard input as (path, Program); answers go pickled to standard output, a
list of one (kind, detail) per read: ("bytes", digest of every byte of the buffer) or (name of the
exception, its text).
"""

import ctypes
import hashlib
import os
import pickle
import re
import sys
from pathlib import Path

import h5py
import numpy as np
from h5py import h5d, h5s, h5t

from tests.differential.programs import Index, Together, dtype_of

OPERATORS = {
    "set": h5s.SELECT_SET,
    "or": h5s.SELECT_OR,
    "xor": h5s.SELECT_XOR,
    "and": h5s.SELECT_AND,
    "notb": h5s.SELECT_NOTB,
}
UNTOUCHED = 0xA5


def space_of(selection):
    """Return the dataspace with the selection."""
    space = h5s.create_simple(selection.extent) if selection.extent else h5s.create(h5s.SCALAR)
    for step in selection.steps:
        if step[0] == "none":
            space.select_none()
        elif step[0] == "points":
            space.select_elements(np.array(step[1], np.uint64))
        elif step[0] == "slab":
            _, operator, start, stride, count, block = step
            space.select_hyperslab(start, count, stride, block, op=OPERATORS[operator])
    if selection.offset is not None:
        space.offset_simple(selection.offset)
    return space


def prepare(file, read):
    """Return what H5Dread takes; every touch of the buffer shows."""
    dataset = file[read.path]
    extent = dataset.shape if read.memory is None else read.memory.extent
    dtype = dtype_of(read.memory_dtype)
    memory_type = h5t.py_create(dtype)
    n_bytes = int(np.prod(extent, dtype=np.int64)) * memory_type.get_size()
    buffer = np.full(max(1, n_bytes), UNTOUCHED, np.uint8)
    return (
        dataset.id,
        h5s.ALL if read.memory is None else space_of(read.memory),
        h5s.ALL if read.selection is None else space_of(read.selection),
        memory_type,
        buffer,
    )


def digest(buffer):
    return hashlib.blake2b(np.ascontiguousarray(buffer).tobytes(), digest_size=16).hexdigest()


def identifier(of):
    return getattr(of, "id", of)


def read_multi():
    """Return H5Dread_multi of the library that h5py uses, which h5py does not wrap."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    h5py_library = next(
        line.split(maxsplit=5)[5]
        for line in maps.splitlines()
        if re.search(r"/h5py[^/]*/libhdf5-|/libhdf5\.so", line)
    )
    function = ctypes.CDLL(h5py_library).H5Dread_multi
    hids = ctypes.POINTER(ctypes.c_int64)
    function.argtypes = [
        ctypes.c_size_t, hids, hids, hids, hids, ctypes.c_int64, ctypes.POINTER(ctypes.c_void_p),
    ]  # fmt: skip
    function.restype = ctypes.c_int
    return function


def run_together(file, reads):
    prepared = [prepare(file, read) for read in reads]

    def ids(of):
        return (ctypes.c_int64 * len(prepared))(*(identifier(p[of]) for p in prepared))

    buffers = (ctypes.c_void_p * len(prepared))(*(p[4].ctypes.data for p in prepared))
    if read_multi()(len(prepared), ids(0), ids(3), ids(1), ids(2), 0, buffers) < 0:
        return ("failed", "")  # what it leaves in the buffers is nobody's business
    return ("bytes", ",".join(digest(p[4]) for p in prepared))


def run_plain(file, read):
    dataset, memory, space, memory_type, buffer = prepare(file, read)
    h5d.DatasetID.read(dataset, memory, space, buffer, memory_type)
    return ("bytes", digest(buffer))


def run_index(file, read):
    dataset = file[read.path]
    view = dataset if read.astype is None else dataset.astype(read.astype)
    values = np.asarray(view[read.index])
    return ("bytes", f"{values.shape} {values.dtype.str} {digest(values)}")


def run(file, read):
    try:
        if isinstance(read, Together):
            return run_together(file, read.reads)
        return run_index(file, read) if isinstance(read, Index) else run_plain(file, read)
    except Exception as error:  # noqa: BLE001 - the answer is whatever the program would have got
        return (type(error).__name__, str(error))


def main():
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    while True:
        try:
            path, program = pickle.load(sys.stdin.buffer)  # noqa: S301 - from the test that started us
        except EOFError:
            return
        given = []
        for _ in range(program.rounds):
            with h5py.File(path, "r") as file:
                given += [run(file, read) for read in program.reads]
        pickle.dump(given, answers)
        answers.flush()


if __name__ == "__main__":
    main()
