"""Find datasets of HDF5 files by name, and describe their storage.

The only place that turns h5py's open errors into those of :mod:`sds.errors`.
"""

from __future__ import annotations

import enum
import math
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sds.errors import (
    DatasetNotFoundError,
    FormatError,
    NotHdf5Error,
    PermissionDeniedError,
    SdsValueError,
    TruncatedFileError,
    UnsupportedError,
)
from sds.files import path_error, require_regular
from sds.geometry.replica_layout import Filter
from sds.hdf5.type_digest import type_text

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    import h5py
    from numpy.typing import NDArray

_N_NAMES_SHOWN = 8
_N_NAMES_COMPARED = 4096


class Storage(enum.StrEnum):
    """HDF5 storage layout of the elements of a dataset."""

    CONTIGUOUS = "contiguous"
    CHUNKED = "chunked"
    COMPACT = "compact"
    EXTERNAL = "external"
    VIRTUAL = "virtual"


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetDescription:
    """A dataset and its storage.

    Attributes
    ----------
    file
        As it was given, or the file that an external link on the way led to.
    path
        Absolute HDF5 path in that file.
    extent
        Elements per axis; ``()`` for a scalar.
    dtype
        NumPy type of an element, in the byte order of the file.
    element_size_bytes
        Bytes of one element in the file.
    data_offset_bytes
        File offset of element 0, user block included; None where the storage is not contiguous or
        nothing has been written yet.
    chunk_shape
        Elements per axis of a chunk; None where not chunked.
    filters
        In the order in which writing applies them.
    stored_bytes
        Bytes that the file spends on the elements.
    is_fixed_size
        False where elements lie outside the dataset (variable length, references).
    is_native
        True where the stored bytes of an element are those of ``dtype``.
    is_null
        True for a dataset without elements by type (H5S_NULL); ``extent`` is then ``(0,)``.
    has_undefined_elements
        True where a read leaves memory as it was for some elements: nothing is stored for them, and
        HDF5 fills none in.
    type_problem
        Why no read of elements of its type is ever redirected; empty where reads are.
    """

    file: Path
    path: str
    extent: tuple[int, ...]
    dtype: np.dtype[np.generic]
    element_size_bytes: int
    storage: Storage
    data_offset_bytes: int | None
    chunk_shape: tuple[int, ...] | None
    filters: tuple[Filter, ...]
    stored_bytes: int
    is_fixed_size: bool
    is_native: bool
    is_null: bool
    has_undefined_elements: bool = False
    type_problem: str = ""

    @property
    def n_elements(self) -> int:
        """Number of elements."""
        return math.prod(self.extent)

    @property
    def size_bytes(self) -> int:
        """Bytes of all elements, unfiltered."""
        return self.n_elements * self.element_size_bytes


def parse_dataset_name(name: str) -> tuple[Path, str]:
    """Return the file and the HDF5 path that ``FILE:/path`` names.

    A file name may hold colons: of several possible splits the one whose file exists is taken,
    else the last.

    Raises
    ------
    SdsValueError
        If there is no ``:/`` or nothing before it.
    """
    positions = [i for i in range(1, len(name) - 1) if name.startswith(":/", i)]
    if not positions:
        file, colon, path = name.rpartition(":")
        remedy = f"{file}:/{path}" if colon and file and path else f"{name or 'run.h5'}:/path"
        message = f"{name!r} names no dataset: write FILE:/path, for example {remedy!r}"
        raise SdsValueError(message)
    existing = [i for i in positions if file_exists(Path(name[:i]))]
    split = (existing or positions)[-1]
    return Path(name[:split]), name[split + 1 :]


def file_exists(path: Path) -> bool:
    """Return whether a file is known to be there: False where its directory may not be searched."""
    try:
        return path.is_file()
    except PermissionError:
        return False


@contextmanager
def open_hdf5(file: str | os.PathLike[str]) -> Iterator[h5py.File]:
    """Open an HDF5 file for reading.

    Raises
    ------
    FileMissingError, PermissionDeniedError, NotHdf5Error, TruncatedFileError, FormatError
        Each names the file and what to do.
    """
    import h5py  # noqa: PLC0415  (import sds must not load the HDF5 library)

    require_regular(file)
    try:
        handle = h5py.File(file, "r")
    except OSError as error:
        open_already = _open_as_it_is_open(file, error)
        if open_already is None:
            raise _explain_open_error(Path(file), error) from error
        handle = open_already
    with handle:
        yield handle


def _open_as_it_is_open(file: str | os.PathLike[str], error: OSError) -> h5py.File | None:
    """Return a file that the program has open with locks that are not the default; None: not so.

    HDF5 opens no file a second time with another choice about locks.
    """
    import h5py  # noqa: PLC0415

    if "flag values don't match" not in str(error):
        return None
    for locking in (False, True, "best-effort"):
        with suppress(OSError):
            return h5py.File(file, "r", locking=locking)
    return None


