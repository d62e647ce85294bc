"""Reads every dataset of files, whole and in random selections: ``zoo_reader.py FILE ...``.

Prints a line of JSON for each dataset: [file, dataset, [what each read gave, ...]], and one for
each file that cannot be opened. The selections are drawn from the dataset's path, so that every run
has the same. Knows nothing of SDS.
"""

from __future__ import annotations

import hashlib
import json
import sys
import zlib
from pathlib import Path
from typing import Any

import h5py
import numpy as np

N_SELECTIONS = 30
# Some files declare datasets of terabytes and hold a few chunks of them.
MOST_BYTES = 64 << 20
# MATLAB keeps each cell of an array as a dataset of its own.
MOST_DATASETS = 60


def content(value: Any, file: h5py.File) -> Any:  # noqa: ANN401  (whatever a dataset holds)
    """Return what tells one value from another, without addresses in memory."""
    if isinstance(value, (h5py.Reference, h5py.RegionReference)):
        target = file[value] if value else None
        is_region = target is not None and isinstance(value, h5py.RegionReference)
        return (target and target.name, is_region and target.regionref.selection(value))
    if isinstance(value, (np.ndarray, np.generic)):
        dtype = value.dtype
        if not dtype.hasobject:
            raw = np.ascontiguousarray(value).tobytes()
            return (dtype.descr if dtype.names else dtype.str, value.shape, raw)
        return (str(dtype), value.shape, [content(part, file) for part in np.ravel(value).tolist()])
    if isinstance(value, (tuple, list)):
        return [content(part, file) for part in value]
    return (type(value).__name__, repr(value) if isinstance(value, h5py.Empty) else value)


def given(read: Any, file: h5py.File) -> str:  # noqa: ANN401  (a function that reads)
    """Return what a read gives: a digest of type and values, or the exception and its message."""
    try:
        return hashlib.sha256(repr(content(read(), file)).encode()).hexdigest()[:24]
    except Exception as error:  # noqa: BLE001  (whatever a program would have got)
        return f"{type(error).__name__}: {error}"


def drawn_slice(random: np.random.Generator, length: int) -> slice:
    """Return a slice of an axis, with a stride in one of three."""
    begin, end = sorted(random.integers(0, length + 1, 2).tolist())
    return slice(begin, end, int(random.integers(2, 5)) if random.random() < 1 / 3 else None)


def drawn_index(random: np.random.Generator, dataset: h5py.Dataset) -> Any:  # noqa: ANN401
    """Return an index as programs write them: planes, boxes, strides, lists, masks, fields."""
    shape = dataset.shape
    kind = random.integers(0, 12)
    axis = int(random.integers(len(shape)))
    before = (slice(None),) * axis
    if kind == 0:  # a plane, now and then one that is not there
        return (*before, int(random.integers(shape[axis] + 1)))
    if kind == 1:
        n = min(shape[axis], int(random.integers(1, 6)))
        return (*before, np.sort(random.choice(shape[axis], n, replace=False)).tolist())
    if kind == 2 and len(shape) == 1:
        return random.random(shape) < 0.3
    if kind == 3 and dataset.dtype.names:
        return str(random.choice([*dataset.dtype.names, "no such field"]))
    if kind == 4:
        return (..., drawn_slice(random, shape[-1]))
    return tuple(
        int(random.integers(length)) if length and random.random() < 1 / 3
        else drawn_slice(random, length)
        for length in shape
    )  # fmt: skip


def bounded(index: Any, dataset: h5py.Dataset) -> Any:  # noqa: ANN401
    """Return a selection that takes no more than memory allows of a dataset that is larger."""
    n_bytes = (dataset.size or 0) * dataset.dtype.itemsize
    if n_bytes <= MOST_BYTES:
        return index
    return tuple(slice(0, min(length, 16)) for length in dataset.shape)


def reads_of(dataset: h5py.Dataset, file: h5py.File) -> list[str]:
    """Return what the reads of a dataset give: all of it, then selections of it."""
    random = np.random.default_rng(zlib.crc32(dataset.name.encode()))
    found = [
        given(lambda: dataset.id.get_type().encode(), file),
        given(lambda: dataset[bounded((), dataset)], file),
    ]
    try:
        kind = dataset.dtype.kind
    except (TypeError, ValueError):
        return found  # h5py has no such type, nor selections of it
    for number in range(N_SELECTIONS):
        index = bounded(drawn_index(random, dataset), dataset) if dataset.shape else ()
        if number % 10 == 9 and kind in "iuf":
            found.append(given(lambda index=index: dataset.astype("f4")[index], file))
        else:
            found.append(given(lambda index=index: dataset[index], file))
    return found


def dataset_names(file: h5py.File) -> list[str]:
    """Return the paths of a file's datasets; of thousands of them, MOST_DATASETS from all over."""
    names: list[str] = []

    def add(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset):
            names.append(f"/{name}")

    file.visititems(add)
    return names[:: -(-len(names) // MOST_DATASETS) or 1]


def main() -> None:
    """Read the files that the command line names."""
    for name in sys.argv[1:]:
        path = Path(name)
        try:
            with h5py.File(path, "r") as file:
                for dataset in dataset_names(file):
                    row = [path.name, dataset, reads_of(file[dataset], file)]
                    print(json.dumps(row).replace(str(path.parent), "DIRECTORY"), flush=True)
        except Exception as error:  # noqa: BLE001  (a file may be written to be unreadable)
            text = f"{type(error).__name__}: {error}".replace(str(path.parent), "DIRECTORY")
            print(json.dumps([path.name, "", [text]]), flush=True)


if __name__ == "__main__":
    main()
