"""Runs read programs, and says what each read gave: ``python -m tests.differential.worker``.

Programs come pickled on standard input as (path, Program); answers go pickled to standard output, a
list of one (kind, detail) per step: ("bytes", digest of every byte of the buffer), ("done", "") or
(name of the exception, its text).
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
from h5py import h5d, h5f, h5p, h5s, h5t

from tests.differential.programs import (
    Change,
    Index,
    Read,
    Together,
    Write,
    dtype_of,
    make_dataset,
    values_of,
    write_values,
)

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


class Opened:
    """The file as a session has it open."""

    def __init__(self, path, session):
        self._path = path
        self._session = session
        self._files = self._open()
        self._kept = {}
        self._turn = 0

    def _open(self):
        first = self._open_once()
        if self._session.opened == "once":
            return [first]
        if self._session.opened == "again":
            return [first, self._open_once()]
        again = h5py.File(first.id.reopen())
        if self._session.opened == "reopened":
            return [first, again]
        first.id.close()
        return [again]

    def _open_once(self):
        if not self._session.leaves:
            return h5py.File(self._path, "r+" if self._session.writable else "r")
        # As most programs in C have it; h5py's own closes what is in the file with it.
        access = h5p.create(h5p.FILE_ACCESS)
        access.set_fclose_degree(h5f.CLOSE_WEAK)
        flags = h5f.ACC_RDWR if self._session.writable else h5f.ACC_RDONLY
        return h5py.File(h5f.open(os.fsencode(self._path), flags, access))

    def next_file(self):
        self._turn += 1
        return self._files[self._turn % len(self._files)]

    def dataset(self, path):
        file = self.next_file()
        if not self._session.keeps:
            return file[path]
        key = (self._turn % len(self._files), path)
        if key not in self._kept:
            self._kept[key] = file[path]
        return self._kept[key]

    def close(self):
        """Close the file; returns what stays open."""
        for file in self._files:
            file.id.close() if self._session.leaves else file.close()
        return list(self._kept.values())


class BeyondExtentError(Exception):
    """A selection reaches beyond a dataset that has shrunk; HDF5 is not asked."""


def refuse_beyond(dataset, selection):
    """Raise what keeps a program out of what HDF5 does not come back from.

    A dataspace of a larger extent than the dataset's: of a chunked dataset HDF5 2.0 reads without
    end then.
    """
    if any(n < asked for n, asked in zip(dataset.shape, selection.extent, strict=True)):
        raise BeyondExtentError


def prepare(opened, read):
    """Return what H5Dread takes; every touch of the buffer shows."""
    dataset = opened.dataset(read.path)
    if read.selection is not None:
        refuse_beyond(dataset, read.selection)
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


def run_together(opened, reads):
    prepared = [prepare(opened, read) for read in reads]

    def ids(of):
        return (ctypes.c_int64 * len(prepared))(*(identifier(p[of]) for p in prepared))

    buffers = (ctypes.c_void_p * len(prepared))(*(p[4].ctypes.data for p in prepared))
    if read_multi()(len(prepared), ids(0), ids(3), ids(1), ids(2), 0, buffers) < 0:
        return ("failed", "")  # what it leaves in the buffers is nobody's business
    return ("bytes", ",".join(digest(p[4]) for p in prepared))


def run_plain(opened, read):
    dataset, memory, space, memory_type, buffer = prepare(opened, read)
    h5d.DatasetID.read(dataset, memory, space, buffer, memory_type)
    return ("bytes", digest(buffer))


def run_index(opened, read):
    dataset = opened.dataset(read.path)
    view = dataset if read.astype is None else dataset.astype(read.astype)
    values = np.asarray(view[read.index])
    return ("bytes", f"{values.shape} {values.dtype.str} {digest(values)}")


def run_write(opened, write):
    dataset = opened.dataset(write.path)
    refuse_beyond(dataset, write.selection)
    space = space_of(write.selection)
    n = space.get_select_npoints()
    values = values_of(dtype_of(write.dtype), (n,), write.seed)
    write_values(dataset, values, h5s.create_simple((n,)), space)
    return ("done", "")


def run_change(opened, change):
    if change.kind == "replace":
        file = opened.next_file()
        del file[change.path]
        make_dataset(file, change.source, change.seed)
        return ("done", "")
    dataset = opened.dataset(change.path)
    if change.kind == "resize":
        dataset.resize(change.extent)
    elif change.kind == "attribute":
        dataset.attrs["changed"] = change.seed
    elif change.kind == "refresh":
        dataset.refresh()
    else:
        dataset.flush()
    return ("done", "")


RUN = {Read: run_plain, Index: run_index, Write: run_write, Change: run_change}


def run(opened, step):
    try:
        if isinstance(step, Together):
            return run_together(opened, step.reads)
        return RUN[type(step)](opened, step)
    except Exception as error:  # noqa: BLE001 - the answer is whatever the program would have got
        return (type(error).__name__, str(error))


def run_session(path, session):
    """Return the answers, and what stays open."""
    try:
        opened = Opened(path, session)
    except OSError as error:
        text = str(error).replace(str(path), "")
        return [(type(error).__name__, text) for _ in session.steps], []
    answers = [run(opened, step) for step in session.steps]
    return answers, opened.close()


def main():
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    while True:
        try:
            path, program = pickle.load(sys.stdin.buffer)  # noqa: S301 - from the test that started us
        except EOFError:
            return
        given = []
        for _ in range(program.rounds):
            left_open = []
            for session in program.sessions:
                answers_of_it, left = run_session(path, session)
                given += answers_of_it
                left_open += left
        pickle.dump(given, answers)
        answers.flush()


if __name__ == "__main__":
    main()