def _explain_open_error(file: Path, error: OSError) -> Exception:
    """Return the error of SDS for one that h5py.File raised."""
    kind: type[Exception]
    try:
        with file.open("rb") as stream:
            empty = not stream.read(1)
    except PermissionError:
        kind, what = PermissionDeniedError, f"may not read {file}; ask its owner for permission"
    except IsADirectoryError:
        kind, what = NotHdf5Error, f"{file} is a directory; name an HDF5 file"
    except OSError as cause:
        explained = path_error(file, cause)
        if explained is not cause:
            return explained
        kind, what = FormatError, f"cannot read {file}: {cause}; check its file system"
    else:
        text = str(error)
        if empty:
            kind, what = NotHdf5Error, f"{file} is empty; name an HDF5 file"
        elif "signature not found" in text:
            kind, what = NotHdf5Error, f"{file} is not an HDF5 file; name one, or convert it first"
        elif "truncated file" in text:
            kind, what = TruncatedFileError, f"{file} ends before its data ({text}); copy it again"
        elif "unable to lock file" in text:
            kind, what = FormatError, f"{file} is being written ({text}); try again later"
        else:
            kind, what = FormatError, f"cannot open {file} as HDF5: {text}; check it with h5ls"
    return kind(what)


def get_dataset(handle: h5py.File, path: str) -> h5py.Dataset:
    """Return a dataset of an open file.

    Raises
    ------
    DatasetNotFoundError
        If there is nothing of that path, or no dataset; names some that exist.
    """
    import h5py  # noqa: PLC0415

    try:
        found = handle[path]
    except (KeyError, ValueError) as error:
        message = f"{handle.filename} has no dataset {path!r}; {_names_like(path, handle)}"
        raise DatasetNotFoundError(message) from error
    if not isinstance(found, h5py.Dataset):
        kind = type(found).__name__.lower()
        within = found if isinstance(found, h5py.Group) else handle
        message = f"{path!r} of {handle.filename} is a {kind}, no dataset; {_names_in(within)}"
        raise DatasetNotFoundError(message)
    return found


def _names_like(path: str, group: h5py.Group) -> str:
    """Return sentences that name the datasets that a mistyped path may mean, and some others."""
    near = get_close_matches(f"/{path.strip('/')}", _dataset_names(group, most=_N_NAMES_COMPARED))
    meant = f"did you mean {' or '.join(near)}? " if near else ""
    return meant + _names_in(group)


def _dataset_names(group: h5py.Group, *, most: int) -> list[str]:
    """Return the paths of the first datasets of a group and its subgroups, up to a number."""
    import h5py  # noqa: PLC0415

    names: list[str] = []

    def collect(_: str, member: h5py.Group | h5py.Dataset) -> bool | None:
        if isinstance(member, h5py.Dataset):
            names.append(str(member.name))
        return True if len(names) >= most else None

    group.visititems(collect)
    return names


def _names_in(group: h5py.Group) -> str:
    """Return a sentence that names some datasets of a group."""
    names = _dataset_names(group, most=_N_NAMES_SHOWN + 1)
    if not names:
        return "it holds no datasets"
    more = ", ..." if len(names) > _N_NAMES_SHOWN else ""
    return f"it holds {', '.join(names[:_N_NAMES_SHOWN])}{more}"


def describe_dataset(file: str | os.PathLike[str], dataset: str) -> DatasetDescription:
    """Describe a dataset and its storage.

    Raises
    ------
    FileMissingError, PermissionDeniedError, NotHdf5Error, TruncatedFileError, FormatError
        As :func:`open_hdf5`.
    DatasetNotFoundError
        If the file has no dataset of that path.
    UnsupportedError
        If NumPy has no type for its elements.
    """
    with open_hdf5(file) as handle:
        found = get_dataset(handle, dataset)
        linked = found.file.filename
        return describe_open_dataset(found, file if linked == handle.filename else linked)


def describe_open_dataset(
    dataset: h5py.Dataset, file: str | os.PathLike[str]
) -> DatasetDescription:
    """Describe an open dataset and its storage; errors as `describe_dataset`."""
    import h5py  # noqa: PLC0415

    try:
        dtype = dataset.dtype
    except (TypeError, ValueError, KeyError) as error:  # h5py: unknown, too wide, VAX byte order
        message = f"NumPy has no type for the elements of {dataset.name} in {file}: {error}"
        raise UnsupportedError(message) from error
    file_type = dataset.id.get_type()
    is_fixed_size = is_type_of_fixed_size(file_type)
    plist = dataset.id.get_create_plist()
    storage = _storage_of(plist)
    null = dataset.id.get_space().get_simple_extent_type() == h5py.h5s.NULL
    filters = [plist.get_filter(i) for i in range(plist.get_nfilters())]
    # Without this check HDF5 returns a plausible offset for nothing: "undefined" plus user block.
    has_offset = (
        storage is Storage.CONTIGUOUS
        and dataset.id.get_space_status() == h5py.h5d.SPACE_STATUS_ALLOCATED
    )
    offset = dataset.id.get_offset() if has_offset else None
    extent = (0,) if null else tuple(int(n) for n in dataset.shape)
    return DatasetDescription(
        file=Path(file),
        path=str(dataset.name),
        extent=extent,
        dtype=dtype,
        element_size_bytes=int(file_type.get_size()),
        storage=storage,
        data_offset_bytes=None if offset is None else int(offset),
        chunk_shape=plist.get_chunk() if storage is Storage.CHUNKED else None,
        filters=tuple(
            Filter(
                code=int(code),
                name=name.decode("utf-8", "replace"),
                options=tuple(int(option) for option in options),
            )
            for code, _, options, name in filters
        ),
        stored_bytes=int(dataset.id.get_storage_size()),
        is_fixed_size=is_fixed_size,
        is_native=is_fixed_size and _is_native(file_type, dtype),
        is_null=null,
        has_undefined_elements=not fills_missing(plist)
        and math.prod(extent) > 0
        and not _is_all_stored(dataset.id, storage, extent),
        type_problem=_type_problem(file_type),
    )


