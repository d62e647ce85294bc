"""``sds.read``: read a selection of a dataset, equal to what h5py returns for it.

Selections of types that need no conversion come from a replica where that is predicted faster, or
from a contiguous original straight from the file; everything else through h5py. A file that was
read before is not opened through HDF5 again: see :mod:`sds.client.open_files`.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

import numpy as np

from sds import _native
from sds.client.open_files import (
    find_local,
    find_opened,
    is_written_through_h5py,
    keep,
    open_file,
    version_in_hdf5,
)
from sds.client.replica_reader import Outcome
from sds.errors import SdsValueError, SelectionError, UnsupportedError
from sds.files import require_regular
from sds.geometry import is_basic_index, parse_index, selection_from_index
from sds.geometry.point_selection import (
    ListedSelection,
    ScatteredSelection,
    select_points,
    select_scattered,
)
from sds.hdf5.chunk_reader import describe_chunked, find_chunks, read_chunked
from sds.hdf5.dataset import describe_open_dataset, get_dataset, open_hdf5
from sds.home import default_home
from sds.redirect.tables import table_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    import h5py
    from numpy.typing import ArrayLike, NDArray

    from sds.client.open_files import OpenedFile
    from sds.geometry import Hyperslab
    from sds.hdf5.chunk_reader import ChunkedSource
    from sds.hdf5.dataset import DatasetDescription
    from sds.hdf5.identity import Version
    from sds.home import Home

    Slab: TypeAlias = tuple[Hyperslab, tuple[int, ...]]
    Selected: TypeAlias = Slab | ListedSelection | ScatteredSelection

# Runs per call of the engine: bounds the memory of their offsets.
_BATCH_RUNS = 1 << 20


def read(
    file: str | os.PathLike[str],
    dataset: str,
    selection: object = ...,
    out: NDArray[Any] | None = None,
    strategy: str = "auto",
    *,
    points: ArrayLike | None = None,
) -> Any:  # noqa: ANN401  (as h5py: an array, or a scalar where every axis is dropped)
    """Return a selection of a dataset, equal to h5py's ``file[dataset][selection]``.

    Parameters
    ----------
    file, dataset
        An HDF5 file and the path of a dataset in it. The file stays open for the next call, but not
        with HDF5; see :func:`sds.forget`.
    selection
        An index expression such as ``np.s_[:, 3, ::2]``, or the text of one; any that h5py takes.
    out
        Filled and returned if given: C-contiguous, of the result's shape and type.
    strategy
        How a contiguous dataset is read: "auto" plans what is predicted to be fastest. To compare
        with, and then without replicas: "multiple", "sieve", "list", "pmd"; see
        :func:`sds.read_list`.
    points
        Instead of a selection, which h5py has not: coordinates of elements, shape (n, rank), in any
        order; the result has shape (n,) and equals ``array[tuple(points.T)]`` of the whole array.

    Raises
    ------
    NotHdf5Error, FileMissingError, DatasetNotFoundError
        And the other errors of `sds.hdf5.dataset.describe_dataset`.
    SelectionError
        If h5py cannot select so, or the selection reaches outside the dataset.
    SdsValueError
        If `out` does not fit, or `strategy` is unknown.
    UnsupportedError
        If a strategy is named that does not apply: the dataset is not contiguous, its elements need
        conversion, or the selection is one that only h5py understands.
    """
    if strategy == "auto" and points is None:
        repeated = _repeat(file, dataset, selection, out)
        if repeated is not None:
            return repeated
    if strategy not in _native.STRATEGIES:
        message = f"no strategy is called {strategy!r}; there are {', '.join(_native.STRATEGIES)}"
        raise SdsValueError(message)
    index = parse_index(selection) if isinstance(selection, str) else selection
    if points is not None and index is not ...:
        raise SdsValueError("pass either a selection or points, not both")
    opened = find_opened(file)
    described = None if opened is None else opened.datasets.get(dataset)
    ask_replicas = True
    if opened is not None and described is not None:
        selected = _select(index, points, described)
        if selected is not None:
            values, ask_replicas = _read_known(
                opened, dataset, described, selected, out=out, strategy=strategy
            )
            if values is not None:
                return values
    return _read_anew(
        file, dataset, index, points=points, out=out, strategy=strategy, ask_replicas=ask_replicas
    )


def _repeat(
    file: str | os.PathLike[str], dataset: str, index: object, out: NDArray[Any] | None
) -> NDArray[Any] | None:
    """Return a selection that a replica serves by what is known; None where it is not enough."""
    opened = find_local(file)
    described = None if opened is None else opened.datasets.get(dataset)
    if opened is None or described is None:
        return None
    path, redirection = described.path, opened.redirection
    if not redirection.may_repeat(path) or is_written_through_h5py(opened.version):
        return None
    return redirection.repeat(path, index, out)


def _read_known(
    opened: OpenedFile,
    name: str,
    described: DatasetDescription,
    selected: Selected,
    *,
    out: NDArray[Any] | None,
    strategy: str,
) -> tuple[Any, bool]:
    """Return a selection of a dataset that was read before; None where HDF5 has to read.

    The second value is False where replicas have failed already, and are not to be tried again.
    """
    home = _home()
    if _may_be_served(selected, strategy) and opened.redirection.may_serve(home):
        slab, shape = selected
        out = _result(shape, described.dtype, out)
        outcome = opened.redirection.serve(
            home,
            described,
            slab,
            out,
        )
        if outcome is not Outcome.ORIGINAL:
            return (out, False) if outcome is Outcome.SERVED else (None, True)
    if described.data_offset_bytes is not None:
        return _read_directly(opened, described, selected, out, strategy), False
    if strategy != "auto":
        return None, False
    return _read_chunks(opened, opened.chunked.get(name), selected, out), False


def _may_be_served(selected: Selected, strategy: str) -> TypeGuard[Slab]:
    """Return whether a read is of a kind that replicas serve: boxes of several elements."""
    return (
        strategy == "auto"
        and isinstance(selected, tuple)
        and bool(selected[1])
        and 0 not in selected[1]
    )


_known_home: tuple[tuple[bytes | None, ...], Home] | None = None


def _home() -> Home:
    """Return the home that the environment names; finding it anew costs as much as a read."""
    global _known_home  # noqa: PLW0603  (kept as long as the environment is the same)
    get = os.environb.get  # decodes nothing
    named = (get(b"SDS_HOME"), get(b"XDG_DATA_HOME"), get(b"HOME"))
    if _known_home is None or _known_home[0] != named:
        _known_home = (named, default_home())
    return _known_home[1]


def _select(
    index: object, points: ArrayLike | None, described: DatasetDescription
) -> Selected | None:
    """Return what is selected, None where only h5py can tell."""
    if points is not None:
        return select_points(points, described.extent)
    if not described.extent or described.is_null:
        return None
    if is_basic_index(index):
        return selection_from_index(index, described.extent)
    return select_scattered(index, described.extent)


def _read_anew(
    file: str | os.PathLike[str],
    dataset: str,
    index: object,
    *,
    points: ArrayLike | None,
    out: NDArray[Any] | None,
    strategy: str,
    ask_replicas: bool,
) -> Any:  # noqa: ANN401
    """Read from a dataset that h5py opens, and keep what it says of it where that is possible."""
    with _opened_by_hdf5(file, dataset) as (handle, source, found):
        is_linked = source.name != handle.name
        # Before the description: what is changed afterwards is seen when the file is opened again.
        version = version_in_hdf5(source)
        described = describe_open_dataset(found, os.fsdecode(source.name))
        selected = _select(index, points, described)
        if selected is not None and described.is_native and version is not None:
            if (
                ask_replicas
                and _may_be_served(selected, strategy)
                and os.access(table_path(_home(), described.file), os.F_OK)
            ):
                opened = _open_same(described.file if is_linked else file, version)
                slab, shape = selected
                result = _result(shape, described.dtype, out)
                if opened is not None and _is_served(opened, found, described, slab, result):
                    if not is_linked:
                        opened.datasets[dataset] = described
                        keep(opened)
                    return result
            values = _read_from_file(
                described.file if is_linked else file,
                None if is_linked else dataset,
                (found, described, version),
                selected,
                out=out,
                strategy=strategy,
            )
            if values is not None:
                return values
        if strategy != "auto":
            message = (
                f"strategy {strategy!r} does not apply to this read of {described.path} in "
                f"{described.file}: only to contiguous datasets that need no conversion, by "
                "integers, slices, one list, a mask or points; leave it at 'auto'"
            )
            raise UnsupportedError(message)
        if points is not None:
            return _read_points_through_hdf5(found, points, out)
        return _read_through_hdf5(found, index, out)


def _open_same(file: str | os.PathLike[str], version: Version) -> OpenedFile | None:
    """Return a file opened for reading, None where its bytes are not those of a version."""
    opened = open_file(file)
    return opened if opened.version == version else None


def _is_served(
    opened: OpenedFile,
    found: h5py.Dataset,
    described: DatasetDescription,
    slab: Hyperslab,
    result: NDArray[Any],
) -> bool:
    """Fill an array from a replica if there is a good one predicted faster; return whether."""
    outcome = opened.redirection.serve(
        _home(),
        described,
        slab,
        result,
        dataset=found,
    )
    return outcome is Outcome.SERVED


def _read_from_file(
    file: str | os.PathLike[str],
    name: str | None,
    found: tuple[h5py.Dataset, DatasetDescription, Version],
    selected: Selected,
    *,
    out: NDArray[Any] | None,
    strategy: str,
) -> Any:  # noqa: ANN401
    """Return a selection that is read without HDF5; None where only HDF5 can, or is faster.

    What was found out about the dataset is kept under a name.
    """
    dataset, described, version = found
    is_contiguous = described.data_offset_bytes is not None
    if not is_contiguous and (strategy != "auto" or described.chunk_shape is None):
        return None
    opened = _open_same(file, version)
    if opened is None:
        return None
    source = None
    if not is_contiguous:
        known = None if name is None else opened.chunked.get(name)
        source = known or describe_chunked(dataset, described)
        if source is None:
            return None
        if 0 not in _shape_of(selected):
            find_chunks(dataset, source, _without_shape(selected))
    if name is not None:
        opened.datasets[name] = described
        if source is not None:
            opened.chunked[name] = source
        keep(opened)
        home = _home()
        if opened.redirection.may_serve(home):
            opened.redirection.learn(home, described, dataset)
    if source is not None:
        return _read_chunks(opened, source, selected, out)
    return _read_directly(opened, described, selected, out, strategy)


def _read_chunks(
    opened: OpenedFile,
    source: ChunkedSource | None,
    selected: Selected,
    out: NDArray[Any] | None,
) -> Any:  # noqa: ANN401
    """Return a selection of a chunked dataset, None where HDF5 has to read it."""
    if source is None:
        return None
    shape = _shape_of(selected)
    result = _result(shape, source.described.dtype, out)
    if result.size and not read_chunked(opened.engine, source, _without_shape(selected), result):
        return None
    return result[()] if shape == () and out is None else result


def _shape_of(selected: Selected) -> tuple[int, ...]:
    return selected[1] if isinstance(selected, tuple) else selected.shape


def _without_shape(selected: Selected) -> Hyperslab | ListedSelection | ScatteredSelection:
    return selected[0] if isinstance(selected, tuple) else selected


@contextmanager
def _opened_by_hdf5(
    file: str | os.PathLike[str], name: str
) -> Iterator[tuple[h5py.h5f.FileID, h5py.h5f.FileID, h5py.Dataset]]:
    """Open a file, and a dataset in it, as `open_hdf5` and `get_dataset` do, in half the time.

    Yields the file, the one that holds the dataset (an external link may lead there), and that.
    """
    import h5py  # noqa: PLC0415  (import sds must not load the HDF5 library)

    # As h5py opens files: HDF5 refuses to open one in two ways at once, in another thread too.
    handle = None
    require_regular(file)
    try:
        handle = h5py.h5f.open(os.fsencode(file), h5py.h5f.ACC_RDONLY)
        found = h5py.Dataset(h5py.h5d.open(handle, name.encode()))
    except (OSError, KeyError, ValueError, RuntimeError):
        if handle is not None:
            handle.close()
        with open_hdf5(file) as opened:  # has the words for what is wrong
            found = get_dataset(opened, name)
            yield opened.id, h5py.h5i.get_file_id(found.id), found
        return
    source = h5py.h5i.get_file_id(found.id)
    try:
        yield handle, source, found
    finally:  # also where an exception keeps hold of the frames that know them
        for one in (found.id, source, handle):
            one.close()


def _read_directly(
    opened: OpenedFile,
    described: DatasetDescription,
    selected: Selected,
    out: NDArray[Any] | None,
    strategy: str,
) -> Any:  # noqa: ANN401
    """Return a selection of a contiguous dataset, read from the file itself."""
    shape = _shape_of(selected)
    if isinstance(selected, ListedSelection):
        selected = selected.spread(described.extent)
    result = _result(shape, described.dtype, out)
    into = result.reshape(-1).view(np.uint8) if result.size else None
    if into is not None and isinstance(selected, ScatteredSelection):
        _read_scattered(opened.engine, described, selected, into, strategy)
    elif into is not None and isinstance(selected, tuple):
        slab = selected[0]
        runs = _native.runs(
            described.extent,
            described.element_size_bytes,
            described.data_offset_bytes or 0,
            slab.start,
            slab.stride,
            slab.count,
            slab.block,
        )
        opened.engine.read_runs(*runs, into.data, strategy)
    return result[()] if shape == () and out is None else result


def _read_scattered(
    engine: _native.ReadFile,
    described: DatasetDescription,
    selected: ScatteredSelection,
    into: NDArray[np.uint8],
    strategy: str,
) -> None:
    """Read runs, in any order, into bytes where they lie one after the other."""
    run_bytes = selected.run_elements * described.element_size_bytes
    for first in range(0, len(selected.offsets), _BATCH_RUNS):
        offsets = selected.offsets[first : first + _BATCH_RUNS] * described.element_size_bytes
        offsets += described.data_offset_bytes or 0
        batch = into[first * run_bytes : (first + len(offsets)) * run_bytes]
        _native.read_list(engine, offsets, run_bytes, None, 0, batch.data, strategy)


def _result(
    shape: tuple[int, ...], dtype: np.dtype[np.generic], out: NDArray[Any] | None
) -> NDArray[Any]:
    """Return `out` if it fits, or a new array if there is none."""
    if out is None:
        return np.empty(shape, dtype)
    if not isinstance(out, np.ndarray):
        raise SdsValueError(
            f"out is a {type(out).__name__}, not a NumPy array; pass np.empty({shape}, "
            f"{str(dtype)!r})"
        )
    if out.shape != shape or out.dtype != dtype:
        message = (
            f"out is {out.dtype} of shape {out.shape}, the selection {dtype} of shape {shape}; "
            f"pass np.empty({shape}, {str(dtype)!r})"
        )
        raise SdsValueError(message)
    if not out.flags.c_contiguous or not out.flags.writeable:
        raise SdsValueError("out must be C-contiguous and writeable; pass a fresh np.empty array")
    return out


def _read_points_through_hdf5(
    dataset: h5py.Dataset, points: ArrayLike, out: NDArray[Any] | None
) -> NDArray[Any]:
    """Return elements at coordinates that are within the dataset."""
    import h5py  # noqa: PLC0415

    rows = np.asarray(points).reshape(-1, dataset.ndim)
    rows = np.where(rows < 0, rows + np.array(dataset.shape), rows)
    values = np.empty(len(rows), dataset.dtype)
    if len(rows):
        in_file = dataset.id.get_space()
        in_file.select_elements(rows)
        in_memory = h5py.h5s.create_simple((len(rows),))
        dataset.id.read(in_memory, in_file, values, h5py.h5t.py_create(dataset.dtype))
    return _copied(values, out)


def _read_through_hdf5(dataset: h5py.Dataset, index: object, out: NDArray[Any] | None) -> Any:  # noqa: ANN401
    """Return what h5py returns, its complaints about the selection as SelectionError."""
    try:
        values = dataset[index]
    except (TypeError, ValueError, IndexError) as error:
        message = f"cannot select {index!r} of {dataset.name} with extent {dataset.shape}: {error}"
        raise SelectionError(message) from error
    return values if out is None else _copied(np.asarray(values), out)


def _copied(values: NDArray[Any], out: NDArray[Any] | None) -> NDArray[Any]:
    if out is None:
        return values
    result = _result(values.shape, values.dtype, out)
    result[...] = values
    return result
