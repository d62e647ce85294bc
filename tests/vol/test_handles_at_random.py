"""Handles of every kind, far more than have wrappers, opened, used and closed in random order.

HDF5 uses the memory of what was closed for what is opened next: nothing that is known of the one
may be taken for the other.
"""

import h5py
import numpy as np
import pytest

from tests.redirected import publish_candidates, reads_by_replica, settle, write_replica
from tests.under_connector import connector_environment, run_python

N_FILES = 3
N_DATASETS = 40
N_STEPS = 4000
MOST_WRAPPED = 512  # object.h

AT_RANDOM = """
import random, sys, h5py, numpy as np
from h5py import h5a, h5d, h5f, h5g, h5o, h5t
paths, n_datasets, n_steps, seed, n_crowd = sys.argv[1].split(","), *map(int, sys.argv[2:])
rng = random.Random(seed)
files, crowd, kept, wrong = {}, [], [], []

def expected(which, i):
    shape = (8 + i % 5, 64, 4 + which)
    return (np.arange(np.prod(shape)) + 1000 * i + 100000 * which).reshape(shape)

def file_of(which):
    if which not in files:
        files[which] = h5f.open(paths[which].encode(), h5f.ACC_RDONLY)
    return files[which]

def check(handle):
    kind, which, i, item = handle
    if kind == "dataset":
        whole = expected(which, i)
        dataset = h5py.Dataset(item)
        axis = rng.randrange(3)
        at = [slice(None)] * 3
        at[axis] = rng.randrange(whole.shape[axis])
        if rng.random() < 0.3:
            at[1] = slice(rng.randrange(9), None, 7)
        found = dataset[tuple(at)]
        if found.shape != whole[tuple(at)].shape or not (found == whole[tuple(at)]).all():
            wrong.append((which, i, tuple(at)))
        if dataset.attrs["number"] != i or h5py.h5i.get_name(item) != f"/d{i}".encode():
            wrong.append((which, i, "attribute or name"))
    elif kind == "group":
        if h5o.get_info(item).type != h5o.TYPE_GROUP or len(h5py.Group(item)) != n_datasets + 1:
            wrong.append((which, "group"))
    elif kind == "type":
        if not item.committed() or item.get_size() != 12 + which:
            wrong.append((which, "type"))
    elif kind == "attribute":
        value = np.zeros((), "i8")
        item.read(value)
        if value != i:
            wrong.append((which, i, "attribute"))

def open_one():
    kind = rng.choice(["dataset"] * 5 + ["group", "type", "attribute"])
    which, i = rng.randrange(len(paths)), rng.randrange(n_datasets)
    file = file_of(which)
    if kind == "dataset":
        item = h5d.open(file, f"d{i}".encode())
    elif kind == "group":
        item = h5g.open(file, b"/")
    elif kind == "type":
        item = h5t.open(file, b"type")
    else:
        item = h5a.open(file, b"number", obj_name=f"d{i}".encode())
    return kind, which, i, item

crowd = [h5g.open(file_of(0), b"/") for _ in range(n_crowd)]
for step in range(n_steps):
    at = rng.random()
    if at < 0.35 or not kept:
        kept.append(open_one())
    elif at < 0.6:
        kept[rng.randrange(len(kept))] = kept[-1]
        kept.pop()
    elif at < 0.99:
        check(rng.choice(kept))
    elif rng.random() < 0.5:
        files.pop(rng.choice(list(files)), None)   # what is in it stays open
    elif rng.random() < 0.5:
        gone = rng.randrange(1, len(paths))
        kept = [handle for handle in kept if handle[1] != gone]
        files.pop(gone, None)
    else:
        crowd = crowd[: n_crowd // 2] or [h5g.open(file_of(0), b"/") for _ in range(n_crowd)]
for handle in kept:
    check(handle)
assert not wrong, wrong[:5]
"""


@pytest.mark.parametrize("n_crowd", [0, MOST_WRAPPED])
def test_what_is_read_is_never_another_dataset_s(n_crowd, tmp_path, home):
    paths = []
    for which in range(N_FILES):
        path = tmp_path / f"file{which}.h5"
        with h5py.File(path, "w") as file:
            for i in range(N_DATASETS):
                shape = (8 + i % 5, 64, 4 + which)
                values = np.arange(np.prod(shape)) + 1000 * i + 100000 * which
                dataset = file.create_dataset(f"d{i}", data=values.reshape(shape))
                dataset.attrs["number"] = i
            file["type"] = np.dtype([("a", "f8"), ("b", f"S{4 + which}")])
        settle(path)
        if which < N_FILES - 1:  # one without a table
            publish_candidates(
                path,
                {
                    f"/d{i}": [
                        write_replica(
                            path, f"/d{i}", (2, 1, 0), home, number=100 * which + i + 1,
                            **({"chunks": (2, 64, 8), "shuffle": True} if i % 3 == 0 else {}),
                        )
                    ]
                    for i in range(0, N_DATASETS, 2)
                },
                home,
            )  # fmt: skip
        paths.append(str(path))
    for seed in range(2):
        run_python(
            AT_RANDOM, ",".join(paths), N_DATASETS, N_STEPS, seed, n_crowd,
            env=connector_environment(home.root),
        )  # fmt: skip
    served = reads_by_replica(home)
    assert len([replica for replica in served if replica > 0]) > 10
    assert served[0] > 100