def _type_problem(file_type: h5py.h5t.TypeID) -> str:
    try:
        type_text(file_type)
    except UnsupportedError as error:
        return str(error)
    return ""


def fills_missing(plist: h5py.h5p.PropDCID) -> bool:
    """Return whether a read of elements that are not stored gives a fill value.

    Otherwise it leaves the memory that it was given as it was: with the fill time NEVER, and where
    the fill value is undefined.
    """
    import h5py  # noqa: PLC0415

    never = plist.get_fill_time() == h5py.h5d.FILL_TIME_NEVER
    undefined = plist.fill_value_defined() == h5py.h5d.FILL_VALUE_UNDEFINED
    return not (never or undefined)


def _is_all_stored(dataset: h5py.h5d.DatasetID, storage: Storage, extent: tuple[int, ...]) -> bool:
    """Return whether all elements of a dataset have a place in a file."""
    import h5py  # noqa: PLC0415

    if storage is Storage.CHUNKED:
        chunk_shape = dataset.get_create_plist().get_chunk()
        n_chunks = math.prod(-(-n // size) for n, size in zip(extent, chunk_shape, strict=True))
        return bool(dataset.get_num_chunks() == n_chunks)
    if storage in {Storage.EXTERNAL, Storage.VIRTUAL}:
        return False  # other files may lack them
    return bool(dataset.get_space_status() == h5py.h5d.SPACE_STATUS_ALLOCATED)


def is_type_of_fixed_size(file_type: h5py.h5t.TypeID) -> bool:
    """Return False where elements of a type lie elsewhere (variable length, references)."""
    import h5py  # noqa: PLC0415

    # h5py knows a string of variable length as a string; detect_class reports VLEN for neither.
    return not (
        file_type.detect_class(h5py.h5t.VLEN)
        or file_type.detect_class(h5py.h5t.REFERENCE)
        or _has_variable_string(file_type)
    )


def _storage_of(plist: h5py.h5p.PropDCID) -> Storage:
    """Return how HDF5 keeps the elements."""
    import h5py  # noqa: PLC0415

    layout = plist.get_layout()
    if layout == h5py.h5d.CONTIGUOUS:
        return Storage.EXTERNAL if plist.get_external_count() else Storage.CONTIGUOUS
    if layout == h5py.h5d.CHUNKED:
        return Storage.CHUNKED
    return Storage.COMPACT if layout == h5py.h5d.COMPACT else Storage.VIRTUAL


def _has_variable_string(file_type: h5py.h5t.TypeID) -> bool:
    """Return whether a string of variable length is part of a type."""
    import h5py  # noqa: PLC0415

    if isinstance(file_type, h5py.h5t.TypeStringID):
        return bool(file_type.is_variable_str())
    if isinstance(file_type, h5py.h5t.TypeCompoundID):
        members = range(file_type.get_nmembers())
        return any(_has_variable_string(file_type.get_member_type(i)) for i in members)
    if isinstance(file_type, h5py.h5t.TypeArrayID):
        return _has_variable_string(file_type.get_super())
    return False


def _is_native(file_type: h5py.h5t.TypeID, dtype: np.dtype[np.generic]) -> bool:
    """Return whether the bytes of an element in the file are those of its NumPy type."""
    import h5py  # noqa: PLC0415

    if dtype.subdtype is not None or dtype.itemsize != file_type.get_size():
        return False
    try:
        return bool(file_type.equal(h5py.h5t.py_create(dtype, logical=True)))
    except TypeError:
        return False  # a NumPy type that h5py reads but does not write: not ours to copy


def as_words(
    elements: NDArray[np.uint8], shape: Sequence[int], element_size_bytes: int
) -> NDArray[np.unsignedinteger]:
    """Return bytes as an array of `shape` whose last, extra axis holds an element's words.

    A word is as long as divides the element: 8, 4, 2 or 1 bytes.
    """
    word = next(size for size in (8, 4, 2, 1) if element_size_bytes % size == 0)
    n_bytes = math.prod(shape) * element_size_bytes
    words = elements[:n_bytes].view(f"u{word}")
    return words.reshape(*shape, element_size_bytes // word)
